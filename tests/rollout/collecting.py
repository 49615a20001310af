"""Collectors over small games, and what they bring."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from counting_game import CountingGame
from counting_policy import CountingPolicy
from pitch import ACTIONS, Always, Book

from palus import envs
from palus.envs.matches import Matches
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, Seat

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


def counting_rows(policy=None):
    game = Matches(lambda: CountingGame(length=3), 2)
    policy = policy or CountingPolicy(even=True)
    return InProcessCollector(game, {0: ("", policy)}, lambda slot: [Seat(0, True)], 5, 1, {0: 1}, Book())


def apart(ours, theirs):
    """No two decisions, [80, 8, 2] each, were drawn with the same numbers."""
    alike = (ours.reshape(80, 1, 16) == theirs.reshape(1, 80, 16)).mean(2)  # of any two decisions
    assert alike.max() < 0.8
    assert (ours[1:] == ours[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)
    assert (theirs[1:] == theirs[:-1]).mean() == pytest.approx(1 / ACTIONS, abs=0.05)
