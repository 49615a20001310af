"""How much the results of a pairing scatter, beside independent games that are won or lost.

Draws and mirrored sides take luck out of a pair of games, games that end alike put some in; and neither is the same for
everybody: strong teams may draw less, lopsided pairings cannot draw much. So the factor is no constant of the field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.types import F64

_IMAGINARY_PAIRS = 4.0
"""Even, independent pairs that hold the factor near 1 while there is little evidence."""
_VARIANCE_OF_A_PAIR = 0.5
"""Of the points in two even, independent games."""
_RIDGE = 4.0
"""Precision of the prior of both slopes around zero: eight even pairs' worth."""
_NEWTON_STEPS = 8
_SMALLEST_STEP = 1e-8
_LEAST, _MOST = np.log(0.02), np.log(8.0)


@dataclass(frozen=True)
class Scatter:
    """phi = exp(level + by_strength * strength + by_gap * lopsidedness), in Var(points) = phi * games * p (1 - p).

    strength: mean of the two players', in units of the field's spread. lopsidedness: 1 - 4 p (1 - p), 0 between equals.
    """

    level: float = 0.0
    by_strength: float = 0.0
    by_gap: float = 0.0

    def phi(self, strength: F64, p: F64) -> F64:
        """The factor of each pairing; any shape. p: expected share of one of the two."""
        exponent = self.level + self.by_strength * strength + self.by_gap * (1.0 - 4.0 * p * (1.0 - p))
        factor: F64 = np.exp(np.clip(exponent, _LEAST, _MOST))
        return factor


def fit_scatter(squares: F64, variance: F64, strength: F64, p: F64, near: Scatter | None = None) -> Scatter:
    """The factor behind squared residuals, by quasi-likelihood (the score equations of a Poisson regression).

    squares: [U] squared residual of the points in every unit, corrected for the parameters that were fitted to them.
    variance: [U] of independent won-or-lost games. strength, p: [U], as in `Scatter.phi`.
    near: where it is looked for first; only how long that takes depends on it.

    Sums are compared with sums, never ratios averaged: a pairing that one player always wins has small residuals and
    little weight, and is not taken for certainty.
    """
    features = np.stack([np.ones(len(squares)), strength, 1.0 - 4.0 * p * (1.0 - p)])
    imaginary = _IMAGINARY_PAIRS * _VARIANCE_OF_A_PAIR / 2.0
    held = np.array([0.0, _RIDGE, _RIDGE])
    first = np.array([1.0, 0.0, 0.0])
    beta = first * np.log((imaginary + squares.sum()) / (imaginary + variance.sum()))
    if near is not None:
        beta = np.array([near.level, near.by_strength, near.by_gap])
    for _ in range(_NEWTON_STEPS):
        mean = variance * np.exp(np.clip(beta @ features, _LEAST, _MOST))
        even = imaginary * np.exp(beta[0])
        gradient = features @ (squares - mean) + first * (imaginary - even) - held * beta
        information = (features * mean) @ features.T + np.diag(first * even + held)
        step = np.clip(np.linalg.solve(information, gradient), -1.0, 1.0)
        beta = beta + step
        if np.abs(step).max() < _SMALLEST_STEP:  # the next one would change the last digits of a double
            break
    return Scatter(*beta.tolist())
