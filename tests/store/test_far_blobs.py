"""Blobs behind a URL: every machine has them, its folder is a copy, and what is damaged or away is told."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from far import s3_server  # noqa: F401

from palus.errors import StorageError
from palus.store import open_store
from palus.store.backup import back_up
from palus.store.blobs import BlobStore
from palus.store.depot import Depot

DATA = os.urandom(3 << 20)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        pytest.importorskip("fsspec", reason="URLs are opened by fsspec, of palus[cluster]")
    if request.param == "s3":
        return f"{request.getfixturevalue('s3_server')}/{tmp_path.name}"
    return {"folder": str(tmp_path / "far"), "memory": f"memory://{tmp_path.name}"}[request.param]


def machine(tmp_path: Path, name: str, place: str) -> BlobStore:
    return BlobStore(tmp_path / name, Depot(place))


def test_what_one_machine_keeps_another_has(tmp_path: Path, place: str) -> None:
    here, there = machine(tmp_path, "here", place), machine(tmp_path, "there", place)
    assert not there.has(SHA256)
    assert here.put(DATA).sha256 == SHA256
    assert there.has(SHA256) and there.read(SHA256) == DATA and there.read_start(SHA256, 5) == DATA[:5]
    assert there.local(SHA256).stat().st_size == len(DATA)
    assert Depot(place).list() == [f"{SHA256[:2]}/{SHA256}"], "called as in a folder, so that either can be copied"
    there.remove(SHA256)
    assert not here.has(SHA256)


def test_many_who_want_a_blob_have_it_brought_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought, fetch = list[str](), Depot.fetch

    def slowly(depot: Depot, name: str, path: Path) -> None:
        brought.append(name)
        time.sleep(0.3)
        fetch(depot, name, path)

    machine(tmp_path, "here", str(tmp_path / "far")).put(DATA)
    there = machine(tmp_path, "there", str(tmp_path / "far"))
    monkeypatch.setattr(Depot, "fetch", slowly)
    with ThreadPoolExecutor(8) as pool:
        assert {path.stat().st_size for path in pool.map(there.local, [SHA256] * 8)} == {len(DATA)}
    assert len(brought) == 1 and not there._bringing


def test_what_is_damaged_or_missing_there_is_not_taken_for_the_blob(tmp_path: Path, place: str) -> None:
    here, there = machine(tmp_path, "here", place), machine(tmp_path, "there", place)
    with pytest.raises(StorageError, match="is not there"):
        there.read(SHA256)
    here.put(DATA)
    Depot(place).replace(f"{SHA256[:2]}/{SHA256}", DATA[:-1])
    with pytest.raises(StorageError, match="is damaged"):
        there.local(SHA256)
    assert not list((tmp_path / "there").rglob("*.*")) and not there.path(SHA256).exists()


def test_nothing_is_visible_when_the_storage_does_not_take_it(tmp_path: Path) -> None:
    far = tmp_path / "far"
    store = machine(tmp_path, "here", str(far))
    far.write_text("a file where a folder is wanted")
    with pytest.raises(StorageError, match="could not be written"):
        store.put(DATA)
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


def test_copies_that_were_not_used_for_long_make_room(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "here", Depot(str(tmp_path / "far")), most_bytes=40)
    old, used, new = (store.put(bytes([k]) * 15).sha256 for k in range(3))
    for sha256, age_s in ((old, 5000), (used, 6000)):
        os.utime(store.path(sha256), (time.time() - age_s,) * 2)
    store.local(used)
    store.put(bytes([9]) * 5)
    assert [store.path(sha256).exists() for sha256 in (old, used, new)] == [False, True, True]
    assert store.read(old) == bytes([0]) * 15


def test_a_copy_that_another_process_removes_meanwhile_disturbs_nobody(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "here", Depot(str(tmp_path / "far")), most_bytes=40)
    (store.folder / "ab").mkdir(parents=True)
    (store.folder / "ab" / ("ab" * 32)).symlink_to("gone")  # is listed, and not there when it is looked at
    assert store.read(store.put(bytes(15)).sha256) == bytes(15)


def test_a_data_folder_remembers_where_its_blobs_are(tmp_path: Path) -> None:
    open_store(tmp_path / "arena", blobs=str(tmp_path / "far")).close()
    store = open_store(tmp_path / "arena")
    sha256 = store.blobs.put(b"model").sha256
    store.close()
    assert (tmp_path / "far" / sha256[:2] / sha256).read_bytes() == b"model"
    with pytest.raises(StorageError, match="the blobs of this arena are in"):
        open_store(tmp_path / "arena", blobs=str(tmp_path / "elsewhere"))
    own = open_store(tmp_path / "own")
    own.blobs.put(b"model")
    own.close()
    with pytest.raises(StorageError, match="copy what is there"):
        open_store(tmp_path / "own", blobs=str(tmp_path / "far"))
    with pytest.raises(StorageError, match="cannot be opened"):
        open_store(tmp_path / "third", blobs="nosuch://bucket")
    open_store(tmp_path / "third").close()


def test_a_backup_takes_the_blobs_alone_and_not_those_that_are_swept_meanwhile(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, far = open_store(tmp_path / "arena", blobs=place), Depot(place)
    kept, swept = (store.blobs.put(data).sha256 for data in (b"kept", b"swept"))
    store.close()
    shutil.rmtree(tmp_path / "arena" / "blobs")
    for name in ("README.txt", f"models/{kept}", f"{kept[:2]}/notes"):
        far.replace(name, b"something else")
    files, sweep = far.list(), f"{swept[:2]}/{swept}"

    def and_then_sweep(depot: Depot, folder: str = "") -> list[str]:
        depot.remove(sweep)
        return files

    monkeypatch.setattr(Depot, "list", and_then_sweep)
    made = back_up(tmp_path / "arena", tmp_path / "copy")
    assert (made.blobs, made.copied, made.missing) == (1, 1, ())
    assert (tmp_path / "copy" / "blobs" / kept[:2] / kept).read_bytes() == b"kept"


def test_a_backup_fails_by_a_blob_that_is_there_and_damaged(tmp_path: Path, place: str) -> None:
    store = open_store(tmp_path / "arena", blobs=place)
    sha256 = store.blobs.put(b"model").sha256
    store.close()
    shutil.rmtree(tmp_path / "arena" / "blobs")
    Depot(place).replace(f"{sha256[:2]}/{sha256}", b"modem")
    with pytest.raises(StorageError, match="is damaged"):
        back_up(tmp_path / "arena", tmp_path / "copy")
