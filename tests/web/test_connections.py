"""Connections that say nothing, never finish or do not read: they are given up, and lock nobody out."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from asking import PATIENCE_S, arena, ask, head_of, say
from processes import eventually
from web_server import serving

from palus.store import Store
from palus.web import events
from palus.web.app import make_app
from palus.web.connections import ConnectionLimits


def is_shut(line: socket.socket) -> bool:
    """Wait until the server closes a connection or says something; tells which."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_open_connections_lock_nobody_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.2)
    limits = ConnectionLimits(connections=20, client_connections=10, header_s=600)
    with arena(store, limits) as address, ExitStack() as stack:
        stream = stack.enter_context(
            httpx.stream("GET", f"http://{address[0]}:{address[1]}/api/arena/events", timeout=PATIENCE_S)
        )
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        half_open = [stack.enter_context(say(address, b"GET / HT")) for _ in range(40)]
        assert ask(address).status_code == 200
        assert is_shut(half_open[0]), "the oldest made room"
        assert next(line for line in lines if line.startswith(":")) == ": still here", "who is served stays"
        del lines


def test_a_request_that_never_comes_is_given_up(store: Store) -> None:
    with arena(store, ConnectionLimits(header_s=0.2)) as address:
        silent, begun = say(address, b""), say(address, b"GET / HTTP/1.1\r\nHost: ")
        with silent, begun:
            assert is_shut(silent) and is_shut(begun)


def test_a_reader_who_does_not_read_is_given_up(store: Store, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_bytes(b"x" * (32 << 20))
    app = make_app(store, site=site)

    def is_closed() -> bool:
        try:
            lazy.send(b"x")
        except OSError:
            return True
        return False

    with serving(app, connections=ConnectionLimits(stall_s=0.5)) as address, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.settimeout(PATIENCE_S)
        parts = urlsplit(address)
        lazy.connect((parts.hostname, parts.port))
        lazy.sendall(head_of("GET", "/"))
        eventually(is_closed, PATIENCE_S)
        assert ask((str(parts.hostname), parts.port or 0), "/api/arena/envs").status_code == 200


def test_sockets_that_say_nothing_make_room_as_other_silent_connections_do(store: Store) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    head = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", key)
    ping = b"\x89\x80\x00\x00\x00\x00"
    with arena(store, ConnectionLimits(connections=3, client_connections=3)) as address, ExitStack() as stack:
        for _ in range(3):
            line = stack.enter_context(say(address, head_of("GET", "/api/arena/room/live", *head)))
            assert line.recv(12) == b"HTTP/1.1 101"
            line.sendall(ping)
        assert ask(address).status_code == 200
