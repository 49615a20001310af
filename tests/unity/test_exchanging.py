"""The collector over agents that come, end and decide when they please, told by hand-written messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys import behavior_of

from palus.config.run_file import EDITOR, EnvSettings
from palus.errors import ClosedGameError, EnvError, LostGameError, ProtocolError, StoppedEarly, WorkerError
from palus.learn.poca import POCA
from palus.learn.returns import kept_memory, usable_decisions
from palus.learn.signals import decisions_of
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.game_statistics import GameTold
from palus.rollout.learner_stretches import Demand, LearnerStretches
from palus.rollout.rollout import FROZEN, Collected, Rollout, Seat
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Continuous, Discrete, GameSpec, ObservationSpec
from palus.unity.news import News, Steps
from palus.unity.side_channels import AVERAGE, MOST_RECENT, SUM, Statistic

KIND = BehaviorSpec("B", (ObservationSpec("obs_0", (1,)),), ActionSpec((Discrete(2),)))
LATE = BehaviorSpec("Late", KIND.observations, KIND.actions)
SPEC = GameSpec("Story", (KIND,), (AgentSpec("B?team=0", 0, 0, "B"),))
TWO_TEAMS = GameSpec("Story", (KIND,), (AgentSpec("B?team=0", 0, 0, "B"), AgentSpec("B?team=1", 1, 1, "B")))
Told = tuple[int, float, float]  # agent, what it sees, reward


class Counting:
    """Remembers how many decisions an agent took since its memory began."""

    version, state_size, squash = 0, 1, False

    def act(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        return torch.zeros(len(states), 2), torch.zeros(len(states)), states + 1


def steps(*told: Told, group: int = 0, truncated: bool = False, group_reward: float = 0.0) -> Steps:
    agents, seen, rewards = (np.array(column) for column in zip(*told, strict=True))
    n = len(agents)
    return Steps(
        {"obs_0": seen.astype(np.float32)[:, None]}, rewards.astype(np.float32), np.full(n, group_reward, np.float32),
        agents.astype(np.int64), np.full(n, group), np.full(n, truncated),
    )  # fmt: skip


def news(decisions: Steps | None = None, ends: Steps | None = None, name: str = "B?team=0") -> News:
    return News({name: ends} if ends else {}, {name: decisions} if decisions else {})


def together(*parts: Steps) -> Steps:
    """Of agents of several groups, in one message."""
    columns = [np.concatenate([getattr(own, name) for own in parts]) for name in (
        "reward", "group_reward", "agent", "group", "truncated")]  # fmt: skip
    return Steps({"obs_0": np.concatenate([own.observations["obs_0"] for own in parts])}, *columns)


class Story:
    """In the place of a `UnityEnv`: says these messages, then the last one again and again."""

    def __init__(self, told: Sequence[News | Exception]) -> None:
        self.told, self.at, self.waits = list(told), 0, True
        self.behaviors = {"B?team=0": KIND, "B?team=1": KIND, "Late?team=0": LATE}
        self.answers: list[dict[str, int]] = []
        self.sent: list[Mapping[str, Any]] = []
        self.resets = 0

    def reset(self, parameters: Mapping[str, Any], seed: int) -> None:
        self.resets, self.waits = self.resets + 1, False

    def receive(self, stopped: Any = None) -> News:
        said = self.told[min(self.at, len(self.told) - 1)]
        self.at, self.waits = self.at + 1, True
        if isinstance(said, Exception):
            raise said
        return said

    def send(self, actions: Mapping[str, Any], parameters: Mapping[str, Any], seed: int) -> None:
        self.waits = False
        self.sent.append(actions)
        self.answers.append({name: len(own) for name, own in actions.items()})

    def kill(self) -> None:
        self.told = []

    close = kill


def collector(
    *games: Story, rows: int, horizon: int = 100, grouped: bool = False, spec: GameSpec = SPEC, **options: Any
) -> ExchangeCollector:
    learner = {0: ("B", options.pop("policy", Counting()))}
    made: dict[str, Any] = {
        "cast": lambda k: [Seat(0, True)] * spec.num_agents,
        "start": lambda k: pytest.fail("no game is lost here"),
        "load": lambda k: pytest.fail("there is no frozen policy"),
        "settings": EnvSettings(env_path="x"),
    }
    made |= options
    return ExchangeCollector(
        games, made["start"], spec, made["settings"], {0: Demand(rows, horizon, grouped)}, seed=1, learners=learner,
        cast=made["cast"], load=made["load"], members={}, draws={},
        meet=made.get("meet", lambda name, seen: f"{name} is not learned"),
    )  # fmt: skip


def test_who_wants_stretches_as_a_whole_gets_them_of_every_agent() -> None:
    told = [news(steps(*[(agent, float(t), 0.0) for agent in range(5)])) for t in range(9)]
    games = collector(Story(told), rows=4, horizon=4)
    record = games._records[0]
    record.demand = record.demand._replace(whole=True)
    assert [len(row) for row in rows_of(one(games.collect()))] == [4] * 5


def test_agents_that_are_born_under_new_ids_keep_no_rollout_waiting() -> None:
    told = [
        news(steps((life, float(age), 0.0)), steps((life - 1, 9.0, 1.0)) if life and not age else None)
        for life in range(40)
        for age in range(3)
    ]
    games = collector(Story(told), rows=4, horizon=4)
    games._records[0].demand = games._records[0].demand._replace(whole=True)
    games.stopped = lambda: games.tick > 20
    for _ in range(2):
        assert one(games.collect()).agent_steps == 4


def test_agents_that_end_together_are_waited_for_when_no_rollout_is_as_long_yet() -> None:
    said = [news(steps((1, 0.0, 0.0), (2, 0.0, 0.0))), news(steps((1, 1.0, 0.0), (2, 1.0, 0.0)))]
    told = [*said, news(None, steps((1, 2.0, 1.0), (2, 2.0, 1.0)))] * 9
    games = collector(Story(told), rows=4, horizon=4)
    games._records[0].demand = games._records[0].demand._replace(whole=True)
    assert [len(row) for row in rows_of(one(games.collect()))] == [4, 4]


def one(collected: Collected) -> Rollout:
    return collected.rollouts[0]


def rows_of(rollout: Rollout) -> list[list[tuple[float, float, str]]]:
    """Each row's decisions: what was seen, the reward, and how it ended: terminated, truncated or not."""
    found = []
    for b in range(rollout.rewards.shape[1]):
        taken = np.flatnonzero(rollout.active[:, b])
        found.append([
            (float(rollout.observations["obs_0"][t, b, 0]), float(rollout.rewards[t, b]),
             "x" if rollout.terminated[t, b] else "cut" if rollout.truncated[t, b] else "")
            for t in taken
        ])  # fmt: skip
    return found


