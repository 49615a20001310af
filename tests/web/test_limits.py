"""What one client may take of a server: sizes, rates, times and numbers, over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import logging
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from huggingface_hub import HfApi
from sqlalchemy import event, exc, insert, update
from synthetic_arena import SyntheticArena
from web_server import serving

from crowded import Crowded
from palus.arena.ladder.settings import ArenaSettings
from palus.hub import repos
from palus.hub.accounts import create_account, issue_token
from palus.hub.commits import File, Message, write_commit
from palus.hub.limits import Buckets, HubLimits, client_of, show_bytes
from palus.hub.repos import create_repo
from palus.hub.server import context, download_counts, listing, manage
from palus.store import Store, tables
from palus.store.tables import blobs
from palus.web import events, exports, worker_api
from palus.web.api import answers, router
from palus.web.api.answers import Answers
from palus.web.app import WebLimits, make_app
from palus.web.connections import ConnectionLimits
from palus.web.live import RoomLimits
from palus.web.serving import LINE_BYTES, LINES_PER_MINUTE, LOGGERS, LogLimit
from palus.web.worker_api import make_worker_router

PATIENCE_S = 60
DOCS = Path(__file__).parents[2] / "docs" / "arena.md"


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


def is_shut(line: socket.socket) -> bool:
    """Wait until the server closes a connection or says something; tells which."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def head_of(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)


def test_a_body_is_refused_by_its_announced_size_on_every_route(store: Store) -> None:
    """Nothing of the body is sent here: an answer that came proves that nobody waited for it."""
    with arena(store) as address:
        paths = ask(address, "/openapi.json").json()["paths"]
        taking = [(m.upper(), p) for p, methods in paths.items() for m, of in methods.items() if "requestBody" in of]
        assert ("POST", "/api/worker/hello") in taking and ("PUT", "/api/lfs/{oid}") in taking and len(taking) >= 12
        for method, path in [*taking, ("GET", "/"), ("DELETE", "/no/such/place")]:
            limit = HubLimits().lfs_bytes if "/lfs/{oid}" in path else 2 << 30 if "/commit/" in path else 16 << 20
            head = head_of(method, path.replace("{", "").replace("}", ""), f"Content-Length: {limit + 1}")
            assert answer(say(address, head))[0] == 413, (method, path)


def test_a_body_of_unknown_size_is_refused_as_soon_as_it_is_too_large(store: Store) -> None:
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with arena(store) as address:
        for path, chunks in (("/api/worker/hello", 3), ("/api/validate-yaml", 33)):
            head = head_of("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked")
            status, fault = answer(say(address, head + chunk * chunks))
            assert (status, fault["code"]) == (413, "too_large")
            assert "is larger than" in fault["error"]


def test_a_body_that_trickles_in_is_given_up(store: Store) -> None:
    limits = HubLimits(body_grace_s=0.3, body_bytes_per_s=1 << 30)
    head = head_of("POST", "/api/validate-yaml", "Content-Type: application/json", "Content-Length: 1000")
    with arena(store, hub_limits=limits) as address:
        assert answer(say(address, head + b'{"content"'))[0] == 408
        assert ask(address).status_code == 200


def test_a_large_upload_still_streams(store: Store) -> None:
    token = ada_with_a_repository(store)
    data = bytes(range(256)) * (24 << 10)  # 6 MiB, above every limit but that of files
    oid = hashlib.sha256(data).hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": len(data)}]}
    with (
        arena(store, hub_limits=HubLimits(body_grace_s=PATIENCE_S)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=PATIENCE_S, trust_env=False) as http,
    ):
        http.headers["Authorization"] = f"Bearer {token}"
        made = http.post("/ada/one.git/info/lfs/objects/batch", json=batch).json()["objects"][0]
        pieces = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
        assert httpx.put(made["actions"]["upload"]["href"], content=pieces, timeout=PATIENCE_S).status_code == 200
        assert store.blobs.read(oid) == data


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
        until(is_closed)
        assert ask((str(parts.hostname), parts.port or 0), "/api/arena/envs").status_code == 200


