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


def dispersion(unit_scores: F64) -> float:
    """How much more (or less) the scores of mirrored pairs scatter than those of independent win-or-lose games would.

    unit_scores: [U] share of points in each pair, in [0, 1].
    Returns phi in Var(unit score) = phi p (1 - p) / 2: 1 for independent games, 2 for pairs whose games always end
    alike, below 1 when draws or mirroring take luck out. Four imaginary pairs of even, independent games hold it near
    1 while there is little evidence.
    """
    units = len(unit_scores)
    if units < 2:  # one pair has no scatter to show
        return 1.0
    mean, variance = float(unit_scores.mean()), float(unit_scores.var(ddof=1))
    # mean (1 - mean) underestimates p (1 - p) by the variance of the mean.
    expected = units * mean * (1.0 - mean) + variance
    return (_PRIOR_SCATTER + GAMES_PER_UNIT * units * variance) / (_PRIOR_SCATTER + expected)


def score_interval(unit_scores: F64) -> tuple[float, float]:
    """95 % interval for the share of points behind the scores [U] of mirrored pairs.

    Wilson's score interval with as many games as the observed ones are worth, U * GAMES_PER_UNIT / `dispersion`. It
    stays inside [0, 1] and has a width even when every pair was won. (0, 1) when there are no units.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    units = len(unit_scores)
    if units == 0:
        return 0.0, 1.0
    share = float(np.mean(unit_scores))
    low, high = wilson(share, units * GAMES_PER_UNIT / dispersion(unit_scores))
    return float(low), float(high)


def score_intervals(scores: F64, group: I64, games: I64, groups: int) -> tuple[F64, F64]:
    """`score_interval` of every group of pairs at once, none of them empty; low and high, [groups].

    scores: [U] share of the points of each pair. group: [U] to which it belongs. games: [U] how many of it were played.
    """
    units = np.bincount(group, minlength=groups)
    played = np.bincount(group, games, groups)
    mean = np.bincount(group, scores, groups) / units
    variance = np.bincount(group, (scores - mean[group]) ** 2, groups) / np.maximum(units - 1, 1)
    expected = np.where(units > 1, units * mean * (1.0 - mean) + variance, 0.0)
    return wilson(mean, played * (_PRIOR_SCATTER + expected) / (_PRIOR_SCATTER + played * variance))


def wilson(share: float | F64, games: float | F64) -> tuple[Any, Any]:
    """Wilson's 95 % interval of a share of points over independent games (> 0), or of many."""
    square = Z_95 * Z_95
    scale = 1.0 + square / games
    center = (share + square / (2.0 * games)) / scale
    half = Z_95 * np.sqrt(share * (1.0 - share) / games + square / (4.0 * games * games)) / scale
    return np.maximum(0.0, center - half), np.minimum(1.0, center + half)


def is_provisional(games: int, half_width: float) -> bool:
    """Whether a rating is too young to be taken seriously: below 20 games, or wider than 100 points to each side."""
    return games < PROVISIONAL_GAMES or half_width > PROVISIONAL_HALF_WIDTH
