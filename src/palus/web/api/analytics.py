"""Competition statistics: what the reference's analytics page shows from its history file, from our log.

Kept from there: days in UTC, ids in case-insensitive order, any result other than a win or a loss is a draw, win rate
in percent of all games with two decimals. A team is an `owner/name` over all its revisions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate
from typing import Literal

import numpy as np
from pydantic import Field

from palus.arena.ladder.census import DAY_MS, LENGTH_S, Count
from palus.arena.ladder.intake import read_counts
from palus.arena.referee.games import game_of
from palus.store.tables import matches
from palus.web.api.log_columns import LogColumns, read_columns
from palus.web.api.summaries import Tally, tallies
from palus.web.api.view import View
from palus.web.shapes import Shape

GAMES_LIMIT = 1000


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
    """Competition statistics of one env. matches: those that count; models: repositories that played one of these."""

    env: str
    season: int
    matches: int
    logged: int = Field(description="matches of the log, rated or not, as on the board")
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
    has_replay: bool


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
    with view.store.read() as connection:
        found = read_counts(connection, env)
    every, teams = found.of("all").get("", Count()), found.of("team")
    lengths = {int(name): count.games for name, count in found.of("length").items()}
    return Analytics.like(
        view.arena,
        env=env,
        matches=every.games,
        logged=view.total(env).matches,
        models=len(teams),
        days=_days({int(name): count.games for name, count in found.of("day").items()}),
        teams=_teams(teams),
        blue_wins=every.won,
        draws=every.drawn,
        purple_wins=every.lost,
        mean_duration_s=every.ticks * game_of(env).tick_s / every.games if every.games else None,
        duration_bin_s=LENGTH_S,
        duration_bins=[lengths.get(i, 0) for i in range(max(lengths, default=-1) + 1)],
        causes=[
            CauseCount(cause=cause, matches=count.games)
            for cause, count in sorted(found.of("cause").items(), key=lambda line: (line[1].first_ms, line[0]))
        ],
    )


def _days(matches_of: dict[int, int]) -> list[DayMatches]:
    """Every day from the first match to the last, those without any too."""
    days = range(min(matches_of, default=0), max(matches_of, default=-1) + 1)
    counts = [matches_of.get(day, 0) for day in days]
    return [
        DayMatches(day=_day_text(day), matches=count, cumulative=total)
        for day, count, total in zip(days, counts, accumulate(counts), strict=True)
    ]


def _day_text(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def _teams(counts: dict[str, Count]) -> list[TeamLine]:
    lines = []
    for name, count in sorted(counts.items(), key=lambda line: (line[0].lower(), line[0])):
        share = (count.won + 0.5 * count.drawn) / count.games
        tally = Tally(games=count.games, wins=count.won, draws=count.drawn, losses=count.lost, share=share)
        lines.append(TeamLine.like(tally, team=name, win_rate=_win_rate(tally), since_ms=count.first_ms))
    return lines


def _win_rate(tally: Tally) -> float:
    return round(100.0 * tally.wins / tally.games, 2)


def team_results(view: View, env: str, team: str) -> TeamResults | None:
    """Results of one team, newest first; None for one that never played."""
    entities = {entry.sha256 for entry in view.roster.entries_of.get(team, ()) if entry.sha256}
    played = matches.c.blue.in_(entities) | matches.c.purple.in_(entities)
    with view.store.read() as connection:
        log = read_columns(connection, matches.c.env == env, played)
    number = log.repos.get(team, -1)
    is_blue, is_purple = log["blue_repo"] == number, log["purple_repo"] == number
    rows = np.flatnonzero((is_blue ^ is_purple) & log.counts)
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
        games=[_game(log, int(rows[i]), float(points[i]), number) for i in range(len(rows))[::-1][:GAMES_LIMIT]],
        days=[
            TeamDay.like(of_day, day=_day_text(int(day)))
            for day, of_day in zip(days, tallies(day_of, points, len(days)), strict=True)
        ],
    )


def _game(log: LogColumns, row: int, points: float, number: int) -> TeamGame:
    other = log["purple_repo"][row] if log["blue_repo"][row] == number else log["blue_repo"][row]
    owner, _, name = log.repos.texts[other].partition("/")
    return TeamGame(
        match=log.id_text(row),
        at_ms=log["finished_ms"][row],
        result="win" if points == 1.0 else "loss" if points == 0.0 else "draw",
        opponent_owner=owner,
        opponent_model=name,
        has_replay=log["has_replay"][row],
    )
