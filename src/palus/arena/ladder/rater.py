"""The process that rates a large field, so that neither the scheduler nor a page ever waits for a fit.

`python -m palus.arena.ladder.rater` is started by `ladder.service` and is told everything in one line of JSON on its
standard input, as a local worker is. When that ends it is gone at once: whatever it was at is done again.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import begin
from palus.errors import PalusError
from palus.store import Store
from palus.store.derived import ratings
from palus.store.tables import matches

FROM_PLAYERS, FROM_MATCHES = 300, 200_000
"""A smaller field and log are rated in a thread of the arena, within a fraction of a second."""
PAUSE_S = 5.0
"""After something went wrong."""

logger = logging.getLogger(__name__)


def is_large(store: Store) -> bool:
    """Whether an arena's ratings take a process of their own."""
    with store.read() as connection:
        players = connection.scalar(select(func.count()).select_from(ratings)) or 0
        return players >= FROM_PLAYERS or (connection.scalar(select(func.max(matches.c.seq))) or 0) >= FROM_MATCHES


def rate(store: Store, settings: ArenaSettings) -> None:
    """Keep the derived tables up to date, for ever; the longer that takes, the rarer it is done."""
    refresher = Refresher(store, settings)
    while True:
        started = time.monotonic()
        try:
            refresher.refresh()
            spent = time.monotonic() - started
            time.sleep(max(1.0, spent / settings.refresh_share - spent))
        except (PalusError, SQLAlchemyError, OSError) as error:
            logger.error("%s", error)
            time.sleep(PAUSE_S)


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Rate until standard input ends."""
    store, _, settings = begin()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    rate(store, settings)


if __name__ == "__main__":
    main()
