"""What a run says of itself while it trains: `run_logs/progress.jsonl`, one JSON object per line.

    {"kind": "run", "run_id", "game", "env_options", "behaviors", "learners", "max_steps", "max_minutes", "started"}
    {"kind": "summary", "learner", "policy", "behavior", "step", "seconds", "values": {tag: number}}
    {"kind": "end", "step", "seconds", "finished"}

The first opens every session. max_steps: by behavior, trainer steps. learners: [label, policy id, behavior] of each.
started: Unix time. seconds: of training, those of earlier sessions included. Tags are TensorBoard's; null is a number
that was not finite. Of a line from elsewhere `understood` says whether it is one of these.
Leaf module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from palus.files import GrowingFile

PROGRESS = Path("run_logs") / "progress.jsonl"
"""Where it stands in a run's folder."""

Count = Annotated[int, Field(ge=0, le=1 << 53)]
"""What JavaScript holds exactly."""


class ToldLine(BaseModel):
    """Base of what lines say; whatever else is in one is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SessionLine(ToldLine):
    """The first of a session."""

    kind: Literal["run"]
    game: str | None = None
    env_options: dict[str, Any] = Field(default_factory=dict)
    learners: list[tuple[str, Count, str]] = Field(default_factory=list)
    max_steps: dict[str, Count] = Field(default_factory=dict)
    max_minutes: float = 0.0
    started: float | None = None


class SummaryLine(ToldLine):
    """One learner's figures."""

    kind: Literal["summary"]
    learner: str
    policy: Count
    behavior: str
    step: Count
    seconds: float | None = None
    values: dict[str, float | None]


class EndLine(ToldLine):
    """The last of a session."""

    kind: Literal["end"]
    finished: bool = False


ProgressLine = SessionLine | SummaryLine | EndLine
_LINES: TypeAdapter[ProgressLine] = TypeAdapter(Annotated[ProgressLine, Field(discriminator="kind")])


def understood(line: Mapping[str, Any]) -> ProgressLine | None:
    """What a line says; None where it is none of progress, whoever wrote it."""
    try:
        return _LINES.validate_python(line)
    except ValidationError:
        return None


class ProgressWriter(GrowingFile):
    """Appends lines."""

    def cut_back(self, steps: Mapping[int, int]) -> None:
        """Forget what came after a checkpoint. steps: trainer steps of each learner at it, by policy id."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except OSError:
            lines = []
        self.length = sum(map(len, takewhile(lambda line: _is_before(line, steps), lines)))

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line. Raises StorageError."""
        self.grow(json.dumps(line, allow_nan=False, default=str).encode() + b"\n")


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
        return void, [found for line in lines if (found := decoded_line(line)) is not None]


def _is_before(line: bytes, steps: Mapping[int, int]) -> bool:
    """Whether a line was written before the checkpoint of these steps; a damaged one was not."""
    said = decoded_line(line) if line.endswith(b"\n") else None
    match said:
        case {"kind": "run"}:
            return True
        case {"kind": "summary", "policy": int(policy), "step": int(step)}:
            return step <= steps.get(policy, -1)
        case {"kind": "end", "step": int(step)}:  # a session ends with its checkpoint, or after one
            return step < min(steps.values())
    return False


def decoded_line(line: bytes) -> dict[str, Any] | None:
    """The object in a line; None where there is none, of finite numbers: a copy may be damaged. Half of a character, as
    JSON may have it, is no text, and could be sent to no page; it becomes a question mark."""
    try:
        text = line.decode()
        found = json.loads(text, parse_float=_number, parse_constant=_number)
        if "\\u" in text:
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(text: str) -> float:
    """Raises ValueError for what no line is written with."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers as JSON can hold them."""
    return {tag: float(value) if math.isfinite(value) else None for tag, value in values.items()}
