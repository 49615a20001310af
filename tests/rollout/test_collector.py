"""Who acts for whom, what lands in which row of a rollout, and what an end of a match does."""

import math

import numpy as np
import pytest
import torch
from pitch import ACTIONS, Always, Book, Pitch, listed

from palus import envs
from palus.errors import EnvError
from palus.rollout.collector import Collector, Teams
from palus.rollout.rollout import LATEST, Matchup
from palus.types import BehaviorSpec, GameSpec


def collector(env, steps, draw=lambda slot: Matchup(0, LATEST), self_play=True, seed=1):
    return Collector(env, Teams.of(env, self_play), steps, seed, draw)


def drawn(*opponents, team=0):
    return listed([[Matchup(team, opponent)] for opponent in opponents])


def test_every_agent_is_acted_on_by_exactly_one_policy():
    env, learner, book = Pitch([9] * 5), Always(0), Book()
    matchups = [Matchup(0, 2), Matchup(1, 0), Matchup(1, 2), Matchup(0, LATEST), Matchup(1, 1)]
    collector(env, 1, lambda slot: matchups[slot]).collect(learner, book)
    # agents 0 and 2 are team 0, agents 1 and 3 team 1; action 0 is the learner's, action k + 1 snapshot k's
    assert env.played[0].tolist() == [[0, 3, 0, 3], [1, 0, 1, 0], [3, 0, 3, 0], [0, 0, 0, 0], [2, 0, 2, 0]]
    shown = sorted(book.policies[0].who() + book.policies[1].who() + book.policies[2].who())
    assert shown == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 0), (2, 2), (4, 0), (4, 2)]


def test_each_snapshot_answers_all_its_agents_in_one_call_per_decision():
    env, learner, book = Pitch([9] * 6), Always(0), Book()
    collector(env, 3, drawn(4, 1, LATEST, 4, 1, 4)).collect(learner, book)
    assert {k: len(p.seen) for k, p in book.policies.items()} == {1: 3, 4: 3}
    assert len(learner.seen) == 2 * 3  # as the learner, and as the opponent in the slot that drew the latest policy
    assert book.policies[4].who() == [(0, 1), (0, 3), (3, 1), (3, 3), (5, 1), (5, 3)]
    assert book.policies[1].who() == [(1, 1), (1, 3), (4, 1), (4, 3)]
    assert learner.who(-1) == [(2, 1), (2, 3)]


def test_rows_are_the_agents_of_the_learning_team_slot_by_slot():
    env = Pitch([9, 9, 9])
    matchups = [Matchup(0, LATEST), Matchup(1, LATEST), Matchup(0, LATEST)]
    rollout, _ = collector(env, 2, lambda slot: matchups[slot]).collect(Always(0), Book(), policy_version=7)
    rows = [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2]]  # slot, agent
    for t in range(2):
        assert rollout.observations[t, :, :2].tolist() == rows
        assert rollout.observations[t, :, 3].tolist() == [t] * 6
    assert rollout.last_observations.tolist() == [[*row, 0, 2] for row in rows]
    assert rollout.rewards[1].tolist() == [1, 3, 2, 4, 1, 3]  # agent p is paid p + 1
    assert (rollout.actions == 0).all()
    assert np.abs(rollout.log_probs).max() < 1e-6
    assert (rollout.group_size, rollout.policy_version, rollout.agent_steps) == (2, 7, 12)


def test_members_of_a_group_are_neighbours_even_when_the_agents_take_turns():
    env = Pitch([9], groups=(5, 6, 5, 6))
    assert Teams.of(env, self_play=False).agents.tolist() == [[0, 2, 1, 3]]
    assert Teams.of(env, self_play=True).agents.tolist() == [[0, 2], [1, 3]]


