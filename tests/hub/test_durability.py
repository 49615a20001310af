"""What a kill, a sweep or a second client can do to repositories: nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hub_server import RunningHub, running_hub
from postgres import postgres_server, postgres_url  # noqa: F401
from sqlalchemy import event, select

from palus.arena.ladder.discovery import sweep_hub
from palus.arena.ladder.entries import take_in
from palus.hub import uploads
from palus.hub.accounts import Account, create_account
from palus.hub.commits import Message, Put, add_commit, list_files
from palus.hub.limits import Buckets, HubLimits
from palus.hub.refusals import TooLargeError
from palus.hub.repos import Repo, create_repo, delete_repo, find_repo, list_repos, read_file
from palus.hub.server.context import Hub
from palus.hub.uploads import Incoming, collect_garbage, day_bytes_left, keep_uploads, pin
from palus.store import Store, open_store
from palus.store.blobs import Blob, BlobWriter
from palus.store.tables import blobs

LIMITS = HubLimits()
PIECE = base64.b64encode(bytes(300_000))
OLD = -1  # ms: what was stored until now is old enough


def header(token: str, length: int) -> bytes:
    lines = ["POST /api/models/ada/one/commit/main HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def push(hub: RunningHub, token: str, files: dict[str, bytes]) -> httpx.Response:
    lines = [{"key": "header", "value": {"summary": "t"}}]
    for path, data in files.items():
        value = {"content": base64.b64encode(data).decode(), "path": path, "encoding": "base64"}
        lines.append({"key": "file", "value": value})
    body = "\n".join(json.dumps(line) for line in lines)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(
        f"{hub.url}/api/models/ada/one/commit/main", content=body, headers=headers, timeout=60, trust_env=False
    )


def files_on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "pieces", [pytest.param(0, marks=pytest.mark.slow), 3, pytest.param(6, marks=pytest.mark.slow)]
)
def test_a_kill_in_the_middle_of_a_push_leaves_the_repository_as_it_was(tmp_path: Path, pieces: int) -> None:
    with running_hub(tmp_path) as hub:
        token = hub.token("ada")
        headers = {"Authorization": f"Bearer {token}"}
        httpx.post(
            f"{hub.url}/api/repos/create", json={"name": "one"}, headers=headers, timeout=60, trust_env=False
        ).raise_for_status()
        assert push(hub, token, {"README.md": b"before"}).status_code == 200
        first = json.dumps({"key": "file", "value": {"content": "eHh4", "path": "a", "encoding": "base64"}}).encode()
        opened = first + b'\n{"key": "file", "value": {"content": "'
        with socket.create_connection(("127.0.0.1", int(hub.url.rsplit(":", 1)[1]))) as connection:
            connection.sendall(header(token, 100_000_000) + opened + PIECE * pieces)
            if pieces:  # the first file is stored, the second half written
                wait_for(lambda: any(name.startswith(".incoming") for name in files_on_disk(hub.store.blobs.folder)))
            hub.kill()
        assert read_file(hub.store, "ada/one", "main", "README.md") == b"before"
        with hub.store.read() as connection_:
            repo = find_repo(connection_, "model", "ada/one")
            assert repo is not None and [file.path for file in list_files(connection_, repo.head)] == ["README.md"]
        hub.start()
        assert push(hub, token, {"a": b"after"}).status_code == 200
        assert read_file(hub.store, "ada/one", "main", "a") == b"after"
        collect_garbage(hub.store, OLD)
        assert len(files_on_disk(hub.store.blobs.folder)) == 2, "README.md and a; what the kill left is swept"


def wait_for(condition: object, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the hub did not write in time"
        time.sleep(0.01)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = open_store(tmp_path, None if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


@pytest.fixture
def ada(store: Store) -> Account:
    with store.write() as connection:
        return create_account(connection, "ada")


def upload(store: Store, account: Account, data: bytes, limits: HubLimits = LIMITS) -> str:
    with store.blobs.open_writer() as writer:
        writer.write(data)
        keep_uploads(store, [writer], account.id, limits)
        return writer.seal().sha256


def make_repo(store: Store, account: Account, name: str, files: dict[str, bytes]) -> Repo:
    changes = [Put(path, upload(store, account, data)) for path, data in files.items()]
    with store.write() as connection:
        repo = create_repo(connection, "model", account, name, False, LIMITS)
        add_commit(connection, store.blobs, repo, changes, Message("t"), account.name, LIMITS)
        found = find_repo(connection, "model", f"{account.name}/{name}")
    assert found is not None
    return found


def test_the_sweep_takes_what_nothing_names_and_nothing_else(store: Store, ada: Account) -> None:
    shared, alone, striker, goalie = b"shared", b"alone", b"strikes", b"keeps"
    entered = {"Striker.onnx": striker, "Goalie.onnx": goalie}
    make_repo(store, ada, "refused", {"SoccerTwos.onnx": b"no model, and never played"})
    first = make_repo(store, ada, "first", {"s": shared, "a": alone, **entered})
    make_repo(store, ada, "second", {"s": shared})
    replay = store.blobs.put(b"a replay, stored by the arena")
    make_repo(store, ada, "third", {"r": b"a replay, stored by the arena"})
    upload(store, ada, b"never committed")
    with store.write() as connection:
        seen = sweep_hub(connection, "StrikersVsGoalie", quiet_since_ms=2**62)
        assert [change.repo for change in take_in(connection, seen, {}, now_ms=1)] == ["ada/first"]
        seen = sweep_hub(connection, "SoccerTwos", quiet_since_ms=2**62)
        assert [change.repo for change in take_in(connection, seen, {}, now_ms=1)] == ["ada/refused"]
        pin(connection, [hashlib.sha256(file).hexdigest() for file in (striker, goalie)])
        delete_repo(connection, first)
        for name in ("ada/refused", "ada/third"):
            repo = find_repo(connection, "model", name)
            assert repo is not None
            delete_repo(connection, repo)
    assert collect_garbage(store) == 0, "for a day everything stays"
    assert collect_garbage(store, OLD) == 3
    with store.read() as connection:
        kept = set(connection.execute(select(blobs.c.sha256)).scalars())
    assert {store.blobs.read(sha256) for sha256 in kept} == {shared, striker, goalie, store.blobs.read(replay.sha256)}
    assert files_on_disk(store.blobs.folder) == kept


def test_a_sweep_lets_others_write_in_between(store: Store, ada: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SWEPT_TOGETHER", 2)
    for number in range(5):
        upload(store, ada, b"%d" % number)
    left: list[int] = []
    event.listen(store.engine, "commit", lambda _: left.append(len(files_on_disk(store.blobs.folder))))
    assert collect_garbage(store, OLD) == 5 and left == [3, 1, 0]


def test_the_database_knows_of_bytes_before_the_folder_shows_them(store: Store, ada: Account) -> None:
    known: list[str] = []

    class WatchedWriter(BlobWriter):
        def keep(self) -> Blob:
            with store.read() as connection:  # what a kill at this instant would leave
                known.extend(connection.execute(select(blobs.c.sha256)).scalars())
            return super().keep()

    with WatchedWriter(store.blobs) as writer:
        writer.write(b"bytes")
        keep_uploads(store, [writer], ada.id, LIMITS)
    assert known == [writer.seal().sha256] and store.blobs.read(known[0]) == b"bytes"


def test_what_a_killed_writer_left_goes_when_it_is_old(store: Store) -> None:
    store.blobs.put(b"kept")
    left = store.blobs.folder / ".incoming-left"
    left.write_bytes(b"half")
    collect_garbage(store)
    assert left.exists()
    os.utime(left, (0, 0))
    collect_garbage(store)
    assert not left.exists()


def test_the_day_quota_counts_what_is_new(store: Store, ada: Account) -> None:
    limits = HubLimits(day_bytes=8192 + 5000 + 500)
    for data in (bytes(5000), bytes(5000), bytes(4096), b"a byte or two take what the disk does"):
        upload(store, ada, data)
    with store.read() as connection:
        assert day_bytes_left(connection, ada.id, limits) == 500
    for data in (bytes(5001), b"x"):
        with pytest.raises(TooLargeError, match="500 bytes more within a day"):
            upload(store, ada, data, limits)
    assert len(files_on_disk(store.blobs.folder)) == 3, "refused bytes leave neither file nor claim"
    incoming = Incoming()
    incoming.take(store, ada.id, 300, limits)
    with pytest.raises(TooLargeError, match="200 bytes more within a day"):
        incoming.take(store, ada.id, 300, limits)
    incoming.give_back(ada.id, 300)
    incoming.take(store, ada.id, 300, limits)


def test_repositories_are_found_by_tags_and_read_by_the_arena(store: Store, ada: Account) -> None:
    card = b"---\ntags: [ML-Agents-SoccerTwos, reinforcement-learning]\nlibrary_name: ml-agents\n---\n"
    made = make_repo(store, ada, "team", {"README.md": card, "SoccerTwos.onnx": b"weights"})
    make_repo(store, ada, "other", {"README.md": b"# nothing"})
    wanted = ("reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos", "onnx")
    with store.read() as connection:
        assert list_repos(connection, tags=wanted) == [made]
        assert [repo.name for repo in list_repos(connection)] == ["ada/other", "ada/team"]
    assert read_file(store, "Ada/Team", made.head, "SoccerTwos.onnx") == b"weights"


def test_an_address_that_one_process_of_a_hub_gives_out_is_good_at_another(store: Store) -> None:
    first, second = Hub(store, HubLimits()), Hub(store, HubLimits())
    assert first.sign("oid", 5) == second.sign("oid", 5) != second.sign("oid", 6)
    assert stat.S_IMODE((store.folder / "upload.key").stat().st_mode) == 0o600


def test_buckets_fill_again() -> None:
    buckets = Buckets(per_s=2.0, burst=3.0)
    assert [buckets.take("a", now_s=0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", now_s=0.0) == 0.0
    assert [buckets.take("a", now_s=1.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    with running_hub(tmp_path, '{"request_burst": 3, "requests_per_s": 0.001}') as hub:
        answers = [httpx.get(f"{hub.url}/api/models", trust_env=False, timeout=60) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) > 900
        headers = {"Authorization": f"Bearer {hub.token('ada')}"}
        assert httpx.get(f"{hub.url}/api/models", headers=headers, trust_env=False, timeout=60).status_code == 200