def test_an_agent_that_decides_every_third_message_has_a_row_without_gaps() -> None:
    told = []
    for t in range(13):
        own = [(1, float(t), 0.5)] + ([(2, 100.0 + t, 3.0)] if t % 3 == 0 else [])
        told.append(news(steps(*own)))
    rollout = one(collector(Story(told), rows=16).collect())
    often, seldom = rows_of(rollout)
    assert often == [(float(t), 0.5, "" if t < 11 else "cut") for t in range(12)]
    assert seldom == [(100.0, 3.0, ""), (103.0, 3.0, ""), (106.0, 3.0, ""), (109.0, 3.0, "cut")]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [112.0, 12.0]
    assert usable_decisions(rollout).sum() == rollout.agent_steps == 16
    # Both remember every decision of theirs, and no other: the one of 2 was cut at t = 3.
    assert rollout.final_states.ravel().tolist() == [4.0, 12.0]


def test_an_early_end_and_the_return_under_the_same_id_in_one_message() -> None:
    told = [
        news(steps((1, 0, 0), (2, 50, 0))),
        news(steps((1, 2, 0), (2, 51, 1)), steps((1, 1, 7.0))),  # 1 ends, and begins again
        news(steps((2, 52, 1)), steps((1, 9, -1.0), truncated=True)),  # 1 is cut off, and stays away
        news(steps((2, 53, 1))),
        news(steps((1, 4, 99.0), (2, 54, 1))),  # 1 is back; what it says of rewards is of nobody's decision
        news(steps((1, 5, 2.0), (2, 55, 1))),
    ]
    found = collector(Story(told), rows=8).collect()
    rollout = one(found)
    assert rows_of(rollout)[0] == [(0.0, 7.0, "x"), (2.0, -1.0, "cut"), (4.0, 2.0, "cut")]
    first = np.argwhere(rollout.concluded)[:, 1] == 0
    assert rollout.final_observations["obs_0"][first, 0].tolist() == [1.0, 9.0, 5.0]
    assert rollout.final_states[first, 0].tolist() == [1.0, 1.0, 1.0]  # memory begins anew with every episode
    assert [(e.length, e.reward) for e in found.episodes] == [(1, 7.0), (1, -1.0)]


