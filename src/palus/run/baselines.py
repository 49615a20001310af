"""The yardstick of a run: share of points against fixed opponents, in matches that leave the run's state alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palus.config import RunFile
from palus.export.onnx import build_onnx
from palus.learn.learner import Actor
from palus.types import BehaviorSpec


class Baselines:
    """Plays the current policy against the run file's `palus.baselines` every `baseline_interval` trainer steps."""

    def __init__(self, run: RunFile, env_id: str, spec: BehaviorSpec, actor: Actor) -> None:
        self.settings, self.spec, self.actor = run.palus, spec, actor
        self.enabled = run.palus.baseline_interval > 0 and env_id == "SoccerTwos"
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
        from palus.arena.match import play_pairs, summarize
        from palus.arena.players import load_player, player_from_model

        self._evaluated_at = step
        current = player_from_model("current", build_onnx(self.actor.arrays(), self.spec), self.spec)
        for name in self.settings.baselines:
            results = play_pairs(current, load_player(name), self.settings.baseline_pairs, seed=step)
            self.latest[name] = summarize(results).score
        return dict(self.latest)

    def state_dict(self) -> dict[str, Any]:
        """Schedule and last scores."""
        return {"latest": dict(self.latest), "next": self._next, "evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.latest, self._next = dict(state["latest"]), int(state["next"])
        self._evaluated_at = int(state["evaluated_at"])
