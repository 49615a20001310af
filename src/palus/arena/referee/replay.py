"""The replay file `*.match`: recorded matches as a few kilobytes, enough to draw them without playing them again.

Only the container and its encoding live here; what a recording means is in `palus.envs.recording`, the byte layout
is specified for other readers in docs/replay-format.md. The browser's decoder is web/src/replay/decode.ts.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from palus.arena.referee.games import GAMES, layout_of
from palus.arena.referee.varint import decode_varints, encode_varints
from palus.envs.recording import MatchLayout, RecordedEvent, Recording
from palus.errors import ReplayError
from palus.files import write_bytes
from palus.types import F32, F64

MAGIC = b"\x89PALUS\r\n"
"""First bytes of every replay. The non-ASCII byte and the line end reveal a copy that went through text mode."""

SCHEMA_VERSION = 1
PROBABILITY_LEVELS = 255

MAX_BODY_BYTES = 16 << 20
"""Largest inflated body that is read; hours of play. Against files made to exhaust memory: a byte becomes 20."""

_PREFIX = struct.Struct("<8sHIII")

_Count = Annotated[int, Field(ge=0, le=MAX_BODY_BYTES)]


class _MatchHeader(BaseModel):
    """One match in the file's JSON header. `frame_bytes` is the size of its varint block in the inflated body."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env_id: str
    seed: str
    names: tuple[str, str]
    score: tuple[int, int]
    result: Literal["blue", "purple", "draw"]
    ticks: _Count
    decisions: _Count
    has_probabilities: bool
    frame_bytes: _Count
    events: list[tuple[int, str, int, int]]

    def body_bytes(self, layout: MatchLayout) -> int:
        per_decision = sum(layout.code_bytes) + sum(layout.choices) * self.has_probabilities
        return self.frame_bytes + self.decisions * per_decision


class _Header(BaseModel):
    """The JSON header: how to read the body, and everything about the matches that is not a number per tick.

    Beside these fields it holds the values of the units of the pitch's layout.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(init=False)

    title: str
    pitch: str
    frame_hz: int
    ticks_per_decision: int
    matches: Annotated[list[_MatchHeader], Field(min_length=1)]


@dataclass(frozen=True)
class Replay:
    """The contents of a replay file: one match, or several such as a reel of the best goals."""

    title: str
    recordings: tuple[Recording, ...]


def write_replay(path: str | Path, recordings: Sequence[Recording], *, title: str = "") -> Path:
    """Write the recordings to `path` in one step: readers see the old file or the new one, never half of it.

    Frames are stored to the units of the game's layout, probabilities to 1/255.
    title: shown above the viewer; by default the names of the first match.
    Raises StorageError when the file cannot be written, ValueError when a recording's arrays do not fit together.
    """
    path = Path(path)
    write_bytes(path, encode_replay(recordings, title=title))
    return path


def read_replay(path: str | Path) -> tuple[bytes, Replay]:
    """A replay file's bytes, for those who pass it on, and what is in it.

    Raises ReplayError when it is missing, foreign, cut short, corrupt or too new.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ReplayError(
            f"{path}: cannot be read ({error.strerror}); name a *.match file written by `palus match --replay`"
        ) from error
    return data, decode_replay(data, source=str(path))


def encode_replay(recordings: Sequence[Recording], *, title: str = "") -> bytes:
    """The bytes of a replay file; see `write_replay`."""
    if not recordings:
        raise ValueError("a replay needs at least one recording")
    layout = layout_of(recordings[0].env_id)
    blocks = [_encode_body(recording, layout) for recording in recordings]
    matches = [_match_header(r, len(block[0])) for r, block in zip(recordings, blocks, strict=True)]
    header = {
        "title": title or " vs ".join(recordings[0].names),
        "pitch": layout.pitch,
        "frame_hz": layout.frame_hz,
        "ticks_per_decision": layout.ticks_per_decision,
        **layout.units,
        "matches": [match.model_dump() for match in matches],
    }
    header_bytes = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    deflate = zlib.compressobj(level=9, wbits=-15)
    body = b"".join(deflate.compress(part) for block in blocks for part in block) + deflate.flush()
    prefix = _PREFIX.pack(
        MAGIC, SCHEMA_VERSION, len(header_bytes), len(body), zlib.crc32(body, zlib.crc32(header_bytes))
    )
    return prefix + header_bytes + body


def decode_replay(data: bytes, source: str = "replay") -> Replay:
    """The inverse of `encode_replay`. source: what to call the data in an error. Raises ReplayError."""
    header_bytes, deflated = _split(data, source)
    try:
        header = _Header.model_validate_json(header_bytes)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ReplayError(f"{source}: its header is wrong at '{where}': {fault['msg']}; record it again") from error
    layouts = {game.layout.pitch: game.layout for game in GAMES.values() if game.layout is not None}
    layout = layouts.get(header.pitch)
    if layout is None:
        raise ReplayError(
            f"{source}: was played on pitch '{header.pitch}', this version of palus draws '{', '.join(layouts)}'; "
            "open it with the version of palus that wrote it"
        )
    units = header.__pydantic_extra__
    if units.keys() != layout.units.keys():
        raise ReplayError(f"{source}: its header says {sorted(units)} and not {sorted(layout.units)}; record it again")
    body = memoryview(_inflate(deflated, sum(match.body_bytes(layout) for match in header.matches), source))
    recordings = []
    for match in header.matches:
        size = match.body_bytes(layout)
        block, body = body[:size], body[size:]
        try:
            recordings.append(_decode_recording(match, layout, layout.unit_of(units), block))
        except ValueError as error:
            raise ReplayError(f"{source}: match {len(recordings) + 1} is corrupt ({error}); record it again") from error
    return Replay(header.title, tuple(recordings))


