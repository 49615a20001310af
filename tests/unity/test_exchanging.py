"""The collector over games that talk, told by hand-written messages: who decides, what is lost, what is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from stories import (
    KIND,
    LATE,
    SPEC,
    TWO_TEAMS,
    Counting,
    Story,
    collector,
    news,
    one,
    rows_of,
    steps,
)
from torch import Tensor

from palus.config.run_file import EDITOR, EnvSettings
from palus.errors import ClosedGameError, EnvError, LostGameError, ProtocolError, StoppedEarly, WorkerError
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.game_statistics import GameTold
from palus.rollout.learner_stretches import Demand
from palus.rollout.rollout import FROZEN, Seat
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Continuous, GameSpec
from palus.unity.news import News
from palus.unity.side_channels import AVERAGE, MOST_RECENT, SUM, Statistic


def test_empty_lists_and_messages_of_ends_alone_are_answered_with_nothing() -> None:
    told = [news(), news(steps((1, 0, 0))), news(), news(None, steps((1, 1, 5.0))), news(), news(steps((1, 2, 0)))]
    story = Story([*told, *[news(steps((1, 3.0, 0.0)))] * 3])
    rollout = one(collector(story, rows=2).collect())
    assert story.answers[:6] == [{}, {"B?team=0": 1}, {}, {}, {}, {"B?team=0": 1}]
    assert rows_of(rollout) == [[(0.0, 5.0, "x"), (2.0, 0.0, "cut")]]


def test_a_behavior_that_appears_in_mid_run_plays_at_random_and_is_told_of_once() -> None:
    late = News({}, {"Late?team=0": steps((9, 0, 0)), "B?team=0": steps((1, 0, 0))})
    games = collector(story := Story([late]), rows=3)
    games.collect()
    assert story.answers[0] == {"Late?team=0": 1, "B?team=0": 1}
    assert games.complaints() == ["Late?team=0 is not learned"] and not games.complaints()


def test_a_behavior_that_appears_in_mid_run_is_learned_from_its_first_decision_on() -> None:
    """Its first message finds the collector within a rollout, and one of two games."""

    def meet(name: str, seen: BehaviorSpec) -> None:
        agents = (*SPEC.agents, AgentSpec(name, 0, 0, "Late"))
        seats = [Seat(FROZEN, False), Seat(1, True)]  # who plays already, plays on
        demands, learners = {1: Demand(3, 2, False)}, {1: ("Late", Counting())}
        games.admit(GameSpec("Story", (KIND, LATE), agents), demands, learners, lambda k: seats, {})

    usual = [news(steps((1, float(t), 1.0))) for t in range(9)]
    both = [News({}, {"Late?team=0": steps((9, 50.0 + t, 2.0)), **told.decisions}) for t, told in enumerate(usual)]
    games = collector(Story([*usual[:2], *both[2:]]), Story(usual), rows=20, meet=meet)
    found = games.collect()
    assert [[seen for seen, *_ in row] for row in rows_of(found.rollouts[1])] == [[52.0, 53.0], [54.0]]
    assert found.rollouts[0].agent_steps == 0 and set(found.entropies) == {0, 1}  # it goes on to its 20
    assert [(e.agent, e.policy) for e in found.episodes] == []
    assert not games.complaints()


def test_another_game_that_says_otherwise_of_a_behavior_is_refused() -> None:
    other = Story([news(steps((1, 0, 0)))])
    other.behaviors["B?team=0"] = LATE
    with pytest.raises(ProtocolError, match=r"game 1: B\?team=0 sees or does other things"):
        collector(Story([news(steps((1, 0, 0)))]), other, rows=3).collect()


def test_no_learner_in_a_whole_game_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.rollout.exchanging.IDLE", 20)
    with pytest.raises(EnvError, match="20 messages, and no agent of B asked for a decision"):
        collector(Story([news()]), rows=3).collect()


def test_games_side_by_side_are_decided_for_in_one_pass() -> None:
    calls = []
    games = collector(*(Story([news(steps((1, k, k)))]) for k in range(3)), rows=9)
    act = games.policies.act
    games.policies.act = lambda *a: (calls.append(len(a[2])), act(*a))[1]  # type: ignore[method-assign]
    rollout = one(games.collect())
    assert calls == [3, 3, 3, 3]
    assert [[paid for _, paid, _ in row] for row in rows_of(rollout)] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


def test_a_lost_game_is_replaced_and_costs_only_the_decision_that_waited() -> None:
    lost = Story([news(steps((1, t, 1.0))) for t in range(3)] + [LostGameError("Environment shut down")])  # type: ignore[list-item]
    fresh = Story([news(steps((1, 100.0 + t, 1.0))) for t in range(9)])
    games = collector(lost, rows=5, start=lambda k: fresh)
    rollout = one(games.collect())
    assert fresh.resets == 1 and "Environment shut down. Another one is started" in games.complaints()[0]
    rows = rows_of(rollout)
    assert rows[0] == [(0.0, 1.0, ""), (1.0, 1.0, "cut")]
    assert rows[1] == [(100.0, 1.0, ""), (101.0, 1.0, ""), (102.0, 1.0, "cut")]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [2.0, 103.0]  # what waited is still what followed
    dying = Story([news(steps((1, 0.0, 1.0))), LostGameError("gone")])
    again = Story([news(steps((1, 0.0, 1.0))), LostGameError("gone")])
    with pytest.raises(WorkerError, match=r"gone\. It is not started again: env_settings\.restarts_rate_limit_n is 1"):
        collector(dying, rows=50, start=lambda k: again).collect()


def test_each_game_may_be_lost_as_often_as_the_limits_say() -> None:
    def lost() -> Story:
        return Story([news(steps((1, 0.0, 1.0))), LostGameError("gone")])

    games = collector(lost(), lost(), rows=9, start=lambda k: Story([news(steps((1, 0.0, 1.0)))]))
    games.collect()
    assert [line.partition(".")[0] for line in games.complaints()] == ["game 0: gone", "game 1: gone"]
    assert games.performance()["Sampling/Crashed"] == 2.0


def test_who_decides_more_rarely_goes_on_collecting_until_there_is_what_it_asks_for() -> None:
    two = GameSpec("Story", (KIND, LATE), (AgentSpec("B?team=0", 0, 0, "B"), AgentSpec("Late?team=0", 1, 0, "Late")))
    told = []
    for t in range(20):
        often, rare = steps((1, t, 0), (2, t, 0), (3, t, 0)), steps((9, t, 1.0))
        told.append(News({}, {"B?team=0": often} | ({"Late?team=0": rare} if t % 2 == 0 else {})))
    learners = {0: ("B", Counting()), 1: ("Late", Counting())}
    games = ExchangeCollector(
        [Story(told)], lambda k: pytest.fail("no game is lost here"), two, EnvSettings(env_path="x"),
        {0: Demand(6, 100, False), 1: Demand(4, 100, False)}, seed=1, learners=learners,
        cast=lambda k: [Seat(0, True), Seat(1, True)], load=lambda k: pytest.fail("nobody is frozen"), members={},
        draws={}, meet=lambda name, seen: None,
    )  # fmt: skip
    found = [games.collect() for _ in range(5)]
    made = [(collected.rollouts[0].agent_steps, collected.rollouts[1].agent_steps) for collected in found]
    assert made[0] == (6, 0) and {often for often, rare in made if not rare} == {6} and max(made)[1] in (0, 4)
    (full,) = [collected.rollouts[1] for collected in found if collected.rollouts[1].agent_steps][:1]
    assert rows_of(full) == [[(0.0, 1.0, ""), (2.0, 1.0, ""), (4.0, 1.0, ""), (6.0, 1.0, "cut")]]


def test_a_person_who_ends_the_run_does_not_wait_for_a_full_rollout() -> None:
    story = Story([news(steps((1, float(t), 1.0))) for t in range(9)])
    games = collector(story, rows=10**6)
    asked = iter([False] * 4)
    games.stopped = lambda: next(asked, True)
    with pytest.raises(StoppedEarly):
        games.collect()


def test_to_stop_play_in_the_editor_ends_the_run_and_an_executable_that_closes_is_started_again() -> None:
    def closing() -> Story:
        return Story([news(steps((1, 0.0, 1.0))), ClosedGameError("the game ended the connection")])

    with pytest.raises(StoppedEarly):
        collector(closing(), rows=9, settings=EnvSettings(env_path=EDITOR)).collect()
    games = collector(closing(), rows=9, start=lambda k: Story([news(steps((1, 0.0, 1.0)))]))
    assert one(games.collect()).agent_steps == 9


def test_a_game_that_is_lost_while_it_starts_counts_as_another_one_that_was_lost() -> None:
    began: list[int] = []

    def start(k: int) -> Story:
        began.append(k)
        if len(began) == 1:
            raise LostGameError("not there")
        return Story([news(steps((1, 0.0, 1.0)))])

    told = EnvSettings(env_path="x", restarts_rate_limit_n=2)
    dying = Story([news(steps((1, 0.0, 1.0))), LostGameError("gone")])
    games = collector(dying, rows=5, start=start, settings=told)
    assert one(games.collect()).agent_steps == 5 and began == [0, 0]
    assert [line.partition(".")[0] for line in games.complaints()] == ["game 0: gone", "game 0: not there"]


def test_when_all_agents_end_at_once_the_match_has_a_verdict_and_who_plays_is_asked_again() -> None:
    cast: list[int] = []
    end = News({"B?team=0": steps((1, 0, 1.0)), "B?team=1": steps((2, 0, -1.0))}, {})
    begin = News({}, {"B?team=0": steps((1, 0, 0)), "B?team=1": steps((2, 0, 0))})
    games = collector(
        Story([begin, end] * 4), rows=6, spec=TWO_TEAMS, cast=lambda k: cast.append(k) or [Seat(0, True)] * 2
    )
    found = games.collect()
    assert [match.points for match in found.matches] == [(1.0, 0.0)] * 3 and cast == [0] * 4
    assert [episode.agent for episode in found.episodes] == [0, 1] * 3


def test_each_of_the_matches_in_a_game_has_a_verdict_of_those_who_played_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Agents 1 and 2 meet, 3 and 4; never do all of them end at once, and after 4 messages somebody else plays blue."""
    monkeypatch.setattr("palus.rollout.exchanging.EXCHANGES", 4)
    all_on = {"B?team=0": steps((1, 0, 0), (3, 0, 0)), "B?team=1": steps((2, 0, 0), (4, 0, 0))}

    def over(left: int, right: int, lead: float) -> News:
        return News({"B?team=0": steps((left, 0, lead)), "B?team=1": steps((right, 0, -lead))}, all_on)

    cast: list[int] = []

    def seats(k: int) -> list[Seat]:
        cast.append(k)
        return [Seat(0, True), Seat(0, len(cast) == 1)]

    told = [News({}, all_on), over(1, 2, 1.0), over(3, 4, -1.0), News({}, all_on), over(1, 2, 1.0), over(1, 2, 0.0)]
    games = collector(Story([*told, News({}, all_on)]), rows=18, spec=TWO_TEAMS, cast=seats)
    found = games.collect().matches
    assert [match.points for match in found] == [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]  # not the one that both played
    assert [match.seats[1].learns for match in found] == [True, True, False]


