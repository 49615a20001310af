"""A store with players and results that were made up, for tests of what is shown of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, insert, select

from histories import add_history
from palus.arena.ladder.derive import field_row, fit_games, intervals_of, rating_rows
from palus.arena.ladder.log import LogRecord, RunnerInfo, StoredBytes, append
from palus.arena.models.entity import Entity
from palus.arena.referee.games import EnvBuild
from palus.arena.referee.result import Side
from palus.hub.accounts import create_account, find_account
from palus.hub.commits import Message, Put, add_commit
from palus.hub.limits import HubLimits
from palus.hub.repos import create_repo, find_repo
from palus.ratings.games import Played
from palus.ratings.online import Online, follow
from palus.store import Store
from palus.store.derived import fields, rating_points, ratings
from palus.store.tables import blobs, entries

ENV = "SoccerTwos"
START_MS = 1_700_000_000_000
_POINTS = {"win1": 1.0, "win2": 0.0, "draw": 0.5, "forfeit1": 0.0, "forfeit2": 1.0}
_SCORES = {"win1": (1, 0), "win2": (0, 1)}


def sha_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class SyntheticArena:
    """Adds entries and matches to a store; every match takes one minute of made-up time."""

    store: Store
    env: str = ENV
    history: list[Played] = field(default_factory=list)
    seq: int = 0
    pushed: int = 0

    def add_entry(self, repo: str, *, file: str = "", state: str = "accepted", source: str = "hub", **more: Any) -> str:
        """An entry; returns the SHA-256 of its file, which is made up from `file` or the repo's name."""
        self.pushed += 1
        sha256 = sha_of(file or repo)
        row = {
            "source": source,
            "repo": repo,
            "owner": repo.partition("/")[0],
            "revision": sha_of(f"{repo} {self.pushed}")[:40],
            "env": self.env,
            "files": json.dumps({self.env: sha256}),
            "sha256": sha256,
            "state": state,
            "details": json.dumps({"p99_ms": 0.4}),
            "pushed_ms": START_MS + self.pushed,
            "checked_ms": START_MS + self.pushed,
        }
        with self.store.write() as connection:
            connection.execute(insert(entries).values(row | more))
        return sha256

    def play(
        self, a: str, b: str, *results: str, rated: bool = True, replay: bytes = b"", ticks: int = 500
    ) -> list[str]:
        """One mirrored pair per two results; a is blue in the first game of each. Returns the ids of the matches."""
        records, finished = [], START_MS + self.seq * 60_000
        stored = self._store(replay) if replay else None
        for i, result in enumerate(results):
            self.seq += 1
            leg = i % 2 + 1
            sides = (a, b) if leg == 1 else (b, a)
            unit = sha_of(f"unit {self.seq - i % 2}")[:16]
            records.append(
                make_record(self.seq, unit, leg, sides, result, rated=rated, replay=stored, ticks=ticks, env=self.env)
            )
            if rated and result in _POINTS:
                blue, purple = (side.entity.sha256 for side in records[-1].sides)
                self.history.append(Played(self.seq, records[-1].id, unit, blue, purple, _POINTS[result]))
        with self.store.write() as connection:
            append(connection, records, finished)
        return [record.id for record in records]

    def rate(self, summary: dict[str, object] | None = None) -> None:
        """Fit the ratings and publish them, as the arena does."""
        fitted = fit_games(add_history(self.history), max((game.order for game in self.history), default=0))
        players, last = frozenset(fitted.sums.names), dict[str, Online]()
        follow(last, self.history)
        rows = rating_rows(self.env, fitted, last, players, intervals_of(fitted, players))
        of_env = field_row(self.env, fitted, players, annulments=0) | {"upto_seq": self.seq}
        of_env |= {"summary": json.dumps(summary or {})}
        points = [
            {
                name: row[name]
                for name in ("env", "sha256", "rating", "half_width", "games", "elo", "openskill_mu", "openskill_sigma")
            }
            | {"seq": self.seq, "at_ms": START_MS + self.seq * 60_000}
            for row in rows
        ]
        with self.store.write() as connection:
            connection.execute(delete(ratings))
            connection.execute(delete(fields))
            connection.execute(insert(ratings), rows)
            connection.execute(insert(rating_points), points)
            connection.execute(insert(fields).values(of_env))

    def push_card(
        self, repo: str, markdown: str, *, private: bool = False, more: Mapping[str, bytes] | None = None
    ) -> None:
        """A repository on the hub with a README, and more files by path."""
        owner, _, name = repo.partition("/")
        files = {"README.md": markdown.encode(), **(more or {})}
        stored = {path: self._store(data).sha256 for path, data in files.items()}
        with self.store.write() as connection:
            account = find_account(connection, owner) or create_account(connection, owner)
            if find_repo(connection, "model", repo) is None:
                create_repo(connection, "model", account, name, private, HubLimits())
            found = find_repo(connection, "model", repo)
            assert found is not None
            changes, message = [Put(path, sha256) for path, sha256 in stored.items()], Message("card")
            add_commit(connection, self.store.blobs, found, changes, message, owner, HubLimits())

    def _store(self, data: bytes) -> StoredBytes:
        blob = self.store.blobs.put(data)
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1, "created_ms": START_MS}
        with self.store.write() as connection:
            if connection.execute(select(blobs.c.size).where(blobs.c.sha256 == blob.sha256)).first() is None:
                connection.execute(insert(blobs).values(row | {"pinned": True}))
        return StoredBytes(blob.sha256, blob.size)


def make_record(
    number: int,
    unit: str,
    leg: int,
    sides: tuple[str, str],
    result: str,
    *,
    rated: bool = True,
    replay: StoredBytes | None = None,
    ticks: int = 500,
    env: str = ENV,
) -> LogRecord:
    """A match of the log. sides: repositories of blue and purple, whose files are made up from their names."""
    return LogRecord(
        id=sha_of(f"match {number}")[:16],
        env=env,
        build=EnvBuild(env, "1", "0" * 64, {}),
        seed=2**63 + number,
        unit_id=unit,
        leg=leg,
        season=1,
        round=None,
        rated=rated,
        sides=(_side(sides[0]), _side(sides[1])),
        runner=RunnerInfo("0.2", "Linux", {"numpy": "2"}, "namespaces", "worker-1"),
        result=result,
        cause="goal" if result in _SCORES else "time_limit" if result == "draw" else "timeout",
        score=_SCORES.get(result, (0, 0)),
        duration_ticks=ticks,
        events=(),
        started="2023-11-14T22:13:20Z",
        wall_ms=100.0,
        replay=replay,
        actions=None,
        final_state=None,
    )


def _side(repo: str) -> Side:
    return Side(Entity(sha_of(repo), repo, sha_of(repo)[:40], (("SoccerTwos", sha_of(repo)),)), "stochastic")


def match_id(number: int) -> str:
    return sha_of(f"match {number}")[:16]