def _match_header(recording: Recording, frame_bytes: int) -> _MatchHeader:
    return _MatchHeader(
        env_id=recording.env_id,
        seed=str(recording.seed),
        names=recording.names,
        score=recording.score,
        result=recording.result,
        ticks=len(recording.frames) - 1,
        decisions=len(recording.actions),
        has_probabilities=recording.probabilities is not None,
        frame_bytes=frame_bytes,
        events=[(event.tick, event.kind, event.team, event.agent) for event in recording.events],
    )


def _encode_body(recording: Recording, layout: MatchLayout) -> tuple[bytes, bytes, bytes]:
    """Varint block of the frames, action bytes, probability bytes. Every column of numbers is stored in one piece."""
    frames, actions, probabilities = recording.frames, recording.actions, recording.probabilities
    agents, channels = len(layout.branches), len(layout.channels)
    if frames.ndim != 2 or len(frames) == 0 or frames.shape[1] != channels:
        raise ValueError(f"frames are {frames.shape}, expected [ticks + 1, {channels}]")
    expected = (len(actions), agents, max(layout.choices))
    if probabilities is not None and probabilities.shape != expected:
        raise ValueError(f"probabilities are {probabilities.shape}, expected {expected}")
    if not np.isfinite(frames).all() or not (probabilities is None or np.isfinite(probabilities).all()):
        raise ValueError("frames or probabilities contain NaN or infinity")
    for event in recording.events:
        layout.check_event(event, len(frames) - 1)
    quantised = np.rint(frames.astype(np.float64) / layout.unit_of(layout.units)).astype(np.int64).T
    # Bodies move at nearly constant speed, so the change of the change is what takes the fewest bytes.
    accelerations = np.diff(np.diff(quantised, prepend=0), prepend=0)
    levels = b""
    if probabilities is not None:
        rounded = np.rint(probabilities * PROBABILITY_LEVELS).astype(np.uint8)
        levels = b"".join(rounded[:, agent, :width].T.tobytes() for agent, width in enumerate(layout.choices))
    return encode_varints(accelerations.ravel()), layout.encode_actions(actions), levels


def _decode_recording(match: _MatchHeader, layout: MatchLayout, units: F64, block: memoryview) -> Recording:
    """Raises ValueError when the block contradicts the header."""
    channels = len(layout.channels)
    values = decode_varints(block[: match.frame_bytes], channels * (match.ticks + 1)).reshape(channels, -1)
    frames: F32 = np.empty(values.T.shape, np.float32)
    for channel, accelerations in enumerate(values):
        frames[:, channel] = np.cumsum(np.cumsum(accelerations)) * units[channel]
    chosen = match.frame_bytes + sum(layout.code_bytes) * match.decisions
    events = tuple(RecordedEvent(*event) for event in match.events)
    for event in events:
        layout.check_event(event, match.ticks)
    return Recording(
        env_id=match.env_id,
        seed=int(match.seed),
        names=match.names,
        frames=frames,
        actions=layout.decode_actions(block[match.frame_bytes : chosen]),
        probabilities=_decode_probabilities(block[chosen:], match, layout) if match.has_probabilities else None,
        events=events,
        score=match.score,
        result=match.result,
    )


def _decode_probabilities(levels: memoryview, match: _MatchHeader, layout: MatchLayout) -> F32:
    probabilities = np.zeros((match.decisions, len(layout.branches), max(layout.choices)), np.float32)
    first = 0
    for agent, width in enumerate(layout.choices):
        own = np.frombuffer(levels, np.uint8, width * match.decisions, first)
        probabilities[:, agent, :width] = own.reshape(width, -1).T / np.float32(PROBABILITY_LEVELS)
        first += own.size
    return probabilities


def _split(data: bytes, source: str) -> tuple[bytes, bytes]:
    """Header and deflated body, after the checks that need no understanding of either."""
    if not data.startswith(MAGIC):
        raise ReplayError(f"{source}: is not a palus replay; name a *.match file written by `palus match --replay`")
    if len(data) < _PREFIX.size:
        raise ReplayError(f"{source}: is cut short after {len(data)} bytes; copy or record it again")
    _, version, header_bytes, body_bytes, checksum = _PREFIX.unpack_from(data)
    if not 1 <= version <= SCHEMA_VERSION:
        raise ReplayError(
            f"{source}: has replay format {version}, this palus reads 1 to {SCHEMA_VERSION}; upgrade palus to watch it"
        )
    expected = _PREFIX.size + header_bytes + body_bytes
    if len(data) != expected:
        raise ReplayError(f"{source}: has {len(data)} bytes instead of {expected}; copy or record it again")
    content = data[_PREFIX.size :]
    if zlib.crc32(content) != checksum:
        raise ReplayError(f"{source}: is damaged (its checksum is wrong); copy or record it again")
    return content[:header_bytes], content[header_bytes:]


def _inflate(deflated: bytes, expected: int, source: str) -> bytes:
    """Inflate to exactly `expected` bytes, never more, whatever the file claims."""
    if expected > MAX_BODY_BYTES:
        raise ReplayError(f"{source}: claims {expected} bytes of frames, at most {MAX_BODY_BYTES} are read; split it")
    inflate = zlib.decompressobj(wbits=-15)
    try:
        body = inflate.decompress(deflated, expected + 1)
    except zlib.error as error:
        raise ReplayError(f"{source}: its frames cannot be inflated ({error}); record it again") from error
    if len(body) != expected or not inflate.eof or inflate.unused_data:
        raise ReplayError(f"{source}: its frames are not the {expected} bytes that its header says; record it again")
    return body
