"""uvicorn as the arena uses it.

Its log stays readable, and the disk empty, whatever strangers send: of what is said again and again, a little.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from palus.hub.limits import KIB, Buckets, show_bytes
from palus.web.connections import ConnectionLimits, Connections, HttpLine, SocketLine

GRACE_S = 5
"""How long requests may finish when the server is told to stop."""


BACKLOG = 128
"""Connections that the kernel keeps for us, and that we take at once: the limits are looked at in between."""


def make_uvicorn(app: FastAPI, proxies: Sequence[str] = (), limits: ConnectionLimits | None = None) -> uvicorn.Server:
    """A server for an application of `make_app` or `make_watch_app`; run it with sockets that listen already.

    proxies: addresses or networks in numbers. What they say of the reader (X-Forwarded-For and -Proto) is believed; by
    default nobody is, not this machine either: requests are counted by the address that they come from.
    """
    limits = _that_fit(limits or ConnectionLimits())
    seats = {"seats": Connections(limits, proxies)}
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_LIMIT)  # once for a process: does nothing where it is attached already
    config = uvicorn.Config(
        app,
        http=type("Http", (HttpLine,), seats),
        ws=type("Socket", (SocketLine,), seats),
        h11_max_incomplete_event_size=limits.header_bytes,
        ws_max_size=limits.message_bytes,
        backlog=BACKLOG,
        timeout_keep_alive=round(limits.header_s),  # workers and pages come again
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=GRACE_S,
    )
    return _Server(config)


def _that_fit(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits with at most half of the files that this process may open, which is few on some systems."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.connections if files == resource.RLIM_INFINITY else min(limits.connections, files // 2)
    return replace(limits, connections=most, client_connections=min(limits.client_connections, most))


class _Server(uvicorn.Server):
    """Ends event streams before it waits for answers to end: they have no end of their own."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything, streams first."""
        app = self.config.app
        assert isinstance(app, FastAPI)
        if (events := getattr(app.state, "events", None)) is not None:
            await events.close()
        await super().shutdown(sockets)


LINES_PER_MINUTE = 20
LINE_BYTES = 8 * KIB
LOGGERS = (
    *("uvicorn.error", "asyncio", "palus.hub.server.download_counts", "palus.hub.server.route"),
    *("palus.web.events", "palus.web.room", "palus.web.security", "palus.web.worker_api"),
)
"""Those that say something because of a request."""


class LogLimit(logging.Filter):
    """Lets through so many lines a minute of one kind, and says with the next how many it left out. Of a line, and of
    its traceback, it keeps LINE_BYTES: both repeat what strangers sent."""

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
        record.msg, record.args = _cut(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = _cut(logging.Formatter().formatException(record.exc_info))
        return True


def _cut(text: str) -> str:
    """Beginning and end of a text that is too long."""
    data, half = text.encode("utf-8", "backslashreplace"), LINE_BYTES // 2
    if len(data) <= LINE_BYTES:
        return text
    begin, end = (part.decode("utf-8", "ignore") for part in (data[:half], data[-half:]))
    return f"{begin} ... ({show_bytes(len(data) - LINE_BYTES)} left out) ... {end}"


_LIMIT = LogLimit()
