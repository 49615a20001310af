"""Blobs on a real disk: the bytes and nothing else, whatever goes wrong while they come."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palus.errors import StorageError
from palus.store import BlobStore

HELLO = hashlib.sha256(b"hello\n").hexdigest()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_bytes_are_found_by_their_hash_and_known_to_git(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    blob = store.put(b"hello\n")
    assert (blob.sha256, blob.size) == (HELLO, 6)
    assert blob.git_sha1 == "ce013625030ba8dba906f756967f9e9ca394464a"  # printf 'hello\n' | git hash-object --stdin
    assert store.put(b"hello\n") == blob
    assert store.has(HELLO) and store.read(HELLO) == b"hello\n"
    assert files_in(tmp_path) == [HELLO]
    store.remove(HELLO)
    store.remove(HELLO)
    assert not store.has(HELLO)
    assert store.put(b"").size == 0


def test_what_killed_writers_left_goes_and_what_is_still_written_stays(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    left, alive = store.open_writer(), store.open_writer()
    os.utime(left.path, (1.0, 1.0))
    store.sweep_unfinished(3600.0)
    assert files_in(tmp_path) == [alive.path.name]
    for writer in (left, alive):
        writer.discard()


def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"hel"
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError), BlobStore(tmp_path).open_writer() as writer:
        for chunk in chunks():
            writer.write(chunk)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["", "abc", "../../etc/passwd", HELLO.upper(), HELLO + "\n", "g" * 64])
def test_only_hashes_are_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a SHA-256"):
        BlobStore(tmp_path).path(name)


def test_damaged_and_lost_bytes_are_told_apart_and_never_handed_out(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    store.put(b"hello\n")
    store.path(HELLO).write_bytes(b"hellO\n")
    with pytest.raises(StorageError, match=rf"{HELLO[:12]} is damaged on disk; restore"):
        store.read(HELLO)
    store.remove(HELLO)
    with pytest.raises(StorageError, match=rf"{HELLO[:12]} cannot be read \(No such file"):
        store.read(HELLO)


def test_bytes_are_on_the_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, forced, fsync = BlobStore(tmp_path), list[tuple[int, int, bool]](), os.fsync

    def noted(number: int) -> None:
        seen = os.fstat(number)
        forced.append((seen.st_ino, seen.st_size, store.has(HELLO)))
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    store.put(b"hello\n")
    assert forced == [(store.path(HELLO).stat().st_ino, 6, False)]
    assert store.path(HELLO).stat().st_mode & 0o777 == 0o644  # for the others who serve the folder


FILL_DISK = """
import resource, sys
from pathlib import Path
from palus.errors import StorageError
from palus.store import BlobStore
store = BlobStore(Path(sys.argv[1]))
store.put(b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # Python ignores the signal; the write fails
try:
    store.put(b"x" * 200_000)
except StorageError as error:
    sys.exit(f"refused: {error}")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILL_DISK, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "refused:" in done.stderr and "free space and try again" in done.stderr
    assert files_in(tmp_path) == [hashlib.sha256(b"small").hexdigest()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=str(tmp_path)):
        BlobStore(tmp_path / "blobs").put(b"x")


PUT_MANY = """
import sys
from pathlib import Path
from palus.store import BlobStore
store = BlobStore(Path(sys.argv[1]))
for k in range(50):
    store.put(f"content {k}".encode())
"""


def test_processes_that_store_the_same_bytes_agree(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", PUT_MANY, tmp_path]) for _ in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    names = files_in(tmp_path)
    assert len(names) == 50
    assert all(BlobStore(tmp_path).read(name).startswith(b"content ") for name in names)
