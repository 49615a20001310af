"""The board, the list of envs, the newest matches, and what the win matrix says beyond one rating per player."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from palus.arena.ladder.intake import read_sums
from palus.ratings.interval import is_provisional
from palus.store.derived import Measure, Standing
from palus.store.tables import matches
from palus.web.api.log_columns import read_columns
from palus.web.api.roster import Kind, Player
from palus.web.api.summaries import MatchSummary, Rows, match_summary
from palus.web.api.view import View
from palus.web.shapes import Shape

RECENT_MATCHES = 50
MATRIX_PLAYERS = 60
"""Rows of the matrix: more cannot be read."""


class Environment(Shape):
    """One game that is ranked here."""

    env: str
    models: int
    matches: int
    updated_ms: int | None


class Environments(Shape):
    """The first is the one that pages show unless told otherwise."""

    environments: list[Environment]


class LeaderboardRow(Standing, Shape):
    """One repository, by its newest accepted revision."""

    repo: str
    owner: str
    name: str
    revision: str
    kind: Kind
    provisional: bool = Field(description="below 20 games or half-width above 100")
    last_match_ms: int | None
    openskill: Annotated[float, Measure("openskill", "mu − 3 sigma, updated after every match", decimals=2)]
    revisions: int = Field(description="accepted revisions of this repository, older ones included")


class MeasureColumn(Shape):
    """A number of every row that is shown in a column of its own, the largest first when sorted by it."""

    field: str = Field(description="name of the number in a row")
    title: str
    explain: str
    decimals: int


MEASURES = [
    MeasureColumn(field=name, title=mark.title, explain=mark.explain, decimals=mark.decimals)
    for name, field in LeaderboardRow.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, Measure)
]


class SideTerm(Shape):
    """Worth of the blue side in points; a fair field includes 0."""

    points: float
    half_width: float


class LooseGroup(Shape):
    """Models that fewer than ten mirrored pairs tie to all others; ratings cannot be compared across that gap."""

    repos: list[str]
    pairs: int


class Leaderboard(Shape):
    """Everything of one env's board. upto_seq: last match of the log that went into the ratings."""

    env: str
    updated_ms: int | None
    upto_seq: int
    intervals_ms: int | None = Field(
        description="when the last match ended that half-widths and rank ranges include, where ratings include more: "
        "in large fields they are computed hourly"
    )
    log_seq: int = Field(description="newest match of the log")
    ratings_behind: int = Field(description="matches of the log that will count, and that no fit includes yet")
    matches: int
    side: SideTerm | None
    loose: list[LooseGroup] = Field(description="groups that few matches tie to the rest; empty in a sound field")
    measures: list[MeasureColumn]
    rows: list[LeaderboardRow]


class RecentMatches(Shape):
    """/api/arena/recent/{env}: newest first."""

    env: str
    matches: list[MatchSummary]


class SupportLine(Shape):
    """A player that the maximum-entropy equilibrium plays with probability mass, or could; low, high: 95 % interval."""

    sha256: str
    mass: float
    low: float
    high: float


class Cycle(Shape):
    """Each beats the next, the last the first; every edge is significant. shares[i]: of players[i] in that edge."""

    players: list[str] = Field(description="SHA-256 of each")
    shares: list[float]


class Matrix(Shape):
    """Win matrix of the strongest. share[i][j]: of i against j, null without games; games[i][j]: their count."""

    env: str
    updated_ms: int | None
    upto_seq: int
    of: int = Field(
        description="players rated; the matrix shows the strongest and whoever is in the support or a cycle"
    )
    players: list[Player]
    share: list[list[float | None]]
    games: list[list[int]]
    nash_support: list[SupportLine]
    nash_skill: list[float | None] = Field(description="per player: points that it is ahead of the equilibrium")
    unexplained_share: float | None = Field(description="variance of the matrix that one rating per player leaves open")
    unexplained_by_chance: float | None = Field(description="what sampling noise alone would leave open")
    cycles: list[Cycle]


def environments(view: View) -> Environments:
    """Every env that is or was played, the most played first."""
    ranked = view.arena.envs
    known = [env for env in view.envs if env in ranked or view.total(env).matches]
    return Environments(environments=[_environment(view, env) for env in [*known, *(set(ranked) - set(known))]])


def _environment(view: View, env: str) -> Environment:
    total = view.total(env)
    return Environment(
        env=env,
        models=len(set(view.roster.current.get(env, {}).values())),
        matches=total.matches,
        updated_ms=total.newest_ms,
    )


