"""How strong everybody in a league is, from what each two have scored: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from palus.ratings.bradley_terry import fit_table

Cells = Mapping[tuple[int, int], tuple[float, int]]
"""(policy, opponent) -> points of the policy and matches; the lower id stands first."""
Name = TypeVar("Name", int, str)
"""What policies are called by: their ids within a run, names among several."""


class Strength(NamedTuple):
    """Points, 400 of them 10:1 odds, with a 95 % interval beside the others of the league."""

    mean: float
    low: float
    high: float


def kept(steps: Sequence[int], window: int, landmarks: int) -> list[int]:
    """Which snapshots of a learner stay: the newest `window`, and at most `landmarks` older ones, even over the run.

    steps: when each was taken, rising. Returns their indices. The time before the window is cut into parts of 2^k
    steps, with the smallest k that makes at most `landmarks`, and each part keeps its first snapshot. So the history
    spreads with the run instead of sliding, and what was once left out is never missed: parts only ever merge.
    """
    older = range(max(len(steps) - window, 0))
    if not (older and landmarks):
        return list(range(len(older), len(steps)))
    ages = [steps[k] - steps[0] for k in older]
    stride = 1
    while ages[-1] // stride >= landmarks:
        stride *= 2
    firsts = [k for k in older if k == 0 or ages[k] // stride > ages[k - 1] // stride]
    return [*firsts, *range(len(older), len(steps))]


def credited(
    cells: Mapping[tuple[Name, Name], tuple[float, int]], learner: Name, snapshot: Name
) -> dict[tuple[Name, Name], tuple[float, int]]:
    """The same matches, those of a learner as those of its new snapshot: from now on it will be another player."""
    found: dict[tuple[Name, Name], tuple[float, int]] = {}
    for (a, b), (points, matches) in cells.items():
        add(found, snapshot if a == learner else a, snapshot if b == learner else b, points, matches)
    return found


def add(cells: dict[tuple[Name, Name], tuple[float, int]], a: Name, b: Name, points: float, matches: int = 1) -> None:
    """Matches between two policies. points: of a, all together; a policy's matches against itself say nothing."""
    if a != b:
        pair, points = ((a, b), points) if a < b else ((b, a), matches - points)
        total, count = cells.get(pair, (0.0, 0))
        cells[pair] = total + points, count + matches


def scored(cells: Mapping[tuple[Name, Name], tuple[float, int]], a: Name, b: Name) -> tuple[float, int]:
    """Points of a against b, and their matches."""
    points, matches = cells.get((min(a, b), max(a, b)), (0.0, 0))
    return (points if a < b else matches - points), matches


def strengths(
    cells: Cells, field: Sequence[int], same: Mapping[int, int], before: Mapping[int, float], start: float
) -> dict[int, Strength]:
    """Bradley-Terry ratings of everybody in a field, all fitted together (`palus.ratings.bradley_terry`).

    same: learner -> its newest snapshot. Until the next one is taken the two are one player, so a learner is never
    without matches and its curve has no teeth; its matches of then become the next snapshot's (`credited`).
    before: ratings of the last fit. The scale goes on from there: those who were in both fits keep their mean (mean
    equating; Kolen and Brennan, Test Equating, Scaling, and Linking, 2014), whoever has left the field since. The first
    fit gives its lowest id `start` points.
    """
    players = sorted({same.get(policy, policy) for policy in field})
    index = {policy: k for k, policy in enumerate(players)}
    points, played = np.zeros((2, len(players), len(players)))
    for (a, b), (scored_by_a, matches) in cells.items():
        i, j = index.get(same.get(a, a)), index.get(same.get(b, b))
        if i is not None and j is not None and i != j:
            points[i, j] += scored_by_a
            played[i, j] += matches
    fit = fit_table(points, played)
    gaps = [before[policy] - fit.strength[k] for policy, k in index.items() if policy in before]
    shift = float(np.mean(gaps)) if gaps else start - float(fit.strength[0])
    means = (fit.strength + shift).tolist()
    rated = [Strength(m, m - half, m + half) for m, half in zip(means, fit.half_width.tolist(), strict=True)]
    return {policy: rated[index[same.get(policy, policy)]] for policy in field}
