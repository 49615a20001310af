"""Prediction of wins, draws and losses: Davidson's extension of Bradley-Terry.

    P(win) : P(draw) : P(loss) = e^(L gap / 2) : nu : e^(-L gap / 2),   L = ln(10) / 400

A strength gap here is *not* a gap of the published rating: draws dilute it. Near equality a gap g shows as
2 g / (2 + nu) points of score Elo (`score_gap`). Say which of the two is displayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.ratings.bradley_terry import LONGEST_STEP, POINTS_TO_LOGIT, PRIOR_SD, pairwise_derivatives
from palus.ratings.games import Cells, Games, add_up
from palus.ratings.interval import Z_95
from palus.ratings.newton import maximise
from palus.types import F64

_PRIOR_SD_LOG_NU = 3.0
"""Wide: 95 % of the prior lies between one draw in 700 games and all but one. It keeps nu positive without any draw."""


@dataclass(frozen=True)
class DavidsonFit:
    """strength: [N] Davidson points, mean zero. nu: weight of the draw; 0.4 means 1 draw in 6 games between equals.
    nu_interval: 95 %, taking games as independent."""

    strength: F64
    nu: float
    nu_interval: tuple[float, float]


@dataclass(frozen=True)
class Chances:
    """Probabilities, or arrays of them, that add up to one."""

    win: F64
    draw: F64
    loss: F64

    @property
    def score(self) -> F64:
        """Expected share of the points."""
        return self.win + 0.5 * self.draw


def fit(games: Games, num_players: int) -> DavidsonFit:
    """Strengths and nu together, maximum a posteriori with normal priors on strengths and on ln nu.

    Source: Davidson, On extending the Bradley-Terry model to accommodate ties, 1970.
    """
    n, cells = num_players, add_up(games, num_players)
    precision = np.append(np.full(n, PRIOR_SD**-2), _PRIOR_SD_LOG_NU**-2)
    longest = np.append(np.full(n, LONGEST_STEP), 1.0)
    theta, information = maximise(lambda theta: _derivatives(theta, cells, n), np.zeros(n + 1), precision, longest)
    covariance = np.linalg.inv(information + np.diag(precision))
    log_nu, half = float(theta[n]), Z_95 * float(np.sqrt(covariance[n, n]))
    low, middle, high = (float(np.exp(value)) for value in (log_nu - half, log_nu, log_nu + half))
    return DavidsonFit(theta[:n] - theta[:n].mean(), middle, (low, high))


def predict(gap: F64, nu: float) -> Chances:
    """Outcome for a player who is `gap` Davidson points stronger; any shape."""
    half = 0.5 * POINTS_TO_LOGIT * np.asarray(gap, np.float64)
    # Divided by the largest term, so that no gap overflows.
    scale = np.abs(half)
    win, draw, loss = np.exp(half - scale), nu * np.exp(-scale), np.exp(-half - scale)
    total = win + draw + loss
    return Chances(win / total, draw / total, loss / total)


def score_gap(gap: F64, nu: float) -> F64:
    """The score Elo that a Davidson gap shows as: 400 log10(score / (1 - score)). Near zero it is 2 gap / (2 + nu)."""
    outcome = predict(gap, nu)
    shown: F64 = 400.0 * np.log10(outcome.score / (1.0 - outcome.score))
    return shown


def _derivatives(theta: F64, cells: Cells, n: int) -> tuple[F64, F64]:
    """Gradient and negative Hessian of the log likelihood by strengths (points) and, last, ln nu."""
    outcome = predict(theta[cells.first] - theta[cells.second], float(np.exp(theta[n])))
    decided = outcome.win - outcome.loss
    spread = 0.25 * (outcome.win + outcome.loss - decided * decided)
    residual = POINTS_TO_LOGIT * (cells.points - cells.played * outcome.score)
    gradient = np.zeros(n + 1)
    information = np.zeros((n + 1, n + 1))
    gradient[:n], information[:n, :n] = pairwise_derivatives(
        cells, residual, POINTS_TO_LOGIT**2 * cells.played * spread, n, n
    )
    gradient[n] = float((cells.draws - cells.played * outcome.draw).sum())
    information[n, n] = float((cells.played * outcome.draw * (1.0 - outcome.draw)).sum())
    mixed = -0.5 * POINTS_TO_LOGIT * cells.played * outcome.draw * decided
    information[n, :n] = np.bincount(cells.first, mixed, n) - np.bincount(cells.second, mixed, n)
    information[:n, n] = information[n, :n]
    return gradient, information