def test_where_one_team_has_more_agents_than_the_other_a_match_is_won_by_the_higher_mean_groups_pay_included() -> None:
    begin = News({}, {"B?team=0": steps((1, 0, 0), (2, 0, 0)), "B?team=1": steps((3, 0, 0))})
    end = News({"B?team=0": steps((1, 0, 1.0), (2, 0, 1.0)), "B?team=1": steps((3, 0, 1.0), group_reward=0.5)}, {})
    found = collector(Story([begin, end, begin, begin]), rows=6, spec=TWO_TEAMS).collect()
    assert [match.points for match in found.matches] == [(0.0, 1.0)]


def test_decisions_that_nobody_learns_from_are_no_rows_but_ghost_steps() -> None:
    both = News({}, {"B?team=0": steps((1, 0, 0)), "B?team=1": steps((2, 0, 0))})
    games = collector(Story([both]), rows=4, spec=TWO_TEAMS, cast=lambda k: [Seat(0, True), Seat(0, False)])
    found = games.collect()
    assert one(found).agent_steps == 4 and found.ghost_steps == {"B": 5}


def test_a_game_that_nobody_learns_from_has_no_ghost_steps() -> None:
    both = News({}, {"B?team=0": steps((1, 0, 0)), "B?team=1": steps((2, 0, 0))})
    games = collector(
        Story([both]), Story([both]), rows=4, spec=TWO_TEAMS, load=lambda k: Counting(),
        cast=lambda k: [Seat(FROZEN, False) if k else Seat(0, True)] * 2,
    )  # fmt: skip
    found = games.collect()
    assert one(found).agent_steps == 4 and found.ghost_steps == {"B": 0}


