"""Side channels: small messages beside every exchange, each for a channel named by a UUID.

A message is the channel's UUID (16 bytes, little-endian GUID order), the length of the payload (int32) and the payload:
int32, float32 and bool little-endian, text and lists of floats behind their length (int32).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from pydantic import TypeAdapter, ValidationError

from palus.config.environment import (
    ConstantSampler,
    GaussianSampler,
    MultiRangeUniformSampler,
    Sampler,
    UniformSampler,
    Value,
)
from palus.config.run_file import EngineSettings
from palus.errors import ProtocolError

ENGINE = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
PARAMETERS = UUID("534c891e-810f-11ea-a9d0-822485860400")
STATISTICS = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
ANALYTICS = UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")
CHANNELS = (ENGINE, PARAMETERS, STATISTICS, ANALYTICS)
AVERAGE, MOST_RECENT, SUM, HISTOGRAM = 0, 1, 2, 3
"""How the trainer puts a statistic's values together."""
_SAMPLERS: TypeAdapter[Any] = TypeAdapter(Sampler)
_NUMBER, _SAMPLER = 0, 1
_UNIFORM, _GAUSSIAN, _MULTI_RANGE = 0, 1, 2


@dataclass(frozen=True)
class Statistic:
    """A number that the game tells of itself. aggregation: `AVERAGE`, ..."""

    name: str
    value: float
    aggregation: int


def join(messages: Iterable[tuple[UUID, bytes]]) -> bytes:
    """The `side_channel` field that carries these."""
    return b"".join(channel.bytes_le + struct.pack("<i", len(payload)) + payload for channel, payload in messages)


def split(data: bytes) -> Iterator[tuple[UUID, bytes]]:
    """Channel and payload of each message of a `side_channel` field. Raises ProtocolError where it is cut short."""
    reader = Payload(data)
    while reader.left:
        channel = UUID(bytes_le=reader.take(16))
        yield channel, reader.take(reader.integer())


class Payload:
    """Reads a payload from its start. Everything raises ProtocolError at its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if not 0 <= count <= self.left:
            raise ProtocolError(f"a side channel's message is cut short: {count} bytes announced, {self.left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def integer(self) -> int:
        """An int32."""
        return int(struct.unpack("<i", self.take(4))[0])

    def number(self) -> float:
        """A finite float32."""
        found = float(struct.unpack("<f", self.take(4))[0])
        if not np.isfinite(found):
            raise ProtocolError(f"a side channel's message holds the number {found}; expected a finite one")
        return found

    def text(self) -> str:
        """A string; bytes that are no text are replaced."""
        return self.take(self.integer()).decode("utf-8", "replace")

    def numbers(self) -> list[float]:
        """A list of floats."""
        return [self.number() for _ in range(self.integer())]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<i", len(data)) + data


def engine_messages(settings: EngineSettings) -> list[tuple[UUID, bytes]]:
    """The engine's configuration, one message for each setting, in the protocol's order."""
    payloads = [
        struct.pack("<iii", 0, settings.width, settings.height),
        struct.pack("<ii", 1, settings.quality_level),
        struct.pack("<if", 2, settings.time_scale),
        struct.pack("<ii", 3, settings.target_frame_rate),
        struct.pack("<ii", 4, settings.capture_frame_rate),
    ]
    return [(ENGINE, payload) for payload in payloads]


def parameter_message(name: str, value: Value, seed: int) -> tuple[UUID, bytes]:
    """An environment parameter: a number, or a sampler from which the game draws. seed: of one that names none."""
    if isinstance(value, ConstantSampler):
        value = value.sampler_parameters.value
    if isinstance(value, float | int):
        return PARAMETERS, _text(name) + struct.pack("<if", _NUMBER, value)
    told = value.sampler_parameters
    own = told.seed if told.seed >= 0 else seed
    head = _text(name) + struct.pack("<ii", _SAMPLER, own % 2**31)  # as much as the message holds
    if isinstance(value, UniformSampler):
        uniform = value.sampler_parameters
        return PARAMETERS, head + struct.pack("<iff", _UNIFORM, uniform.min_value, uniform.max_value)
    if isinstance(value, GaussianSampler):
        normal = value.sampler_parameters
        return PARAMETERS, head + struct.pack("<iff", _GAUSSIAN, normal.mean, normal.st_dev)
    assert isinstance(value, MultiRangeUniformSampler)
    ends = [end for interval in value.sampler_parameters.intervals for end in interval]
    return PARAMETERS, head + struct.pack(f"<ii{len(ends)}f", _MULTI_RANGE, len(ends), *ends)


def read_parameter(payload: bytes) -> tuple[str, Value]:
    """Name and value of an environment parameter. Raises ProtocolError for what the protocol does not have."""
    reader = Payload(payload)
    name, kind = reader.text(), reader.integer()
    if kind == _NUMBER:
        return name, reader.number()
    if kind != _SAMPLER:
        raise ProtocolError(f"environment parameter {name!r} of kind {kind}; expected {_NUMBER} or {_SAMPLER}")
    seed, sampler = reader.integer(), reader.integer()
    numbers = reader.numbers() if sampler == _MULTI_RANGE else [reader.number(), reader.number()]
    first, second = numbers[::2], numbers[1::2]
    told: dict[int, tuple[str, dict[str, Any]]] = {
        _UNIFORM: ("uniform", {"min_value": first[:1], "max_value": second[:1]}),
        _GAUSSIAN: ("gaussian", {"mean": first[:1], "st_dev": second[:1]}),
        _MULTI_RANGE: ("multirangeuniform", {"intervals": list(itertools.zip_longest(first, second))}),
    }
    if sampler not in told:
        raise ProtocolError(f"environment parameter {name!r} with sampler {sampler}; expected 0, 1 or 2")
    form, limits = told[sampler]
    values = {key: value if key == "intervals" else value[0] for key, value in limits.items()}
    fault = ProtocolError(f"environment parameter {name!r}: {numbers} are no limits of a sampler")
    try:
        found: Value = _SAMPLERS.validate_python({"sampler_type": form, "sampler_parameters": values | {"seed": seed}})
    except ValidationError as error:
        raise fault from error
    if isinstance(found, GaussianSampler) and found.sampler_parameters.st_dev < 0:
        raise fault
    return name, found


def statistics_messages(numbers: Mapping[str, float]) -> list[tuple[UUID, bytes]]:
    """Statistics whose values are averaged."""
    return [(STATISTICS, _text(n) + struct.pack("<fi", v, AVERAGE)) for n, v in numbers.items()]


def read_statistic(payload: bytes) -> Statistic:
    """A statistic. Raises ProtocolError for an aggregation that the protocol does not have."""
    reader = Payload(payload)
    found = Statistic(reader.text(), reader.number(), reader.integer())
    if found.aggregation not in (AVERAGE, MOST_RECENT, SUM, HISTOGRAM):
        raise ProtocolError(f"statistic {found.name!r} with aggregation {found.aggregation}; expected 0 to 3")
    return found