def test_cards_are_checked_one_at_a_time_and_not_too_often(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Crowded(manage.read_card, 0.02)
    monkeypatch.setattr(manage, "read_card", watched)
    codes: list[int] = []
    with arena(store, hub_limits=HubLimits(cards_per_minute=12)) as (host, port):

        def send() -> None:
            address = f"http://{host}:{port}/api/validate-yaml"
            for _ in range(4):
                codes.append(httpx.post(address, json={"content": "# a"}, timeout=PATIENCE_S).status_code)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ask((host, port)).status_code == 200, "the pages have a bucket of their own"
    assert watched.most == 1
    assert set(codes) == {200, 429} and codes.count(200) in (12, 13)


def test_what_strangers_send_does_not_fill_the_log(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    token = ada_with_a_repository(store)
    with arena(store) as address:
        for _ in range(3 * LINES_PER_MINUTE):
            with say(address, b"\0garbage\r\n\r\n") as line:
                assert b"400" in line.recv(100)
        for path in ("/api/validate-yaml", "/api/models/ada/one/commit/main"):  # uploads that break off
            kind = ("Content-Type: application/json", "Content-Length: 1000", f"Authorization: Bearer {token}")
            for _ in range(5):
                say(address, head_of("POST", path, *kind) + b"{").close()
        assert ask(address).status_code == 200
    written = capfd.readouterr().err
    assert written.count("Invalid HTTP request") <= LINES_PER_MINUTE + 2
    assert "Traceback" not in written and len(written) < 4000


def test_a_quiet_log_says_how_much_it_left_out() -> None:
    limit = LogLimit(per_minute=60)
    logger = logging.Logger("x")
    logger.addFilter(limit)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    for number in range(100):
        logger.warning("line %d", number)
    logger.warning("another")
    assert said[0] == "line 0" and said[-1] == "another" and len(said) < 70
    until(lambda: limit._buckets.take("x 30 line %d") == 0)
    time.sleep(1.1)
    logger.warning("line %d", 7)
    assert re.fullmatch(r"line 7 \(\d+ more like this one were left out\)", said[-1])


def test_whatever_the_server_says_of_requests_is_limited() -> None:
    package = Path(repos.__file__).parents[1]
    said = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for folder in ("web", "hub/server")
        for path in (package / folder).rglob("*.py")
        if "getLogger(__name__)" in path.read_text("utf-8")
    }
    assert "palus.web.room" in said and said <= set(LOGGERS)


def test_a_failure_is_written_once_and_cut(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_what: Any, **_more: Any) -> None:
        raise ValueError("begin " + "\u20ac" * 100_000 + " end")

    monkeypatch.setattr(repos, "list_repos", fail)
    with arena(store) as address:
        assert ask(address, "/api/models").status_code == 500
    written = capfd.readouterr().err
    said = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert said == [("GET '/api/models' failed: ValueError", None)]
    assert written.count("Traceback") == 1
    assert written.rstrip().endswith("\u20ac end") and "KiB left out" in written
    assert len(written.encode()) < 2 * LINE_BYTES


def test_many_tags_of_a_listing_are_refused_with_a_sentence(store: Store) -> None:
    with arena(store) as address:
        tags = [f"t{number}" for number in range(21)]
        assert ask(address, f"/api/models?filter={','.join(tags[:20])}&filter=t1,t1").json() == []
        refused = ask(address, f"/api/models?filter={','.join(tags[:20])}&filter=t20")
        assert (refused.status_code, refused.json()["error"][:19]) == (400, "filter has 21 tags;")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/models?search=%00", 400),
        ("/api/models?author=a%00", 400),
        ("/api/models?filter=a,%00", 400),
        ("/api/models/e%00/a", 404),
        ("/api/arena/models/ada/%00", 404),
        ("/ada/one/resolve/main/%00", 404),
        ("/ada/o%00ne", 404),
    ],
)
def test_a_nul_in_an_address_reaches_no_database(store: Store, path: str, status: int) -> None:
    ada_with_a_repository(store)
    asked: list[str] = []
    with arena(store) as address:
        ask(address)
        event.listen(store.engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
        refused = ask(address, path)
        assert not asked
        assert refused.status_code == status and "NUL (%00)" in refused.json()["error"]
        assert "NUL" not in ask(address, path.replace("%00", "%2500")).text, "a percent sign is none"


def test_buckets_take_little_memory_whoever_asks() -> None:
    buckets = Buckets(per_s=0.001, burst=1)
    for number in range(2 * Buckets.MAX_KEYS):
        buckets.take(str(number), now_s=0.0)
    assert len(buckets._levels) == Buckets.MAX_KEYS
    assert buckets.take(str(2 * Buckets.MAX_KEYS - 1), now_s=0.0) > 0, "the last ones are remembered"


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
    ],
)
def test_a_network_counts_as_one_client(host: str, client: str) -> None:
    assert client_of({"client": (host, 1)}) == client


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


