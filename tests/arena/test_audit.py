"""Matches played again, runners compared, and what happens to those who lie."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arena_records import record, season, sha
from sqlalchemy import insert, select

from palus.arena.audit import audit, suspend, suspend_outliers, verify, verify_record
from palus.arena.discovery import sweep_house
from palus.arena.log import LogRecord, StoredBytes, append, read_log
from palus.arena.runner_tests import RatedGame, suspicions
from palus.arena.scheduler import Looker, Scheduler
from palus.arena.settings import ArenaSettings
from palus.arena.worker import work
from palus.arena.workers import StoreSource, describe_here
from palus.errors import ArenaError
from palus.store import Store, open_store
from palus.store.tables import annulments, workers

SETTINGS = ArenaSettings(target_half_width=0.0)


def played(folder: Path, units: int) -> Store:
    """A store with matches of the house players."""
    store = open_store(folder)
    plan = Scheduler(store, SETTINGS, [Looker(sweep_house, 1e9)], seed=1)
    for _ in range(units):
        plan.tick()
        assert work(StoreSource(store, "w", SETTINGS, describe_here()), threading.Event(), max_jobs=1) == 1
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return played(tmp_path_factory.mktemp("arena"), 10)


def records(store: Store) -> list[LogRecord]:
    with store.read() as connection:
        return [row.record for row in read_log(connection)]


def test_every_match_ends_in_the_same_state_when_it_is_played_again(store: Store) -> None:
    found = [verify(store, logged.id) for logged in records(store)]
    assert len(found) == 20
    assert all(verification.ok for verification in found), found


@pytest.mark.slow
def test_a_hundred_of_a_hundred_matches_verify(tmp_path: Path) -> None:
    store = played(tmp_path, 50)
    assert [verify(store, logged.id).ok for logged in records(store)] == [True] * 100


def test_a_record_with_other_actions_or_another_seed_does_not_verify(store: Store) -> None:
    first, second, third, *_ = records(store)
    assert verify_record(store, replace(first, actions=third.actions)).ok is False
    assert verify_record(store, replace(first, seed=first.seed + 1)).ok is False
    other = {"win1": "draw", "win2": "win1", "draw": "win2"}[first.result]
    lie = verify_record(store, replace(first, result=other))
    assert lie.ok is False and f"is recorded as {other}" in lie.sentence
    assert verify_record(store, replace(first, duration_ticks=first.duration_ticks + 1)).ok is False
    damaged = store.blobs.put(b"\x01no action log")
    found = verify_record(store, replace(second, actions=StoredBytes(damaged.sha256, damaged.size)))
    assert found.ok is False and "cannot be played again" in found.sentence


def test_a_match_of_another_build_is_not_judged_and_an_unknown_one_is_named(store: Store) -> None:
    other = records(store)[0]
    found = verify_record(store, replace(other, env=replace(other.env, build_hash="0" * 64)))
    assert found.ok is None and "another build" in found.sentence
    with pytest.raises(ArenaError, match="no match abc"):
        verify(store, "abc")


def test_an_audit_strikes_out_the_pair_of_a_match_that_does_not_verify(tmp_path: Path) -> None:
    store = played(tmp_path, 2)
    honest = records(store)
    forged = [
        replace(honest[0], id="f1", unit_id="forged", state=sha("else")),
        replace(honest[1], id="f2", unit_id="forged"),
    ]
    with store.write() as connection:
        append(connection, forged, finished_ms=1)
    failures = audit(store, 1.0, seed=0, now_ms=5)
    assert [failure.match_id for failure in failures] == ["f1"]
    with store.read() as connection:
        rows = connection.execute(select(annulments).order_by(annulments.c.match_id)).all()
    assert [(row.match_id, row.created_ms) for row in rows] == [("f1", 5), ("f2", 5)]
    assert audit(store, 1.0, seed=0, now_ms=6) == []


def games(worker: str, count: int, share_of_a: float, seed: int, forfeits: float = 0.0) -> list[RatedGame]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        blue, purple = ("a", "b") if number % 2 else ("b", "a")
        a_won = rng.random() < share_of_a
        points = float(a_won == (blue == "a"))
        result = "forfeit1" if rng.random() < forfeits else "win1" if points else "win2"
        made.append(RatedGame(worker, blue, purple, points, result))
    return made


def test_honest_runners_are_not_suspected() -> None:
    for seed in range(50):
        assert suspicions(games("x", 300, 0.6, 2 * seed) + games("y", 200, 0.6, 2 * seed + 1)) == []


def test_a_runner_that_favours_a_player_or_lets_matches_fail_is_suspected() -> None:
    (found,) = [s for s in suspicions(games("x", 2000, 0.5, 1) + games("liar", 200, 0.95, 2)) if s.worker == "liar"]
    assert found.p_value < 1e-9 and "scored" in found.sentence
    (found,) = [s for s in suspicions(games("x", 2000, 0.5, 1) + games("bad", 200, 0.5, 2, 0.3)) if s.worker == "bad"]
    assert "forfeited or void" in found.sentence


def test_few_games_are_no_evidence() -> None:
    assert suspicions(games("x", 2000, 0.5, 1) + games("new", 40, 1.0, 2)) == []


def test_outliers_are_suspended_with_all_their_matches_and_the_arenas_own_workers_never(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    rest = [replace(r, runner=replace(r.runner, worker="local-1")) for r in season({"a/a": 0.0, "b/b": 0.0}, 200, 1)]
    lies = [record(5000 + i, blue="a/a", purple="b/b", result="win1", worker="eve/pc") for i in range(60)]
    lies += [record(6000 + i, blue="b/b", purple="a/a", result="win2", worker="eve/pc") for i in range(60)]
    with store.write() as connection:
        for name in ("local-1", "eve/pc"):
            row = {"name": name, "isolation": "", "platform": "{}", "first_seen_ms": 0, "last_seen_ms": 0, "matches": 0}
            connection.execute(insert(workers).values(row))
        append(connection, rest + lies, finished_ms=1)
    (sentence,) = suspend_outliers(store, now_ms=3)
    assert sentence.startswith("worker eve/pc is suspended")
    with store.read() as connection:
        struck = set(connection.execute(select(annulments.c.match_id)).scalars())
        assert connection.execute(select(workers.c.name).where(workers.c.suspended.is_not(None))).scalars().all() == [
            "eve/pc"
        ]
    assert struck == {lie.id for lie in lies}
    assert suspend_outliers(store, now_ms=4) == []
    with store.write() as connection, pytest.raises(ArenaError, match="no worker nobody"):
        suspend(connection, "nobody", "", now_ms=1)