def test_stretches_are_cut_at_the_horizon_and_go_on_in_the_next_rollout() -> None:
    games = collector(Story([news(steps((1, float(t), 1.0))) for t in range(40)]), rows=10, horizon=4)
    rollout = one(games.collect())
    assert [[seen for seen, *_ in row] for row in rows_of(rollout)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [10.0, 4.0, 8.0]
    assert rollout.states[:, 0].tolist() == [0.0, 4.0, 8.0]
    rollout = one(games.collect())
    assert [[seen for seen, *_ in row] for row in rows_of(rollout)] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]
    assert rollout.states[0, 0] == 10.0


def test_what_only_a_rollout_cut_off_has_not_ended_for_who_learns_rewards() -> None:
    told = [
        news(steps((1, 0.0, 0.0), (2, 10.0, 0.0))),
        news(steps((1, 1.0, 1.0), (2, 11.0, 1.0))),
        news(steps((1, 2.0, 1.0)), steps((2, 12.0, 1.0), truncated=True)),
        news(steps((1, 3.0, 1.0))),
        news(steps((1, 4.0, 1.0))),
    ]
    rollout = one(collector(Story(told), rows=5, horizon=2).collect())
    index = np.flatnonzero(rollout.active & rollout.truncated)
    decisions = decisions_of(rollout, index, KIND.actions, False)
    ended = dict(zip(decisions.following["obs_0"].ravel().tolist(), decisions.ended.tolist(), strict=True))
    assert ended == {2.0: False, 3.0: False, 12.0: True}


def test_an_agent_that_moved_to_another_group_has_not_ended_for_who_learns_rewards() -> None:
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), group=5))]
    told += [news(together(steps((1, t, 1.0), group=6), steps((2, 10.0 + t, 1.0), group=5))) for t in range(1, 5)]
    rollout = one(collector(Story(told), rows=8, grouped=True).collect())
    index = np.flatnonzero(rollout.active & rollout.truncated)
    assert len(index) == 3 and not decisions_of(rollout, index, KIND.actions, False).ended.any()


def test_a_group_keeps_its_members_in_step_with_one_that_comes_late_and_one_that_leaves() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=5)),
        news(steps((1, 1, 1), (2, 11, 1), (3, 21, 0), group=5)),  # 3 comes late
        news(steps((1, 2, 1), (3, 22, 1), group=5), steps((2, 12, 4), group=5)),  # 2 leaves early
        news(None, steps((1, 3, 1), (3, 23, 1), group=5, group_reward=2.0)),  # the whole group is gone
        news(steps((1, 4, 0), (2, 14, 0), (3, 24, 0), group=5)),
        news(steps((1, 5, 1), (2, 15, 1), (3, 25, 1), group=5)),
    ]
    collected = collector(Story(told), rows=10, grouped=True).collect()
    rollout = one(collected)
    assert [(e.length, e.left_early) for e in collected.episodes] == [(2, True), (3, False), (2, False)]
    assert rollout.group_size == 3
    assert rollout.active[:4].tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert rollout.terminated[:3].tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert rollout.truncated[3].tolist() == [True] * 3
    assert rollout.group_rewards[2].tolist() == [2.0, 0.0, 2.0]
    assert rollout.observations["obs_0"][3, :, 0].tolist() == [4.0, 14.0, 24.0]


def test_agents_of_no_group_are_no_group() -> None:
    told = [news(steps((1, float(t), 1.0), (2, 10.0 + t, 1.0))) for t in range(5)]
    rollout = one(collector(Story(told), rows=4, grouped=True).collect())
    assert rollout.group_size == 1 and rollout.active.shape[1] == 2


def test_each_who_is_cut_off_in_one_message_keeps_what_it_saw_itself() -> None:
    said = [news(steps((1, 1.0, 0.0), (2, 2.0, 0.0))), news(None, steps((1, 3.0, 1.0), (2, 4.0, 1.0), truncated=True))]
    rollout = one(collector(Story([*said, news(steps((5, 9.0, 0.0)))]), rows=3).collect())
    assert rollout.final_observations["obs_0"].ravel().tolist()[:2] == [3.0, 4.0]


