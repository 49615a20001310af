"""Between a report and its place in the log: whatever breaks there, at whatever step, loses and doubles nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_records import read_log
from small_run import policy_model
from sqlalchemy import event, select, text

from palus.arena.jobs.reports import Report, ValidationReport, to_json
from palus.arena.jobs.worker import Lease, describe_here, play_order, work
from palus.arena.ladder import queue
from palus.arena.ladder.audit import suspend
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.inbox import accept, link
from palus.arena.ladder.log import check_chain
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import OwnSource, StoreSource, instructions
from palus.arena.locked.unit import Unit, UnitReport
from palus.errors import UnreachableError
from palus.store import Store, open_store
from palus.store.tables import jobs, metadata, workers

SETTINGS = ArenaSettings()


class BrokenError(Exception):
    """The disk is full, the power is gone, a bug."""


@contextlib.contextmanager
def statements(store: Store, break_at: int) -> Iterator[list[str]]:
    """Collects what is sent to the database, ends of transactions too, and breaks at one of them, 0 for the first."""
    sent: list[str] = []

    def note(what: str) -> None:
        sent.append(what)
        if len(sent) > break_at:
            raise BrokenError(what)

    def before(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        note(statement)

    def ending(_connection: Any) -> None:
        note("COMMIT")

    event.listen(store.engine, "before_cursor_execute", before)
    event.listen(store.engine, "commit", ending)
    try:
        yield sent
    finally:
        event.remove(store.engine, "before_cursor_execute", before)
        event.remove(store.engine, "commit", ending)


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    with store.read() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=str)
            for table in metadata.sorted_tables
        }


def pair(folder: Path) -> tuple[Store, Lease, Report]:
    """A mirrored pair that was played and not yet handed in."""
    store = open_store(folder / "arena")
    Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], seed=1).tick()
    source = StoreSource(store, "w", SETTINGS, describe_here())
    (lease,) = source.take()
    return store, lease, play_order(source, Unit.from_payload(lease.payload))


def validation(folder: Path) -> tuple[Store, Lease, Report]:
    """A model that passed, with its trial, not yet handed in."""
    path = folder / "pool" / "ann" / "mine" / "SoccerTwos.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(policy_model())
    store = open_store(folder / "arena")
    pool = FolderPool(folder / "pool", store.blobs)
    sweeps = [PeriodicSweep(sweep_house, 1e9), PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]
    Scheduler(store, SETTINGS, sweeps, seed=1).tick()
    source = StoreSource(store, "w", SETTINGS, describe_here())
    (lease,) = source.take()
    assert lease.kind == "validate"
    return store, lease, ValidationReport(None, {"bytes": 1}, play_order(source, Unit.trial(lease.payload)))


def tables_written(sent: list[str]) -> list[str]:
    """Which tables, in order; each once."""
    words = [statement.split() for statement in sent if statement.startswith(("INSERT", "UPDATE"))]
    return list(dict.fromkeys(said[2] if said[0] == "INSERT" else said[1] for said in words))


@pytest.mark.parametrize("prepare", [pair, validation])
def test_a_result_is_stored_whole_or_not_at_all_whatever_step_breaks(tmp_path: Path, prepare: Any) -> None:
    store, lease, report = prepare(tmp_path)
    delivery = [(lease, report)]
    decided = ["entries"] if lease.kind == "validate" else []
    isolated = ["workers"] if report_of(report).isolation != "none" else []
    stages = (
        (lambda: accept(store, delivery, now_ms=7), set(), ["jobs"]),
        (lambda: link(store, now_ms=8), 1, ["matches", "log_heads", "blobs", *decided, *isolated, "workers", "jobs"]),
    )
    for stage, answer, written in stages:
        before = everything(store)
        for step in range(100):
            with statements(store, break_at=step) as sent, contextlib.suppress(BrokenError):
                assert stage() == answer
                break
            assert everything(store) == before, sent[-1]
        assert tables_written(sent) == list(dict.fromkeys(written)) and sent[-1] == "COMMIT"
        after = everything(store)
        assert accept(store, delivery, now_ms=9) == set() and everything(store) == after
    assert link(store, now_ms=9) == 0
    with store.read() as connection:
        assert check_chain(connection) == 2
        assert [row.leg for row in read_log(connection)] == [1, 2]
    store.close()


def report_of(report: Report) -> UnitReport:
    unit = report.trial if isinstance(report, ValidationReport) else report
    assert unit is not None
    return unit


def test_a_unit_that_two_jobs_ordered_is_logged_once_and_what_waits_behind_it_goes_on(tmp_path: Path) -> None:
    store, lease, report = pair(tmp_path)
    source = StoreSource(store, "w", SETTINGS, describe_here())
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"the same again": (99, lease.payload)}, now_ms=1)
    again, other = source.take(2)
    assert source.finish([(lease, report), (again, report)]) == set()
    assert source.finish([(other, play_order(source, Unit.from_payload(other.payload)))]) == set()
    assert link(store, now_ms=1) == 3
    with store.read() as connection:
        assert check_chain(connection) == 4
        states = connection.scalars(select(jobs.c.state).where(jobs.c.id.in_([lease.job_id, again.job_id])))
        assert list(states) == ["done", "done"]
    store.close()


def test_what_a_suspended_worker_handed_in_before_is_not_linked(tmp_path: Path) -> None:
    store, lease, report = pair(tmp_path)
    assert accept(store, [(lease, report)], now_ms=1) == set()
    with store.write() as connection:
        suspend(connection, "w", "too good", now_ms=1)
    plan = Scheduler(store, SETTINGS, [])
    plan.link()
    plan.take_back()
    (again,) = StoreSource(store, "other", SETTINGS, describe_here()).take()
    assert again.job_id == lease.job_id
    with store.read() as connection:
        assert read_log(connection) == []
    store.close()


KILLED = """
import json, os, signal, sys
from pathlib import Path
from sqlalchemy import event
from palus.arena.ladder.inbox import accept, link
from palus.arena.jobs.reports import from_json
from palus.arena.jobs.worker import Lease
from palus.store import open_store

