"""Units for tests of the runner: contenders with models written by hand."""

from __future__ import annotations

import hashlib

import onnx

from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.models.rules import Limits

LIMITS = Limits(niceness=0)
NO_REVISION = "0" * 40


def contender(name: str, model: onnx.ModelProto | bytes) -> Entity:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    sha256 = hashlib.sha256(data).hexdigest()
    return Entity(sha256, name, NO_REVISION, (("SoccerTwos", sha256),), models=(data,))


def house(name: str) -> Entity:
    return Entity(hashlib.sha256(name.encode()).hexdigest(), f"palus/{name}")


def unit(first: Entity, second: Entity, seed: int = 0) -> Unit:
    return Unit("SoccerTwos", seed, (first, second))
