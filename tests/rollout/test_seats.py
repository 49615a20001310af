"""Matches that never end, where who plays changes between two rollouts; and steps that nobody learns from."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing

import pytest
from counting_game import AGENT, CountingGame
from counting_policy import CountingPolicy, counting_collector

from palus.envs.matches import Matches
from palus.rollout import collector, rounds
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat

GHOST = Seat(FROZEN, False)


def taking_turns():
    """A cast in which the two sides of a slot learn in turn, against a snapshot."""
    asked = defaultdict(int)

    def cast(slot):
        asked[slot] += 1
        return (Seat(0, True), GHOST) if asked[slot] % 2 else (GHOST, Seat(0, True))

    return cast


def in_process(cast, agents=2, **options):
    game = Matches(lambda: CountingGame(agents=agents, teams=tuple(range(agents)), **options), 1)
    policy = {0: ("", CountingPolicy())}
    return closing(InProcessCollector(game, policy, cast, 4, 1, {0: 1}, lambda k: CountingPolicy()))


def in_workers(cast, agents=2, **options):
    return counting_collector(
        agents, cast=cast, load=lambda k: CountingPolicy(), sampling={"workers": 0}, agents=agents,
        teams=tuple(range(agents)), **options,
    )  # fmt: skip


COLLECTORS = pytest.mark.parametrize("make", [in_process, in_workers])


@COLLECTORS
def test_steps_of_opponents_are_counted_while_they_are_there_and_those_of_nobody_else(make) -> None:
    with make(lambda slot: (Seat(0, True), GHOST, GHOST), agents=3, length=6, leaves={0: 1, 1: 3}) as rows:
        told = []
        for _ in range(3):
            collected = rows.collect()
            told.append((collected.rollouts[0].agent_steps, collected.ghost_steps))
            rows.release()
    # Of six decisions the learner takes one, which leaves it out of the second rollout, and the others three and six.
    assert told == [(1, {"": 3 + 4}), (1, {"": 2 + 4}), (0, {"": 1 + 4})]


@COLLECTORS
def test_matches_that_nobody_learns_from_count_no_steps(make) -> None:
    with make(lambda slot: (GHOST, GHOST), length=6) as rows:
        collected = rows.collect()
        assert (collected.rollouts[0].agent_steps, collected.ghost_steps) == (0, {"": 0})


@COLLECTORS
def test_who_plays_an_endless_match_changes_between_rollouts(make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collector, rounds):
        monkeypatch.setattr(module, "ENDLESS", 8)
    with make(taking_turns(), length=18) as rows:
        learning, states, told, ghost_steps = [], [], [], []
        for _ in range(6):
            collected = rows.collect()
            rollout = collected.rollouts[0]
            agents = rollout.observations["obs"][:-1][rollout.active][:, AGENT]
            learning.append(sorted(set(agents.tolist())))
            states.append(float(rollout.states[rollout.active[0]][0, 0]))
            told += [collected.matches, [(e.agent, e.length) for e in collected.episodes]]
            ghost_steps.append(collected.ghost_steps)
            rows.release()
    assert learning == [[0], [0], [1], [1], [0, 1], [1]]
    assert states == [0, 4, 0, 4, 0, 2]  # memories begin anew with a new player, and with the match
    assert told[:8] == [[], []] * 4
    assert told[8:] == [[FinishedMatch(0, (), (Seat(0, True), GHOST))], [], [], []]
    assert ghost_steps == [{"": 4}] * 6


@COLLECTORS
def test_a_match_whose_players_stayed_has_a_verdict_whatever_became_of_the_one_before(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others come into the first one; whoever plays the second one is confirmed, as often as it is old enough."""
    for module in (collector, rounds):
        monkeypatch.setattr(module, "ENDLESS", 8)
    asked = []

    def cast(slot):
        asked.append(slot)
        return (GHOST, Seat(0, True)) if len(asked) > 1 else (Seat(0, True), GHOST)

    with make(cast, length=18) as rows:
        told = []
        for _ in range(9):
            collected = rows.collect()
            told += [(match.points, match.seats) for match in collected.matches]
            told += [(episode.agent, episode.length) for episode in collected.episodes]
            rows.release()
    assert told == [
        ((), (GHOST, Seat(0, True))),
        ((1.0, 0.0), (GHOST, Seat(0, True))), (0, 18), (1, 18),
    ]  # fmt: skip
    assert len(asked) == 6  # at decisions 0, 8, 16, 18, 28, 36


@COLLECTORS
def test_matches_that_end_by_themselves_keep_their_players(make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collector, rounds):
        monkeypatch.setattr(module, "ENDLESS", 1)
    monkeypatch.setattr("counting_game.MAX_DECISIONS", 18)
    with make(taking_turns(), length=18) as rows:
        seats = []
        for _ in range(9):
            seats += [match.seats for match in rows.collect().matches]
            rows.release()
    assert seats == [(Seat(0, True), GHOST), (GHOST, Seat(0, True))]
