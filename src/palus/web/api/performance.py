"""How one repository does in one env: everything on its page that comes from matches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from palus.arena.referee.games import game_of
from palus.ratings.bradley_terry import POINTS_TO_LOGIT
from palus.ratings.interval import Z_95
from palus.web.api.leaderboard import LeaderboardRow, board_order, board_row
from palus.web.api.roster import Player
from palus.web.api.summaries import (
    F64,
    HeadToHead,
    MatchLine,
    Rows,
    Tally,
    expected_share,
    head_to_head,
    match_line,
    tally,
)
from palus.web.api.view import View
from palus.web.shapes import Shape

HIGHLIGHTS = 10
RECENT = 30
NEXT_OPPONENTS = 5
STRENGTH_BIN = 100.0
"""Rating points that one bin of opponents spans."""
GOAL_BIN_S = 10.0


class StrengthBin(Shape):
    """Games against opponents rated low..high: what the ratings predicted and what was scored."""

    low: float
    high: float
    games: int
    expected: float
    actual: float


class Goals(Shape):
    """Goals and how long they took. Bin i of the histograms covers bin_s * i .. bin_s * (i + 1) seconds.

    Frags in games that are filmed, without times.
    """

    scored: int
    conceded: int
    mean_scored_s: float | None
    mean_conceded_s: float | None
    bin_s: float
    scored_bins: list[int]
    conceded_bins: list[int]


class NextOpponent(Shape):
    """What to play next: the pairing that would teach the ratings most. gain: nats of one mirrored pair."""

    opponent: Player
    games: int
    gain: float
    sentence: str


@dataclass(frozen=True)
class EntityMatches:
    """Matches of one entity in one env, oldest first. rows: [G] indices into the log."""

    view: View
    env: str
    sha256: str
    entity: int
    rows: Rows

    @cached_property
    def counted(self) -> Rows:
        """Those that ratings use."""
        return self.rows[self.view.counts[self.rows]]

    @cached_property
    def valid(self) -> Rows:
        """Those with a result, rated or not."""
        return self.rows[self.view.valid[self.rows]]

    def is_blue(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the entity had the blue side."""
        return np.asarray(self.view.log["blue"][rows] == self.entity)

    def points(self, rows: Rows) -> F64:
        """Points of the entity, NaN for void."""
        points = self.view.log.points(rows)
        return np.where(self.is_blue(rows), points, 1.0 - points)

    def opponents(self, rows: Rows) -> Rows:
        """Entity of the other side."""
        log = self.view.log
        return np.where(self.is_blue(rows), log["purple"][rows], log["blue"][rows]).astype(np.int64)

    def opponent_ratings(self, rows: Rows) -> F64:
        """Rating of the other side, NaN where it has none."""
        entities, of = np.unique(self.opponents(rows), return_inverse=True)
        texts, roster = self.view.log.entities.texts, self.view.roster
        known = [roster.player(texts[entity]).rating for entity in entities]
        return np.array([np.nan if rating is None else rating for rating in known])[of]

    def lines(self, rows: Rows) -> list[MatchLine]:
        """These matches as the page lists them."""
        return [match_line(self.view, int(row), self.entity) for row in rows]


def games_of(view: View, env: str, sha256: str) -> EntityMatches:
    """Matches of an entity in an env; a match against itself tells nothing and is left out."""
    log = view.log
    entity = log.entities.find(sha256)
    blue, purple = log["blue"] == entity, log["purple"] == entity
    return EntityMatches(view, env, sha256, entity, np.flatnonzero((blue ^ purple) & view.of_env(env)))


def standing(view: View, env: str, games: EntityMatches) -> LeaderboardRow | None:
    """The row of the board, None for who is not on it."""
    rated = view.roster.ratings.get(env, {}).get(games.sha256)
    if rated is None or not rated.rank:
        return None
    return board_row(view, env, rated, int(view.log["finished_ms"][games.rows[-1]]) if len(games.rows) else None)


def opponents_met(games: EntityMatches) -> list[HeadToHead]:
    """Counted games against each opponent."""
    rows = games.counted
    player = games.view.roster.player(games.sha256)
    units = games.view.log["unit"][rows]
    return head_to_head(games.view, player, games.opponents(rows), games.points(rows), units)


def best_wins(games: EntityMatches) -> list[MatchLine]:
    """Wins over the strongest opponents, one per opponent."""
    return games.lines(_telling(games, 1.0, strongest_first=True))


def worst_losses(games: EntityMatches) -> list[MatchLine]:
    """Losses to the weakest opponents, one per opponent."""
    return games.lines(_telling(games, 0.0, strongest_first=False))


