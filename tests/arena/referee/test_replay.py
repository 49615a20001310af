"""Replay files: what goes in comes out to the promised precision, and nothing else is ever mistaken for a replay."""

from __future__ import annotations

import base64
import json
import struct
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palus.arena.referee import varint
from palus.arena.referee.replay import decode_replay, encode_replay, read_replay, write_replay
from palus.envs.recording import RecordedEvent, Recording
from palus.errors import ReplayError, StorageError

GOLDEN = base64.b64decode(
    "iVBBTFVTDQoBAEsBAAA8AAAANsOHY3sidGl0bGUiOiJnb2xkZW4iLCJwaXRjaCI6InNvY2Nlci10d29zLzEiLCJmcmFtZV9oeiI6"
    "NTAsInRpY2tzX3Blcl9kZWNpc2lvbiI6NSwicG9zaXRpb25fdW5pdF9tIjowLjAwMSwieWF3X3VuaXRfZGVncmVlcyI6MC4xLCJt"
    "YXRjaGVzIjpbeyJlbnZfaWQiOiJTb2NjZXJUd29zIiwic2VlZCI6IjciLCJuYW1lcyI6WyJhIiwiYiJdLCJzY29yZSI6WzAsMV0s"
    "InJlc3VsdCI6InB1cnBsZSIsInRpY2tzIjoxLCJkZWNpc2lvbnMiOjEsImhhc19wcm9iYWJpbGl0aWVzIjp0cnVlLCJmcmFtZV9i"
    "eXRlcyI6NTYsImV2ZW50cyI6W1sxLCJraWNrIiwwLDJdLFsxLCJnb2FsIiwxLC0xXV19XX37X3Om9oHQfaEOvvu8DbX/a0Dsdr4O"
    "vv81DbX3hR4IfeP7ygcSB7FnaE3XesH+nP0z8xdmbgZR9lAiAAA="
)
"""A replay of format 1, kept so that files of today stay readable: two frames, one kick and one goal."""


