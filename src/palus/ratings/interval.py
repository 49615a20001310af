"""How sure a share of points is, when games come in mirrored pairs.

The two games of a mirrored pair share a seed, so they are not independent: luck of the kick-off that favours one side
favours each player once. The unit of every variance here is therefore the pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""

PROVISIONAL_GAMES = 20
PROVISIONAL_HALF_WIDTH = 100.0

_PRIOR_UNITS = 4.0


def dispersion(scores_by_pairing: Sequence[F64], games_per_unit: int = 2) -> float:
    """How much more (or less) unit scores scatter than those of independent win-or-lose games would.

    scores_by_pairing: for each pairing of players the share of points in every unit, in [0, 1].
    Returns phi in Var(unit score) = phi p (1 - p) / games_per_unit: 1 for independent games, 2 for pairs whose games
    always end alike, below 1 when draws or mirroring take luck out.

    Only the scatter inside a pairing counts. A pairing that one player always wins has none and says nothing about
    phi, unlike Pearson's residuals, which would call it certainty. Four imaginary units of even, independent games
    hold phi near 1 while there is little evidence.
    """
    played = [scores for scores in scores_by_pairing if len(scores)]
    starts = np.cumsum([0, *(len(scores) for scores in played[:-1])])
    return pooled_dispersion(np.concatenate([np.empty(0), *played]), starts[: len(played)], games_per_unit)


def pooled_dispersion(share: F64, starts: I64, games_per_unit: int = 2) -> float:
    """`dispersion` of all pairings in one array. share: [U]. starts: index of the first unit of every pairing."""
    units = np.diff(starts, append=len(share))
    mean = np.add.reduceat(share, starts) / units if len(starts) else np.empty(0)
    deviation = share - np.repeat(mean, units)
    squares = np.add.reduceat(deviation * deviation, starts) if len(starts) else np.empty(0)
    # A pairing that met once has no scatter to show.
    units, mean, squares = (values[units > 1] for values in (units, mean, squares))
    variance = squares / (units - 1)
    scatter = games_per_unit * units * variance
    # mean (1 - mean) underestimates p (1 - p) by the variance of the mean.
    expected = units * mean * (1.0 - mean) + variance
    prior = 0.25 * _PRIOR_UNITS
    return (prior + float(scatter.sum())) / (prior + float(expected.sum()))


def score_interval(unit_scores: F64, games_per_unit: int = 2, z: float = Z_95) -> tuple[float, float]:
    """Interval for the share of points behind these unit scores; 95 % unless z says otherwise.

    unit_scores: [U] share of points in each mirrored pair, in [0, 1].
    Wilson's score interval with as many games as the observed ones are worth, U * games_per_unit / phi (`dispersion`).
    It stays inside [0, 1] and has a width even when every pair was won. (0, 1) when there are no units.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    units = len(unit_scores)
    if units == 0:
        return 0.0, 1.0
    share = float(np.mean(unit_scores))
    games = units * games_per_unit / dispersion([unit_scores], games_per_unit)
    return wilson(share, games, z)


def wilson(share: float, games: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson's interval of a share of points over independent games (> 0); 95 % unless z says otherwise."""
    scale = 1.0 + z * z / games
    center = (share + z * z / (2.0 * games)) / scale
    half = z * float(np.sqrt(share * (1.0 - share) / games + z * z / (4.0 * games * games))) / scale
    return max(0.0, center - half), min(1.0, center + half)


def is_provisional(games: int, half_width: float) -> bool:
    """Whether a rating is too young to be taken seriously: below 20 games, or wider than 100 points to each side."""
    return games < PROVISIONAL_GAMES or half_width > PROVISIONAL_HALF_WIDTH
