"""What a worker sends back about a job, and its form in JSON. Bytes travel as base64."""

from __future__ import annotations

import base64
import binascii
from dataclasses import asdict, dataclass
from typing import Any

from palus.arena.log import EnvBuild
from palus.arena.result import MatchResult
from palus.arena.vetting.refusal import Refusal
from palus.errors import ArenaError, ReplayError

MAX_BLOB_BYTES = 4 << 20
"""Largest replay or action log that is accepted; a full SoccerTwos match has about 80 kB."""


@dataclass(frozen=True)
class GameReport:
    """One game. replay, actions: empty when nothing was played."""

    result: MatchResult
    replay: bytes
    actions: bytes


@dataclass(frozen=True)
class UnitReport:
    """A unit of play, its games in the order of the job's legs. isolation: what held the models in."""

    games: tuple[GameReport, ...]
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
    """The report in a worker's message. Raises ArenaError for anything else."""
    try:
        if "games" in body:
            return _unit_from_json(body)
        return ValidationReport(
            refusal=Refusal(**body["refusal"]) if body["refusal"] else None,
            details=dict(body["details"]),
            trial=_unit_from_json(body["trial"]) if body["trial"] else None,
        )
    except (KeyError, TypeError, ValueError, binascii.Error, ReplayError) as error:
        raise ArenaError(f"not a report of a worker ({error}); worker and arena need the same palus") from error


def _unit_to_json(report: UnitReport) -> dict[str, Any]:
    return {
        "games": [
            {
                "result": game.result.to_json(),
                "replay": base64.b64encode(game.replay).decode(),
                "actions": base64.b64encode(game.actions).decode(),
            }
            for game in report.games
        ],
        "env": asdict(report.env),
        "isolation": report.isolation,
    }


def _unit_from_json(body: dict[str, Any]) -> UnitReport:
    games = tuple(
        GameReport(MatchResult.from_json(game["result"]), _bytes(game["replay"]), _bytes(game["actions"]))
        for game in body["games"]
    )
    return UnitReport(games, EnvBuild(**body["env"]), str(body["isolation"])[:40])


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if len(data) > MAX_BLOB_BYTES:
        raise ArenaError(f"a replay or action log of {len(data)} bytes; at most {MAX_BLOB_BYTES} are accepted")
    return data
