"""Three foragers, each for itself: a game of three teams in which who falls behind is out while the others play on."""

from __future__ import annotations

import numpy as np

from palus.envs.grid.matches import BoardMatches
from palus.envs.toy import View
from palus.types import I64, AgentSpec, BehaviorSpec, Bool, GameSpec, Step

FORAGERS = 3
BEHIND = 3
"""Berries behind the best at which a forager is out."""


class Foraging(BoardMatches):
    """One berry lies on the board. Who alone reaches it has it; when several do it is spoilt; then the next one grows.

    The verdict compares berries when the match ends: after `ROUNDS` decisions, or when one forager is left. A decision
    pays an agent the berries that it got, less the mean of what the other two got.
    13 floats: own square, way to the berry, ways to the next forager and the one after it (zeros for who is out), the
    lead over each of them in units of `BEHIND`, whether each is still in, clock; ways and squares are in units of the
    board. One branch of 5: stay, or step straight. Agents tell `berries`.
    """

    SIZE = 5
    _arrays = (*BoardMatches._arrays, "_berry", "_berries")

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        behavior = BehaviorSpec.of_vectors("Forager", (13,), (5,))
        agents = tuple(AgentSpec(f"forager {i}", i, i, "Forager") for i in range(FORAGERS))
        super().__init__(GameSpec("Foraging", (behavior,), agents, max_decisions=self.ROUNDS), num_matches)
        self._berry: I64 = np.zeros((num_matches, 2), np.int64)
        self._berries: I64 = np.zeros((num_matches, FORAGERS), np.int64)

    def _start(self, new: Bool) -> None:
        self._berries[new] = 0
        for forager in range(FORAGERS):
            self._squares[new, forager] = self._square(new)
        self._berry[new] = self._square(new)

    def _square(self, slots: Bool) -> I64:
        return np.stack([self._draw(slots, self.SIZE), self._draw(slots, self.SIZE)], 1)

    def _play(self, before: I64, step: Step) -> None:
        there = (self._squares == self._berry[:, None]).all(2) & self.active
        got = there & (there.sum(1) == 1)[:, None]
        self._berries += got
        self._berry[there.any(1)] = self._square(there.any(1))
        others = (got.sum(1, keepdims=True) - got) / (FORAGERS - 1)
        step.reward[:] = (got - others) * self.active
        out = self.active & (self._berries.max(1, keepdims=True) - self._berries >= BEHIND)
        step.match_over[:] |= (self.active & ~out).sum(1) == 1
        step.terminated[:] = out
        own, rival = self._berries[:, :, None], self._berries[:, None, :]
        step.points[:] = ((own > rival) + 0.5 * (own == rival)).sum(2) - 0.5
        step.points[:] /= FORAGERS - 1
        ended = self.active & (out | step.match_over[:, None])
        told: dict[int, dict[int, dict[str, float]]] = step.stats  # type: ignore[assignment]  # filled here
        for n, agent in np.argwhere(ended).tolist():
            told.setdefault(n, {})[agent] = {"berries": float(self._berries[n, agent])}

    def _view(self, behavior: str) -> View:
        N, squares = self.num_matches, self._squares
        view = np.zeros((N, FORAGERS, 13), np.float32)
        for i in range(FORAGERS):
            own, rivals = squares[:, i], [(i + k) % FORAGERS for k in range(1, FORAGERS)]
            view[:, i, :2], view[:, i, 2:4] = self._sight(own, 0 * own), self._sight(self._berry, own)
            present = self.active[:, rivals]
            view[:, i, 4:8] = (self._sight(squares[:, rivals], own[:, None]) * present[:, :, None]).reshape(N, -1)
            view[:, i, 8:10] = (self._berries[:, i : i + 1] - self._berries[:, rivals]) / BEHIND
            view[:, i, 10:12], view[:, i, 12:] = present, self._clock
        return {"obs_0": view}
