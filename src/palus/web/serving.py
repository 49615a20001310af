"""uvicorn as the arena uses it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI

GRACE_S = 5
"""How long requests may finish when the server is told to stop."""


def make_uvicorn(app: FastAPI, proxies: Sequence[str] = ()) -> uvicorn.Server:
    """A server for an application of `make_app`; run it with sockets that listen already.

    proxies: addresses or networks in numbers. What they say of the reader (X-Forwarded-For and -Proto) is believed; by
    default nobody is, not this machine either: requests are counted by the address that they come from.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=GRACE_S,
        ws="websockets-sansio",  # the default one is built on a part of websockets that is going away
    )
    return _Server(config)


class _Server(uvicorn.Server):
    """Ends event streams before it waits for answers to end: they have no end of their own."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything, streams first."""
        app = self.config.app
        assert isinstance(app, FastAPI)
        await app.state.events.close()
        await super().shutdown(sockets)
