"""Workers over HTTP, on a real server: what a runner's token allows and nothing else; `palus worker` as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from processes import children, eventually
from sqlalchemy import delete, event, func, select, update
from sqlalchemy.exc import OperationalError

from palus.arena.jobs.remote import HttpSource
from palus.arena.jobs.reports import ValidationReport, to_json
from palus.arena.jobs.worker import play_order, work
from palus.arena.ladder import queue
from palus.arena.ladder.audit import reinstate
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.log import LogRecord, check_chain
from palus.arena.ladder.match_files import read_replay
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import GREETING_MS, untended
from palus.arena.locked.unit import Unit
from palus.arena.models.refusal import Refusal
from palus.errors import ArenaError, LeaseError, StorageAwayError, StorageError, UnreachableError
from palus.hub.accounts import create_account, issue_token
from palus.hub.limits import HubLimits
from palus.hub.server.router import include_hub
from palus.store import BlobStore, Store, open_store
from palus.store.engine import now_ms
from palus.store.tables import annulments, jobs, matches, workers
from palus.web import worker_api
from palus.web.security import install_faults
from palus.web.worker_api import Finished, Pauses, make_worker_router

SETTINGS = ArenaSettings(target_half_width=0.0)


@dataclass(frozen=True)
class Served:
    """An arena on loopback. tokens: by scope."""

    store: Store
    scheduler: Scheduler
    url: str
    tokens: dict[str, str]
    sources: list[HttpSource] = field(default_factory=list)

    def source(self, scope: str = "runner", worker: str = "pc", **about: object) -> HttpSource:
        self.sources.append(HttpSource(self.url, self.tokens[scope], worker, {"platform": "test", **about}))
        return self.sources[-1]

    def post(self, path: str, body: Any, token: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token or self.tokens['runner']}", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/worker/{path}", data, headers)) as got:
                return got.status, json.loads(got.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path / "arena")
    with store.write() as connection:
        create_account(connection, "lab")
        tokens = {scope: issue_token(connection, "lab", scope, (scope,)) for scope in ("runner", "trusted", "write")}
    model = tmp_path / "pool" / "ann" / "mine" / "SoccerTwos.onnx"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"not a model, but somebody's")
    pool = FolderPool(tmp_path / "pool", store.blobs)
    sweeps = [PeriodicSweep(sweep_house, 1e9), PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]
    scheduler = Scheduler(store, SETTINGS, sweeps, seed=1)
    scheduler.tick()
    app = FastAPI()
    install_faults(app, tmp_path)
    app.include_router(make_worker_router(store, SETTINGS))
    include_hub(app, store, HubLimits())
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who comes before the server is up waits for it
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    served = Served(store, scheduler, f"http://127.0.0.1:{listener.getsockname()[1]}", tokens)
    yield served
    for source in served.sources:
        source.close()
    server.should_exit = True
    thread.join()
    listener.close()
    store.close()


def test_a_remote_worker_validates_and_plays_and_its_results_are_in_the_log(served: Served) -> None:
    assert work(served.source("trusted"), threading.Event(), max_jobs=3) == 3
    served.scheduler.link()
    with served.store.read() as connection:
        assert check_chain(connection) == 4
        rows = [LogRecord.from_json(line) for line in connection.scalars(select(matches.c.record))]
        assert {row.runner.worker for row in rows} == {"lab/pc"}
        assert {row.runner.platform for row in rows} == {"test"}
        assert all(read_replay(served.store, row) for row in rows if row.actions)
        assert connection.execute(select(workers.c.matches)).scalar_one() == 4


def test_a_runner_reads_the_models_of_jobs_that_it_holds_and_no_other_bytes(served: Served) -> None:
    source, secret = served.source("trusted"), served.store.blobs.put(b"a private file").sha256
    (lease,) = source.take()
    assert lease.kind == "validate"
    model = lease.payload["contender"]["sha256"]
    with served.store.write() as connection:
        other = issue_token(connection, "lab-2", "pc", ("runner", "trusted"))
    stranger = HttpSource(served.url, other, "pc", {})
    served.sources.append(stranger)
    assert source.model(model) == b"not a model, but somebody's"
    for asking, sha256 in ((source, secret), (stranger, model)):
        with pytest.raises(ArenaError, match="404: No job that you hold"):
            asking.model(sha256)
    source.give_back(lease, "not here")
    with pytest.raises(ArenaError, match="404"):
        served.source("trusted", "later").model(model)


def test_only_runner_tokens_are_let_in(served: Served) -> None:
    with pytest.raises(ArenaError, match="403: The token 'write' may not run matches"):
        served.source("write")
    assert served.post("hello", {"worker": "pc", "about": {}}, token="nonsense")[0] == 401
    with pytest.raises(ArenaError, match="cannot be reached"):
        HttpSource("http://127.0.0.1:1", "palus_x", "pc", {})


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


def test_what_nobody_could_check_later_goes_to_trusted_workers_alone(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with served.store.write() as connection:
        duels = {key: (99, {"env": "doom_duel"}) for key in ("one", "two")}
        queue.enqueue(connection, "pair", duels, now_ms=1)
    games = ["SoccerTwos", "doom_duel"]
    stranger, friend = (served.source(scope, scope, games=games) for scope in ("runner", "trusted"))
    assert (stranger.trusted, friend.trusted) == (False, True)
    given = stranger.take(9)
    assert len(given) == 3 and {(lease.kind, lease.payload["env"]) for lease in given} == {("pair", "SoccerTwos")}
    assert "wait for a worker" not in caplog.text  # a trusted one said hello just now
    assert stranger.take() == []
    assert [(lease.kind, lease.payload["env"]) for lease in friend.take(3)] == [
        ("pair", "doom_duel"),
        ("pair", "doom_duel"),
        ("validate", "SoccerTwos"),
    ]
    assert friend.take() == []


def test_what_a_worker_says_is_kept_without_what_no_database_takes(served: Served) -> None:
    source = served.source()
    (lease,) = source.take(1)
    source.give_back(lease, "broken\0 engine")
    with served.store.read() as connection:
        assert connection.scalar(select(jobs.c.fault).where(jobs.c.id == lease.job_id)) == "lab: broken engine"


def test_pairs_that_strangers_give_back_are_played_by_a_trusted_worker(served: Served) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    stranger = served.source()
    while leases := stranger.take(3):
        for lease in leases:
            stranger.give_back(lease, "I would lose")
    with served.store.read() as connection:
        assert set(connection.scalars(select(jobs.c.state))) == {"ready"}
    assert work(served.source("trusted"), threading.Event(), max_jobs=3) == 3


def test_jobs_that_wait_for_a_trusted_worker_in_vain_are_told(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    stranger = served.source()
    assert [len(stranger.take(100)) for _ in range(3)] == [3, 0, 0]
    sentence = "Jobs wait for a worker that this arena trusts, and none is there: 1 of SoccerTwos."
    assert caplog.text.count(sentence) == 1 and "palus account add NAME --scope trusted" in caplog.text
    with served.store.read() as connection:
        assert (untended(connection, now_ms()) or "").startswith(sentence)
    assert served.source("trusted").take()
    with served.store.write() as connection:
        assert untended(connection, now_ms()) is None
        queue.enqueue(connection, "validate", {"v": (0, {"env": "SoccerTwos"})}, now_ms=1)
        connection.execute(update(workers).values(last_seen_ms=1))
        assert untended(connection, now_ms()) is None  # it is busy
        connection.execute(update(jobs).values(lease_until_ms=1))
        assert untended(connection, now_ms()) is not None


def test_an_idle_worker_s_question_writes_nothing(served: Served) -> None:
    source = served.source("trusted")
    with served.store.write() as connection:
        connection.execute(delete(jobs))
    written: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        written.extend(word for word in ("BEGIN IMMEDIATE", "UPDATE", "INSERT") if statement.startswith(word))

    event.listen(served.store.engine, "before_cursor_execute", note)
    assert [source.take() for _ in range(3)] == [[]] * 3 and written == []
    with served.store.write() as connection:
        connection.execute(update(workers).values(last_seen_ms=now_ms() - GREETING_MS))
    written.clear()
    assert source.take() == [] and written == ["BEGIN IMMEDIATE", "UPDATE"], "now and then it says that it is there"


def test_an_idle_worker_s_question_takes_two_turns_of_a_connection_and_one_more_to_say_that_it_is_there(
    served: Served,
) -> None:
    source = served.source()
    with served.store.write() as connection:
        connection.execute(delete(jobs))
    turns: list[str] = []
    event.listen(served.store.engine, "checkout", lambda *_: turns.append(threading.current_thread().name))
    assert source.take() == [] and len(turns) == 2, "whose token, and whether something waits"
    with served.store.write() as connection:
        connection.execute(update(workers).values(last_seen_ms=now_ms() - GREETING_MS))
    turns.clear()
    assert source.take() == [] and len(turns) == 3


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


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Of an instant: whoever asks, on a busy machine too, asks at the same time."""
    monkeypatch.setattr(worker_api, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    return Pauses()


def test_idle_workers_ask_one_after_another_however_many_they_are(pauses: Pauses) -> None:
    given = [pauses.next_s("lab") for _ in range(2000)]
    assert given == sorted(given)
    assert [given[0], given[500], given[-1]] == pytest.approx([0.5, 20.5, 40.0])


def test_an_account_that_asks_and_asks_lets_only_itself_wait(pauses: Pauses) -> None:
    assert [pauses.next_s("eve") for _ in range(600)][-1] == pytest.approx(24.46)
    assert [pauses.next_s("lab") for _ in range(3)] == pytest.approx([0.5, 0.58, 0.66])


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


def test_wrong_tokens_are_metered_and_the_right_one_still_works(served: Served) -> None:
    hello = {"worker": "pc", "about": {}}
    codes = [served.post("hello", hello, token=f"palus_{number}")[0] for number in range(40)]
    assert set(codes[:30]) == {401} and codes[-1] == 429
    assert served.post("hello", hello)[0] == 200


def test_nobody_works_in_somebody_elses_name(served: Served) -> None:
    status, answer = served.post("take", {"worker": "local-1", "about": {}})
    assert (status, answer["code"]) == (403, "not_your_worker")
    assert served.source(worker="eve/local-1").worker == "lab/local-1"


def test_a_worker_is_called_account_and_name_so_that_no_account_is_taken_for_several(served: Served) -> None:
    for name in ("lab/1/pc", "lab/", "lab//pc", "lab", "lab/pc/"):
        status, answer = served.post("take", {"worker": name, "about": {}})
        assert (status, answer["code"]) == (403, "not_your_worker"), name
    assert served.post("hello", {"worker": "lab/", "about": {}})[1]["code"] == "no_name"
    assert served.post("take", {"worker": "lab/pc", "about": {}})[0] == 200


def test_a_worker_with_a_long_name_gets_work_or_is_told_that_it_is_too_long(served: Served) -> None:
    assert len(served.source(worker="w" * 64).take()) == 1
    with served.store.write() as connection:
        create_account(connection, "university-of-somewhere-else-again")
        token = issue_token(connection, "university-of-somewhere-else-again", "pc", ("runner",))
    status, answer = served.post("hello", {"worker": "w" * 64, "about": {}}, token)
    assert (status, answer["code"]) == (422, "long_name") and "a worker's name 96 at the most" in answer["error"]


def test_a_lease_that_was_lost_is_told_apart_from_other_refusals(served: Served) -> None:
    source = served.source()
    (lease,) = source.take()
    source.renew([lease])
    with served.store.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == lease.job_id).values(lease_until_ms=1))
    served.scheduler.take_back()
    with pytest.raises(LeaseError):
        source.renew([lease])
    with pytest.raises(LeaseError):
        source.give_back(lease, "too late")


