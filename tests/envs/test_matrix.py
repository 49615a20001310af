"""Matrix games pay what their matrix says, and exploitability is what the best answer wins."""

from __future__ import annotations

import numpy as np
import pytest

from palus import envs
from palus.envs.check import check_env
from palus.envs.matrix import ROCK_PAPER_SCISSORS, exploitability, random_payoffs
from palus.errors import EnvError
from palus.ratings.nash import any_equilibrium


@pytest.mark.parametrize("name", ["RockPaperScissors", "RandomMatrix"])
def test_the_contract_holds(name: str) -> None:
    check_env(envs.make(name, 3))


def test_paper_beats_rock_and_nobody_beats_itself() -> None:
    game = envs.make("RockPaperScissors", 9)
    game.reset(np.arange(9))
    left, right = (choice.ravel() for choice in np.meshgrid(range(3), range(3)))
    step = game.step([np.stack([left, right], axis=1)[:, :, None].astype(np.float32)])
    # right: rock, paper, scissors; left in each: rock, paper, scissors
    assert step.points[:, 0].tolist() == [0.5, 1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.0, 0.5]
    assert step.group_reward.tolist() == [[2 * p - 1, 1 - 2 * p] for p in step.points[:, 0].tolist()]
    assert step.match_over.all() and step.terminated.all()


def test_a_match_brings_its_payoff_on_average() -> None:
    game = envs.make("RandomMatrix", 20000, seed=3, strategies=5)
    game.reset(np.arange(20000))
    payoffs = random_payoffs(5, 3)
    choices = np.tile(np.array([1, 4], np.float32)[:, None], (20000, 1, 1))
    results = np.concatenate([game.step([choices]).group_reward[:, 0] for _ in range(3)])
    assert results.mean() == pytest.approx(payoffs[1, 4], abs=0.01)
    assert (results != 0).mean() == pytest.approx(abs(payoffs[1, 4]), abs=0.01)
    assert not (results * np.sign(payoffs[1, 4]) < 0).any()


def test_random_payoffs_are_antisymmetric_and_the_same_for_a_seed() -> None:
    payoffs = random_payoffs(20, 0)
    np.testing.assert_array_equal(payoffs, -payoffs.T)
    assert np.abs(payoffs).max() <= 1
    assert 0.45 < np.abs(payoffs).sum() / 380 < 0.55
    np.testing.assert_array_equal(payoffs, random_payoffs(20, 0))
    assert (payoffs != random_payoffs(20, 1)).sum() == 380


def test_exploitability_is_what_the_best_answer_wins() -> None:
    assert exploitability(ROCK_PAPER_SCISSORS, np.full(3, 1 / 3)) == 0.0
    assert exploitability(ROCK_PAPER_SCISSORS, np.array([1.0, 0.0, 0.0])) == 1.0
    assert exploitability(ROCK_PAPER_SCISSORS, np.array([0.5, 0.25, 0.25])) == 0.25
    payoffs = random_payoffs(20, 0)
    assert exploitability(payoffs, any_equilibrium(payoffs)) == pytest.approx(0.0, abs=1e-9)


def test_options_are_checked() -> None:
    with pytest.raises(EnvError, match="strategies"):
        envs.make("RandomMatrix", 1, strategies=[2])
    with pytest.raises(EnvError, match="strategies 1; expected 2 to 1000"):
        envs.make("RandomMatrix", 1, strategies=1)
