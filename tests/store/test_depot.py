"""Named files on a disk and behind a URL: whole or not at all, never replaced by `create`, never outside."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from flaky_storage import Flaky, flaky  # noqa: F401

from palus.errors import StorageError
from palus.store.depot import Depot


@pytest.fixture(params=["folder", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        pytest.importorskip("fsspec", reason="URLs are opened by fsspec, of palus[cluster]")
    return {"folder": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}[request.param]


def test_files_are_created_once_replaced_listed_and_removed(place: str) -> None:
    depot = Depot(place)
    assert depot.list() == depot.list("book") == []
    assert depot.create("book/ada/1.jsonl", b"one")
    assert not depot.create("book/ada/1.jsonl", b"two")
    assert Depot(place).get("book/ada/1.jsonl") == b"one"  # another process sees the same
    depot.replace("book/ada/1.jsonl", b"three")
    depot.replace("book/bob/seen.json", b"")
    assert depot.get("book/ada/1.jsonl") == b"three"
    assert depot.list() == ["book/ada/1.jsonl", "book/bob/seen.json"]
    assert depot.list("book/bob") == ["book/bob/seen.json"]
    depot.remove("book/ada/1.jsonl")
    depot.remove("book/ada/1.jsonl")
    assert depot.list() == ["book/bob/seen.json"]
    with pytest.raises(StorageError, match=r"book/ada/1.jsonl: is not there"):
        depot.get("book/ada/1.jsonl")


def test_bytes_are_kept_under_their_hash_and_checked(place: str) -> None:
    depot = Depot(place)
    sha256 = depot.put("files", b"weights")
    assert sha256 == hashlib.sha256(b"weights").hexdigest() == depot.put("files", b"weights")
    assert depot.take("files", sha256) == b"weights"
    depot.replace(f"files/{sha256}", b"weight")
    with pytest.raises(StorageError, match="is damaged"):
        depot.take("files", sha256)
    with pytest.raises(ValueError, match="not a SHA-256"):
        depot.take("files", "../secret")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "a/../b", "a//b", ".hidden", "a/", "a\n", "a" * 129])
def test_no_name_leads_out_of_the_place(place: str, name: str) -> None:
    depot = Depot(place)
    for act in (depot.get, depot.remove, partial(depot.create, data=b""), partial(depot.replace, data=b"")):
        with pytest.raises(ValueError, match="not a name of files"):
            act(name)


def test_of_many_who_create_a_file_at_once_one_does(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda k: depot.create("record", b"%d" % k * 10_000), range(32)))
    assert won.count(True) == 1
    assert depot.get("record") == b"%d" % won.index(True) * 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["record"]  # nobody left anything half-written


@pytest.mark.parametrize("written", ["create", "replace", "send"])
def test_bytes_are_on_the_disk_before_they_have_their_name(
    tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot, forced, fsync = Depot(str(tmp_path / "far")), list[tuple[int, int, bool]](), os.fsync
    (tmp_path / "here").write_bytes(b"one")
    record = tmp_path / "far" / "record"

    def noted(number: int) -> None:
        seen = os.fstat(number)
        forced.append((seen.st_ino, seen.st_size, record.exists()))
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    write = {
        "create": partial(depot.create, data=b"one"),
        "replace": partial(depot.replace, data=b"one"),
        "send": partial(depot.send, path=tmp_path / "here"),
    }[written]
    write("record")
    assert forced == [(record.stat().st_ino, 3, False)]
    assert record.stat().st_mode & 0o777 == 0o644  # for the others who share the folder
    assert not depot.create("record", b"two") and len(forced) == 1, "nothing is written for a file that is there"


def test_what_is_being_written_is_not_listed(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    depot.create("book/1.jsonl", b"one")
    (tmp_path / "book" / ".2.jsonl.h1a2").write_bytes(b"tw")  # by another process just now
    assert depot.list() == depot.list("book") == ["book/1.jsonl"]


@pytest.mark.parametrize("written", ["create", "replace"])
def test_what_a_killed_writer_left_goes_an_hour_later(tmp_path: Path, written: str) -> None:
    """Killed where it has its bytes, but no name."""
    script = (
        "import os, signal, sys\nfrom palus.store.depot import Depot\n"
        "os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"Depot(sys.argv[1]).{written}('book/1.jsonl', b'one')"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    (left,) = (tmp_path / "book").iterdir()
    depot = Depot(str(tmp_path))
    assert depot.list() == [] and left.exists()
    os.utime(left, (time.time() - 3700,) * 2)
    assert depot.list("book") == [] and not left.exists()


def test_a_storage_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "cup").write_text("a file where a folder is wanted")
    with pytest.raises(StorageError, match="the storage did not do it"):
        Depot(str(tmp_path / "cup")).create("book/1", b"")
    with pytest.raises(StorageError, match="cannot be opened"):
        Depot("nosuch://bucket")


def test_whatever_is_asked_of_a_storage_that_is_away_says_so(flaky: Flaky, tmp_path: Path) -> None:  # noqa: F811
    depot = Depot(flaky.place)
    depot.create("book/1", b"one")
    (tmp_path / "one").write_bytes(b"one")
    asked = [
        depot.list, partial(depot.list, "book"), partial(depot.get, "book/1"), partial(depot.has, "book/1"),
        partial(depot.create, "book/2", b""), partial(depot.replace, "book/1", b""), partial(depot.remove, "book/1"),
        partial(depot.fetch, "book/1", tmp_path / "two"), partial(depot.send, "book/1", tmp_path / "one"),
    ]  # fmt: skip
    with flaky.gone():
        for ask in asked:
            with pytest.raises(StorageError, match=r"the storage did not do it \(ConnectionError"):
                ask()
    assert depot.list() == ["book/1"]


def test_a_server_that_never_answers_is_asked_a_few_times_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs", reason="s3:// is opened by s3fs, of palus[cluster]")
    monkeypatch.setattr("palus.store.depot.S3_TIMEOUTS_S", {"connect_timeout": 5, "read_timeout": 0.2})
    asked = list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name, value in (("ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}"), ("ACCESS_KEY_ID", "test"),
                            ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "us-east-1")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        threading.Thread(target=lambda: [asked.append(server.accept()[0]) for _ in range(9)], daemon=True).start()
        with pytest.raises(StorageError, match="Timeout"):
            Depot("s3://silent/cup").get("book/1")
    assert 1 <= len(asked) <= 4
    for one in asked:
        one.close()