def test_agents_are_known_by_their_game_when_another_one_is_lost_or_they_move() -> None:
    record, name = LearnerStretches(Demand(9, 100, True), KIND, 1), "B?team=0"

    def decide(game: int, *agents: int, group: int = 3) -> list[int]:
        told = steps(*[(agent, 0.0, 0.0) for agent in agents], group=group)
        return record.add(game, name, told, told.observations, {}).tolist()

    decide(0, 1)
    (row,), ended = decide(1, 1), steps((1, 0.0, 0.0), group=3)
    last = row + 1
    record.close(0, [name])
    record.end(1, name, ended, 0, row, np.zeros(1, np.float32))
    assert record._open[1, name, -3].members == {}
    first, _ = decide(2, 1, 2)
    decide(2, 2)  # the first waits
    (moved,) = decide(2, 1, group=4)
    followed = enumerate(record._decisions["followed"][: moved + 1].tolist())
    assert {k: after for k, after in followed if after >= 0} == {row: last, first: moved}


def test_members_that_are_born_anew_take_the_places_of_those_that_ended() -> None:
    told = [news(steps((2 * t, t, 1), (2 * t + 1, t, 1), group=3), None if not t else
                 steps((2 * t - 2, 0, 1), (2 * t - 1, 0, 1), group=3)) for t in range(6)]  # fmt: skip
    rollout = one(collector(Story(told), rows=10, grouped=True).collect())
    assert rollout.group_size == 2 and rollout.terminated[:5].all() and rollout.agent_steps == 10


def test_a_group_of_whom_some_have_left_is_worth_the_same_in_every_rollout() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), (3, 20, 0), group=5)),
        news(steps((1, 1, 0), (2, 11, 0), group=5), steps((3, 21, 1), group=5)),
        *(news(steps((1, t, 0), (2, 10 + t, 0), group=5)) for t in range(2, 9)),
    ]
    games, critic = collector(Story(told), rows=4, grouped=True), POCA(behavior_of("poca"), KIND, torch.float32, 3)
    worth, first = [], games.collect()
    resumed = collector(Story(told[2:]), rows=4, grouped=True)
    resumed.load(games.save())
    for collected in (first, games.collect(), games.collect(), resumed.collect()):
        size = one(collected).group_size
        seen, there = np.array([1.0, 2.0, 0.0], np.float32)[:size], np.arange(size) < 2
        worth.append(critic.group_estimates({"obs_0": seen[:, None]}, None, there[None])[0].item())
    assert worth == [worth[0]] * 4


@pytest.mark.parametrize("truncated", [False, True])
def test_a_member_that_ended_while_its_mates_wait_goes_with_their_step_into_the_next_rollout(truncated: bool) -> None:
    told = [
        news(together(steps((1, 0, 0), (2, 10, 0), group=5), steps((3, 30, 0), group=6))),
        news(together(steps((1, 1, 1), (2, 11, 1), group=5), steps((3, 31, 1), group=6))),
        news(
            steps((3, 32, 1), group=6), steps((2, 12, 4), group=5, truncated=truncated)
        ),  # 2 ends before 1 decides again
        news(steps((3, 33, 1), group=6)),  # here the rollout is full
        news(together(steps((1, 2, 1), group=5), steps((3, 34, 1), group=6))),
        news(together(steps((1, 3, 1), group=5), steps((3, 35, 1), group=6))),
    ]
    games = collector(Story(told), rows=5, grouped=True)
    first, second = one(games.collect()), one(games.collect())
    often = [(30.0, 1.0, ""), (31.0, 1.0, ""), (32.0, 1.0, "cut")]
    assert rows_of(first) == [[(0.0, 1.0, "cut")], [(10.0, 1.0, "cut")], often, []]
    assert first.final_observations["obs_0"].ravel().tolist() == [
        1.0,
        11.0,
        33.0,
    ]  # of 2 what it saw at its last decision
    often = [(33.0, 1.0, ""), (34.0, 1.0, "cut")]
    assert rows_of(second) == [
        [(1.0, 1.0, ""), (2.0, 1.0, "cut")],
        [(11.0, 4.0, "cut" if truncated else "x")],
        often,
        [],
    ]
    assert second.final_observations["obs_0"].ravel().tolist() == [12.0, 3.0, 35.0]


