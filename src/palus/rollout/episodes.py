"""The running episodes of all agents, for every collector: how long they last, what they earn, what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palus.rollout.rollout import Episode, Seat
from palus.types import F32, I64, Bool, GameSpec

Matches = slice | I64


class Episodes:
    """N matches of P agents. length, reward, group_reward: [N, P] float64 of the running episodes, so far.

    partial: [N, P] policies have not played it from its beginning; such an episode is not told of.
    """

    def __init__(self, spec: GameSpec, num_matches: int, first: int = 0) -> None:
        """first: the number of the first match in the run."""
        self._first = first
        shape = num_matches, spec.num_agents
        self.length, self.reward, self.group_reward = np.zeros((3, *shape))
        self.partial: Bool = np.zeros(shape, np.bool_)
        groups = np.array([agent.group for agent in spec.agents])
        self._same_group: Bool = groups[:, None] == groups
        self._numbers = np.arange(num_matches)

    def forget(self, matches: Matches, partial: bool = False) -> None:
        """Episodes of all agents begin, or go on after a beginning that does not count."""
        for sums in (self.length, self.reward, self.group_reward):
            sums[matches] = 0.0
        self.partial[matches] = partial

    def add(
        self,
        matches: Matches,
        active: Bool,
        reward: F32,
        group_reward: F32,
        ended: Bool,
        seats: Sequence[Sequence[Seat]],
        stats: Mapping[int, Mapping[int, Mapping[str, float]]],
        decision: int = 0,
    ) -> list[Episode]:
        """Add a decision of M matches, [M, P] each; returns the episodes that ended with it, by match and agent.

        active: who decided. seats: of all N matches. stats: match -> agent -> what the game tells. decision: its number
        in the rollout.
        """
        self.length[matches] += active
        self.reward[matches] += reward
        self.group_reward[matches] += group_reward
        rows, agents = np.nonzero(ended)
        if not len(rows):
            return []
        others: Bool = (active & ~ended)[rows] & self._same_group[agents]
        where = self._numbers[matches][rows], agents
        lasted, told_of = self.length[where].astype(np.int64), ~self.partial[where]
        facts = (*where, lasted, self.reward[where], self.group_reward[where], np.any(others, 1))
        episodes = []
        for n, p, length, paid, shared, early in zip(*(own[told_of].tolist() for own in facts), strict=True):
            policy, learned = seats[n][p]
            told = stats[n].get(p, {}) if n in stats else {}
            slot = self._first + n
            episodes.append(Episode(slot, p, policy, learned, length, paid, shared, early, told, decision))
        for sums in (self.length, self.reward, self.group_reward):
            sums[where] = 0.0
        self.partial[where] = False
        return episodes