def test_a_retired_policy_is_forgotten_when_no_game_needs_it_any_more() -> None:
    begin = News({}, {"B?team=0": steps((1, 0, 0)), "B?team=1": steps((2, 0, 0))})
    end, opponents = News({name: steps((k, 0, 0)) for k, name in ((1, "B?team=0"), (2, "B?team=1"))}, {}), count(FROZEN)
    games = collector(
        Story([begin, end] * 9), rows=2, spec=TWO_TEAMS, load=lambda k: Counting(),
        cast=lambda k: [Seat(0, True), Seat(next(opponents), False)],
    )  # fmt: skip
    games.collect()
    games.policies.retired |= {FROZEN, FROZEN + 2}
    assert games.in_play == {FROZEN + 2}
    games.collect()
    assert games.in_play == {FROZEN + 4} and set(games.policies.known) == {0, *(FROZEN + k for k in (1, 3, 4))}


class Noting(Story):
    """Writes down the seeds that it begins with, and the parameters that it is told of while it runs."""

    def __init__(self) -> None:
        super().__init__([news(steps((1, 0.0, 1.0)))])
        self.seeds, self.parameters = list[int](), list[Mapping[str, Any]]()

    def reset(self, parameters: Mapping[str, Any], seed: int) -> None:
        self.seeds.append(seed)
        super().reset(parameters, seed)

    def send(self, actions: Mapping[str, Any], parameters: Mapping[str, Any], seed: int) -> None:
        self.parameters.append(parameters)
        super().send(actions, parameters, seed)


