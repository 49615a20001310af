"""The rules: three ticks a decision, six decisions; who has the rope on its side then has won."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palus.envs.toy import Toy, View
from palus.types import F32, I64, AgentSpec, BehaviorSpec, GameSpec, Step

TICKS = 3
PULLS = 300


class Tug(Toy):
    """Agents: puller and puller, shouter and shouter. Pullers choose centimetres per tick; a shouter that chooses
    (1, 2) lets the other team slip by one.
    """

    ROUNDS = 6
    _arrays = (*Toy._arrays, "rope_cm")

    def __init__(self, num_matches: int, *, record: bool = False) -> None:
        pullers = BehaviorSpec.of_vectors("Puller", (2,), (PULLS,))
        shouters = BehaviorSpec.of_vectors("Shouter", (1,), (2, 3))
        agents = tuple(AgentSpec(b.name, team, team, b.name) for b in (pullers, shouters) for team in (0, 1))
        super().__init__(GameSpec("Tug", (pullers, shouters), agents, max_decisions=self.ROUNDS), num_matches)
        self.rope_cm: I64 = np.zeros(num_matches, np.int64)
        self.record = record
        self.trace_cm = np.zeros((num_matches, TICKS), np.int64)
        self.slips: list[list[int]] = [[] for _ in range(num_matches)]

    def _view(self, behavior: str) -> View:
        rope = np.stack([self.rope_cm, -self.rope_cm], axis=1)[..., None].astype(np.float32)
        place = np.broadcast_to((self._round / self.ROUNDS)[:, None, None], rope.shape).astype(np.float32)
        return {"obs_0": np.concatenate([rope, place], axis=2) if behavior == "Puller" else rope}

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        pulls, shouts = actions[0][:, :, 0].astype(np.int64), (actions[1] == (1, 2)).all(axis=2)
        shift = pulls[:, 0] - pulls[:, 1] + shouts[:, 0] - shouts[:, 1].astype(np.int64)
        if self.record:
            self.trace_cm[:] = self.rope_cm[:, None] + shift[:, None] * np.arange(1, TICKS + 1)
            self.slips = [[2 + team for team in np.flatnonzero(own).tolist()] for own in shouts]
        self.rope_cm += TICKS * shift
        for n in np.flatnonzero(step.match_over).tolist():
            points = float((np.sign(self.rope_cm[n]) + 1) / 2)
            step.points[n] = (points, 1.0 - points)
            step.stats[n] = {0: {"cm": float(self.rope_cm[n])}}  # type: ignore[index]
            self.rope_cm[n] = 0
