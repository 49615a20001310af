"""How often models were fetched: counted in memory, written together.

A transaction for each download would let anybody who fetches a small model keep all other writers waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from palus.hub import repos
from palus.store import Store

WRITE_EVERY_S = 5.0
_log = logging.getLogger(__name__)


class DownloadCounts:
    """Used from the event loop only. What was not written yet ends with a process that is killed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: Counter[int] = Counter()  # id of the repository -> downloads that the store does not know of
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def count(self, repo_id: int) -> None:
        """One more download of a model; the first after a while is written at once."""
        self._counts[repo_id] += 1
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Write what is left."""
        self._closing.set()
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while self._counts:
            counts, self._counts = self._counts, Counter()
            try:
                await run_in_threadpool(self._add, counts)
            except SQLAlchemyError as error:
                _log.error("downloads wait to be counted: %s", error)
                self._counts.update(counts)
                if self._closing.is_set():
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), WRITE_EVERY_S)

    def _add(self, counts: Counter[int]) -> None:
        with self._store.write() as connection:
            repos.add_downloads(connection, counts)
