"""Commits read in pieces: however the network cuts them, and however wrong they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palus.hub.commits import Message, Put, Remove
from palus.hub.limits import HubLimits
from palus.hub.refusals import InvalidInputError, RefusedRequestError, TooLargeError
from palus.hub.server import ndjson as ndjson_module
from palus.hub.server.ndjson import MAX_CHANGES, CommitReader
from palus.store import BlobStore
from palus.store.blobs import BlobWriter

HEADER = {"key": "header", "value": {"summary": "First", "description": "Push", "parentCommit": "a" * 40}}


def file_line(path: str, data: bytes, content_first: bool = True) -> dict[str, object]:
    content, rest = {"content": base64.b64encode(data).decode()}, {"path": path, "encoding": "base64"}
    return {"key": "file", "value": {**content, **rest} if content_first else {**rest, **content}}


def read(
    store: BlobStore, body: bytes, cuts: list[int], file_bytes: int = 10_000, all_bytes: int = 10_000
) -> tuple[Message, list[Put | Remove]]:
    reader = CommitReader(store.open_writer, keep, HubLimits(file_bytes=file_bytes), all_bytes)
    try:
        edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
        for start, end in pairwise(edges):
            reader.feed(body[start:end])
        return reader.finish()
    finally:
        reader.close()


def keep(writers: Sequence[BlobWriter]) -> None:
    for writer in writers:
        writer.keep()


def ndjson(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@settings(deadline=None, max_examples=60)
@given(cuts=st.lists(st.integers(0, 2**20), max_size=12), data=st.binary(max_size=300), content_first=st.booleans())
def test_a_commit_is_the_same_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], data: bytes, content_first: bool
) -> None:
    store = BlobStore(tmp_path_factory.mktemp("blobs"))
    awkward = 'x"content": "y'  # looks like the start of a content, inside a name
    lines = [
        HEADER,
        file_line("a.bin", data, content_first),
        file_line(awkward, b"z", content_first),
        {"key": "lfsFile", "value": {"path": "l", "algo": "sha256", "oid": "b" * 64, "size": 3}},
        {"key": "deletedFile", "value": {"path": "old"}},
        {"key": "deletedFolder", "value": {"path": "logs/"}},
    ]
    message, (first, second, *rest) = read(store, ndjson(*lines), cuts)
    assert message == Message("First", "Push", "a" * 40)
    assert isinstance(first, Put) and isinstance(second, Put)
    assert (first.path, store.read(first.sha256), second.path) == ("a.bin", data, awkward)
    assert rest == [Put("l", "b" * 64, lfs=True), Remove("old"), Remove("logs", folder=True)]


GOOD = json.dumps(file_line("a", b"abc"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([GOOD], "no header"),
        ([GOOD.replace("YWJj", "YW*j")], "not base64"),
        ([GOOD.replace("YWJj", "YQ==YWJj")], "padding in its middle"),
        ([GOOD.replace("YWJj", "YWJ")], "not base64"),
        ([GOOD.replace('"a"', '"../a"')], "'..' segment"),
        ([GOOD.replace("base64", "utf-8")], "encoding base64"),
        ([GOOD[:-20]], "not JSON"),
        ([GOOD[:42]], "in the middle of a file"),
        ([GOOD.replace('"path"', '"content": "YWJj", "path"')], "two contents"),
        (['{"key": "file", "value": {"path": "a"}}'], "needs a content"),
        (['{"key": "rename", "value": {}}'], "'rename'"),
        (['{"key": "lfsFile", "value": {"path": "a", "oid": "../../etc"}}'], "SHA-256"),
        (["[" * 50_000], "not JSON"),
        (["[]"], "is not {"),
    ],
)
def test_a_malformed_commit_is_refused_and_leaves_nothing(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        read(BlobStore(tmp_path), "\n".join(lines).encode(), [40, 41])
    assert said in str(refusal.value)
    assert list(tmp_path.glob(".incoming-*")) == []


@pytest.mark.parametrize(
    ("file_bytes", "all_bytes", "accepted"), [(100, 200, True), (99, 200, False), (100, 199, False)]
)
def test_bytes_are_counted_while_they_come(tmp_path: Path, file_bytes: int, all_bytes: int, accepted: bool) -> None:
    body = ndjson(HEADER, file_line("a", bytes(100)), file_line("b", bytes(100)))
    if accepted:
        assert len(read(BlobStore(tmp_path), body, [], file_bytes, all_bytes)[1]) == 2
    else:
        with pytest.raises(TooLargeError, match="above what may be sent"):
            read(BlobStore(tmp_path), body, [], file_bytes, all_bytes)


def test_files_are_kept_a_few_together_and_no_more_than_a_repository_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ndjson_module, "KEPT_TOGETHER", 2)
    together = list[int]()

    def watched(writers: Sequence[BlobWriter]) -> None:
        together.append(len(writers))
        keep(writers)

    store, files = BlobStore(tmp_path), [file_line(f"f{number}", b"%d" % number) for number in range(6)]
    with closing(CommitReader(store.open_writer, watched, HubLimits(repo_files=5), 10_000)) as reader:
        reader.feed(ndjson(HEADER, *files[:5], files[4]))
        assert len(reader.finish()[1]) == 6, "one path was put twice"
    assert together == [2, 2, 2] and len(list(tmp_path.glob("??/*"))) == 5
    together.clear()
    full = CommitReader(store.open_writer, watched, HubLimits(repo_files=5), 10_000)
    with pytest.raises(TooLargeError, match="6 files"), closing(full):
        full.feed(ndjson(HEADER, *files))
    assert together == [2, 2] and list(tmp_path.glob(".incoming-*")) == []


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    reader = CommitReader(BlobStore(tmp_path).open_writer, keep, HubLimits(), 10)
    with pytest.raises(TooLargeError, match="longer than 64 KiB"):
        for _ in range(3):
            reader.feed(b"x" * 40_000)


class Watched(bytes):
    """Counts how many of its bytes are copied."""

    copied = 0

    def __getitem__(self, where: Any) -> Any:
        piece = Watched(super().__getitem__(where))
        Watched.copied += len(piece)
        return piece


def test_many_lines_at_once_are_copied_once_each(tmp_path: Path) -> None:
    removes = ({"key": "deletedFile", "value": {"path": str(number)}} for number in range(MAX_CHANGES - 1))
    body = Watched(ndjson(HEADER, file_line("a", b"abc"), *removes))
    reader = CommitReader(BlobStore(tmp_path).open_writer, keep, HubLimits(), 10)
    Watched.copied = 0
    reader.feed(body)
    assert len(reader.finish()[1]) == MAX_CHANGES
    assert Watched.copied <= len(body)


@pytest.mark.parametrize("line", [b"\n", b'{"key": "deletedFile", "value": {"path": "a"}}\n'], ids=["empty", "change"])
def test_lines_are_counted_the_empty_ones_too(tmp_path: Path, line: bytes) -> None:
    assert read(BlobStore(tmp_path), ndjson(HEADER) + line * MAX_CHANGES, [])[0].title == "First"
    with pytest.raises(TooLargeError, match="more than 10000 lines"):
        read(BlobStore(tmp_path), ndjson(HEADER) + line * (MAX_CHANGES + 1), [])


@settings(deadline=None, max_examples=100)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    try:
        read(BlobStore(tmp_path_factory.getbasetemp() / "any"), body, [])
    except RefusedRequestError as refusal:
        assert refusal.status in (400, 413)