@pytest.mark.parametrize("rows", [1, 2])
def test_what_ended_early_is_no_rollout_by_itself(rows: int) -> None:
    told = [news(steps((1, 0, 0), (2, 10, 0), group=5)), news(None, steps((2, 11, 1), group=5))]
    games = collector(
        Story([*told, *[news(steps((1, float(t), 1.0), group=5)) for t in range(9)]]), rows=rows, grouped=True
    )
    assert [one(games.collect()).agent_steps for _ in range(3)] == [2, rows, rows]


def test_a_mate_that_decides_seldom_ends_after_its_stretch_was_cut_at_the_horizon() -> None:
    told = [
        news(steps(*[(1, float(t), 1.0)] + ([(2, 50.0 + t, 7.0)] if t % 8 == 0 else []), group=5)) for t in range(15)
    ]
    told.append(news(None, steps((1, 15, 1.0), (2, 65, 7.0), group=5)))
    told += [news(steps((1, 16.0 + t, 1.0), (2, 66.0 + t, 1.0), group=5)) for t in range(9)]
    rollout = one(collector(Story(told), rows=18, horizon=4, grouped=True).collect())
    # What 2 decided before it ended was given up at the horizon, and counts for nothing.
    assert rows_of(rollout)[1::2] == [[], [], [], [(66.0, 1.0, "cut")], [(67.0, 1.0, "cut")]]
    assert rollout.agent_steps == 19


@pytest.mark.parametrize(("decided_in", "ended_in"), [(5, 0), (0, 5), (5, 6)])
def test_an_agent_ends_whatever_group_its_end_is_told_of(decided_in: int, ended_in: int) -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=decided_in)),
        news(steps((1, 1, 1), group=decided_in), steps((2, 11, 4), group=ended_in)),
        *[news(steps((1, 2.0 + t, 1), group=decided_in)) for t in range(3)],
    ]
    rollout = one(collector(Story(told), rows=4, grouped=True).collect())
    assert rows_of(rollout) == [[(0.0, 1.0, ""), (1.0, 1.0, ""), (2.0, 1.0, "cut")], [(10.0, 4.0, "x")]]


def test_an_agent_that_moves_to_another_group_leaves_the_first_like_one_that_is_cut_off() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=5)),
        news(together(steps((1, 1, 1), group=5), steps((2, 11, 2), group=6))),
        news(together(steps((1, 2, 1), group=5), steps((2, 12, 3), group=6))),
        news(together(steps((1, 3, 1), group=5), steps((2, 13, 3), group=6))),
    ]
    rollout = one(collector(Story(told), rows=6, grouped=True).collect())
    first = [(0.0, 1.0, ""), (1.0, 1.0, ""), (2.0, 1.0, "cut")]
    assert rows_of(rollout) == [first, [(10.0, 2.0, "cut")], [(11.0, 3.0, ""), (12.0, 3.0, "cut")], []]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [11.0, 13.0, 3.0]


def out_of_step() -> list[News]:
    """1 decides in every even message, 2 in every odd one until it ends; then 1 is paid, and the group is gone."""
    return [
        news(steps((1, 0, 0), group=5)),
        news(steps((2, 1, 0), group=5)),
        news(steps((1, 2, 0), group=5)),
        news(None, steps((2, 99, 3.0), group=5)),
        news(steps((1, 4, 0), group=5)),
        news(None, steps((1, 5, 0), group=5, group_reward=10.0)),
        news(steps((1, 6, 0), group=5)),
        news(steps((1, 7, 0), group=5)),
    ]


def test_who_waits_while_its_mates_decide_is_in_the_group_until_it_ends() -> None:
    rollout = one(collector(Story(out_of_step()), rows=5, grouped=True).collect())
    assert rows_of(rollout)[0] == [(0.0, 0.0, ""), (2.0, 0.0, ""), (4.0, 0.0, "x"), (6.0, 0.0, "cut")]
    assert rollout.active[:5].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0], [1, 0]]
    assert rollout.paused is not None
    assert rollout.paused[:5].tolist() == [[0, 0], [1, 0], [0, 1], [0, 0], [0, 0]]
    assert rollout.terminated[:5].tolist() == [[0, 0], [0, 0], [0, 1], [1, 0], [0, 0]]
    assert rollout.goes_on[:5].tolist() == [[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]]
    assert rollout.rewards[1, 1] == 3.0 and rollout.group_rewards[3, 0] == 10.0


