"""Elo as ML-Agents' self-play computes it: zero-sum updates of one point at stake, 400 points = 10:1 odds.

This is the number of the training log (`Self-play/ELO`). Published orders come from `palus.ratings.bradley_terry`.
"""

from __future__ import annotations

import math

INITIAL_RATING = 1200.0


def expected_score(rating: float, opponent: float) -> float:
    """Share of the points that a player of this rating takes from the opponent, in (0, 1).

    Source: Elo, The Rating of Chessplayers, 1978: E = 1 / (1 + 10^((opponent - rating) / 400)).
    """
    # pow(10, 400) would overflow; beyond 300 orders of magnitude the answer is 0 or 1 anyway.
    exponent = min(max((opponent - rating) / 400.0, -300.0), 300.0)
    return 1.0 / (1.0 + math.pow(10.0, exponent))


def rating_change(rating: float, opponent: float, score: float, k: float = 1.0) -> float:
    """Points that the player gains and the opponent loses.

    score: 1 won, 0.5 drawn, 0 lost. k: points at stake; ML-Agents' code uses 1 (one of its pages says 16).
    """
    return k * (score - expected_score(rating, opponent))


def update(rating: float, opponent: float, score: float, k: float = 1.0) -> tuple[float, float]:
    """Both ratings after one match: (player, opponent). Their sum does not change."""
    change = rating_change(rating, opponent, score, k)
    return rating + change, opponent - change
