"""Who acts for whom, what lands in which row of a rollout, and what an end of a match does."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from counting_game import CHOICES, DECISION, CountingGame
from counting_policy import CountingPolicy
from pitch import ACTIONS, Always, Book, Pitch

from palus import envs
from palus.envs.matches import Matches
from palus.errors import EnvError
from palus.nn.distributions import sample
from palus.nn.place import Placement
from palus.rollout.collector import InProcessCollector
from palus.rollout.players import _joined
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat
from palus.types import MASKS

LATEST = -1


def seats(env, team, opponent):
    """Team `team` learns, or all agents; the others are snapshot `opponent`, or the latest policy without learning."""
    other = Seat(0, False) if opponent == LATEST else Seat(FROZEN + opponent, False)
    return tuple(Seat(0, True) if team in (None, agent.team) else other for agent in env.spec.agents)


def collector(env, steps, matchup=lambda slot: (0, LATEST), seed=1, learner=None, book=None, threads=1):
    """One learner of the first behavior; matchup: slot -> team that learns, snapshot that it meets."""
    P = env.spec.num_agents
    sides = [sum(agent.team == side for agent in env.spec.agents) for side in env.spec.sides]
    rows = P if matchup(0)[0] is None else max(sides)
    return InProcessCollector(
        env, {0: (env.spec.behaviors[0].name, learner or Always(0))}, lambda slot: seats(env, *matchup(slot)),
        steps, seed, {0: rows}, book or Book(), threads,
    )  # fmt: skip


def play(rows):
    """The learner's rollout and the episodes that it learned from."""
    collected = rows.collect()
    return collected.rollouts[0], [episode for episode in collected.episodes if episode.learned]


def uniform():
    return Always(0, certain=False)


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


class Linear:
    """Logits by a matrix, a memory that counts decisions, values that are its first number."""

    version, state_size, squash = 3, 2, False

    def __init__(self, weights):
        self.weights = weights

    def act(self, observations, states, masks=None):
        seen = torch.cat(list(observations.values()), 1)
        return seen @ self.weights + states[:, :1], states[:, 0] + 1.0, states + 1.0


def arrays_of(collected):
    """All that a collector gave, to be compared."""
    told = []
    for policy, rollout in sorted(collected.rollouts.items()):
        for name, value in vars(rollout).items():
            parts = value if isinstance(value, dict) else {"": value}
            told += [(policy, name, key, np.array(part).tobytes()) for key, part in parts.items()]
    return told, list(collected.episodes), list(collected.matches), dict(collected.entropies)


def duel_collector(threads=1):
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    env = envs.make("DuelToy", 8)
    return InProcessCollector(
        env, {0: ("DuelToy", Linear(weights))}, lambda slot: seats(env, slot % 2, slot % 3 - 1), 7, 3, {0: 1},
        lambda policy: Linear(weights.roll(policy - FROZEN, 0)), threads,
    )  # fmt: skip


def test_a_restored_collector_continues_bit_for_bit():
    first = duel_collector()
    for _ in range(2):
        first.collect()
    state = first.save()
    other = duel_collector()
    other.load(state)
    for _ in range(3):
        expected, found = arrays_of(first.collect()), arrays_of(other.collect())
        assert expected == found
        assert expected[1] and expected[2]
    assert first.in_play == other.in_play == {FROZEN, FROZEN + 1}


@pytest.fixture
def endless_duel(monkeypatch):
    """Makes collectors of a match of eight decisions, of which four are over when the sides change; with the side that
    learns next."""
    monkeypatch.setattr("palus.rollout.collector.ENDLESS", 4)
    monkeypatch.setattr("palus.envs.toy.DuelToy.ROUNDS", 8)
    weights = torch.zeros(4, 3)

    def duel(team=0):
        env, teams = envs.make("DuelToy", 1), itertools.cycle([team, 1 - team])
        env.spec = dataclasses.replace(env.spec, max_decisions=0)
        acting, cast = {0: ("DuelToy", Linear(weights))}, lambda slot: seats(env, next(teams), 0)
        return InProcessCollector(env, acting, cast, 2, 1, {0: 1}, lambda policy: Linear(weights))

    return duel


def test_an_episode_that_was_taken_over_amid_a_match_is_not_told_of_after_a_restore(endless_duel, monkeypatch):
    first, other, older = endless_duel(), endless_duel(), endless_duel()
    for _ in range(3):
        first.collect()
    state = first.save()
    other.load(state)
    older.load({name: part for name, part in state.items() if name != "partial"})
    ends = [rows.collect() for rows in (first, other, older)]
    assert [len(told.episodes) for told in ends] == [0, 0, 2]
    assert [told.matches[0].points for told in ends] == [()] * 3  # both played it
    monkeypatch.setattr("palus.rollout.collector.ENDLESS", 99)
    (following,) = (match for _ in range(4) for match in first.collect().matches)
    assert len(following.points) == 2


