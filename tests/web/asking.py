"""An arena on real sockets, and requests to it, whole or in parts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from web_server import serving

from palus.arena.ladder.settings import ArenaSettings
from palus.hub.accounts import create_account, issue_token
from palus.hub.limits import HubLimits
from palus.hub.repos import create_repo
from palus.store import Store
from palus.web.app import make_app
from palus.web.connections import ConnectionLimits
from palus.web.worker_api import make_worker_router

PATIENCE_S = 60


@contextmanager
def arena(store: Store, connections: ConnectionLimits | None = None, **limits: Any) -> Iterator[tuple[str, int]]:
    """An arena with its workers' routes; gives its host and port."""
    app = make_app(store, extra_routers=[make_worker_router(store, ArenaSettings())], **limits)
    with serving(app, connections=connections) as address:
        parts = urlsplit(address)
        assert parts.hostname and parts.port
        yield parts.hostname, parts.port


def say(address: tuple[str, int], data: bytes) -> socket.socket:
    """A connection on which this was said."""
    opened = socket.create_connection(address, timeout=PATIENCE_S)
    opened.sendall(data)
    return opened


def answer(line: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer that comes on a connection."""
    with line, line.makefile("rb") as file:
        status = int(file.readline().split()[1])
        length = 0
        while header := file.readline().strip().lower():
            if header.startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        return status, json.loads(file.read(length))


def ask(address: tuple[str, int], path: str = "/api/arena/envs", **request: Any) -> httpx.Response:
    settings = {"timeout": PATIENCE_S, "trust_env": False} | request
    return httpx.request(settings.pop("method", "GET"), f"http://{address[0]}:{address[1]}{path}", **settings)


def ada_with_a_repository(store: Store) -> str:
    """Make the repository ada/one; gives ada's token."""
    with store.write() as connection:
        account = create_account(connection, "ada")
        create_repo(connection, "model", account, "one", False, HubLimits())
        return issue_token(connection, "ada", "test", ("read", "write"))


def head_of(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()
