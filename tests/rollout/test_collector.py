"""Who acts for whom, what lands in which row of a rollout, and what an end of a match does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from collecting import LATEST, collector, play, seats, uniform
from counting_game import CountingGame
from counting_policy import CountingPolicy
from pitch import ACTIONS, Always, Book, Pitch

from palus.envs.matches import Matches
from palus.nn.distributions import sample
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat


def test_every_agent_is_acted_on_by_exactly_one_policy():
    env, book = Pitch([9] * 5), Book()
    matchups = [(0, 2), (1, 0), (1, 2), (0, LATEST), (1, 1)]
    collector(env, 1, matchups.__getitem__, book=book).collect()
    # agents 0 and 2 are team 0, agents 1 and 3 team 1; action 0 is the learner's, action k + 1 snapshot k's
    assert env.played[0].tolist() == [[0, 3, 0, 3], [1, 0, 1, 0], [3, 0, 3, 0], [0, 0, 0, 0], [2, 0, 2, 0]]
    shown = sorted(book.policies[0].who() + book.policies[1].who() + book.policies[2].who())
    assert shown == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 0), (2, 2), (4, 0), (4, 2)]


def test_each_snapshot_answers_all_its_agents_in_one_call_per_decision():
    env, learner, book = Pitch([9] * 6), Always(0), Book()
    opponents = [4, 1, LATEST, 4, 1, 4]
    collector(env, 3, lambda slot: (0, opponents[slot]), learner=learner, book=book).collect()
    assert {k: len(p.seen) for k, p in book.policies.items()} == {1: 3, 4: 3}
    assert len(learner.seen) == 2 * 3  # as the learner, and as the opponent in the slot that drew the latest policy
    assert book.policies[4].who() == [(0, 1), (0, 3), (3, 1), (3, 3), (5, 1), (5, 3)]
    assert book.policies[1].who() == [(1, 1), (1, 3), (4, 1), (4, 3)]
    assert learner.who(-1) == [(2, 1), (2, 3)]


def test_rows_are_the_agents_of_the_learning_team_slot_by_slot():
    env, learner = Pitch([9, 9, 9]), Always(0)
    learner.version = 7
    rollout, _ = play(collector(env, 2, lambda slot: (slot % 2, LATEST), learner=learner))
    rows = [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2]]  # slot, agent
    seen = rollout.observations["obs_0"]
    for t in range(3):
        assert seen[t].tolist() == [[*row, 0, t] for row in rows]
    assert rollout.rewards[1].tolist() == [1, 3, 2, 4, 1, 3]  # agent p is paid p + 1
    assert (rollout.actions == 0).all() and rollout.actions.dtype == np.float32
    assert rollout.log_probs.shape == (2, 6, 1) and np.abs(rollout.log_probs).max() < 1e-6
    assert rollout.parameters[1, 5].tolist() == [60.0] + [0.0] * (ACTIONS - 1)
    assert (rollout.group_size, rollout.agent_steps) == (2, 12)
    assert (rollout.versions == 7).all() and rollout.values is None and rollout.masks is None


def test_members_of_a_group_are_neighbours_even_when_the_agents_take_turns():
    for team, agents in ((None, [0, 2, 1, 3]), (0, [0, 2]), (1, [1, 3])):
        rollout, _ = play(collector(Pitch([9], groups=(5, 6, 5, 6)), 1, lambda slot, team=team: (team, LATEST)))
        assert rollout.observations["obs_0"][0, :, 1].tolist() == agents
        assert rollout.group_size == 2


def test_groups_of_unequal_size_leave_rows_empty():
    env = Pitch([9, 9], teams=(0, 0, 1))
    rollout, _ = play(collector(env, 2, lambda slot: (slot, LATEST)))
    assert rollout.group_size == 2
    assert rollout.active[0].tolist() == [True, True, False, False, True, False, False, False]
    assert rollout.observations["obs_0"][1, rollout.active[1], :2].tolist() == [[0, 0], [0, 1], [1, 2]]
    assert not rollout.rewards[~rollout.active].any() and not rollout.observations["obs_0"][1, ~rollout.active[1]].any()


def test_opponent_and_learning_team_change_only_where_a_match_ends():
    env, random = Pitch([2, 3, 5, 7]), np.random.default_rng(0)
    draws: list[int] = []

    def draw(slot):
        draws.append(slot)
        return int(random.integers(2)), int(random.integers(-1, 6))

    rows = collector(env, 30, draw)
    draws.clear()
    for _ in range(2):
        rows.collect()
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
    rollout, _ = play(collector(env, 6))
    where = np.argwhere(rollout.truncated)
    expected = []  # slot, agent, match, decision: the state after the last decision, before the restart
    for t, row in where:
        slot, agent = row // 2, (0, 2)[row % 2]
        length = env.lengths[slot]
        assert (t + 1) % length == 0
        expected.append([slot, agent, t // length, length])
    assert len(where) == 2 * (2 + 3)
    assert rollout.final_observations["obs_0"].tolist() == expected
    assert not (rollout.truncated & rollout.terminated).any()
    assert np.argwhere(rollout.terminated).tolist() == [[3, 2], [3, 3]]


def test_an_agent_that_left_is_inactive_until_the_next_match():
    env = Pitch([3, 9], leaves=[2])
    rows = collector(env, 5)
    rows.collect()
    rollout, _ = play(rows)
    # decisions 5..9; slot 0's matches start at 0, 3, 6, 9; slot 1's at 0 and 9
    assert rollout.active.T.tolist() == [
        [True, True, True, True, True],
        [False, True, False, False, True],
        [True, True, True, True, True],
        [False, False, False, False, True],
    ]
    assert rollout.agent_steps == 13
    assert rollout.last_active.tolist() == [True, False, True, False]
    assert (rollout.observations["obs_0"][:-1][~rollout.active] == 0).all()
    assert (rollout.rewards[~rollout.active] == 0).all()
    assert rollout.terminated[1].tolist() == [False, True, False, False]


def test_a_memory_is_empty_when_a_match_begins_also_of_who_had_left_before_its_end():
    class Counting(Always):
        state_size = 1
        shown: list[list[float]]

        def act(self, observations, states, masks=None):
            self.shown = [*getattr(self, "shown", []), states[:, 0].tolist()]
            return super().act(observations, states)[0], None, states + 1

    learner, other = Counting(0), Counting(1)
    env = Pitch([3], leaves=[1, 2])
    rows = InProcessCollector(
        env, {0: ("Pitch", learner)}, lambda slot: seats(env, 0, 0), 3, 1, {0: 2}, lambda policy: other
    )
    rows.collect()
    assert rows.collect().rollouts[0].states.tolist() == [[0.0], [0.0]]
    assert [sorted(shown) for shown in other.shown[:4]] == [[0, 0], [0, 1], [0, 2], [0, 0]]


def test_opponents_draw_with_other_keys_than_learners():
    env, ticks = Pitch([9]), []

    def draw(parameters, spec, seed, tick, rows):
        ticks.append(tick)
        return sample(parameters, spec, seed, tick, rows)

    InProcessCollector(
        env, {0: ("Pitch", Always(0))}, lambda slot: seats(env, 0, 0), 3, 1, {0: 2}, Book(), draws={"Pitch": draw}
    ).collect()
    assert sorted(ticks) == [0, 1, 2, 3, 4, 5]


def test_matches_that_begin_anew_are_others_and_nothing_of_the_old_ones_is_told():
    env, seeds = Pitch([4, 4]), []
    begin = env.reset
    env.reset = lambda own: (seeds.extend(own.tolist()), begin(own))
    rows = collector(env, 3)
    rows.collect()
    rows.restart()
    _, episodes = play(rows)
    assert episodes == [] and len(set(seeds)) == 4
    assert [episode.length for episode in play(rows)[1]] == [4] * 4


def test_episodes_tell_who_played_how_long_and_what_it_was_paid():
    env = Pitch([2, 3, 2], cut_off=[2])
    matchups = [(0, 4), (1, LATEST), (0, 5)]
    rows = collector(env, 2, matchups.__getitem__)
    _, episodes = play(rows)
    _, later = play(rows)
    told = [(e.slot, e.agent, e.policy, e.length, e.reward, e.group_reward) for e in (*episodes, *later[:2])]
    assert told == [
        (0, 0, 0, 2, 2.0, 1.0),
        (0, 2, 0, 2, 6.0, 1.0),
        (2, 0, 0, 2, 2.0, 1.0),
        (2, 2, 0, 2, 6.0, 1.0),
        (1, 1, 0, 3, 6.0, -1.0),
        (1, 3, 0, 3, 12.0, -1.0),
    ]


def test_opponents_have_episodes_too():
    episodes = collector(Pitch([2, 2]), 2, lambda slot: (0, (4, LATEST)[slot])).collect().episodes
    told = [(e.slot, e.agent, e.policy, e.learned, e.group_reward) for e in episodes]
    assert told == [
        (0, 0, 0, True, 1.0), (0, 1, FROZEN + 4, False, -1.0), (0, 2, 0, True, 1.0), (0, 3, FROZEN + 4, False, -1.0),
        (1, 0, 0, True, 1.0), (1, 1, 0, False, -1.0), (1, 2, 0, True, 1.0), (1, 3, 0, False, -1.0),
    ]  # fmt: skip


def test_whoever_leaves_before_others_of_its_group_is_told_to_have_left_early():
    # Agent 0 leaves after the first decision, paid 1; agent 2 is paid 3 and, at the end, the group's 1.
    _, episodes = play(collector(Pitch([3], leaves=[0]), 3))
    told = [(e.length, e.reward, e.group_reward, e.left_early) for e in episodes]
    assert told == [(1, 1.0, 0.0, True), (3, 9.0, 1.0, False)]
    _, episodes = play(collector(Pitch([3], leaves=[0, 2]), 3))
    assert [e.left_early for e in episodes] == [False, False]


@pytest.mark.parametrize("pay", [0, 1, -5])
def test_matches_tell_the_games_verdict_whatever_was_paid(pay):
    env = Pitch([2, 3, 2], cut_off=[2])
    env.pay = pay
    rows = collector(env, 2, lambda slot: (slot % 2, 4))
    won, level = rows.collect().matches
    assert won == FinishedMatch(0, (1.0, 0.0), seats(env, 0, 4))
    assert level == FinishedMatch(2, (0.5, 0.5), seats(env, 0, 4))
    assert rows.collect().matches[0] == FinishedMatch(1, (1.0, 0.0), seats(env, 1, 4))


def test_a_match_without_a_verdict_has_no_points():
    game = Matches(lambda: CountingGame(agents=2, length=2), 1)
    rows = InProcessCollector(game, {0: ("", CountingPolicy())}, lambda slot: [Seat(0, True)] * 2, 2, 1, {0: 2}, Book())
    assert rows.collect().matches == [FinishedMatch(0, (), (Seat(0, True),) * 2)]


def test_entropy_is_the_mean_of_the_rollouts_decisions():
    rows = collector(Pitch([9, 9]), 3, learner=uniform())
    assert rows.collect().entropies == {0: pytest.approx(math.log(ACTIONS), rel=1e-6)}
    rows.policies.publish(0, Always(0))
    assert rows.collect().entropies[0] < 1e-6


def test_entropy_counts_present_agents_only():
    class Undecided(Always):
        def act(self, observations, states, masks=None):
            # at the first decision of the match; so it would be on the empty row of an absent agent
            first = observations["obs_0"][:, 3:] > 0
            return 60.0 * torch.eye(ACTIONS)[0] * first, None, states

    entropies = collector(Pitch([5], leaves=[2]), 5, learner=Undecided(0)).collect().entropies
    assert entropies[0] == pytest.approx(math.log(ACTIONS) * 2 / 6, rel=1e-6)


def test_without_self_play_all_agents_learn():
    learner = Always(0)
    rollout, _ = play(collector(Pitch([9, 9]), 1, lambda slot: (None, LATEST), learner=learner))
    assert rollout.observations["obs_0"].shape == (2, 8, 4)
    assert learner.who() == [(s, p) for s in (0, 1) for p in (0, 2, 1, 3)]