def test_a_match_that_goes_on_after_a_restore_is_as_old_as_it_was(endless_duel):
    first, other = endless_duel(), endless_duel(1)
    for _ in range(2):
        first.collect()
    other.load(first.save())
    learning = [
        [seat.learns for seat in (rows.collect(), rows.collect())[1].matches[0].seats] for rows in (first, other)
    ]
    assert learning == [[False, True]] * 2  # the sides changed after four decisions


def test_a_match_that_begins_within_a_rollout_is_as_old_as_the_rest_of_that(monkeypatch):
    monkeypatch.setattr("palus.rollout.collector.ENDLESS", 7)
    env, asked, found = Pitch([5]), [], []
    env.spec = dataclasses.replace(env.spec, max_decisions=0)
    rows = collector(env, 4, lambda slot: (asked.append(slot), (0, 0))[1])
    for _ in range(4):
        asked.clear()
        rows.collect()
        found.append(len(asked))
        env.lengths[:] = 99 if len(found) == 2 else env.lengths
    assert found == [1, 1, 0, 1]  # the second one begins with the sixth decision, and is recast after seven of its own


def test_who_comes_in_mid_run_may_remember_more_than_all_before_and_does_after_a_restore(monkeypatch):
    monkeypatch.setattr("palus.envs.toy.DuelToy.ROUNDS", 8)
    seen = []

    class Remembering(Linear):
        state_size = 3

        def act(self, observations, states, masks=None):
            seen.append(states.tolist())
            return *super().act(observations, states, masks)[:2], states + 1

    def duel():
        env, weights = envs.make("DuelToy", 1), torch.zeros(4, 3)
        acting, cast = {0: ("DuelToy", Linear(weights))}, lambda slot: seats(env, 0, 0)
        return InProcessCollector(env, acting, cast, 2, 1, {0: 1}, lambda policy: Remembering(weights))

    first, other = duel(), duel()
    first.collect()
    other.load(first.save())
    for rows in (first, other):
        rows.collect()
    assert seen == [[[float(t)] * 3] for t in (0, 1, 2, 3, 2, 3)]


def test_a_second_thread_changes_nothing():
    one, two = duel_collector(), duel_collector(threads=2)
    for _ in range(3):
        assert arrays_of(one.collect()) == arrays_of(two.collect())
    two.close()


def counting_rows(policy=None):
    game = Matches(lambda: CountingGame(length=3), 2)
    policy = policy or CountingPolicy(even=True)
    return InProcessCollector(game, {0: ("", policy)}, lambda slot: [Seat(0, True)], 5, 1, {0: 1}, Book())


def test_games_that_cannot_be_saved_start_anew_here_and_there():
    first = counting_rows()
    early = arrays_of(first.collect())
    state = first.save()
    assert state["env"] is None
    other = counting_rows()
    other.load(state)
    later, again = arrays_of(first.collect()), arrays_of(other.collect())
    # all but the number of the episode in its game, which only counts resets
    assert [x for x in later[0] if x[2] != "obs"] == [x for x in again[0] if x[2] != "obs"]
    assert later != early
    seen = first.collect().rollouts[0].observations["obs"]
    assert seen[0, :, DECISION].tolist() == [2, 2]  # nothing is restarted without being saved


def test_another_seed_draws_other_actions():
    actions = [play(collector(Pitch([9] * 8), 6, seed=s, learner=uniform()))[0].actions.copy() for s in (0, 1, 0)]
    assert (actions[0] == actions[2]).all()
    assert (actions[0] != actions[1]).mean() > 0.5


def test_opponents_draw_apart_from_the_learning_team_and_from_every_other_decision():
    env = Pitch([99] * 8)
    rows = collector(env, 40, lambda slot: (0, 0), learner=uniform(), book=lambda policy: uniform())
    for _ in range(2):
        rows.collect()
    played = np.array(env.played)  # [80, 8, 4]; agents 0 and 2 learn
    apart(played[:, :, ::2], played[:, :, 1::2])


def test_learners_draw_apart_from_each_other():
    env = Pitch([99] * 8)
    cast = [Seat(agent.team, True) for agent in env.spec.agents]
    learners = {k: ("Pitch", uniform()) for k in (0, 1)}
    rows = InProcessCollector(env, learners, lambda slot: cast, 80, 1, {0: 2, 1: 2}, Book())
    rows.collect()
    played = np.array(env.played)
    apart(played[:, :, ::2], played[:, :, 1::2])


