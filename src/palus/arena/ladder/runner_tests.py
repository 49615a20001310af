"""Do a runner's results look like everybody else's? Pure: rated matches in, suspicions out.

Chi-square tests with one degree of freedom, each corrected for the number of tests: the score of every player in this
runner's matches against what the rest of the matches predict for the same opponents, and the share of forfeits.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palus.arena.referee.result import POINTS

SUSPECT_LEVEL = 1e-6
"""p-value below which results are no accident: with a hundred runners audited daily, one in 27 years."""

MIN_MATCHES = 50
_PRIOR_GAMES = 4.0
"""Imaginary drawn matches by which a pairing that the rest hardly played is pulled to even."""
_SURE = 0.05
"""Nobody is predicted to score less: upsets in uneven pairings are not evidence."""


@dataclass(frozen=True)
class RatedMatch:
    """As in the log."""

    worker: str
    blue: str
    purple: str
    result: str

    @property
    def pair(self) -> tuple[str, str]:
        """Who met, whatever the sides."""
        return min(self.blue, self.purple), max(self.blue, self.purple)

    @property
    def points(self) -> float | None:
        """Of the first of the pair; None for a void match."""
        points = POINTS.get(self.result)
        return points if points is None or self.blue <= self.purple else 1.0 - points


@dataclass(frozen=True)
class Suspicion:
    """A runner whose results are not explained by chance. p_value: corrected. sentence: what is odd."""

    worker: str
    p_value: float
    sentence: str


@dataclass(frozen=True)
class _Tally:
    """What some matches add up to. played, points: by pair, of those that count, and of the first of the pair. failed:
    how many were forfeited or void."""

    played: Counter[tuple[str, str]]
    points: defaultdict[tuple[str, str], float]
    failed: int
    count: int


def suspicions(matches: Sequence[RatedMatch]) -> list[Suspicion]:
    """Runners with at least 50 matches, when the others have as many, whose results differ; the surest first."""
    by_worker: defaultdict[str, list[RatedMatch]] = defaultdict(list)
    for match in matches:
        by_worker[match.worker].append(match)
    everybody = _tally(matches)
    found = []
    for worker, mine in sorted(by_worker.items()):
        if len(mine) < MIN_MATCHES or len(matches) - len(mine) < MIN_MATCHES:
            continue
        own = _tally(mine)
        tests = [*_score_tests(mine, own, everybody), _forfeit_test(own, everybody)]
        chi_square, what = max(tests)
        p_value = min(1.0, len(tests) * math.erfc(math.sqrt(chi_square / 2.0)))
        if p_value < SUSPECT_LEVEL:
            found.append(Suspicion(worker, p_value, f"{what} (chi-square {chi_square:.0f}, p {p_value:.0e})"))
    return sorted(found, key=lambda suspicion: suspicion.p_value)


def _tally(matches: Sequence[RatedMatch]) -> _Tally:
    played: Counter[tuple[str, str]] = Counter()
    points: defaultdict[tuple[str, str], float] = defaultdict(float)
    failed = 0
    for match in matches:
        failed += match.result in ("forfeit1", "forfeit2", "void")
        if (scored := match.points) is not None:
            played[match.pair] += 1
            points[match.pair] += scored
    return _Tally(played, points, failed, len(matches))


def _score_tests(mine: Sequence[RatedMatch], own: _Tally, everybody: _Tally) -> list[tuple[float, str]]:
    """Per player: (chi-square, what is odd)."""
    excess: defaultdict[str, float] = defaultdict(float)
    variance: defaultdict[str, float] = defaultdict(float)
    expected = {pair: _share(pair, own, everybody) for pair in own.played}
    for match in mine:
        pair, points = match.pair, match.points
        if points is None:
            continue
        share, known = expected[pair]
        # The matches of a mirrored pair may end alike, which doubles the variance; the prediction is unsure as well.
        spread = 2.0 * share * (1.0 - share) * (1.0 + own.played[pair] / known)
        for player, surplus in zip(pair, (points - share, share - points), strict=True):
            excess[player] += surplus
            variance[player] += spread
    return [
        (
            excess[player] ** 2 / variance[player],
            f"{player[:12]} scored {excess[player]:+.1f} points beyond expectation",
        )
        for player in sorted(excess)
    ]


def _share(pair: tuple[str, str], own: _Tally, everybody: _Tally) -> tuple[float, float]:
    """By the matches of the rest: (expected share of the first of a pair, number of matches that this rests on)."""
    known = everybody.played[pair] - own.played[pair] + _PRIOR_GAMES
    share = (everybody.points[pair] - own.points[pair] + 0.5 * _PRIOR_GAMES) / known
    return min(max(share, _SURE), 1.0 - _SURE), known


def _forfeit_test(own: _Tally, everybody: _Tally) -> tuple[float, str]:
    """Chi-square of the 2x2 table of matches that were played to the end and those that were not."""
    failed = np.array([own.failed, everybody.failed - own.failed])
    all_of = np.array([own.count, everybody.count - own.count])
    table = np.stack([failed, all_of - failed])
    table = table[table.any(axis=1)]
    expected = np.maximum(np.outer(table.sum(axis=1), all_of) / all_of.sum(), 1.0)
    chi_square = float((np.square(table - expected) / expected).sum())
    return chi_square, f"{own.failed} of {own.count} matches were forfeited or void"