told = json.load(sys.stdin)
store = open_store(Path(told["folder"]))
def before(_c, _cursor, statement, *_):
    if statement.startswith(told["at"]):
        print("between", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(store.engine, "before_cursor_execute", before)
lease = Lease(told["job"], "pair", {}, told["secret"], 1)
accept(store, [(lease, from_json(told["report"]))], now_ms=7)
link(store, now_ms=7)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("at", ["UPDATE jobs", "INSERT INTO matches", "UPDATE workers"])
def test_a_process_killed_on_the_way_of_a_report_leaves_it_to_be_played_or_linked_by_another(
    tmp_path: Path, at: str
) -> None:
    store, lease, report = pair(tmp_path)
    assert isinstance(report, UnitReport)
    told = {"folder": str(store.folder), "job": lease.job_id, "secret": lease.secret, "report": to_json(report)}
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, input=json.dumps({**told, "at": at}), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "between\n"), done.stderr
    plan = Scheduler(store, SETTINGS, [])
    plan.take_back(dead_workers=("w",))
    plan.link()
    if at == "UPDATE jobs":
        assert work(StoreSource(store, "other", SETTINGS, describe_here()), threading.Event(), max_jobs=1) == 1
        plan.link()
    with store.read() as connection:
        assert check_chain(connection) == 2
        assert [row.result for row in read_log(connection)] == [game.result.result for game in report.matches]
    store.close()


def rename(store: Store, table: str, to: str) -> None:
    with store.write() as connection:
        connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))


@pytest.mark.parametrize("way", ["take", "renew", "finish", "give_back"])
def test_a_database_that_is_away_is_out_of_reach_for_now(tmp_path: Path, way: str) -> None:
    store = open_store(tmp_path)
    source = OwnSource(store, "local-1-0", SETTINGS, describe_here())
    rename(store, "jobs", "away")
    lease = Lease(1, "validate", {}, "secret", 1)
    ways: dict[str, Callable[[], object]] = {
        "take": source.take,
        "renew": lambda: source.renew([lease]),
        "finish": lambda: source.finish([(lease, ValidationReport(None, {}, None))]),
        "give_back": lambda: source.give_back(lease, "tired"),
    }
    with pytest.raises(UnreachableError, match=r"the arena's store does not answer: .*jobs"):
        ways[way]()
    store.close()


def test_a_worker_of_the_arena_lives_on_while_the_database_is_away(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    rename(store, "jobs", "away")
    command = [sys.executable, "-m", "palus.arena.ladder.workers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as worker:
        assert worker.stdin is not None and worker.stderr is not None
        worker.stdin.write(instructions(tmp_path, None, "local-1-0", SETTINGS))
        worker.stdin.flush()
        assert any(b"does not answer" in line and b"trying again" in line for line in worker.stderr)
        rename(store, "away", "jobs")
        limit = time.monotonic() + 60
        while not known_workers(store) and time.monotonic() < limit:
            time.sleep(0.05)
        assert known_workers(store) == ["local-1-0"]
        worker.stdin.close()
        assert worker.wait(60) == 0
    store.close()


def known_workers(store: Store) -> list[str]:
    with store.read() as connection:
        return list(connection.scalars(select(workers.c.name)))
