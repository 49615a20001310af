"""How the referee's process and a locked process talk: frames of a kind, a length and bytes over one socket.

The first frame is the task, as JSON: which behaviors are played, and whether to examine their models before. The models
follow, one for each. What the locked process reports may be in a stranger's hands, so it is believed as text and
numbers of bounded size, no more (`Told`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from palus.arena.models.forms import Count, Measure, Sha256, Text
from palus.arena.models.policy_graph import MAX_STATE
from palus.arena.models.refusal import Refusal
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Bool

PREFIX = struct.Struct("<BI")
MAX_REPORT_BYTES = 1 << 16
"""Largest reply besides probabilities, whose size is known beforehand."""

OUT_OF_MEMORY = "ran out of memory"
"""What a FAILED frame says then."""


class Kind(IntEnum):
    """To the locked process: TASK (JSON), MODEL (a file's bytes), OBSERVATIONS (rows as `Rows` lays them out, then one
    byte: which of the behaviors). From it: REPORT (JSON), PROBABILITIES (float32, memory included), FAILED (a
    sentence)."""

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


class Task(BaseModel):
    """behaviors: to play, all of their actions discrete. examine_up_to_ms: probe the models first, p99 of a batch of 4;
    None plays at once."""

    model_config = ConfigDict(frozen=True)

    behaviors: tuple[BehaviorSpec, ...]
    examine_up_to_ms: float | None = None

    def about(self, number: int, refusal: Refusal) -> Refusal:
        """A refusal of the model of a behavior; where there are several, it says which."""
        return refusal.about(f"{self.behaviors[number].name}.onnx") if len(self.behaviors) > 1 else refusal


class Told(BaseModel):
    """One report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Greeting(Told):
    """The first one, before a model is there."""

    isolation: str


class Examined(Told):
    """Of a model that passed: `PolicyGraph`, `ProbeReport` and `computation_of`."""

    nodes: Count
    parameters: Count
    opset: Count
    producer: Text
    entropy: Measure
    p99_ms: Measure
    computation: Sha256


class Findings(Told):
    """On the models, either a refusal or what was found of each that was examined, and how much each remembers."""

    refusal: Refusal | None = None
    details: tuple[Examined, ...] = ()
    state_sizes: tuple[Annotated[int, Field(ge=0, le=MAX_STATE, strict=True)], ...] = ()


@dataclass(frozen=True)
class Rows:
    """How questions and answers are laid out as bytes: every observation in the behavior's order, the masks where there
    are any, then the memory; the probabilities, then the memory."""

    behavior: BehaviorSpec
    state_size: int

    @property
    def question_bytes(self) -> int:
        """Of one row."""
        return sum(size for _, size in self._parts)

    @cached_property
    def _parts(self) -> list[tuple[str, int]]:
        sizes = [(o.name, o.size * np.dtype(o.dtype).itemsize) for o in self.behavior.observations]
        masks = sum(self.behavior.branches) if self.behavior.actions.masked else 0
        return [*sizes, (MASKS, masks), ("", 4 * self.state_size)]

    def pack(self, observations: Mapping[str, AnyArray], states: F32, masks: Bool | None = None) -> AnyArray:
        """[rows, question_bytes] uint8."""
        rows = len(states)
        arrays = [*(observations[o.name] for o in self.behavior.observations), states]
        if self.behavior.actions.masked:
            arrays.insert(-1, np.ones((rows, sum(self.behavior.branches)), np.bool_) if masks is None else masks)
        return np.concatenate([np.ascontiguousarray(a).view(np.uint8).reshape(rows, -1) for a in arrays], axis=1)

    def unpack(self, questions: AnyArray) -> tuple[dict[str, AnyArray], F32, Bool | None]:
        """The inverse of `pack`."""
        ends = np.cumsum([size for _, size in self._parts])[:-1]
        *seen, masks, states = (np.ascontiguousarray(part) for part in np.split(questions, ends, axis=1))
        observations = {
            o.name: part.view(o.dtype).reshape(len(questions), *o.shape)
            for o, part in zip(self.behavior.observations, seen, strict=True)
        }
        allowed = masks.view(np.bool_) if self.behavior.actions.masked else None
        return observations, states.view(np.float32), allowed
