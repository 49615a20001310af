"""What a worker sends back about a job, and its form in JSON. Bytes travel as base64."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from palus.arena.jobs.builds import EnvBuild
from palus.arena.jobs.report_form import MatchForm, ResultForm, UnitForm, ValidationForm
from palus.arena.locked.unit import MatchReport
from palus.arena.models.refusal import Refusal
from palus.arena.referee.result import SCHEMA, MatchResult, Side
from palus.envs.recording import RecordedEvent
from palus.errors import ArenaError, FalseReportError

MAX_BLOB_BYTES = 4 << 20
"""Largest replay or action log that is accepted; a full SoccerTwos match has about 80 kB."""


@dataclass(frozen=True)
class UnitReport:
    """A unit of play, its matches in the order of the job's legs. isolation: what held the models in."""

    matches: tuple[MatchReport, ...]
    env: EnvBuild
    isolation: str


@dataclass(frozen=True)
class ValidationReport:
    """The verdict on a model file. trial: the pair against the random player; None when the file was refused before."""

    refusal: Refusal | None
    details: dict[str, Any]
    trial: UnitReport | None


Report = UnitReport | ValidationReport


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
            return _unit(UnitForm.model_validate(body))
        form = ValidationForm.model_validate(body)
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


def _unit(form: UnitForm) -> UnitReport:
    return UnitReport(tuple(map(_match, form.games)), EnvBuild(**form.env.model_dump()), form.isolation)


def _match(form: MatchForm) -> MatchReport:
    _check_schema(form.result)
    result = ResultForm.model_validate_json(form.result)
    fields = result.model_dump(by_alias=True) | {
        "sides": tuple(Side.from_json(side.model_dump()) for side in result.sides),
        "events": tuple(RecordedEvent(**event.model_dump()) for event in result.events),
    }
    return MatchReport(MatchResult(**fields), _bytes(form.replay), _bytes(form.actions))


def _check_schema(result: str) -> None:
    """Who has an older or a newer palus has done nothing wrong."""
    try:
        schema = json.loads(result)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FalseReportError(f"not a match record ({type(error).__name__}): {result[:80]!r}") from error
    if isinstance(schema, int) and schema != SCHEMA and 0 < schema < SCHEMA + 100:
        raise ArenaError(f"match record of schema {schema}; this arena takes {SCHEMA}: both need the same palus")


def _bytes(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise FalseReportError(f"a replay or action log is not base64 ({error})") from error
    if len(data) > MAX_BLOB_BYTES:
        raise FalseReportError(f"a replay or action log of {len(data)} bytes; at most {MAX_BLOB_BYTES} are accepted")
    return data
