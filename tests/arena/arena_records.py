"""Made-up match records for tests of the log and of what is derived from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from palus.arena.ladder.log import LogRecord, RunnerInfo
from palus.arena.models.entity import Entity
from palus.arena.referee.games import EnvBuild
from palus.arena.referee.result import Side
from palus.store import Store
from palus.store.derived import DERIVED, ratings
from palus.store.tables import matches


def read_log(connection: Connection) -> list[LogRecord]:
    """All records, in order."""
    return [LogRecord.from_json(line) for line in connection.scalars(select(matches.c.record).order_by(matches.c.seq))]


def published(store: Store, table: Any = ratings, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A derived table, in the order of its key. without: columns that are left out."""
    with store.read() as connection:
        rows = connection.execute(select(table).order_by(*table.primary_key.columns)).all()
    return [{name: value for name, value in row._mapping.items() if name not in without} for row in rows]


def dump(store: Store) -> list[list[dict[str, Any]]]:
    """All derived tables."""
    return [published(store, table) for table in DERIVED]


def sha(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def side(repo: str) -> Side:
    return Side(Entity(sha(repo), repo, sha(repo)[:40], (("SoccerTwos", sha(repo)),)), "stochastic")


def record(
    number: int,
    *,
    blue: str = "ann/striker",
    purple: str = "bob/keeper",
    unit: int | None = None,
    leg: int = 1,
    result: str = "win1",
    rated: bool = True,
    worker: str = "w1",
) -> LogRecord:
    """The match of that number. unit: number of its mirrored pair; by default a pair of its own."""
    unit_id = sha(f"unit {number if unit is None else unit}")[:16]
    score = {"win1": (1, 0), "win2": (0, 1)}.get(result, (0, 0))
    return LogRecord(
        id=sha(f"match {number}")[:16],
        env="SoccerTwos",
        build=EnvBuild("SoccerTwos", "1", "0" * 64, {}),
        seed=number,
        unit_id=unit_id,
        leg=leg,
        season=1,
        round=None,
        rated=rated,
        sides=(side(blue), side(purple)),
        runner=RunnerInfo("0", "test", {}, "none", worker),
        result=result,
        cause="goal" if sum(score) else "time_limit",
        score=score,
        duration_ticks=100,
        events=(),
        started="2024-01-01T00:00:00+00:00",
        wall_ms=1.0,
        replay=None,
        actions=None,
        final_state=None,
    )


def season(
    strength: dict[str, float],
    units: int,
    seed: int,
    *,
    side: float = 0.0,
    beats: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> list[LogRecord]:
    """A simulated round robin, `units` mirrored pairs per pairing; two records each.

    strength: points by repo. side: worth of the blue side, points. beats: shares of the first over the second that
    hold instead of what the strengths predict.
    """
    rng = np.random.default_rng(seed)
    records: list[LogRecord] = []
    for a, b in combinations(sorted(strength), 2):
        for _ in range(units):
            unit = len(records)
            for leg, (blue, purple) in enumerate(((a, b), (b, a)), start=1):
                odds = 10 ** ((strength[blue] - strength[purple] + side) / 400)
                share = beats.get((blue, purple), 1 - beats.get((purple, blue), 1 - odds / (1 + odds)))
                result = "draw" if rng.random() < 0.1 else "win1" if rng.random() < share else "win2"
                records.append(record(len(records), blue=blue, purple=purple, unit=unit, leg=leg, result=result))
    return records
