"""Whatever is read from outside, changed at random: refused in our own words, and nothing of it is run, opened or kept.

Insertions are what other programs would act on: imports, paths, attributes, SQL, shells, addresses, numbers without
measure. An audit hook sees every process, connection and file that a reader opens meanwhile; a finder of modules,
asked before all others, every import of what is not there yet (of audit hooks, `importlib.import_module` tells none).
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from palus.arena.log import LogRecord
from palus.arena.replay import decode_replay
from palus.arena.reports import from_json
from palus.arena.runner.actions import decode_actions, encode_actions
from palus.arena.vetting.grammar import parse_model
from palus.arena.vetting.rules import ARENA_RULES
from palus.config.load import load_run
from palus.errors import PalusError
from palus.hub.card import dump_card, read_card
from palus.hub.server.ndjson import CommitReader
from palus.hub.server.shapes import LfsBatch
from palus.league.snapshot import load_snapshot
from palus.run.agent_folder import read_agent_file
from palus.run.safe_pickle import read_tensors
from palus.store import BlobStore
from palus.web.cards import card_html
from palus.web.live import _Message
from palus.web.room import Start

sys.path.append(str(Path(__file__).parent / "arena"))

TRIES = 120
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
    reader = CommitReader(store.open_writer, lambda writer: writer.keep(), 10_000, 10_000)
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


def report(data: bytes, _folder: Path) -> None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):  # as the route refuses it
        return
    if isinstance(body, dict):
        from_json(body)


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def checkpoint() -> bytes:
    file = io.BytesIO()
    torch.save({"model": {"weight": torch.ones(3)}, "train_step": 1, "best": 0.5}, file)
    return file.getvalue()


@cache
def readers() -> dict[str, tuple[bytes, Callable[[bytes, Path], object]]]:
    """By what comes in: an example, and who reads it."""
    from arena_records import record
    from hostile import stock

    line = {"key": "file", "value": {"path": "a/b.txt", "content": base64.b64encode(b"text").decode()}}
    header = {"key": "header", "value": {"summary": "t", "parentCommit": "a" * 40}}
    snapshot = json.dumps({"id": 1, "parent": 0, "behavior": "SoccerTwos", "steps": 5})
    agent = json.dumps({"spec": {"observations": []}, "network_settings": {}, "steps": 1, "metric": None})
    run = b"behaviors:\n  SoccerTwos:\n    trainer_type: poca\n    time_horizon: 64\n    max_steps: 1e6\n"
    card = b"---\ntags: [a, b]\nmodel-index:\n- name: x\n  results: []\n---\n# Card\n![i](a.png) [l](http://a)"
    game = {"result": {"seed": 1}, "replay": "", "actions": ""}
    return {
        "commit": (json.dumps(header).encode() + b"\n" + json.dumps(line).encode(), commit),
        "lfs batch": (
            json.dumps({"operation": "upload", "objects": [{"oid": "a" * 64, "size": 1}]}).encode(),
            lambda data, _: LfsBatch.model_validate_json(data),
        ),
        "front matter": (card, lambda data, _: dump_card(read_card(data).data)),
        "card": (card, lambda data, _: card_html(data.decode("utf-8", "replace"), "a/b", "f" * 40)),
        "run file": (run, from_file(load_run, "configuration.yaml")),
        "onnx": (stock().SerializeToString(), lambda data, _: parse_model(data, ARENA_RULES)),
        "snapshot": (npz(snapshot=np.array(snapshot), w=np.ones(3, np.float32)), from_file(load_snapshot, "a.npz")),
        "agent": (npz(agent=np.array(agent), w=np.ones(3, np.float32)), from_file(read_agent_file, "b.npz")),
        "checkpoint": (checkpoint(), from_file(read_tensors, "c.pth")),
        "replay": (GOLDEN, lambda data, _: decode_replay(data)),
        "actions": (encode_actions(np.zeros((9, 4, 3), np.int8)), lambda data, _: decode_actions(data, 100)),
        "record": (record(1).to_json().encode(), lambda data, _: LogRecord.from_json(data.decode("utf-8", "replace"))),
        "report": (json.dumps({"games": [game], "env": {}, "isolation": "none"}).encode(), report),
        "start": (
            b'{"blue":"palus/random","purple":"palus/random","env":"SoccerTwos","seed":1,"person":0}',
            lambda data, _: Start.model_validate_json(data),
        ),
        "word": (b'{"type":"act","choice":[0,1,2]}', lambda data, _: _Message.model_validate_json(data)),
    }


GOLDEN = base64.b64decode(
    "iVBBTFVTDQoBAEsBAAA8AAAANsOHY3sidGl0bGUiOiJnb2xkZW4iLCJwaXRjaCI6InNvY2Nlci10d29zLzEiLCJmcmFtZV9oeiI6"
    "NTAsInRpY2tzX3Blcl9kZWNpc2lvbiI6NSwicG9zaXRpb25fdW5pdF9tIjowLjAwMSwieWF3X3VuaXRfZGVncmVlcyI6MC4xLCJt"
    "YXRjaGVzIjpbeyJlbnZfaWQiOiJTb2NjZXJUd29zIiwic2VlZCI6IjciLCJuYW1lcyI6WyJhIiwiYiJdLCJzY29yZSI6WzAsMV0s"
    "InJlc3VsdCI6InB1cnBsZSIsInRpY2tzIjoxLCJkZWNpc2lvbnMiOjEsImhhc19wcm9iYWJpbGl0aWVzIjp0cnVlLCJmcmFtZV9i"
    "eXRlcyI6NTYsImV2ZW50cyI6W1sxLCJraWNrIiwwLDJdLFsxLCJnb2FsIiwxLC0xXV19XX37X3Om9oHQfaEOvvu8DbX/a0Dsdr4O"
    "vv81DbX3hR4IfeP7ygcSB7FnaE3XesH+n0P8zxdmbgZR9lAiAAA="
)

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
    for what, data in (
        ("run file", b"[" * 3000),
        ("run file", f"a0: &a0 x\n{levels}".encode()),
        ("record", readers()["record"][0].replace(b'"score":[1,0]', b'"score":[]')),
        ("checkpoint", bytes(patched)),
    ):
        with pytest.raises(PalusError):
            readers()[what][1](data, tmp_path)


def hammer(what: str, folder: Path, tries: int, seed: int) -> None:
    """Read so many changed examples. By hand with many more, for another seed."""
    example, read = readers()[what]
    rng = random.Random(f"{what} {seed}")
    with suppress(PalusError):
        read(example, folder)  # what the reader itself needs is imported now
    with watched() as seen:
        for _ in range(tries):
            data = changed(example, rng)
            try:
                read(data, folder)
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
        str(Path(__file__).parents[1]),
    )
    allowed = {"open": lambda of: of.startswith(own) or of.isdigit(), "import": lambda of: of.startswith("encodings.")}
    assert not [(event, of) for event, of in seen if not (event in allowed and allowed[event](of))]
