"""Is the new player better? A sequential test on mirrored pairs that stops as soon as the answer is sure enough.

Two hypotheses about the score Elo of the new player over the old one, elo0 < elo1, and the two error rates that one
accepts. The statistic is the log likelihood ratio of the pentanomial model: a pair's score is 0, 1/4, 1/2, 3/4 or 1
with any probabilities whose mean is the hypothesis' score. So neither draws nor games of a pair that go together upset
the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from palus.ratings.elo import expected_score
from palus.types import F64

PAIR_SCORES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_REGULAR = 1e-3
"""Added to every count, so that an outcome that has not been seen is rare and not impossible."""

Decision = Literal["better", "not better"]


@dataclass(frozen=True)
class Hypotheses:
    """What is decided between, and how sure it must be.

    elo0, elo1: score Elo of the new player over the old under H0 and H1, elo0 < elo1. alpha: accepted chance of calling
    it better when it is elo0. beta: accepted chance of missing it when it is elo1.
    Raises ValueError for hypotheses in the wrong order and error rates outside (0, 0.5).
    """

    elo0: float = 0.0
    elo1: float = 35.0
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not self.elo0 < self.elo1:
            raise ValueError(f"elo0 must be smaller than elo1, got {self.elo0} and {self.elo1}")
        if not (0.0 < self.alpha < 0.5 and 0.0 < self.beta < 0.5):
            raise ValueError(f"alpha and beta must lie between 0 and 0.5, got {self.alpha} and {self.beta}")

    @property
    def lower(self) -> float:
        """At or below this log likelihood ratio H0 is accepted."""
        return math.log(self.beta / (1.0 - self.alpha))

    @property
    def upper(self) -> float:
        """At or above this log likelihood ratio H1 is accepted."""
        return math.log((1.0 - self.beta) / self.alpha)


@dataclass(frozen=True)
class SequentialTest:
    """The test after some pairs. Adding pairs makes a new one.

    counts: pairs in which the new player took 0, 1/4, 1/2, 3/4 and all of the points.
    """

    hypotheses: Hypotheses = field(default_factory=Hypotheses)
    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)

    def after(self, pair_scores: Sequence[float]) -> SequentialTest:
        """The test with these pairs too. pair_scores: the new player's share of each pair's points.

        Raises ValueError for a share that two games cannot give.
        """
        counts = list(self.counts)
        for score in pair_scores:
            quarter = 4.0 * score
            if quarter not in (0.0, 1.0, 2.0, 3.0, 4.0):
                raise ValueError(f"a pair's score is 0, 1/4, 1/2, 3/4 or 1, got {score}")
            counts[int(quarter)] += 1
        zero, one, two, three, four = counts
        return replace(self, counts=(zero, one, two, three, four))

    @property
    def pairs(self) -> int:
        """Pairs so far."""
        return sum(self.counts)

    @property
    def llr(self) -> float:
        """Log likelihood ratio of H1 to H0; 0 before the first pair."""
        return log_likelihood_ratio(self.counts, self.hypotheses.elo0, self.hypotheses.elo1)

    @property
    def decision(self) -> Decision | None:
        """What is sure enough to be said; None while more pairs are needed."""
        llr = self.llr
        if llr >= self.hypotheses.upper:
            return "better"
        return "not better" if llr <= self.hypotheses.lower else None


def log_likelihood_ratio(counts: Sequence[int], elo0: float, elo1: float) -> float:
    """ln of how much better the best distribution of mean s(elo1) explains the pairs than the best of mean s(elo0).

    counts: [5] pairs by the new player's share 0, 1/4, 1/2, 3/4, 1.

    Source: Van den Bergh, A practical introduction to the GSPRT, 2018; the test of the engine-testing site fishtest.
    """
    pairs = sum(counts)
    if pairs == 0:
        return 0.0
    seen = np.asarray(counts, np.float64) + _REGULAR
    share = seen / seen.sum()
    under0, under1 = (constrained(share, expected_score(elo, 0.0)) for elo in (elo0, elo1))
    return float(pairs * (share @ np.log(under1 / under0)))


def constrained(share: F64, mean: float) -> F64:
    """Maximum likelihood distribution over `PAIR_SCORES` whose mean is given, for observed shares (all > 0): [5].

    p_k = share_k / (1 + x (a_k - mean)); x is the root of a function that falls from +inf to -inf between its poles.
    """
    distance = PAIR_SCORES - mean
    # Poles where the largest or smallest a_k makes the denominator zero.
    low, high = -1.0 / float(distance.max()), -1.0 / float(distance.min())
    for _ in range(200):
        x = 0.5 * (low + high)
        if not low < x < high:
            break
        if float((share * distance / (1.0 + x * distance)).sum()) > 0.0:
            low = x
        else:
            high = x
    probabilities: F64 = share / (1.0 + 0.5 * (low + high) * distance)
    return probabilities
