"""A few cells of the coverage benchmark with few seasons: what a single prior and a single dispersion get wrong."""

from __future__ import annotations

import numpy as np
import pytest

import rating_coverage
from palus.ratings import bradley_terry
from palus.ratings.bradley_terry import win_probability
from palus.ratings.games import Games

FIELDS = {
    "wide": rating_coverage.Cell(30, "random", "none", sd=450.0, pairs=15, seasons=60),
    "wide, the strong draw less": rating_coverage.Cell(30, "random", "falling", sd=450.0, pairs=15, seasons=60),
    "legs alike, chosen by information": rating_coverage.Cell(30, "arena", together=0.5, pairs=15, seasons=40),
}


@pytest.mark.parametrize(
    "name", [name if name == "wide" else pytest.param(name, marks=pytest.mark.slow) for name in FIELDS]
)
def test_intervals_hold_in_fields_that_differ_from_the_expected_one(name: str) -> None:
    # With a prior of 350 points and one dispersion: 0.87, 0.84 and 0.90 of all; 0.72, 0.62 and 0.74 of the leaders.
    found = rating_coverage.measure(FIELDS[name], seed=3)
    assert 0.92 <= found.players <= 0.98
    assert found.leader >= 0.85


@pytest.mark.slow
def test_the_leader_is_not_flattered() -> None:
    # With a prior that is wider than the field the first of the board stands 70 to 80 points too high.
    found = rating_coverage.measure(rating_coverage.Cell(30, "arena", pairs=15, seasons=60), seed=4)
    assert abs(found.leader_bias) < 50
    assert found.leader >= 0.88


def test_opponents_of_equal_strength_do_not_fold_the_field() -> None:
    # Somebody who knew the strengths let each play its neighbours, and one in ten anybody. The results between
    # neighbours are even whatever the spread of the field; a prior fitted to them alone would be 80 points wide.
    rng = np.random.default_rng(1)
    strength = np.sort(rng.normal(0.0, 200.0, 60))
    first = rng.integers(0, 60, 900)
    second = np.clip(first + rng.integers(1, 5, 900) * rng.choice([-1, 1], 900), 0, 59)
    second = np.where((rng.random(900) < 0.1) | (second == first), (first + rng.integers(1, 60, 900)) % 60, second)
    won = rng.random((2, 900)) < win_probability(strength[first] - strength[second])
    unit = np.arange(900)
    games = Games(
        np.concatenate([first, second]),
        np.concatenate([second, first]),
        np.concatenate([won[0], 1.0 - won[1]]),
        np.concatenate([unit, unit]),
    )
    fit = bradley_terry.fit(games, 60)
    truth = strength - strength.mean()
    assert np.mean(np.abs(fit.strength - truth) <= fit.half_width) > 0.85
    assert np.corrcoef(fit.strength, truth)[0, 1] > 0.9
