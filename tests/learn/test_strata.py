"""Who learns from which columns, and that ranks deal and shuffle what as many threads of one process do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from palus.learn.ranks import Ranks
from palus.learn.strata import Strata

TWO = Strata(np.array([0, 4, 8]), 0, 2)
RANKS = [Strata(np.array([0, 4]), rank, 2) for rank in (0, 1)]


def test_matches_are_cut_between_groups_into_as_many_columns_each_or_not_at_all() -> None:
    def cut(threads: int, side_by_side: bool = True) -> tuple[list[int], int, int]:
        """Three groups of two columns, on the second of two ranks: bounds, first and size."""
        rollout: Any = SimpleNamespace(active=np.ones((8, 6), np.bool_), group_size=2, side_by_side=side_by_side)
        found = Strata.of(rollout, threads, Ranks(1, 2))
        return found.bounds.tolist(), found.first, found.size

    assert cut(3) == ([0, 2, 4, 6], 3, 6)
    assert cut(2) == cut(3, side_by_side=False) == ([0, 6], 1, 2)


@pytest.mark.parametrize(("columns", "width"), [([4, 0, 7, 3, 5], 1), ([2, 0, 3, 1, 2], 2)])
def test_entries_belong_to_the_stratum_of_their_column(columns: list[int], width: int) -> None:
    assert [own.tolist() for own in TWO.split(np.array(columns), width)] == [[1, 3], [0, 2, 4]]


def test_a_piece_has_as_many_rows_as_stay_in_the_cache() -> None:
    """An entry of two columns is two rows, of 2048."""
    pieces = TWO.pieces(np.arange(3000) % 4, 2)
    assert pieces is not None and [len(piece) for piece in pieces] == [1024, 476] * 2
    assert [piece[:2].tolist() for piece in pieces] == [[0, 1], [2048, 2049], [2, 3], [2050, 2051]]


def test_minibatches_have_as_many_of_all_strata_as_their_share_and_ranks_deal_alike() -> None:
    """Halves of three and three items: one and two, then two and one."""
    items = [np.arange(3), np.arange(3, 6)]
    dealt = [[own.tolist() for own in strata] for strata in TWO.dealt(items, 2, (1, 2))]
    assert dealt == [[[0], [3, 4]], [[1, 2], [5]]]
    assert dealt[0][0] + dealt[1][0] == [0, 1, 2], "all of them"
    for rank, own in zip(RANKS, items, strict=True):
        told = [[part.tolist() for part in strata] for strata in rank.dealt([own], 2, (1, 2))]
        assert told == [[one[rank.first]] for one in dealt]


def test_strata_are_shuffled_apart_and_by_ranks_as_by_threads() -> None:
    items, generators = [np.arange(20), np.arange(20)], [torch.Generator().manual_seed(5) for _ in range(3)]
    first, second = (own.tolist() for own in TWO.shuffled(items, generators[0]))
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert [rank.shuffled([items[0]], generators[1 + rank.first])[0].tolist() for rank in RANKS] == [first, second]
    assert len({float(torch.rand((), generator=generator)) for generator in generators}) == 1, "they move on alike"
