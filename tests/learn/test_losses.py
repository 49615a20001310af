"""The compiled losses against hand values, and their gradients against autograd on the formulas as printed."""

import itertools
import math

import numpy as np
import pytest
import torch

from palus.learn.losses import clipped_surrogate, linear_schedule, value_loss

OFFSETS = np.array([0, 3, 5])


def surrogate_as_printed(logits, actions, old, advantages, epsilon, beta):
    terms, entropy = [], 0.0
    for a, (low, high) in enumerate(itertools.pairwise(OFFSETS)):
        log_p = torch.log_softmax(logits[:, low:high], -1)
        ratio = torch.exp(log_p.gather(1, actions[:, a : a + 1]).squeeze(1) - old[:, a])
        terms.append(torch.minimum(ratio * advantages, ratio.clip(1 - epsilon, 1 + epsilon) * advantages))
        entropy = entropy - (log_p.exp() * log_p).sum(-1)
    loss = -torch.stack(terms).mean()
    return loss, entropy.mean(), loss - beta * entropy.mean()


def test_surrogate_and_its_gradient_equal_autograd():
    random = np.random.default_rng(3)
    logits = random.normal(size=(50, 5)).astype(np.float32)
    actions = np.stack([random.integers(3, size=50), random.integers(2, size=50)], 1).astype(np.int32)
    old = random.normal(-1.2, 0.6, size=(50, 2)).astype(np.float32)
    advantages = random.normal(size=50).astype(np.float32)
    gradient = np.empty_like(logits)
    loss, entropy, _, clipped = clipped_surrogate(logits, actions, old, advantages, OFFSETS, 0.2, 0.01, gradient)
    z = torch.tensor(logits, requires_grad=True)
    expected, expected_entropy, total = surrogate_as_printed(
        z, torch.tensor(actions.astype(np.int64)), torch.tensor(old), torch.tensor(advantages), 0.2, 0.01
    )
    total.backward()
    assert loss == pytest.approx(expected.item(), abs=1e-6)
    assert entropy == pytest.approx(expected_entropy.item(), abs=1e-6)
    assert 0.3 < clipped < 1.0
    np.testing.assert_allclose(gradient, z.grad.numpy(), atol=1e-7)


def test_surrogate_of_one_row_by_hand():
    # Uniform over 3 and over 2; old probabilities 1/3 and 1/4, so the ratios are 1 and 2; A = 1, epsilon 0.2:
    # -(1 + 1.2) / 2 = -1.1; entropy ln 3 + ln 2
    logits, gradient = np.zeros((1, 5), np.float32), np.empty((1, 5), np.float32)
    old = np.log(np.float32([[1 / 3, 1 / 4]]))
    loss, entropy, kl, clipped = clipped_surrogate(
        logits, np.int32([[0, 1]]), old, np.float32([1.0]), OFFSETS, 0.2, 0.0, gradient
    )
    assert loss == pytest.approx(-1.1)
    assert entropy == pytest.approx(math.log(6))
    assert kl == pytest.approx((0 + 2 - 1 - math.log(2)) / 2)
    assert clipped == 0.5
    # only the first branch pulls: -(1/2) (1 - 1/3), +(1/2)/3, +(1/2)/3
    np.testing.assert_allclose(gradient[0], [-1 / 3, 1 / 6, 1 / 6, 0, 0], atol=1e-7)


def test_value_loss_by_hand():
    # errors 0.5 and -3: (0.25 + 9) / 2; gradient 0.25 x 2 x error / 2. Nothing is clipped, however far a value moved.
    loss, gradient = value_loss(np.float32([1.5, 97.0]), np.float32([1.0, 100.0]), 0.25)
    assert loss == pytest.approx(4.625)
    assert gradient.tolist() == [0.125, -0.75]


@pytest.mark.parametrize(
    ("initial", "minimum", "step", "expected"),
    [
        (0.2, 0.1, 0, 0.2),
        (0.2, 0.1, 500, 0.15),
        (0.2, 0.1, 2000, 0.1),
        (0.05, 0.1, 500, 0.05),  # the reference would raise it to 0.075
    ],
)
def test_linear_schedule(initial, minimum, step, expected):
    assert linear_schedule(initial, minimum, step, 1000) == pytest.approx(expected)
