"""Reads TensorBoard files: records of length, its checksum, an Event, its checksum."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def read_values(folder: Path) -> list[tuple[int, str, object]]:
    """(step, tag, value) of everything in the event files of a folder, in the order of writing.

    A scalar's value is its number, a histogram's its count, a text's the text.
    """
    values: list[tuple[int, str, object]] = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length
            values += [(event.step, v.tag, _value(v)) for v in event.summary.value]
    return values


def _value(v: object) -> object:
    kind = v.WhichOneof("value")
    if kind == "histo":
        return v.histo.num
    return v.simple_value if kind == "simple_value" else v.tensor.string_val[0].decode()
