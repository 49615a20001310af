"""Processes of one arena, each with a role of its own: kill any of them, no match is lost and none doubled."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from arena_records import read_log
from postgres import postgres_server, postgres_url  # noqa: F401
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.exc import OperationalError

from palus.arena.ladder.log import check_chain
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.hub.accounts import create_account, issue_token
from palus.store import Store, open_store
from palus.store.tables import jobs, matches

WAIT_S = 300.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here"),
]


class Role:
    """A `palus` process that can be killed and started again as it was."""

    def __init__(self, *words: str) -> None:
        self.words, self.url = words, ""
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "palus", *self.words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.url = next(iter(re.findall(r"http://127\.0\.0\.1:\d+", line)), self.url)
            if "Stop with" in line or "Ctrl-C stops it" in line:
                break
        os.set_blocking(self.process.stdout.fileno(), False)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()


def kill_a_session(url: str) -> None:
    """SIGKILL to one process of the server: PostgreSQL then ends all others and recovers from its log."""
    engine = create_engine(url)
    with contextlib.suppress(OperationalError), engine.connect() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        os.kill(pid, signal.SIGKILL)
        connection.execute(text("SELECT 1"))
    engine.dispose()


def logged(store: Store) -> int | None:
    """Matches in the log; None while the database is away."""
    try:
        with store.read() as connection:
            return connection.execute(select(func.count()).select_from(matches)).scalar_one()
    except OperationalError:
        return None


def wait_for_matches(store: Store, more: int) -> None:
    deadline, before, now = time.monotonic() + WAIT_S, None, None
    while before is None or (now or 0) < before + more:
        assert time.monotonic() < deadline, "the arena does not go on"
        time.sleep(0.2)
        now = logged(store)
        before = now if before is None else before


def test_killing_web_scheduler_worker_or_database_loses_and_doubles_no_match(tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    data, token = tmp_path / "arena", tmp_path / "lab.token"
    store = open_store(data, postgres_url)
    with store.write() as connection:
        create_account(connection, "lab")
        token.write_text(issue_token(connection, "lab", "lab", ("trusted",)))
    arena = ("arena", "--data", str(data), "--database", postgres_url, "--workers", "0", "--role")
    webs = [Role(*arena, "web", "--port", "0") for _ in range(2)]
    for web in webs:
        web.words = (*web.words[:-1], web.url.rpartition(":")[2])  # the same address after a kill
    schedulers = [Role(*arena, "scheduler") for _ in range(2)]
    join = ("worker", "--token-file", str(token), "--alone", "--arena")
    players = [Role(*join, web.url, "--name", f"pc-{number}") for number, web in enumerate(webs)]
    chance = random.Random(1)
    try:
        wait_for_matches(store, 20)
        for kill in range(8):
            victim = (webs, schedulers, players, [])[kill % 4]
            if victim:
                (one := chance.choice(victim)).kill()
                one.start()
            else:
                kill_a_session(postgres_url)
            time.sleep(chance.uniform(0.0, 2.0))
            wait_for_matches(store, 4)
    finally:
        for role in (*players, *schedulers, *webs):
            role.kill()
    with store.read() as connection:
        assert check_chain(connection) >= 52
        legs = Counter(row.unit_id for row in read_log(connection))
        states = Counter(connection.scalars(select(jobs.c.state)))
        done = connection.execute(
            select(func.count()).where(jobs.c.state == "done", jobs.c.kind == "pair")
        ).scalar_one()
    assert set(legs.values()) == {2} and len(legs) == done and "failed" not in states
    Refresher(store, ArenaSettings()).recompute()
    store.close()
