"""Rows of the log as shapes: a match from outside, a match from one player, tallies, head-to-head with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import ColumnElement

from palus.arena.referee.games import game_of
from palus.arena.referee.result import Verdict
from palus.ratings.elo import expected_score
from palus.ratings.interval import share_intervals
from palus.store.tables import matches
from palus.web.api.log_columns import FORFEITS, MOST, POINTS, VERDICTS, LogColumns, read_columns
from palus.web.api.roster import Player
from palus.web.api.view import View
from palus.web.shapes import Shape

Rows = NDArray[np.int64]
F64 = NDArray[np.float64]

MOST_MEETINGS = 10_000
"""Matches between two players that one page looks at, the newest."""

Outcome = Literal["win", "draw", "loss", "void"]
SideName = Literal["blue", "purple"]


class Tally(Shape):
    """Games of one player. share: points taken / games, 0 without games."""

    games: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    share: float = 0.0


class HeadToHead(Tally):
    """Games against one opponent. low..high: 95 % interval of the share, over mirrored pairs."""

    opponent: Player
    low: float = 0.0
    high: float = 1.0
    expected: float | None = Field(default=None, description="share that the ratings predict")


class _LoggedMatch(Shape):
    id: str
    at_ms: int
    score: tuple[int, int]
    duration_s: float
    rated: bool
    has_replay: bool


class MatchLine(_LoggedMatch):
    """A match seen from one player. score: own, the opponent's; of this game alone, not the pair."""

    leg: int
    side: SideName
    opponent: Player
    outcome: Outcome
    forfeit: bool


class MatchSummary(_LoggedMatch):
    """A match seen from outside, for lists of the newest ones."""

    seq: int
    env: str
    blue: Player
    purple: Player
    result: Verdict


