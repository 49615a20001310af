"""What takes long is done a few at a time, so that a crowd keeps nobody waiting but itself, and fills no memory."""

from __future__ import annotations

import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from asking import PATIENCE_S, answer, arena, ask, head_of, say
from processes import eventually
from sqlalchemy import exc
from synthetic_arena import SyntheticArena

from crowded import Crowded
from palus.hub import repos
from palus.hub.accounts import issue_token
from palus.hub.limits import HubLimits
from palus.hub.server import manage
from palus.store import Store
from palus.web import exports, worker_api
from palus.web.api import answers, router
from palus.web.api.answers import Answers


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
                eventually(lambda: begun and len(arrived) == 50, PATIENCE_S)
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
            eventually(lambda: sum(answer.done() for answer in waiting) == 2 and len(begun) == 2, PATIENCE_S)
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
            eventually(lambda: len(begun) == 2, PATIENCE_S)
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
        eventually(lambda: end(send(tokens[0])) == 422, PATIENCE_S)


def test_a_reader_whose_body_never_comes_takes_no_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[Any] = []
    file = Answers.file
    monkeypatch.setattr(Answers, "file", lambda *what: (arrived.append(what), file(*what))[1])
    path = "/api/arena/matches/ab/replay"
    with arena(store, hub_limits=HubLimits(body_grace_s=10 * PATIENCE_S)) as address, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(say(address, head_of("GET", path, "Content-Length: 5")))
        eventually(lambda: len(arrived) == 3, PATIENCE_S)
        assert ask(address, path).status_code == 404


def test_who_finds_no_connection_free_is_told_to_come_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_too_long(*_what: Any, **_more: Any) -> None:
        raise exc.TimeoutError("QueuePool limit of size 5 overflow 10 reached")

    monkeypatch.setattr(repos, "list_repos", wait_too_long)
    with arena(store) as address:
        refused = ask(address, "/api/models")
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "busy", "5")
