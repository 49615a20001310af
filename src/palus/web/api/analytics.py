"""Competition statistics: what the reference's analytics page shows from its history file, from our log.

Kept from there: days in UTC, ids in case-insensitive order, any result other than a win or a loss is a draw, win rate
in percent of all games with two decimals. A team is an `owner/name` over all its revisions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from palus.arena.referee.games import game_of
from palus.web.api.summaries import Tally, tallies
from palus.web.api.view import View
from palus.web.shapes import Shape

DAY_MS = 86_400_000
DURATION_BIN_S = 10.0
GAMES_LIMIT = 1000

Array = NDArray[Any]


class DayMatches(Shape):
    """day: YYYY-MM-DD in UTC. cumulative: matches up to its end."""

    day: str
    matches: int
    cumulative: int


class TeamLine(Shape):
    """Every id ever seen, case-insensitive order. win_rate: percent of all games, two decimals."""

    team: str
    wins: int
    draws: int
    losses: int
    win_rate: float
    since_ms: int


class CauseCount(Shape):
    """Matches that ended for this cause."""

    cause: str
    matches: int


class Analytics(Shape):
    """Competition statistics of one env. season_end_ms: null when no end is set."""

    env: str
    season: int
    season_end_ms: int | None
    matches: int
    models: int
    days: list[DayMatches]
    teams: list[TeamLine]
    blue_wins: int
    draws: int
    purple_wins: int
    mean_duration_s: float | None
    duration_bin_s: float
    duration_bins: list[int]
    causes: list[CauseCount]


class TeamGame(Shape):
    """One row of a team's table of results."""

    match: str
    at_ms: int
    result: Literal["win", "draw", "loss"]
    opponent_owner: str
    opponent_model: str


class TeamDay(Shape):
    """Results of one UTC day, for stacked bars."""

    day: str
    losses: int
    draws: int
    wins: int


class TeamResults(TeamLine):
    """The results of one team over all its revisions. games: newest first, at most `games_limit`."""

    env: str
    games: list[TeamGame]
    games_limit: int = GAMES_LIMIT
    days: list[TeamDay]


def analytics(view: View, env: str) -> Analytics:
    """Statistics of an env over its counted matches."""
    log = view.log
    rows = np.flatnonzero(view.counts & view.of_env(env))
    points = log.points(rows)
    seconds = log["ticks"][rows] * game_of(env).tick_s
    repos = np.concatenate([log["blue_repo"][rows], log["purple_repo"][rows]])
    causes = np.bincount(log["cause"][rows], minlength=len(log.causes.texts))
    return Analytics.like(
        view.arena,
        env=env,
        matches=len(rows),
        models=len(np.unique(repos)),
        days=_days(log["finished_ms"][rows]),
        teams=_teams(view, rows),
        blue_wins=(points == 1.0).sum(),
        draws=(points == 0.5).sum(),
        purple_wins=(points == 0.0).sum(),
        mean_duration_s=float(seconds.mean()) if len(rows) else None,
        duration_bin_s=DURATION_BIN_S,
        duration_bins=np.bincount((seconds // DURATION_BIN_S).astype(np.int64)).tolist(),
        causes=[
            CauseCount(cause=cause, matches=count)
            for cause, count in zip(log.causes.texts, causes, strict=True)
            if count
        ],
    )


def _days(ended_ms: Array) -> list[DayMatches]:
    """Every day from the first match to the last, those without any too."""
    if not len(ended_ms):
        return []
    day = ended_ms // DAY_MS
    counts = np.bincount(day - day.min())
    return [
        DayMatches(day=_day_text(int(day.min()) + i), matches=count, cumulative=total)
        for i, (count, total) in enumerate(zip(counts, np.cumsum(counts), strict=True))
    ]


def _day_text(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def _teams(view: View, rows: Array) -> list[TeamLine]:
    log = view.log
    names = log.repos.texts
    team = np.concatenate([log["blue_repo"][rows], log["purple_repo"][rows]])
    points = np.concatenate([log.points(rows), 1.0 - log.points(rows)])
    since = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(since, team, np.concatenate([log["finished_ms"][rows]] * 2))
    lines = zip(names, tallies(team, points, len(names)), since.tolist(), strict=True)
    return [
        TeamLine.like(tally, team=name, win_rate=_win_rate(tally), since_ms=since_ms)
        for name, tally, since_ms in sorted(lines, key=lambda line: (line[0].lower(), line[0]))
        if tally.games
    ]


def _win_rate(tally: Tally) -> float:
    return round(100.0 * tally.wins / tally.games, 2)


def team_results(view: View, env: str, team: str) -> TeamResults | None:
    """Results of one team, newest first; None for one that never played."""
    log = view.log
    number = log.repos.get(team, -1)
    is_blue, is_purple = log["blue_repo"] == number, log["purple_repo"] == number
    rows = np.flatnonzero((is_blue ^ is_purple) & view.counts & view.of_env(env))
    if not len(rows):
        return None
    points = np.where(is_blue[rows], log.points(rows), 1.0 - log.points(rows))
    days, day_of = np.unique(log["finished_ms"][rows] // DAY_MS, return_inverse=True)
    (tally,) = tallies(np.zeros(len(rows), int), points, 1)
    return TeamResults.like(
        tally,
        env=env,
        team=team,
        win_rate=_win_rate(tally),
        since_ms=log["finished_ms"][rows[0]],
        games=[_game(view, int(rows[i]), float(points[i]), number) for i in range(len(rows))[::-1][:GAMES_LIMIT]],
        days=[
            TeamDay.like(of_day, day=_day_text(int(day)))
            for day, of_day in zip(days, tallies(day_of, points, len(days)), strict=True)
        ],
    )


def _game(view: View, row: int, points: float, number: int) -> TeamGame:
    log = view.log
    other = log["purple_repo"][row] if log["blue_repo"][row] == number else log["blue_repo"][row]
    owner, _, name = log.repos.texts[other].partition("/")
    return TeamGame(
        match=log.id_text(row),
        at_ms=log["finished_ms"][row],
        result="win" if points == 1.0 else "loss" if points == 0.0 else "draw",
        opponent_owner=owner,
        opponent_model=name,
    )