def test_a_crowd_that_waits_for_large_files_keeps_nobody_else_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    SyntheticArena(store).add_entry("ada/one")
    go_on, begun = threading.Event(), []
    write, read = exports.write_table, router.read_match

    def slowly(*what: Any) -> None:
        begun.append("table")
        assert go_on.wait(PATIENCE_S)
        write(*what)

    def slowly_too(*what: Any) -> Any:
        begun.append("match")
        assert go_on.wait(PATIENCE_S)
        return read(*what)

    def counted(file: Any) -> Any:
        return lambda *what: (arrived.append(what), file(*what))[1]

    arrived: list[Any] = []
    for of in (exports.Exports, Answers):
        monkeypatch.setattr(of, "file", counted(of.file))
    monkeypatch.setattr(exports, "write_table", slowly)
    monkeypatch.setattr(router, "read_match", slowly_too)
    for path, status in (("downloads/SoccerTwos/elo.csv", 200), ("matches/ab/page.html", 404)):
        go_on.clear()
        begun.clear()
        arrived.clear()
        with arena(store) as address, ThreadPoolExecutor(50) as crowd:
            waiting = [crowd.submit(ask, address, f"/api/arena/{path}") for _ in range(50)]
            try:
                until(lambda: begun and len(arrived) == 50)
                assert (
                    httpx.get(f"http://{address[0]}:{address[1]}/api/models", timeout=20, trust_env=False).json() == []
                )
            finally:
                go_on.set()
            assert {answer.result().status_code for answer in waiting} == {status}


def test_a_crowd_that_compares_keeps_no_board_waiting_and_is_sent_away_when_it_is_large(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), list[str]()

    def slowly(*_what: Any) -> None:
        begun.append("comparison")
        assert go_on.wait(PATIENCE_S)

    monkeypatch.setattr(router, "compare", slowly)
    monkeypatch.setattr(answers, "MAX_WAITING", 3)
    paths = [f"/api/arena/compare/SoccerTwos/ada/one/bob/m{number}" for number in range(5)]
    with arena(store) as address, ThreadPoolExecutor(5) as crowd:
        try:
            waiting = [crowd.submit(ask, address, path) for path in paths]
            until(lambda: sum(answer.done() for answer in waiting) == 2 and len(begun) == 2)
            for board in ("recent/SoccerTwos", "leaderboard/SoccerTwos", "status"):
                assert ask(address, f"/api/arena/{board}").status_code == 200
        finally:
            go_on.set()
        found = [answer.result() for answer in waiting]
        assert sorted(answer.status_code for answer in found) == [404, 404, 404, 503, 503]
        assert {answer.headers.get("Retry-After") for answer in found} == {None, "5"}
        assert ask(address, paths[0]).status_code == 404


def test_nothing_is_made_for_readers_who_have_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), list[str]()
    read = router.read_match

    def slowly(*what: Any) -> Any:
        begun.append("match")
        assert go_on.wait(PATIENCE_S)
        return read(*what)

    monkeypatch.setattr(router, "read_match", slowly)
    path = "/api/arena/matches/ab/page.html"
    with arena(store) as address:
        try:
            lines = [say(address, head_of("GET", path)) for _ in range(9)]
            until(lambda: len(begun) == 2)
            for line in lines:
                line.close()
            assert ask(address).status_code == 200
        finally:
            go_on.set()
        assert ask(address, path).status_code == 404
        assert len(begun) == 3


