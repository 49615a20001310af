"""Keeps a log readable, and the disk empty, whatever strangers send: of what is said again and again, a little."""

from __future__ import annotations

import logging
from collections import Counter

from palus.hub.limits import Buckets

LINES_PER_MINUTE = 20
LOGGERS = ("uvicorn.error", "asyncio", "palus.web.security", "palus.hub.server.route")
"""Those that say something because of a request."""


class LogLimit(logging.Filter):
    """Lets through so many lines a minute of one kind, and says with the next how many it left out."""

    def __init__(self, per_minute: int = LINES_PER_MINUTE) -> None:
        super().__init__()
        self._buckets = Buckets(per_minute / 60, per_minute)
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this line. Its kind is what the program says, without what it fills in."""
        kind = f"{record.name} {record.levelno} {str(record.msg)[:100]}"
        if self._buckets.take(kind) > 0:
            self._left_out[kind] += 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg = f"{record.msg} ({left_out} more like this one were left out)"
        return True


_LIMIT = LogLimit()


def limit_logs() -> None:
    """Attach the limit, once for a process."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_LIMIT)  # does nothing where it is attached already
