"""Whatever is read from outside, changed at random: refused in our own words, and nothing of it is run, opened or kept.

Insertions are what other programs would act on: imports, paths, attributes, SQL, shells, addresses, numbers without
measure. Half of the changes are made inside of compression, archives and checksums, which are then right again: they
reach what a damaged file does not. An audit hook sees every process, connection and file that a reader opens meanwhile;
a finder of modules, asked before all others, every import of what is not there yet (of audit hooks,
`importlib.import_module` tells none).
"""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import sys
import tempfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from palus.arena.jobs.reports import from_json, to_json
from palus.arena.ladder.log import LogRecord
from palus.arena.locked.unit import MatchReport, UnitReport
from palus.arena.models.entity import Entity
from palus.arena.models.grammar import parse_model
from palus.arena.models.rules import ARENA_RULES
from palus.arena.referee.actions import decode_actions, encode_actions
from palus.arena.referee.games import EnvBuild, layout_of
from palus.arena.referee.replay import decode_replay, encode_replay
from palus.arena.referee.result import MatchResult, Side
from palus.config.appo import AppoNetworkSettings
from palus.config.load import load_run
from palus.envs.recording import RecordedEvent, Recording
from palus.errors import PalusError
from palus.export.policy_file import PolicyFile, read_policy, write_policy
from palus.hub.card import dump_card, read_card
from palus.hub.limits import HubLimits
from palus.hub.probe_file import draw_probe, parse_probe
from palus.hub.server.ndjson import CommitReader
from palus.hub.server.shapes import LfsBatch
from palus.run.sf_checkpoint import read_sf_agent
from palus.store import BlobStore
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, read_demonstrations, write_demonstrations
from palus.web.cards import card_html
from palus.web.live import _Message
from palus.web.room import Start

sys.path.append(str(Path(__file__).parent / "arena"))