@dataclass(frozen=True)
class EntityMatches:
    """Matches of one entity in one env. log: these alone. rows: [G] those against others, oldest first."""

    view: View
    env: str
    sha256: str
    log: LogColumns
    entity: int
    rows: Rows

    @cached_property
    def counted(self) -> Rows:
        """Those that ratings use."""
        return self.rows[self.log.counts[self.rows]]

    @cached_property
    def valid(self) -> Rows:
        """Those with a result, rated or not."""
        return self.rows[self.log.valid[self.rows]]

    def is_blue(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the entity had the blue side."""
        return np.asarray(self.log["blue"][rows] == self.entity)

    def points(self, rows: Rows) -> F64:
        """Points of the entity, NaN for void."""
        points = self.log.points(rows)
        return np.where(self.is_blue(rows), points, 1.0 - points)

    def opponents(self, rows: Rows) -> Rows:
        """Entity of the other side."""
        log = self.log
        return np.where(self.is_blue(rows), log["purple"][rows], log["blue"][rows]).astype(np.int64)

    def opponent_ratings(self, rows: Rows) -> F64:
        """Rating of the other side, NaN where it has none."""
        entities, of = np.unique(self.opponents(rows), return_inverse=True)
        texts, roster = self.log.entities.texts, self.view.roster
        known = [roster.player(texts[entity]).rating for entity in entities]
        return np.array([np.nan if rating is None else rating for rating in known])[of]

    def lines(self, rows: Rows) -> list[MatchLine]:
        """These matches as the page lists them."""
        return [self._line(row, blue) for row, blue in zip(rows.tolist(), self.is_blue(rows).tolist(), strict=True)]

    def _line(self, row: int, is_blue: bool) -> MatchLine:
        log = self.log
        points = float(POINTS[log["verdict"][row]])
        facts = _facts(log, row)
        return MatchLine(
            **facts if is_blue else facts | {"score": facts["score"][::-1]},
            leg=log["leg"][row],
            side="blue" if is_blue else "purple",
            opponent=_player(self.view, log, "purple" if is_blue else "blue", row),
            outcome=_outcome(points if is_blue else 1.0 - points),
            forfeit=FORFEITS[log["verdict"][row]],
        )

    def head_to_head(self, rows: Rows) -> list[HeadToHead]:
        """These games against each opponent, the most played first."""
        if not len(rows):
            return []
        roster, points = self.view.roster, self.points(rows)
        own = roster.player(self.sha256).rating
        entities, of = np.unique(self.opponents(rows), return_inverse=True)
        low, high = share_intervals(points, self.log["unit"][rows], of, len(entities))
        lines = []
        for entity, tally, least, most in zip(entities, tallies(of, points, len(entities)), low, high, strict=True):
            opponent = roster.player(self.log.entities.texts[entity])
            expected = None if own is None or opponent.rating is None else expected_score(own, opponent.rating)
            lines.append(HeadToHead.like(tally, opponent=opponent, low=least, high=most, expected=expected))
        return sorted(lines, key=lambda line: -line.games)


def games_of(view: View, env: str, sha256: str) -> EntityMatches:
    """Matches of an entity in an env, the newest `MOST`; a match against itself tells nothing and is left out."""
    sides = (matches.c.blue == sha256) | (matches.c.purple == sha256)
    return _read(view, env, sha256, matches.c.env == env, sides, most=MOST)


def meetings_of(view: View, env: str, sha256: str, opponent: str) -> EntityMatches:
    """Those of them that were against one opponent, the newest `MOST_MEETINGS`."""

    def games(entity: str) -> int:
        standing = view.roster.rated(env, entity)
        return standing.games if standing is not None else 0

    # Found by the index of who played less: a house player was in half of the log. A database that could would read all
    # matches of the env instead, in their order; text that is put together is in no index.
    few, many = sorted((sha256, opponent), key=games)
    blue, purple = (matches.c[side].concat("") == many for side in ("blue", "purple"))
    met = (matches.c.blue == few) & purple | (matches.c.purple == few) & blue
    return _read(view, env, sha256, matches.c.env.concat("") == env, met, most=MOST_MEETINGS)


def _read(view: View, env: str, sha256: str, *wanted: ColumnElement[bool], most: int) -> EntityMatches:
    with view.store.read() as connection:
        log = read_columns(connection, *wanted, most=most)
    return EntityMatches(
        view, env, sha256, log, log.entities.get(sha256, -1), np.flatnonzero(log["blue"] != log["purple"])
    )


def match_summary(view: View, log: LogColumns, row: int) -> MatchSummary:
    """A match as lists of the newest ones show it."""
    return MatchSummary(
        **_facts(log, row),
        seq=log["seq"][row],
        env=log.envs.texts[log["env"][row]],
        blue=_player(view, log, "blue", row),
        purple=_player(view, log, "purple", row),
        result=VERDICTS[log["verdict"][row]],
    )


def _facts(log: LogColumns, row: int) -> dict[str, Any]:
    """The fields of `_LoggedMatch`, seen from outside."""
    return {
        "id": log.id_text(row),
        "at_ms": log["finished_ms"][row],
        "score": (log["blue_score"][row], log["purple_score"][row]),
        "duration_s": float(log["ticks"][row]) * game_of(log.envs.texts[log["env"][row]]).tick_s,
        "rated": log.counts[row],
        "has_replay": log["has_replay"][row],
    }


def _player(view: View, log: LogColumns, side: str, row: int) -> Player:
    return view.roster.player(log.entities.texts[log[side][row]], log.repos.texts[log[f"{side}_repo"][row]])


def _outcome(points: float) -> Outcome:
    if np.isnan(points):
        return "void"
    return "win" if points == 1.0 else "loss" if points == 0.0 else "draw"


def tallies(of: NDArray[Any], points: NDArray[Any], groups: int) -> list[Tally]:
    """Of each group. of: [G] group of each game. points: [G] of the player."""
    games = np.bincount(of, minlength=groups)
    wins, losses = (np.bincount(of[points == value], minlength=groups) for value in (1.0, 0.0))
    share = np.bincount(of, points, groups) / np.maximum(games, 1)
    columns = (games, wins, games - wins - losses, losses, share)
    return [
        Tally(games=n, wins=won, draws=drawn, losses=lost, share=part)
        for n, won, drawn, lost, part in zip(*(column.tolist() for column in columns), strict=True)
    ]
