"""Decisions in stretches that a memory can run over: what minibatches are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palus.types import I64, Bool


@dataclass(frozen=True)
class Sequences:
    """A rollout cut into stretches of `length` decisions of one column: what minibatches are made of.

    usable: [T, columns]. Stretches are numbered k columns + column; the last of a column may be shorter, and its
    missing decisions do not count. Without memory a stretch is one decision, numbered t columns + column.
    """

    usable: Bool
    length: int

    @property
    def numbers(self) -> I64:
        """Of the stretches with something to learn from."""
        T, columns = self.usable.shape
        whole = np.zeros((-(-T // self.length) * self.length, columns), np.bool_)
        whole[:T] = self.usable
        return np.flatnonzero(whole.reshape(-1, self.length, columns).any(1))

    def decisions(self, numbers: I64) -> tuple[I64, Bool]:
        """The decisions t columns + column of some stretches, [length, n], and whether they count."""
        T, columns = self.usable.shape
        k, column = np.divmod(numbers, columns)
        t = k * self.length + np.arange(self.length)[:, None]
        index: I64 = np.minimum(t, T - 1) * columns + column
        counts: Bool = self.usable.ravel()[index] & (t < T)
        return index, counts
