"""Units for tests of the runner: contenders with models written by hand."""

from __future__ import annotations

import hashlib

import onnx

from palus.arena.locked.unit import Contender, Unit
from palus.arena.models.rules import Limits

LIMITS = Limits(niceness=0)
NO_REVISION = "0" * 40


def contender(name: str, model: onnx.ModelProto | bytes) -> Contender:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    owner = name.split("/")[0]
    return Contender(name, owner, NO_REVISION, "SoccerTwos.onnx", hashlib.sha256(data).hexdigest(), model=data)


def house(name: str) -> Contender:
    return Contender(f"palus/{name}", "palus", "", "", hashlib.sha256(name.encode()).hexdigest(), house=name)


def unit(first: Contender, second: Contender, seed: int = 0) -> Unit:
    return Unit("SoccerTwos", seed, (first, second))
