"""The published order: all strengths fitted together to all games, with intervals and rank ranges.

Unlike Elo the result does not depend on the order of the games or on when a player joined. Strengths are points on the
Elo scale (400 points = 10:1 odds) around a mean of zero; `DISPLAY_BASE + strength` is what people see.
How often the intervals hold what they promise is measured by `benchmarks/rating_coverage.py`.

From `SPARSE_FROM` players on the inverse of the information is not made in every round: steps are solved by conjugate
gradients on the sparse sums, and uncertainties are those of each player with all others held. `exact=True` adds the
joint covariance at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from palus.ratings.games import Cells, Games, Units, add_up, units_of
from palus.ratings.information import Dense, Inverse, Sparse, dense, invert, whole
from palus.ratings.interval import Z_95
from palus.ratings.scatter import Scatter, fit_scatter
from palus.types import F64, I64

DISPLAY_BASE = 1200.0
PRIOR_SD = 350.0
"""Points: the spread of strengths that is expected of a field before it has played."""
_PRIOR_PLAYERS = 1.0
"""Imaginary players of that spread. With more real ones the spread is the field's own."""

POINTS_TO_LOGIT = float(np.log(10.0) / 400.0)
LONGEST_STEP = 400.0
"""Points that one Newton step may move a strength: a decade of odds."""
_VAGUE_SD = 1000.0
"""Points: a prior that says next to nothing, for fields in which the fitted one contradicts the results."""
_LINE = 4
"""Players from which on the prior of opponents that somebody chose is the wider, the more they are: all who met may be
close, and the ends of a long line far apart."""
_CONTRADICTION = 1.3
"""How much wider than the fitted spread the strengths may lie. By chance they are less than that."""
_FIRST_ROUNDS, _ROUNDS, _SPARSE_ROUNDS = 4, 10, 6
"""Times that strengths, their spread and the scatter of results are fitted in turn. A fixed number, so that no rounding
decides when to stop; what is left after it is far below the half-widths."""
SPARSE_FROM = 1000
"""Players."""
_LARGEST_LEVERAGE = 0.9
_NEWTON_STEPS, _NEAR_STEPS = 100, 6
_ROWS = 500


@dataclass(frozen=True)
class Fit:
    """Strengths with their uncertainty.

    strength: [N] points. variance: [N] points squared. covariance: [N, N] joint; None from `SPARSE_FROM` players on
    unless it was asked for, and then `variance` is that of each strength with all others held: about right for
    newcomers, too small by a third where the field is even.
    prior_sd: spread of strengths in the field, points. phi: how results scatter, as one factor for the field
    (`scatter.Scatter`). side: advantage of the first side in points and its standard error; None when it was not
    fitted.
    """

    strength: F64
    variance: F64
    covariance: F64 | None
    prior_sd: float
    phi: float
    side: tuple[float, float] | None

    @property
    def half_width(self) -> F64:
        """[N] half of the 95 % interval of each strength, in points."""
        return Z_95 * np.sqrt(self.variance)

    @property
    def joint(self) -> F64:
        """The covariance of a fit that has one."""
        assert self.covariance is not None, "a fit of many players has a covariance when it is asked for: exact=True"
        return self.covariance


def fit(games: Games, num_players: int, *, side_term: bool = False) -> Fit:
    """Strengths under P(i beats j) = 1 / (1 + exp(-L (t_i - t_j))), L = ln(10) / 400, as means of their posterior.

    Their mean is zero. side_term: also fit the first side's worth. The order of the games changes no bit of the result.

    Three things are found in turn:
    - The strengths: the normal distribution nearest to the posterior. Its mean, unlike the mode, is right about who won
      nearly everything, and about whoever leads: the largest of many estimates is too large unless all are pulled
      towards the field by as much as chance has spread them.
    - The spread of the field's strengths (empirical Bayes), so that the prior neither holds a wide field together nor
      lets chance spread a narrow one. Its own uncertainty widens the intervals of those far from the mean. Where it
      contradicts the results the prior is let go (`_spread_seen`).
    - The scatter of the points in a mirrored pair beside independent games, which depends on who plays. Likelihoods are
      divided by it, so an interval widens where games of a pair go together and narrows where draws remove luck.

    Sources: Bradley and Terry, Rank analysis of incomplete block designs, 1952. Nearest normal: Opper and Archambeau,
    The variational Gaussian approximation revisited, 2009, with E[p(x)] = p(x / sqrt(1 + pi v / 8)) of MacKay, The
    evidence framework applied to classification networks, 1992; there the spread, too. Its uncertainty: Kass and
    Steffey, Approximate Bayesian inference in conditionally independent hierarchical models, 1989. Likelihoods divided
    by a scatter: Wedderburn, Quasi-likelihood functions, 1974.
    """
    return fit_sums(add_up(games, num_players), units_of(games), num_players, side_term=side_term)