def test_a_false_report_costs_the_account_its_trust_and_an_administrator_gives_it_back(served: Served) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    assert work(served.source(), threading.Event(), max_jobs=1) == 1
    served.scheduler.link()
    source = served.source(worker="two")
    (lease,) = source.take()
    honest = to_json(play_order(source, Unit.from_payload(lease.payload)))
    result = json.loads(honest["games"][0]["result"]) | {"duration_ticks": 10**30}
    honest["games"][0]["result"] = json.dumps(result, separators=(",", ":"), sort_keys=True)

    def report(secret: str) -> dict[str, Any]:
        return {"reports": [{"job": lease.job_id, "secret": secret, "report": honest}]}

    status, _ = served.post("finish", report("0" * 32))
    assert status == 422 and served.source().worker == "lab/pc"  # without its lease nobody is harmed
    status, answer = served.post("finish", report(lease.secret))
    assert (status, answer["code"]) == (422, "false_report")
    assert "duration_ticks" in answer["error"] and answer["error"].endswith("is suspended")
    for path, body in (("finish", report(lease.secret)), ("hello", {"worker": "new", "about": {}})):
        status, answer = served.post(path, body)
        assert (status, answer["code"]) == (403, "suspended") and "false report" in answer["error"]
    with served.store.read() as connection:
        assert [connection.scalar(select(func.count()).select_from(table)) for table in (matches, annulments)] == [2, 2]
    served.scheduler.take_back()
    with served.store.write() as connection:
        assert connection.execute(select(jobs.c.state).where(jobs.c.id == lease.job_id)).scalar() == "ready"
        reinstate(connection, "lab/two")
    assert served.source(worker="new").take()


