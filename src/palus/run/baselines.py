"""The yardstick of a run: share of points against fixed opponents, in matches that leave the run's state alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from palus.arena.models.players import load_player, team_of
from palus.arena.models.policies import Observations
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize
from palus.config import RunFile
from palus.nn.network import Network
from palus.run.misfits import baselines_of
from palus.types import F32, Bool, GameSpec

MOST_TIME = 0.05
"""Share of a run's time that its matches against fixed opponents may take."""


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
        return torch.cat(
            [b.softmax(1) for b in torch.split(logits, sizes, dim=1)], 1
        ).cpu().numpy(), after.cpu().numpy()


class Baselines:
    """Plays the policies in training against fixed opponents every `palus.baseline_interval` trainer steps.

    networks: who plays each behavior of the game.
    Raises ModelError at the start when a baseline does not exist or cannot play this game.
    """

    def __init__(self, run: RunFile, env_spec: GameSpec, networks: Mapping[str, Network]) -> None:
        self.settings, self.env_id = run.palus, env_spec.env_id
        self.opponents = [load_player(name, env_spec) for name in baselines_of(run)]
        self.send(networks)
        self.latest: dict[str, float] = {}
        self._next = run.palus.baseline_interval
        self._evaluated_at = -1
        self._spent = self._last = 0.0  # seconds of all evaluations, and of the last one

    def send(self, networks: Mapping[str, Network]) -> None:
        """Who plays from now on; as in the constructor."""
        self.player = team_of({kind: ActingPolicy(network) for kind, network in networks.items()}, "current", None)

    def evaluate_if_due(self, step: int, seconds: float) -> Mapping[str, PairingSummary]:
        """Results when an interval has passed, else nothing. seconds: of the run so far.

        One that would lift all of them above `MOST_TIME` of the run waits. The first is played whatever it takes.
        """
        if not self.opponents or step < self._next or self._spent + self._last > MOST_TIME * seconds:
            return {}
        self._next = step - step % self.settings.baseline_interval + self.settings.baseline_interval
        return self.evaluate(step)

    def evaluate(self, step: int) -> Mapping[str, PairingSummary]:
        """Opponent -> result over `baseline_pairs` mirrored pairs; once per step."""
        if step == self._evaluated_at:
            return {}
        self._evaluated_at, begun, pairs = step, time.perf_counter(), self.settings.baseline_pairs
        found = {
            opponent.name: summarize(play_pairs(self.player, opponent, pairs, seed=step, env_id=self.env_id))
            for opponent in self.opponents
        }
        self.latest |= {name: result.score for name, result in found.items()}
        self._last = time.perf_counter() - begun if self.opponents else 0.0
        self._spent += self._last
        return found

    def state_dict(self) -> dict[str, Any]:
        """Schedule and last scores."""
        schedule = {"next": self._next, "evaluated_at": self._evaluated_at, "spent": self._spent, "last": self._last}
        return {"latest": dict(self.latest), **schedule}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.latest, self._next = dict(state["latest"]), int(state["next"])
        self._evaluated_at = int(state["evaluated_at"])
        self._spent, self._last = float(state["spent"]), float(state["last"])
