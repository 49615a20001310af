"""The form of what a worker says: the type, size and range of every field. Whether it fits its job is
`palus.arena.ladder.report_check`; what it means, `palus.arena.jobs.reports`.

A worker may run on anybody's machine, so nothing that does not pass here is looked at any further.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from palus.arena.referee.result import SCHEMA, Cause, Mode, Verdict

MAX_TICKS = 10**6
"""Of a match of any game: five hours of SoccerTwos. Every game has its own limit below that."""
MAX_SCORE = 10**4
MAX_EVENTS = 1000

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9 .,:;()~#+_/-]{0,100}$")]
"""Names of versions, systems and the like, which pages show."""
Isolation = Annotated[str, Field(pattern=r"^[a-z+-]{1,40}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ShortId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Instant = Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\+00:00$")]
_Text = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=0, le=10**9, strict=True)]
_Tick = Annotated[int, Field(ge=0, le=MAX_TICKS, strict=True)]
_Score = Annotated[int, Field(ge=-MAX_SCORE, le=MAX_SCORE, strict=True)]
_Measure = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
_Bytes = Annotated[str, Field(max_length=6 << 20)]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AboutForm(BaseModel):
    """What a worker says about its machine; more than this is not kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    palus: Label = ""
    platform: Label = ""
    runtimes: dict[Label, Label] = Field({}, max_length=20)
    games: list[Label] | None = Field(None, max_length=20)
    builds: dict[Label, Sha256] = Field({}, max_length=20)


class EventForm(_Form):
    """Something that happened in a match."""

    tick: _Tick
    kind: Annotated[str, Field(pattern=r"^[a-z-]{1,40}$")]
    team: Annotated[int, Field(ge=0, le=1, strict=True)]
    agent: Annotated[int, Field(ge=-1, le=100, strict=True)]


class SideForm(_Form):
    """Who played a side."""

    repo: Annotated[str, Field(max_length=200)]
    revision: Annotated[str, Field(max_length=40)]
    files: dict[Label, Sha256] = Field(max_length=20)
    sha256: Sha256 | Literal[""]
    mode: Mode
    entropy: _Measure | None


class ResultForm(_Form):
    """A `MatchResult`."""

    id: ShortId
    unit_id: ShortId
    env: Annotated[str, Field(max_length=64)]
    seed: Annotated[int, Field(ge=0, lt=2**53, strict=True)]
    leg: Annotated[int, Field(ge=1, le=2, strict=True)]
    sides: tuple[SideForm, SideForm]
    result: Verdict
    cause: Cause
    score: tuple[_Score, _Score]
    duration_ticks: _Tick
    events: tuple[EventForm, ...] = Field(max_length=MAX_EVENTS)
    started: Instant
    wall_ms: _Measure
    final_state: Sha256 | None
    schema_: Annotated[int, Field(ge=1, le=SCHEMA, strict=True, alias="schema")]


class MatchForm(_Form):
    """One match. result: a `ResultForm` as JSON. replay, actions: base64."""

    result: Annotated[str, Field(max_length=200_000)]
    replay: _Bytes
    actions: _Bytes


class BuildForm(_Form):
    """An `EnvBuild`."""

    id: Annotated[str, Field(max_length=64)]
    version: Label
    build_hash: Sha256
    params: dict[str, Any] = Field(max_length=20)


class UnitForm(_Form):
    """A `UnitReport`."""

    games: tuple[MatchForm, ...] = Field(min_length=1, max_length=2)
    env: BuildForm
    isolation: Isolation


class RefusalForm(_Form):
    """A `Refusal`."""

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    sentence: _Text
    remedy: _Text


class DetailsForm(_Form):
    """What validation measured; see `Vetting.details`."""

    bytes: _Count = 0
    isolation: Isolation = "none"
    nodes: _Count = 0
    parameters: _Count = 0
    opset: _Count = 0
    producer: _Text = ""
    entropy: _Measure = 0.0
    p99_ms: _Measure = 0.0
    computation: Sha256 = ""
    self_match: list[Verdict] = Field([], max_length=2)


class ValidationForm(_Form):
    """A `ValidationReport`: a refusal, or a trial."""

    refusal: RefusalForm | None
    details: DetailsForm
    trial: UnitForm | None
