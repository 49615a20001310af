"""What a worker sends back about a job, its form in JSON, and the type, size and range of every field of that.

A worker may run on anybody's machine, so nothing that does not pass here is looked at any further. Whether it fits its
job is `palus.arena.ladder.report_check`. Bytes travel as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from palus.arena.locked.unit import MatchReport, UnitReport
from palus.arena.models.forms import Count, Isolation, Label, Measure, Sha256, Text
from palus.arena.models.refusal import Refusal
from palus.arena.referee.builds import EnvBuild
from palus.arena.referee.result import SCHEMA, MatchResult, Verdict
from palus.errors import ArenaError, FalseReportError, ReplayError

MAX_BLOB_BYTES = 4 << 20
"""Largest replay or action log that is accepted; a full SoccerTwos match has about 80 kB."""

_Bytes = Annotated[str, Field(max_length=6 << 20)]
_RESULT = TypeAdapter(MatchResult)


@dataclass(frozen=True)
class ValidationReport:
    """The verdict on a model file. trial: the pair against the random player; None when the file was refused before."""

    refusal: Refusal | None
    details: dict[str, Any]
    trial: UnitReport | None


Report = UnitReport | ValidationReport


class AboutForm(BaseModel):
    """What a worker says about its machine; more than this is not kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    palus: Label = ""
    platform: Label = ""
    runtimes: dict[Label, Label] = Field({}, max_length=20)
    games: list[Label] | None = Field(None, max_length=20)
    builds: dict[Label, Sha256] = Field({}, max_length=20)


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _MatchForm(_Form):
    """A `MatchReport`. result: as `MatchResult.to_json` writes it. replay, actions: base64."""

    result: Annotated[str, Field(max_length=200_000)]
    replay: _Bytes
    actions: _Bytes


class _UnitForm(_Form):
    """A `UnitReport`."""

    games: tuple[_MatchForm, ...] = Field(min_length=1, max_length=2)
    env: EnvBuild
    isolation: Isolation


class _RefusalForm(_Form):
    """A `Refusal`."""

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    sentence: Text
    remedy: Text


class _DetailsForm(_Form):
    """What validation measured; see `Vetting.details`."""

    bytes: Count = 0
    isolation: Isolation = "none"
    nodes: Count = 0
    parameters: Count = 0
    opset: Count = 0
    producer: Text = ""
    entropy: Measure = 0.0
    p99_ms: Measure = 0.0
    computation: Sha256 = ""
    self_match: list[Verdict] = Field([], max_length=2)


class _ValidationForm(_Form):
    """A `ValidationReport`: a refusal, or a trial."""

    refusal: _RefusalForm | None
    details: _DetailsForm
    trial: _UnitForm | None


def to_json(report: Report) -> dict[str, Any]:
    """An object for `from_json`."""
    if isinstance(report, UnitReport):
        return _unit_to_json(report)
    return {
        "refusal": asdict(report.refusal) if report.refusal else None,
        "details": report.details,
        "trial": _unit_to_json(report.trial) if report.trial else None,
    }


def from_json(body: dict[str, Any]) -> Report:
    """The report in a worker's message. Raises FalseReportError for anything else, ArenaError for a newer palus's."""
    try:
        if "games" in body:
            return _unit(_UnitForm.model_validate(body))
        form = _ValidationForm.model_validate(body)
        if (form.refusal is None) == (form.trial is None):
            raise FalseReportError("a validation ends with a refusal or with a trial; this one has both or none")
        return ValidationReport(
            refusal=Refusal(**form.refusal.model_dump()) if form.refusal else None,
            details=form.details.model_dump(exclude_unset=True),
            trial=_unit(form.trial) if form.trial else None,
        )
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise FalseReportError(f"not a report of a worker: {where or 'it'}: {fault['msg']}") from error


def _unit_to_json(report: UnitReport) -> dict[str, Any]:
    return {
        "games": [
            {
                "result": match.result.to_json(),
                "replay": base64.b64encode(match.replay).decode(),
                "actions": base64.b64encode(match.actions).decode(),
            }
            for match in report.matches
        ],
        "env": asdict(report.env),
        "isolation": report.isolation,
    }


def _unit(form: _UnitForm) -> UnitReport:
    matches = (MatchReport(_result(game.result), _bytes(game.replay), _bytes(game.actions)) for game in form.games)
    return UnitReport(tuple(matches), form.env, form.isolation)


def _result(text: str) -> MatchResult:
    """Who has an older or a newer palus has done nothing wrong."""
    try:
        schema = json.loads(text)["schema"]
        if isinstance(schema, int) and schema != SCHEMA and 0 < schema < SCHEMA + 100:
            raise ArenaError(f"match record of schema {schema}; this arena takes {SCHEMA}: both need the same palus")
        result = MatchResult.from_json(text)
    except (ValueError, KeyError, TypeError, RecursionError, ReplayError) as error:
        raise FalseReportError(f"not a match record ({type(error).__name__}): {text[:80]!r}") from error
    if result.to_json() != text:
        raise FalseReportError(f"not a match record as palus writes it: {text[:80]!r}")
    return _RESULT.validate_python(asdict(result))


def _bytes(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise FalseReportError(f"a replay or action log is not base64 ({error})") from error
    if len(data) > MAX_BLOB_BYTES:
        raise FalseReportError(f"a replay or action log of {len(data)} bytes; at most {MAX_BLOB_BYTES} are accepted")
    return data
