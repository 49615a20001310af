"""What a collector that is saved goes on with, and what its draws depend on."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from collecting import Linear, apart, arrays_of, collector, counting_rows, duel_collector, play, seats, uniform
from counting_game import DECISION
from pitch import Book, Pitch

from palus import envs
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, Seat


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