def test_reports_that_never_end_take_an_account_s_share_of_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_api, "REPORTS_BYTES", 100_000)
    with store.write() as connection:
        tokens = [issue_token(connection, name, "pc", ("runner",)) for name in ("lab", "eve")]

    def send(token: str) -> socket.socket:
        """All but the end of a message of 60 kB."""
        head = head_of("POST", "/api/worker/finish", f"Authorization: Bearer {token}", "Content-Length: 60000")
        return say(address, head + b" " * 59_999)

    def end(line: socket.socket) -> int:
        with suppress(OSError):  # it is refused already
            line.sendall(b" ")
        return answer(line)[0]

    with arena(store) as address:
        both = [send(tokens[0]), send(tokens[0])]
        [refused], _, _ = select.select(both, [], [], PATIENCE_S)
        status, told = answer(refused)
        assert (status, told["code"]) == (503, "busy") and "reports of lab" in told["error"]
        assert end(send(tokens[1])) == 422, "another account has its own"
        [begun] = {*both} - {refused}
        begun.close()
        until(lambda: end(send(tokens[0])) == 422)


def test_a_reader_whose_body_never_comes_takes_no_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[Any] = []
    file = Answers.file
    monkeypatch.setattr(Answers, "file", lambda *what: (arrived.append(what), file(*what))[1])
    path = "/api/arena/matches/ab/replay"
    with arena(store, hub_limits=HubLimits(body_grace_s=10 * PATIENCE_S)) as address, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(say(address, head_of("GET", path, "Content-Length: 5")))
        until(lambda: len(arrived) == 3)
        assert ask(address, path).status_code == 404


def test_matches_and_their_replays_are_metered_on_their_own(store: Store) -> None:
    with arena(store, limits=WebLimits(matches_per_s=0.001, matches_burst=2)) as address:
        paths = [f"/api/arena/matches/ab{more}" for more in ("", "/page.html", "/replay")]
        assert [ask(address, path).status_code for path in paths] == [404, 404, 429]
        assert ask(address).status_code == 200


def test_comparisons_are_metered_on_their_own(store: Store) -> None:
    with arena(store, limits=WebLimits(comparisons_per_s=0.001, comparisons_burst=2)) as address:
        paths = [f"/api/arena/compare/SoccerTwos/ada/one/bob/m{number}" for number in range(3)]
        assert [ask(address, path).status_code for path in paths] == [404, 404, 429]
        assert ask(address).status_code == 200


def test_lists_of_repositories_are_metered_on_their_own_and_made_a_few_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Crowded(repos.list_repos, 0.05)
    monkeypatch.setattr(repos, "list_repos", watched)
    monkeypatch.setattr(context, "client_of", lambda scope: str(scope["client"]))  # each from an address of its own
    limits = HubLimits(listings_per_s=0.001, listing_burst=10)
    with arena(store, hub_limits=limits) as address, ThreadPoolExecutor(12) as crowd:
        answers = [crowd.submit(ask, address, f"/api/{kind}?full=true") for kind in ("models", "datasets") * 6]
        assert sorted(answer.result().status_code for answer in answers) == [200] * 10 + [429] * 2
        assert ask(address, "/api/models/ada/one").status_code == 401, "one repository is no list"
    assert watched.most == 2


def test_a_list_of_repositories_with_large_cards_has_short_pages(store: Store) -> None:
    card = json.dumps({"pipeline_tag": "reinforcement-learning", "text": "x" * 900_000})
    with store.write() as connection:
        account = create_account(connection, "ada")
        for number in range(5):
            create_repo(connection, "model", account, f"m{number}", False, HubLimits())
        connection.execute(update(tables.repos).values(card=card))
    path, pages = "/api/models", list[list[str]]()
    with arena(store) as address:
        while path:
            answer = ask(address, path)
            assert {model["pipeline_tag"] for model in answer.json()} == {"reinforcement-learning"}
            pages.append([model["id"] for model in answer.json()])
            path = answer.links.get("next", {}).get("url", "").partition(":/")[2].partition("/api")[2]
            path = path and f"/api{path}"
    assert pages == [["ada/m4", "ada/m3", "ada/m2"], ["ada/m1", "ada/m0"]]


