"""Groups that hang together by few pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from palus.ratings.connections import LooseGroup, loose_groups, separate_groups
from palus.ratings.games import Games, Units, units_of


def field(pairs: dict[tuple[int, int], int]) -> Units:
    """pairs: how many mirrored pairs two players have played."""
    rows = [(i, j) for (i, j), count in pairs.items() for _ in range(count)]
    first = np.array([row[0] for row in rows] + [row[1] for row in rows], np.int64)
    second = np.array([row[1] for row in rows] + [row[0] for row in rows], np.int64)
    unit = np.tile(np.arange(len(rows)), 2)
    return units_of(Games(first, second, np.full(len(first), 0.5), unit))


def everybody(players: range, pairs: int) -> dict[tuple[int, int], int]:
    return dict.fromkeys(combinations(players, 2), pairs)


@pytest.mark.parametrize("bridge", [0, 3, 9])
def test_two_groups_with_few_pairs_between_them_are_found(bridge: int) -> None:
    pairs = everybody(range(5), 6) | everybody(range(5, 9), 6)
    if bridge:
        pairs[2, 7] = bridge
    assert loose_groups(field(pairs), 9) == (LooseGroup((5, 6, 7, 8), bridge),)


def test_ten_pairs_tie_two_groups_together_wherever_they_were_played() -> None:
    pairs = everybody(range(5), 6) | everybody(range(5, 9), 6)
    assert loose_groups(field(pairs | {(2, 7): 10}), 9) == ()
    assert loose_groups(field(pairs | {(0, 5): 4, (1, 6): 3, (2, 7): 3}), 9) == ()


def test_newcomers_are_no_group() -> None:
    assert loose_groups(field(everybody(range(5), 6) | {(0, 5): 3, (1, 6): 1}), 7) == ()
    assert loose_groups(field({}), 0) == loose_groups(field({}), 3) == ()
    assert loose_groups(field({(0, 1): 2}), 2) == ()


def test_two_random_camps_are_apart_exactly_while_few_pairs_link_them() -> None:
    rng = np.random.default_rng(0)
    for bridge in [*range(20)] * 3:
        order = rng.permutation(11).tolist()
        camps = order[:6], order[6:]
        pairs = {(i, j): int(rng.integers(3, 8)) for camp in camps for i, j in combinations(camp, 2)}
        for _ in range(bridge):
            link = (int(rng.choice(camps[0])), int(rng.choice(camps[1])))
            pairs[link] = pairs.get(link, 0) + 1
        expected = () if bridge >= 10 else (LooseGroup(tuple(sorted(camps[1])), bridge),)
        assert loose_groups(field(pairs), 11) == expected


def parts_of(players: tuple[int, ...], pairs: dict[tuple[int, int], int]) -> list[tuple[int, ...]]:
    """By trying every cut: players are torn apart for as long as fewer than ten pairs cross one."""
    first, *others = players
    for size in range(len(others)):
        for left in combinations(others, size):
            near = {first, *left}
            if (
                sum(count for (i, j), count in pairs.items() if {i, j} <= {*players} and (i in near) != (j in near))
                < 10
            ):
                far = tuple(player for player in players if player not in near)
                return parts_of(tuple(sorted(near)), pairs) + parts_of(far, pairs)
    return [players]


def test_groups_are_those_that_no_cut_of_few_pairs_tears_apart() -> None:
    rng, several = np.random.default_rng(0), 0
    for trial in range(80):
        camp = rng.integers(0, 2 + trial % 2, 9)
        linked = [(i, j) for i, j in combinations(range(9), 2) if rng.random() < (0.9 if camp[i] == camp[j] else 0.15)]
        pairs = {link: int(rng.integers(1, 10)) for link in linked}
        parts = sorted(part for part in parts_of(tuple(range(9)), pairs) if len(part) > 1)
        largest = max(parts, key=len, default=None)
        assert [group.players for group in loose_groups(field(pairs), 9)] == [p for p in parts if p is not largest]
        several += len(parts) > 1
    assert several >= 5


def test_groups_without_any_match_between_them_are_found_among_many_too() -> None:
    pairs = everybody(range(5), 6) | everybody(range(5, 9), 1)
    assert separate_groups(field(pairs), 10) == (LooseGroup((5, 6, 7, 8), 0),), "one who played nobody is no group"
    assert separate_groups(field(pairs | {(2, 7): 1}), 10) == ()
    assert separate_groups(field({}), 0) == ()