def fit_table(points: F64, played: F64) -> Fit:
    """`fit` of sums, where the single games are not known, nor that opponents were chosen by their results: results
    scatter as independent games that are won or lost, and the prior is wide.

    points, played: [N, N] of row against column; each game stands there once, in one of its two cells.
    """
    first, second = np.nonzero(played)
    cells = Cells(first, second, played[first, second], points[first, second])
    none = np.empty(0, np.int64)
    return fit_sums(cells, Units(none, none, np.empty(0), none, none), len(points), outside=True)


def fit_sums(
    cells: Cells, units: Units, num_players: int, *, side_term: bool = False, exact: bool = False, outside: bool = False
) -> Fit:
    """`fit` of games that were added up.

    exact: with the joint covariance whatever the number of players, which takes a time that grows with its cube: a
    minute at 10,000, and 8 bytes for each of its cells.
    outside: opponents were chosen by knowledge that is not in these results, such as of age. Close games then do not
    show how narrow the field is, and the prior is wide.

    Source of the sparse route: Nash, A survey of truncated-Newton methods, 2000.
    """
    size = num_players + 1 if side_term else num_players
    sparse = num_players >= SPARSE_FROM
    rounds = _SPARSE_ROUNDS if sparse else _ROUNDS
    theta = _near_mode(cells, num_players, size, PRIOR_SD) if sparse else mode(cells, num_players, size, PRIOR_SD)
    start = _Belief(theta, None, PRIOR_SD, Scatter(), 1.0)
    known = _rounds(start, cells, units, num_players, _FIRST_ROUNDS, sparse)
    belief = _rounds(known, cells, units, num_players, rounds, sparse, fit_spread=True)
    if _spread_seen(known, num_players) > _CONTRADICTION * belief.spread:
        belief = _rounds(replace(known, spread=_VAGUE_SD), cells, units, num_players, rounds, sparse)
    elif outside and belief.spread < (wide := PRIOR_SD * max(1.0, num_players / _LINE) ** 0.5):
        belief = _rounds(replace(known, spread=wide), cells, units, num_players, rounds, sparse)
    return _finished(belief, num_players, size > num_players, exact)


def _finished(belief: _Belief, n: int, side_term: bool, exact: bool) -> Fit:
    assert belief.inverse is not None
    theta, inverse = belief.mean, belief.inverse
    zero = np.full(n, 1.0 / max(n, 1))
    covariance = None
    if isinstance(inverse, Dense) or exact:
        covariance = inverse.matrix[:n, :n].copy() if isinstance(inverse, Dense) else whole(inverse)
        with_zero = covariance @ zero
        covariance -= with_zero[:, None]
        covariance -= with_zero[None, :]
        covariance += zero @ with_zero
    side = None
    if side_term:
        of_side = inverse.solve(np.append(np.zeros(n), 1.0))  # a sparse inverse's `variance` holds all others
        side = (float(theta[-1]), float(np.sqrt(of_side[-1])))
    return Fit(
        strength=theta[:n] - zero @ theta[:n],
        variance=inverse.variance[:n] if covariance is None else np.diag(covariance),
        covariance=covariance,
        prior_sd=belief.spread,
        phi=belief.phi,
        side=side,
    )


def mode(cells: Cells, n: int, size: int, prior_sd: float) -> F64:
    """Parameters [n, or n + 1 with the side's worth last] of the largest posterior of independent games and a known
    spread, by Newton's method. `fit` starts there.

    The same numbers give the same bits: nothing depends on the clock, on threads of ours or on chance.
    """
    theta, precision, even = np.zeros(size), np.full(size, prior_sd**-2), np.ones(len(cells.played))
    for _ in range(_NEWTON_STEPS):
        gradient, weight = _derivatives(theta, cells, n, even, even)
        step = np.linalg.solve(dense(weight, cells, n, precision), gradient - precision * theta)
        longest = float(np.abs(step).max(initial=0.0)) / LONGEST_STEP
        # Shortened as a whole: from far away a full step overshoots although the objective is concave.
        theta = theta + step * min(1.0, 1.0 / max(longest, 1e-300))
        if longest < 1e-8:  # convergence is quadratic: what is left is below the rounding of a double
            break
    return theta


def _near_mode(cells: Cells, n: int, size: int, prior_sd: float) -> F64:
    """`mode` for many players, only as near as the rounds that follow want it."""
    theta, precision, even = np.zeros(size), np.full(size, prior_sd**-2), np.ones(len(cells.played))
    for _ in range(_NEAR_STEPS):
        gradient, weight = _derivatives(theta, cells, n, even, even)
        step = Sparse(weight, cells, n, precision).solve(gradient - precision * theta)
        theta = theta + step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max(initial=0.0)), 1e-300))
    return theta


def rank_ranges(strength: F64, covariance: F64) -> I64:
    """Best and worst rank of each player that the results leave open: [N, 2], 1 is the top.

    A player is counted above another only when the probability of being stronger exceeds 97.5 %, from
    Var(t_i - t_j) = C_ii + C_jj - 2 C_ij.
    """
    variance, n = np.diag(covariance), len(strength)
    best, worst = np.ones(n, np.int64), np.full(n, n)
    for start in range(0, n, _ROWS):  # no more of the matrix at once than fits into memory several times
        rows = slice(start, start + _ROWS)
        gaps = np.maximum(variance[rows, None] + variance - 2.0 * covariance[rows], 1e-12)
        surely_above = (strength[rows, None] - strength) / np.sqrt(gaps) > Z_95
        best += surely_above.sum(axis=0)
        worst[rows] -= surely_above.sum(axis=1)
    return np.stack([best, worst], axis=1)


def win_probability(gap: F64) -> F64:
    """Share of the points that a player takes from one who is `gap` points weaker."""
    probability: F64 = 0.5 * (1.0 + np.tanh(0.5 * POINTS_TO_LOGIT * gap))
    return probability


@dataclass(frozen=True)
class _Belief:
    """mean [size] of the parameters, and their covariance; None before the first round. spread of strengths; scatter
    of results, as phi too."""

    mean: F64
    inverse: Inverse | None
    spread: float
    scatter: Scatter
    phi: float


def _rounds(
    start: _Belief, cells: Cells, units: Units, n: int, rounds: int, sparse: bool, *, fit_spread: bool = False
) -> _Belief:
    """The belief after so many rounds from a start that is near it. fit_spread: otherwise that of the start is kept."""
    theta, inverse, spread, scatter, phi = start.mean, start.inverse, start.spread, start.scatter, start.phi
    flat = np.ones(len(cells.played)) if inverse is None else _flattening(inverse, cells)
    for _ in range(rounds):
        expected = win_probability(theta[cells.first] - theta[cells.second])
        worth = 1.0 / scatter.phi(_middle(theta[:n], spread, cells.first, cells.second), expected)
        precision = np.full(len(theta), spread**-2)
        gradient, weight = _derivatives(theta, cells, n, worth, flat)
        inverse = Sparse(weight, cells, n, precision) if sparse else invert(dense(weight, cells, n, precision))
        step = inverse.solve(gradient - precision * theta)
        theta = theta + step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        flat = _flattening(inverse, cells)
        determined = n - float(inverse.variance[:n].sum()) / spread**2
        if fit_spread and n:
            moves = inverse.solve(precision * theta)
            squares = float(np.square(theta[:n] - theta[:n].mean()).sum())
            spread = float(np.sqrt((_PRIOR_PLAYERS * PRIOR_SD**2 + squares) / (_PRIOR_PLAYERS + determined)))
        scatter, phi = _scatter(units, theta[:n], inverse, spread, scatter)
    if fit_spread and n and inverse is not None:
        # `moves`: by the logarithm of the prior's precision, whose variance is 2 / degrees of freedom.
        inverse = inverse.widened(moves, 2.0 / (_PRIOR_PLAYERS + determined))
    return _Belief(theta, inverse, spread, scatter, phi)


def _spread_seen(belief: _Belief, n: int) -> float:
    """Spread of strengths that the scatter of estimates under a known prior shows, whoever met whom; a moment estimate.

    The fitted spread also uses how close the players are who met. That is evidence when chance or earlier results of
    this history paired them, and misleads when somebody did who knew better: divisions, seeds.
    """
    if n < 2 or belief.inverse is None:
        return 0.0
    precision = belief.spread**-2
    trace, squares = belief.inverse.moments(n)
    # With C = (K + precision)^-1: noise is tr(C K C), and the truth's share in the estimate is C K.
    noise = trace - precision * squares
    share = (n - 1) - 2.0 * precision * trace + precision**2 * squares
    estimate = belief.mean[:n] - belief.mean[:n].mean()
    return float(np.sqrt(max(float(estimate @ estimate) - noise, 0.0) / max(share, 1e-9)))


def _flattening(inverse: Inverse, cells: Cells) -> F64:
    """[C] factor of each gap by which its uncertainty flattens the curve of expectation."""
    variance = inverse.gap(cells.first, cells.second)
    factor: F64 = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * POINTS_TO_LOGIT**2 * variance)
    return factor


def _scatter(units: Units, strength: F64, inverse: Inverse, spread: float, before: Scatter) -> tuple[Scatter, float]:
    """The scatter of pairs around their expectation, and as one factor. before: what the covariance was made with."""
    if not len(units.low):
        return _unseen(), 1.0
    starts = units.starts
    low, high = units.low[starts], units.high[starts]
    p = win_probability(strength[low] - strength[high])
    middle, even = _middle(strength, spread, low, high), p * (1.0 - p)
    # A residual is smaller than the noise by what its own unit pulled the strengths towards it.
    pulled = POINTS_TO_LOGIT**2 * even / before.phi(middle, p) * inverse.gap(low, high)
    rows = np.diff(starts, append=len(units.low))
    leverage = np.minimum(units.games * np.repeat(pulled, rows), _LARGEST_LEVERAGE)
    residual = units.games * (units.share - np.repeat(p, rows))
    # Units of one pairing share what their scatter depends on: they are added up.
    squares = np.add.reduceat(units.count * np.square(residual) / (1.0 - leverage), starts)
    variance = np.add.reduceat(units.count * units.games, starts) * even
    scatter = fit_scatter(squares, variance, middle, p, before if before != Scatter() else None)
    return scatter, (1.0 + float(squares.sum())) / (1.0 + float(variance.sum()))


@cache
def _unseen() -> Scatter:
    """The scatter of no pairs."""
    return fit_scatter(np.empty(0), np.empty(0), np.empty(0), np.empty(0))


def _middle(strength: F64, spread: float, first: I64, second: I64) -> F64:
    """Mean strength of each pairing, in units of the field's spread around the field's mean."""
    level = float(strength.mean()) if len(strength) else 0.0
    middle: F64 = (0.5 * (strength[first] + strength[second]) - level) / spread
    return middle


def _derivatives(theta: F64, cells: Cells, n: int, worth: F64, flat: F64) -> tuple[F64, F64]:
    """Gradient of the log likelihood, in expectation over the posterior, and the weight of each cell in its negative
    Hessian (`information`).

    worth: [C] factor of each cell's log likelihood. flat: [C] `_flattening`; 1 gives the derivatives at theta itself.
    """
    side = theta[n] if len(theta) > n else 0.0
    p = win_probability(flat * (theta[cells.first] - theta[cells.second] + side))
    residual = POINTS_TO_LOGIT * worth * (cells.points - cells.played * p)
    weight = POINTS_TO_LOGIT**2 * worth * flat * cells.played * p * (1.0 - p)
    gradient = np.zeros(len(theta))
    gradient[:n] = np.bincount(cells.first, residual, n) - np.bincount(cells.second, residual, n)
    if len(theta) > n:
        gradient[n] = residual.sum()
    return gradient, weight
