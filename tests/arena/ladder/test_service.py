"""The arena on both databases: workers that compete for jobs, pushes while it runs, one service per data folder."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from arena_records import dump, read_log
from postgres import postgres_server, postgres_url  # noqa: F401
from small_run import policy_model
from sqlalchemy import Connection, delete, select, text, update
from sqlalchemy.exc import OperationalError
from units import passed_off

from palus.arena.jobs.worker import Lease, describe_here, play_order, work
from palus.arena.ladder import queue, scheduler
from palus.arena.ladder.audit import suspend, suspension
from palus.arena.ladder.charge import Charge
from palus.arena.ladder.discovery import sweep_house
from palus.arena.ladder.field_picture import Ledger
from palus.arena.ladder.log import check_chain, lock_log
from palus.arena.ladder.queue import count_ready
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.service import ArenaService, Sources
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource, greet
from palus.arena.locked.unit import Unit
from palus.errors import ArenaError
from palus.store import open_store
from palus.store.derived import ratings
from palus.store.engine import now_ms
from palus.store.tables import entries, jobs, workers

ENDLESS = ArenaSettings(target_half_width=0.0, quiet_s=0.0, audit_share=0.0)
WAIT_S = 120.0


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_passes_go_on_while_the_record_of_a_long_log_is_read(
    tmp_path: Path, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, may_read, seen = open_store(tmp_path, url), threading.Event(), Ledger.read
    plan = Scheduler(store, ENDLESS, [PeriodicSweep(sweep_house, 1e9)], min_workers=2, seed=1)
    plan.tick()
    assert work(StoreSource(store, "w", ENDLESS, describe_here()), threading.Event(), max_jobs=2) == 2
    plan.link()

    def read(ledger: Ledger, connection: Connection) -> None:
        assert may_read.wait(WAIT_S)
        seen(ledger, connection)

    def waiting() -> int:
        with store.read() as connection:
            return count_ready(connection, "pair", "SoccerTwos")

    with store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.state == "ready"))
    monkeypatch.setattr(scheduler, "MANY_MATCHES", 3)  # there are four
    monkeypatch.setattr(Ledger, "read", read)
    later = Scheduler(store, ENDLESS, [], min_workers=2, seed=1)
    later.tick()
    later.tick()
    assert waiting() == 0
    may_read.set()
    until = time.monotonic() + WAIT_S
    while not waiting() and time.monotonic() < until:
        later.tick()
    assert waiting() > 0
    store.close()


def test_workers_that_compete_do_every_job_once(tmp_path: Path, url: str | None) -> None:
    store = open_store(tmp_path, url)
    plan = Scheduler(store, ENDLESS, [PeriodicSweep(sweep_house, 1e9)], min_workers=6, seed=1)
    plan.tick()

    def play(name: str) -> None:
        work(StoreSource(store, name, ENDLESS, describe_here()), threading.Event(), max_jobs=2)

    threads = [threading.Thread(target=play, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        plan.tick()
        threads[0].join(0.2)
    plan.link()
    plan.refresh(force=True)
    with store.read() as connection:
        assert check_chain(connection) == 16
        legs = Counter(row.unit_id for row in read_log(connection))
        done = connection.execute(select(jobs).where(jobs.c.state == "done")).all()
    assert set(legs.values()) == {2} and len(done) == 8
    assert {Unit.from_payload(json.loads(row.payload)).unit_id for row in done} == set(legs)
    assert {row.worker for row in done} == {"w0", "w1", "w2", "w3"}
    grown = dump(store)
    Refresher(store, ENDLESS).recompute()
    assert dump(store) == grown
    store.close()


def test_a_suspension_and_reports_that_are_logged_meanwhile_do_not_stop_each_other(
    tmp_path: Path, url: str | None
) -> None:
    store = open_store(tmp_path, url)
    with store.write() as connection:
        greet(connection, "eve/pc", describe_here(), trusted=False, now_ms=1)

    def suspend_eve() -> None:
        with store.write() as connection:
            suspend(connection, "eve/pc", "forged", now_ms=1)

    suspending = threading.Thread(target=suspend_eve)
    with store.write() as connection:
        lock_log(connection)  # as `inbox.link` does, which counts the workers' matches at its end
        suspending.start()
        if url is not None:
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            wait_until(lambda: connection.scalar(waits) == 1)
        connection.execute(update(workers).values(matches=2))
    suspending.join()
    with store.read() as connection:
        assert connection.execute(select(workers.c.matches, workers.c.suspended)).one() == (2, "forged")
    store.close()


def test_an_account_takes_no_more_than_it_may_and_says_hello_on_several_connections_at_once(
    tmp_path: Path, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 1)
    store, taken = open_store(tmp_path, url), list[int]()

    def take(name: str, meanwhile: Sequence[threading.Thread] = ()) -> None:
        with store.write() as connection:
            greet(connection, name, {}, trusted=False, now_ms=1)
            got = queue.take(connection, name, ["SoccerTwos"], trusted=False, lease_s=60, now_ms=1)
            taken.append(len(got))
            for other in meanwhile:
                other.start()
            for other in meanwhile:
                other.join(0.3)  # they wait for this transaction

    others = [threading.Thread(target=take, args=(name,)) for name in ("lab/pc", "lab/other")]
    with store.write() as connection:
        pairs = {name: (0, {"env": "SoccerTwos"}) for name in ("pair:a", "pair:b")}
        queue.enqueue(connection, "pair", pairs, now_ms=0)
    take("lab/pc", others)
    for other in others:
        other.join()
    assert taken == [1, 0, 0]
    store.close()


def test_one_of_several_is_in_charge_and_the_next_one_when_its_lock_is_gone(tmp_path: Path, url: str | None) -> None:
    stores = [open_store(tmp_path, url) for _ in "ab"]
    first, second = map(Charge, stores)
    assert first.take() and first.take() and not second.take()
    if url is None:
        first.release()
    else:  # as when the database is killed
        with stores[1].write() as connection:
            others = (  # waits up to ten seconds until the session is gone, and its lock with it
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            )
            assert connection.scalar(text(others)) is True
    assert second.take() and not first.take()
    second.release()
    assert first.take()
    first.release()
    for store in stores:
        store.close()


def test_a_scheduler_that_waits_orders_matches_when_the_one_in_charge_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)

    def queued() -> bool:
        with store.read() as connection:
            return connection.execute(select(jobs.c.id).limit(1)).first() is not None

    before = Charge(store)
    assert before.take()
    with ArenaService(store, ENDLESS, Sources(), workers=0, waits=True):
        assert "another scheduler is in charge" in caplog.text
        time.sleep(1.0)
        assert not queued()
        before.release()
        wait_until(queued)
    store.close()


def test_a_service_is_in_charge_while_it_asks_whether_it_still_is_and_no_more_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, seen, is_away = Charge.take, list[bool](), threading.Event()

    def watched(charge: Charge) -> bool:
        seen.append(service._in_charge)
        if is_away.is_set():
            raise OperationalError("SELECT 1", {}, Exception("the database is away"))
        return take(charge)

    monkeypatch.setattr(Charge, "take", watched)
    monkeypatch.setattr("palus.arena.ladder.service.PAUSE_S", 0.01)
    store = open_store(tmp_path)
    service = ArenaService(store, ENDLESS, Sources(), workers=0)
    with service:
        wait_until(lambda: len(seen) > 3)
        assert seen[:4] == [False, True, True, True]
        is_away.set()
        wait_until(lambda: seen[-1] is False)
        is_away.clear()
        wait_until(lambda: seen[-1] is True)
    store.close()


def test_a_start_takes_jobs_from_workers_of_the_arena_itself_and_not_from_an_account_that_sounds_alike(
    tmp_path: Path,
) -> None:
    store, now, other = open_store(tmp_path), now_ms(), "StrikersVsGoalie"
    with store.write() as connection:
        for number, worker in enumerate(("local-1a2b3c4d", "local-lab/pc")):
            queue.enqueue(connection, "pair", {f"pair:{number}": (0, {"env": other})}, now_ms=now)
            assert queue.take(connection, worker, [other], trusted=False, lease_s=600.0, now_ms=now)
    with ArenaService(store, ENDLESS, Sources(), workers=0), store.read() as connection:
        wanted = select(jobs.c.worker).where(jobs.c.key.startswith("pair:"), jobs.c.state == "leased")
        assert connection.scalars(wanted).all() == ["local-lab/pc"]
    store.close()


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_model_that_arrives_while_the_arena_runs_is_ranked_and_one_that_goes_is_withdrawn(tmp_path: Path) -> None:
    store, pool = open_store(tmp_path / "data"), tmp_path / "pool"
    pool.mkdir()

    def rank(repo: str) -> int | None:
        ranked = (
            select(ratings.c.rank).join(entries, entries.c.sha256 == ratings.c.sha256).where(entries.c.repo == repo)
        )
        with store.read() as connection:
            rank: int | None = connection.execute(ranked).scalar()
            return rank

    with ArenaService(store, replace(ENDLESS, entry_pairs=2, refresh_share=1.0), Sources(pool), workers=1):
        with (
            pytest.raises(ArenaError, match="runs on this data folder already"),
            ArenaService(store, ENDLESS, Sources(), workers=0),
        ):
            pass
        (pool / "ann" / "mine").mkdir(parents=True)
        (pool / "ann" / "mine" / "SoccerTwos.onnx").write_bytes(policy_model())
        wait_until(lambda: (rank("ann/mine") or 0) > 0)
        shutil.rmtree(pool / "ann")
        wait_until(lambda: rank("ann/mine") == 0)
    with store.read() as connection:
        assert check_chain(connection) > 2
        assert connection.execute(select(entries.c.state).where(entries.c.repo == "ann/mine")).scalar() == "withdrawn"
    store.close()


def test_matches_are_ordered_and_logged_while_the_ratings_are_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting, done = threading.Event(), threading.Event()
    refresh, calls = Refresher.refresh, []

    def take_long(self: Refresher) -> list[str]:
        calls.append(1)
        if len(calls) == 2:
            fitting.set()
            done.wait(WAIT_S)
        return refresh(self)

    monkeypatch.setattr(Refresher, "refresh", take_long)
    store = open_store(tmp_path)
    with ArenaService(store, ENDLESS, Sources(), workers=0):
        assert fitting.wait(WAIT_S)
        work(StoreSource(store, "w", ENDLESS, describe_here()), threading.Event(), max_jobs=5)  # 4 are ordered at once

        def logged() -> bool:
            with store.read() as connection:
                return len(read_log(connection)) == 10

        wait_until(logged)
        done.set()
    store.close()


def test_a_worker_hands_in_what_it_played_while_the_arena_or_its_database_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock_s = open_store(tmp_path), [1000.0]
    monkeypatch.setattr("palus.arena.ladder.scheduler.time.monotonic", lambda: clock_s[0])
    Scheduler(store, ENDLESS, [PeriodicSweep(sweep_house, 1e9)], min_workers=2, seed=1).tick()
    source = StoreSource(store, "lab/pc", ENDLESS, describe_here(), trusted=False)
    leases = [source.take()[0] for _ in range(4)]

    def is_held(lease: Lease, until_ms: int, look: Callable[[], object]) -> bool:
        """After a look at a lease that has run out."""
        with store.write() as connection:
            connection.execute(update(jobs).where(jobs.c.id == lease.job_id).values(lease_until_ms=until_ms))
        look()
        with store.read() as connection:
            return connection.scalar(select(jobs.c.state).where(jobs.c.id == lease.job_id)) == "leased"

    service = ArenaService(store, ENDLESS, Sources(), workers=0)
    assert is_held(leases[0], 1, service._take_charge) and is_held(leases[0], 1, service._tick)
    assert not is_held(leases[1], 0, service._tick), "its account was suspended"
    clock_s[0] += ENDLESS.lease_s
    assert not is_held(leases[0], 1, service._tick)
    service._ticked_ms -= 30_000  # the database was away
    assert is_held(leases[2], 1, service._tick)
    source.renew([leases[2]])
    service._charge.release()
    store.close()


def test_a_step_that_fails_in_an_unforeseen_way_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("palus.arena.ladder.service.PAUSE_S", 0.01)
    failures: list[int] = []
    tick = Scheduler.tick

    def fail_first(self: Scheduler) -> None:
        failures.append(1)
        if len(failures) < 3:
            raise IndexError("a replay without a match")
        tick(self)

    monkeypatch.setattr(Scheduler, "tick", fail_first)
    store = open_store(tmp_path)
    with ArenaService(store, ENDLESS, Sources(), workers=0):

        def is_queued() -> bool:
            with store.read() as connection:
                return connection.execute(select(jobs.c.id).limit(1)).first() is not None

        wait_until(is_queued)
    assert caplog.text.count("IndexError: a replay without a match") == 2
    store.close()


def test_a_running_arena_audits_its_log_and_suspends_who_forged_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    settings = replace(ENDLESS, audit_share=1.0)
    plan = Scheduler(store, settings, [PeriodicSweep(sweep_house, 1e9)], seed=1)
    plan.tick()
    source = StoreSource(store, "eve/pc", settings, describe_here())
    (lease,) = source.take()
    order = Unit.from_payload(lease.payload)
    other = replace(order, contenders=order.contenders[::-1])
    source.finish([(lease, passed_off(play_order(source, other), play_order(source, order)))])
    plan.link()

    def is_suspended() -> bool:
        with store.read() as connection:
            return suspension(connection, "eve/other") is not None

    with ArenaService(store, settings, Sources(), workers=1):
        wait_until(is_suspended)
    store.close()
