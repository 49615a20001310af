"""Reward terms and measurements against hand values."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs.doom.multiplayer import standing
from palus.envs.doom.observations import Measurements
from palus.envs.doom.rewards import BOTS, DUELS, Shaping, gathering_reward, holding_reward, square, tunable

NAMES = ("SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "DEAD", "HEALTH", "FRAGCOUNT", "DAMAGECOUNT")


def test_squares_are_128_units_wide_on_both_sides_of_zero():
    places = [(1, 1), (127, 127), (128, 1), (-1, 1), (-129, 1), (-1, -1)]
    assert [square(x, y) for x, y in places] == [(0, 0), (0, 0), (1, 0), (-1, 0), (-2, 0), (-1, -1)]


def test_any_rise_of_health_is_a_pickup():
    assert [gathering_reward(50, after) for after in (49, 50, 51, 100)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("scheme", "name", "before", "after", "reward"),
    [
        (BOTS, "FRAGCOUNT", 1, 3, 2.0),
        (BOTS, "FRAGCOUNT", 1, 0, -1.5),
        (BOTS, "DEATHCOUNT", 0, 1, -0.75),
        (BOTS, "HITCOUNT", 0, 9, 0.05),  # capped at 5
        (BOTS, "DAMAGECOUNT", 0, 1000, 0.6),  # capped at 200
        (BOTS, "HEALTH", 100, 60, -0.12),
        (BOTS, "ARMOR", 0, 100, 0.5),
        (BOTS, "WEAPON3", 0, 1, 0.1),
        (BOTS, "WEAPON7", 1, 0, -0.1),
        (BOTS, "AMMO5", 10, 20, 0.01),
        (BOTS, "AMMO2", 20, 10, -0.001),
        (BOTS, "POSITION_X", 0, 500, 0.0),
        (DUELS, "FRAGCOUNT", 1, 0, -0.001),
        (DUELS, "DEATHCOUNT", 0, 1, -1.0),
        (DUELS, "HITCOUNT", 0, 3, 0.0),
        (DUELS, "DAMAGECOUNT", 0, 30, 0.3),
        (DUELS, "HEALTH", 100, 60, -0.4),
        (DUELS, "HEALTH", 100, -999900, -2.0),  # map scripts kill by a million
        (DUELS, "WEAPON6", 0, 1, 0.2),
    ],
)
def test_changes_earn_what_the_scheme_says(scheme, name, before, after, reward):
    shaping = Shaping(scheme, (name,))
    assert [shaping.step(np.array([value], float)) for value in (before, after)] == [0.0, pytest.approx(reward)]


@pytest.mark.parametrize(
    ("slot", "ammunition", "steps", "reward"),
    [(2, 50, 4, 0), (2, 50, 5, 0.0002), (5, 1, 9, 0.001), (7, 40, 5, 0.002), (7, 0, 5, 0), (9, 5, 5, 0)],
)
def test_holding_a_loaded_weapon_earns_by_its_preference(slot, ammunition, steps, reward):
    assert holding_reward(slot, ammunition, steps) == pytest.approx(reward)


def test_the_first_step_and_the_respawn_are_not_shaped_but_the_death_is():
    shaping = Shaping(BOTS, NAMES)
    shaping.begin()
    steps = [  # weapon, ammunition, dead, health, frags, damage
        ([2, 50, 0, 40, 0, 0], 0.0),
        ([2, 50, 0, 60, 0, 0], 0.1),
        ([2, 50, 1, 0, 0, 0], -0.18),
        ([2, 50, 1, 0, 1, 0], 1.0),  # a rocket that was still in flight
        ([2, 50, 0, 100, 1, 0], 0.0),
        ([2, 50, 0, 100, 1, 10], 0.03),
    ]
    for values, reward in steps:
        assert shaping.step(np.array(values, float)) == pytest.approx(reward)
    shaping.begin()
    assert shaping.step(np.array([2, 50, 0, 1, 0, 0], float)) == 0


def test_numbers_that_somebody_changes_count_from_the_next_step_on():
    numbers = np.array([number for _, number in tunable({"HEALTH": (0.1, -0.2), "ARMOR": (1, 1)}, NAMES)])
    assert numbers.tolist() == [0.1, -0.2]  # nobody reads the armour
    shaping = Shaping({"HEALTH": (0.1, -0.2), "ARMOR": (1, 1)}, NAMES, numbers)
    shaping.begin()
    assert [shaping.step(np.array([2, 50, 0, health, 0, 0], float)) for health in (40, 50)] == pytest.approx([0, 1.0])
    numbers[:] = 0.5, -1.0
    assert [shaping.step(np.array([2, 50, 0, health, 0, 0], float)) for health in (52, 51)] == pytest.approx([1, -1.0])


def test_holding_counts_from_the_change_of_weapon():
    shaping = Shaping(BOTS, NAMES)
    shaping.begin()
    weapons = [3, 3, 3, 3, 3, 3, 3, 5, 5]
    rewards = [shaping.step(np.array([weapon, 9, 0, 100, 0, 0], float)) for weapon in weapons]
    assert rewards == pytest.approx([0, 0, 0, 0, 0, 0.001, 0.001, 0, 0])


def test_measurements_are_scaled_and_limited():
    names = ("HEALTH", "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "USER2", "AMMO3", "WEAPON7", "PLAYER_COUNT", "ARMOR")
    out = np.full(23, np.nan, np.float32)
    Measurements(names).write(np.array([60.0, 3, 200, 5, 30, 1, 8, 15]), out)
    expected = np.zeros(23)
    expected[[0, 1, 2, 3, 4, 6, 14, 18]] = [3, 5, 2, 0.5, 0.5, 1.6, 1, 2]
    assert out == pytest.approx(expected)


def test_missing_measurements_are_zero_and_health_never_negative():
    out = np.full(23, np.nan, np.float32)
    Measurements(("HEALTH", "SELECTED_WEAPON")).write(np.array([-20.0, -1]), out)
    expected = np.zeros(23)
    expected[6] = 0.2  # one player, as nobody counts them
    assert out == pytest.approx(expected)


@pytest.mark.parametrize(
    ("player", "frags", "place", "gap", "won"),
    [(0, [5, 3], 1, -2, True), (1, [5, 3], 2, 2, False), (0, [4, 4, 1], 1, 0, False), (2, [4, 4, 1], 3, 3, False)],
)
def test_only_a_sole_leader_has_won(player, frags, place, gap, won):
    result = standing(player, frags, deaths=1, objective="won")
    assert (result["final_place"], result["leader_gap"], result["true_objective"]) == (place, gap, won)
    assert standing(player, frags, deaths=1, objective="frags")["true_objective"] == frags[player]