def test_opponent_and_learning_team_change_only_where_a_match_ends():
    env, book, random = Pitch([2, 3, 5, 7]), Book(), np.random.default_rng(0)
    draws: list[int] = []

    def draw(slot):
        draws.append(slot)
        return Matchup(int(random.integers(2)), int(random.integers(-1, 6)))

    rows = collector(env, 30, draw)
    for _ in range(2):
        rows.collect(Always(0), book)
    teams = np.array([0, 1, 0, 1])
    sides: dict[tuple[int, int], set] = {}
    for played, match in zip(env.played, env.matches, strict=True):
        for slot in range(4):
            by_team = tuple(tuple(np.unique(played[slot, teams == team])) for team in (0, 1))
            sides.setdefault((slot, int(match[slot])), set()).add(by_team)
    assert all(len(pairings) == 1 for pairings in sides.values())
    assert [draws.count(slot) for slot in range(4)] == [1 + 60 // 2, 1 + 60 // 3, 1 + 60 // 5, 1 + 60 // 7]
    pairings = {next(iter(p)) for p in sides.values()}
    assert {p for p in pairings if p[0] != (0,)}, "team 1 learned in some match"
    assert {p for p in pairings if p[1] != (0,)}, "team 0 learned in some match"
    assert len(pairings) > 6


def test_truncated_rows_carry_their_final_observations_in_the_order_of_argwhere():
    env = Pitch([3, 4, 2], cut_off=[0, 2])
    rollout, _ = collector(env, 6).collect(Always(0), Book())
    where = np.argwhere(rollout.truncated)
    expected = []  # slot, agent, match, decision: the state after the last decision, before the restart
    for t, row in where:
        slot, agent = row // 2, (0, 2)[row % 2]
        length = env.lengths[slot]
        assert (t + 1) % length == 0
        expected.append([slot, agent, t // length, length])
    assert len(where) == 2 * (2 + 3)
    assert rollout.final_observations.tolist() == expected
    assert not (rollout.truncated & rollout.terminated).any()
    assert np.argwhere(rollout.terminated).tolist() == [[3, 2], [3, 3]]


def test_an_agent_that_left_is_inactive_until_the_next_match():
    env = Pitch([3, 9], leaves=[2])
    rows = collector(env, 5)
    rows.collect(Always(0), Book())
    rollout, _ = rows.collect(Always(0), Book())
    # decisions 5..9; slot 0's matches start at 0, 3, 6, 9; slot 1's at 0 and 9
    assert rollout.active.T.tolist() == [
        [True, True, True, True, True],
        [False, True, False, False, True],
        [True, True, True, True, True],
        [False, False, False, False, True],
    ]
    assert rollout.agent_steps == 13
    assert rollout.last_active.tolist() == [True, False, True, False]
    assert (rollout.observations[~rollout.active] == 0).all()
    assert (rollout.rewards[~rollout.active] == 0).all()
    assert rollout.terminated[1].tolist() == [False, True, False, False]


def test_episodes_tell_length_returns_and_result_as_each_team_sees_them():
    env = Pitch([2, 3, 2], cut_off=[2])
    matchups = [Matchup(0, 4), Matchup(1, LATEST), Matchup(0, 5)]
    rows = collector(env, 2, lambda slot: matchups[slot])
    _, episodes = rows.collect(Always(0), Book())
    _, later = rows.collect(Always(0), Book())
    told = [(e.team, e.opponent, e.result, e.length, e.reward, e.group_reward) for e in (*episodes, *later[:2])]
    assert told == [
        (0, 4, 1, 2, 2.0, 1.0),
        (0, 4, 1, 2, 6.0, 1.0),
        (0, 5, None, 2, 2.0, 1.0),
        (0, 5, None, 2, 6.0, 1.0),
        (1, LATEST, 1, 3, 6.0, -1.0),  # result: sign of the last reward 2 plus group reward -1
        (1, LATEST, 1, 3, 12.0, -1.0),
    ]


def test_a_match_has_a_result_for_those_who_saw_its_end():
    # Agent 0 leaves after the first decision, paid 1; agent 2 is paid 3 and, at the end, the group's 1.
    rows = collector(Pitch([3], leaves=[0]), 3)
    _, episodes = rows.collect(Always(0), Book())
    told = [(e.result, e.length, e.reward, e.group_reward, e.left_early) for e in episodes]
    assert told == [(None, 1, 1.0, 0.0, True), (1, 3, 9.0, 1.0, False)]


@pytest.mark.parametrize(("pay", "results"), [(0, [None, None]), (1, [1, 1])])
def test_a_group_that_is_out_while_others_play_on_has_the_result_that_it_was_told(pay, results):
    env = Pitch([3], leaves=[0, 2])
    env.pay = pay  # 0: nobody told it anything, and the match is not over
    _, episodes = collector(env, 3).collect(Always(0), Book())
    assert [(e.result, e.left_early) for e in episodes] == [(result, False) for result in results]


@pytest.mark.parametrize(("team", "result"), [(0, 1), (1, -1)])
def test_the_groups_reward_alone_decides_a_match(team, result):
    env = Pitch([2])
    env.pay = 0
    _, episodes = collector(env, 2, lambda slot: Matchup(team, LATEST)).collect(Always(0), Book())
    assert [e.result for e in episodes] == [result, result]


def test_entropy_is_the_mean_since_it_was_last_taken():
    rows = collector(Pitch([9, 9]), 3)
    rows.collect(lambda x: torch.zeros(len(x), ACTIONS), Book())
    rows.collect(Always(0), Book())
    assert rows.take_entropy() == pytest.approx(math.log(ACTIONS) / 2, rel=1e-6)
    assert rows.take_entropy() == 0.0


def test_entropy_counts_present_agents_only():
    rows = collector(Pitch([5], leaves=[2]), 5)
    # undecided in the first decision of the match; so it would be on the empty row of an absent agent
    rows.collect(lambda x: 60.0 * torch.eye(ACTIONS)[0] * (x[:, 3:] > 0), Book())
    assert rows.take_entropy() == pytest.approx(math.log(ACTIONS) * 2 / 6, rel=1e-6)


def test_without_self_play_all_agents_learn():
    env, learner = Pitch([9, 9]), Always(0)
    rollout, _ = collector(env, 1, self_play=False).collect(learner, Book())
    assert rollout.observations.shape == (1, 8, 4)
    assert learner.who() == [(s, p) for s in (0, 1) for p in (0, 2, 1, 3)]


def test_a_restored_collector_continues_bit_for_bit():
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))

    def make():
        draw = lambda slot: Matchup(slot % 2, slot % 3 - 1)  # noqa: E731
        return collector(envs.make("DuelToy", 8), 7, draw, seed=3)

    def play(rows, times):
        played = []
        for _ in range(times):
            rollout, episodes = rows.collect(lambda x: x @ weights, lambda k: lambda x: x @ weights.roll(k, 0))
            arrays = (rollout.observations, rollout.actions, rollout.log_probs, rollout.group_rewards)
            played.append(([a.copy() for a in arrays], episodes, rows.take_entropy()))
        return played

    first = make()
    play(first, 2)
    state = first.state_dict()
    expected = play(first, 3)
    other = make()
    other.load_state_dict(state)
    for (arrays, episodes, entropy), (again, same, alike) in zip(expected, play(other, 3), strict=True):
        assert all((a == b).all() for a, b in zip(arrays, again, strict=True))
        assert (episodes, entropy) == (same, alike)
    assert any(episodes for _, episodes, _ in expected)


def test_another_seed_draws_other_actions():
    uniform = lambda x: torch.zeros(len(x), ACTIONS)  # noqa: E731
    actions = [collector(Pitch([9] * 8), 6, seed=s).collect(uniform, Book())[0].actions.copy() for s in (0, 1, 0)]
    assert (actions[0] == actions[2]).all()
    assert (actions[0] != actions[1]).mean() > 0.5


def test_opponents_draw_apart_from_the_learning_team_and_from_every_other_decision():
    env, uniform = Pitch([99] * 8), lambda x: torch.zeros(len(x), ACTIONS)
    rows = collector(env, 40)
    for _ in range(2):
        rows.collect(uniform, lambda snapshot: uniform)
    played = np.array(env.played)  # [80, 8, 4]; agents 0 and 2 learn
    ours, theirs = played[:, :, ::2], played[:, :, 1::2]
    alike = (ours.reshape(80, 1, 16) == theirs.reshape(1, 80, 16)).mean(2)  # of any two decisions
    assert alike.max() < 0.8
    assert (ours[1:] == ours[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)
    assert (theirs[1:] == theirs[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Pitch([9], teams=(0, 0, 1)), r"teams and groups of equal size; found teams of \[1, 2\] agents"),
        (Pitch([9], groups=(0, 1, 0, 2)), r"groups of \[1, 2\]"),
        (Pitch([9], teams=(0, 0)), "self_play needs at least two teams, the game has one; remove self_play"),
    ],
)
def test_a_game_that_symmetric_self_play_cannot_serve_is_refused(env, message):
    with pytest.raises(EnvError, match=message):
        Teams.of(env, self_play=True)


def test_a_game_with_two_behaviors_is_refused_by_name():
    env = Pitch([9])
    spec = env.spec
    env.spec = GameSpec("Pitch", (*spec.behaviors, BehaviorSpec.of_vectors("Keeper", (4,), (2,))), spec.agents, 9)
    with pytest.raises(EnvError, match="one behavior; this one has Pitch, Keeper"):
        collector(env, 1)


@pytest.mark.parametrize("length", [9, 1], ids=["in a match", "at its end"])
@pytest.mark.parametrize("fault", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["reward", "group reward", "observation"])
def test_a_number_that_is_not_finite_stops_the_run(name, fault, length):
    env = Pitch([length])
    rows = collector(env, 2)
    env.poison[name] = fault
    with pytest.raises(EnvError, match=f"Pitch returned a {name} that is not finite; check_env finds where"):
        rows.collect(Always(0), Book())
