"""The yardstick of a run: share of points against fixed opponents, in matches that leave the run's state alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from palus.arena.models.players import load_player
from palus.arena.models.policies import Observations
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize
from palus.config import RunFile
from palus.nn.network import Network
from palus.types import F32, Bool, GameSpec


class ActingPolicy:
    """The policy being trained, as a player of the arena."""

    def __init__(self, network: Network) -> None:
        self.network, self.name = network, "current"
        self.sha256: str | None = None
        self.state_size = network.state_size

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`."""
        sizes = list(self.network.spec.branches)
        if not len(states):
            return np.zeros((0, sum(sizes)), np.float32), states
        seen = {name: torch.from_numpy(rows) for name, rows in observations.items()}
        allowed = None if masks is None else torch.from_numpy(masks)
        logits, _, after = self.network.act(seen, torch.from_numpy(states), allowed)
        return torch.cat([b.softmax(1) for b in torch.split(logits, sizes, dim=1)], 1).numpy(), after.numpy()


class Baselines:
    """Plays the current policy against the run file's `palus.baselines` every `baseline_interval` trainer steps.

    Raises ModelError at the start when a baseline does not exist or cannot play this game.
    """

    def __init__(self, run: RunFile, env_spec: GameSpec, network: Network) -> None:
        self.settings, self.env_id = run.palus, env_spec.env_id
        self.enabled = run.palus.baseline_interval > 0 and env_spec.env_id == "SoccerTwos"
        self.player = ActingPolicy(network)
        self.opponents = [load_player(name, env_spec) for name in run.palus.baselines] if self.enabled else []
        self.latest: dict[str, float] = {}
        self._next = run.palus.baseline_interval
        self._evaluated_at = -1

    def evaluate_if_due(self, step: int) -> Mapping[str, float]:
        """Scores when an interval has passed, else nothing."""
        if not self.enabled or step < self._next:
            return {}
        self._next = step - step % self.settings.baseline_interval + self.settings.baseline_interval
        return self.evaluate(step)

    def evaluate(self, step: int) -> Mapping[str, float]:
        """Opponent -> share of points over `baseline_pairs` mirrored pairs; once per step."""
        if not self.enabled or step == self._evaluated_at:
            return {}
        self._evaluated_at = step
        for opponent in self.opponents:
            results = play_pairs(self.player, opponent, self.settings.baseline_pairs, seed=step, env_id=self.env_id)
            self.latest[opponent.name] = summarize(results).score
        return dict(self.latest)

    def state_dict(self) -> dict[str, Any]:
        """Schedule and last scores."""
        return {"latest": dict(self.latest), "next": self._next, "evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.latest, self._next = dict(state["latest"]), int(state["next"])
        self._evaluated_at = int(state["evaluated_at"])
