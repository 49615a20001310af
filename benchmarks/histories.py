"""Whole histories of games at once, as arrays and added up, for recipes and tests: an arena adds its games up as they
come in (`palus.arena.ladder.intake`), and asks for the information of the pairings that it may make alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from palus.ratings.games import Games, Played
from palus.ratings.pairing import gain_of
from palus.ratings.sums import NONE, Sums, outcome, sums_of
from palus.types import F64


@dataclass(frozen=True)
class Field:
    """Who played, and what. names: [N] sorted; index i of `games` is names[i]."""

    names: tuple[str, ...]
    games: Games

    def __len__(self) -> int:
        return len(self.names)


def variance_of_gaps(covariance: F64) -> F64:
    """[N, N] variance of every difference t_i - t_j, points squared; never negative."""
    variance = np.diag(covariance)
    return np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 0.0)


def arrange(history: Iterable[Played]) -> Field:
    """A history as arrays, in one order whatever order the rows come in: names sorted, games by (unit, id).

    Games of a player against itself say nothing about strength and are left out.
    """
    rows = sorted((g.unit, g.id, g.first, g.second, g.points) for g in history if g.first != g.second)
    names = tuple(sorted({row[2] for row in rows} | {row[3] for row in rows}))
    index = {name: i for i, name in enumerate(names)}
    count = len(rows)
    units: dict[str, int] = {}
    return Field(
        names,
        Games(
            first=np.fromiter((index[row[2]] for row in rows), np.int64, count),
            second=np.fromiter((index[row[3]] for row in rows), np.int64, count),
            points=np.fromiter((row[4] for row in rows), np.float64, count),
            unit=np.fromiter((units.setdefault(row[0], len(units)) for row in rows), np.int64, count),
        ),
    )


def add_history(history: Iterable[Played]) -> Sums:
    """Games of a history, without those of a player against itself.

    A unit has one game for each side of a player; whatever more stands under its name is a unit of its own.
    """
    names: dict[str, int] = {}
    seen: dict[tuple[str, int, int], list[int]] = {}
    more = []
    for game in sorted(history, key=lambda game: (game.unit, game.id)):
        if game.first == game.second:
            continue
        first, second = (names.setdefault(name, len(names)) for name in (game.first, game.second))
        low, high, leg, ended = outcome(first, second, game.points)
        unit = seen.setdefault((game.unit, low, high), [NONE, NONE])
        if unit[leg] == NONE:
            unit[leg] = ended
        else:
            more.append((low, high, (ended, NONE) if leg == 0 else (NONE, ended)))
    rows = [(low, high, *unit) for (_, low, high), unit in seen.items()]
    rows += [(low, high, *unit) for low, high, unit in more]
    table = np.array(rows, np.int64).reshape(-1, 4)
    pairs, of = np.unique(table[:, :2], axis=0, return_inverse=True)
    counts = np.zeros((len(pairs), 4, 4), np.int32)
    np.add.at(counts, (of.reshape(-1), table[:, 2], table[:, 3]), 1)
    return sums_of(tuple(names), pairs[:, 0], pairs[:, 1], counts)


def information_gain(strength: F64, covariance: F64, *, games: int = 2) -> F64:
    """`gain_of` every pairing: [N, N], diagonal 0. strength: [N] points. covariance: [N, N] (`bradley_terry.Fit`)."""
    # The sign of the gap does not matter; without it both halves of the matrix are the same bits.
    return gain_of(np.abs(strength[:, None] - strength[None, :]), variance_of_gaps(covariance), games=games)
