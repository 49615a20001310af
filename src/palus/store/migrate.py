"""Brings a database to the tables that this palus expects: facts by the numbered steps in `migrations/versions/`,
derived ones by their declaration.

To change a table of facts that a release already has: change `tables.py`, add the next file there, raise `REVISION`.
To change a derived one: change `derived.py`. A test compares both with what is made, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from palus.errors import StorageError
from palus.store.derived import outdated, renew

REVISION = "0008"
"""Newest step."""

STEPS = Path(__file__).with_name("migrations")
_POSTGRES_LOCK = 0x70616C7573
"""Any number that no other program takes; this one spells palus."""


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
