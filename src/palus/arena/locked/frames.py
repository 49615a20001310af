"""How the referee's process and a locked process talk: frames of a kind, a length and bytes over one socket."""

from __future__ import annotations

import os
import struct
from enum import IntEnum

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
