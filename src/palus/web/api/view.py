"""One consistent state of the arena, held in memory and renewed when the store has moved on.

Every page is a function of a `View`. Its version tells when an answer that was computed before is still right.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from palus.arena.referee.games import DEFAULT_GAME
from palus.store import Store
from palus.store.derived import fields, ratings
from palus.store.tables import annulments, entries, matches, repos
from palus.web.api.log_columns import VERDICTS, LogColumns, extend
from palus.web.api.roster import Roster, read_roster

FRESH_S = 0.25
"""How long a view is taken for the newest one without asking the database."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Arena:
    """What the pages say about the arena beyond its store. envs: shown even before the first entry."""

    envs: tuple[str, ...] = (DEFAULT_GAME,)
    mode: str = "continuous"
    season: int = 1
    season_end_ms: int | None = None


@dataclass(frozen=True)
class Version:
    """What pages depend on. Equal versions give equal pages.

    seq: newest match. annulled: their count. roster: changes with entries, ratings and repositories.
    """

    seq: int
    annulled: int
    roster: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """The log and the roster of one version. valid: [n] matches with a result that nobody struck out. counts: [n] those
    of them that ratings use. store: for what is too large to be held, such as records and replays."""

    store: Store
    arena: Arena
    version: Version
    log: LogColumns
    roster: Roster
    valid: Bools
    counts: Bools

    def envs(self) -> list[str]:
        """Every env that has entries or matches, the most played first."""
        played = np.bincount(self.log["env"], minlength=len(self.log.envs.texts))
        matches_of = dict(zip(self.log.envs.texts, played.tolist(), strict=True))
        known = {entry.env for rows in self.roster.entries_of.values() for entry in rows} | set(matches_of)
        return sorted(known, key=lambda env: (-matches_of.get(env, 0), env))

    def knows(self, env: str) -> bool:
        """Whether there are pages of it: nobody can fill memory or disk with those of games that he made up."""
        return env in self.arena.envs or env in self.envs()

    @cached_property
    def _newest(self) -> NDArray[np.int64]:
        """Index of the newest match of each entity."""
        newest = np.zeros(len(self.log.entities.texts), np.int64)
        for side in ("blue", "purple"):
            np.maximum.at(newest, self.log[side], np.arange(self.log.n))
        return newest

    def last_match_ms(self, sha256: str) -> int | None:
        """When the newest match of an entity ended."""
        entity = self.log.entities.get(sha256, -1)
        return int(self.log["finished_ms"][self._newest[entity]]) if entity >= 0 else None

    def stamp(self, *repos: str) -> object:
        """Changes with whatever pages about these repositories alone show: their matches, all ratings and entries.

        Without any, with every change.
        """
        entries_of = self.roster.entries_of
        if not repos or any(repo not in entries_of for repo in repos):
            return self.version
        entities = [self.log.entities.get(entry.sha256 or "", -1) for repo in repos for entry in entries_of[repo]]
        newest = tuple(int(self._newest[entity]) for entity in entities if entity >= 0)
        return self.version.roster, self.version.annulled, newest

    def of_env(self, env: str) -> Bools:
        """[n] matches of an env."""
        return np.asarray(self.log["env"] == self.log.envs.get(env, -1))


class Views:
    """Hands out the present view; safe between threads. fresh_s: see FRESH_S, 0 asks the database every time."""

    def __init__(self, store: Store, fresh_s: float = FRESH_S, arena: Arena | None = None) -> None:
        self.store = store
        self.arena = arena or Arena()
        self.fresh_s = fresh_s
        self._lock = threading.Lock()
        self._view: View | None = None
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
        log = extend(old.log if old else LogColumns(), connection)
        roster = old.roster if old and old.version.roster == version.roster else read_roster(connection)
        valid = log["verdict"] != VERDICTS.index("void")
        if version.annulled:
            struck = [match_id.encode("ascii") for match_id in connection.scalars(select(annulments.c.match_id))]
            valid &= ~np.isin(log["id"], np.array(struck, "S32"))
        return View(self.store, self.arena, version, log, roster, valid, valid & log["rated"])


def read_version(connection: Connection) -> Version:
    """The version of what the store holds now."""
    row = connection.execute(
        select(
            select(func.max(matches.c.seq)).scalar_subquery(),
            select(func.count(annulments.c.match_id)).scalar_subquery(),
            select(func.max(entries.c.id)).scalar_subquery(),
            select(func.max(entries.c.checked_ms)).scalar_subquery(),
            select(func.count()).where(entries.c.state == "accepted").scalar_subquery(),
            select(func.count()).where(entries.c.state == "withdrawn").scalar_subquery(),
            select(func.count()).where(entries.c.state == "waiting").scalar_subquery(),
            select(func.sum(ratings.c.upto_seq)).scalar_subquery(),
            # Who is on the board may change without a match: then ranks move.
            select(func.sum(ratings.c.rank * (ratings.c.games + 1))).scalar_subquery(),
            select(func.sum(fields.c.upto_seq)).scalar_subquery(),
            select(func.count(repos.c.id)).scalar_subquery(),
            select(func.max(repos.c.modified_ms)).scalar_subquery(),
            select(func.count()).where(repos.c.private).scalar_subquery(),
        )
    ).one()
    seq, annulled, *roster = (int(value or 0) for value in row)
    return Version(seq, annulled, tuple(roster))
