"""Opens the database of a data folder, or the one that a URL names, with the tables that this palus expects.

SQLite (write-ahead log) needs no server and is the default; a public arena names PostgreSQL by URL. The blobs lie in
the data folder with both, unless the arena keeps them elsewhere (`BLOBS_FILE`).

Tables of facts follow the numbered steps in `migrations/versions/`. To change one that a release already has: change
`tables.py`, add the next file there, raise `REVISION`. Derived ones follow their declaration in `derived.py`. A test
compares both with what is made, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from palus.errors import StorageError
from palus.files import write_text
from palus.store.blobs import BlobStore
from palus.store.depot import Depot
from palus.store.derived import outdated, renew

DATABASE_FILE = "palus.db"
BLOBS_FILE = "blobs.url"
"""In the data folder of an arena whose blobs are elsewhere: where."""
SETTINGS_FILE = "arena.json"
"""What an arena runs with, or ran with last: derived tables are functions of it too, so whoever recomputes them needs
it."""
BUSY_TIMEOUT_S = 30
REVISION = "0016"
"""Newest step."""

STEPS = Path(__file__).with_name("migrations")
_POSTGRES_LOCK = 0x70616C7573
"""Any number that no other program takes; this one spells palus."""


@dataclass(frozen=True)
class Store:
    """An open database and its blobs. folder: the data folder."""

    engine: Engine
    blobs: BlobStore
    folder: Path

    def read(self) -> Connection:
        """A connection, to be closed by `with`, that sees one consistent state and changes nothing."""
        connection = self.engine.connect()
        if connection.dialect.name == "postgresql":  # which begins a new state with each statement by default
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it is stored when the block ends, nothing of it when the block raises.

        On SQLite writers queue up from the first statement on, so that what a block reads is still true when it writes.
        """
        with self.engine.connect().execution_options(palus_write=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def now_ms() -> int:
    """Milliseconds since 1970 UTC, the unit of every stored time."""
    return time.time_ns() // 1_000_000


def open_store(folder: Path, url: str | None = None, *, create: bool = True, blobs: str | None = None) -> Store:
    """Open the store of a data folder, make it where there is none, and bring its tables up to date.

    url: an SQLAlchemy URL such as postgresql+psycopg://user@host/name; None is SQLite in the folder.
    create: for who only looks at what is there, False.   blobs: URL of the storage of its blobs, or another folder; the
    data folder remembers it, so that it is said once.
    Raises StorageError when it cannot be opened, is not there and may not be made, or was written by a newer palus.
    """
    if not create and not (folder.is_dir() if url else (folder / DATABASE_FILE).is_file()):
        raise StorageError(f"{folder}: no arena has its data there; name the folder that `palus arena` runs with")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be used ({error.strerror}); choose another data folder") from error
    kept = BlobStore(folder / "blobs", far_storage(folder, blobs))
    engine = open_engine(url or sqlite_url(folder / DATABASE_FILE))
    try:
        if not create:
            with engine.connect() as connection:
                if revision_of(connection) is None:
                    raise StorageError("the database holds no arena; name the one that `palus arena` runs with")
        migrate(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise StorageError(
            f"{engine.url.render_as_string(hide_password=True)}: the database cannot be opened "
            f"({str(error).splitlines()[0]}); check the address and that it runs"
        ) from error
    except StorageError:
        engine.dispose()
        raise
    return Store(engine, kept, folder)


def far_storage(folder: Path, wanted: str | None = None) -> Depot | None:
    """Where the blobs of a data folder are, when that is elsewhere. wanted: where they are to be from now on."""
    note, own = folder / BLOBS_FILE, folder / "blobs"
    noted = note.read_text("utf-8").strip() if note.is_file() else None
    if wanted is not None and wanted != noted:
        if noted is not None or any(own.glob("??/*")):
            raise StorageError(
                f"{folder}: the blobs of this arena are in {noted or own}; copy what is there to {wanted}, as it is, "
                f"write that into {note}, and leave --blobs out"
            )
        Depot(wanted)  # or say what is wrong with it
        write_text(note, wanted + "\n")
    return Depot(wanted or noted or "") if wanted or noted else None


def sqlite_url(path: Path) -> str:
    """The address of a file, whatever its name: in one a `?` ends the path, and a `%` is more than itself."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def open_engine(url: str) -> Engine:
    """An engine with our settings, nothing read or written yet. Raises StorageError for an address that is none."""
    try:
        # As many connections as SQLAlchemy allows by default, but kept: it closes all above five after every use.
        kept = {} if url.startswith("sqlite") else {"pool_pre_ping": True, "pool_size": 15, "max_overflow": 0}
        engine = create_engine(url, **kept)
    except (SQLAlchemyError, ImportError) as error:
        # The URL may hold a password, so it is not repeated.
        raise StorageError(
            f"the address of the database cannot be used ({error}); expected something like "
            "postgresql+psycopg://user@host/name, which needs: pip install 'palus[postgres]'"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # sqlite3 would open transactions late and on its own terms
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_S * 1000}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("palus_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def migrate(engine: Engine) -> None:
    """Run the steps that are missing, all or none; processes that open the same database at once wait for each other.

    Raises StorageError when a newer palus has written the database.
    """
    # Nearly always there is nothing to do, and Alembic takes a fifth of a second to import.
    with engine.connect() as connection:
        if is_current(connection):
            return
    with engine.connect().execution_options(palus_write=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _POSTGRES_LOCK})
        if revision_of(connection) != REVISION:
            _upgrade(connection)
        renew(connection)


def is_current(connection: Connection) -> bool:
    """Whether all tables are those that this palus expects."""
    return revision_of(connection) == REVISION and not outdated(connection)


def revision_of(connection: Connection) -> str | None:
    """Newest step that this database has seen; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(STEPS).replace("%", "%%"))
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    found = revision_of(connection)
    if found is not None and found not in known:
        raise StorageError(
            f"the database has tables of version {found}, this palus knows up to {REVISION}: a newer palus wrote it; "
            "update palus, or choose another data folder"
        )
    command.upgrade(config, "head")
