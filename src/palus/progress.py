"""What a run says of itself while it trains: `run_logs/progress.jsonl`, one JSON object per line.

    {"kind": "run", "run_id", "game", "env_options", "behaviors", "learners", "max_steps", "max_minutes", "started"}
    {"kind": "summary", "learner", "policy", "behavior", "step", "seconds", "values": {tag: number}}
    {"kind": "end", "step", "seconds", "finished"}

The first opens every session. max_steps: by behavior, trainer steps. learners: [label, policy id, behavior] of each.
started: Unix time. seconds: of training, those of earlier sessions included. Tags are TensorBoard's; null is a number
that was not finite.
Leaf module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from palus.errors import StorageError

PROGRESS = Path("run_logs") / "progress.jsonl"
"""Where it stands in a run's folder."""


class ProgressWriter:
    """Appends lines. length: bytes of the file that count; whatever lies behind them goes with the next line."""

    def __init__(self, path: Path) -> None:
        self.path, self.length = path, 0

    def cut_back(self, steps: Mapping[int, int]) -> None:
        """Forget what came after a checkpoint. steps: trainer steps of each learner at it, by policy id."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except OSError:
            lines = []
        self.length = sum(map(len, takewhile(lambda line: _is_before(line, steps), lines)))

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line. Raises StorageError; half a line that a full disk let through is overwritten by the next."""
        data = json.dumps(line, allow_nan=False, default=str).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(min(self.length, file.seek(0, 2)))
                file.write(data)
                self.length = file.seek(0, 2)
        except OSError as error:
            raise StorageError(
                f"{self.path}: could not be written ({error.strerror or error}); free space there"
            ) from error


class ProgressReader:
    """Follows a file that grows, and that a resumed run cuts back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at, self._last = 0, b""

    def news(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether all that was read before is void, and the whole lines since then; nothing while there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at - len(self._last))
                void = file.read(len(self._last)) != self._last
                if void:
                    self._at = file.seek(0)
                data = file.read()
        except OSError:
            return False, []
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        self._at += sum(map(len, lines))
        self._last = lines[-1] if lines else b"" if void else self._last
        return void, [found for line in lines if (found := _parse(line)) is not None]


def _is_before(line: bytes, steps: Mapping[int, int]) -> bool:
    """Whether a line was written before the checkpoint of these steps; a damaged one was not."""
    said = _parse(line) if line.endswith(b"\n") else None
    match said:
        case {"kind": "run"}:
            return True
        case {"kind": "summary", "policy": int(policy), "step": int(step)}:
            return step <= steps.get(policy, -1)
        case {"kind": "end", "step": int(step)}:  # a session ends with its checkpoint, or after one
            return step < min(steps.values())
    return False


def _parse(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where it is no object: a copy may be damaged."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers as JSON can hold them."""
    return {tag: float(value) if math.isfinite(value) else None for tag, value in values.items()}
