"""How the referee's process and a locked process talk: frames of a kind, a length and bytes over one socket.

The first frame is the task, as JSON: what the model plays, and whether to examine it before.
"""

from __future__ import annotations

import os
import struct
from dataclasses import asdict
from enum import IntEnum
from typing import Any

from palus.arena.models.recurrent_file import choices_of
from palus.types import ActionSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

PREFIX = struct.Struct("<BI")
MAX_REPORT_BYTES = 1 << 16
"""Largest reply besides probabilities, whose size is known beforehand."""

OUT_OF_MEMORY = "ran out of memory"
"""What a FAILED frame says then."""


class Kind(IntEnum):
    """To the locked process: TASK (JSON), MODEL (a file's bytes), OBSERVATIONS ([rows, D] float32).
    From it: REPORT (JSON), PROBABILITIES ([rows, sum(branches)] float32), FAILED (a sentence)."""

    TASK = 1
    MODEL = 2
    OBSERVATIONS = 3
    REPORT = 4
    PROBABILITIES = 5
    FAILED = 6


def write_frame(channel: int, kind: Kind, payload: bytes) -> None:
    """channel: file descriptor. Raises OSError when the other end is gone."""
    rest = memoryview(PREFIX.pack(kind, len(payload)) + payload)
    while rest:
        rest = rest[os.write(channel, rest) :]


def read_frame(channel: int) -> tuple[Kind, bytes]:
    """The next frame. Raises EOFError when the other end is gone."""
    kind, length = PREFIX.unpack(_read_exactly(channel, PREFIX.size))
    return Kind(kind), _read_exactly(channel, length)


def _read_exactly(channel: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(channel, count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


Contract = BehaviorSpec | GameSpec
"""What a model plays: the behavior of a batched game, or a sampled game with discrete actions."""


def describe_task(contract: Contract, examine_up_to_ms: float | None = None) -> dict[str, Any]:
    """To play by this contract. examine_up_to_ms: probe the model first, p99 of a batch of 4; None plays at once."""
    if isinstance(contract, BehaviorSpec):
        behavior = {"name": contract.name, "sizes": contract.observation_sizes, "branches": contract.branches}
        return {"behavior": behavior, "examine_up_to_ms": examine_up_to_ms}
    game = {
        "env_id": contract.env_id,
        "observations": [asdict(observation) for observation in contract.observations],
        "choices": choices_of(contract.actions),
    }
    return {"game": game, "examine_up_to_ms": examine_up_to_ms}


def read_task(task: dict[str, Any]) -> tuple[Contract, float | None]:
    """The inverse of `describe_task`, as far as a model is concerned."""
    contract = _game(task["game"]) if "game" in task else _behavior(task["behavior"])
    return contract, task["examine_up_to_ms"]


def _behavior(fields: dict[str, Any]) -> BehaviorSpec:
    return BehaviorSpec.of_vectors(fields["name"], tuple(fields["sizes"]), tuple(fields["branches"]))


def _game(fields: dict[str, Any]) -> GameSpec:
    observations = tuple(ObservationSpec(o["name"], tuple(o["shape"]), o["dtype"]) for o in fields["observations"])
    return GameSpec.alike(fields["env_id"], observations, ActionSpec(tuple(Discrete(n) for n in fields["choices"])))
