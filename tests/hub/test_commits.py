"""Changes applied to a list of files: what comes out, and what that takes from everybody else who writes."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from web_server import serving

from crowded import Crowded
from palus.hub import commits
from palus.hub.accounts import create_account, issue_token
from palus.hub.card import Card, read_card
from palus.hub.commits import LISTED_BYTES, File, Put, Remove, _apply, list_files
from palus.hub.limits import HubLimits
from palus.hub.refusals import InvalidInputError
from palus.hub.repos import create_repo, find_repo
from palus.hub.server import upload
from palus.hub.server.ndjson import CommitReader
from palus.hub.uploads import keep_uploads
from palus.store import Store
from palus.store.tables import repos
from palus.web.app import make_app

DATA = b"known"
OID = hashlib.sha256(DATA).hexdigest()


def file_of(put: Put) -> File:
    return File(put.path, put.sha256, 1, put.lfs, "")


def one_by_one(before: dict[str, File], changes: list[Put | Remove]) -> dict[str, File]:
    """What changes mean, written down without a thought of time."""
    after = dict(before)
    for change in changes:
        if isinstance(change, Put):
            after[change.path] = file_of(change)
        elif change.folder:
            after = {p: f for p, f in after.items() if change.path and not p.startswith(f"{change.path}/")}
        elif after.pop(change.path, None) is None:
            raise InvalidInputError("not there")
    return after


paths = st.sampled_from(["a", "b", "a/b", "a/c", "a/b/c", "ab/c"])
puts = st.builds(Put, paths, st.sampled_from("12"))
folders = st.builds(Remove, st.sampled_from(["", "a", "a/b", "ab", "c"]), st.just(True))
removes = st.builds(Remove, paths)


@settings(deadline=None, max_examples=300)
@given(before=st.lists(puts), changes=st.lists(st.one_of(puts, puts, folders, removes)))
def test_changes_mean_what_they_mean_one_after_another(before: list[Put], changes: list[Put | Remove]) -> None:
    there = {put.path: file_of(put) for put in before}
    stored = {change: file_of(change) for change in changes if isinstance(change, Put)}
    try:
        expected = one_by_one(there, changes)
    except InvalidInputError:
        with pytest.raises(InvalidInputError, match="no file"):
            _apply(there, changes, stored)
    else:
        assert _apply(there, changes, stored) == expected


def test_a_thousand_files_make_removing_folders_no_slower() -> None:
    changes: list[Put | Remove] = [Remove(f"folder{number}", folder=True) for number in range(5000)]

    def seconds(files: int) -> float:
        before = {f"f{number}": file_of(Put(f"f{number}", "1")) for number in range(files)}
        started = time.thread_time()
        assert len(_apply(before, changes, {})) == files
        return time.thread_time() - started

    assert min(seconds(1000) for _ in range(3)) < 20 * min(seconds(1) for _ in range(3))


@contextmanager
def ada_at_a_hub(store: Store, limits: HubLimits | None = None) -> Iterator[httpx.Client]:
    """A client with ada's token; there are ada/one and ada/two, and the bytes of DATA are hers."""
    with store.write() as connection:
        account = create_account(connection, "ada")
        for name in ("one", "two"):
            create_repo(connection, "model", account, name, False, HubLimits())
        token = issue_token(connection, "ada", "test")
    with store.blobs.open_writer() as writer:
        writer.write(DATA)
        keep_uploads(store, [writer], account.id, HubLimits())
    headers = {"Authorization": f"Bearer {token}"}
    with (
        serving(make_app(store, hub_limits=limits)) as address,
        httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client


def commit(client: httpx.Client, files: int, repo: str = "one") -> httpx.Response:
    values = [{"path": f"f{number}", "algo": "sha256", "oid": OID, "size": len(DATA)} for number in range(files)]
    lines = [{"key": "header", "value": {"summary": "t"}}, *({"key": "lfsFile", "value": value} for value in values)]
    body = "\n".join(map(json.dumps, lines))
    return client.post(f"/api/models/ada/{repo}/commit/main", content=body)


def test_too_many_files_are_refused_before_the_database_is_asked(store: Store) -> None:
    with ada_at_a_hub(store) as client, store.write():  # whoever wants to write waits
        refused = commit(client, HubLimits().repo_files + 1)
    assert refused.status_code == 413 and "1001 files" in refused.json()["error"]


def test_known_bytes_are_looked_up_all_at_once(store: Store) -> None:
    asked: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
    with ada_at_a_hub(store) as client:
        asked.clear()
        assert commit(client, 300).status_code == 200
        assert sum("blobs" in statement for statement in asked) < 10
    with store.read() as connection:
        repo = find_repo(connection, "model", "ada/one")
        assert repo is not None and len(list_files(connection, repo.head)) == 300


def test_the_lists_of_files_count_and_are_not_added_up_anew(store: Store) -> None:
    with ada_at_a_hub(store, HubLimits(repo_bytes=15_000)) as client:
        asked: list[str] = []
        event.listen(store.engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
        answers = [commit(client, 10)]
        for number in range(8):  # a byte each, and a row for every file that is there
            answers.append(client.post("/api/models/ada/one/commit/main", content=file_lines("new", b"%d" % number)))
        statuses = [answer.status_code for answer in answers]
        assert statuses == [200] * 4 + [413] * 5 and "would take" in answers[-1].json()["error"]
        assert not [said for said in asked if "sum(" in said and "commit_files" in said]
    with store.read() as connection:
        used = connection.scalar(select(repos.c.used_bytes).where(repos.c.name == "ada/one"))
    lists = sum(LISTED_BYTES + 2 * 2 for _ in range(40)) + sum(LISTED_BYTES + 2 * 3 for _ in range(3))
    assert used == len(DATA) + 3 + lists, "what was refused takes nothing"


def test_a_card_is_read_while_others_may_write_and_only_when_it_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def watched(readme: bytes) -> Card:
        seen.append(readme)
        with store.write():  # nobody waits for this card
            return read_card(readme)

    def tags() -> list[str]:
        return list(client.get("/api/models/ada/one").json()["tags"])

    monkeypatch.setattr(commits, "read_card", watched)
    with ada_at_a_hub(store) as client:
        path, card = "/api/models/ada/one/commit/main", b"---\ntags: [a]\nlibrary_name: b\n---\n"
        assert client.post(path, content=file_lines("README.md", card)).status_code == 200
        assert (tags(), seen) == (["a", "b"], [card])
        assert client.post(path, content=file_lines("m.onnx", b"m")).status_code == 200
        assert (tags(), seen) == (["a", "b", "onnx"], [card])
        removed = {"key": "deletedFile", "value": {"path": "README.md"}}
        lines = "\n".join(map(json.dumps, [{"key": "header", "value": {"summary": "t"}}, removed]))
        assert client.post(path, content=lines).status_code == 200
        assert (tags(), seen) == (["onnx"], [card])


def test_commits_of_an_account_wait_for_each_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Crowded(upload.reusable, 0.1)
    monkeypatch.setattr(upload, "reusable", counted)
    with ada_at_a_hub(store) as client, ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(commit, client, 1 + number, repo) for number in range(2) for repo in ("one", "two")]
        assert {answer.result().status_code for answer in sent} == {200}
    assert counted.most == 1


def test_commits_that_are_under_way_share_the_quota_of_the_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    class Watched(CommitReader):
        def __init__(self, *what: Any) -> None:
            super().__init__(*what)
            begun.set()

    monkeypatch.setattr(upload, "CommitReader", Watched)
    half = file_lines("half", bytes(9000))
    with ada_at_a_hub(store, HubLimits(day_bytes=18_000)) as client:
        lines = ["POST /api/models/ada/one/commit/main HTTP/1.1", "Host: localhost", f"Content-Length: {len(half)}"]
        head = "\r\n".join([*lines, f"Authorization: {client.headers['Authorization']}", "", ""]).encode()
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as slow:
            slow.sendall(head + half[:-1])
            assert begun.wait(60)
            refused = client.post("/api/models/ada/two/commit/main", content=file_lines("more", b"x" * 9000))
            assert refused.status_code == 413 and "may be sent now" in refused.json()["error"]
            small = client.post("/api/models/ada/two/commit/main", content=file_lines("small", b"x" * 50))
            assert small.status_code == 200
        deadline = time.monotonic() + 60
        while refused.status_code == 413:  # until the server has seen that the other one is gone
            assert time.monotonic() < deadline
            refused = client.post("/api/models/ada/two/commit/main", content=file_lines("more", b"x" * 9000))
        assert refused.status_code == 200


def file_lines(path: str, data: bytes) -> bytes:
    value = {"path": path, "content": base64.b64encode(data).decode(), "encoding": "base64"}
    lines = [{"key": "header", "value": {"summary": "t"}}, {"key": "file", "value": value}]
    return "\n".join(map(json.dumps, lines)).encode()
