"""A copy of a data folder while the arena runs, and the way back.

A backup is a data folder itself: `palus.db`, `blobs/`, the arena's settings and a note `backup.json`. It can be opened
in place. The database of an arena on PostgreSQL is kept as SQLite too, copied row by row from one snapshot, so no
program of PostgreSQL's is needed and a backup moves between both kinds.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from palus import __version__
from palus.errors import StorageError
from palus.files import force, write_bytes, write_text
from palus.store.blobs import BlobStore
from palus.store.depot import Depot
from palus.store.engine import (
    DATABASE_FILE,
    REVISION,
    SETTINGS_FILE,
    far_storage,
    is_current,
    migrate,
    now_ms,
    open_engine,
    open_store,
    sqlite_url,
)
from palus.store.tables import accounts, derived_tables, matches, metadata

NOTE = "backup.json"
INCOMING = f".{DATABASE_FILE}.incoming"
"""The database, until all of it is there."""
_FAR_BLOB = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}")
"""Whatever else lies in a bucket is no blob."""


@dataclass(frozen=True)
class Backup:
    """What a backup holds. blobs, blob_bytes: all of them. copied: blobs that an earlier backup there had not.
    missing: SHA-256 of bytes that the database lists and the blob folder lacked."""

    matches: int
    blobs: int
    blob_bytes: int
    copied: int
    missing: tuple[str, ...]


def back_up(folder: Path, destination: Path, url: str | None = None) -> Backup:
    """Copy the database and the blobs of a data folder; the arena may run on.

    destination: a new or empty folder, or an earlier backup, which is brought up to date. Until the last file is in
    place it still holds the earlier state. Blobs are linked where both folders are on one disk, copied elsewhere.
    Raises StorageError.
    """
    try:
        _check_destination(folder, destination)
        destination.mkdir(parents=True, exist_ok=True)
        # Blobs are written before the rows that name them and removed after. Looked at before and after the database,
        # none that its copy names can be missed.
        copied = _copy_blobs(folder / "blobs", destination / "blobs")
        incoming = destination / INCOMING
        _remove_database(incoming)
        if url is None:
            _copy_sqlite(folder / DATABASE_FILE, incoming)
        else:
            _export(url, incoming)
        copied += _copy_blobs(folder / "blobs", destination / "blobs")
        if (far := far_storage(folder)) is not None:
            copied += _fetch_blobs(far, BlobStore(destination / "blobs", far, most_bytes=math.inf))
        for leftover in ("-wal", "-shm"):  # of somebody who opened the earlier backup; they belong to the old file
            (destination / f"{DATABASE_FILE}{leftover}").unlink(missing_ok=True)
        incoming.replace(destination / DATABASE_FILE)
        _copy_settings(folder, destination)
        made = _take_stock(destination, copied)
        facts = {"made_ms": now_ms(), "palus": __version__, "tables": REVISION}
        facts |= {"matches": made.matches, "blobs": made.blobs, "blob_bytes": made.blob_bytes}
        write_text(destination / NOTE, json.dumps(facts) + "\n")
    except OSError as error:
        raise StorageError(
            f"{destination}: the backup could not be written ({error.strerror or error}); free space or choose another "
            "folder. What was there before is unchanged."
        ) from error
    return made


def restore(backup: Path, folder: Path, url: str | None = None) -> Backup:
    """Make a data folder, and the database that `url` names, from a backup.

    What broke off goes on where it is called again. Raises StorageError when `backup` is none, or when something is
    there already: nothing is ever overwritten.
    """
    if not (backup / NOTE).is_file():
        raise StorageError(
            f"{backup}: no complete backup ({NOTE} is missing); expected a folder that palus backup wrote"
        )
    database = any((folder / name).exists() for name in _files_of(DATABASE_FILE))  # the log of one that was moved, too
    if database or _settings(folder) not in (None, _settings(backup)):
        raise StorageError(f"{folder}: holds a data folder already; name a new folder, or move this one away")
    try:
        copied = _copy_blobs(backup / "blobs", folder / "blobs")
        incoming = folder / INCOMING
        _remove_database(incoming)
        try:
            _copy_sqlite(backup / DATABASE_FILE, incoming)
            copy = create_engine(sqlite_url(incoming), poolclass=NullPool)
            migrate(copy)  # an older backup stays as it is
            _copy_settings(backup, folder)
            if url is None:
                incoming.replace(folder / DATABASE_FILE)
            else:
                _import(copy, folder, url)
        finally:
            _remove_database(incoming)
    except SQLAlchemyError as error:
        raise StorageError(f"the database could not be filled ({str(error).splitlines()[0]})") from error
    except OSError as error:
        raise StorageError(
            f"{folder}: could not be written ({error.strerror or error}); free space, try again"
        ) from error
    return _take_stock(backup, copied)


def _check_destination(folder: Path, destination: Path) -> None:
    if not folder.is_dir():
        raise StorageError(f"{folder}: no such folder; expected the data folder of an arena")
    if destination.resolve() == folder.resolve() or folder.resolve() in destination.resolve().parents:
        raise StorageError(f"{destination}: lies in the data folder itself; choose a folder outside, or another disk")
    there = {path.name for path in destination.iterdir()} if destination.exists() else set()
    begun = {"blobs", DATABASE_FILE, *_files_of(INCOMING), SETTINGS_FILE}
    if NOTE not in there and not there <= begun:  # of a broken-off one
        raise StorageError(f"{destination}: is neither empty nor a backup; choose another folder")


def _remove_database(path: Path) -> None:
    """Remove an SQLite file, and what a kill left beside it."""
    for name in _files_of(path.name):
        path.with_name(name).unlink(missing_ok=True)


def _files_of(database: str) -> list[str]:
    return [database, *(f"{database}-{end}" for end in ("wal", "shm", "journal"))]


def _settings(folder: Path) -> bytes | None:
    """Those that an arena ran with last, of which its derived tables are functions; None where none ever did."""
    return (folder / SETTINGS_FILE).read_bytes() if (folder / SETTINGS_FILE).exists() else None


def _copy_settings(source: Path, target: Path) -> None:
    settings = _settings(source)
    if settings is not None:
        write_bytes(target / SETTINGS_FILE, settings)


def _copy_sqlite(source: Path, target: Path) -> None:
    """One consistent state, by SQLite's online backup; writers are not held up."""
    if not source.is_file():
        raise StorageError(f"{source}: no such database; expected the data folder of an arena (or give --database)")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        address = f"{source.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as live, closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
            (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StorageError(f"{source}: the database is damaged ({verdict}); restore the last good backup")
        with target.open("rb+") as file:
            os.fsync(file.fileno())
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise StorageError(f"{source}: could not be copied to {target.parent} ({error})") from error


def _export(url: str, target: Path) -> None:
    """All rows of a server's database in a new SQLite file."""
    engine, copy = open_engine(url), create_engine(sqlite_url(target), poolclass=NullPool)
    try:
        migrate(copy)
        # REPEATABLE READ is PostgreSQL's snapshot: all tables as they were at one moment.
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as source:
            if not is_current(source):
                raise StorageError(
                    "the database has tables of another palus; start this palus' arena on it once, which brings it up "
                    "to date"
                )
            with copy.begin() as rows:
                _copy_rows(source, rows)
    except SQLAlchemyError as error:
        raise StorageError(f"the database could not be copied ({str(error).splitlines()[0]})") from error
    finally:
        engine.dispose()


def _import(copy: Engine, folder: Path, url: str) -> None:
    """All rows of a database with the present tables in the empty one of a server."""
    with closing(open_store(folder, url)) as store, store.write() as target:
        for table in (accounts, matches):
            if target.execute(select(func.count()).select_from(table)).scalar():
                raise StorageError(f"the database has rows in {table.name} already; name an empty one")
        with copy.connect() as rows:
            _copy_rows(rows, target)


def _copy_blobs(source: Path, target: Path) -> int:
    """Bring over the blobs that are not there yet. Returns how many."""
    copied = 0
    for path in _blob_files(source):
        place = target / path.parent.name / path.name
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)  # blobs are never changed, so both names may share the bytes
        except FileNotFoundError:
            continue  # removed meanwhile, so no row names it
        except OSError:
            incoming = place.with_name(f".incoming-{place.name}")
            shutil.copyfile(path, incoming)
            force(incoming)  # what is there by its name is never copied again
            incoming.replace(place)
        copied += 1
    return copied


