"""Chances with draws, for simulations: Davidson, On extending the Bradley-Terry model to accommodate ties, 1970.

P(win) : P(draw) : P(loss) = e^(L gap / 2) : nu : e^(-L gap / 2),   L = ln(10) / 400
"""

from __future__ import annotations

import numpy as np

from palus.types import F64


def chances(gap: float, nu: float) -> F64:
    """[3] of a win, a draw and a loss, for who is `gap` points stronger."""
    half = np.log(10.0) / 800.0 * gap
    weights = np.array([np.exp(half), nu, np.exp(-half)])
    share: F64 = weights / weights.sum()
    return share
