"""The training curve of a model card: scalars out of TensorBoard files, and an SVG drawn by hand.

Reads event files of palus and ML-Agents alike, without TensorFlow, torch or tensorboard: framed records, each one a
protocol buffer of which a handful of fields is of interest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

TAGS = (
    ("Self-play/ELO", "self-play Elo"),
    ("Environment/True Objective", "mean score"),
    ("Environment/Group Cumulative Reward", "mean group reward"),
    ("Environment/Cumulative Reward", "mean reward"),
)
"""What may be drawn, most telling first, and how it is called."""

MAX_PANELS, MAX_POINTS = 2, 240
WIDTH, PANEL_HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 28, 28

# What is read of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
_EVENTS = """
name: "events.proto" package: "palus"
message_type { name: "Event"
  field { name: "step" number: 2 type: TYPE_INT64 }
  field { name: "summary" number: 5 type: TYPE_MESSAGE type_name: "Summary" } }
message_type { name: "Summary"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Value" } }
message_type { name: "Value"
  field { name: "tag" number: 1 type: TYPE_BYTES }
  field { name: "simple_value" number: 2 type: TYPE_FLOAT } }
"""
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_EVENTS, FileDescriptorProto()))
_Event = message_factory.GetMessageClass(_pool.FindMessageTypeByName("palus.Event"))


@dataclass(frozen=True)
class Curve:
    """One quantity over training. points: (env steps, value), steps rising. band: (low, high) of each point, or ()."""

    title: str
    points: tuple[tuple[int, float], ...]
    band: tuple[tuple[float, float], ...] = ()


def read_curves(event_files: Iterable[Path]) -> tuple[Curve, ...]:
    """At most two curves of a run; fewer when it has not written them. A damaged file is read up to the damage."""
    by_tag: dict[str, dict[int, float]] = {}
    for path in event_files:
        for step, tag, value in read_scalars(path.read_bytes()):
            if math.isfinite(value):
                by_tag.setdefault(tag, {})[step] = value  # a resumed run repeats steps: the later value counts
    curves = [Curve(title, tuple(sorted(by_tag[tag].items()))) for tag, title in TAGS if len(by_tag.get(tag, ())) > 1]
    return tuple(curves[:MAX_PANELS])


def read_scalars(data: bytes) -> Iterator[tuple[int, str, float]]:
    """(step, tag, value) of each simple value in an event file, in the order of writing; ends at a broken record."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)  # then 4 bytes of checksum, the event, 4 bytes of checksum
        record = data[at + 12 : at + 12 + length]
        if len(record) < length:
            return
        at += 16 + length
        try:
            event = _Event.FromString(record)
        except DecodeError:
            return
        for value in event.summary.value:
            if value.HasField("simple_value"):
                yield event.step, value.tag.decode("utf-8", errors="replace"), value.simple_value


def draw_curves(curves: Sequence[Curve]) -> bytes:
    """An SVG image with one panel per curve; the same curves give the same bytes."""
    height = PANEL_HEIGHT * len(curves)
    panels = "".join(_panel(curve, PANEL_HEIGHT * i) for i, curve in enumerate(curves))
    title = escape("; ".join(describe(curve) for curve in curves))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" role="img"><title>{title}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{panels}</svg>\n'
    ).encode()


def describe(curve: Curve) -> str:
    """The curve in words: "self-play Elo from 1200 to 1417 over 10.8M steps"."""
    (_, first), (steps, last) = curve.points[0], curve.points[-1]
    return f"{curve.title} from {_number(first)} to {_number(last)} over {_number(steps)} steps"


def _panel(curve: Curve, y: int) -> str:
    values = [value for _, value in curve.points] + [value for interval in curve.band for value in interval]
    rows = ticks(min(values), max(values))
    columns = ticks(0, curve.points[-1][0])
    low, high, last = min(rows[0], min(values)), max(rows[-1], max(values)), max(columns[-1], curve.points[-1][0])
    right, bottom = WIDTH - _RIGHT, y + PANEL_HEIGHT - _BOTTOM

    def px(step: float) -> float:
        return _LEFT + (right - _LEFT) * step / last

    def py(value: float) -> float:
        return bottom - (bottom - y - _TOP) * (value - low) / (high - low)

    grid = "".join(
        f'<path d="M{_LEFT} {py(v):.1f}H{right}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{py(v) + 4:.1f}" text-anchor="end" fill="#444">{_number(v)}</text>'
        for v in rows
    )
    steps = "".join(
        f'<text x="{px(s):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#444">{_number(s)}</text>' for s in columns
    )
    line = " ".join(f"{px(s):.1f},{py(v):.1f}" for s, v in _thinned(curve.points))
    edges = [(s, *interval) for (s, _), interval in zip(curve.points, curve.band, strict=False)]
    outline = [(s, high) for s, _, high in edges] + [(s, low) for s, low, _ in reversed(edges)]
    around = " ".join(f"{px(s):.1f},{py(v):.1f}" for s, v in outline)
    band = f'<polygon points="{around}" fill="#2458c5" fill-opacity="0.15"/>' if around else ""
    return (
        f'<text x="{_LEFT}" y="{y + 18}" font-weight="bold" fill="#222">{escape(curve.title)} over steps</text>'
        f'{grid}{steps}{band}<polyline points="{line}" fill="none" stroke="#2458c5" stroke-width="2"/>'
    )


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Every n-th point and the last."""
    every = math.ceil(len(points) / MAX_POINTS)
    return [*points[::every], points[-1]]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that span [low, high] in about four steps of 1, 2 or 5 times a power of ten; at least two."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    """1417.3 -> 1417, 0.25 -> 0.25, 10839744 -> 10.8M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.1f}".removesuffix(".0") + name
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
