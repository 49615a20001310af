"""Collecting over workers: every decision is the right policy's, with its memory, its numbers and its group."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from counting_game import AGENT, CHOICES, DECISION
from counting_policy import MODES, CountingPolicy, counting_collector, own, played

from palus.rollout.rollout import FROZEN, Seat

LEARNS = [Seat(policy, True) for policy in (0, 1)]
PAST = Seat(FROZEN, False)


def test_policies_take_turns_in_games_and_learn_only_from_their_own_decisions() -> None:
    starts = [0] * 4

    def cast(game):
        starts[game] += 1
        return [(LEARNS[0], LEARNS[1]), (PAST, LEARNS[1]), (LEARNS[0], PAST)][starts[game] % 3]

    policies = {0: CountingPolicy(2), 1: CountingPolicy(5), FROZEN: CountingPolicy(7)}
    frozen = policies.pop(FROZEN)
    with counting_collector(8, horizon=15, agents=2, policies=policies, cast=cast, load=lambda policy: frozen) as s:
        collected = s.collect()
        (zero, ends), (one, other_ends) = own(collected, 0), own(collected, 1)
        assert not (zero.active & one.active).any()
        played = np.where(zero.active, 2, np.where(one.active, 5, 7))
        np.testing.assert_array_equal(zero.actions[:, :, 0], played)
        np.testing.assert_array_equal(zero.versions, played)
        np.testing.assert_array_equal(played[:, 0], [7] * 5 + [2] * 5 + [2] * 5)
        np.testing.assert_array_equal(played[:, 1], [5] * 5 + [7] * 5 + [5] * 5)
        assert [len(ends), len(other_ends), len(collected.episodes)] == [8, 8, 24]
        assert zero.observations["obs"].ctypes.data == one.observations["obs"].ctypes.data
        assert set(collected.entropies) == {0, 1}
        # After the page every game's fourth match begins, between a past policy and learner 1.
        np.testing.assert_array_equal(zero.last_active, False)
        np.testing.assert_array_equal(one.last_active, [0, 1] * 4)
        told = [(m.slot, m.seats) for m in collected.matches]
        turns = [(PAST, LEARNS[1]), (LEARNS[0], PAST), (LEARNS[0], LEARNS[1])]
        assert told == [(game, seats) for seats in turns for game in range(4)]


def test_a_seat_that_does_not_learn_plays_with_the_newest_weights_and_leaves_no_decision() -> None:
    with counting_collector(8, agents=2, cast=lambda game: [Seat(0, True), Seat(0, False)]) as s:
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.active, [[1, 0] * 4] * 4)
        s.policies.publish(0, CountingPolicy(3))
        collected = s.collect()
        np.testing.assert_array_equal(collected.rollouts[0].actions[:, :, 0], 3)
        assert {(e.agent, e.policy, e.learned) for e in collected.episodes} == {(0, 0, True), (1, 0, False)}


class Remembering(CountingPolicy):
    state_size = 3

    def act(self, observations, states, masks=None):
        assert states.shape[1] == 3
        return super().act(observations, states, masks)


def test_each_learns_from_a_memory_as_wide_as_its_own() -> None:
    policies, options = {0: CountingPolicy(), 1: Remembering()}, {"truncate": True, "sampling": {"workers": 0}}
    with counting_collector(8, horizon=7, agents=2, policies=policies, cast=lambda game: LEARNS, **options) as s:
        s.collect()
        for policy, rollout in s.collect().rollouts.items():
            size, own = policies[policy].state_size, slice(policy, None, 2)
            np.testing.assert_array_equal(rollout.states[own], np.full((4, size), 2.0))
            np.testing.assert_array_equal(rollout.last_states[own], np.full((4, size), 4.0))
            np.testing.assert_array_equal(rollout.final_states, np.full((4, size), 5.0))
            assert rollout.states.shape == (8, size)


@pytest.mark.parametrize("sampling", MODES)
def test_who_comes_in_mid_run_may_remember_more_than_all_before(sampling) -> None:
    """It plays the second match of a game."""
    casts = Counter()

    def cast(game):
        casts[game] += 1
        return [Seat(0, True), Seat(FROZEN if casts[game] == 2 else 0, False)]

    late = Remembering(3)
    with counting_collector(8, horizon=3, agents=2, cast=cast, load=lambda policy: late, sampling=sampling) as s:
        seen = []
        for _ in range(4):
            page, _ = own(played(s))
            assert page.states.shape == page.last_states.shape == (8, 1)
            told = page.observations["obs"][:-1, :, DECISION], page.parameters[:, :, CHOICES], page.versions[:, 1]
            seen += [array.copy() for array in told]
        # Who remembers counts along, whoever it is.
        np.testing.assert_array_equal(np.concatenate(seen[0::3]), np.concatenate(seen[1::3]))
        assert np.concatenate(seen[2::3]).tolist() == [0] * 5 + [3] * 5 + [0] * 2


class Squashing(CountingPolicy):
    squash = True


def test_numbers_reach_the_game_as_each_policy_draws_them_clipped_or_squashed() -> None:
    policies, cast = {0: Squashing(), FROZEN: CountingPolicy()}, lambda game: [LEARNS[0] if game % 2 else PAST]
    sampling = {"workers": 0}
    with counting_collector(
        2, 8, policies={0: policies[0]}, cast=cast, load=policies.__getitem__, sampling=sampling, length=3
    ) as s:
        episodes = s.collect().episodes
    told = {e.policy: e.stats["true_objective"] for e in episodes}  # the last of three decisions draws 2
    assert told == {FROZEN: pytest.approx(1.0, abs=1e-3), 0: pytest.approx(np.tanh(2.0), abs=1e-3)}


def test_a_retired_policy_plays_its_matches_to_their_end() -> None:
    seats = {"now": FROZEN}
    loaded = []

    def load(policy):
        loaded.append(policy)
        return CountingPolicy(1 + policy - FROZEN)

    def cast(game):
        return [LEARNS[0], Seat(seats["now"], False)]

    with counting_collector(4, agents=2, cast=cast, load=load, sampling={"workers": 0}) as s:
        s.collect()
        assert s.in_play == {FROZEN}
        seats["now"] = FROZEN + 1
        s.policies.retired.add(FROZEN)
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.actions[:, 1, 0], [1, 2, 2, 2])
        assert s.in_play == {FROZEN + 1} and loaded == [FROZEN, FROZEN + 1]
        seats["now"] = FROZEN  # its weights have been forgotten
        s.collect()
        s.collect()
        assert loaded == [FROZEN, FROZEN + 1, FROZEN]
        s.save()  # which ends all matches
        assert s.in_play == set()


@pytest.mark.parametrize("sampling", MODES)
def test_members_of_a_group_are_neighbours_and_share_what_it_is_paid(sampling) -> None:
    options = {"agents": 4, "teams": (1, 0, 1, 0), "leaves": {"2": 2}, "sampling": sampling}
    with counting_collector(16, horizon=5, policies={0: CountingPolicy(3)}, **options) as s:
        collected = s.collect()
        page = collected.rollouts[0]
        assert page.group_size == 2
        np.testing.assert_array_equal(page.observations["obs"][0, :, AGENT], [1, 3, 0, 2] * 4)
        np.testing.assert_array_equal(page.actions[:, :, 0], 3)
        np.testing.assert_array_equal(page.group_rewards, page.active)
        np.testing.assert_array_equal(page.active[:, 3], [1, 1, 0, 0, 0])
        ends = [(e.slot, e.agent, e.reward, e.group_reward, e.left_early) for e in collected.episodes]
        left = [(game, 2, 6.0, 2.0, True) for game in range(4)]
        assert ends == left + [(game, agent, 15.0, 5.0, False) for game in range(4) for agent in (0, 1, 3)]
        assert collected.episodes[-1].number("reward") == 20.0
        assert [(m.slot, m.points) for m in collected.matches] == [(game, (1.0, 0.0)) for game in range(4)]


def test_agents_are_paid_by_their_policys_numbers_from_the_next_game_on() -> None:
    policies = {0: CountingPolicy(2), 1: CountingPolicy(5)}
    with counting_collector(8, horizon=8, agents=2, bonus=True, policies=policies, cast=lambda game: LEARNS) as s:
        s.shape_rewards(0, [10.0])
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.rewards[:, 0::2], 12.0)
        s.shape_rewards(0, [20.0])
        collected = s.collect()
        page, ends = own(collected)
        np.testing.assert_array_equal(page.rewards[:, 0], [12.0] * 2 + [22.0] * 5 + [22.0])
        assert [e.reward for e in ends] == [60.0] * 4 + [110.0] * 4
        assert [e.policy for e in collected.episodes] == [0, 1] * 8
        page = s.collect().rollouts[1]
        np.testing.assert_array_equal(page.rewards[:, 1::2], 5.0)  # the specification's number
