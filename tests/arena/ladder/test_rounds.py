"""The reference competition's round."""

from __future__ import annotations

from collections import Counter

import numpy as np

from palus.arena.ladder.matchmaking import draw_round


def test_everybody_plays_once_and_an_odd_model_sits_out() -> None:
    queue = [(f"m{i}", 1200.0 + i) for i in range(7)]
    pairs = draw_round(queue, 3, np.random.default_rng(0))
    played = [name for pair in pairs for name in pair]
    assert len(pairs) == 3
    assert len(set(played)) == 6
    assert pairs[0][0] == "m0"


def test_the_first_of_the_queue_meets_one_of_its_n_nearest_with_equal_chance() -> None:
    queue = [("a", 1000.0), ("far", 2000.0), ("x", 1010.0), ("y", 990.0), ("z", 1030.0), ("w", 970.0)]
    draws = Counter(draw_round(queue, 3, np.random.default_rng(seed))[0][1] for seed in range(600))
    # z and w are equally near; the one that comes first in the queue is kept.
    assert set(draws) == {"x", "y", "z"}
    assert min(draws.values()) > 150


def test_two_meet_and_one_or_none_do_not() -> None:
    rng = np.random.default_rng(0)
    assert draw_round([("a", 1.0), ("b", 9.0)], 10, rng) == [("a", "b")]
    assert draw_round([("a", 1.0)], 10, rng) == draw_round([], 10, rng) == []