def leaderboard(view: View, env: str) -> Leaderboard:
    """The board of an env, strongest first."""
    total, last_ms = view.total(env), view.last_matches_ms(env)
    field = view.roster.fields.get(env)
    return Leaderboard(
        env=env,
        updated_ms=fitted_ms(view, env),
        upto_seq=view.roster.fitted(env),
        intervals_ms=field.intervals_ms if field and field.intervals_seq < field.upto_seq else None,
        log_seq=total.newest_seq,
        ratings_behind=view.behind(env),
        matches=total.matches,
        side=SideTerm(points=field.side_advantage, half_width=field.side_half_width) if field else None,
        loose=[
            LooseGroup(repos=[view.roster.player(sha256).repo for sha256 in group["players"]], pairs=group["pairs"])
            for group in view.roster.summary(env).get("loose", ())
        ],
        measures=MEASURES,
        rows=[board_row(view, env, rated, last_ms.get(rated.sha256)) for rated in board_order(view, env)],
    )


def board_order(view: View, env: str) -> list[Standing]:
    """Who is ranked, best first."""
    return sorted((rated for rated in view.roster.ratings.get(env, {}).values() if rated.rank), key=lambda r: r.rank)


def board_row(view: View, env: str, rated: Standing, last_match_ms: int | None) -> LeaderboardRow:
    """One row. last_match_ms: when the newest match of the player ended."""
    player = view.roster.player(rated.sha256)
    return LeaderboardRow.like(
        rated,
        player,
        provisional=is_provisional(rated.games, rated.half_width),
        last_match_ms=last_match_ms,
        openskill=rated.openskill_mu - 3.0 * rated.openskill_sigma,
        revisions=sum(
            entry.state == "accepted" and entry.env == env for entry in view.roster.entries_of.get(player.repo, ())
        ),
    )


def fitted_ms(view: View, env: str) -> int | None:
    """When the match ended that was the last to go into the ratings of an env."""
    return view.ended_ms(view.roster.fitted(env))


def recent_matches(view: View, env: str) -> RecentMatches:
    """The newest matches of an env, rated or not."""
    with view.store.read() as connection:
        log = read_columns(connection, matches.c.env == env, most=RECENT_MATCHES)
    return RecentMatches(env=env, matches=[match_summary(view, log, row) for row in reversed(range(log.n))])


def matrix(view: View, env: str) -> Matrix:
    """The strongest players, and whoever takes part in the equilibrium or in a cycle, strongest first."""
    order = [rated.sha256 for rated in board_order(view, env)]
    summary = view.roster.summary(env)
    support = [SupportLine(**line) for line in summary.get("support", ())]
    cycles = [Cycle(players=cycle["players"], shares=cycle["shares"]) for cycle in summary.get("cycles", ())]
    named = {line.sha256 for line in support} | {sha256 for cycle in cycles for sha256 in cycle.players}
    shown = [sha256 for place, sha256 in enumerate(order) if place < MATRIX_PLAYERS or sha256 in named]
    games, points = _cells(view, env, shown)
    skill: dict[str, float] = summary.get("skill", {})
    return Matrix(
        env=env,
        updated_ms=fitted_ms(view, env),
        upto_seq=view.roster.fitted(env),
        of=len(order),
        players=[view.roster.player(sha256) for sha256 in shown],
        share=[
            [float(p / n) if n else None for p, n in zip(row, counts, strict=True)]
            for row, counts in zip(points, games, strict=True)
        ],
        games=games.tolist(),
        nash_support=support,
        nash_skill=[skill.get(sha256) for sha256 in shown],
        unexplained_share=summary.get("unexplained_share"),
        unexplained_by_chance=summary.get("unexplained_by_chance"),
        cycles=cycles,
    )


def _cells(view: View, env: str, shown: list[str]) -> tuple[Rows, np.ndarray[Any, np.dtype[np.float64]]]:
    """Counted games and points of the row player, [players, players]."""
    log, size = view.tail(env), len(shown)
    index = {sha256: i for i, sha256 in enumerate(shown)}
    place = np.array([index.get(sha256, -1) for sha256 in log.entities.texts] or [-1], np.int64)
    rows = np.flatnonzero(log.counts)
    blue, purple = place[log["blue"][rows]], place[log["purple"][rows]]
    inside = (blue >= 0) & (purple >= 0)
    cell = blue[inside] * size + purple[inside]
    games = np.bincount(cell, minlength=size * size).reshape(size, size)
    won = np.bincount(cell, log.points(rows)[inside], size * size).reshape(size, size)
    with view.store.read() as connection:
        early = read_sums(connection, env, shown).cells()
    np.add.at(games, (early.first, early.second), early.played.astype(np.int64))  # once for every season
    np.add.at(won, (early.first, early.second), early.points)
    return games + games.T, won + (games.T - won.T)
