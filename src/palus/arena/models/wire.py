"""Walks a model file's protobuf encoding before the parser does, so that no file makes the parser allocate or recurse.

Only message boundaries are read: how deep they nest, how many there are, and whether each ends inside the one around
it. The schema is onnx's own descriptor. Source: Protocol Buffers documentation, Encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import Rules

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_FIRST_BYTE = 0x08
"""Tag of `ir_version`, with which every known exporter begins."""


def check_wire(data: bytes, rules: Rules) -> None:
    """Raises RefusedError: "not-onnx", "truncated", "nested-too-deep" or "too-many-parts"."""
    open_messages = [(0, len(data), onnx.ModelProto.DESCRIPTOR, 1)]
    seen = 1
    while open_messages:
        start, end, schema, depth = open_messages.pop()
        if depth > rules.max_depth:
            raise RefusedError(
                "nested-too-deep",
                f"Its parts nest more than {rules.max_depth} levels deep.",
                "Export a plain feed-forward policy with ML-Agents or palus.",
            )
        for number, first, last in _fields(data, start, end):
            field = schema.fields_by_number.get(number)
            if field is None or field.message_type is None:
                continue
            seen += 1
            if seen > rules.max_messages:
                raise RefusedError(
                    "too-many-parts",
                    f"Consists of more than {rules.max_messages} parts.",
                    "Export a plain feed-forward policy with ML-Agents or palus.",
                )
            open_messages.append((first, last, field.message_type, depth + 1))


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start, end) of every length-delimited field of the message in data[start:end]."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, at = _varint(data, at, end)
            continue
        if wire_type == _BYTES:
            length, at = _varint(data, at, end)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise _broken(data, f"a field of unknown kind {wire_type}")
        if at + length > end:
            raise _broken(data, f"{at + length - end} bytes are missing")
        if wire_type == _BYTES:
            yield tag >> 3, at, at + length
        at += length


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(_MAX_VARINT_BYTES):
        if at + i >= end:
            raise _broken(data, "a number is cut off")
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise _broken(data, "a number has no end")


def _broken(data: bytes, what: str) -> RefusedError:
    if data[:1] == bytes([_FIRST_BYTE]):
        return RefusedError("truncated", f"Corrupt or cut short ({what}).", "Export or upload it again.")
    return RefusedError(
        "not-onnx", f"Corrupt or not an ONNX model ({what}).", "Give the .onnx file that ML-Agents or palus exports."
    )