def _telling(games: EntityMatches, points: float, strongest_first: bool) -> Rows:
    rows = games.counted[games.points(games.counted) == points][::-1]
    ratings = games.opponent_ratings(rows) if len(rows) else np.empty(0)
    known = ~np.isnan(ratings)
    rows, ratings = rows[known], ratings[known]
    order = np.argsort(-ratings if strongest_first else ratings, kind="stable")
    _, first = np.unique(games.opponents(rows[order]), return_index=True)
    return np.asarray(rows[order][np.sort(first)][:HIGHLIGHTS])


def recent(games: EntityMatches) -> list[MatchLine]:
    """The newest matches, rated or not."""
    return games.lines(games.rows[::-1][:RECENT])


def by_side(games: EntityMatches) -> tuple[Tally, Tally]:
    """Counted games with the blue and with the purple side."""
    points, is_blue = games.points(games.counted), games.is_blue(games.counted)
    return tally(points[is_blue]), tally(points[~is_blue])


def goals(games: EntityMatches) -> Goals:
    """Goals of counted games. The first goal ends a match, so the time of a goal is the length of its match.

    In games that are filmed: frags, which do not end a match and have no time.
    """
    log, rows = games.view.log, games.counted
    is_blue = games.is_blue(rows)
    own = np.where(is_blue, log["blue_goals"][rows], log["purple_goals"][rows])
    other = np.where(is_blue, log["purple_goals"][rows], log["blue_goals"][rows])
    if game_of(games.env).filmed:
        return Goals(
            scored=int(own.sum()),
            conceded=int(other.sum()),
            mean_scored_s=None,
            mean_conceded_s=None,
            bin_s=GOAL_BIN_S,
            scored_bins=[],
            conceded_bins=[],
        )
    seconds = log["ticks"][rows] * game_of(games.env).tick_s
    bins = int(seconds.max() // GOAL_BIN_S) + 1 if len(rows) else 0
    return Goals(
        scored=int(own.sum()),
        conceded=int(other.sum()),
        mean_scored_s=float(seconds[own > 0].mean()) if (own > 0).any() else None,
        mean_conceded_s=float(seconds[other > 0].mean()) if (other > 0).any() else None,
        bin_s=GOAL_BIN_S,
        scored_bins=_histogram(seconds[own > 0], bins),
        conceded_bins=_histogram(seconds[other > 0], bins),
    )


def _histogram(seconds: F64, bins: int) -> list[int]:
    return [int(count) for count in np.bincount((seconds // GOAL_BIN_S).astype(int), minlength=bins)]


def by_strength(games: EntityMatches) -> list[StrengthBin]:
    """Expected against actual score, opponents in bins of equal width by their present rating."""
    own = games.view.roster.player(games.sha256).rating
    rows = games.counted
    if own is None or not len(rows):
        return []
    ratings, points = games.opponent_ratings(rows), games.points(rows)
    known = ~np.isnan(ratings)
    ratings, points = ratings[known], points[known]
    bins, of = np.unique(np.floor(ratings / STRENGTH_BIN), return_inverse=True)
    predicted = 1.0 / (1.0 + np.exp(-POINTS_TO_LOGIT * (own - ratings)))
    count = np.bincount(of, minlength=len(bins))
    return [
        StrengthBin(low=float(low), high=float(low) + STRENGTH_BIN, games=int(n), expected=float(e), actual=float(a))
        for low, n, e, a in zip(
            bins * STRENGTH_BIN, count, np.bincount(of, predicted) / count, np.bincount(of, points) / count, strict=True
        )
    ]


def play_next(view: View, env: str, games: EntityMatches) -> list[NextOpponent]:
    """Opponents of other owners against which one mirrored pair would teach the ratings most.

    gain = 1/2 ln(1 + 2 L^2 p (1 - p) Var(t_i - t_j)), the two variances added as if independent.
    """
    player = view.roster.player(games.sha256)
    if player.rating is None or player.half_width is None:
        return []
    met = Counter(view.log.entities.texts[entity] for entity in games.opponents(games.counted))
    candidates = []
    for rated in board_order(view, env):
        if view.roster.player(rated.sha256).owner == player.owner:
            continue
        p = expected_share(player.rating, rated.rating)
        variance = (player.half_width**2 + rated.half_width**2) / Z_95**2
        gain = 0.5 * float(np.log1p(2.0 * POINTS_TO_LOGIT**2 * p * (1.0 - p) * variance))
        candidates.append((gain, rated.sha256, p))
    candidates.sort(reverse=True)
    return [
        NextOpponent(
            opponent=view.roster.player(sha256),
            games=met[sha256],
            gain=gain,
            sentence=f"{p:.0%} of the points are expected, {met[sha256]} games were played so far.",
        )
        for gain, sha256, p in candidates[:NEXT_OPPONENTS]
    ]
