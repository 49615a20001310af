"""A worker whose machine fails for a while: what waits there is not spoiled by it."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flaky_storage import Flaky, flaky  # noqa: F401
from sqlalchemy import select

from palus.arena.jobs.reports import Report
from palus.arena.jobs.worker import OUT_OF_REACH_S, Lease, _run_in_reach, describe_here, play_order, work
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import OwnSource, StoreSource
from palus.arena.locked.sandbox import LockedProcess, LockedProcessError, Sandbox
from palus.arena.locked.unit import UnitReport
from palus.arena.locked.vet import Vetting
from palus.arena.models.refusal import Refusal
from palus.errors import ArenaError, UnreachableError
from palus.store import Store, open_store
from palus.store.tables import jobs

SETTINGS = ArenaSettings()


class Asked(StoreSource):
    """The store as if it were far away. asked: how many jobs a worker wanted each time."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "w", SETTINGS, describe_here(), play_s=60.0)
        self.asked: list[int] = []

    def take(self, count: int = 1) -> list[Lease]:
        self.asked.append(count)
        return super().take(count)


def test_a_minute_without_processes_has_one_model_refused_and_not_all_that_wait(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("ann", "bob"):
        path = tmp_path / f"pool/{owner}/good/SoccerTwos.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(owner.encode())
    pool = FolderPool(tmp_path / "pool", store.blobs)
    Scheduler(store, SETTINGS, [PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]).tick()
    stop, tries_s = threading.Event(), [0.0]

    def rest(seconds: float) -> None:
        tries_s.append(tries_s[-1] + seconds)
        if tries_s[-1] > 60.0:
            stop.set()

    def no_process(*_limits: Any) -> LockedProcess:
        raise LockedProcessError("engine", "no process for the model: Resource temporarily unavailable")

    monkeypatch.setattr(Sandbox, "open", no_process)
    monkeypatch.setattr(stop, "wait", rest)
    assert work(Asked(store), stop) == 0
    assert tries_s == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0]
    with store.read() as connection:
        assert Counter(connection.scalars(select(jobs.c.state))) == {"failed": 1, "ready": 1}


def test_a_worker_that_could_do_none_of_its_jobs_takes_a_single_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], min_workers=3, seed=1).tick()
    far, stop = Asked(store), threading.Event()

    def play_the_first(*order: Any) -> UnitReport:
        if far.asked == [1]:
            return play_order(*order)
        if len(far.asked) == 3:
            stop.set()
        raise ArenaError("the disk is full")

    monkeypatch.setattr("palus.arena.jobs.worker.RESTART_S", 0.0)
    monkeypatch.setattr("palus.arena.jobs.worker.play_order", play_the_first)
    assert work(far, stop) == 1
    assert far.asked[0] == 1 < far.asked[1] and far.asked[2:] == [1]


def test_a_job_waits_while_the_storage_of_its_models_is_away(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(tmp_path / "arena", blobs=flaky.place)
    path = tmp_path / "pool/ann/good/SoccerTwos.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"ann")
    pool = FolderPool(tmp_path / "pool", store.blobs)
    Scheduler(store, SETTINGS, [PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]).tick()
    for copy in store.blobs.folder.glob("??/*"):
        copy.unlink()
    stop, waits = threading.Event(), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        flaky.away = len(waits) < 6
        if len(waits) == 20:
            stop.set()

    monkeypatch.setattr(stop, "wait", wait)
    monkeypatch.setattr("palus.arena.jobs.worker.vet", lambda *_: Vetting(Refusal("bad", "Bad.", "Mend it."), {}))
    flaky.away = True
    assert work(OwnSource(store, "local-1", SETTINGS, describe_here()), stop, max_jobs=1) == 1
    assert waits == 6 * [OUT_OF_REACH_S]
    with store.read() as connection:
        assert connection.execute(select(jobs.c.state, jobs.c.attempts)).all() == [("reported", 1)]
    store.close()


def test_a_job_that_others_have_meanwhile_waits_for_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    away, stop, lost = UnreachableError("the storage is away"), threading.Event(), threading.Event()
    nowhere: Any = None
    lease: Any = SimpleNamespace(job_id=7)

    def run(*_: object) -> Report:
        raise away

    monkeypatch.setattr("palus.arena.jobs.worker._run", run)
    monkeypatch.setattr(stop, "wait", lambda seconds: lost.set() if not lost.is_set() else pytest.fail("it waits"))
    with pytest.raises(UnreachableError) as raised:
        _run_in_reach(nowhere, lease, stop, lost)
    assert raised.value is away
