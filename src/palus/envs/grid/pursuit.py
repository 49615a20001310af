"""Three pursuers against one evader: unequal teams, each with observations and moves of its own."""

from __future__ import annotations

import numpy as np

from palus.envs.grid.matches import BoardMatches
from palus.envs.toy import View
from palus.types import I64, AgentSpec, BehaviorSpec, Bool, GameSpec, Step

PURSUERS = 3


class Pursuit(BoardMatches):
    """The pursuers, one group, win when one of them reaches the evader's square or changes places with it; else the
    evader does after `ROUNDS` decisions. Group reward at the end: 1 for the winners, -1 for the losers.

    Pursuer: 12 floats: own square, way to the evader, to its two mates, which of the three it is (one-hot), clock; it
    stays or steps straight, one branch of 5. Evader: 9 floats: own square, ways to the pursuers, clock; it may step
    diagonally too, one branch of 9. Ways and squares are in units of the board. All tell `caught`, 1 or 0.
    The evader begins in the middle nine squares, pursuers at the edge.
    """

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        behaviors = BehaviorSpec.of_vectors("Pursuer", (12,), (5,)), BehaviorSpec.of_vectors("Evader", (9,), (9,))
        pursuers = (AgentSpec(f"pursuer {i}", 0, 0, "Pursuer") for i in range(PURSUERS))
        agents = (*pursuers, AgentSpec("evader", 1, 1, "Evader"))
        super().__init__(GameSpec("Pursuit", behaviors, agents, max_decisions=self.ROUNDS), num_matches)

    def _start(self, new: Bool) -> None:
        last = self.SIZE - 1
        for pursuer in range(PURSUERS):
            along = self._draw(new, 4 * last)
            edge, at = along // last, along % last
            places = np.stack([(at, 0 * at), (0 * at + last, at), (last - at, 0 * at + last), (0 * at, last - at)])
            self._squares[new, pursuer] = places[edge, :, np.arange(len(edge))]
        middle = self._draw(new, 9)
        self._squares[new, PURSUERS] = last // 2 + np.stack([middle // 3 - 1, middle % 3 - 1], 1)

    def _play(self, before: I64, step: Step) -> None:
        pursuers, evader = self._squares[:, :PURSUERS], self._squares[:, PURSUERS:]
        met = (pursuers == evader).all(2)
        crossed = (pursuers == before[:, PURSUERS:]).all(2) & (before[:, :PURSUERS] == evader).all(2)
        caught = (met | crossed).any(1)
        step.match_over[:] |= caught
        sign = np.where(caught, 1, -1) * step.match_over
        step.group_reward[:, :PURSUERS], step.group_reward[:, PURSUERS] = sign[:, None], -sign
        step.points[:, 0], step.points[:, 1] = caught, ~caught
        told: dict[int, dict[int, dict[str, float]]] = step.stats  # type: ignore[assignment]  # filled here
        for n in np.flatnonzero(step.match_over).tolist():
            told[n] = {agent: {"caught": float(caught[n])} for agent in range(PURSUERS + 1)}

    def _view(self, behavior: str) -> View:
        N, squares, clock = self.num_matches, self._squares, self._clock
        if behavior == "Evader":
            evader = squares[:, PURSUERS:]
            ways = self._sight(squares[:, :PURSUERS], evader).reshape(N, -1)
            seen = [self._sight(evader, 0 * evader)[:, 0], ways, clock]
            return {"obs_0": np.concatenate(seen, 1)[:, None]}
        view = np.zeros((N, PURSUERS, 12), np.float32)
        for i in range(PURSUERS):
            own, mates = squares[:, i : i + 1], [(i + k) % PURSUERS for k in range(1, PURSUERS)]
            ways = self._sight(squares[:, [PURSUERS, *mates]], own).reshape(N, -1)
            view[:, i, :8] = np.concatenate([self._sight(own, 0 * own)[:, 0], ways], 1)
            view[:, i, 8 + i], view[:, i, 11:] = 1, clock
        return {"obs_0": view}
