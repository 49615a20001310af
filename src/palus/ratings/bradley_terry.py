"""The published order: all strengths fitted together to all games, with intervals and rank ranges.

Unlike Elo the result does not depend on the order of the games or on when a player joined. Strengths are points on the
Elo scale (400 points = 10:1 odds) around a mean of zero; `DISPLAY_BASE + strength` is what people see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palus.ratings.interval import Z_95, dispersion

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

DISPLAY_BASE = 1200.0
PRIOR_SD = 350.0
"""Points. Weak: it keeps a player who won everything finite and fades after a few games."""

POINTS_TO_LOGIT = float(np.log(10.0) / 400.0)


@dataclass(frozen=True)
class Games:
    """Results, one row per game.

    first, second: [G] player indices; the first player has the first side (blue).
    points: [G] of the first player: 1 won, 0.5 drawn, 0 lost. A draw counts as half a win and half a loss.
    unit: [G] games with the same number form one mirrored pair, which is never torn apart.
    """

    first: I64
    second: I64
    points: F64
    unit: I64


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

    Covariance: with the Hessian H = K + P, K from the games and P from the prior, it is H^-1 (phi K + P) H^-1. At
    phi = 1 that is the usual H^-1; phi measured over mirrored pairs widens it when the games of a pair go together
    and narrows it when draws or mirroring remove luck.

    Source: Bradley and Terry, Rank analysis of incomplete block designs, 1952; sandwich: Huber, 1967.
    """
    theta, information, prior = _newton(games, np.ones(len(games.points)), num_players, side_term, prior_sd)
    phi = dispersion(_unit_scores_by_pairing(games), _games_per_unit(games))
    inverse = np.linalg.inv(information + prior)
    covariance = inverse @ (phi * information + prior) @ inverse
    side = (float(theta[-1]), float(np.sqrt(covariance[-1, -1]))) if side_term else None
    zero = np.full(num_players, 1.0 / num_players)
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

    Percentiles over the rows give the intervals of published tables without the normal approximation of `fit`.
    """
    rng = np.random.default_rng(seed)
    units, unit = np.unique(games.unit, return_inverse=True)
    rows = np.empty((replicates, num_players))
    for replicate in range(replicates):
        times_drawn = rng.multinomial(len(units), np.full(len(units), 1.0 / len(units)))
        theta, _, _ = _newton(games, times_drawn[unit].astype(np.float64), num_players, False, PRIOR_SD)
        rows[replicate] = theta - theta.mean()
    return rows


def rank_ranges(strength: F64, covariance: F64, z: float = Z_95) -> I64:
    """Best and worst rank of each player that the results leave open: [N, 2], 1 is the top.

    A player is counted above another only when the probability of being stronger exceeds 97.5 %, from
    Var(t_i - t_j) = C_ii + C_jj - 2 C_ij.
    """
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 1e-12))
    surely_above = (strength[:, None] - strength[None, :]) / spread > z
    best = 1 + surely_above.sum(axis=0)
    worst = len(strength) - surely_above.sum(axis=1)
    return np.stack([best, worst], axis=1).astype(np.int64)


def _newton(games: Games, weight: F64, n: int, side_term: bool, prior_sd: float) -> tuple[F64, F64, F64]:
    """Maximise the log posterior. Returns parameters [n (+1)], information of the games and of the prior."""
    cells = games.first * n + games.second
    played = np.bincount(cells, weight, n * n).astype(np.float64).reshape(n, n)
    won = np.bincount(cells, weight * games.points, n * n).astype(np.float64).reshape(n, n)
    size = n + 1 if side_term else n
    prior = np.eye(size) / prior_sd**2
    theta = np.zeros(size)
    for _ in range(100):
        gradient, information = _derivatives(theta, played, won, n)
        step = np.linalg.solve(information + prior, gradient - prior @ theta)
        # The objective is concave, but a full step from far away can overshoot; 400 points is one decade of odds.
        theta = theta + step * min(1.0, 400.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-6:
            break
    _, information = _derivatives(theta, played, won, n)
    return theta, information, prior


def _derivatives(theta: F64, played: F64, won: F64, n: int) -> tuple[F64, F64]:
    """Gradient and negative Hessian of the log likelihood. played, won: [n, n], row has the first side."""
    strength = theta[:n]
    side = theta[n] if len(theta) > n else 0.0
    logit = POINTS_TO_LOGIT * (strength[:, None] - strength[None, :] + side)
    p = 0.5 * (1.0 + np.tanh(0.5 * logit))
    residual = POINTS_TO_LOGIT * (won - played * p)
    weight = POINTS_TO_LOGIT**2 * played * p * (1.0 - p)
    gradient = np.zeros(len(theta))
    information = np.zeros((len(theta), len(theta)))
    gradient[:n] = residual.sum(axis=1) - residual.sum(axis=0)
    information[:n, :n] = np.diag(weight.sum(axis=1) + weight.sum(axis=0)) - weight - weight.T
    if len(theta) > n:
        gradient[n] = residual.sum()
        information[n, :n] = information[:n, n] = weight.sum(axis=1) - weight.sum(axis=0)
        information[n, n] = weight.sum()
    return gradient, information


def _games_per_unit(games: Games) -> int:
    units = len(np.unique(games.unit))
    return max(1, round(len(games.unit) / max(units, 1)))


def _unit_scores_by_pairing(games: Games) -> list[F64]:
    """For each pairing the share of points that its lower-numbered player took in every unit."""
    if len(games.points) == 0:
        return []
    low = np.minimum(games.first, games.second)
    high = np.maximum(games.first, games.second)
    points_of_low = np.where(games.first == low, games.points, 1.0 - games.points)
    keys, unit = np.unique(np.stack([low, high, games.unit]), axis=1, return_inverse=True)
    unit = unit.reshape(-1)
    shares = np.bincount(unit, points_of_low) / np.bincount(unit)
    # np.unique sorts its columns, so the units of one pairing are neighbours.
    starts = np.flatnonzero(np.any(np.diff(keys[:2], axis=1) != 0, axis=0)) + 1
    return np.split(shares, starts)
