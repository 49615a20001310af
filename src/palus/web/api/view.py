"""What pages know of one version of the arena, renewed when the store has moved on.

Every page is a function of a `View` and of what it reads through it: parts of the log, what the log adds up to. Its
version tells when an answer that was computed before is still right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, cast, func, select

from palus.arena.ladder.settings import ArenaSettings
from palus.store import Store
from palus.store.derived import fields, intake, player_sums, ratings
from palus.store.tables import annulments, entries, matches, repos
from palus.web.api.log_columns import LogColumns, read_columns
from palus.web.api.roster import Roster, read_roster

FRESH_S = 0.25
"""How long a view is taken for the newest one without asking the database."""

NEWEST = 100
"""Of the last matches: what a page hears of that lost its connection for a moment."""


@dataclass(frozen=True)
class Version:
    """What pages depend on, in numbers that are cheap to ask for: equal versions are taken to give equal pages.

    seq: newest match. annulled: their count. roster: changes with entries, ratings and repositories.
    """

    seq: int
    annulled: int
    roster: tuple[int, ...]


@dataclass(frozen=True)
class Total:
    """Matches of an env, rated or not; the newest one's number and time, 0 and None where there is none."""

    matches: int
    newest_seq: int
    newest_ms: int | None


@dataclass(frozen=True)
class View:
    """What pages say of one version of the arena; nothing in it grows with the log.

    store: for what is read when a page asks for it. arena: its envs are shown even before the first entry. newest: the
    last matches, oldest first. last: newest match of each entity that played since this process began. intakes: by env,
    up to where derived tables hold the log.
    """

    store: Store
    arena: ArenaSettings
    version: Version
    roster: Roster
    newest: LogColumns
    last: Mapping[str, int]
    intakes: Mapping[str, Row[Any]]
    _totals: dict[str, Total] = field(default_factory=dict, init=False)
    _tails: dict[str, LogColumns] = field(default_factory=dict, init=False)

    @cached_property
    def envs(self) -> list[str]:
        """Every env that has entries or matches, the most played first."""
        known = {entry.env for rows in self.roster.entries_of.values() for entry in rows} | self.intakes.keys()
        if not self.intakes:  # before the first refresh
            with self.store.read() as connection:
                known |= set(connection.scalars(select(matches.c.env).distinct()))
        known |= set(self.newest.envs.texts)
        return sorted(known, key=lambda env: (-self.total(env).matches, env))

    def knows(self, env: str) -> bool:
        """Whether there are pages of it: nobody can fill memory or disk with those of games that he made up."""
        return env in self.arena.envs or env in self.envs

    def total(self, env: str) -> Total:
        """How much an env was played."""
        if env not in self._totals:
            taken = self.intakes.get(env)
            since = (matches.c.env == env) & (matches.c.seq > (taken.seen_seq if taken else 0))
            last = select(matches.c.seq, matches.c.finished_ms).where(matches.c.env == env)
            with self.store.read() as connection:
                more = connection.scalar(select(func.count()).select_from(matches).where(since)) or 0
                row = connection.execute(last.order_by(matches.c.seq.desc()).limit(1)).first()
            played = more + (taken.matches if taken else 0)
            self._totals[env] = Total(played, row.seq, row.finished_ms) if row else Total(played, 0, None)
        return self._totals[env]

    def behind(self, env: str) -> int:
        """Counted matches after the last one that a fit included."""
        since = (matches.c.env == env) & matches.c.rated & (matches.c.seq > self.roster.fitted(env))
        counted = since & matches.c.id.not_in(select(annulments.c.match_id))
        with self.store.read() as connection:
            return connection.scalar(select(func.count()).select_from(matches).where(counted)) or 0

    def tail(self, env: str) -> LogColumns:
        """Matches that the sums of the log do not include yet."""
        if env not in self._tails:
            taken = self.intakes.get(env)
            with self.store.read() as connection:
                after = matches.c.seq > (taken.upto_seq if taken else 0)
                self._tails[env] = read_columns(connection, matches.c.env == env, after)
        return self._tails[env]

    def last_matches_ms(self, env: str) -> dict[str, int]:
        """When the newest match of each entity ended."""
        columns = select(player_sums.c.sha256, player_sums.c.last_ms).where(player_sums.c.env == env)
        with self.store.read() as connection:
            found = {row.sha256: int(row.last_ms) for row in connection.execute(columns)}
        tail = self.tail(env)
        for side in ("blue", "purple"):
            ended = zip(tail[side].tolist(), tail["finished_ms"].tolist(), strict=True)
            for entity, at_ms in ended:
                sha256 = tail.entities.texts[entity]
                found[sha256] = max(found.get(sha256, 0), at_ms)
        return found

    def ended_ms(self, seq: int) -> int | None:
        """When a match of the log ended, the newest one up to that number."""
        wanted = select(matches.c.finished_ms).where(matches.c.seq <= seq).order_by(matches.c.seq.desc())
        with self.store.read() as connection:
            found: int | None = connection.scalar(wanted.limit(1))
        return found

    def stamp(self, *repos: str) -> object:
        """Changes with whatever pages about these repositories alone show: their matches, all ratings and entries.

        Without any, with every change.
        """
        entries_of = self.roster.entries_of
        if not repos or any(repo not in entries_of for repo in repos):
            return self.version
        entities = [entry.sha256 for repo in repos for entry in entries_of[repo] if entry.sha256]
        return self.version.roster, self.version.annulled, tuple(self.last.get(entity, 0) for entity in entities)


