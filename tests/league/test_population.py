"""Populations: who takes over from whom, what mutates and what does not; who plays in which game."""

from __future__ import annotations

import pytest
from sampled import appo_behavior

from palus.config.population import Population
from palus.league.population import PopulationLeague, numbers_of, shaping_of, with_numbers

BEHAVIOR = appo_behavior()
ALWAYS = {"size": 4, "mutation_rate": 1.0, "start": 100, "period": 50, "replace_fraction": 0.25}


def league(seed: int = 0, **settings) -> PopulationLeague:
    return PopulationLeague(Population(**{**ALWAYS, **settings}), BEHAVIOR, seed)


def test_all_but_the_first_policy_start_with_mutated_numbers() -> None:
    numbers = league().numbers
    assert numbers[0] == numbers_of(BEHAVIOR, False)
    for own in numbers[1:]:
        factors = {name: own[name] / numbers[0][name] for name in own}
        assert all(1.1 <= max(f, 1 / f) <= 1.5 or f == 1.0 for f in factors.values()), factors
        assert len(set(factors.values())) > 1


def test_the_worst_takes_over_the_best_and_mutates_its_numbers() -> None:
    population = league(seed=1)
    donors = dict(population.numbers[2])
    turn = population.turn(3, 200, [5.0, 6.0, 10.0, 1.0])
    assert turn is not None and turn.donor == 2
    assert turn.numbers != donors
    assert all(1 / 1.51 < turn.numbers[name] / donors[name] < 1.51 for name in donors)


@pytest.mark.parametrize(
    ("policy", "objectives"),
    [
        (2, [5.0, 6.0, 10.0, 1.0]),  # the best one
        (1, [5.0, 6.0, 10.0, 1.0]),  # neither best nor worst
        (3, [9.7, 9.6, 10.0, 9.5]),  # the worst, but not by a tenth
        (3, [-9.7, -9.6, -9.5, -10.0]),  # the same below zero
    ],
)
def test_others_keep_their_weights(policy: int, objectives: list[float]) -> None:
    population = league()
    before = dict(population.numbers[policy])
    turn = population.turn(policy, 200, objectives)
    assert turn is not None and turn.donor is None
    assert (dict(turn.numbers) == before) == (policy == objectives.index(max(objectives)))


def test_where_nobody_is_to_be_replaced_all_mutate() -> None:
    population = league(replace_fraction=0.0)
    for policy in (1, 2, 3):  # neither the best is kept nor is the worst given up
        before = dict(population.numbers[policy])
        turn = population.turn(policy, 200, [5.0, 6.0, 10.0, 1.0])
        assert turn is not None and turn.donor is None and dict(turn.numbers) != before


def test_the_worst_is_replaced_below_zero_too() -> None:
    turn = league().turn(3, 200, [-2.0, -3.0, -1.0, -9.0])
    assert turn is not None and turn.donor == 2


def test_the_first_policy_can_be_replaced_but_never_mutates() -> None:
    population = league()
    turn = population.turn(0, 200, [1.0, 6.0, 10.0, 5.0])
    assert turn is not None and turn.donor == 2
    assert turn.numbers == population.numbers[2]


def test_turns_come_after_the_start_and_then_every_period() -> None:
    population = league()
    assert [population.is_due(1, frames) for frames in (60, 99, 100)] == [False, False, True]
    assert population.turn(1, 100, [1.0, None, 2.0, 3.0]) is None  # one has no episodes yet
    assert population.is_due(1, 101)
    population.turn(1, 101, [1.0, 1.0, 2.0, 3.0])
    assert [population.is_due(1, frames) for frames in (150, 151)] == [False, True]


def test_gamma_moves_by_its_distance_from_one() -> None:
    for seed in range(20):
        gamma = league(seed, optimize_gamma=True).numbers[1]["gamma"]
        distance = (1 - gamma) / (1 - 0.99)
        assert 1.009 < max(distance, 1 / distance) < 1.201 or gamma == 0.99


def test_numbers_reach_the_behavior() -> None:
    changed = with_numbers(BEHAVIOR, {"learning_rate": 0.5, "gamma": 0.9})
    assert (changed.hyperparameters.learning_rate, changed.extrinsic.gamma) == (0.5, 0.9)
    assert changed.hyperparameters.beta == BEHAVIOR.hyperparameters.beta


def test_the_numbers_of_a_games_reward_mutate_too_and_stay_out_of_the_learner() -> None:
    shaping = (("HEALTH.rise", 0.01), ("HEALTH.drop", -0.02), ("ARMOR.rise", 0.0))
    population = PopulationLeague(Population(**ALWAYS), BEHAVIOR, 0, shaping)
    assert shaping_of(population.numbers[0]) == [0.01, -0.02, 0.0]
    rise, drop, nothing = shaping_of(population.numbers[1])
    assert rise != 0.01 and 1 / 1.51 < rise / 0.01 < 1.51
    assert drop != -0.02 and 1 / 1.51 < drop / -0.02 < 1.51
    assert nothing == 0.0
    changed = with_numbers(BEHAVIOR, population.numbers[1])
    assert changed.hyperparameters.beta == population.numbers[1]["beta"]
    turn = population.turn(3, 200, [5.0, 6.0, 10.0, 1.0])
    assert turn is not None and len(shaping_of(turn.numbers)) == 3


def test_a_saved_population_goes_on_alike() -> None:
    one, two = league(seed=3), league(seed=4)
    two.load_state_dict(one.state_dict())
    objectives = [5.0, 6.0, 10.0, 1.0]
    assert [one.turn(k, 300, objectives) for k in range(4)] == [two.turn(k, 300, objectives) for k in range(4)]
    with pytest.raises(ValueError, match="population of 4 policies; the run file says 2"):
        league(size=2).load_state_dict(one.state_dict())