def test_what_a_stranger_writes_clears_no_terminal_and_adds_no_line_where_its_suspension_is_read(
    served: Served,
) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    source = served.source()
    (lease,) = source.take()
    report = to_json(play_order(source, Unit.from_payload(lease.payload)))
    result = json.loads(report["games"][0]["result"])
    result["sides"][0]["repo"] = "\x1b[2J\x1b]0;owned\x07\nERROR: \u202eenif si lla"
    report["games"][0]["result"] = json.dumps(result, separators=(",", ":"), sort_keys=True)
    body = {"reports": [{"job": lease.job_id, "secret": lease.secret, "report": report}]}
    assert served.post("finish", body)[1]["code"] == "false_report"
    with served.store.read() as connection:
        reason = connection.scalar(select(workers.c.suspended).where(workers.c.name == "lab/pc")) or ""
    assert "?[2J?]0;owned??ERROR: ?enif si lla" in reason and reason.isprintable()


@pytest.mark.parametrize(
    "about",
    [{"platform": ["x"]}, {"platform": "x" * 1000}, {"runtimes": ["numpy"]}, {"runtimes": {"a": {}}}, {"games": "all"}],
)
def test_what_a_worker_says_of_its_machine_has_a_form(served: Served, about: dict[str, Any]) -> None:
    assert served.post("hello", {"worker": "pc", "about": about})[0] == 422


