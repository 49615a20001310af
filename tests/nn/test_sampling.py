"""Actions are drawn as often as their probabilities say, and the same ones whoever sits in the batch."""

import itertools

import numpy as np
import pytest

from palus.nn.distributions import sample, uniform
from palus.nn.graph import FORBIDDEN
from palus.types import ActionSpec, Discrete

OFFSETS = np.array([0, 3, 5])
SPEC = ActionSpec((Discrete(3), Discrete(2)))
ROWS = 40_000


def drawn(logits, seed=0, tick=0):
    return sample(logits, SPEC, seed, tick, np.arange(len(logits)))


def test_frequencies_match_the_probabilities_and_branches_are_independent():
    first, second = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.8])
    logits = np.log(np.concatenate([first * 7, second * 0.1])).astype(np.float32)
    actions, _, _ = drawn(np.tile(logits, (ROWS, 1)))
    joint = np.zeros((3, 2))
    np.add.at(joint, (actions[:, 0].astype(int), actions[:, 1].astype(int)), 1 / ROWS)
    expected = np.outer(first, second)
    assert np.abs(joint - expected).max() < 4 * np.sqrt(0.25 / ROWS)


def test_log_probabilities_and_entropy_are_exact():
    logits = np.random.default_rng(0).normal(0, 2, (200, 5)).astype(np.float32)
    actions, log_probs, entropy = drawn(logits)
    expected_entropy = 0.0
    for a, (low, high) in enumerate(itertools.pairwise(OFFSETS)):
        z = logits[:, low:high].astype(np.float64)
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        taken = np.take_along_axis(np.log(p), actions[:, a : a + 1].astype(np.int64), 1)[:, 0]
        np.testing.assert_allclose(log_probs[:, a], taken, atol=1e-6)
        expected_entropy -= (p * np.log(p)).sum()
    assert entropy.sum(dtype=np.float64) == pytest.approx(expected_entropy, rel=1e-6)


def test_a_row_draws_the_same_whatever_else_is_in_the_batch():
    random = np.random.default_rng(1)
    logits = random.normal(size=(64, 5)).astype(np.float32)
    whole, whole_log_probs, _ = drawn(logits, seed=5, tick=9)
    part, part_log_probs, _ = drawn(logits[:10], seed=5, tick=9)
    others = logits.copy()
    others[1::2] = random.normal(size=(32, 5))
    mixed, _, _ = drawn(others, seed=5, tick=9)
    assert (part == whole[:10]).all()
    assert (part_log_probs == whole_log_probs[:10]).all()
    assert (mixed[::2] == whole[::2]).all()


@pytest.mark.parametrize("other", [{"seed": 1}, {"tick": 1}])
def test_draws_of_another_seed_or_tick_are_unrelated(other):
    logits = np.zeros((ROWS, 5), np.float32)
    one, two = drawn(logits)[0], drawn(logits, **other)[0]
    assert (one[:, 0] == two[:, 0]).mean() == pytest.approx(1 / 3, abs=0.012)
    assert (one[:, 1] == two[:, 1]).mean() == pytest.approx(1 / 2, abs=0.012)


def test_huge_logits_neither_overflow_nor_leave_the_branch():
    logits = np.array([[1e30, -1e30, 0, -1e30, 1e30], [-1e4, -1e4, -1e4, 88, 89]], np.float32)
    actions, log_probs, entropy = drawn(logits)
    assert actions[0].tolist() == [0, 1]
    assert log_probs[0].tolist() == [0.0, 0.0]
    assert np.isfinite(log_probs).all()
    assert entropy[1] == pytest.approx(np.log(3) + 0.582203, abs=1e-5)  # the second row: uniform over 3, odds e : 1


def test_a_forbidden_choice_is_never_drawn():
    logits = np.tile(np.float32([2.0, FORBIDDEN, 1.0, 0.5, FORBIDDEN]), (ROWS, 1))
    actions, log_probs, entropy = drawn(logits)
    assert set(actions[:, 0]) == {0.0, 2.0} and set(actions[:, 1]) == {0.0}
    assert np.isfinite(log_probs).all() and (log_probs[:, 1] == 0.0).all()
    p = np.exp(1.0) / (1.0 + np.exp(1.0))
    np.testing.assert_allclose(entropy, -p * np.log(p) - (1 - p) * np.log(1 - p), rtol=1e-5)


def test_uniform_numbers_fill_the_unit_interval_evenly():
    draws = np.array([uniform(7, tick, row, 0) for tick in range(50) for row in range(200)])
    assert draws.min() >= 0 and draws.max() < 1
    counts, _ = np.histogram(draws, 20, (0, 1))
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)
