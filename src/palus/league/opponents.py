"""What every pair of policies has scored against each other, and whom a policy meets next: a pure function of that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palus.config.trainer import SelfPlay
from palus.files import write_text


@dataclass
class PayoffTable:
    """(policy, opponent) -> points of the policy and matches; both directions are kept. Ids as in the rollouts."""

    cells: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)

    def add(self, policy: int, opponent: int, points: float) -> None:
        """One match between two different policies. points: of the policy, in [0, 1]."""
        for pair, share in (((policy, opponent), points), ((opponent, policy), 1.0 - points)):
            total, matches = self.cells.get(pair, (0.0, 0))
            self.cells[pair] = total + share, matches + 1

    def share(self, policy: int, opponent: int) -> float | None:
        """Mean points of the policy against the opponent; None before they have met."""
        total, matches = self.cells.get((policy, opponent), (0.0, 0))
        return total / matches if matches else None

    def write(self, path: Path) -> None:
        """For readers: one row [policy, opponent, points, matches] per pair. Raises StorageError."""
        rows = [[*pair, *cell] for pair, cell in sorted(self.cells.items())]
        write_text(path, json.dumps({"columns": ["policy", "opponent", "points", "matches"], "rows": rows}) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return {"rows": [[*pair, *cell] for pair, cell in self.cells.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.cells = {(int(a), int(b)): (float(points), int(matches)) for a, b, points, matches in state["rows"]}


def ghost_odds(payoffs: PayoffTable, settings: SelfPlay, window: Sequence[int]) -> tuple[float, Sequence[int]]:
    """ML-Agents' ghosts: the probability of the policy in training itself; else one of these snapshots, all alike."""
    return settings.play_against_latest_model_ratio if window else 1.0, window
