"""Signed integers as zig-zag varints, whole arrays at a time: small numbers take one byte whatever their sign.

A varint holds 7 bits per byte, lowest first; the high bit says that another byte follows (Protocol Buffers' encoding).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from palus.types import I64

MAX_BYTES = 5
"""Bytes of the longest varint written or read here: 35 bits, ample for millimetres on any pitch."""
AT_ONCE = 1 << 16
"""Integers that are read together: on the way a byte takes 40."""


def encode_varints(values: I64) -> bytes:
    """values: [n] int64 of magnitude below 2**34. Returns their zig-zag varints, one after the other."""
    unsigned = (values << 1) ^ (values >> 63)
    lengths = np.ones(len(unsigned), np.int64)
    for i in range(1, MAX_BYTES):
        lengths += (unsigned >> (7 * i)) > 0
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for i in range(MAX_BYTES):
        has_byte = lengths > i
        more_follow = (lengths[has_byte] > i + 1).astype(np.int64) << 7
        out[starts[has_byte] + i] = (unsigned[has_byte] >> (7 * i)) & 0x7F | more_follow
    return out.tobytes()


def decode_varints(data: bytes | memoryview, count: int) -> I64:
    """The `count` integers that `encode_varints` wrote to `data`. Raises ValueError unless it holds exactly those."""
    raw: NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw < 0x80) + 1
    if len(ends) != count or (count and ends[-1] != len(raw)):
        raise ValueError(f"{len(raw)} bytes hold {len(ends)} integers, expected {count}")
    out, begin = np.empty(count, np.int64), 0
    for first in range(0, count, AT_ONCE):
        own = ends[first : first + AT_ONCE] - begin
        out[first : first + len(own)] = _decoded(raw[begin : begin + own[-1]], own)
        begin += int(own[-1])
    return out


def _decoded(raw: NDArray[np.uint8], ends: I64) -> I64:
    """ends: where each integer's bytes end."""
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    if lengths.max() > MAX_BYTES:
        raise ValueError(f"an integer of {lengths.max()} bytes, at most {MAX_BYTES} are allowed")
    position_in_varint = np.arange(len(raw)) - np.repeat(starts, lengths)
    unsigned = np.add.reduceat((raw & 0x7F).astype(np.int64) << (7 * position_in_varint), starts)
    return np.asarray((unsigned >> 1) ^ -(unsigned & 1), dtype=np.int64)
