"""Finished games: as a history, which online ratings replay, and as arrays, which everything else reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from palus.types import F64, I64


class Played(NamedTuple):
    """A rated game.

    order: what sorts the history: the number in the log, or of the round where rounds are rated as a whole.
    id: unique. unit: the mirrored pair that the game belongs to.
    first, second: who played; `first` had the first side (blue). points: of `first`, 1 won, 0.5 drawn, 0 lost.
    """

    order: int
    id: str
    unit: str
    first: str
    second: str
    points: float


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
class Cells:
    """Games added up per ordered pairing, only those that met; sorted by (first, second).

    first, second: [C] player indices, the first one on the first side. played: [C] games. points: [C] of the first
    player.
    """

    first: I64
    second: I64
    played: F64
    points: F64

    @cached_property
    def pairings(self) -> tuple[I64, I64]:
        """The number of each cell's pairing, whoever came first, and [P] min N' + max of each, N' being one more than
        the last player."""
        n = int(max(self.first.max(initial=-1), self.second.max(initial=-1))) + 1
        keys, of = np.unique(
            np.minimum(self.first, self.second) * n + np.maximum(self.first, self.second), return_inverse=True
        )
        return of.reshape(-1), np.stack(np.divmod(keys, max(n, 1)))

    @cached_property
    def rows(self) -> tuple[I64, I64, I64]:
        """Who met whom as a symmetric matrix, row by row: row, column and pairing of each entry."""
        low, high = self.pairings[1]
        rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((columns, rows))
        return rows[order], columns[order], order % max(len(low), 1)


@dataclass(frozen=True)
class Units:
    """Mirrored pairs, sorted by (low, high, share, games); those that are alike may stand in one row.

    low, high: [U] player indices, low < high. share: [U] of the points that `low` took in the unit, in [0, 1].
    games: [U] of the unit. count: [U] how many such units there were.
    """

    low: I64
    high: I64
    share: F64
    games: I64
    count: I64

    @property
    def starts(self) -> I64:
        """Index of the first unit of every pairing."""
        changes = (np.diff(self.low) != 0) | (np.diff(self.high) != 0)
        return np.flatnonzero(np.concatenate([np.ones(min(1, len(self.low)), np.bool_), changes]))


def add_up(games: Games, num_players: int) -> Cells:
    """Sufficient statistics of the joint fits.

    Points are multiples of one half, so the sums are exact and the order of the games leaves no trace in them.
    """
    keys, cell = np.unique(games.first * num_players + games.second, return_inverse=True)
    return Cells(
        first=keys // max(num_players, 1),
        second=keys % max(num_players, 1),
        played=np.bincount(cell, minlength=len(keys)).astype(np.float64),
        points=np.bincount(cell, games.points, len(keys)).astype(np.float64),
    )


def units_of(games: Games) -> Units:
    """One row per mirrored pair. Units are recognised by number and players, so that a number used twice by mistake
    never mixes two pairings."""
    low = np.minimum(games.first, games.second)
    high = np.maximum(games.first, games.second)
    points_of_low = np.where(games.first == low, games.points, 1.0 - games.points)
    order = np.lexsort((games.unit, high, low))
    low, high, unit, points = low[order], high[order], games.unit[order], points_of_low[order]
    changes = (np.diff(low) != 0) | (np.diff(high) != 0) | (np.diff(unit) != 0)
    number = np.concatenate([np.zeros(min(1, len(low)), np.int64), np.cumsum(changes)])
    played = np.bincount(number)
    share = np.bincount(number, points) / np.maximum(played, 1)
    first_game = np.flatnonzero(np.concatenate([np.ones(min(1, len(low)), np.bool_), changes]))
    low, high = low[first_game], high[first_game]
    canonical = np.lexsort((played, share, high, low))
    ones = np.ones(len(canonical), np.int64)
    return Units(low[canonical], high[canonical], share[canonical], played[canonical], ones)
