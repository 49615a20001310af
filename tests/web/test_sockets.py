"""WebSockets of strangers, below the rooms that answer them."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from web_server import serving

from palus.store import Store
from palus.web.app import make_app
from palus.web.connections import SocketLine

PATIENCE_S = 20.0
HEAD = (
    b"GET /api/arena/room/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_answers_to_pings_that_nobody_reads_do_not_pile_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ping = b"\x89\xfd\x00\x00\x00\x00" + b"x" * 125
    kept = [0]
    answered = SocketLine.handle_ping

    def watched(line: SocketLine) -> None:
        answered(line)
        kept.append(line.transport.get_write_buffer_size())

    monkeypatch.setattr(SocketLine, "handle_ping", watched)
    with serving(make_app(store)) as address, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.settimeout(PATIENCE_S)
        parts = urlsplit(address)
        lazy.connect((parts.hostname, parts.port))
        lazy.sendall(HEAD)
        assert lazy.recv(12) == b"HTTP/1.1 101"
        for _ in range(50):
            lazy.sendall(ping * 2000)  # 13 MB in all
    assert len(kept) > 50_000
    assert max(kept) < 1 << 20
