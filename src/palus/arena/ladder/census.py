"""How many of an env's matches there were of each kind: by day, by team, by what ended them, by how long they took.

A team is an `owner/name` over all its revisions, as the log has it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from palus.arena.referee.games import game_of
from palus.arena.referee.result import POINTS
from palus.store.derived import census

DAY_MS = 86_400_000
LENGTH_S = 10.0
"""Of the kinds by how long a match took."""

Kind = tuple[str, str]
"""What, and its name, as in the table `census`."""


@dataclass
class Count:
    """Matches of one kind that count, and when the first was logged, counting or not. won: by the team, or by blue."""

    games: int = 0
    won: int = 0
    drawn: int = 0
    lost: int = 0
    ticks: int = 0
    first_ms: int = 0

    def add(self, points: float, ticks: int, by: int) -> None:
        """A match, or take one away with by = -1."""
        self.games += by
        self.won += by * (points == 1.0)
        self.drawn += by * (points not in (0.0, 1.0))
        self.lost += by * (points == 0.0)
        self.ticks += by * ticks


@dataclass
class Census:
    """Counts by kind. changed: kinds that the store does not hold yet."""

    counts: defaultdict[Kind, Count] = field(default_factory=lambda: defaultdict(Count))
    changed: set[Kind] = field(default_factory=set)

    def of(self, what: str) -> dict[str, Count]:
        """Counts of one sort, by name; without those that no match of counts."""
        return {name: count for (sort, name), count in self.counts.items() if sort == what and count.games}

    def add(self, row: Row[Any], by: int, *, first: bool = False) -> None:
        """A match of the log; by: 1, -1 to take it away, 0 where it does not count. first: it was never seen before."""
        record, game = json.loads(row.record), game_of(row.env)
        points = POINTS.get(row.result, 0.5)
        ticks = max(0, min(record.get("duration_ticks") or 0, game.max_ticks))
        length = int(ticks * game.tick_s // LENGTH_S)
        blue, purple = (side["repo"] for side in record["sides"])
        kinds = [
            ("all", "", points),
            ("day", str(row.finished_ms // DAY_MS), points),
            ("cause", record.get("cause") or "unknown", points),
            ("length", str(length), points),
            ("team", blue, points),
            ("team", purple, 1.0 - points),
        ]
        for what, name, of_it in kinds:
            count = self.counts[what, name]
            count.add(of_it, ticks, by)
            if first and (not count.first_ms or row.finished_ms < count.first_ms):
                count.first_ms = row.finished_ms
            self.changed.add((what, name))


def load_census(connection: Connection, env: str) -> Census:
    """As it was saved last."""
    known = Census()
    for row in connection.execute(select(census).where(census.c.env == env)):
        known.counts[row.what, row.name] = Count(row.games, row.won, row.drawn, row.lost, row.ticks, row.first_ms)
    return known


def save_census(connection: Connection, env: str, known: Census) -> None:
    """Bring the store up to date, in the caller's transaction."""
    kinds = sorted(known.changed)
    if kinds:
        one = (census.c.what == bindparam("a")) & (census.c.name == bindparam("b"))
        gone = delete(census).where(census.c.env == env, one)
        connection.execute(gone, [{"a": what, "b": name} for what, name in kinds])
        rows = [{"env": env, "what": kind[0], "name": kind[1], **vars(known.counts[kind])} for kind in kinds]
        connection.execute(insert(census), rows)
    known.changed.clear()
