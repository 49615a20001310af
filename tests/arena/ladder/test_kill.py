"""Killing any process of a running arena at any instant loses nothing and doubles nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from arena_process import SETTINGS
from arena_records import dump, read_log
from hostile import stock
from processes import children
from sqlalchemy import func, select

from palus.arena.jobs.worker import describe_here, work
from palus.arena.ladder import queue
from palus.arena.ladder.log import check_chain
from palus.arena.ladder.match_files import read_actions
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import Scheduler
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.unit import Unit
from palus.store import Store, open_store
from palus.store.tables import entries, jobs

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes through Linux's /proc")


def start(data: Path, pool: Path) -> subprocess.Popen[bytes]:
    script = Path(__file__).parents[1] / "arena_process.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(data), str(pool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    return process


def family(pid: int) -> list[int]:
    """The service, its workers and their helpers. Not the models' processes below those: who dies there, forfeits."""
    workers = children(pid)
    return [pid, *workers, *(helper for worker in workers for helper in children(worker))]


def end(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    return process.wait(60)


def write_models(pool: Path) -> None:
    for number, owner in enumerate(("ann", "bob")):
        folder = pool / owner / "mine"
        folder.mkdir(parents=True)
        logits = np.full((3, 3), 0.1 * number)
        onnx.save(stock(logits=logits), str(folder / "SoccerTwos.onnx"))


def finish(store: Store) -> None:
    """Do what is left over, as the next start of the arena would."""
    with store.write() as connection:
        held = connection.execute(select(jobs.c.worker).where(jobs.c.state == "leased")).scalars()
        queue.reap(connection, max_attempts=10_000, now_ms=0, dead_workers=tuple(held))
        waiting = connection.scalar(select(func.count()).where(jobs.c.state == "ready"))
    done = work(StoreSource(store, "last", SETTINGS, describe_here()), threading.Event(), max_jobs=waiting)
    assert done == waiting
    Scheduler(store, SETTINGS, []).link()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, 60])
def test_killing_processes_at_random_instants_loses_and_doubles_no_match(tmp_path: Path, kills: int) -> None:
    data, pool = tmp_path / "arena", tmp_path / "pool"
    write_models(pool)
    chance = random.Random(kills)
    process = start(data, pool)
    for number in range(kills):
        time.sleep(chance.uniform(0.2, 3.0))  # the instant is the point: anywhere in whatever goes on
        service, *others = family(process.pid)
        victim = service if number % 4 == 3 or not others else chance.choice(others)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        if victim == service:
            end(process)
            process = start(data, pool)
    assert end(process) == 0

    store = open_store(data)
    finish(store)
    with store.read() as connection:
        assert check_chain(connection) > 0
        legs = Counter[str]()
        for row in read_log(connection):
            legs[row.unit_id] += 1
            assert row.actions is not None and read_actions(store, row)
        rows = connection.execute(select(jobs).where(jobs.c.kind != "audit")).all()
        states = {(row.state, row.code, row.sentence) for row in connection.execute(select(entries))}
    assert {row.state for row in rows} == {"done"}
    ordered = {Unit.from_payload(json.loads(row.payload)).unit_id for row in rows if row.kind == "pair"}
    trials = {unit for unit in legs if unit not in ordered}
    assert set(legs) == ordered | trials
    assert set(legs.values()) == {2}
    assert states == {("accepted", None, None)}
    assert len(trials) == 2
    check_derived(store)
    store.close()


def check_derived(store: Store) -> None:
    """What survived in the derived tables is what the log says."""
    scheduler = Scheduler(store, SETTINGS, [])
    scheduler.refresh(force=True)
    grown = dump(store)
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown
