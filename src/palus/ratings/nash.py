"""The view that knows no single order: the win matrix as a zero-sum game.

Rock, paper and scissors get the same Bradley-Terry rating, which hides how they differ. Here a player is judged against
the mixture p* of players that nobody beats: the Nash equilibrium of the win matrix, and among several the one of
largest entropy, so that copies of a player share its weight and gain nothing.

A cell of few games says little, and the largest of many such cells says what chance made of it. So each is pulled
towards what the ratings expect, as far as its games leave room (`believed`), and the weights come with intervals
(`plausible`).

Source: Balduzzi et al., Re-evaluating evaluation, 2018 (maximum-entropy Nash); Jiang et al., Statistical ranking and
combinatorial Hodge theory, 2011 (gradient and rotation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.ratings.bradley_terry import POINTS_TO_LOGIT
from palus.ratings.games import Cells
from palus.types import F64, I64

IN_SUPPORT = 1e-6
"""Weight below which a player counts as absent from the equilibrium."""
_TOLERANCE = 1e-6
"""Log odds; ten times what the solver leaves."""
_DRAWS = 100
_CANDIDATES = 40
"""Strongest players among whom the draws look for an equilibrium; those below are beaten by several of them."""
_ROUNDING = 1e-9
"""Weight that a solver leaves where it means none."""


@dataclass(frozen=True)
class WinMatrix:
    """Both sides together. played: [N, N] games, symmetric. points: [N, N] of the row player against the column's."""

    played: F64
    points: F64

    @property
    def advantage(self) -> F64:
        """[N, N] antisymmetric: log odds of the row player's share, pulled towards 1/2 by one imaginary point for each;
        0 where two players never met."""
        share = (self.points + 1.0) / (self.played + 2.0)
        odds = np.log(share) - np.log1p(-share)
        antisymmetric: F64 = 0.5 * (odds - odds.T)
        return antisymmetric


@dataclass(frozen=True)
class Equilibrium:
    """weights: [N] the maximum-entropy Nash mixture p*. skill: [N] log odds against it, A p*: 0 in the support, at most
    0 outside."""

    weights: F64
    skill: F64

    @property
    def points(self) -> F64:
        """[N] the skill on the Elo scale: 400 points = 10:1 odds against p*."""
        return self.skill / POINTS_TO_LOGIT


@dataclass(frozen=True)
class Unexplained:
    """How much of the win matrix no single order can explain.

    share: of the weighted variance of the log odds, in [0, 1]; 0 = one order explains everything. by_chance: the share
    that sampling noise alone would leave if one order were the truth. Only a share well above it means cycles.
    """

    share: float
    by_chance: float


@dataclass(frozen=True)
class Believed:
    """The win matrix as far as it can be believed.

    advantage: [N, N] antisymmetric log odds: what the ratings expect and, on top, the part of each cell's deviation
    that its games vouch for. sd: [N, N] of what is left unknown of the deviations. cyclic: sd of deviations in the
    whole field, log odds; 0 where chance alone explains the matrix, and then advantage is what the ratings say.
    """

    advantage: F64
    sd: F64
    cyclic: float


def believed(matrix: WinMatrix, strength: F64, phi: float = 1.0) -> Believed:
    """Cells pulled towards the ratings' expectation by 1 / (1 + cyclic^2 / variance).

    strength: [N] points. phi: dispersion of mirrored pairs, as in `unexplained`. The variance of the true deviations is
    the excess of the seen ones over sampling noise.

    Source: DerSimonian and Laird, Meta-analysis in clinical trials, 1986.
    """
    n = len(strength)
    expected = POINTS_TO_LOGIT * (strength[:, None] - strength[None, :])
    i, j = np.nonzero(np.triu(matrix.played, 1))
    # One imaginary game that went as expected keeps the odds finite.
    share = 1.0 / (1.0 + np.exp(-expected[i, j]))
    rest = np.where(share < 1.0, 1.0 - share, np.exp(-expected[i, j]))  # from 6,400 points on, share is rounded to 1
    won, lost = matrix.points[i, j] + share, matrix.points[j, i] + rest
    deviation = np.log(won / lost) - expected[i, j]
    variance = phi * (1.0 / won + 1.0 / lost)
    weight = 1.0 / variance
    freedom = max(len(i) - (n - 1), 0)
    excess = float((weight * deviation**2).sum()) - freedom
    scale = float(weight.sum() - (weight**2).sum() / weight.sum()) if len(i) > 1 else 0.0
    cyclic = max(0.0, excess / scale) if scale > 0.0 and freedom > 0 else 0.0
    advantage, left = expected.copy(), np.full((n, n), cyclic)
    kept = deviation * cyclic / (cyclic + variance)
    advantage[i, j] += kept
    advantage[j, i] -= kept
    left[i, j] = left[j, i] = cyclic * variance / (cyclic + variance)
    return Believed(advantage, np.sqrt(left), float(np.sqrt(cyclic)))


def plausible(field: Believed, covariance: F64) -> F64:
    """95 % interval of each player's equilibrium weight: [N, 2]. covariance: [N, N] of the strengths, points squared.

    Percentiles of the equilibria of matrices drawn from what the games leave possible, the same ones every time.
    """
    rng = np.random.default_rng(0)
    n = len(field.advantage)
    if n == 0:
        return np.zeros((0, 2))
    standing = np.argsort(-field.advantage.mean(axis=1), kind="stable")[:_CANDIDATES]
    inside = np.ix_(standing, standing)
    values, vectors = np.linalg.eigh(covariance[inside])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    weights = np.zeros((_DRAWS, n))
    for draw in range(_DRAWS):
        moved = POINTS_TO_LOGIT * (root @ rng.standard_normal(len(standing)))
        noise = np.triu(rng.standard_normal((len(standing), len(standing))) * field.sd[inside], 1)
        advantage = field.advantage[inside] + moved[:, None] - moved[None, :] + noise - noise.T
        unbeaten = np.flatnonzero((advantage >= 0.0).all(axis=1))
        if len(unbeaten):
            weights[draw, standing[unbeaten[0]]] = 1.0
        else:  # of random numbers, so there is one equilibrium
            weights[draw, standing] = any_equilibrium(advantage)
    return np.quantile(weights, [0.025, 0.975], axis=0).T


def win_matrix(cells: Cells, num_players: int) -> WinMatrix:
    """Counts of everybody against everybody."""
    played, points = (np.zeros((num_players, num_players)) for _ in range(2))
    played[cells.first, cells.second] = cells.played
    points[cells.first, cells.second] = cells.points
    return WinMatrix(played + played.T, points + played.T - points.T)


def equilibrium(advantage: F64) -> Equilibrium:
    """Maximum-entropy Nash equilibrium of an antisymmetric [N, N] matrix; it always exists and is unique.

    Pairings that never met count as even, so ask for it where most have met. Raises LinAlgError when rounding defeats
    the solver.
    """
    n = len(advantage)
    weights = np.zeros(n)
    if n:
        mixture = _largest_support(advantage)
        inside = np.flatnonzero(mixture > 0.0)
        weights[inside] = _spread(advantage, inside, mixture[inside])
    return Equilibrium(weights, advantage @ weights)


def mixtures(payoff: F64, *, entropy: bool = True) -> tuple[F64, F64]:
    """Equilibrium of a zero-sum game between two who choose among different things: weights [m] and [n].

    payoff: [m, n] of the row player. entropy: of largest entropy for both, else one that the solver finds.
    Raises LinAlgError when rounding defeats the solver.

    Source: Gale, Kuhn and Tucker, On symmetric games, 1950: a positive payoff becomes a symmetric game of m + n + 1
    strategies, in whose equilibria rows and columns have one and the same weight.
    """
    m, n = payoff.shape
    game = np.zeros((m + n + 1, m + n + 1))
    game[:m, m : m + n] = payoff - payoff.min() + 1.0
    game[:m, -1], game[m:-1, -1] = -1.0, 1.0
    game = np.triu(game) - np.triu(game).T
    weights = equilibrium(game).weights if entropy else any_equilibrium(game)
    rows, columns = weights[:m], weights[m : m + n]
    return rows / rows.sum(), columns / columns.sum()


def unexplained(matrix: WinMatrix, phi: float = 1.0) -> Unexplained:
    """Split the log odds A into the part of a single order, r_i - r_j, and the rest; weigh by 1 / variance.

    phi: dispersion of the mirrored pairs (`bradley_terry.Fit.phi`), the factor on the variance of independent games.
    """
    i, j = np.nonzero(np.triu(matrix.played, 1))
    if len(i) == 0:
        return Unexplained(0.0, 0.0)
    n = len(matrix.played)
    odds = matrix.advantage[i, j]
    variance = phi * (1.0 / (matrix.points[i, j] + 1.0) + 1.0 / (matrix.points[j, i] + 1.0))
    laplacian, pull = np.zeros((n, n)), np.zeros(n)
    for row, column, sign in ((i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)):
        np.add.at(laplacian, (row, column), sign / variance)
    np.add.at(pull, i, odds / variance)
    np.add.at(pull, j, -odds / variance)
    # Least squares: groups that never met leave the matrix singular, each with a level of its own.
    order, _, rank, _ = np.linalg.lstsq(laplacian, pull, rcond=1e-10)
    total = float((odds**2 / variance).sum())
    rest = float(((odds - order[i] + order[j]) ** 2 / variance).sum())
    if total == 0.0:
        return Unexplained(0.0, 0.0)
    return Unexplained(min(1.0, rest / total), min(1.0, (len(i) - int(rank)) / total))


def _largest_support(advantage: F64) -> F64:
    """An equilibrium in which everybody takes part who does in any.

    A first linear program finds one, p. Who loses to p takes part in none; when somebody else is missing from p, a
    second one looks among the remaining for the q >= 0 with A q <= 0, up to scale: with q = s + r and 0 <= s <= 1,
    maximising sum s makes s_i = 1 for all who can be positive.
    """
    from scipy.optimize import linprog  # slow to import, needed by few

    n = len(advantage)
    mixture = any_equilibrium(advantage)
    possible = np.flatnonzero(advantage @ mixture > -_TOLERANCE)
    if np.all(mixture[possible] > 0.0):
        return np.asarray(mixture / mixture.sum())
    size, columns = len(possible), advantage[:, possible]
    whole = linprog(
        c=np.append(-np.ones(size), np.zeros(size)),
        A_ub=np.hstack([columns, columns]),
        b_ub=np.zeros(n),
        # Weights more than a factor 1 / IN_SUPPORT apart would not be told from absence.
        bounds=[(0.0, 1.0)] * size + [(0.0, 1.0 / IN_SUPPORT)] * size,
        method="highs",
    )
    if whole.success:
        part, rest = whole.x[:size], whole.x[size:]
        mixture = np.zeros(n)
        mixture[possible] = np.where(part > 0.5, part + rest, 0.0)
    return np.asarray(mixture / mixture.sum())


def any_equilibrium(advantage: F64) -> F64:
    """Weights [N] of one equilibrium of an antisymmetric [N, N] matrix, by a linear program. Raises LinAlgError."""
    from scipy.optimize import linprog

    n = len(advantage)
    if not np.isfinite(advantage).all():
        raise np.linalg.LinAlgError(f"no equilibrium of {n} players: log odds that are no numbers")
    found = linprog(np.zeros(n), A_ub=advantage, b_ub=np.zeros(n), A_eq=np.ones((1, n)), b_eq=[1.0], method="highs")
    if not found.success:
        raise np.linalg.LinAlgError(f"no equilibrium of {n} players found: {found.message}")
    return np.where(found.x > _ROUNDING, found.x, 0.0)


def _spread(advantage: F64, inside: I64, mixture: F64) -> F64:
    """Weights of largest entropy on the support. mixture: a positive equilibrium on it, to the solver's accuracy.

    All equilibria solve M p = (0, ..., 0, 1) there, M = A_SS with a row of ones below it: they are p_0 + Z y with Z a
    basis of the null space of M. Usually Z is empty and the equilibrium unique.
    """
    from scipy.linalg import lstsq, null_space
    from scipy.optimize import minimize

    rows = np.vstack([advantage[np.ix_(inside, inside)], np.ones(len(inside))])
    goal = np.append(np.zeros(len(inside)), 1.0)
    start = mixture + lstsq(rows, goal - rows @ mixture, cond=1e-9)[0]
    free = null_space(rows, rcond=1e-9)
    if free.shape[1] == 0:
        return np.asarray(start)
    # Nobody outside may beat the mixture.
    outside = np.delete(advantage, inside, axis=0)[:, inside]

    def negative_entropy(y: F64) -> tuple[float, F64]:
        p = np.maximum(start + free @ y, 1e-12)
        return float(p @ np.log(p)), free.T @ (np.log(p) + 1.0)

    limits = [{"type": "ineq", "fun": lambda y: start + free @ y, "jac": lambda _: free}]
    if len(outside):
        slack = np.maximum(-outside @ start, 0.0)
        limits.append({"type": "ineq", "fun": lambda y: slack - outside @ free @ y, "jac": lambda _: -outside @ free})
    found = minimize(
        negative_entropy,
        np.zeros(free.shape[1]),
        jac=True,
        method="SLSQP",
        constraints=limits,
        options={"maxiter": 500, "ftol": 1e-14},
    )
    spread = np.maximum(start + free @ found.x, 0.0)
    return np.asarray(spread / spread.sum())