def test_all_who_go_on_are_cut_off_where_the_group_is() -> None:
    told = [
        news(steps(*[(1, float(t), 1.0)] + ([(2, 50.0 + t, 7.0)] if t % 3 == 0 else []), group=5)) for t in range(20)
    ]
    rollout = one(collector(Story(told), rows=11, horizon=6, grouped=True).collect())
    assert rollout.paused is not None
    assert rollout.paused[:6, 1].tolist() == [False, True, True, False, True, True]
    assert rollout.truncated[:6, :2].tolist() == [[False, False]] * 5 + [[True, True]]
    of_first = np.argwhere(rollout.truncated)[:, 1] < 2
    assert rollout.final_observations["obs_0"][of_first, 0].tolist() == [6.0, 56.0]
    games = collector(Story([news(steps(*((a, float(t), 1.0) for a in (1, 2)), group=5)) for t in range(9)]), rows=8)
    assert one(games.collect()).paused is None


class Wild(Story):
    """Agents of three groups that come, decide, move and end at random; what they see is their number."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self.random, self.there, self.born = np.random.default_rng(seed), dict[int, int](), 0
        self.ends = self.random.choice([0.002, 0.02, 0.2])
        self.decides = self.random.choice([0.05, 0.3, 1.0], 5)

    def receive(self, stopped: Any = None) -> News:
        self.waits, draw, ends, decisions = True, self.random.random, list[Steps](), list[Steps]()
        for agent in list(self.there):
            if draw() < self.ends:
                ends.append(steps((agent, agent, 1.0), group=self.there.pop(agent), truncated=draw() < 0.5))
            elif draw() < self.decides[agent % 5]:
                self.there[agent] = self.there[agent] if draw() < 0.99 else int(self.random.integers(3))
                decisions.append(steps((agent, agent, 1.0), group=self.there[agent]))
        while len(self.there) < 9:
            self.born += 1
            self.there[self.born] = int(self.random.integers(3))
            decisions.append(steps((self.born, self.born, 0.0), group=self.there[self.born]))
        return news(together(*decisions) if decisions else None, together(*ends) if ends else None)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_agents_do_every_row_is_of_one_after_the_other(seed: int) -> None:
    rows, horizon = [(3, 50), (20, 3), (100, 8)][seed % 3]
    games = collector(Wild(seed), rows=rows, horizon=horizon, grouped=True)
    for _ in range(8):
        rollout = one(games.collect())
        active, goes_on = rollout.active, rollout.goes_on
        paused = np.zeros_like(active) if rollout.paused is None else rollout.paused
        assert rollout.agent_steps > 0 and not (paused & active).any() and not (paused[1:] & ~goes_on[:-1]).any()
        assert not (goes_on[:-1] & ~(active | paused)[1:]).any() and not goes_on[-1].any()
        for b in range(active.shape[1]):
            agent = 0.0  # who goes on
            for t in np.flatnonzero(active[:, b] | paused[:, b]):
                seen = float(rollout.observations["obs_0"][t, b, 0])
                assert not active[t, b] or agent in (0.0, seen)
                agent = (seen or agent) if goes_on[t, b] else 0.0


def test_mates_that_take_turns_remember_all_that_they_decided() -> None:
    games = collector(Story([news(steps((1 + t % 2, t, 0.0), group=5)) for t in range(30)]), rows=10, grouped=True)
    first, second = one(games.collect()), one(games.collect())
    # What one decided while the other one's decision filled the rollout is given up, and remembered.
    assert [first.states.ravel().tolist(), second.states.ravel().tolist()] == [[0.0, 0.0], [6.0, 5.0]]
    assert [agent.state.item() for agent in games._games[0].agents.values()] == [12.0, 11.0]


@pytest.mark.parametrize(
    ("period", "late", "paid"), [(1, 0, [1.0] * 5), (3, 0, [2.0, 0.5, 0.5] * 3), (2, 1, [2.0, *[1.0] * 8])]
)
def test_what_a_group_is_paid_counts_once_however_often_its_members_are_told(
    period: int, late: int, paid: list[float]
) -> None:
    """It is paid 1 between two messages. 1 decides in all of them, or where 2 is late, in turns with it."""
    told, latest = list[News](), {1: 0, 2: 0}
    for t in range(30):
        deciding = [agent for agent in (1, 2) if (t + (agent == 2) * late) % (period if agent == 2 or late else 1) == 0]
        parts = [steps((agent, t, 0.0), group=5, group_reward=float(t - latest[agent])) for agent in deciding]
        latest |= dict.fromkeys(deciding, t)
        told.append(news(together(*parts)))
    rollout = one(collector(Story(told), rows=20, grouped=True).collect())
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[: len(paid), 0, 0].tolist() == paid


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_what_a_group_is_paid_after_a_member_ended_is_paid_whole(first: bool, full: bool) -> None:
    """The member ends in a message of its own or with its mate's next decision, at which a rollout may be full."""
    gone, goes_on = steps((1, 1.0, 0.0), group=5), steps((2, 11.0, 0.0), group=5, group_reward=1.0)
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), group=5))]
    told += [news(None, gone), news(goes_on)] if first else [news(goes_on, gone)]
    told += [news(steps((2, 10.0 + t, 0.0), group=5)) for t in range(2, 9)]
    rollout = one(collector(Story(told), rows=2 if full else 5, grouped=True).collect())
    assert rollout.group_rewards[0].tolist() == [0.0, 1.0]
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[0].tolist() == [[1.0]]


