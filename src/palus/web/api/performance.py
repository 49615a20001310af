"""How one repository does in one env: everything on its page that comes from matches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import Connection, Row, select

from palus.arena.referee.games import game_of
from palus.ratings.bradley_terry import win_probability
from palus.ratings.interval import Z_95
from palus.ratings.pairing import gain_of
from palus.store.derived import play_stats, rating_points
from palus.web.api.compare import RevisionComparison, compare_revisions
from palus.web.api.leaderboard import LeaderboardRow, board_order, board_row
from palus.web.api.roster import Player
from palus.web.api.summaries import F64, EntityMatches, HeadToHead, MatchLine, Rows, Tally, games_of, tallies
from palus.web.api.view import View
from palus.web.shapes import Shape

HISTORY_POINTS = 300
"""Per revision: more cannot be told apart on a screen."""
HISTORY_REVISIONS = 20
"""The newest; pages offer fewer."""
COMPARED_REVISIONS = 5
HIGHLIGHTS = 10
RECENT = 30
NEXT_OPPONENTS = 5
PLAY_STATS_MATCHES = 50
STRENGTH_BIN = 100.0
"""Rating points that one bin of opponents spans."""
SCORE_BIN_S = 10.0


class RatingPoint(Shape):
    """Rating after one match of the log; the band is rating +- half_width."""

    at_ms: int
    seq: int
    rating: float
    half_width: float
    games: int


class RatingSeries(Shape):
    """Rating over time of one revision, oldest point first."""

    revision: str
    sha256: str
    points: list[RatingPoint]


class StrengthBin(Shape):
    """Games against opponents rated low..high: what the ratings predicted and what was scored."""

    low: float
    high: float
    games: int
    expected: float
    actual: float


class Scores(Shape):
    """What both sides scored, in counted games. word, note: what that counts, as of `ArenaGame`.

    timed: the first score ends a match, so that it is known how long it took. Bin i of the histograms covers
    bin_s * i .. bin_s * (i + 1) seconds.
    """

    word: str
    note: str
    timed: bool
    scored: int
    conceded: int
    mean_scored_s: float | None = None
    mean_conceded_s: float | None = None
    bin_s: float = SCORE_BIN_S
    scored_bins: tuple[int, ...] = ()
    conceded_bins: tuple[int, ...] = ()


class PlayNumber(Shape):
    """One of `ArenaGame.statistics`, its mean over matches."""

    name: str
    under: str
    value: float = Field(description="in the unit; a share where that is %")
    unit: str
    digits: int


class PlayStats(Shape):
    """From the replays of `matches` games; the player's side is turned to blue, which attacks to the right.

    ball_heat: rows from the far touchline to the near one, all cells sum to 1; null where no ball is on a pitch.
    """

    matches: int
    numbers: list[PlayNumber]
    ball_heat: list[list[float]] | None


class NextOpponent(Shape):
    """What to play next: the pairing that would teach the ratings most. gain: nats of one mirrored pair."""

    opponent: Player
    games: int
    gain: float
    sentence: str


class Performance(Shape):
    """How a repository does in one env. Lists of matches concern the current revision."""

    env: str
    drawn: bool = Field(description="there are matches of it in the demo room")
    measured: bool = Field(description="replays tell how a side plays")
    sides: tuple[str, str] = Field(description="what blue and purple are, empty where both are the same")
    standing: LeaderboardRow | None
    why_unranked: str | None = Field(description="a sentence where standing is null")
    same_as: str | None = Field(description="repository whose player the newest revision is, if another one")
    revisions_accepted: int = Field(description="of different files")
    history: list[RatingSeries] = Field(description="of the newest of these and of the one on the board, newest first")
    head_to_head: list[HeadToHead]
    best_wins: list[MatchLine] = Field(description="strongest opponents first")
    worst_losses: list[MatchLine] = Field(description="weakest opponents first")
    recent: list[MatchLine]
    blue: Tally
    purple: Tally
    scores: Scores
    by_strength: list[StrengthBin]
    play: PlayStats | None
    play_next: list[NextOpponent]
    revision_comparisons: list[RevisionComparison]


def performance(view: View, connection: Connection, env: str, repo: str) -> Performance:
    """Of a repository with an entry in this env."""
    game, games = game_of(env), games_of(view, env, view.roster.current_of(env, repo) or "")
    counted = games.counted
    rated = view.roster.rated(env, games.sha256)
    last_ms = int(games.log["finished_ms"][-1]) if games.log.n else None
    standing = board_row(view, env, rated, last_ms) if rated is not None and rated.rank else None
    newest = next(entry for entry in view.roster.entries_of[repo] if entry.env == env)
    purple, blue = tallies(games.is_blue(counted).astype(int), games.points(counted), 2)
    revisions = view.roster.accepted(env, repo)
    on_board = [player for player in revisions[HISTORY_REVISIONS:] if player.sha256 == games.sha256]
    return Performance.like(
        game,
        drawn=game.is_drawn,
        measured=bool(game.statistics),
        standing=standing,
        why_unranked=None if standing is not None else view.roster.why_unranked(newest),
        same_as=view.roster.same_player_as(newest),
        revisions_accepted=len(revisions),
        history=_history(connection, env, revisions[:HISTORY_REVISIONS] + on_board),
        head_to_head=games.head_to_head(counted),
        best_wins=games.lines(_telling(games, 1.0, strongest_first=True)),
        worst_losses=games.lines(_telling(games, 0.0, strongest_first=False)),
        recent=games.lines(games.rows[::-1][:RECENT]),
        blue=blue,
        purple=purple,
        scores=_scores(games),
        by_strength=_by_strength(games),
        play=_play_stats(connection, games),
        play_next=_play_next(games),
        revision_comparisons=[
            compare_revisions(view, env, newer, older) for newer, older in pairwise(revisions[: COMPARED_REVISIONS + 1])
        ],
    )


def _history(connection: Connection, env: str, revisions: Sequence[Player]) -> list[RatingSeries]:
    points: dict[str, list[Row[Any]]] = {player.sha256: [] for player in revisions}
    wanted = select(rating_points).where(rating_points.c.env == env, rating_points.c.sha256.in_(points))
    for row in connection.execute(wanted.order_by(rating_points.c.seq)):
        points[row.sha256].append(row)
    return [RatingSeries.like(player, points=_thinned(points[player.sha256])) for player in revisions]


def _thinned(rows: list[Row[Any]]) -> list[Row[Any]]:
    step = max(1, -(-len(rows) // HISTORY_POINTS))
    return rows[::-1][::step][::-1]  # counted from the end: the newest is always shown


def _telling(games: EntityMatches, points: float, strongest_first: bool) -> Rows:
    """Games that brought so many points, one per opponent, the strongest or the weakest of them first."""
    rows = games.counted[games.points(games.counted) == points][::-1]
    ratings = games.opponent_ratings(rows) if len(rows) else np.empty(0)
    known = ~np.isnan(ratings)
    rows, ratings = rows[known], ratings[known]
    order = np.argsort(-ratings if strongest_first else ratings, kind="stable")
    _, first = np.unique(games.opponents(rows[order]), return_index=True)
    return np.asarray(rows[order][np.sort(first)][:HIGHLIGHTS])


def _scores(games: EntityMatches) -> Scores:
    log, rows, game = games.log, games.counted, game_of(games.env)
    is_blue = games.is_blue(rows)
    own = np.where(is_blue, log["blue_score"][rows], log["purple_score"][rows])
    other = np.where(is_blue, log["purple_score"][rows], log["blue_score"][rows])
    counted = Scores(
        word=game.score_word,
        note=game.score_note,
        timed=game.is_sudden_death,
        scored=own.sum(),
        conceded=other.sum(),
    )
    if not counted.timed:
        return counted
    seconds = log["ticks"][rows] * game.tick_s
    bins = int(seconds.max() // SCORE_BIN_S) + 1 if len(rows) else 0
    scored, conceded = seconds[own > 0], seconds[other > 0]
    return Scores.like(
        counted,
        mean_scored_s=scored.mean() if len(scored) else None,
        mean_conceded_s=conceded.mean() if len(conceded) else None,
        scored_bins=_histogram(scored, bins),
        conceded_bins=_histogram(conceded, bins),
    )


def _histogram(seconds: F64, bins: int) -> tuple[int, ...]:
    return tuple(np.bincount((seconds // SCORE_BIN_S).astype(int), minlength=bins).tolist())


def _by_strength(games: EntityMatches) -> list[StrengthBin]:
    """Expected against actual score, opponents in bins of equal width by their present rating."""
    own = games.view.roster.player(games.sha256).rating
    rows = games.counted
    if own is None or not len(rows):
        return []
    ratings, points = games.opponent_ratings(rows), games.points(rows)
    known = ~np.isnan(ratings)
    ratings, points = ratings[known], points[known]
    bins, of = np.unique(np.floor(ratings / STRENGTH_BIN), return_inverse=True)
    predicted = win_probability(own - ratings)
    count = np.bincount(of, minlength=len(bins))
    lows, expected, actual = bins * STRENGTH_BIN, np.bincount(of, predicted) / count, np.bincount(of, points) / count
    return [
        StrengthBin(low=low, high=low + STRENGTH_BIN, games=n, expected=e, actual=a)
        for low, n, e, a in zip(lows, count, expected, actual, strict=True)
    ]


def _play_stats(connection: Connection, games: EntityMatches) -> PlayStats | None:
    """Means over the newest matches, of those with statistics; None when no match has any."""
    rows = games.counted[::-1][:PLAY_STATS_MATCHES]
    sides = {games.log.id_text(row): int(not blue) for row, blue in zip(rows, games.is_blue(rows), strict=True)}
    found = connection.execute(select(play_stats).where(play_stats.c.match_id.in_(list(sides)))).all()
    numbers, told = game_of(games.env).statistics, [(json.loads(row.stats), sides[row.match_id]) for row in found]
    # Those from before a statistic was declared are as good as none.
    stats = [(match, side) for match, side in told if all(number.key in match for number in numbers)]
    if not stats or not numbers:
        return None

    def mean(key: str) -> float:
        return float(np.mean([match[key][side] for match, side in stats]))

    heat = [_heat(match["ball_heat"], side) for match, side in stats if "ball_heat" in match]
    return PlayStats(
        matches=len(stats),
        numbers=[PlayNumber.like(number, value=mean(number.key)) for number in numbers],
        ball_heat=np.mean(heat, axis=0).round(5).tolist() if heat else None,
    )


def _heat(told: Any, side: int) -> NDArray[np.float64]:
    """Shares of the match's time. A half turn brings purple's view to blue's."""
    heat = np.asarray(told, np.float64)
    heat = heat / max(float(heat.sum()), 1e-12)
    return heat[::-1, ::-1] if side else heat


