"""What strangers can make a server write down has a limit."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
from asking import PATIENCE_S, ada_with_a_repository, arena, ask, head_of, say
from processes import eventually

from palus.hub import repos
from palus.store import Store
from palus.web.serving import LINE_BYTES, LINES_PER_MINUTE, LOGGERS, LogLimit


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
    eventually(lambda: limit._buckets.take("x 30 line %d") == 0, PATIENCE_S)
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