def _fetch_blobs(far: Depot, target: BlobStore) -> int:
    """Bring over those that are elsewhere and not there yet. Returns how many."""
    blobs = (name.rpartition("/")[2] for name in far.list() if _FAR_BLOB.fullmatch(name))
    copied = 0
    for sha256 in [sha256 for sha256 in blobs if not target.path(sha256).exists()]:
        try:
            target.local(sha256)
        except StorageError:
            if target.has(sha256):
                raise
            continue  # removed meanwhile
        copied += 1
    return copied


def _blob_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.glob("??/*")) if not path.name.startswith("."))


def _take_stock(folder: Path, copied: int) -> Backup:
    """Count what a backup holds."""
    stored = BlobStore(folder / "blobs")
    sizes = [path.stat().st_size for path in _blob_files(stored.folder)]
    try:
        with closing(sqlite3.connect(folder / DATABASE_FILE)) as database:
            listed = [row[0] for row in database.execute("SELECT sha256 FROM blobs ORDER BY sha256")]
            (played,) = database.execute("SELECT count(*) FROM matches").fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"{folder / DATABASE_FILE}: not the database of an arena ({error})") from error
    missing = tuple(sha256 for sha256 in listed if not stored.has(sha256))
    return Backup(matches=played, blobs=len(sizes), blob_bytes=sum(sizes), copied=copied, missing=missing)


ROWS_AT_ONCE = 1000


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copy every row of every table into the empty tables of `target`.

    source: in one snapshot, or the tables may not fit together. target: in a transaction. Both of this palus.
    """
    for table in metadata.sorted_tables:  # what is referred to comes before what refers to it
        if table is derived_tables:
            continue  # how the target's own tables were made
        rows = source.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE).execute(select(table))
        for some in rows.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in some])
    if target.dialect.name == "postgresql":
        _continue_numbering(target)


def _continue_numbering(connection: Connection) -> None:
    """PostgreSQL numbers new rows from a sequence, which copied numbers do not move."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None:
            continue
        largest = connection.execute(select(func.max(column))).scalar()
        if largest is not None:
            connection.execute(
                text("SELECT setval(pg_get_serial_sequence(:table, :column), :largest)"),
                {"table": table.name, "column": column.name, "largest": largest},
            )
