"""Matches that never end: who plays there changes between two rollouts; what is told of them."""

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


def in_process(length):
    game = Matches(lambda: CountingGame(agents=2, length=length, teams=(0, 1)), 1)
    policy = {0: ("", CountingPolicy())}
    return closing(InProcessCollector(game, policy, taking_turns(), 4, 1, {0: 1}, lambda k: CountingPolicy()))


def in_workers(length):
    return counting_collector(
        2, cast=taking_turns(), load=lambda k: CountingPolicy(), sampling={"workers": 0}, agents=2, length=length,
        teams=(0, 1),
    )  # fmt: skip


@pytest.mark.parametrize("make", [in_process, in_workers])
def test_who_plays_an_endless_match_changes_between_rollouts(make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collector, rounds):
        monkeypatch.setattr(module, "ENDLESS", 8)
    with make(length=18) as rows:
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
