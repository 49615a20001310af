"""The leaderboard as numbers: everybody's line, from a history, whatever the order of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.ratings.bradley_terry import DISPLAY_BASE, Fit, rank_ranges
from palus.ratings.games import Field, tally

PROVISIONAL_GAMES = 20
PROVISIONAL_HALF_WIDTH = 100.0


@dataclass(frozen=True)
class RatingLine:
    """One line.

    rank: by rating, 1 is the top. rank_best, rank_worst: what the results leave open (95 %); who shares both is not
    separated. rating: 1200 + strength, mean of all players 1200. half_width: of its 95 % interval, points.
    """

    name: str
    rank: int
    rank_best: int
    rank_worst: int
    rating: float
    half_width: float
    games: int
    wins: int
    draws: int
    losses: int

    @property
    def provisional(self) -> bool:
        """Whether the rating is too young to be taken seriously."""
        return is_provisional(self.games, self.half_width)


def is_provisional(games: int, half_width: float) -> bool:
    """Fewer than 20 games, or a 95 % interval wider than 100 points to each side."""
    return games < PROVISIONAL_GAMES or half_width > PROVISIONAL_HALF_WIDTH


def standings(field: Field, fit: Fit) -> tuple[RatingLine, ...]:
    """Everybody, best first; equal ratings by name. fit: `bradley_terry.fit(field.games, len(field))`."""
    ranges = rank_ranges(fit.strength, fit.covariance)
    half_width = fit.half_width
    best_first = np.argsort(-fit.strength, kind="stable")
    outcomes = tally(field.games, len(field))
    return tuple(
        RatingLine(
            name=field.names[i],
            rank=rank,
            rank_best=int(ranges[i, 0]),
            rank_worst=int(ranges[i, 1]),
            rating=DISPLAY_BASE + float(fit.strength[i]),
            half_width=float(half_width[i]),
            games=int(outcomes[i].sum()),
            wins=int(outcomes[i, 0]),
            draws=int(outcomes[i, 1]),
            losses=int(outcomes[i, 2]),
        )
        for rank, i in enumerate(best_first.tolist(), start=1)
    )