def make_recording(ticks: int = 100, *, probabilities: bool = True, seed: int = 3) -> Recording:
    """Bodies that move like bodies: random accelerations, drag, and a pitch that they stay on."""
    rng = np.random.default_rng(seed)
    decisions = -(-ticks // 5)
    pushes = np.repeat(rng.normal(0, 2, (decisions, 5, 2)), 5, axis=0)
    position, velocity = rng.uniform(-5, 5, (5, 2)), np.zeros((5, 2))
    yaw = rng.uniform(-180, 180, 4)
    turns = np.repeat(rng.integers(-1, 2, (decisions, 4)) * 2, 5, axis=0)
    frames = np.zeros((ticks + 1, 14), np.float32)
    for tick in range(ticks + 1):
        frames[tick, :12] = np.column_stack([position[:4], yaw]).ravel()
        frames[tick, 12:] = position[4]
        if tick < ticks:
            velocity = (velocity + pushes[tick]) * 0.94
            position = np.clip(position + velocity * 0.02, [-15, -7], [15, 7])
            yaw = yaw + turns[tick]
    raw = rng.random((decisions, 4, 3, 3)).astype(np.float32)
    return Recording(
        env_id="SoccerTwos",
        seed=2**62 + 1,
        names=("blue player", 'purple "player" <b>'),
        frames=frames,
        actions=rng.integers(0, 3, (decisions, 4, 3)).astype(np.int8),
        probabilities=(raw / raw.sum(-1, keepdims=True)).reshape(decisions, 4, 9) if probabilities else None,
        events=(RecordedEvent(4, "kick", 1, 3), RecordedEvent(ticks, "goal", 0, -1)),
        score=(1, 0),
        result="blue",
    )


def with_header(data: bytes, old: bytes, new: bytes) -> bytes:
    """The replay with a piece of its header exchanged and a checksum that agrees."""
    magic, version, header_bytes, body_bytes, _ = struct.unpack_from("<8sHIII", data)
    header, body = data[22 : 22 + header_bytes], data[22 + header_bytes :]
    assert old in header
    header = header.replace(old, new)
    prefix = struct.pack("<8sHIII", magic, version, len(header), body_bytes, zlib.crc32(header + body))
    return prefix + header + body


def parted(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and deflated body."""
    header_bytes = struct.unpack_from("<8sHIII", data)[2]
    return json.loads(data[22 : 22 + header_bytes]), data[22 + header_bytes :]


def joined(header: dict[str, Any], body: bytes) -> bytes:
    """The inverse, with a checksum that agrees."""
    text = json.dumps(header).encode()
    return struct.pack("<8sHIII", GOLDEN[:8], 1, len(text), len(body), zlib.crc32(text + body)) + text + body


def without_matches(data: bytes) -> bytes:
    """The replay with no match in it, whole otherwise."""
    return joined(parted(data)[0] | {"matches": []}, b"\x03\x00")  # an empty deflate stream


def test_a_replay_returns_what_was_recorded_to_a_millimetre_and_a_tenth_of_a_degree(tmp_path: Path) -> None:
    first, second = make_recording(103), make_recording(40, probabilities=False, seed=4)
    path = write_replay(tmp_path / "reel.match", [first, second], title="Best goals")
    _, replay = read_replay(path)

    assert replay.title == "Best goals"
    assert [len(r.frames) for r in replay.recordings] == [104, 41]
    for recording, original in zip(replay.recordings, (first, second), strict=True):
        error = np.abs(recording.frames - original.frames)
        assert error[:, [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]].max() <= 0.000501
        assert error[:, [2, 5, 8, 11]].max() <= 0.0501
        np.testing.assert_array_equal(recording.actions, original.actions)
        same = ("env_id", "seed", "names", "events", "score", "result")
        assert all(getattr(recording, field) == getattr(original, field) for field in same)
    assert first.probabilities is not None and replay.recordings[0].probabilities is not None
    assert np.abs(replay.recordings[0].probabilities - first.probabilities).max() <= 0.5 / 255 + 1e-6
    assert replay.recordings[1].probabilities is None


def test_a_jump_across_the_pitch_and_a_full_turn_survive() -> None:
    recording = make_recording(10)
    frames = recording.frames.copy()
    frames[5:, 0] = 17.356
    frames[6:, 2] += 720
    decoded = decode_replay(encode_replay([replace(recording, frames=frames)])).recordings[0]
    np.testing.assert_allclose(decoded.frames, frames, atol=0.0501)
    assert decoded.frames[5, 0] == np.float32(17.356)


def test_files_of_format_1_stay_readable() -> None:
    replay = decode_replay(GOLDEN)
    recording = replay.recordings[0]
    assert (replay.title, recording.names, recording.seed) == ("golden", ("a", "b"), 7)
    np.testing.assert_array_equal(
        recording.frames[0], np.float32([-8, 1.2, 90, 8, 1.2, -90, -8, -1.2, 95.5, 8, -1.2, 270, 0.5, -0.25])
    )
    np.testing.assert_array_equal(recording.frames[1, :3], np.float32([-7.962, 1.2, 92]))
    np.testing.assert_array_equal(recording.actions, [[[1, 0, 2], [0, 0, 0], [2, 1, 0], [0, 2, 1]]])
    assert recording.events == (RecordedEvent(1, "kick", 0, 2), RecordedEvent(1, "goal", 1, -1))
    assert encode_replay([recording], title="golden")[:10] == b"\x89PALUS\r\n\x01\x00"


def test_a_minute_of_play_takes_less_than_plain_deltas_would() -> None:
    # Positions and headings as varint deltas, deflated, were measured at 688 bytes per second at this rate.
    assert len(encode_replay([make_recording(60 * 50, probabilities=False)])) < 60 * 688


def test_numbers_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_replay([make_recording(100)])
    whole = decode_replay(data).recordings[0].frames
    for at_once in (1, 7, 14 * 101):
        monkeypatch.setattr(varint, "AT_ONCE", at_once)
        np.testing.assert_array_equal(decode_replay(data).recordings[0].frames, whole)


def test_a_small_file_of_many_frames_takes_little_memory() -> None:
    ticks, (header, _) = 100_000, parted(GOLDEN)
    length = 14 * (ticks + 1)
    still = {"ticks": ticks, "decisions": 0, "has_probabilities": False, "frame_bytes": length, "events": []}
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(bytes(length)) + deflate.flush()
    data = joined(header | {"matches": [header["matches"][0] | still]}, body)
    tracemalloc.start()
    decode_replay(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(data) < 4_000 and peak < 30 * length


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a palus replay"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a palus replay"),
        (GOLDEN.replace(b"\r\n", b"\n", 1), "not a palus replay"),
        (GOLDEN[:15], "cut short"),
        (GOLDEN[:-1], "instead of"),
        (GOLDEN + b"\0", "instead of"),
        (GOLDEN[:-4] + b"\xff" + GOLDEN[-3:], "checksum"),
        (GOLDEN[:8] + b"\x02\x00" + GOLDEN[10:], "format 2, this palus reads 1 to 1; upgrade"),
        (with_header(GOLDEN, b'"soccer-twos/1"', b'"ice-hockey/1"'), "pitch 'ice-hockey/1'"),
        (with_header(GOLDEN, b'"decisions":1', b'"decisions":9'), "bytes that its header says"),
        (with_header(GOLDEN, b'"ticks":1', b'"ticks":2'), "match 1 is corrupt"),
        (with_header(GOLDEN, b'"decisions":1', b'"decisions":9999999'), "claims"),
        (with_header(GOLDEN, b'"score":[0,1]', b'"score":"lots"'), "matches.0.score"),
        (with_header(GOLDEN, b'[1,"kick",0,2]', b'[9,"kick",0,2]'), "impossible event"),
        (without_matches(GOLDEN), "its header is wrong at 'matches'"),
        (joined(parted(GOLDEN)[0], parted(GOLDEN)[1] + b"more"), "bytes that its header says"),
    ],
)
def test_what_is_not_a_replay_is_refused_with_a_reason(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.match"
    path.write_bytes(content)
    with pytest.raises(ReplayError, match=r"bad\.match") as caught:
        read_replay(path)
    assert message in str(caught.value)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"gone\.match: cannot be read \(No such file"):
        read_replay(tmp_path / "gone.match")


def test_no_damage_raises_anything_but_replay_error() -> None:
    data = encode_replay([make_recording(8)])
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(ReplayError):
            decode_replay(bytes(broken))
        # The same damage by someone who repairs the checksum: anything but a crash will do.
        struct.pack_into("<I", broken, 18, zlib.crc32(broken[22:]))
        try:
            decode_replay(bytes(broken))
        except ReplayError:
            continue


def test_a_recording_whose_arrays_disagree_is_not_written(tmp_path: Path) -> None:
    recording = make_recording(10)
    with pytest.raises(ValueError, match=r"expected \[ticks \+ 1, 14\]"):
        write_replay(tmp_path / "x.match", [replace(recording, frames=recording.frames[:, :13])])
    with pytest.raises(ValueError, match="NaN"):
        write_replay(tmp_path / "x.match", [replace(recording, frames=recording.frames * np.float32("nan"))])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "folder.match"
    target.mkdir()
    with pytest.raises(StorageError, match=r"folder\.match: could not be written"):
        write_replay(target, [make_recording(5)])
    assert list(tmp_path.iterdir()) == [target]
