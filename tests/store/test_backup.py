"""Backups of stores that are being written to, between both kinds of database, and the way back."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select
from typer.testing import CliRunner

from full_disk import at_most
from palus.arena.ladder.settings import ArenaSettings, settings_of
from palus.cli import app
from palus.errors import StorageError
from palus.store import Store, backup, open_store
from palus.store.backup import back_up, restore
from palus.store.derived import Standing, ratings
from palus.store.engine import SETTINGS_FILE
from palus.store.tables import accounts, blobs, jobs, matches, metadata


def fill(store: Store, first: int, count: int) -> None:
    """Accounts, blobs and matches numbered from `first` on; bytes before the row that names them, as the hub does."""
    for k in range(first, first + count):
        blob = store.blobs.put(f"model {k}".encode() * 100)
        with store.write() as connection:
            connection.execute(
                insert(blobs).values(
                    sha256=blob.sha256, size=blob.size, git_sha1=blob.git_sha1, created_ms=k, pinned=False
                )
            )
            connection.execute(insert(accounts).values(name=f"User{k}", key=f"user{k}", kind="user", created_ms=k))
            connection.execute(insert(matches).values(**match_row(k, blob.sha256)))


def match_row(k: int, sha256: str) -> dict[str, object]:
    return {
        "seq": k, "id": f"m{k}", "unit_id": f"u{k // 2}", "leg": 1 + k % 2, "env": "SoccerTwos", "season": 1,
        "blue": sha256, "purple": "b" * 64, "result": "win1", "rated": True, "worker": "w", "finished_ms": k,
        "record": json.dumps({"event": "Tör ✓", "k": k}), "prev_hash": "0" * 64, "hash": "1" * 64,
    }  # fmt: skip


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.read() as connection:
        return {
            table.name: sorted(tuple(row) for row in connection.execute(select(table)))
            for table in metadata.sorted_tables
        }


def test_a_backup_restores_to_the_same_rows_and_bytes(store: Store, url: str | None, tmp_path: Path) -> None:
    fill(store, 0, 12)
    with store.write() as connection:
        connection.execute(
            insert(ratings).values(
                dict.fromkeys(Standing.model_fields, 1)
                | {
                    "env": "SoccerTwos",
                    "sha256": "a" * 64,
                    "rating": 1234.567890123456,
                    "elo": 0.1,
                    "variance": 2.5,
                    "upto_seq": 11,
                }
            )
        )
    settings = ArenaSettings(envs=("StrikersVsGoalie",), season=7)
    (store.folder / SETTINGS_FILE).write_text(settings.to_json())
    made = back_up(store.folder, tmp_path / "backup", url)
    assert (made.matches, made.blobs, made.copied, made.missing) == (12, 12, 12, ())
    restore(tmp_path / "backup", tmp_path / "again")
    assert settings_of(tmp_path / "backup") == settings_of(tmp_path / "again") == settings
    again = open_store(tmp_path / "again")
    assert everything(again) == everything(store)
    assert again.blobs.read(store.blobs.put(b"model 3" * 100).sha256) == b"model 3" * 100
    again.close()


def test_a_backup_moves_an_arena_to_postgresql(tmp_path: Path, postgres_url: str) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 1, 5)
    back_up(store.folder, tmp_path / "backup")
    before = (tmp_path / "backup" / "palus.db").read_bytes()
    restore(tmp_path / "backup", tmp_path / "server", postgres_url)
    assert (tmp_path / "backup" / "palus.db").read_bytes() == before
    server = open_store(tmp_path / "server", postgres_url)
    assert everything(server) == everything(store)
    with server.write() as connection:  # numbering goes on after the copied rows
        connection.execute(insert(accounts).values(name="New", key="new", kind="user", created_ms=9))
        assert connection.execute(select(func.max(accounts.c.id))).scalar() == 6
        connection.execute(
            insert(jobs).values(kind="pair", key="k", payload="{}", state="ready", priority=0, attempts=0, created_ms=1)
        )
    store.close()
    server.close()
    with pytest.raises(StorageError, match="rows in accounts already"):
        restore(tmp_path / "backup", tmp_path / "other", postgres_url)


def test_a_backup_of_a_busy_store_is_one_moment_of_it(store: Store, url: str | None, tmp_path: Path) -> None:
    fill(store, 0, 5)
    stop = threading.Event()

    def keep_writing() -> None:
        k = 5
        while not stop.is_set():
            fill(store, k, 1)
            k += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        made = [back_up(store.folder, tmp_path / "backup", url) for _ in range(3)]
    finally:
        stop.set()
        writer.join()
    assert [one.missing for one in made] == [(), (), ()]
    copy = open_store(tmp_path / "backup")
    with copy.read() as connection:
        played = connection.execute(select(matches.c.seq).order_by(matches.c.seq)).scalars().all()
        users = connection.execute(select(func.count()).select_from(accounts)).scalar()
        assert list(played) == list(range(made[-1].matches))
        assert users == made[-1].matches >= 5
        for sha256 in connection.execute(select(blobs.c.sha256)).scalars():
            copy.blobs.read(sha256)
    copy.close()


def test_a_later_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 4)
    back_up(store.folder, tmp_path / "backup")
    fill(store, 4, 2)
    assert back_up(store.folder, tmp_path / "backup").copied == 2
    lost = store.blobs.put(b"model 5" * 100).sha256
    store.blobs.remove(lost)
    (tmp_path / "backup" / "blobs" / lost[:2] / lost).unlink()
    assert back_up(store.folder, tmp_path / "backup").missing == (lost,)
    store.close()


def test_a_blob_that_is_removed_after_the_database_was_copied_is_in_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 3)
    gone, copy = store.blobs.put(b"model 1" * 100).sha256, backup._copy_sqlite

    def and_then_remove(source: Path, target: Path) -> None:
        copy(source, target)
        store.blobs.remove(gone)

    monkeypatch.setattr(backup, "_copy_sqlite", and_then_remove)
    made = back_up(store.folder, tmp_path / "backup")
    assert (made.blobs, made.missing) == (3, ())
    store.close()


def test_a_backup_on_another_disk_is_copied_without_what_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 3)
    gone, forced, fsync = store.blobs.put(b"swept").sha256, list[int](), os.fsync

    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link") if source.name != gone else FileNotFoundError

    def noted(number: int) -> None:
        forced.append(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "fsync", noted)
    made = back_up(store.folder, tmp_path / "backup")
    assert (made.blobs, made.copied, made.missing) == (3, 3, ())
    there = [path for path in (tmp_path / "backup" / "blobs").rglob("*") if path.is_file()]
    assert {path.name for path in there} == {hashlib.sha256(path.read_bytes()).hexdigest() for path in there}
    assert {path.stat().st_ino for path in (*there, tmp_path / "backup" / "palus.db")} <= {*forced}, "all on the disk"
    store.close()


def test_what_somebody_who_opened_the_earlier_backup_left_is_not_read_into_the_later_one(tmp_path: Path) -> None:
    """SQLite takes whatever write-ahead log lies beside a database for its own."""
    store = open_store(tmp_path / "data")
    fill(store, 0, 2)
    back_up(store.folder, tmp_path / "backup")
    opened = open_store(tmp_path / "backup")
    with opened.write() as connection:
        connection.execute(insert(accounts).values(name="Eve", key="eve", kind="user", created_ms=1))
    left = {path: path.read_bytes() for path in (tmp_path / "backup").glob("palus.db-*")}
    opened.close()
    assert left.keys() >= {tmp_path / "backup" / "palus.db-wal"}
    for path, data in left.items():  # as where it was killed
        path.write_bytes(data)
    fill(store, 2, 3)
    back_up(store.folder, tmp_path / "backup")
    copy = open_store(tmp_path / "backup")
    assert everything(copy) == everything(store)
    for each in (copy, store):
        each.close()


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 1)
    back_up(store.folder, tmp_path / "backup")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(StorageError, match="neither empty nor a backup"):
        back_up(store.folder, tmp_path / "thesis")
    with pytest.raises(StorageError, match="choose a folder outside"):
        back_up(store.folder, store.folder / "backup")
    with pytest.raises(StorageError, match="holds a data folder already"):
        restore(tmp_path / "backup", store.folder)
    (tmp_path / "served").mkdir()  # the folder of an arena whose database and blobs are elsewhere
    (tmp_path / "served" / SETTINGS_FILE).write_text(ArenaSettings(season=7).to_json())
    with pytest.raises(StorageError, match="holds a data folder already"):
        restore(tmp_path / "backup", tmp_path / "served")
    (tmp_path / "moved").mkdir()  # the database alone was moved away: its log would become that of the restored one
    (tmp_path / "moved" / "palus.db-wal").write_bytes(b"what was written last")
    with pytest.raises(StorageError, match="holds a data folder already"):
        restore(tmp_path / "backup", tmp_path / "moved")
    with pytest.raises(StorageError, match=r"backup\.json is missing"):
        restore(tmp_path / "thesis", tmp_path / "new")
    with pytest.raises(StorageError, match="no such database"):
        back_up(tmp_path / "thesis", tmp_path / "b2")
    with pytest.raises(StorageError, match="no such folder"):
        back_up(tmp_path / "nowhere", tmp_path / "b3")
    store.close()


def test_an_interrupted_first_backup_is_continued(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 2)
    half = tmp_path / "backup"
    (half / "blobs").mkdir(parents=True)
    (half / ".palus.db.incoming").write_bytes(b"half a database")
    (half / ".palus.db.incoming-journal").write_bytes(b"half a journal")
    with pytest.raises(StorageError, match="no complete backup"):
        restore(half, tmp_path / "new")
    assert back_up(store.folder, half).matches == 2
    store.close()


def test_folders_may_have_any_name(store: Store, url: str | None, tmp_path: Path) -> None:
    fill(store, 0, 2)
    odd = tmp_path / "why? 100%41 {x} #1"
    back_up(store.folder, odd / "backup", url)
    assert restore(odd / "backup", odd / "again").matches == 2
    again = open_store(odd / "again")
    assert everything(again) == everything(store)
    again.close()
    assert {path.name for path in tmp_path.iterdir()} == {"data", odd.name}


def test_a_restore_that_broke_off_goes_on(tmp_path: Path, url: str | None) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 2)
    (store.folder / SETTINGS_FILE).write_text(ArenaSettings(season=7).to_json())
    made = back_up(store.folder, tmp_path / "backup")
    new = tmp_path / "new"
    with pytest.raises(StorageError), at_most(1000):  # the blobs are links, and the settings are small
        restore(tmp_path / "backup", new, url)
    assert sum(path.is_file() for path in (new / "blobs").rglob("*")) == 2 and not (new / "palus.db").exists()
    (new / ".palus.db.incoming").write_bytes(b"half a database")  # as where it was killed
    (new / ".palus.db.incoming-wal").write_bytes(b"half a log")
    assert restore(tmp_path / "backup", new, url).matches == made.matches
    assert {path.name for path in new.iterdir()} == {"blobs", SETTINGS_FILE, *(() if url else ("palus.db",))}
    again = open_store(new, url)
    assert everything(again) == everything(store)
    for each in (again, store):
        each.close()


def test_a_damaged_database_is_not_taken_for_a_backup(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 40)
    back_up(store.folder, tmp_path / "backup")
    store.close()
    good = (tmp_path / "backup" / "palus.db").read_bytes()
    with (tmp_path / "data" / "palus.db").open("rb+") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(StorageError, match=r"damaged|could not be copied"):
        back_up(store.folder, tmp_path / "backup")
    assert (tmp_path / "backup" / "palus.db").read_bytes() == good


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    fill(store, 0, 3)
    store.close()
    run = CliRunner().invoke
    done = run(app, ["backup", str(tmp_path / "data"), str(tmp_path / "backup")])
    assert done.exit_code == 0
    assert "holds 3 matches and 3 files (0.0 MB), 3 of them new." in done.output
    done = run(app, ["restore", str(tmp_path / "backup"), str(tmp_path / "new"), "--json"])
    assert json.loads(done.output)["matches"] == 3
    assert run(app, ["restore", str(tmp_path / "backup"), str(tmp_path / "new")]).exit_code == 2
