"""A rollout cut by its matches, one stratum for each thread of each rank, and minibatches that take their share of all.

What a thread computes then depends on the matches of its stratum alone: R ranks compute what one process with R threads
computes. A stratified minibatch is a sample like any other, with a little less variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from palus.learn.ranks import Ranks
from palus.nn.place import CACHED_ROWS
from palus.rollout.rollout import Rollout
from palus.types import I64


@dataclass(frozen=True)
class Strata:
    """Those of this rank. bounds: [s + 1], in columns of the rollout; first: the number of the first one among all
    `size` of the run."""

    bounds: I64
    first: int
    size: int

    @classmethod
    def of(cls, rollout: Rollout, threads: int, ranks: Ranks) -> Strata:
        """One for each thread, where the groups of a rollout divide evenly; else one, that threads share as they can.

        So no thread has less to do than the others. Ranks have as many matches each, and so as many strata.
        """
        columns, G = rollout.active.shape[1], rollout.group_size
        count = threads if rollout.side_by_side and columns and columns // G % threads == 0 else 1
        return cls(columns // count * np.arange(count + 1), ranks.rank * count, ranks.size * count)

    @property
    def count(self) -> int:
        """Of this rank."""
        return len(self.bounds) - 1

    def split(self, columns: I64, width: int = 1) -> list[I64]:
        """Where in an array the entries of each stratum stand. columns: theirs, in units of `width` columns."""
        if self.count == 1:
            return [np.arange(len(columns))]
        stratum = np.searchsorted(self.bounds, columns * width, "right") - 1
        return [np.flatnonzero(stratum == k) for k in range(self.count)]

    def pieces(self, columns: I64, width: int = 1) -> list[I64] | None:
        """The same in pieces that one pass without gradient takes; None of a single stratum: they are as they come."""
        if self.count == 1:
            return None
        rows = CACHED_ROWS // width
        return [own[k : k + rows] for own in self.split(columns, width) for k in range(0, len(own), rows)]

    def shuffled(self, items: Sequence[I64], generator: torch.Generator) -> list[I64]:
        """The items of each stratum in a random order. generator: that of all ranks; it moves on alike in all."""
        if self.size == 1:
            return [items[0][torch.randperm(len(items[0]), generator=generator).numpy()]]
        seed = int(torch.randint(2**62, (), generator=generator)) + self.first
        own = (torch.Generator().manual_seed(seed + k) for k in range(self.count))
        return [part[torch.randperm(len(part), generator=g).numpy()] for part, g in zip(items, own, strict=True)]

    def dealt(self, items: Sequence[I64], minibatches: int, share: tuple[int, int]) -> Iterator[list[I64]]:
        """Of every minibatch, the items of each stratum. share: what part of a stratum is in each, as a fraction.

        With n items in a stratum of S, minibatch k has those from floor(k share n + s / S): where there are as many in
        each, as many of all strata as of all of them together, give or take one (Hermite's identity). Where there are
        more minibatches than items, or strata differ, one may be empty.
        """
        part, whole = share
        ends = [
            [(k * part * len(own) * self.size + (self.first + s) * whole) // (whole * self.size)
             for k in range(minibatches + 1)]
            for s, own in enumerate(items)
        ]  # fmt: skip
        for k in range(minibatches):
            yield [own[at[k] : at[k + 1]] for own, at in zip(items, ends, strict=True)]
