"""Workers: jobs done to the end, reports checked, nothing stored twice or half."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from arena_records import read_log
from processes import eventually
from small_run import policy_model
from sqlalchemy import delete, func, select, update

from palus.arena.jobs.reports import Report, from_json, to_json
from palus.arena.jobs.worker import Done, Lease, describe_here, play_order, work
from palus.arena.ladder import queue
from palus.arena.ladder.audit import suspend, suspension
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.entries import read_lineup
from palus.arena.ladder.inbox import accept, link
from palus.arena.ladder.log import LogRecord
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource, games_of, greet
from palus.arena.locked.sandbox import LockedProcess
from palus.arena.locked.unit import Unit, UnitReport
from palus.errors import ArenaError, UnreachableError
from palus.store import Store
from palus.store.engine import now_ms
from palus.store.tables import entries, jobs, workers

ENV = "SoccerTwos"
SETTINGS = ArenaSettings(max_attempts=2)


def scheduler(store: Store, *more: PeriodicSweep, settings: ArenaSettings = SETTINGS) -> Scheduler:
    return Scheduler(store, settings, [PeriodicSweep(sweep_house, 1e9), *more], seed=1)


def source(store: Store, worker: str = "w") -> StoreSource:
    return StoreSource(store, worker, SETTINGS, describe_here())


def do(store: Store, count: int) -> int:
    done = work(source(store), threading.Event(), max_jobs=count)
    link(store, now_ms=1)
    return done


def log(store: Store) -> list[LogRecord]:
    link(store, now_ms=1)
    with store.read() as connection:
        return read_log(connection)


def take(store: Store) -> Lease:
    (lease,) = source(store).take()
    return lease


def hand_in(store: Store, lease: Lease, report: Report) -> bool:
    """Whether it was taken."""
    return not accept(store, [(lease, report)], now_ms=1)


def report(store: Store, lease: Lease) -> UnitReport:
    return play_order(source(store), Unit.from_payload(lease.payload))


def test_a_pair_is_played_logged_with_its_replays_and_closed(store: Store) -> None:
    plan = scheduler(store)
    plan.tick()
    assert work(source(store), threading.Event(), max_jobs=1) == 1
    with store.read() as connection:
        assert list(connection.scalars(select(jobs.c.state).where(jobs.c.report.is_not(None)))) == ["reported"]
        assert read_log(connection) == []
    first, second = log(store)
    assert (first.leg, second.leg, first.unit_id) == (1, 2, second.unit_id)
    assert first.sides == second.sides[::-1]
    assert first.rated and first.season == 1 and first.seed == second.seed
    assert all(record.actions and record.final_state for record in (first, second))
    assert first.runner.worker == "w" and "numpy" in first.runner.runtimes
    with store.read() as connection:
        assert connection.scalar(select(func.count()).where(jobs.c.kind == "pair", jobs.c.state == "done")) == 1
        assert connection.execute(select(workers.c.matches)).scalar_one() == 2


def test_a_match_was_played_while_its_worker_held_it_whatever_that_says(store: Store) -> None:
    scheduler(store).tick()
    before, lease = now_ms(), take(store)
    unit = report(store, lease)
    lies = [("2001-01-01T00:00:00+00:00", 1e9), ("2999-01-01T00:00:00+00:00", 0.5)]
    told = [
        replace(match, result=replace(match.result, started=started, wall_ms=wall_ms))
        for match, (started, wall_ms) in zip(unit.matches, lies, strict=True)
    ]
    assert accept(store, [(lease, replace(unit, matches=tuple(told)))], now_ms=now_ms()) == set()
    first, second = log(store)
    seconds = [datetime.fromisoformat(record.started).timestamp() for record in (first, second)]
    assert before // 1000 <= seconds[0] <= seconds[1] <= now_ms() / 1000
    assert 0 < first.wall_ms <= now_ms() - before and second.wall_ms == 0.5


def test_models_of_a_pool_are_validated_and_tried_before_they_are_ranked(store: Store, tmp_path: Path) -> None:
    good, bad = tmp_path / "pool/ann/good/SoccerTwos.onnx", tmp_path / "pool/bob/bad/SoccerTwos.onnx"
    for path, data in ((good, policy_model()), (bad, b"not a model")):
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    pool = FolderPool(tmp_path / "pool", store.blobs)
    scheduler(store, PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 0.0)).tick()
    assert do(store, 2) == 2  # validations come first
    with store.read() as connection:
        ranked = {entrant.repo for entrant in read_lineup(connection, ENV, repos_per_owner=0).ranked.values()}
        rows = {row.repo: row for row in connection.execute(select(entries))}
    assert "ann/good" in ranked and "bob/bad" not in ranked
    assert rows["bob/bad"].state == "refused" and rows["bob/bad"].code and rows["bob/bad"].remedy
    trial = log(store)
    assert [record.rated for record in trial] == [False, False]
    assert {side.entity.repo for side in trial[0].sides} == {"ann/good", "palus/random"}


def test_a_unit_whose_model_is_killed_from_outside_is_played_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pool/ann/good/SoccerTwos.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(policy_model())
    pool = FolderPool(tmp_path / "pool", store.blobs)
    plan = scheduler(store, PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 0.0))
    plan.tick()
    assert do(store, 1) == 1  # its validation
    ask, killed = LockedProcess.ask, []

    def kill_the_first(self: LockedProcess, *question: Any) -> bytes:
        if not killed:
            killed.append(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        return ask(self, *question)

    monkeypatch.setattr(LockedProcess, "ask", kill_the_first)
    while not killed:
        plan.tick()
        assert do(store, 1) == 1
    assert {row.cause for row in log(store)} <= {"goal", "time_limit"}
    with store.read() as connection:
        attempts = select(jobs.c.attempts).where(jobs.c.kind == "pair", jobs.c.state == "done").order_by(jobs.c.id)
        assert list(connection.scalars(attempts))[-1] == 2


def test_a_report_is_stored_once_however_often_it_is_sent(store: Store) -> None:
    scheduler(store).tick()
    lease = take(store)
    done = report(store, lease)
    assert hand_in(store, lease, done) and hand_in(store, lease, done)
    assert len(log(store)) == 2
    assert hand_in(store, lease, done), "whose answer was lost may ask again"
    assert len(log(store)) == 2


def test_a_report_that_comes_after_its_lease_is_refused_and_the_next_one_counts(store: Store) -> None:
    plan = scheduler(store)
    plan.tick()
    late = take(store)
    done = report(store, late)
    plan.take_back(dead_workers=("w",))
    assert not hand_in(store, late, done)
    again = take(store)
    assert again.job_id == late.job_id
    assert hand_in(store, again, report(store, again))
    assert [row.result for row in log(store)] == [game.result.result for game in done.matches]


def with_game(unit: UnitReport, **changes: Any) -> UnitReport:
    first, second = unit.matches
    return replace(unit, matches=(replace(first, result=replace(first.result, **changes)), second))


def test_a_report_that_does_not_fit_its_job_is_refused_and_nothing_is_stored(store: Store) -> None:
    scheduler(store).tick()
    lease = take(store)
    honest = report(store, lease)
    wrong = [
        with_game(honest, seed=1),
        with_game(honest, leg=2),
        with_game(honest, result="win1", score=(0, 3)),
        replace(honest, matches=honest.matches[:1]),
        replace(honest, matches=(replace(honest.matches[0], actions=b""), honest.matches[1])),
    ]
    for forged in wrong:
        with pytest.raises(ArenaError, match="the report"):
            hand_in(store, lease, forged)
    assert log(store) == []
    assert hand_in(store, lease, honest)


def test_what_another_build_played_is_not_taken_and_goes_to_others_without_a_suspension(store: Store) -> None:
    scheduler(store).tick()
    with store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.id > select(func.min(jobs.c.id)).scalar_subquery()))
    stranger = StoreSource(store, "eve/pc", SETTINGS, describe_here(), trusted=False)
    for _ in range(SETTINGS.max_attempts):
        (lease,) = stranger.take()
        honest = report(store, lease)
        with pytest.raises(ArenaError, match="played with another build of SoccerTwos"):
            hand_in(store, lease, replace(honest, env=replace(honest.env, build_hash="0" * 64)))
        stranger.give_back(lease, "it is not taken")
    assert stranger.take() == [] and log(store) == []
    with store.read() as connection:
        assert suspension(connection, "eve/pc") is None
    assert do(store, 1) == 1
    assert [row.rated for row in log(store)] == [True, True]


def test_a_worker_gets_no_game_of_which_it_has_another_build(store: Store) -> None:
    about = {"games": [ENV, "Chess"], "builds": {ENV: "0" * 64}}
    assert games_of(about) == []
    assert games_of(describe_here()) and games_of({}) == [ENV]


def test_reports_survive_the_network(store: Store) -> None:
    scheduler(store).tick()
    sent = report(store, take(store))
    taken = from_json(to_json(sent))
    assert isinstance(taken, UnitReport) and from_json(to_json(taken)) == taken
    sides = [tuple(replace(side, entropy=None) for side in result.sides) for result in sent.results]
    assert [result.sides for result in taken.results] == sides
    assert [replace(result, sides=()) for result in taken.results] == [replace(r, sides=()) for r in sent.results]
    assert [(match.replay, match.actions) for match in taken.matches] == [(m.replay, m.actions) for m in sent.matches]
    with pytest.raises(ArenaError, match="not a report"):
        from_json({"games": [{}]})


def test_a_job_that_cannot_be_done_is_given_up_with_its_reason_and_its_model_refused(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "pool/ann/lost/SoccerTwos.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"to be lost")
    pool = FolderPool(tmp_path / "pool", store.blobs)
    plan = scheduler(store, PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9))
    plan.tick()
    for blob in store.blobs.folder.glob("??/*"):
        blob.unlink()
    stop = threading.Event()
    for _ in range(SETTINGS.max_attempts):
        lease = take(store)
        assert lease.kind == "validate"
        with pytest.raises(ArenaError, match="cannot be read") as caught:
            source(store).model(lease.payload["contender"]["sha256"])
        source(store).give_back(lease, str(caught.value))
    plan.tick()
    with store.read() as connection:
        row = connection.execute(select(entries).where(entries.c.repo == "ann/lost")).one()
        job = connection.execute(select(jobs).where(jobs.c.kind == "validate")).one()
    assert (row.state, row.code) == ("refused", "validation-failed")
    assert job.state == "failed" and "given up after 2 attempts" in job.fault
    assert work(source(store), stop, max_jobs=1) == 1  # the queue goes on


class Distant(StoreSource):
    """The store as if it were far away. asked: how many jobs a worker wanted each time; away: requests that fail.

    A question is worth so much play that several jobs of a machine that is slow today fit in."""

    def __init__(self, store: Store, away: int = 0) -> None:
        super().__init__(store, "w", SETTINGS, describe_here(), play_s=60.0)
        self.asked: list[int] = []
        self.away = away

    def take(self, count: int = 1) -> list[Lease]:
        self.asked.append(count)
        return super().take(count)

    def finish(self, done: Sequence[Done]) -> set[int]:
        self.away -= 1
        if self.away >= 0:
            raise UnreachableError("the arena is away")
        return super().finish(done)


def test_a_worker_far_away_takes_as_many_jobs_as_last_a_while_and_waits_for_an_arena_that_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("palus.arena.jobs.worker.OUT_OF_REACH_S", 0.01)
    plan = Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], min_workers=3, seed=1)
    plan.tick()
    far = Distant(store, away=2)
    report(store, take(store))  # compiles the game: the first pair is as fast as the next ones
    assert work(far, threading.Event(), max_jobs=8) == 8
    assert far.asked[0] == 1 < far.asked[1] and sum(far.asked) >= 8
    assert caplog.text.count("the arena is away; the reports of 1 jobs wait") == 2
    plan.link()
    assert len(log(store)) == 16
    far.take(9)
    for _ in range(12):
        plan.tick()
    with store.read() as connection:
        assert queue.count_ready(connection, "pair", ENV) >= 9, "as much is ordered as its workers take at once"


def test_who_takes_every_pair_and_plays_none_leaves_pairs_to_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ACCOUNT_JOBS", 12)
    plan, honest = scheduler(store), source(store)
    greedy = StoreSource(store, "eve/pc", SETTINGS, describe_here(), trusted=False)
    for _ in range(6):
        plan.tick()
        greedy.take(100)
    assert len(honest.take(5)) == 5
    with store.write() as connection:  # it goes on to renew, and asks for nothing
        connection.execute(update(workers).where(workers.c.name == "eve/pc").values(last_seen_ms=0))
    for _ in range(6):
        plan.tick()
        assert honest.take(5)


def test_a_worker_whose_leases_have_ended_plays_no_more_of_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler(store).tick()
    stop, playing, hearts, played = threading.Event(), threading.Event(), list[threading.Thread](), []

    class Late(Distant):
        lease_s = 0.01

        def take(self, count: int = 1) -> list[Lease]:
            if self.asked:
                stop.set()
            return super().take(3 if not self.asked else 0)

        def renew(self, leases: Sequence[Lease]) -> None:
            assert playing.wait(30)
            hearts.append(threading.current_thread())
            raise queue.void(leases[0].job_id)

    def play_slowly(*order: Any) -> UnitReport:
        playing.set()
        eventually(lambda: hearts)
        hearts[0].join()
        played.append(order)
        raise ArenaError("too late")

    monkeypatch.setattr("palus.arena.jobs.worker.play_order", play_slowly)
    assert work(Late(store), stop) == 0
    with store.read() as connection:
        states = Counter(connection.scalars(select(jobs.c.state)))
    assert (len(played), states) == (1, {"ready": 1, "leased": 2})


def test_a_worker_that_is_told_to_stop_hands_in_what_is_done_and_gives_the_rest_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], min_workers=3, seed=1).tick()
    stop = threading.Event()
    far = Distant(store)
    far.play_s = 1e9
    played = []

    def stop_after_three(*order: Any) -> UnitReport:
        played.append(order)
        if len(played) == 3:
            stop.set()
        return play_order(*order)

    monkeypatch.setattr("palus.arena.jobs.worker.play_order", stop_after_three)
    assert work(far, stop) == 3 and far.asked == [1, 100]
    with store.read() as connection:
        states = Counter(connection.scalars(select(jobs.c.state)))
    assert states == {"reported": 3, "ready": 6}


def test_a_suspended_worker_gets_no_work_and_its_results_are_not_taken(store: Store) -> None:
    scheduler(store).tick()
    lease = take(store)
    done = report(store, lease)
    with store.write() as connection:
        suspend(connection, "w", "too good", now_ms=1)
    with pytest.raises(ArenaError, match="suspended"):
        hand_in(store, lease, done)
    with pytest.raises(ArenaError, match="suspended"):
        take(store)
    assert log(store) == []


def test_rounds_let_everybody_play_one_match_and_wait_for_the_next(store: Store) -> None:
    plan = scheduler(store, settings=replace(SETTINGS, mode="rounds", round_interval_s=3600.0))
    plan.tick()
    with store.read() as connection:
        (payload,) = queue.open_payloads(connection, "pair", ENV)
        assert len(json.loads(payload)["legs"]) == 1
    assert do(store, 1) == 1
    plan.tick()
    with store.read() as connection:
        assert queue.open_payloads(connection, "pair", ENV) == []
    (row,) = log(store)
    assert (row.round, row.leg, row.rated) == (1, 1, True)
    with store.write() as connection:
        connection.execute(update(jobs).values(created_ms=jobs.c.created_ms - 3_600_000))
    plan.tick()
    with store.read() as connection:
        (payload,) = queue.open_payloads(connection, "pair", ENV)
        assert json.loads(payload)["round"] == 2


def test_no_account_has_pairs_wait_by_what_it_says_of_workers_that_take_nothing(store: Store) -> None:
    plan, now = Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], seed=1), now_ms()
    with store.write() as connection:
        for number in range(30):
            greet(connection, f"eve/{number}", describe_here(), trusted=False, now_ms=now, count=100)
    plan.tick()
    with store.read() as connection:
        assert plan._count_hands(connection, ENV) == 10
    with store.write() as connection:
        assert len(queue.take(connection, "eve/1", [ENV], trusted=False, lease_s=60.0, now_ms=now, count=15)) == 15
    with store.read() as connection:
        assert plan._count_hands(connection, ENV) == 25, "who works has more wait for it"
    with store.write() as connection:
        greet(connection, "lab/pc", describe_here(), trusted=True, now_ms=now, count=100)
    with store.read() as connection:
        assert plan._count_hands(connection, ENV) == 125


def test_the_queue_is_filled_for_the_workers_at_hand_and_no_more(store: Store) -> None:
    plan = Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], min_workers=3, seed=1)
    plan.tick()
    plan.tick()
    with store.read() as connection:
        waiting = list(map(json.loads, queue.open_payloads(connection, "pair", ENV)))
    assert len(waiting) == 9
    assert len({Unit.from_payload(payload).unit_id for payload in waiting}) == 9