def _play_next(games: EntityMatches) -> list[NextOpponent]:
    """Opponents of other owners against which one mirrored pair would teach the ratings most (`gain_of`), the two
    variances added as if independent."""
    view = games.view
    player = view.roster.player(games.sha256)
    if player.rating is None or player.half_width is None:
        return []
    met = Counter(games.log.entities.texts[entity] for entity in games.opponents(games.counted))
    others = [rated for rated in board_order(view, games.env) if view.roster.player(rated.sha256).owner != player.owner]
    gaps = player.rating - np.array([rated.rating for rated in others])
    widths = np.array([rated.half_width for rated in others])
    gains = gain_of(gaps, (player.half_width**2 + widths**2) / Z_95**2)
    names = [rated.sha256 for rated in others]
    candidates = sorted(zip(gains.tolist(), names, win_probability(gaps).tolist(), strict=True), reverse=True)
    return [
        NextOpponent(
            opponent=view.roster.player(sha256),
            games=met[sha256],
            gain=gain,
            sentence=f"{p:.0%} of the points are expected, {_games(met[sha256])} played so far.",
        )
        for gain, sha256, p in candidates[:NEXT_OPPONENTS]
    ]


def _games(count: int) -> str:
    return "1 game was" if count == 1 else f"{count} games were"
