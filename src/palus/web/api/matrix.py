"""The win matrix of the strongest players and what it says beyond one rating per player."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from palus.web.api.leaderboard import board_order, fitted_ms
from palus.web.api.roster import Player
from palus.web.api.summaries import Rows
from palus.web.api.view import View
from palus.web.shapes import Shape

PLAYERS = 60
"""Rows of the matrix: more cannot be read."""


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


def matrix(view: View, env: str) -> Matrix:
    """The strongest players, and whoever takes part in the equilibrium or in a cycle, strongest first."""
    order = [rated.sha256 for rated in board_order(view, env)]
    summary = view.roster.summary(env)
    support = [SupportLine(**line) for line in summary.get("support", ())]
    cycles = [Cycle(players=cycle["players"], shares=cycle["shares"]) for cycle in summary.get("cycles", ())]
    named = {line.sha256 for line in support} | {sha256 for cycle in cycles for sha256 in cycle.players}
    shown = [sha256 for place, sha256 in enumerate(order) if place < PLAYERS or sha256 in named]
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
    log, size = view.log, len(shown)
    place = np.full(len(log.entities.texts) + 1, -1)
    place[[log.entities.find(sha256) for sha256 in shown]] = np.arange(size)
    place[-1] = -1  # where players without games ended up
    rows = np.flatnonzero(view.counts & view.of_env(env))
    blue, purple = place[log["blue"][rows]], place[log["purple"][rows]]
    inside = (blue >= 0) & (purple >= 0)
    cell = blue[inside] * size + purple[inside]
    games = np.bincount(cell, minlength=size * size).reshape(size, size)
    won = np.bincount(cell, log.points(rows)[inside], size * size).reshape(size, size)
    return games + games.T, won + (games.T - won.T)