def apart(ours, theirs):
    """No two decisions, [80, 8, 2] each, were drawn with the same numbers."""
    alike = (ours.reshape(80, 1, 16) == theirs.reshape(1, 80, 16)).mean(2)  # of any two decisions
    assert alike.max() < 0.8
    assert (ours[1:] == ours[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)
    assert (theirs[1:] == theirs[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)


def test_two_policies_of_a_population_learn_from_one_match():
    env = Pitch([2, 9])
    cast = {0: [Seat(0, True), Seat(1, True), Seat(1, True), Seat(1, True)], 1: [Seat(1, True)] * 4}
    one, two = Always(3), Always(5)
    rows = InProcessCollector(
        env, {0: ("Pitch", one), 1: ("Pitch", two)}, lambda slot: cast[slot], 3, 1, {0: 4, 1: 4}, Book()
    )
    collected = rows.collect()
    assert env.played[0].tolist() == [[3, 5, 5, 5], [5, 5, 5, 5]]
    assert (len(one.seen[0]), len(two.seen[0])) == (1, 7)  # nobody computes what another one decides
    agents = {}
    for policy, rollout in collected.rollouts.items():
        assert rollout.group_size == 2 and rollout.rewards.shape == (3, 8)
        # rows of a group belong together: who plays for the other policy leaves an empty one
        agents[policy] = np.where(rollout.active[0], rollout.observations["obs_0"][0, :, 1], -1).tolist()
    assert agents == {0: [0, -1, -1, -1, -1, -1, -1, -1], 1: [-1, 2, 1, 3, 0, 2, 1, 3]}
    assert [(e.agent, e.policy) for e in collected.episodes] == [(0, 0), (1, 1), (2, 1), (3, 1)]


def test_two_behaviors_that_see_and_do_different_things_share_a_match():
    class Telling:
        version, state_size, squash = 0, 0, False

        def __init__(self, sizes, choices):
            self.sizes, self.choices = sizes, choices

        def act(self, observations, states, masks=None):
            assert {name: seen.shape[1] for name, seen in observations.items()} == self.sizes
            return torch.zeros(len(states), self.choices), None, states

    env = envs.make("PenaltyToy", 6)
    learners = {0: ("Striker", Telling({"obs_0": 4}, 3)), 1: ("Keeper", Telling({"obs_0": 2, "obs_1": 1}, 4))}
    both, frozen = (Seat(0, True), Seat(1, True)), (Seat(FROZEN, False), Seat(1, True))
    frozen_striker = Telling({"obs_0": 4}, 3)
    rows = InProcessCollector(
        env, learners, lambda slot: both if slot < 4 else frozen, 8, 1, {0: 1, 1: 1}, lambda policy: frozen_striker
    )
    collected = rows.collect()
    striker, keeper = collected.rollouts[0], collected.rollouts[1]
    assert (striker.actions.shape, keeper.actions.shape) == ((8, 6, 1), (8, 6, 2))
    assert striker.active.all(0).tolist() == [True] * 4 + [False] * 2 and keeper.active.all()
    assert {name: a.shape for name, a in keeper.observations.items()} == {"obs_0": (9, 6, 2), "obs_1": (9, 6, 1)}
    assert keeper.observations["obs_1"][:, 0, 0].tolist() == [0, 0.25, 0.5, 0.75] * 2 + [0]
    hits = {(e.slot, e.policy): e.stats["hits"] for e in collected.episodes[:12]}
    for slot in range(4):
        assert hits[slot, 0] == striker.rewards[:4, slot].mean()
    assert hits[5, 1] == keeper.rewards[:4, 5].mean() and (5, FROZEN) in hits


def test_masks_are_seen_obeyed_and_kept():
    class Menu:
        version, state_size, squash = 0, 0, False

        def act(self, observations, states, masks=None):
            assert masks is not None and masks.dtype == torch.bool and list(observations) == ["obs_0"]
            return torch.where(masks, 0.0, -1e9), None, states

    env = envs.make("MenuToy", 16)  # raises EnvError when a forbidden dish is ordered
    rows = InProcessCollector(
        env, {0: ("MenuToy", Menu())}, lambda slot: [Seat(0 if slot % 2 else FROZEN, slot % 2 == 1)], 20, 1, {0: 1},
        lambda policy: Menu(),
    )  # fmt: skip
    rollout = rows.collect().rollouts[0]
    assert MASKS not in rollout.observations and rollout.masks.shape == (21, 16, 4)
    filled = rollout.active[0]
    assert filled.tolist() == [False, True] * 8
    assert (rollout.masks[:, filled].sum(2) == 3).all() and rollout.masks[:, ~filled].all()
    taken = np.take_along_axis(rollout.masks[:-1], rollout.actions.astype(np.int64), 2)
    assert taken[:, filled].all()


def test_memories_follow_their_agent_and_end_with_its_episode():
    game = Matches(lambda: CountingGame(length=3, truncate=True), 2)
    policies = {0: CountingPolicy(2), FROZEN: CountingPolicy(5)}
    rows = InProcessCollector(
        game, {0: ("", policies[0])}, lambda slot: [Seat(0 if slot else FROZEN, slot == 1)], 4, 1, {0: 1},
        policies.__getitem__,
    )  # fmt: skip
    first, second = (
        (r := rows.collect().rollouts[0], r.states.copy(), r.last_states.copy(), r.parameters.copy()) for _ in "ab"
    )
    # the mean of the continuous action is the memory, which counts the decisions of an episode; row 0 is nobody's
    assert first[3][:, 1, CHOICES].tolist() == [0, 1, 2, 0]
    assert second[3][:, 1, CHOICES].tolist() == [1, 2, 0, 1]
    assert (first[1][1], first[2][1], second[1][1], second[2][1]) == (0, 1, 1, 2)
    assert not first[1][0].any() and not first[2][0].any()
    rollout = second[0]
    assert rollout.final_states.tolist() == [[3.0]] and rollout.final_observations["obs"][0, DECISION] == 3
    # values are recorded where acting gives them, for the agent's own decisions: here the decision's number
    assert rollout.values[:, 1].tolist() == [1, 2, 0, 1]
    # the frozen policy's memory counts alike: what arrived in its game is what the learner's would be, a 2 clipped to 1
    told = [e.stats["true_objective"] for e in rows.collect().episodes]
    assert told == [pytest.approx(1, abs=0.01)] * 4


@pytest.mark.parametrize("squashing", [0, FROZEN])
def test_numbers_reach_the_game_as_each_policy_draws_them_clipped_or_squashed(squashing):
    policies = {0: CountingPolicy(2), FROZEN: CountingPolicy(5)}
    policies[squashing].squash = True
    with contextlib.closing(
        InProcessCollector(
            Matches(lambda: CountingGame(length=3), 2), {0: ("", policies[0])},
            lambda slot: [Seat(0 if slot else FROZEN, slot == 1)], 6, 1, {0: 1}, policies.__getitem__,
        )
    ) as collector:  # fmt: skip
        collected = collector.collect()
    # the last of three decisions draws 2, the memory then
    objectives = {e.slot: e.stats["true_objective"] for e in collected.episodes}
    told = {policy: np.tanh(2.0) if policy == squashing else 1.0 for policy in policies}
    assert objectives == {slot: pytest.approx(told[k], abs=1e-3) for slot, k in enumerate((FROZEN, 0))}
    assert collected.rollouts[0].actions[2, 1, 1] == pytest.approx(2.0, abs=0.01)  # stored as drawn


def test_policies_are_loaded_once_and_forgotten_when_the_last_match_with_them_is_over():
    env, loaded = Pitch([4, 4]), []

    def load(policy):
        loaded.append(policy)
        return Always(1)

    opponents = iter([0, 1, 0, 2, 3, 3])
    rows = InProcessCollector(
        env, {0: ("Pitch", Always(0))}, lambda slot: seats(env, 0, next(opponents)), 3, 1, {0: 2}, load
    )
    rows.collect()
    assert rows.in_play == {FROZEN, FROZEN + 1} and loaded == [FROZEN, FROZEN + 1]
    rows.policies.retired.add(FROZEN + 1)
    rows.policies.publish(FROZEN + 2, Always(6))
    rows.collect()
    assert [played.tolist()[1] for played in env.played] == [[0, 1, 0, 1]] * 4 + [[0, 6, 0, 6]] * 2
    assert loaded == [FROZEN, FROZEN + 1]
    assert set(rows.policies.known) == {0, FROZEN, FROZEN + 2}


def test_a_script_is_asked_once_a_team_and_decision_for_the_matches_that_it_plays():
    env, asked = Pitch([9] * 4), []

    def act(game, team, matches):
        assert game is env
        asked.append((team, matches.tolist()))
        return np.full((len(matches), 2, 1), 4 + team) + np.arange(2)[:, None] + 10 * matches[:, None, None]

    script = FROZEN + 9  # in matches 1 and 3, of which 3 has the learner on the other team
    matchups = [(0, 1), (0, 9), (0, LATEST), (1, 9)]
    rows = InProcessCollector(
        env, {0: ("Pitch", Always(0))}, lambda slot: seats(env, *matchups[slot]), 2, 1, {0: 2}, Book(),
        scripts={script: act},
    )  # fmt: skip
    rows.collect()
    assert asked == [(0, [3]), (1, [1])] * 2
    assert env.played[1].tolist() == [[0, 2, 0, 2], [0, 15, 0, 16], [0, 0, 0, 0], [34, 0, 35, 0]]


def test_a_member_may_remember_more_than_the_learner():
    env, states = Pitch([9]), []

    class Remembering(Always):
        state_size, squash = 3, False

        def act(self, observations, before, masks=None):
            states.append(before.clone().tolist())
            return super().act(observations, before + 1, masks)

    rows = InProcessCollector(
        env, {0: ("Pitch", Always(0))}, lambda slot: seats(env, 0, 5), 2, 1, {0: 2}, Book(),
        members={FROZEN + 5: ("Pitch", Remembering(6))},
    )  # fmt: skip
    rows.collect()
    assert states == [[[0.0] * 3] * 2, [[1.0] * 3] * 2] and env.played[0].tolist() == [[0, 6, 0, 6]]


def test_numbers_of_the_reward_are_paid_from_the_next_match_on():
    games = []

    def make():
        games.append(CountingGame(agents=2, length=2, bonus=True))
        return games[-1]

    rows = InProcessCollector(
        Matches(make, 1), {k: ("", CountingPolicy(k)) for k in (0, 1)}, lambda slot: [Seat(0, True), Seat(1, True)],
        2, 1, {0: 1, 1: 1}, Book(),
    )  # fmt: skip
    rows.collect()
    rows.shape_rewards(1, [0.5])
    rows.collect()  # the match that ran already
    paid = rows.collect().rollouts
    assert paid[0].rewards.ravel().tolist() == [0.0, 0.0]
    assert paid[1].rewards.ravel().tolist() == [1.5, 1.5]


def test_seats_that_no_learner_fits_are_refused():
    env = Pitch([9])
    rows = InProcessCollector(env, {0: ("Pitch", Always(0))}, lambda slot: [Seat(1, True)] * 4, 1, 1, {0: 4}, Book())
    with pytest.raises(ValueError, match=r"agent 0 has Seat.policy=1, learns=True.; no learner of 'Pitch' has that id"):
        rows.collect()
    rows = InProcessCollector(env, {0: ("Pitch", Always(0))}, lambda slot: [Seat(0, True)] * 4, 1, 1, {0: 2}, Book())
    with pytest.raises(ValueError, match="more agents of a match learn than its 2 rows hold"):
        rows.collect()


@pytest.mark.parametrize("length", [9, 1], ids=["in a match", "at its end"])
@pytest.mark.parametrize("fault", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["reward", "group reward", "observation"])
def test_a_number_that_is_not_finite_stops_the_run(name, fault, length):
    env = Pitch([length])
    rows = collector(env, 2)
    env.poison[name] = fault
    with pytest.raises(EnvError, match=f"Pitch returned a {name} that is not finite; check_env finds where"):
        rows.collect()


def test_blocks_that_touch_are_read_as_one():
    assert _joined([slice(0, 2), slice(2, 5), slice(7, 9)]) == [slice(0, 5), slice(7, 9)]
    assert _joined([slice(3, 4)]) == [slice(3, 4)]


class Overwriting(Always):
    """Plays the number of the agent that it is shown; all its answers lie in the same memory."""

    def __init__(self) -> None:
        super().__init__(0)
        self.logits = torch.zeros(64, ACTIONS)

    def act(self, observations, states, masks=None):
        agents = observations["obs_0"][:, 1].long()
        self.logits[: len(agents)] = 60.0 * torch.nn.functional.one_hot(agents, ACTIONS)
        return self.logits[: len(agents)], None, states


def test_a_policy_that_a_device_is_asked_for_twice_answers_twice():
    game, policy, place = Pitch([5, 7]), Overwriting(), Placement(torch.device("cpu"), compiled=False)
    learns = [Seat(0, agent in (0, 2)) for agent in range(4)]
    collector = InProcessCollector(game, {0: ("Pitch", policy)}, lambda _: learns, 4, 1, {0: 2}, Book(), place=place)
    collector.collect()
    np.testing.assert_array_equal(game.played, np.tile(np.arange(4), (4, 2, 1)))