def test_a_worker_with_another_build_of_the_game_is_told_so(served: Served) -> None:
    about = {"games": ["SoccerTwos"], "builds": {"SoccerTwos": "0" * 64}}
    status, answer = served.post("hello", {"worker": "pc", "about": about})
    assert (status, answer["code"]) == (422, "another_build")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("finish", b"{", 422),
        ("finish", {"reports": []}, 422),
        ("finish", {"reports": [{"job": 1, "secret": "0" * 32, "report": {"games": []}}]}, 422),
        ("finish", {"reports": [{"job": 1, "secret": "0" * 32, "report": {}, "more": 1}]}, 422),
        ("finish", {"reports": [{"job": 99, "secret": "0" * 32, "report": {"refusal": None, "trial": None}}]}, 422),
        ("renew", {"jobs": [0], "secret": "0" * 32}, 422),
        ("renew", {"jobs": [1], "secret": "0" * 32}, 409),
        ("give-back", {"job": 1, "secret": "0" * 32, "fault": ""}, 409),
        ("take", {"worker": "lab/pc", "about": {}, "jobs": 1000}, 422),
        ("hello", {"worker": "a b", "about": {}}, 422),
    ],
)
def test_nonsense_is_refused_with_a_sentence(served: Served, path: str, body: Any, status: int) -> None:
    got, answer = served.post(path, body)
    assert got == status
    assert answer["error"].endswith(".") or ";" in answer["error"] or answer["code"]


def test_reports_of_brackets_and_commas_are_not_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(Finished, "model_validate_json", read.append)
    for message in (b"{}," * 60_000, b"[" * 110_000, b"1," * 110_000):
        status, answer = served.post("finish", b'{"reports":[' + message)
        assert (status, answer["code"]) == (413, "too_large") and read == []


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
