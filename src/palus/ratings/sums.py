"""What all ratings but the online ones need of any number of games: how often two players' units ended how.

Sums are exact whole numbers, so games are added and taken away in any order and leave no other trace.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from palus.ratings.games import Cells, Units
from palus.types import I32, I64

NONE, WON, DRAWN, LOST = range(4)
"""How a game of a unit ended for the player of the lower index; NONE: it has no such game."""
_MIRROR = [NONE, LOST, DRAWN, WON]
_GAMES = np.array([0, 1, 1, 1])
_POINTS = np.array([0.0, 1.0, 0.5, 0.0])


@dataclass(frozen=True)
class Sums:
    """names: [N] sorted. low, high: [P] player indices, low < high, sorted by both; each pairing that met once.

    counts: [P, 4, 4] units by how `low` fared with the first side, and with the second.
    """

    names: tuple[str, ...]
    low: I64
    high: I64
    counts: I32

    def __len__(self) -> int:
        return len(self.names)

    @property
    def games(self) -> int:
        """How many were added."""
        return int((self.counts.sum(axis=0, dtype=np.int64) * (_GAMES[:, None] + _GAMES)).sum())

    def cells(self) -> Cells:
        """Games added up per ordered pairing."""
        as_first, as_second = self._sides()
        first = np.concatenate([self.low, self.high])
        second = np.concatenate([self.high, self.low])
        outcomes = np.concatenate([as_first, as_second[:, _MIRROR]])
        met = np.flatnonzero(outcomes[:, WON:].sum(axis=1))
        order = met[np.lexsort((second[met], first[met]))]
        played = outcomes[order, WON:].sum(axis=1).astype(np.float64)
        return Cells(first[order], second[order], played, outcomes[order] @ _POINTS)

    def units(self) -> Units:
        """Mirrored pairs, those that are alike in one row."""
        games = (_GAMES[:, None] + _GAMES).reshape(16)
        points = (_POINTS[:, None] + _POINTS).reshape(16)
        kinds, of = np.unique(np.stack([points / np.maximum(games, 1), games]), axis=1, return_inverse=True)
        member = np.zeros((16, kinds.shape[1]), np.int64)
        member[np.arange(1, 16), of.reshape(-1)[1:]] = 1  # without the unit of no game
        counts = self.counts.reshape(-1, 16) @ member
        pair, kind = np.nonzero(counts)  # sorted by pairing, then by share and games
        share, played = kinds[0][kind], kinds[1][kind].astype(np.int64)
        return Units(self.low[pair], self.high[pair], share, played, counts[pair, kind])

    def outcomes(self) -> I64:
        """[N, 3] games won, drawn and lost by each player."""
        as_first, as_second = self._sides()
        of_low = (as_first + as_second)[:, WON:]
        found = np.zeros((len(self), 3), np.int64)
        for i in range(3):
            found[:, i] += np.bincount(self.low, of_low[:, i], len(self)).astype(np.int64)
            found[:, i] += np.bincount(self.high, of_low[:, 2 - i], len(self)).astype(np.int64)
        return found

    def among(self, kept: Collection[str]) -> Sums:
        """The games of these players against each other."""
        names = tuple(name for name in self.names if name in kept)
        number = np.full(len(self), -1, np.int64)
        number[[i for i, name in enumerate(self.names) if name in kept]] = np.arange(len(names))
        inside = (number[self.low] >= 0) & (number[self.high] >= 0)
        return Sums(names, number[self.low[inside]], number[self.high[inside]], self.counts[inside])

    def _sides(self) -> tuple[I64, I64]:
        """[P, 4] games of `low` with the first side, and with the second, by how they ended."""
        return self.counts.sum(axis=2, dtype=np.int64), self.counts.sum(axis=1, dtype=np.int64)


def sums_of(names: Collection[str], low: I64, high: I64, counts: I32) -> Sums:
    """Sums of players in any order, `low` and `high` being any two of them. counts: as in `Sums`, of `low`."""
    sorted_names = tuple(sorted(names))
    place = {name: i for i, name in enumerate(sorted_names)}
    number = np.array([place[name] for name in names], np.int64)
    a, b = number[low], number[high]
    swapped = counts[:, :, _MIRROR][:, _MIRROR].transpose(0, 2, 1)
    counts = np.where((a > b)[:, None, None], swapped, counts)
    a, b = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((b, a))
    return Sums(sorted_names, a[order], b[order], counts[order])


def outcome(first: int, second: int, points: float) -> tuple[int, int, int, int]:
    """A game in terms of `Sums`: low, high, whether `low` had the second side, how it ended for `low`. points: of
    `first`."""
    ended = WON if points == 1.0 else LOST if points == 0.0 else DRAWN
    return (first, second, 0, ended) if first < second else (second, first, 1, _MIRROR[ended])
