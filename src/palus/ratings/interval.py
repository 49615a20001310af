"""How sure a share of points is, when games come in mirrored pairs.

The two games of a mirrored pair share a seed, so they are not independent: luck of the kick-off that favours one side
favours each player once. The unit of every variance here is therefore the pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palus.types import F64, I64

Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""

PROVISIONAL_GAMES = 20
PROVISIONAL_HALF_WIDTH = 100.0

GAMES_PER_UNIT = 2
_PRIOR_SCATTER = 1.0
"""Of four imaginary, even, independent pairs."""


def score_interval(unit_scores: F64) -> tuple[float, float]:
    """`share_intervals` of one player: of the scores [U] of its mirrored pairs. (0, 1) when there are none."""
    points = np.repeat(unit_scores, GAMES_PER_UNIT)
    if not len(points):
        return 0.0, 1.0
    games = np.arange(len(points))
    low, high = share_intervals(points, games // GAMES_PER_UNIT, np.zeros_like(games), 1)
    return float(low[0]), float(high[0])


def share_intervals(points: F64, unit: I64, group: I64, groups: int) -> tuple[F64, F64]:
    """95 % intervals of the share of points in each group of games, none of them empty; low and high, [groups].

    points, unit, group: [G] of each game, in [0, 1], its mirrored pair, and the group.
    Wilson's score interval with as many games as the observed ones are worth, their number / phi, with phi in
    Var(pair's score) = phi p (1 - p) / 2: 1 for independent games, 2 for pairs whose games always end alike, below 1
    when draws or mirroring take luck out. It stays inside [0, 1] and has a width even when every pair was won. Four
    imaginary pairs of even, independent games hold phi near 1 while there is little evidence.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    pairs, pair, games = np.unique(np.stack([group, unit]), axis=1, return_inverse=True, return_counts=True)
    scores, of = np.bincount(pair.reshape(-1), points) / games, pairs[0]
    units = np.bincount(of, minlength=groups)
    played = np.bincount(of, games, groups)
    mean = np.bincount(of, scores, groups) / units
    variance = np.bincount(of, (scores - mean[of]) ** 2, groups) / np.maximum(units - 1, 1)
    # mean (1 - mean) underestimates p (1 - p) by the variance of the mean. One pair has no scatter to show.
    expected = np.where(units > 1, units * mean * (1.0 - mean) + variance, 0.0)
    return wilson(mean, played * (_PRIOR_SCATTER + expected) / (_PRIOR_SCATTER + played * variance))


def wilson(share: F64 | float, games: F64 | float) -> tuple[Any, Any]:
    """Wilson's 95 % interval of a share of points over independent games (> 0), or of many."""
    square = Z_95 * Z_95
    scale = 1.0 + square / games
    center = (share + square / (2.0 * games)) / scale
    half = Z_95 * np.sqrt(share * (1.0 - share) / games + square / (4.0 * games * games)) / scale
    return np.maximum(0.0, center - half), np.minimum(1.0, center + half)


def is_provisional(games: int, half_width: float) -> bool:
    """Whether a rating is too young to be taken seriously: below 20 games, or wider than 100 points to each side."""
    return games < PROVISIONAL_GAMES or half_width > PROVISIONAL_HALF_WIDTH
