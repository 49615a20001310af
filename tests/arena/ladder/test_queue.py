"""Jobs and leases: what is taken is done once, by somebody, whatever becomes of the workers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import func, select, update

from palus.arena.ladder import queue
from palus.arena.ladder.audit import suspend, suspension
from palus.arena.ladder.workers import greet
from palus.errors import LeaseError
from palus.store import Store, open_store
from palus.store.tables import jobs, workers

LEASE_S = 10.0
ENV = "SoccerTwos"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    with store.write() as connection:
        pairs = {"a": (0, {"n": 1, "env": ENV}), "b": (10, {"n": 2, "env": ENV})}
        queue.enqueue(connection, "pair", pairs, now_ms=0)
        queue.enqueue(connection, "validate", {"c": (0, {"n": 3, "env": ENV})}, now_ms=0)
    return store


def take(store: Store, worker: str = "w", now_ms: int = 0, trusted: bool = True) -> queue.Lease:
    with store.write() as connection:
        (lease,) = queue.take(connection, worker, [ENV], trusted=trusted, lease_s=LEASE_S, now_ms=now_ms)
    return lease


def reap(store: Store, now_ms: int, dead: tuple[str, ...] = (), max_attempts: int = 3) -> list[int]:
    with store.write() as connection:
        return [row.id for row in queue.reap(connection, max_attempts=max_attempts, now_ms=now_ms, dead_workers=dead)]


def close(store: Store, lease: queue.Lease) -> bool:
    """Report a job as done. Whether that was taken."""
    with store.write() as connection:
        before = connection.execute(select(jobs).where(jobs.c.id == lease.job_id)).one()
        shown = SimpleNamespace(id=lease.job_id, lease=lease.secret)
        queue.note_reports(connection, [shown], {lease.job_id: "{}"}, now_ms=1)
        queue.close(connection, [lease.job_id])
        after = connection.execute(select(jobs).where(jobs.c.id == lease.job_id)).one()
    return (before.state, after.state, after.report) == ("leased", "done", None)


def counts(store: Store) -> dict[tuple[str, str], int]:
    with store.read() as connection:
        rows = connection.execute(select(jobs.c.kind, jobs.c.state, func.count()).group_by(jobs.c.kind, jobs.c.state))
        return {(kind, state): count for kind, state, count in rows}


def test_urgent_jobs_go_first_and_nothing_is_handed_out_twice(store: Store) -> None:
    assert [take(store).payload["n"] for _ in range(3)] == [2, 1, 3]
    with store.write() as connection:
        assert queue.take(connection, "w", [ENV], trusted=True, lease_s=LEASE_S, now_ms=0) == []
        assert [job["n"] for job in map(json.loads, queue.open_payloads(connection, "pair", ENV))] == [1, 2]


def test_a_worker_gets_only_work_of_games_that_it_can_play(store: Store) -> None:
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"d": (99, {"n": 4, "env": "doom_duel"})}, now_ms=0)
        assert queue.has_ready(connection, "w", ["doom_duel"], trusted=True, now_ms=0)
        assert not queue.has_ready(connection, "w", ["Tennis"], trusted=True, now_ms=0)
        assert [job["n"] for job in map(json.loads, queue.open_payloads(connection, "pair", "doom_duel"))] == [4]
        assert queue.take(connection, "w", [], trusted=True, lease_s=LEASE_S, now_ms=0) == []
    assert take(store).payload["n"] == 2
    with store.write() as connection:
        (lease,) = queue.take(connection, "w", [ENV, "doom_duel"], trusted=True, lease_s=LEASE_S, now_ms=0)
    assert lease.payload["n"] == 4


def test_the_same_work_is_queued_once_even_after_it_was_done(store: Store) -> None:
    lease = take(store)
    assert close(store, lease)
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"b": (0, {"env": ENV}), "d": (0, {"env": ENV})}, now_ms=0)
        assert list(connection.scalars(select(jobs.c.key).order_by(jobs.c.id))) == ["a", "b", "c", "d"]


def test_a_worker_that_vanishes_costs_one_lease_and_its_late_result_is_refused(store: Store) -> None:
    late = take(store, "vanishing")
    assert reap(store, now_ms=9_999) == []
    assert counts(store)[("pair", "leased")] == 1
    reap(store, now_ms=10_001)
    again = take(store, "other", now_ms=10_001)
    assert (again.job_id, again.attempts) == (late.job_id, 2)
    assert not close(store, late)
    assert close(store, again)
    assert not close(store, late)


def test_a_result_sent_twice_is_stored_once(store: Store) -> None:
    lease = take(store)
    assert close(store, lease) is True
    assert close(store, lease) is False


def test_renewing_keeps_a_slow_job_and_a_known_death_frees_it_at_once(store: Store) -> None:
    lease = take(store, "slow")
    with store.write() as connection:
        queue.renew(connection, [lease.job_id], lease.secret, lease_s=LEASE_S, now_ms=8_000)
    reap(store, now_ms=12_000)
    assert close(store, lease)
    held = take(store, "dying")
    reap(store, now_ms=1, dead=("dying",))
    assert take(store).job_id == held.job_id
    with store.write() as connection, pytest.raises(LeaseError, match="void"):
        queue.renew(connection, [held.job_id], held.secret, lease_s=LEASE_S, now_ms=0)


def test_who_was_away_frees_only_jobs_of_which_nothing_is_taken_any_more(store: Store) -> None:
    held, suspended = take(store, "lab/pc"), take(store, "eve/pc")
    with store.write() as connection:
        for name in ("lab/pc", "eve/pc"):
            greet(connection, name, {}, trusted=False, now_ms=0)
        suspend(connection, "eve/pc", "it forged", now_ms=0)
        queue.reap(connection, max_attempts=3, now_ms=10**9, patient=True)
        left = {row.id: row.state for row in connection.execute(select(jobs))}
    assert (left[held.job_id], left[suspended.job_id]) == ("leased", "ready")


def test_what_was_reported_waits_for_the_log_however_long_and_forgets_who_failed_before(store: Store) -> None:
    held = take(store)
    with store.write() as connection:
        queue.give_back(connection, held.job_id, held.secret, "no", max_attempts=3, now_ms=0)
    held = take(store, "eve/pc")
    with store.write() as connection:
        assert queue.names_model(connection, "eve", '"n":2')
        queue.note_reports(connection, [SimpleNamespace(id=held.job_id, lease=held.secret)], {2: "{}"}, now_ms=1)
        assert not queue.names_model(connection, "eve", '"n":2')
    assert reap(store, now_ms=10**9) == []
    with store.read() as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == held.job_id)).one()
        assert (row.state, row.report, row.fault) == ("reported", "{}", None)
        assert [job["n"] for job in map(json.loads, queue.open_payloads(connection, "pair", ENV))] == [1, 2]


def test_who_is_not_trusted_keeps_no_job_for_ever(store: Store) -> None:
    held, trusted = take(store, "eve/pc", trusted=False), take(store, "lab/pc")

    def renew(lease: queue.Lease, now_ms: int) -> None:
        with store.write() as connection:
            queue.renew(connection, [lease.job_id], lease.secret, lease_s=LEASE_S, now_ms=now_ms)

    with store.write() as connection:
        for name, is_trusted in (("eve/pc", False), ("lab/pc", True)):
            greet(connection, name, {}, trusted=is_trusted, now_ms=0)
    for now_ms in (9_000, 299_999):
        renew(held, now_ms)
    for now_ms in (300_000, 10**9):
        renew(trusted, now_ms)
        with pytest.raises(LeaseError, match="void"):
            renew(held, now_ms)
    reap(store, now_ms=309_998)
    assert counts(store)[("pair", "leased")] == 2
    reap(store, now_ms=310_000)
    assert take(store, "bob/pc", now_ms=310_000).job_id == held.job_id and close(store, trusted)


def test_all_workers_of_an_account_together_hold_so_many_jobs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 1)

    def taken(worker: str, trusted: bool = False) -> int:
        with store.write() as connection:
            ready = queue.has_ready(connection, worker, [ENV], trusted=trusted, now_ms=0)
            got = queue.take(connection, worker, [ENV], trusted=trusted, lease_s=LEASE_S, now_ms=0, count=5)
            assert ready == bool(got)
            return len(got)

    assert [taken("eve/pc"), taken("eve/other")] == [1, 0]
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 0)  # less than they hold
    assert taken("eve/pc") == 0
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 1)
    assert [taken("eve-x/pc"), taken("lab/pc", True)] == [1, 1]


def test_what_an_account_gave_back_for_good_counts_as_held_until_a_trusted_worker_takes_it_or_for_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 2)
    more = {f"pair:{n}": (0, {"n": n, "env": ENV}) for n in range(3, 9)}
    with store.write() as connection:
        queue.enqueue(connection, "pair", more, now_ms=0)

    def taken(worker: str, trusted: bool = False, now_ms: int = 0) -> list[queue.Lease]:
        with store.write() as connection:
            ready = queue.has_ready(connection, worker, [ENV], trusted=trusted, now_ms=now_ms)
            got = queue.take(connection, worker, [ENV], trusted=trusted, lease_s=LEASE_S, now_ms=now_ms, count=2)
            assert ready == bool(got)
            return got

    def give_back(held: list[queue.Lease]) -> int:
        with store.write() as connection:
            for lease in held:
                queue.give_back(connection, lease.job_id, lease.secret, "no", max_attempts=2, now_ms=0)
        return len(held)

    assert [give_back(taken(f"eve/{n}")) for n in range(5)] == [2, 2, 0, 0, 0]  # two pairs, each of them twice
    assert [len(taken("lab/pc")), len(taken("eve-x/pc"))] == [2, 2]
    assert [lease.payload["n"] for lease in taken("palus-1", trusted=True)] == [2, 1]
    assert [give_back(taken("eve/pc")) for _ in range(3)] == [2, 2, 0]
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"pair:9": (0, {"n": 9, "env": ENV})}, now_ms=1)
    assert not taken("eve/pc", now_ms=queue.GIVEN_BACK_MS - 1)
    assert len(taken("eve/pc", now_ms=queue.GIVEN_BACK_MS)) == 1  # no trusted worker came


def test_a_job_that_no_trusted_worker_survives_fails_with_its_reason_and_the_queue_goes_on(store: Store) -> None:
    poison = take(store)
    with store.write() as connection:
        queue.give_back(connection, poison.job_id, poison.secret, "boom", max_attempts=1, now_ms=0)
    assert counts(store)[("pair", "ready")] == 2
    for now_ms in (0, 99_999):
        assert take(store, now_ms=now_ms).job_id == poison.job_id
        failed = reap(store, now_ms=now_ms + 10_001, max_attempts=2)
    assert failed == [poison.job_id]
    assert counts(store) == {("pair", "failed"): 1, ("pair", "ready"): 1, ("validate", "ready"): 1}
    assert take(store).payload["n"] == 1


def test_what_cannot_be_checked_later_and_what_others_gave_back_is_for_trusted_workers(store: Store) -> None:
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"d": (99, {"n": 4, "env": "doom_duel"})}, now_ms=0)
    games = [ENV, "doom_duel"]
    for _ in range(3):
        with store.read() as connection:
            assert queue.count_ready(connection, "pair", ENV) == 2
        held = take(store, "lab/pc", trusted=False)
        assert held.payload["n"] == 2
        with store.write() as connection:
            queue.give_back(connection, held.job_id, held.secret, "no", max_attempts=3, now_ms=0)
    with store.read() as connection:
        counted = [queue.count_ready(connection, "pair", env) for env in games]
    assert counted == [1, 1]
    assert take(store, "lab/pc", trusted=False).payload["n"] == 1
    with store.write() as connection:
        assert not queue.has_ready(connection, "w", games, trusted=False, now_ms=0)
        assert queue.take(connection, "lab/pc", games, trusted=False, lease_s=LEASE_S, now_ms=0) == []
        taken = queue.take(connection, "w", games, trusted=True, lease_s=LEASE_S, now_ms=0, count=5)
    assert [(lease.payload["n"], lease.attempts) for lease in taken] == [(4, 1), (2, 1), (3, 1)]


def test_pairs_are_forgotten_some_time_after_they_were_logged_and_nothing_else_is(store: Store) -> None:
    keys = {"pair:old": ("done", 10), "pair:new": ("done", 90), "pair:lost": ("failed", 10), "round:1:0": ("done", 10)}
    with store.write() as connection:
        for key, (state, done_ms) in keys.items():
            queue.enqueue(connection, "pair", {key: (0, {"env": ENV})}, now_ms=0)
            connection.execute(update(jobs).where(jobs.c.key == key).values(state=state, done_ms=done_ms))
        queue.enqueue(connection, "audit", {"audit:old": (0, {"env": ENV})}, now_ms=0)
        connection.execute(update(jobs).where(jobs.c.key == "audit:old").values(state="done", done_ms=10))
        assert queue.prune(connection, before_ms=50) == 2
        assert queue.prune(connection, before_ms=50) == 0
        assert set(connection.scalars(select(jobs.c.key))) == {"a", "b", "c", *keys} - {"pair:old"}


def test_names_with_more_slashes_of_an_older_palus_are_of_one_account(store: Store) -> None:
    about = {"platform": "test"}
    with store.write() as connection:
        for name in ("eve/1/pc", "eve/2/pc"):
            greet(connection, name, about, trusted=False, now_ms=1)
        queue.take(connection, "eve/1/pc", [ENV], trusted=False, lease_s=LEASE_S, now_ms=1)
        assert queue.account_of("eve/1/pc") == queue.account_of("eve/pc") == "eve" != queue.account_of("local-1")
        audited = {"audit": (99, {"n": 4, "env": ENV})}
        queue.enqueue(connection, "audit", audited, now_ms=1, not_for=queue.account_of("eve/1/pc"))
        given = queue.take(connection, "eve/2/pc", [ENV], trusted=True, lease_s=LEASE_S, now_ms=1, count=9)
        assert len(given) == 2 and queue.names_model(connection, "eve", '"n":2')
        assert "audit" not in {job.key for job in connection.execute(select(jobs).where(jobs.c.state == "leased"))}
        assert suspend(connection, "eve/1/pc", "it forged", now_ms=2) == 0
        assert suspension(connection, "eve/2/pc") == suspension(connection, "eve/pc") == "it forged"
        assert suspension(connection, "eve-2/pc") is None


def test_of_an_account_s_workers_those_are_known_that_were_heard_of_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.arena.ladder.workers.ACCOUNT_WORKERS", 2)
    with store.write() as connection:
        for now, name in enumerate(("local-1", "local-2", "local-3", "lab/a", "eve/a", "eve/b", "eve/a", "eve/c")):
            greet(connection, name, {}, trusted=False, now_ms=now)
        names = connection.scalars(select(workers.c.name)).all()
    assert sorted(names) == ["eve/a", "eve/c", "lab/a", "local-1", "local-2", "local-3"]
