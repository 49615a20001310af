"""Between closing a job and having its result: whatever breaks there, at whatever step, loses and doubles nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_records import read_log
from hostile import stock
from sqlalchemy import event, select

from palus.arena.jobs.reports import Report, ValidationReport, to_json
from palus.arena.jobs.worker import Lease, describe_here, play_order, work
from palus.arena.ladder.completion import complete
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.log import check_chain
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.models.rules import Limits
from palus.store import Store, open_store
from palus.store.tables import metadata

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
    lease = source.take()
    assert lease is not None
    return store, lease, play_order(source, Unit.from_payload(lease.payload), Limits())


def validation(folder: Path) -> tuple[Store, Lease, Report]:
    """A model that passed, with its trial, not yet handed in."""
    path = folder / "pool" / "ann" / "mine" / "SoccerTwos.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(stock().SerializeToString())
    store = open_store(folder / "arena")
    pool = FolderPool(folder / "pool", store.blobs)
    sweeps = [PeriodicSweep(sweep_house, 1e9), PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]
    Scheduler(store, SETTINGS, sweeps, seed=1).tick()
    source = StoreSource(store, "w", SETTINGS, describe_here())
    lease = source.take()
    assert lease is not None and lease.kind == "validate"
    return store, lease, ValidationReport(None, {"bytes": 1}, play_order(source, Unit.trial(lease.payload), Limits()))


@pytest.mark.parametrize("prepare", [pair, validation])
def test_a_result_is_stored_whole_or_not_at_all_whatever_step_breaks(tmp_path: Path, prepare: Any) -> None:
    store, lease, report = prepare(tmp_path)
    before = everything(store)
    stored = False
    for step in range(100):
        with statements(store, break_at=step) as sent, contextlib.suppress(BrokenError):
            stored = complete(store, lease.job_id, lease.secret, report, now_ms=7)
        if stored:
            break
        assert everything(store) == before, sent[-1]
    words = [statement.split() for statement in sent if statement.startswith(("INSERT", "UPDATE"))]
    written = [said[2] if said[0] == "INSERT" else said[1] for said in words]
    decided = ["entries"] if lease.kind == "validate" else []
    assert list(dict.fromkeys(written)) == ["jobs", "matches", "log_heads", *decided, "workers"]
    assert sent[-1] == "COMMIT" and written.count("matches") == 2
    after = everything(store)
    assert complete(store, lease.job_id, lease.secret, report, now_ms=8) is False
    assert everything(store) == after
    with store.read() as connection:
        assert check_chain(connection) == 2
        assert [row.leg for row in read_log(connection)] == [1, 2]
    store.close()


KILLED = """
import json, os, signal, sys
from pathlib import Path
from sqlalchemy import event
from palus.arena.ladder.completion import complete
from palus.arena.jobs.reports import from_json
from palus.store import open_store

told = json.load(sys.stdin)
store = open_store(Path(told["folder"]))
def before(_c, _cursor, statement, *_):
    if statement.startswith("INSERT INTO matches"):  # the job is closed, its first record on its way
        print("between", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(store.engine, "before_cursor_execute", before)
complete(store, told["job"], told["secret"], from_json(told["report"]), now_ms=7)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_process_killed_between_job_and_result_leaves_the_job_to_be_done_again(tmp_path: Path) -> None:
    store, lease, report = pair(tmp_path)
    assert isinstance(report, UnitReport)
    before = everything(store)
    told = {"folder": str(store.folder), "job": lease.job_id, "secret": lease.secret, "report": to_json(report)}
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "between\n"), done.stderr
    assert everything(store) == before
    Scheduler(store, SETTINGS, []).take_back(dead_workers=("w",))
    again = StoreSource(store, "other", SETTINGS, describe_here())
    assert work(again, threading.Event(), max_jobs=1) == 1
    with store.read() as connection:
        assert check_chain(connection) == 2
        assert [row.result for row in read_log(connection)] == [game.result.result for game in report.matches]
    store.close()
