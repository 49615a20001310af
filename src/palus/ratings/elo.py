"""Elo: zero-sum updates after every game, from 1200.

`update` with its defaults is what ML-Agents' self-play computes: one point at stake, 400 points = 10:1 odds. It is the
number of the training log (`Self-play/ELO`). With `REFERENCE_K` and `REFERENCE_SCALE` it is the rating of the reference
leaderboard ("AI vs. AI"), kept so that published histories can be recomputed: 20 points at stake, 500 = 10:1 odds. Both
depend on the order of the games and on when a player joined; published orders come from `palus.ratings.bradley_terry`.
"""

from __future__ import annotations

import math

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
