"""What a worker sends back about a job, and its form in JSON: the type, size and range of every field.

A worker may run on anybody's machine, so nothing that does not pass here is looked at any further. Whether it fits its
job is `palus.arena.ladder.report_check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from palus.arena.locked.unit import UnitReport
from palus.arena.models.forms import Count, Isolation, Label, Measure, Sha256, Text
from palus.arena.models.refusal import Refusal
from palus.arena.referee.result import Verdict
from palus.errors import FalseReportError


class _Details(BaseModel):
    model_config = ConfigDict(extra="forbid")

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


def _details(told: object) -> dict[str, Any]:
    return _Details.model_validate(told).model_dump(exclude_unset=True)


@dataclass(frozen=True)
class ValidationReport:
    """The verdict on a model file. details: what was measured, see `Vetting.details`. trial: the pair against the
    random player; None when the file was refused before."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    refusal: Refusal | None
    details: Annotated[dict[str, Any], BeforeValidator(_details)]
    trial: UnitReport | None


Report = UnitReport | ValidationReport

_UNIT, _VALIDATION = TypeAdapter(UnitReport), TypeAdapter(ValidationReport)


class AboutForm(BaseModel):
    """What a worker says about its machine; more than this is not kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    palus: Label = ""
    platform: Label = ""
    runtimes: dict[Label, Label] = Field({}, max_length=20)
    games: list[Label] | None = Field(None, max_length=20)
    builds: dict[Label, Sha256] = Field({}, max_length=20)


def to_json(report: Report) -> dict[str, Any]:
    """An object for `from_json`."""
    form: TypeAdapter[Any] = _UNIT if isinstance(report, UnitReport) else _VALIDATION
    written: dict[str, Any] = form.dump_python(report, mode="json", by_alias=True)
    return written


def from_json(body: dict[str, Any]) -> Report:
    """The report in a worker's message. Raises FalseReportError for anything else, ArenaError for a newer palus's."""
    try:
        if "games" in body:
            return _UNIT.validate_python(body)
        report = _VALIDATION.validate_python(body)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise FalseReportError(f"not a report of a worker: {where or 'it'}: {fault['msg']}") from error
    if (report.refusal is None) == (report.trial is None):
        raise FalseReportError("a validation ends with a refusal or with a trial; this one has both or none")
    return report
