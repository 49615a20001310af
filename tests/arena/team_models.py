"""A game of two sides that have a striker and a keeper each, and models of both, which name their cue or the wrong one.

Strikers see and do what those of `PenaltyToy` do, and so do keepers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palus.envs.arena_game import ArenaGame
from palus.envs.recording import MatchLayout
from palus.envs.toy import PenaltyToy, View, draw
from palus.nn.graph import mlp_policy
from palus.types import F32, I64, AgentSpec, GameSpec, Step

ENV = "Squads"
ROLES = ("Striker", "Keeper")
BEHAVIORS = PenaltyToy(1).spec.behaviors
RIGHT, WRONG = 50.0, -50.0


class Squads(PenaltyToy):
    """Each round all four get a cue; the side that answered more of its cues wins."""

    def __init__(self, num_matches: int) -> None:
        super().__init__(num_matches)
        agents = tuple(AgentSpec(f"{role} {side}", side, side, role) for side in (0, 1) for role in ROLES)
        super(PenaltyToy, self).__init__(GameSpec(ENV, BEHAVIORS, agents, max_decisions=self.ROUNDS), num_matches)

    def _cues(self, role: int) -> I64:
        """[N, 2]: of both sides."""
        return np.stack([draw(self._seeds, 4 * self._drawn + 2 * side + role, (3, 2)[role]) for side in (0, 1)], 1)

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        strikers, keepers = actions
        self._hits += strikers[:, :, 0] == self._cues(0)
        self._hits += (keepers == np.stack([self._cues(1), 1 - self._cues(1)], axis=2)).all(2)
        step.points[:, 0] = (1 + np.sign(self._hits[:, 0] - self._hits[:, 1])) / 2
        step.points[:, 1] = 1 - step.points[:, 0]
        self.shown = self._hits.copy()
        self._hits[step.match_over] = 0

    def _view(self, behavior: str) -> View:
        role = ROLES.index(behavior)
        cues = np.eye((3, 2)[role], dtype=np.float32)[self._cues(role)]
        share = np.broadcast_to((self._round / self.ROUNDS).astype(np.float32)[:, None, None], (*cues.shape[:2], 1))
        return {"obs_0": np.concatenate([cues, share], 2)} if role == 0 else {"obs_0": cues, "obs_1": share}


class SquadMatches(ArenaGame):
    """What there is to see are the cues answered by both sides."""

    def still(self, env: Any, n: int) -> F32:
        return np.zeros(2, np.float32)

    def frames(self, env: Any, n: int) -> F32:
        frames: F32 = env.shown[n][None].astype(np.float32)
        return frames


GAME = SquadMatches(
    ENV,
    ("toy",),
    roles=ROLES,
    max_ticks=Squads.ROUNDS,
    layout=MatchLayout(
        pitch="squads/1",
        channels=("hits", "hits"),
        units={"hits": 1.0},
        branches=2 * ((3,), (2, 2)),
        frame_hz=10,
        ticks_per_decision=1,
    ),
)


def striker(weight: float) -> bytes:
    """Says the cue that it sees with `RIGHT`, any other with `WRONG`."""
    arrays = {"branch0_weight": weight * np.eye(3, 4, dtype=np.float32), "branch0_bias": np.zeros(3, np.float32)}
    data: bytes = mlp_policy(arrays, BEHAVIORS[0]).SerializeToString()
    return data


def keeper(weight: float) -> bytes:
    """The same of its two branches: the cue, and the other."""
    arrays = {f"branch{b}_bias": np.zeros(2, np.float32) for b in (0, 1)}
    arrays["branch0_weight"] = weight * np.eye(2, 3, dtype=np.float32)
    arrays["branch1_weight"] = weight * np.eye(2, 3, dtype=np.float32)[::-1].copy()
    data: bytes = mlp_policy(arrays, BEHAVIORS[1]).SerializeToString()
    return data


def team_folder(folder: Path, strikes: float, keeps: float) -> Path:
    """A bundle of both."""
    folder.mkdir()
    (folder / "Striker.onnx").write_bytes(striker(strikes))
    (folder / "Keeper.onnx").write_bytes(keeper(keeps))
    return folder
