"""Actions follow the probabilities and depend on nothing but match seed, decision, agent and branch."""

from __future__ import annotations

import numpy as np

from palus.arena.referee import sampling

SIZES = (3, 3, 3)


def test_published_seeds_keep_their_meaning():
    # Changing these numbers changes every match ever recorded with a seed.
    assert sampling.pair_seeds(0, 2).tolist() == [424578979255487, 6662118992937433]
    np.testing.assert_allclose(
        sampling.uniforms(np.array([7]), 3, np.array([2]), 3), [[0.8753734037, 0.1762997683, 0.3986160277]], atol=1e-9
    )


def test_each_number_has_its_own_key():
    seeds, agents = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50)
    numbers = np.concatenate([sampling.uniforms(seeds, decision, agents, 3).ravel() for decision in range(50)])
    assert len(np.unique(numbers)) == 50 * 4 * 50 * 3
    assert abs(numbers.mean() - 0.5) < 0.01
    counts, _ = np.histogram(numbers, 20, (0, 1))
    assert counts.min() > 0.9 * len(numbers) / 20
    some = sampling.uniforms(seeds[60:90], 11, agents[60:90], 3)
    np.testing.assert_array_equal(some, sampling.uniforms(seeds, 11, agents, 3)[60:90])


def test_draws_follow_the_probabilities_and_never_take_the_impossible():
    row = np.float32([0.2, 0.5, 0.3, 0.0, 0.0, 1.0, 0.6, 0.0, 0.4])
    rows = np.tile(row, (20_000, 1))
    uniform = sampling.uniforms(np.arange(20_000), 0, np.zeros(20_000, np.int64), 3)
    choices = sampling.draw(rows, uniform, SIZES)
    shares = np.concatenate([np.bincount(choices[:, k], minlength=3) for k in range(3)]) / 20_000
    np.testing.assert_allclose(shares, row, atol=0.012)
    assert (shares[row == 0] == 0).all()
    edges = sampling.draw(rows[:2], np.array([[0.0] * 3, [1 - 2.0**-53] * 3]), SIZES)
    assert edges.tolist() == [[0, 2, 0], [2, 2, 2]]


def test_greedy_takes_the_most_probable_and_the_lowest_of_equals():
    rows = np.float32([[0.2, 0.4, 0.4, 1, 0, 0, 0.1, 0.2, 0.7]])
    assert sampling.best(rows, SIZES).tolist() == [[1, 0, 2]]


def test_entropy_of_uniform_and_of_certainty():
    rows = np.float32([[1 / 3] * 9, [1, 0, 0] * 3])
    np.testing.assert_allclose(sampling.entropy(rows), [3 * np.log(3), 0.0], atol=1e-6)


def test_no_entropy_is_negative_where_probabilities_add_up_to_more_than_one():
    rows = np.float32([[1.0008, 0, 0] * 3, [5] * 9])
    assert sampling.is_distribution(rows, SIZES).tolist() == [True, False]
    assert sampling.entropy(rows).tolist() == [0.0, 0.0]


def test_only_distributions_pass():
    good = [0.2, 0.5, 0.3, 0, 0, 1, 0.6, 0, 0.4]
    rows = np.float32([good, [np.nan, *good[1:]], [np.inf, *good[1:]], [-0.2, 0.9, *good[2:]], [0.5, *good[1:]]])
    assert sampling.is_distribution(rows, SIZES).tolist() == [True, False, False, False, False]


def test_branches_of_different_sizes_are_drawn_as_if_each_were_alone():
    rows = np.float32([[0.5, 0.5, 0.2, 0.3, 0.5], [0.1, 0.9, 0.0, 1.0, 0.0]])
    uniform = np.array([[0.6, 0.1], [0.05, 0.99]])
    assert sampling.draw(rows, uniform, (2, 3)).tolist() == [[1, 0], [0, 1]]
    assert sampling.best(rows, (2, 3)).tolist() == [[0, 2], [1, 1]]
    assert sampling.is_distribution(rows, (2, 3)).tolist() == [True, True]
    assert sampling.is_distribution(rows, (3, 2)).tolist() == [False, True]
