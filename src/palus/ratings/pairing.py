"""How much a game between two players would tell: the score by which the arena pairs them."""

from __future__ import annotations

import numpy as np

from palus.ratings.bradley_terry import POINTS_TO_LOGIT, variance_of_gaps, win_probability
from palus.types import F64


def information_gain(strength: F64, covariance: F64, *, games: int = 2) -> F64:
    """Nats that one unit of `games` games is expected to tell about every pairing: [N, N], diagonal 0.

    gain_ij = 1/2 ln(1 + games L^2 p_ij (1 - p_ij) Var(t_i - t_j)): large where the result is open and the strengths
    are unsure. strength: [N] points. covariance: [N, N] points squared (`bradley_terry.Fit`).

    Source: expected reduction of entropy in a linearised model; Lindley, On a measure of the information provided by
    an experiment, 1956.
    """
    # The sign of the gap does not matter; without it both halves of the matrix are the same bits.
    p = win_probability(np.abs(strength[:, None] - strength[None, :]))
    gain: F64 = 0.5 * np.log1p(games * POINTS_TO_LOGIT**2 * p * (1.0 - p) * variance_of_gaps(covariance))
    return gain
