"""One finished game as the rating systems read it, and the one order in which online ones replay it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Played(NamedTuple):
    """A rated game.

    order: what sorts the history: the number in the log, or of the round where rounds are rated as a whole.
    id: unique, decides among games of the same order. unit: the mirrored pair that the game belongs to.
    first, second: who played; `first` had the first side (blue). points: of `first`, 1 won, 0.5 drawn, 0 lost.
    """

    order: int
    id: str
    unit: str
    first: str
    second: str
    points: float


def in_order(history: Iterable[Played]) -> list[Played]:
    """The history by (order, id): what is replayed does not depend on how the rows were fetched.

    Games of a player against itself say nothing about strength and are left out.
    """
    return sorted((game for game in history if game.first != game.second), key=lambda game: (game.order, game.id))
