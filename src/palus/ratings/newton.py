"""Newton's method for concave log posteriors whose parameters are rating points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palus.types import F64

Derivatives = Callable[[F64], tuple[F64, F64]]
"""Parameters [K] -> gradient [K] and negative Hessian [K, K] of the log likelihood."""

MAX_STEPS = 100


def maximise(derivatives: Derivatives, start: F64, prior_precision: F64, longest_step: F64) -> tuple[F64, F64]:
    """Mode of likelihood times independent normal priors around zero. Returns it [K] and the information there [K, K].

    prior_precision: [K] 1 / variance. longest_step: [K] a step is shortened as a whole until no parameter moves
    farther: from far away a full step overshoots although the objective is concave.
    The same numbers give the same bits: nothing depends on the clock, on threads of ours or on chance.
    """
    theta = start.copy()
    for _ in range(MAX_STEPS):
        gradient, information = derivatives(theta)
        information[np.diag_indices_from(information)] += prior_precision
        step = np.linalg.solve(information, gradient - prior_precision * theta)
        relative = float(np.abs(step / longest_step).max(initial=0.0))
        theta = theta + step * min(1.0, 1.0 / max(relative, 1e-300))
        # Convergence is quadratic: what a step this small leaves is below the rounding of a double.
        if relative < 1e-8:
            break
    return theta, derivatives(theta)[1]
