"""The published order: all strengths fitted together to all games, with intervals and rank ranges.

Unlike Elo the result does not depend on the order of the games or on when a player joined. Strengths are points on the
Elo scale (400 points = 10:1 odds) around a mean of zero; `DISPLAY_BASE + strength` is what people see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palus.ratings.games import Cells, Games, add_up, games_per_unit, units_of
from palus.ratings.interval import Z_95, pooled_dispersion
from palus.ratings.newton import maximise

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

DISPLAY_BASE = 1200.0
PRIOR_SD = 350.0
"""Points. Weak: it keeps a player who won everything finite and fades after a few games."""

POINTS_TO_LOGIT = float(np.log(10.0) / 400.0)
LONGEST_STEP = 400.0
"""Points that one Newton step may move a strength: a decade of odds."""


@dataclass(frozen=True)
class Fit:
    """Strengths with their joint uncertainty.

    strength: [N] points. covariance: [N, N] points squared. phi: dispersion of the pairs (`interval.dispersion`).
    side: advantage of the first side in points and its standard error; None when it was not fitted.
    """

    strength: F64
    covariance: F64
    phi: float
    side: tuple[float, float] | None

    @property
    def half_width(self) -> F64:
        """[N] half of the 95 % interval of each strength, in points."""
        return Z_95 * np.sqrt(np.diag(self.covariance))


def fit(
    games: Games,
    num_players: int,
    *,
    anchor: int | None = None,
    side_term: bool = False,
    prior_sd: float = PRIOR_SD,
) -> Fit:
    """Maximum a posteriori strengths under P(i beats j) = 1 / (1 + exp(-L (t_i - t_j))), L = ln(10) / 400.

    anchor: the player whose strength is fixed at zero; None fixes the mean. side_term: also fit the first side's worth.
    The order of the games changes no bit of the result.

    Covariance: with the Hessian H = K + P, K from the games and P from the prior, it is H^-1 (phi K + P) H^-1. At
    phi = 1 that is the usual H^-1; phi measured over mirrored pairs widens it when the games of a pair go together
    and narrows it when draws or mirroring remove luck.

    Source: Bradley and Terry, Rank analysis of incomplete block designs, 1952; sandwich: Huber, 1967.
    """
    start = np.zeros(num_players + 1 if side_term else num_players)
    theta, information = _mode(add_up(games, num_players), num_players, start, prior_sd)
    units = units_of(games)
    phi = pooled_dispersion(units.share, units.starts, games_per_unit(games))
    covariance = _sandwich(information, phi, prior_sd)
    side = (float(theta[-1]), float(np.sqrt(covariance[-1, -1]))) if side_term else None
    zero = np.full(num_players, 1.0 / max(num_players, 1))
    if anchor is not None:
        zero = np.eye(num_players)[anchor]
    strength, covariance = theta[:num_players], covariance[:num_players, :num_players]
    with_zero = covariance @ zero
    return Fit(
        strength=strength - zero @ strength,
        covariance=covariance - with_zero[:, None] - with_zero[None, :] + zero @ with_zero,
        phi=phi,
        side=side,
    )


def bootstrap(games: Games, num_players: int, *, replicates: int = 200, seed: int = 0) -> F64:
    """Strengths refitted to resampled mirrored pairs: [replicates, N], mean zero in each row.

    Percentiles over the rows (`bootstrap_interval`) are the intervals of published tables, without the normal
    approximation of `fit`. The same games and seed give the same rows when units are numbered alike (`games.arrange`).
    """
    rng = np.random.default_rng(seed)
    units, unit = np.unique(games.unit, return_inverse=True)
    rows = np.zeros((replicates, num_players))
    if len(units) == 0:
        return rows
    center, _ = _mode(add_up(games, num_players), num_players, np.zeros(num_players), PRIOR_SD)
    for replicate in range(replicates):
        times_drawn = rng.multinomial(len(units), np.full(len(units), 1.0 / len(units))).astype(np.float64)
        theta, _ = _mode(add_up(games, num_players, times_drawn[unit]), num_players, center, PRIOR_SD)
        rows[replicate] = theta - theta.mean()
    return rows


def bootstrap_interval(rows: F64, level: float = 0.95) -> F64:
    """Percentile interval of each strength: [N, 2], low and high. rows: what `bootstrap` returned."""
    tail = (1.0 - level) / 2.0
    return np.quantile(rows, [tail, 1.0 - tail], axis=0).T


def rank_ranges(strength: F64, covariance: F64, z: float = Z_95) -> I64:
    """Best and worst rank of each player that the results leave open: [N, 2], 1 is the top.

    A player is counted above another only when the probability of being stronger exceeds 97.5 %, from
    Var(t_i - t_j) = C_ii + C_jj - 2 C_ij.
    """
    spread = np.sqrt(np.maximum(variance_of_gaps(covariance), 1e-12))
    surely_above = (strength[:, None] - strength[None, :]) / spread > z
    best = 1 + surely_above.sum(axis=0)
    worst = len(strength) - surely_above.sum(axis=1)
    return np.stack([best, worst], axis=1).astype(np.int64)


def variance_of_gaps(covariance: F64) -> F64:
    """[N, N] variance of every difference t_i - t_j, points squared; never negative."""
    variance = np.diag(covariance)
    return np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 0.0)


def win_probability(gap: F64) -> F64:
    """Share of the points that a player takes from one who is `gap` points weaker."""
    probability: F64 = 0.5 * (1.0 + np.tanh(0.5 * POINTS_TO_LOGIT * gap))
    return probability


def _mode(cells: Cells, n: int, start: F64, prior_sd: float) -> tuple[F64, F64]:
    """Parameters [n, or n + 1 with the side's worth last] of the largest posterior, and the games' information."""
    size = len(start)
    return maximise(
        lambda theta: _derivatives(theta, cells, n), start, np.full(size, prior_sd**-2), np.full(size, LONGEST_STEP)
    )


def _sandwich(information: F64, phi: float, prior_sd: float) -> F64:
    """H^-1 (phi K + P) H^-1 with H = K + P and P = p I, written as phi H^-1 + (1 - phi) p H^-2: one product less."""
    prior = prior_sd**-2
    inverse = np.linalg.inv(information + prior * np.eye(len(information)))
    inverse = 0.5 * (inverse + inverse.T)
    return phi * inverse + (1.0 - phi) * prior * (inverse @ inverse)


def _derivatives(theta: F64, cells: Cells, n: int) -> tuple[F64, F64]:
    """Gradient and negative Hessian of the log likelihood."""
    side = theta[n] if len(theta) > n else 0.0
    p = win_probability(theta[cells.first] - theta[cells.second] + side)
    residual = POINTS_TO_LOGIT * (cells.points - cells.played * p)
    weight = POINTS_TO_LOGIT**2 * cells.played * p * (1.0 - p)
    return pairwise_derivatives(cells, residual, weight, len(theta), n)


def pairwise_derivatives(cells: Cells, residual: F64, weight: F64, size: int, n: int) -> tuple[F64, F64]:
    """Gradient [size] and information [size, size] of a likelihood of strength gaps.

    residual, weight: [C] first and negative second derivative of each cell by its gap. A gap is first - second, plus
    parameter n where `size` has one: it belongs to every cell alike.
    """
    gradient = np.zeros(size)
    gradient[:n] = np.bincount(cells.first, residual, n) - np.bincount(cells.second, residual, n)
    information = np.zeros((size, size))
    met = np.bincount(cells.first * n + cells.second, weight, n * n).reshape(n, n)
    information[:n, :n] = -met - met.T
    as_first, as_second = np.bincount(cells.first, weight, n), np.bincount(cells.second, weight, n)
    information[np.arange(n), np.arange(n)] += as_first + as_second
    if size > n:
        gradient[n] = residual.sum()
        information[n, :n] = information[:n, n] = as_first - as_second
        information[n, n] = weight.sum()
    return gradient, information
