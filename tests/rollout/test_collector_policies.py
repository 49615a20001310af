"""Several policies in the same matches, what they see, remember and are paid, and what is refused."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch
from collecting import LATEST, collector, seats
from counting_game import CHOICES, DECISION, CountingGame
from counting_policy import CountingPolicy
from pitch import ACTIONS, Always, Book, Pitch

from palus import envs
from palus.envs.matches import Matches
from palus.errors import EnvError
from palus.nn.place import Placement
from palus.rollout.collector import InProcessCollector
from palus.rollout.players import _joined
from palus.rollout.rollout import FROZEN, Seat
from palus.types import MASKS


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
