"""Units for tests of the runner: contenders with models written by hand."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import onnx
from team_models import keeper, striker

from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.models.entity import Entity
from palus.arena.models.rules import Limits
from palus.files import digest_of

LIMITS = Limits(niceness=0)
NO_REVISION = "0" * 40


def contender(name: str, model: onnx.ModelProto | bytes) -> Entity:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    sha256 = hashlib.sha256(data).hexdigest()
    return Entity(sha256, name, NO_REVISION, (("SoccerTwos", sha256),), models=(data,))


def squad(name: str, strikes: float, keeps: float) -> Entity:
    """A contender of `team_models.Squads`."""
    models = {"Keeper": keeper(keeps), "Striker": striker(strikes)}
    files = {behavior: hashlib.sha256(model).hexdigest() for behavior, model in models.items()}
    return Entity(digest_of(files), name, NO_REVISION, tuple(files.items()), models=tuple(models.values()))


def house(name: str) -> Entity:
    return Entity(hashlib.sha256(name.encode()).hexdigest(), f"palus/{name}")


def unit(first: Entity, second: Entity, seed: int = 0) -> Unit:
    return Unit("SoccerTwos", seed, (first, second))


def passed_off(played: UnitReport, own: UnitReport) -> UnitReport:
    """What was played as the report of another unit, which everything but its course belongs to."""
    told = []
    for other, match in zip(played.matches, own.matches, strict=True):
        of = {name: getattr(match.result, name) for name in ("id", "unit_id", "sides")}
        told.append(replace(other, result=replace(other.result, **of)))
    return replace(own, matches=tuple(told))