def test_paths_are_read_off_the_event_loop_and_only_for_who_may_ask(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, on_loop = listing.parse_qsl, list[bool]()

    def watched(*what: Any, **more: Any) -> Any:
        on_loop.append(asyncio._get_running_loop() is not None)
        return read(*what, **more)

    monkeypatch.setattr(listing, "parse_qsl", watched)
    with store.write() as connection:
        create_repo(connection, "model", create_account(connection, "ada"), "one", False, HubLimits())
    with arena(store) as address:
        form = {"method": "POST", "data": {"paths": ["a"]}}
        assert ask(address, "/api/models/ada/none/paths-info/main", **form).status_code == 401
        assert not on_loop
        assert ask(address, "/api/models/ada/one/paths-info/main", **form).json() == []
    assert on_loop == [False]


def test_a_list_of_repositories_ends_a_page_where_it_is_full_and_goes_on_with_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = store.blobs.put(b"x")
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        account = create_account(connection, "ada")
        for number in range(4):
            made = create_repo(connection, "model", account, f"m{number}", False, HubLimits())
            files = [File(f"{'a' * 100}{file}", blob.sha256, 1, False, blob.git_sha1) for file in range(50)]
            write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)
    path, pages = "/api/models?full=true&limit=4", list[list[str]]()
    with arena(store) as address:
        whole = ask(address, path)
        monkeypatch.setattr(listing, "MAX_PAGE_BYTES", len(whole.content) // 3)
        while path:
            answer = ask(address, path)
            assert len(answer.content) < len(whole.content) * 0.6
            pages.append(answer.json())
            path = answer.links.get("next", {}).get("url", "").partition(":/")[2].partition("/api")[2]
            path = path and f"/api{path}"
    assert [len(page) for page in pages if page] == [2, 2]
    assert [model for page in pages for model in page] == whole.json()
    assert len(whole.json()[3]["siblings"]) == 50


def test_a_tree_comes_in_pages_that_the_library_follows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = store.blobs.put(b"x")
    paths = ["a", "b-c", "b/a", "b/\u00fc?#%20&;>/1", "b/\u00fc?#%20&;>/2", "b/\u00fc?#%20&;>/3", "d/e/f"]
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        made = create_repo(connection, "model", create_account(connection, "ada"), "one", False, HubLimits())
        files = [File(path, blob.sha256, 1, False, blob.git_sha1) for path in paths]
        write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)
    monkeypatch.setenv("NO_PROXY", "*")
    with arena(store) as address:
        api = HfApi(f"http://{address[0]}:{address[1]}", token=False)

        def listed(folder: str | None, recursive: bool) -> list[Any]:
            return list(api.list_repo_tree("ada/one", folder, recursive=recursive))

        asked = [(None, True), (None, False), ("b/\u00fc?#%20&;>", False)]
        whole = [listed(*what) for what in asked]
        monkeypatch.setattr(listing, "MAX_TREE_PAGE", 2)
        first = ask(address, "/api/models/ada/one/tree/main?recursive=true")
        assert [found["path"] for found in first.json()] == ["a", "b"] and first.links["next"]["url"].startswith("http")
        assert [listed(*what) for what in asked] == whole
    assert [found.path for found in whole[0]] == [
        "a",
        "b",
        "b/a",
        paths[3][:-2],
        *paths[3:6],
        "b-c",
        "d",
        "d/e",
        "d/e/f",
    ]
    assert [[found.path for found in each] for each in whole[1:]] == [["a", "b", "b-c", "d"], paths[3:6]]