def test_a_game_begins_with_another_seed_every_time_also_where_a_run_goes_on() -> None:
    first, second, later = Noting(), Noting(), Noting()
    games = collector(first, second, rows=4)
    games.collect()
    games.restart()
    games.collect()
    again = collector(later, rows=4)
    saved = games.save()
    again.load({name: saved[name] for name in ("tick", "resets")})  # older versions know of no groups' sizes
    assert one(again.collect()).group_size == 1
    assert (first.seeds, second.seeds, later.seeds) == ([2, 4], [3, 5], [6])
    assert again.tick > games.tick > 0


def test_parameters_that_change_are_told_once_to_every_game() -> None:
    games = collector(*(stories := [Noting(), Noting()]), rows=4)
    games.collect()
    games.set_parameters({"speed": 2.0})
    games.collect()
    for story in stories:
        assert [told for told in story.parameters if told] == [{"speed": 2.0}]
        assert story.parameters[0] == story.parameters[-1] == {}


def test_every_message_has_draws_of_its_own_of_those_too_who_play_at_random() -> None:
    at_random, learned = News({}, {"Late?team=0": steps((9, 0, 0))}), news(steps((1, 0.0, 1.0)))
    story = Story([at_random] * 40 + [learned] * 41)
    collector(story, rows=40).collect()
    drawn = [int(own.item()) for actions in story.sent for own in actions.values()]
    assert 8 < sum(drawn[:40]) < 32 and 8 < sum(drawn[40:80]) < 32


