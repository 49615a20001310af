"""Whether the matches tie the field together: strengths of groups that hardly met cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.ratings.games import Units
from palus.types import F32, I64

ENOUGH_PAIRS = 10
"""Mirrored pairs between a group and all others from which their strengths can be compared."""


@dataclass(frozen=True)
class LooseGroup:
    """Two or more players who hang on the rest of the field by few pairs. players: indices, ascending. pairs: between
    them and everybody else; 0 where nobody met."""

    players: tuple[int, ...]
    pairs: int


def loose_groups(units: Units, num_players: int) -> tuple[LooseGroup, ...]:
    """Groups that fewer than `ENOUGH_PAIRS` connect with the others, all but the largest; by their first player.

    How such groups stand to each other is said by the prior more than by results: intervals that look narrow were seen
    to hold the truth one time in ten. A single player with few pairs is no group: its rating is provisional.
    """
    met: F32 = np.zeros((num_players, num_players), np.float32)  # whole numbers: exact
    np.add.at(met, (units.low, units.high), units.count)
    met = met + met.T
    waiting, parts = [np.arange(num_players)], list[list[int]]()
    while waiting:
        players = waiting.pop()
        torn = _torn(met[np.ix_(players, players)])
        if len(torn) > 1:
            waiting += [players[sorted(side)] for side in torn]
        elif len(players) > 1:
            parts.append(players.tolist())
    parts.sort()
    largest = max(parts, key=len, default=None)
    return tuple(
        LooseGroup(tuple(part), int(met[part].sum() - met[np.ix_(part, part)].sum()))
        for part in parts
        if part is not largest
    )


def separate_groups(units: Units, num_players: int) -> tuple[LooseGroup, ...]:
    """Of `loose_groups` those that never met anybody else: what can be told of many thousands of players in no time."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    met = coo_array((np.ones(len(units.low)), (units.low, units.high)), shape=(num_players, num_players))
    _, part_of = connected_components(met, directed=False)
    sizes = np.bincount(part_of)
    largest = int(np.argmax(sizes)) if len(sizes) else 0
    parts = [np.flatnonzero(part_of == part) for part in np.flatnonzero(sizes > 1) if part != largest]
    return tuple(sorted((LooseGroup(tuple(part.tolist()), 0) for part in parts), key=lambda group: group.players))


def _torn(ties: F32) -> list[list[int]]:
    """Players, each list apart from all others by a cut of too few pairs; one list where there is no such cut.

    Source: Nagamochi and Ibaraki, Computing edge-connectivity in multigraphs and capacitated graphs, 1992: in an
    ordering that always takes next whoever is tied most to those taken, ties of enough pairs show two that no
    smaller cut separates. Such two are joined, until somebody hangs on too few, or all are one.
    """
    groups = [[i] for i in range(len(ties))]
    while len(groups) > 1:
        loose = ties.sum(axis=1) < ENOUGH_PAIRS
        if loose.any():
            rest = [i for group, apart in zip(groups, loose, strict=True) if not apart for i in group]
            return [*(group for group, apart in zip(groups, loose, strict=True) if apart), *([rest] if rest else [])]
        label = _joined(ties)
        member = np.zeros((int(label.max()) + 1, len(groups)), np.float32)
        member[label, np.arange(len(groups))] = 1.0
        ties = (member @ ties @ member.T).astype(np.float32)
        np.fill_diagonal(ties, 0.0)
        groups = [[i for k in np.flatnonzero(row) for i in groups[k]] for row in member]
    return groups


def _joined(ties: F32) -> I64:
    """A number for each group, equal where no cut of too few pairs separates two. Who is taken last is joined at least,
    unless it hangs on too few itself."""
    n = len(ties)
    label = np.arange(n)
    left, tied = np.ones(n, np.bool_), np.zeros(n)
    for _ in range(n):
        last = int(np.argmax(np.where(left, tied, -1.0)))
        left[last] = False
        tied = tied + ties[last]
        sure = left & (ties[last] > 0.0) & (tied >= ENOUGH_PAIRS)
        if sure.any():
            label[np.isin(label, label[sure])] = label[last]
    return np.unique(label, return_inverse=True)[1]
