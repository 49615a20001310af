"""Random numbers of the league, each a function of its key: which process casts a match changes nobody's opponent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

from palus.nn.distributions import uniform

T = TypeVar("T")
_COLUMN = 1 << 20
"""The first column of the key: behind all that actions are drawn with."""


class Draws:
    """A stream of numbers in [0, 1) for one match. slot: where it is played; begun: matches there before it.

    What is drawn for all matches at once has a slot below 0.
    """

    def __init__(self, seed: int, begun: int, slot: int) -> None:
        self._key, self._column = (seed, begun, slot), _COLUMN

    def __call__(self) -> float:
        """The next number."""
        self._column += 1
        return float(uniform(*self._key, self._column))

    def one_of(self, choices: Sequence[T], weights: Sequence[float] = ()) -> T:
        """One of them; takes no number where there is one alone. weights: theirs, () for all alike."""
        if len(choices) == 1:
            return choices[0]
        if not weights:
            return choices[int(self() * len(choices))]
        sums = list(accumulate(weights))
        return choices[min(bisect_right(sums, self() * sums[-1]), len(choices) - 1)]
