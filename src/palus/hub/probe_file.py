"""probe.json: what a best response took from a model, and the picture of how it learned to (`palus probe`).

Whoever publishes a model publishes the file, so readers believe neither its form nor its numbers: the form is checked
here, and the numbers count as the publisher's own, for the model alone whose hash they name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from palus.errors import HubError
from palus.files import write_bytes, write_text
from palus.hub.training_curve import Curve, draw_curves

PROBE, PROBE_PICTURE = "probe.json", "probe.svg"
MAX_PROBE_BYTES = 32 << 10
SCHEMA: Literal[1] = 1

_Count = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,64}$", strict=True)]


@dataclass(frozen=True)
class ProbePoint:
    """A checkpoint of the response. steps: trainer steps; share: of the points that it took in `pairs` mirrored pairs;
    low, high: of the 95 % interval."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    steps: _Count
    share: _Share
    low: _Share
    high: _Share
    pairs: _Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.share <= self.high:
            raise ValueError("low, share and high are out of order")
        return self

    @property
    def text(self) -> str:
        """The share with its interval, for people."""
        return f"{100 * self.share:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f} %)"


@dataclass(frozen=True)
class Probe:
    """What a best response took from a frozen policy.

    model_sha256: of the policy (`palus.files.digest_of`), "" for a player of the house. behavior: which the response
    played; symmetric: it played all of a side, on both sides. trainer_type, steps, wall_seconds, seed: of its training.
    best: the checkpoint that did best on the matches of the curve, as it then did in others, which chose nothing.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    env_id: _Name
    behavior: _Name
    symmetric: Annotated[bool, Field(strict=True)]
    model_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    trainer_type: _Name
    steps: _Count
    wall_seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
    seed: _Count
    best: ProbePoint
    curve: Annotated[tuple[ProbePoint, ...], Field(min_length=1, max_length=64)]
    palus_version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+-]{0,32}$")]
    schema: Literal[1] = field(default=SCHEMA)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        steps = [point.steps for point in self.curve]
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError("the steps of the curve do not rise")
        return self

    @property
    def bound(self) -> float:
        """What can be won from the policy at least, in points between -1 and 1, by the lower end of the interval; in a
        symmetric zero-sum game of its exploitability, which is never below 0."""
        low = 2.0 * self.best.low - 1.0
        return max(0.0, low) if self.symmetric else low

    @property
    def budget(self) -> str:
        """What the response was given."""
        return f"{self.steps:,} steps of {self.trainer_type}, {self.wall_seconds / 60:.1f} minutes"


_PROBE = TypeAdapter(Probe)


def parse_probe(data: bytes) -> Probe:
    """The content of a probe.json, whoever wrote it. Raises HubError with what is wrong."""
    if len(data) > MAX_PROBE_BYTES:
        raise HubError(f"{PROBE}: {len(data):,} bytes, at most {MAX_PROBE_BYTES:,} are read; probe again")
    try:
        return _PROBE.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise HubError(f"{PROBE}: {where:.80}: {first['msg']:.200}; probe again, or delete it") from error


def read_probe(path: Path, model_sha256: str) -> Probe | None:
    """The probe in a file; None where there is none, or it is about another model. Raises HubError for damage."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROBE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HubError(f"{path}: cannot be read ({error.strerror})") from error
    probe = parse_probe(data)
    return probe if probe.model_sha256 == model_sha256 else None


def write_probe(folder: Path, probe: Probe) -> None:
    """probe.json and its picture. Raises StorageError."""
    write_text(folder / PROBE, _PROBE.dump_json(probe, indent=2).decode() + "\n")
    write_bytes(folder / PROBE_PICTURE, draw_probe(probe))


def draw_probe(probe: Probe) -> bytes:
    """The curve of the response with its intervals, as SVG; the same probe gives the same bytes."""
    points = tuple((point.steps, point.share) for point in probe.curve)
    band = tuple((point.low, point.high) for point in probe.curve)
    return draw_curves([Curve("share of points of the best response", points, band)])