def test_who_waits_for_a_list_waits_for_no_other_of_its_address_and_for_nobody_who_has_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, listed, made, came = repos.list_repos, threading.Event(), list[str](), list[str]()

    def watched(*what: Any, **wanted: Any) -> Any:
        made.append(wanted["author"])
        assert listed.wait(PATIENCE_S)
        return lists(*what, **wanted)

    def named(scope: Any) -> str:
        came.append(scope["query_string"].decode()[-5:])
        return came[-1][:3]

    monkeypatch.setattr(repos, "list_repos", watched)
    monkeypatch.setattr(context, "client_of", named)
    with arena(store, hub_limits=HubLimits(listings_at_once=1)) as address, ThreadPoolExecutor(4) as crowd:

        def begin(who: str) -> Future[httpx.Response]:
            answer = crowd.submit(ask, address, f"/api/models?author={who}")
            until(lambda: who in came)
            return answer

        answers = [begin(who) for who in ("eve-1", "eve-2", "eve-3")]
        say(address, b"GET /api/models?author=bob-1 HTTP/1.1\r\nHost: localhost\r\n\r\n").close()
        until(lambda: "bob-1" in came)
        answers.append(begin("ann-1"))
        ask(address)  # the server has heard by now who left
        listed.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert made == ["eve-1", "ann-1", "eve-2", "eve-3"]


def test_downloads_are_counted_together_and_none_is_lost_or_doubled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = store.blobs.put(b"model")
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        account, files = create_account(connection, "ada"), [File("a.onnx", blob.sha256, 5, False, blob.git_sha1)]
        for name in ("one", "two"):
            made = create_repo(connection, "model", account, name, False, HubLimits())
            write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)

    def downloads() -> dict[str, int]:
        with store.read() as connection:
            return {repo.name: repo.downloads for repo in repos.list_repos(connection)}

    add, tried = repos.add_downloads, list[Any]()

    def add_at_second_try(connection: Any, counts: Any) -> None:
        tried.append(counts)
        add(connection, counts)
        if len(tried) == 1:
            raise exc.OperationalError("UPDATE", {}, Exception("the server is restarted"))

    monkeypatch.setattr(repos, "add_downloads", add_at_second_try)
    monkeypatch.setattr(download_counts, "WRITE_EVERY_S", PATIENCE_S)
    with arena(store) as address:
        for number in range(9):
            assert ask(address, f"/ada/{'two' if number % 3 else 'one'}/resolve/main/a.onnx").content == b"model"
        ask(address, "/ada/one/resolve/main/a.onnx", method="HEAD")
        assert ask(address, "/ada/one/resolve/main/a.onnx", headers={"Range": "bytes=0-1"}).status_code == 206
    assert downloads() == {"ada/one": 3, "ada/two": 6}
    assert len(tried) == 2, "at once and, after this failed, at the end"


def test_who_finds_no_connection_free_is_told_to_come_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_too_long(*_what: Any, **_more: Any) -> None:
        raise exc.TimeoutError("QueuePool limit of size 5 overflow 10 reached")

    monkeypatch.setattr(repos, "list_repos", wait_too_long)
    with arena(store) as address:
        refused = ask(address, "/api/models")
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "busy", "5")


CLASSES = {of.__name__: of for of in (ConnectionLimits, HubLimits, WebLimits, RoomLimits)}
NOT_LIMITS = {"fresh_s", "poll_s", "keep_s", "celebration_s", "duration_ticks"}


def test_the_table_of_limits_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `([\w.]+)` \|$", DOCS.read_text(), re.MULTILINE)
    wanted = {f"{name}.{field.name}" for name, of in CLASSES.items() for field in fields(of)}
    assert {name for _, _, name in rows if name.split(".")[0] in CLASSES} == {
        name for name in wanted if name.split(".")[1] not in NOT_LIMITS
    }
    assert {name: value for _, value, name in rows} == {name: shown(name) for _, _, name in rows}


def shown(name: str) -> str:
    """A limit as people read it."""
    where, _, field = name.rpartition(".")
    value = getattr(CLASSES[where]() if where in CLASSES else importlib.import_module(where), field)
    unit = field.lower()
    if "bytes" in unit:
        return show_bytes(value)
    return f"{value:,.10g} s" if unit.endswith("_s") and not unit.endswith("per_s") else f"{value:,.10g}"
