"""Which process of an arena orders and logs the matches: one at a time, whatever else runs on the same store."""

from __future__ import annotations

import contextlib
from typing import IO

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from palus.files import locked
from palus.store import Store

LOCK_FILE = "arena.lock"
_LOCK = 0x70616C757301  # any constant: names the advisory lock of PostgreSQL


class Charge:
    """A lock that ends with its process: on PostgreSQL a session's, else one on a file of the data folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file: IO[str] | None = None
        self._session: Connection | None = None

    def take(self) -> bool:
        """Whether this process is in charge now. One that was may be no more, when the database ended its session.

        Raises SQLAlchemyError when the database does not answer; nobody is in charge then.
        """
        if self._store.engine.dialect.name == "postgresql":
            return self._take_session()
        if self._file is None:
            file = (self._store.folder / LOCK_FILE).open("w")
            if not locked(file):
                file.close()
                return False
            self._file = file
        return True

    def _take_session(self) -> bool:
        if self._session is not None:
            try:
                self._session.execute(select(1))
                return True
            except SQLAlchemyError:
                self.release()
        session = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        session.detach()  # from the pool: closing it ends it, and the lock with it
        taken = False
        try:
            taken = bool(session.scalar(select(func.pg_try_advisory_lock(_LOCK))))
        finally:
            if not taken:
                session.close()
        self._session = session if taken else None
        return taken

    def release(self) -> None:
        """Let another process be in charge."""
        if self._session is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._session.close()
        if self._file is not None:
            self._file.close()
        self._session = self._file = None
