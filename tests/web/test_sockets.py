"""What one connection may cost all others, below the routes that answer it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from web_server import serving

from palus.store import Store
from palus.web.app import make_app

PATIENCE_S = 20.0
SOCKET = (
    b"GET /api/arena/room/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BODY = (
    b"POST /api/validate-yaml HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
PING, PART = b"\x89\x80\x00\x00\x00\x00", b"\x00\x80\x00\x00\x00\x00"


@contextmanager
def connected(address: str, head: bytes) -> Iterator[socket.socket]:
    url = httpx.URL(address)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as line:
        line.sendall(head)
        yield line


def is_cut_off(line: socket.socket, data: bytes) -> bool:
    """Whether the server ends a connection on which so much is said, within seconds."""
    until_s = time.monotonic() + 3.0
    try:
        line.sendall(data)
        line.settimeout(0.1)
        while time.monotonic() < until_s:
            try:
                if line.recv(4096) == b"":
                    return True
            except TimeoutError:
                pass
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


@pytest.mark.parametrize(("lines", "status"), [(98, 200), (101, 400)])
def test_a_head_of_very_many_lines_is_refused_whichever_request_it_is_of(store: Store, lines: int, status: int) -> None:
    first = b"GET /api/arena/envs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    second = first[:-2] + b"a:b\r\n" * (lines - 2) + b"Connection: close\r\n\r\n"
    for asked in (second, first + second):
        with serving(make_app(store)) as address, connected(address, asked) as line:
            said = b""
            while part := line.recv(1 << 16):
                said += part
            assert said.count(b"HTTP/1.1 200") == asked.count(b"GET") - (status != 200)
            assert said.count(b"HTTP/1.1 400") == (status == 400)


@pytest.mark.parametrize(("crumb", "often"), [(b"1\r\nx\r\n", 100_000), (b"40\r\n" + 64 * b"x" + b"\r\n", 10_000)])
def test_a_body_in_crumbs_is_given_up(store: Store, crumb: bytes, often: int) -> None:
    with serving(make_app(store)) as address, connected(address, BODY) as line:
        assert is_cut_off(line, crumb * often)


def test_a_body_in_a_few_small_pieces_is_read(store: Store) -> None:
    said = b'{"content": "' + b"x" * 150 + b'"}'
    pieces = (b"1\r\n%c\r\n" % byte for byte in said)
    with serving(make_app(store)) as address, connected(address, BODY) as line:
        line.sendall(b"".join(pieces) + b"0\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("frame", [PING, b"\x8a" + PING[1:], PART])
def test_a_socket_that_says_nothing_without_end_is_closed(store: Store, frame: bytes) -> None:
    begun = b"\x01" + PING[1:]  # of a message, to which parts belong
    with serving(make_app(store)) as address, connected(address, SOCKET) as line:
        assert line.recv(12) == b"HTTP/1.1 101"
        assert is_cut_off(line, begun + frame * 1000)


def test_pings_now_and_then_are_answered(store: Store) -> None:
    with serving(make_app(store)) as address, connected(address, SOCKET) as line:
        said = b""
        while b"\r\n\r\n" not in said:
            said += line.recv(4096)
        line.sendall(PING * 50)
        while len(said) - said.index(b"\r\n\r\n") - 4 < 100:
            said += line.recv(4096)
        assert said.endswith(b"\x8a\x00" * 50)
