"""A learner in a run, and what is counted for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from palus.config import Behavior
from palus.export.policy_file import PolicyFile
from palus.learn.learner import Learner
from palus.run.record import PolicyRecord
from palus.types import GameSpec


@dataclass
class Trainee:
    """A learner in a run. name: of its behavior; kind: the same in the game, "" where the game has one without a name.

    label: how lines call it. step: trainer steps so far; best: the best score of its recent episodes.
    """

    policy: int
    name: str
    kind: str
    label: str
    behavior: Behavior
    learner: Learner
    folder: Path
    record: PolicyRecord
    step: int = 0
    best: float = float("-inf")

    @property
    def metric(self) -> str | None:
        """The figure that picks the best policy; None where the trainer keeps none."""
        return getattr(self.behavior, "best_metric", None)

    @property
    def score(self) -> float | None:
        """Mean of the metric over the last episodes; None without one, or before there are any."""
        return self.record.mean(self.metric) if self.metric else None

    @property
    def unit(self) -> str:
        """What its steps are called."""
        return "frames" if self.learner.counts_frames else "steps"

    def policy_file(self, game: GameSpec, snapshot: int | None = None) -> PolicyFile:
        """The policy as it is now. snapshot: its id in the league."""
        return PolicyFile.of(self.learner.network, game, self.name, self.step, self.score, snapshot)
