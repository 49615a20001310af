"""The rating of the reference leaderboard ("AI vs. AI"): Elo with K = 20, 500 points = 10:1 odds, from 1200.

Kept so that published histories can be recomputed. It depends on the order of the games and on when a player joined;
published orders come from `palus.ratings.bradley_terry`. ML-Agents' own Elo (400 points) is `palus.ratings.elo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palus.ratings.history import Played, in_order

K = 20.0
SCALE = 500.0
START = 1200.0


@dataclass(frozen=True)
class EloRating:
    """Where a player stands after its last game."""

    rating: float
    games: int


def transfer(first: float, second: float, points: float, *, k: float = K, scale: float = SCALE) -> float:
    """Points that the first player gains and the second loses.

    first, second: ratings before the game. points: of the first player, 1 won, 0.5 drawn, 0 lost.
    """
    # pow(10, 400) would overflow; beyond 300 orders of magnitude the answer is 0 or 1 anyway.
    exponent = min(max(-(first - second) / scale, -300.0), 300.0)
    expected: float = 1.0 / (1.0 + 10.0**exponent)
    return k * (points - expected)


def replay(
    history: Iterable[Played], *, k: float = K, scale: float = SCALE, start: float = START
) -> dict[str, EloRating]:
    """Everybody's rating after this history, by name.

    Games are taken by (order, id), however they come. A player enters with `start` at its first game. No floor, no
    provisional K, the sum of all ratings never changes.
    """
    ratings: dict[str, float] = {}
    games: dict[str, int] = {}
    for game in in_order(history):
        first, second = ratings.get(game.first, start), ratings.get(game.second, start)
        gained = transfer(first, second, game.points, k=k, scale=scale)
        ratings[game.first], ratings[game.second] = first + gained, second - gained
        for name in (game.first, game.second):
            games[name] = games.get(name, 0) + 1
    return {name: EloRating(ratings[name], games[name]) for name in sorted(ratings)}
