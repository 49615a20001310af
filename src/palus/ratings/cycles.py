"""Cycles a > b > c > a that the results really show, not those that chance draws into every table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.ratings.games import Units
from palus.types import F64

LEVEL = 0.05
LISTED = 50


@dataclass(frozen=True)
class Edge:
    """A pairing with a winner that chance does not explain.

    winner, loser: player indices. share: of the winner, over mirrored pairs. p_value: two-sided, corrected for the
    number of pairings looked at.
    """

    winner: int
    loser: int
    share: float
    p_value: float


@dataclass(frozen=True)
class Cycle:
    """Three players, each surely beating the next, the last the first. The lowest index stands first."""

    edges: tuple[Edge, Edge, Edge]

    @property
    def players(self) -> tuple[int, int, int]:
        """Indices in the order of beating."""
        first, second, third = self.edges
        return first.winner, second.winner, third.winner

    @property
    def strength(self) -> float:
        """Share of the weakest of the three winners."""
        return min(edge.share for edge in self.edges)


def sure_edges(units: Units) -> tuple[Edge, ...]:
    """Pairings whose winner is certain at the family-wise error level `LEVEL`, by (winner, loser).

    Sign test on mirrored pairs, so draws and games of a pair that go together do no harm: among the pairs that one of
    both won, each is a coin toss when they are equal. Holm's correction over all pairings that met.

    Source: Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    from scipy.special import bdtr  # slow to import, needed by few

    starts = units.starts
    if len(starts) == 0:
        return ()
    won = np.add.reduceat(np.where(units.share > 0.5, units.count, 0), starts)
    lost = np.add.reduceat(np.where(units.share < 0.5, units.count, 0), starts)
    share = np.add.reduceat(units.share * units.count, starts) / np.add.reduceat(units.count, starts)
    p_value = np.minimum(1.0, 2.0 * bdtr(np.minimum(won, lost).astype(np.float64), won + lost, 0.5))
    corrected = _holm(p_value)
    edges = []
    for k in np.flatnonzero(corrected < LEVEL).tolist():
        low, high, p = int(units.low[starts[k]]), int(units.high[starts[k]]), float(corrected[k])
        of_low = float(share[k])
        edges.append(Edge(low, high, of_low, p) if won[k] > lost[k] else Edge(high, low, 1.0 - of_low, p))
    return tuple(sorted(edges, key=lambda edge: (edge.winner, edge.loser)))


def cycles(units: Units) -> tuple[Cycle, ...]:
    """Three-cycles of sure edges, the clearest first (by their weakest edge), at most `LISTED`."""
    edges = {(edge.winner, edge.loser): edge for edge in sure_edges(units)}
    beaten: dict[int, set[int]] = {}
    for winner, loser in edges:
        beaten.setdefault(winner, set()).add(loser)
    found = [
        Cycle((edges[a, b], edges[b, c], edges[c, a]))
        for a, losers in beaten.items()
        for b in losers
        if b > a
        for c in beaten.get(b, ())
        if c > a and a in beaten.get(c, ())
    ]
    return tuple(sorted(found, key=lambda cycle: (-cycle.strength, cycle.players))[:LISTED])


def _holm(p_value: F64) -> F64:
    """Adjusted p-values."""
    order = np.argsort(p_value, kind="stable")
    steps = np.maximum.accumulate(p_value[order] * np.arange(len(p_value), 0, -1))
    adjusted = np.empty(len(p_value))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