@pytest.mark.parametrize("at_once", [True, False])
def test_who_ends_last_knows_what_its_group_was_paid(at_once: bool) -> None:
    """All end before anybody decides again, the first of them before the pay."""
    ends = steps((1, 1.0, 0.0), group=5), steps((2, 11.0, 0.0), (3, 21.0, 0.0), group=5, group_reward=1.0)
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), (3, 20.0, 0.0), group=5))]
    told += [news(None, together(*ends))] if at_once else [news(None, own) for own in ends]
    told += [news(steps((4, float(t), 0.0), group=5)) for t in range(9)]
    rollout = one(collector(Story(told), rows=5, grouped=True).collect())
    assert rollout.group_rewards[0].tolist() == [0.0, 1.0, 1.0]
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[0].tolist() == [[1.0]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", ["memory_size: 8, sequence_length: 3", "kind: gru, memory_size: 8"])
def test_who_waits_remembers_and_what_is_learned_from_does_too(memory: str, seed: int) -> None:
    whole = [f"hyperparameters.{key}" for key in ("num_epoch=1", "batch_size=65536", "buffer_size=65536")]
    settings = behavior_of("poca", f"network_settings.memory={{{memory}}}", *whole)
    learner = POCA(settings, KIND, torch.float32, seed)
    games = collector(Wild(seed), rows=100, horizon=20, grouped=True, policy=learner.network)
    for _ in range(2):
        rollout = one(games.collect())
    active, kept, states = rollout.active, kept_memory(rollout), torch.from_numpy(rollout.states)
    assert rollout.paused is not None and rollout.paused.any() and states.any(1).sum() > 1
    with torch.no_grad():
        found = learner.forward(rollout, np.arange(active.size).reshape(active.shape), states, kept)[0]
    np.testing.assert_allclose(found.view(*active.shape, -1)[active], rollout.parameters[active], atol=1e-6)
    batch = learner.batch(rollout)
    errors, of_agents = batch.returns - batch.values, batch.returns[:, None] - batch.baselines
    told = learner.update(rollout, 0)
    assert told["Losses/Value Loss"] == pytest.approx(np.square(errors[batch.present.any(1)]).mean(), rel=1e-4)
    assert told["Losses/Baseline Loss"] == pytest.approx(np.square(of_agents[batch.present]).mean(), rel=1e-4)
    assert told["Policy/KL"] == pytest.approx(0.0, abs=1e-6)  # decisions are as likely as when they were taken


def test_one_that_moves_to_another_group_begins_there_with_an_empty_memory() -> None:
    told = [news(steps((1, float(t), 0), (2, float(t), 0), group=5)) for t in range(3)]
    told += [news(together(steps((1, 3.0 + t, 0), group=5), steps((2, 3.0 + t, 0), group=6))) for t in range(9)]
    games = collector(Story(told), rows=8, grouped=True)
    rollout = one(games.collect())
    assert rollout.states.ravel().tolist() == [0.0] * 4
    assert sorted(agent.state.item() for agent in games._games[0].agents.values()) == [2.0, 5.0]


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
    again.load(games.save())
    again.collect()
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
