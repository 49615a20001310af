"""How much a game between two players would tell: the score by which the arena pairs them."""

from __future__ import annotations

import numpy as np

from palus.ratings.bradley_terry import POINTS_TO_LOGIT, win_probability
from palus.types import F64


def gain_of(gap: F64, variance: F64, *, games: int = 2) -> F64:
    """Nats that one unit of `games` games is expected to tell about a pairing, of each; any shape.

    gain = 1/2 ln(1 + games L^2 p (1 - p) Var(t_i - t_j)): large where the result is open and the strengths are unsure.
    gap: t_i - t_j, points. variance: of the gap, points squared.

    Source: expected reduction of entropy in a linearised model; Lindley, On a measure of the information provided by
    an experiment, 1956.
    """
    p = win_probability(gap)
    gain: F64 = 0.5 * np.log1p(games * POINTS_TO_LOGIT**2 * p * (1.0 - p) * variance)
    return gain
