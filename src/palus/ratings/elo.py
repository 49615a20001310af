"""Elo: zero-sum updates after every game, from 1200.

`update` with its defaults is what ML-Agents' self-play computes: one point at stake, 400 points = 10:1 odds. It is the
number of the training log (`Self-play/ELO`). `replay` is the rating of the reference leaderboard ("AI vs. AI"), kept so
that published histories can be recomputed: K = 20, 500 points = 10:1 odds. Both depend on the order of the games and on
when a player joined; published orders come from `palus.ratings.bradley_terry`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from palus.ratings.games import Played, in_order

START = 1200.0
REFERENCE_K, REFERENCE_SCALE = 20.0, 500.0


def expected_score(rating: float, opponent: float, scale: float = 400.0) -> float:
    """Share of the points that a player of this rating takes from the opponent, in (0, 1). scale: points of 10:1 odds.

    Source: Elo, The Rating of Chessplayers, 1978: E = 1 / (1 + 10^((opponent - rating) / 400)).
    """
    # pow(10, 400) would overflow; beyond 300 orders of magnitude the answer is 0 or 1 anyway.
    exponent = min(max((opponent - rating) / scale, -300.0), 300.0)
    return 1.0 / (1.0 + math.pow(10.0, exponent))


def update(rating: float, opponent: float, score: float, k: float = 1.0, scale: float = 400.0) -> tuple[float, float]:
    """Both ratings after one match: (player, opponent). Their sum does not change.

    score: 1 won, 0.5 drawn, 0 lost. k: points at stake; ML-Agents' code uses 1 (one of its pages says 16).
    """
    change = k * (score - expected_score(rating, opponent, scale))
    return rating + change, opponent - change


def replay(history: Iterable[Played]) -> dict[str, float]:
    """Everybody's rating of the reference leaderboard after this history, by name.

    Games are taken by (order, id), however they come. No floor, no provisional K, the sum of all ratings never changes.
    """
    ratings: dict[str, float] = {}
    for game in in_order(history):
        before = ratings.get(game.first, START), ratings.get(game.second, START)
        ratings[game.first], ratings[game.second] = update(*before, game.points, REFERENCE_K, REFERENCE_SCALE)
    return dict(sorted(ratings.items()))