class Views:
    """Hands out the present view; safe between threads. fresh_s: see FRESH_S, 0 asks the database every time."""

    def __init__(self, store: Store, fresh_s: float = FRESH_S, arena: ArenaSettings | None = None) -> None:
        self.store = store
        self.arena = arena or ArenaSettings()
        self.fresh_s = fresh_s
        self._lock = threading.Lock()
        self._view: View | None = None
        self._last: dict[str, int] = {}
        self._checked = -float("inf")

    def cached(self) -> View | None:
        """The view if it is fresh enough to be used without a look at the database."""
        return self._view if time.monotonic() - self._checked < self.fresh_s else None

    def current(self) -> View:
        """The present view. One thread renews it, the others wait for that."""
        with self._lock:
            if view := self.cached():
                return view
            checked = time.monotonic()
            with self.store.read() as connection:
                version = read_version(connection)
                if self._view is None or self._view.version != version:
                    self._view = self._renewed(version, connection)
            self._checked = checked
            return self._view

    def _renewed(self, version: Version, connection: Connection) -> View:
        old = self._view
        roster = old.roster if old and old.version.roster == version.roster else read_roster(connection)
        if old is not None:
            played = select(matches.c.seq, matches.c.blue, matches.c.purple).where(matches.c.seq > old.version.seq)
            for row in connection.execute(played.order_by(matches.c.seq)):
                self._last[row.blue] = self._last[row.purple] = row.seq
        newest = read_columns(connection, most=NEWEST)
        taken = {row.env: row for row in connection.execute(select(intake))}
        return View(self.store, self.arena, version, roster, newest, self._last, taken)


def read_version(connection: Connection) -> Version:
    """The version of what the store holds now."""
    row = connection.execute(
        select(
            select(func.max(matches.c.seq)).scalar_subquery(),
            select(func.count(annulments.c.match_id)).scalar_subquery(),
            select(func.max(entries.c.id)).scalar_subquery(),
            select(func.max(entries.c.checked_ms)).scalar_subquery(),
            select(func.count(entries.c.checked_ms)).scalar_subquery(),  # where a clock was set back the last one stays
            select(func.count()).where(entries.c.state == "accepted").scalar_subquery(),
            select(func.count()).where(entries.c.state == "withdrawn").scalar_subquery(),
            select(func.count()).where(entries.c.state == "waiting").scalar_subquery(),
            select(func.sum(ratings.c.upto_seq)).scalar_subquery(),
            # Who is on the board may change without a match: then ranks move.
            select(func.sum(cast(ratings.c.rank, BigInteger) * (ratings.c.games + 1))).scalar_subquery(),
            select(func.sum(fields.c.upto_seq)).scalar_subquery(),
            select(func.count(repos.c.id)).scalar_subquery(),
            select(func.max(repos.c.modified_ms)).scalar_subquery(),
        )
    ).one()
    seq, annulled, *roster = (int(value or 0) for value in row)
    # Which ones are private, not how many: somebody may hide one and show another.
    private = connection.scalars(select(repos.c.id).where(repos.c.private).order_by(repos.c.id))
    return Version(seq, annulled, (*roster, *private))