TRIES = 300
WORDS = (
    *(
        b"os:system",
        b"a_module_of_theirs:run",
        b"subprocess:Popen",
        b"__class__",
        b"__import__('os')",
        b"!!python/object/apply:os.system [id]",
    ),
    *(
        b"../../../../etc/passwd",
        b"/etc/passwd",
        b"C:\\x",
        b"file:///etc/passwd",
        b"http://127.0.0.1:1/",
        b"$(id)",
        b"`id`",
    ),
    *(b"'; DROP TABLE matches; --", b"%00", b"\0", b"\r\nSet-Cookie: a=b", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800"),
    *(
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"9" * 5000,
        b"10000000000000000000000000000",
        b"null",
        b"[]",
        b"{}",
        b"[" * 3000,
    ),
    *(b"&a ", b"*a", b"? ", b"1:59:59", b'"', b"\n", b"\\"),
)


def changed(seed: bytes, rng: random.Random) -> bytes:
    """A few random edits."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 4, 40)))
        data[at:end] = rng.choice(
            (
                rng.choice(WORDS),
                rng.randbytes(rng.randint(0, 4)),
                b"",
                bytes(data[end : end + 50]),
                bytes(data[at:end]) * 3,
            )
        )
    return bytes(data)


def commit(data: bytes, folder: Path) -> None:
    store = BlobStore(folder / "blobs")
    reader = CommitReader(store.open_writer, lambda writers: None, HubLimits(file_bytes=10_000), 10_000)
    try:
        reader.feed(data)
        reader.finish()
    finally:
        reader.close()


def from_file(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path], None]:
    def from_bytes(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(data)
        read(folder / name)

    return from_bytes


def experiment(**fixed: bytes) -> Callable[[bytes, Path], None]:
    """Reads an experiment of Sample Factory. fixed: the file that does not come in."""

    def from_bytes(data: bytes, folder: Path) -> None:
        (folder / "checkpoint_p0").mkdir(exist_ok=True)
        (folder / "config.json").write_bytes(fixed.get("options", data))
        (folder / "checkpoint_p0" / "checkpoint_000000001_1.pth").write_bytes(fixed.get("checkpoint", data))
        read_sf_agent(folder)

    return from_bytes


def report(data: bytes, _folder: Path) -> None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):  # as the route refuses it
        return
    if isinstance(body, dict):
        from_json(body)


@dataclass(frozen=True)
class Incoming:
    """A kind of bytes. parts: of an example that `read` accepts. pack: makes the example of them, all sums right."""

    parts: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]
    pack: Callable[[Sequence[bytes]], bytes] = b"".join

    @property
    def example(self) -> bytes:
        return self.pack(self.parts)

    def changed(self, rng: random.Random) -> bytes:
        """The example with a few random edits, in one of its parts or in the whole."""
        if rng.random() < 0.5:
            return changed(self.example, rng)
        parts = list(self.parts)
        at = rng.randrange(len(parts))
        parts[at] = changed(parts[at], rng)
        return self.pack(parts)


def whole(example: bytes, read: Callable[[bytes, Path], object]) -> Incoming:
    return Incoming((example,), read)


def zipped(example: bytes, read: Callable[[bytes, Path], object]) -> Incoming:
    """Parts: the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(example)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def pack(parts: Sequence[bytes]) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, part in zip(members, parts, strict=True):
                archive.writestr(name, part)
        return file.getvalue()

    return Incoming(tuple(members.values()), read, pack)


def deflated(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(data) + deflate.flush()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def checkpoint(*, name: object = "weight", weight: torch.Tensor | None = None) -> bytes:
    file = io.BytesIO()
    tensor = torch.ones(3) if weight is None else weight
    torch.save({"model": {name: tensor}, "train_step": 1, "best": 0.5}, file)
    return file.getvalue()


def policy() -> bytes:
    parts = (Discrete(3), Continuous(2, -1.0))
    spec = BehaviorSpec("", (ObservationSpec("obs", (3,)),), ActionSpec(parts))
    weights = {"w": np.ones(3, np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        write_policy(path, PolicyFile("Duel", "doom_duel", spec, AppoNetworkSettings(), weights, b"model", 1, 0.5, 2))
        return path.read_bytes()


SHOWN = BehaviorSpec("Duel", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(3), Continuous(2, -1.0))))


def demonstration() -> bytes:
    episode = ExpertEpisode(
        {"obs": np.ones((4, 3), np.float32)}, np.ones((4, 3), np.float32), None, *np.ones((2, 4), np.float32), True
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.demo"
        write_demonstrations(path, SHOWN, "Duel", [episode])
        return path.read_bytes()


OPTIONS = json.dumps(
    {"env": "CartPole-v1", "env_frameskip": 1, "encoder_mlp_layers": [64, 64], "rnn_size": 32, "nonlinearity": "elu"}
).encode()
ACTIONS = encode_actions(np.zeros((9, 4, 3), np.int16), layout_of("SoccerTwos"))
REPLAY = encode_replay(
    [
        Recording(
            env_id="SoccerTwos",
            seed=7,
            names=("a", "b"),
            frames=np.ones((6, 14), np.float32),
            actions=np.ones((1, 4, 3), np.int8),
            probabilities=np.full((1, 4, 9), 1 / 3, np.float32),
            events=(RecordedEvent(1, "kick", 0, 2), RecordedEvent(5, "goal", 0, -1)),
            score=(1, 0),
            result="blue",
        )
    ]
)


def replay() -> Incoming:
    """Parts: header and inflated body."""
    prefix = struct.Struct("<8sHIII")
    magic, version, header_bytes, *_ = prefix.unpack_from(REPLAY)
    content = REPLAY[prefix.size :]

    def pack(parts: Sequence[bytes]) -> bytes:
        header, body = parts[0], deflated(parts[1])
        return prefix.pack(magic, version, len(header), len(body), zlib.crc32(header + body)) + header + body

    parts = content[:header_bytes], zlib.decompress(content[header_bytes:], wbits=-15)
    return Incoming(parts, lambda data, _: decode_replay(data), pack)


def reported() -> Incoming:
    """Parts: the texts inside of the message, and the message around them."""
    sides = (Side(Entity("a" * 64, "ann/a"), "stochastic", 0.5), Side(Entity("", "bob/b"), "greedy"))
    event = RecordedEvent(5, "goal", 0, -1)
    result = MatchResult(
        *("0" * 16, "1" * 16, "SoccerTwos", 1, 1, sides, "win1", "goal", (1, 0), 5, (event,)),
        *("2024-01-01T00:00:00+00:00", 1.0, "f" * 64),
    )
    unit = UnitReport((MatchReport(result, REPLAY, ACTIONS),), EnvBuild("SoccerTwos", "1", "0" * 64, {}), "none")
    body = to_json(unit)
    texts = {name: text.encode() for name, text in body["games"][0].items()}

    def pack(parts: Sequence[bytes]) -> bytes:
        given = dict(zip(texts, (part.decode("utf-8", "surrogateescape") for part in parts), strict=True))
        return json.dumps(body | {"games": [given]}).encode()

    return Incoming(tuple(texts.values()), report, pack)


@cache
def readers() -> dict[str, Incoming]:
    """By what comes in: an example, and who reads it."""
    from arena_records import record
    from hostile import stock

    line = {"key": "file", "value": {"path": "a/b.txt", "content": base64.b64encode(b"text").decode()}}
    header = {"key": "header", "value": {"summary": "t", "parentCommit": "a" * 40}}
    run = b"behaviors:\n  SoccerTwos:\n    trainer_type: poca\n    time_horizon: 64\n    max_steps: 1e6\n"
    card = b"---\ntags: [a, b]\nmodel-index:\n- name: x\n  results: []\n---\n# Card\n![i](a.png) [l](http://a)"
    point = b'{"steps":9,"share":0.5,"low":0.4,"high":0.6,"pairs":50}'
    probe = (
        b'{"schema":1,"env_id":"SoccerTwos","behavior":"SoccerTwos","symmetric":true,"model_sha256":"","trainer_type":'
        b'"ppo","steps":9,"wall_seconds":1.5,"seed":1,"palus_version":"0.1.0","best":%b,"curve":[%b]}' % (point, point)
    )
    return {
        "commit": whole(json.dumps(header).encode() + b"\n" + json.dumps(line).encode(), commit),
        "lfs batch": whole(
            json.dumps({"operation": "upload", "objects": [{"oid": "a" * 64, "size": 1}]}).encode(),
            lambda data, _: LfsBatch.model_validate_json(data),
        ),
        "front matter": whole(card, lambda data, _: dump_card(read_card(data).data)),
        "card": whole(card, lambda data, _: card_html(data.decode("utf-8", "replace"), "a/b", "f" * 40)),
        "probe": whole(probe, lambda data, _: draw_probe(parse_probe(data))),
        "run file": whole(run, from_file(load_run, "configuration.yaml")),
        "onnx": whole(stock().SerializeToString(), lambda data, _: parse_model(data, ARENA_RULES)),
        "policy": zipped(policy(), from_file(read_policy, "a.npz")),
        "checkpoint": zipped(checkpoint(), experiment(options=OPTIONS)),
        "options": whole(OPTIONS, experiment(checkpoint=checkpoint())),
        "demonstration": whole(demonstration(), from_file(lambda path: read_demonstrations(path, SHOWN), "a.demo")),
        "replay": replay(),
        "actions": Incoming(
            (zlib.decompress(ACTIONS, wbits=-15),),
            lambda data, _: decode_actions(data, layout_of("SoccerTwos"), 100),
            lambda parts: deflated(parts[0]),
        ),
        "record": whole(
            record(1).to_json().encode(), lambda data, _: LogRecord.from_json(data.decode("utf-8", "replace"))
        ),
        "report": reported(),
        "start": whole(
            b'{"blue":"palus/random","purple":"palus/random","env":"SoccerTwos","seed":1,"person":0}',
            lambda data, _: Start.model_validate_json(data),
        ),
        "word": whole(b'{"type":"act","choice":[0,1,2]}', lambda data, _: _Message.model_validate_json(data)),
    }


_watched: list[tuple[str, str]] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is not None and event in (
        "subprocess.Popen",
        "os.system",
        "socket.connect",
        "sqlite3.connect",
        "open",
        "os.exec",
    ):
        _watched.append((event, str(arguments[0])))


sys.addaudithook(_hook)


class _Finder:
    """Finds no module, and notes what was looked for."""

    def find_spec(self, name: str, *_: object) -> None:
        if _watched is not None:
            _watched.append(("import", name))


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """What happens outside of memory while the block runs."""
    global _watched
    _watched = seen = []
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield seen
    finally:
        _watched = None
        sys.meta_path.remove(finder)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", list(readers()))
def test_nothing_that_comes_in_is_more_than_refused(what: str, tmp_path: Path) -> None:
    hammer(what, tmp_path, TRIES, seed=1)


def test_what_was_found_once_stays_found(tmp_path: Path) -> None:
    levels = "\n".join(f"a{level + 1}: &a{level + 1} [{f'*a{level},' * 9}]" for level in range(12))
    patched = bytearray(checkpoint())
    patched[patched.index(b"PK\x01\x02") + 8] |= 0x20  # "compressed patched data"
    torn = zipped(checkpoint(), lambda *_: None)
    for what, data in (
        ("run file", b"[" * 3000),
        ("run file", f"a0: &a0 x\n{levels}".encode()),
        ("record", readers()["record"].example.replace(b'"score":[1,0]', b'"score":[]')),
        ("checkpoint", bytes(patched)),
        (
            "checkpoint",
            torn.pack([part[:-1] if part == torch.ones(3).numpy().tobytes() else part for part in torn.parts]),
        ),
        ("checkpoint", checkpoint(weight=torch.ones(1).expand(100_000))),  # a file of a kilobyte, memory without end
        ("options", b'{"env":' * 3000),
    ):
        with pytest.raises(PalusError):
            readers()[what].read(data, tmp_path)
    readers()["checkpoint"].read(checkpoint(name=1), tmp_path)
    tracemalloc.start()
    far = [part.replace(b"q\x01}", b"r\xff\xff\xff\x00}") for part in torn.parts]  # "this is object 16777215"
    readers()["checkpoint"].read(torn.pack(far), tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert far[0] != torn.parts[0] and peak < 50e6


def hammer(what: str, folder: Path, tries: int, seed: int) -> None:
    """Read so many changed examples. By hand with many more, for another seed."""
    incoming = readers()[what]
    rng = random.Random(f"{what} {seed}")
    incoming.read(incoming.example, folder)  # accepted; and what the reader itself needs is imported now
    with watched() as seen:
        for _ in range(tries):
            data = incoming.changed(rng)
            try:
                incoming.read(data, folder)
            except (PalusError, ValidationError):
                pass
            except Exception as error:
                raise AssertionError(f"{what}: {data[:3000]!r}") from error
    own = (
        str(folder),
        str(Path(sys.prefix)),
        str(Path(sys.base_prefix)),
        "/usr/lib",
        "/dev/null",
        "<string>",  # where Python 3.13 looks for the source of a dataclass's code, to show a line of it
        str(Path(__file__).parents[1]),
    )
    allowed = {"open": lambda of: of.startswith(own) or of.isdigit(), "import": lambda of: of.startswith("encodings.")}
    assert not [(event, of) for event, of in seen if not (event in allowed and allowed[event](of))]
