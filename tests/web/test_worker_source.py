"""A worker's end of the connection: addresses, what answers without being an arena, what is away, and its process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from processes import children, eventually
from sqlalchemy import delete, event
from sqlalchemy.exc import OperationalError
from worker_server import Served

from palus.arena.jobs.remote import HttpSource
from palus.arena.jobs.reports import ValidationReport
from palus.arena.models.refusal import Refusal
from palus.errors import ArenaError, StorageAwayError, StorageError, UnreachableError
from palus.store import BlobStore
from palus.store.tables import jobs
from palus.web import worker_api


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "lab:8000", "http://lab:80000", "http://lab:8000x", "http://[::1", "http://lab:0"]
)
def test_what_is_no_address_of_an_arena_is_told_before_anything_is_sent(address: str) -> None:
    with pytest.raises(ArenaError, match=re.escape(f"{address}: not an address of an arena; give one like")):
        HttpSource(address, "palus_x", "pc", {})


def test_a_numeric_address_needs_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def away(self: HTTPConnection) -> None:
        asked.append((self.host, self.port))
        raise OSError("away")

    monkeypatch.setattr(HTTPConnection, "connect", away)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        HttpSource("http://[::1]", "palus_x", "pc", {})
    assert asked == [("::1", 80)]


@pytest.mark.parametrize("token", ["", "palus_x\npalus_y", "palus_x\u2026", "hf_x"])
def test_what_is_no_token_is_neither_sent_nor_shown(token: str) -> None:
    with pytest.raises(ArenaError, match="the token has not the form of one; expected one line") as caught:
        HttpSource("http://127.0.0.1:1", token, "pc", {})
    assert "_x" not in str(caught.value)


class _NoArena(BaseHTTPRequestHandler):
    """Answers as it is told, whatever it is asked."""

    status, body, pause_s = 200, b"", 0.0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        step = 1 if self.pause_s else max(len(self.body), 1)
        for k in range(0, len(self.body), step):
            time.sleep(self.pause_s)
            self.wfile.write(self.body[k : k + step])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[tuple[str, type[_NoArena]]]:
    """A server that is no arena: its address, and what it answers."""
    told = type("Told", (_NoArena,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), told) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", told
        server.shutdown()
        thread.join()


NO_ANSWERS = [b"<html>Sign in, please</html>", b'{"ok": true}', b"[]", b"\xff", b'{"worker": 1, "lease_s": 1e999}']


def test_what_answers_without_being_an_arena_is_told_as_such(stranger: tuple[str, type[_NoArena]]) -> None:
    address, told = stranger
    for told.body in NO_ANSWERS:
        with pytest.raises(ArenaError, match="what answers there is no palus arena"):
            HttpSource(address, "palus_x", "pc", {})


def test_an_answer_that_drips_is_not_waited_for(
    stranger: tuple[str, type[_NoArena]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.arena.jobs.remote.ANSWER_S", 0.2)
    address, told = stranger
    told.body, told.pause_s = b'{"worker": "pc", "lease_s": 60, "trusted": false}', 0.05
    with pytest.raises(UnreachableError, match=r"no whole answer after 0\.2 s"):
        HttpSource(address, "palus_x", "pc", {})


def test_a_worker_keeps_its_reports_while_something_else_answers_for_its_arena(
    served: Served, stranger: tuple[str, type[_NoArena]]
) -> None:
    source, (address, told) = served.source("trusted"), stranger
    leases = source.take(2)
    model = next(lease.payload["contender"]["sha256"] for lease in leases if lease.kind == "validate")
    honest, source._base, source._root = (source._base, source._root), address, "/api/worker"
    source.close()
    for told.status, told.body in [*((200, body) for body in NO_ANSWERS), (302, b"")]:
        for ask in (
            lambda: source.take(1),
            lambda: source.model(model),
            lambda: source.finish([(leases[0], ValidationReport(None, {}, None))]),
        ):
            with pytest.raises(UnreachableError):
                ask()
    told.status, told.body = 200, b"<html>"
    with pytest.raises(UnreachableError):
        source.renew(leases)
    source.close()
    source._base, source._root = honest
    assert source.model(model) == b"not a model, but somebody's", "what the other gave was not kept"
    source.renew(leases)


def test_a_connection_that_another_thread_took_meanwhile_is_opened_anew(served: Served) -> None:
    class Taken(list[HTTPConnection]):
        """Seen full, and found empty: the other thread came between."""

        def __bool__(self) -> bool:
            return True

    source = served.source()
    source.close()
    kept, source._kept = source._kept, Taken()
    try:
        assert len(source.take(1)) == 1
    finally:
        kept, source._kept = list(source._kept), kept
        for connection in kept:
            connection.close()


def test_a_worker_keeps_its_connection_and_opens_another_when_the_arena_has_closed_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[HTTPConnection] = []
    connect = HTTPConnection.connect

    def note(self: HTTPConnection) -> None:
        opened.append(self)
        connect(self)

    monkeypatch.setattr(HTTPConnection, "connect", note)
    source = served.source()
    leases = source.take(2)
    source.renew(leases)
    assert len(leases) == 2 and len(opened) == 1
    opened[0].sock.shutdown(socket.SHUT_RDWR)
    source.renew(leases)
    assert len(opened) == 2


def test_a_database_that_is_away_is_told_apart_from_a_refusal(served: Served) -> None:
    source = served.source()

    def away(*_: Any) -> None:
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection unexpectedly"))

    event.listen(served.store.engine, "before_cursor_execute", away)
    with pytest.raises(UnreachableError, match="503: The arena's database does not answer"):
        source.take()


def test_files_that_are_out_of_reach_are_told_apart_from_a_refusal_and_from_those_that_are_gone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = served.source("trusted")
    (lease,) = source.take()
    done = [(lease, ValidationReport(Refusal("bad", "Bad.", "Mend it."), {}, None))]
    sha256 = lease.payload["contender"]["sha256"]

    def fails(error: StorageError) -> Callable[..., bytes]:
        def read(*_: Any, **__: Any) -> bytes:
            raise error

        return read

    monkeypatch.setattr(BlobStore, "read", fails(StorageAwayError("s3://bucket: cannot be reached")))
    monkeypatch.setattr(worker_api, "accept", fails(StorageError("/srv/arena: no space left")))
    for ask in (lambda: source.model(sha256), lambda: source.finish(done)):
        with pytest.raises(UnreachableError, match="503: The arena cannot read or write its files just now") as told:
            ask()
        assert "bucket" not in str(told.value) and "srv" not in str(told.value)
    monkeypatch.setattr(BlobStore, "read", fails(StorageError("blob ab is damaged")))
    with pytest.raises(ArenaError, match="422: the model cannot be read: blob ab is damaged"):
        source.model(sha256)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "end",
    [*(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
)
def test_a_worker_that_a_signal_ends_is_started_again_and_ends_with_its_parent(
    served: Served, tmp_path: Path, end: int
) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs))
    (tmp_path / "lab.token").write_text(served.tokens["runner"])
    command = (sys.executable, "-u", "-m", "palus", "worker", "--arena", served.url, "--token-file", "lab.token")
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    def a_child_other_than(known: int) -> int | None:
        playing = (child for child in children(parent.pid) if child != known)
        return next((c for c in playing if b"--alone" in Path(f"/proc/{c}/cmdline").read_bytes()), None)

    try:
        first = eventually(lambda: a_child_other_than(0), timeout_s=60)
        os.kill(first, signal.SIGSEGV)
        second = eventually(lambda: a_child_other_than(first), timeout_s=60)
        parent.send_signal(end)  # while that one still starts
        said, _ = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == (-end if end == signal.SIGKILL else 0)
    assert "was ended by SIGSEGV" in said and "Starting again in" in said
    eventually(lambda: not Path(f"/proc/{second}").exists(), timeout_s=60)
