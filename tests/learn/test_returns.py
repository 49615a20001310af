"""Returns and advantages against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from palus.learn.kernels import recurrence
from palus.learn.returns import following_values, gae, next_episode_values, normalized, td_lambda, vtrace


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def test_gae_equals_hand_computation():
    # gamma 0.5, lambda 0.5, V = 1, 2, 3, bootstrap 4, r = 1, 0, 2:
    # delta_2 = 2 + 0.5 * 4 - 3 = 1;  delta_1 = 0 + 0.5 * 3 - 2 = -0.5;  delta_0 = 1 + 0.5 * 2 - 1 = 1
    # A_2 = 1;  A_1 = -0.5 + 0.25 * 1 = -0.25;  A_0 = 1 + 0.25 * -0.25 = 0.9375
    no = np.zeros((3, 1), np.bool_)
    advantages, targets = gae(column(1, 0, 2), column(1, 2, 3), column(2, 3, 4), no, ~no, 0.5, 0.5)
    assert advantages[:, 0].tolist() == [0.9375, -0.25, 1.0]
    assert targets[:, 0].tolist() == [1.9375, 1.75, 4.0]


def test_truncation_bootstraps_termination_does_not():
    values, rewards = column(1.0, 1.0), column(0.0, 1.0)
    ended = column(False, True, dtype=np.bool_)
    active = np.ones((2, 1), np.bool_)
    terminated, _ = gae(rewards, values, column(1.0, 0.0), ended, active, 0.9, 1.0)
    truncated, _ = gae(rewards, values, column(1.0, 10.0), ended, active, 0.9, 1.0)
    assert terminated[1, 0] == pytest.approx(1 - 1)
    assert truncated[1, 0] == pytest.approx(1 + 9 - 1)
    assert truncated[0, 0] == pytest.approx(0.9 * 1 - 1 + 0.9 * 9)


def test_nothing_flows_back_over_an_episode_end():
    ended = column(True, False, dtype=np.bool_)
    advantages, _ = gae(column(0, 100), column(0, 0), column(0, 0), ended, np.ones((2, 1), np.bool_), 1.0, 1.0)
    assert advantages[:, 0].tolist() == [0.0, 100.0]


def test_inactive_rows_have_no_advantage():
    active = column(True, False, dtype=np.bool_)
    ended = column(True, False, dtype=np.bool_)
    advantages, targets = gae(column(1, 5), column(0, 5), column(0, 5), ended, active, 1.0, 1.0)
    assert advantages[:, 0].tolist() == [1.0, 0.0]
    assert targets[:, 0].tolist() == [1.0, 0.0]


def test_td_lambda_equals_hand_computation():
    # gamma 0.5, lambda 0.5, r = 1, 2, V_next = 4, 6: G_1 = 2 + 0.5 * 6 = 5; G_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 5) = 3.25
    returns = td_lambda(column(1, 2), column(4, 6), np.zeros((2, 1), np.bool_), 0.5, 0.5)
    assert returns[:, 0].tolist() == [3.25, 5.0]


def test_td_lambda_is_gae_plus_value():
    random = np.random.default_rng(0)
    T, B = 7, 5
    rewards, values = random.normal(size=(2, T, B)).astype(np.float32)
    ended = random.random((T, B)) < 0.2
    following = np.vstack([values[1:], random.normal(size=(1, B))]).astype(np.float32)
    following[ended] = 0.0
    _, targets = gae(rewards, values, following, ended, np.ones((T, B), np.bool_), 0.9, 0.7)
    np.testing.assert_allclose(td_lambda(rewards, following, ended, 0.9, 0.7), targets, rtol=1e-5, atol=1e-6)


def test_normalize_gives_zero_mean_and_unit_population_deviation():
    assert normalized([np.float32([1, 3])], sum)[0].tolist() == [-1.0, 1.0]
    assert normalized([np.float32([2, 2, 2])], sum)[0].tolist() == [0.0, 0.0, 0.0]


def test_vtrace_equals_hand_computation():
    # gamma 0.5, rho 1, c 1, ratios 2 and 0.5, V = 1, 2, then 4, r = 1, 0:
    # delta_1 = 0.5 (0 + 2 - 2) = 0; v_1 = 2. delta_0 = 1 (1 + 1 - 1) = 1; v_0 = 1 + 1 + 0.5 x 1 x (v_1 - 2) = 2
    no = np.zeros((2, 1), np.bool_)
    args = (column(1, 0), column(1, 2), column(2, 4), no, ~no, 0.5)
    advantages, targets = vtrace(column(2, 0.5), *args, 1.0, 1.0)
    assert (advantages[:, 0].tolist(), targets[:, 0].tolist()) == ([1.0, 0.0], [2.0, 2.0])
    # With r_1 = 4: delta_1 = 0.5 (4 + 2 - 2) = 2, v_1 = 4, A_1 = 2; v_0 = 1 + 1 + 0.5 (4 - 2) = 3; A_0 = 1 + 2 - 1 = 2
    advantages, targets = vtrace(column(2, 0.5), column(1, 4), *args[1:], 1.0, 1.0)
    assert (advantages[:, 0].tolist(), targets[:, 0].tolist()) == ([2.0, 2.0], [3.0, 4.0])

    # rho 1.5 and c 0.25, which are apart: delta_0 = 1.5, v_0 = 1 + 1.5 + 0.5 x 0.25 (4 - 2) = 2.75; A_0 = 1.5 x 2 = 3
    advantages, targets = vtrace(column(2, 0.5), column(1, 4), *args[1:], 1.5, 0.25)
    assert (advantages[:, 0].tolist(), targets[:, 0].tolist()) == ([3.0, 2.0], [2.75, 4.0])


def test_vtrace_without_lag_is_gae_with_lambda_one():
    random = np.random.default_rng(1)
    T, B = 9, 6
    rewards, values, following = random.normal(size=(3, T, B)).astype(np.float32)
    ended, active = random.random((2, T, B)) < 0.2
    following[:-1] = np.where(ended[:-1], following[:-1], values[1:])
    ones = np.ones((T, B), np.float32)
    found = vtrace(ones, rewards, values, following, ended, ~active, 0.9, 1.0, 1.0)
    for a, b in zip(found, gae(rewards, values, following, ended, ~active, 0.9, 1.0), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_following_values_are_those_of_last_observations_where_these_are_known():
    concluded = column(False, True, False, dtype=np.bool_)
    found = following_values(column(1, 2, 3), np.float32([4]), np.float32([8]), concluded)
    assert found[:, 0].tolist() == [2.0, 8.0, 4.0]


def test_values_of_the_next_episode_are_those_of_the_next_decision():
    """However long somebody waits for it."""
    following = np.float32([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    there = np.array([[True, False, False], [True, False, True], [False, True, False]])
    assert next_episode_values(following, there).tolist() == [[1, 8, 6], [4, 8, 6], [0, 8, 0]]
    streams = next_episode_values(np.stack([following, -following], -1), there)
    assert streams[:, :, 1].tolist() == [[-1, -8, -6], [-4, -8, -6], [0, -8, 0]]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 8, 9])
def test_a_recurrence_reaches_from_the_last_number_to_the_first(length):
    """y = 1 + y_next, and where c is 0 nothing comes over."""
    x, c = torch.ones(length, 2), torch.ones(length, 2)
    c[length // 2, 1] = 0.0
    found = recurrence(x, c)
    assert found[:, 0].tolist() == list(range(length, 0, -1))
    assert found[:, 1].tolist() == [*range(length // 2 + 1, 0, -1), *range(length - length // 2 - 1, 0, -1)]