def test_others_may_remember_more_or_less_than_the_learner_and_take_turns_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palus.rollout.exchanging.EXCHANGES", 4)
    seen: dict[int, list[list[float]]] = {}

    class Wide(Counting):
        def __init__(self, size: int) -> None:
            self.state_size = size

        def act(
            self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
        ) -> tuple[Tensor, Tensor | None, Tensor]:
            seen.setdefault(self.state_size, []).append(states[0].tolist())
            return super().act(observations, states, masks)

    cast: list[int] = []

    def seats(k: int) -> list[Seat]:
        cast.append(k)
        return [Seat(0, True), Seat(FROZEN + len(cast) % 2, False)]

    both = News({}, {"B?team=0": steps((1, 0, 0)), "B?team=1": steps((2, 0, 0))})
    games = collector(Story([both]), rows=8, spec=TWO_TEAMS, cast=seats, load=lambda k: Wide(3 - 3 * (k - FROZEN)))
    first, second = one(games.collect()), one(games.collect())
    assert (first.states.tolist(), second.states.tolist(), second.last_states.shape) == ([[0.0]], [[8.0]], (1, 1))
    assert second.final_states.tolist() == [[16.0]]
    assert seen[3][:5] == [[0.0] * 3, [1.0] * 3, [2.0] * 3, [3.0] * 3, [0.0] * 3] and seen[0][0] == []


def test_the_game_s_statistics_are_put_together_until_a_summary_takes_them() -> None:
    def told(t: float) -> tuple[Statistic, ...]:
        return tuple(
            Statistic(name, t, how) for name, how in (("goals", AVERAGE), ("shots", SUM), ("lead", MOST_RECENT))
        )

    games = [Story([News({}, {"B?team=0": steps((1, 0, 0))}, told(10.0 * k + t)) for t in range(9)]) for k in range(2)]
    playing = collector(*games, rows=4)
    playing.collect()
    playing.collect()
    heard = [10.0 * k + t for k, game in enumerate(games) for t in range(game.at)]
    assert 3 < games[0].at == games[1].at <= 9
    expected = {"goals": float(np.mean(heard)), "shots": sum(heard), "lead": games[0].at - 1.0}
    assert playing.statistics.take(0) == GameTold(expected) and playing.statistics.take(0) == GameTold()


def test_side_channels_that_nobody_listens_to_are_told_of_once() -> None:
    story = Story([replace(news(steps((1, float(t), 1.0))), strange=("a-id", "b-id")[: t + 1]) for t in range(9)])
    games = collector(story, rows=4)
    games.collect()
    assert list(games.complaints()) == [f"Unknown side channel data received. Channel type: {c}-id." for c in "ab"]


@pytest.mark.parametrize(("squash", "sent"), [(False, 1.0), (True, np.tanh(2.0))])
def test_numbers_reach_the_game_as_the_policy_means_them(squash: bool, sent: float) -> None:
    class Reaching(Counting):
        def act(
            self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
        ) -> tuple[Tensor, Tensor | None, Tensor]:
            return torch.tensor([[2.0, -20.0]]), torch.zeros(1), states

    policy = Reaching()
    policy.squash = squash
    kind = BehaviorSpec("B", KIND.observations, ActionSpec((Continuous(1, -1.0, 1.0),)))
    spec = GameSpec("Story", (kind,), SPEC.agents)
    story = Story([news(steps((1, 0, 0)))])
    story.behaviors["B?team=0"] = kind
    rollout = one(collector(story, rows=1, spec=spec, policy=policy).collect())
    assert story.sent[0]["B?team=0"] == pytest.approx(sent, abs=1e-3)
    assert rollout.actions[0, 0] == pytest.approx(2.0, abs=1e-3)  # what was drawn is what is learned from
