"""Both forms of the loss against the formula as printed, value and every gradient, and against numbers by hand."""

import math

import numpy as np
import pytest
import torch
from formulas import surrogate_formula

from palus.learn.losses import (
    clipped_policy_loss,
    linear_schedule,
    surrogate,
    surrogate_tensors,
    value_loss,
    value_tensors,
)
from palus.types import ActionSpec, Continuous, Discrete

BRANCHES = ActionSpec((Discrete(3), Discrete(2)))
MIXED = ActionSpec((Discrete(3), Continuous(2), Continuous(2), Discrete(2), Discrete(2), Continuous(1)))


def of_formula(parameters, actions, old, advantages, spec, epsilon, beta, shares=None):
    """The numbers of the formula, and autograd's gradient of loss - beta entropy."""
    leaf = parameters.clone().requires_grad_()
    found = surrogate_formula(leaf, *(torch.from_numpy(x) for x in (actions, old, advantages)), spec, epsilon, shares)
    (gradient,) = torch.autograd.grad(found.loss - beta * found.entropy, leaf)
    return [x.item() for x in found], gradient


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "spec", [BRANCHES, ActionSpec((Continuous(3),)), MIXED], ids=["discrete", "continuous", "mixed"]
)
def test_the_loss_equals_the_formula(spec, masked):
    random = np.random.default_rng(3)
    R = 50
    parameters = torch.from_numpy(random.normal(size=(R, spec.parameters)).astype(np.float32))
    columns = [
        random.integers(0, 2, (R, 1)) if isinstance(part, Discrete) else random.normal(size=(R, part.size))
        for part in spec.parts
    ]
    actions = np.concatenate(columns, 1).astype(np.float32)
    for part, own, column in zip(spec.parts, spec.parameter_slices, spec.column_slices, strict=True):
        if isinstance(part, Continuous):
            parameters[0, own.start + part.size] = 50.0  # deviations are limited, and have no gradient there
        elif masked:
            parameters[::2, own.stop - 1] = -1e8
            actions[::2, column] = 0
            parameters[1::4, own.start] = -1e8
            actions[1::4, column] = 1
    old = random.normal(-1.2, 0.6, size=actions.shape).astype(np.float32)
    old[0] = -6.0
    advantages = random.normal(size=R).astype(np.float32)
    given = parameters, actions, old, advantages, spec, 0.2, 0.01
    (numbers, gradient), (expected, by_autograd) = surrogate(*given), of_formula(*given)
    np.testing.assert_allclose(numbers, expected, rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(gradient, by_autograd, atol=2e-7, rtol=2e-4)
    assert 0.3 < numbers[3] < 1.0
    shares = torch.from_numpy(random.random(R).astype(np.float32))
    shares[3] = 0.0
    shares /= shares.sum()
    expected, by_autograd = of_formula(*given, shares)
    tensors = (parameters, *(torch.from_numpy(x) for x in (actions, old, advantages)), spec)
    told, by_operators = surrogate_tensors(*tensors, torch.tensor(0.2), torch.tensor(0.01), shares)
    np.testing.assert_allclose(told, [expected[0], *expected[2:]], rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(by_operators, by_autograd, atol=2e-7, rtol=2e-4)
    forbidden = parameters == -1e8
    assert bool(forbidden.any()) == (masked and bool(spec.branches))
    assert (gradient[forbidden] == 0).all() and (by_operators[forbidden] == 0).all()


def test_the_formula_as_printed():
    # Two columns with ratios 2 and 0.5, A = 1 and -2, epsilon 0.2: min(2, 1.2) = 1.2; min(-1, -1.6) = -1.6
    found = clipped_policy_loss(torch.tensor([2.0, 0.5]), torch.tensor([1.0, -2.0]), 0.8, 1.2)
    assert found.item() == pytest.approx(0.2)


def test_surrogate_of_one_row_by_hand():
    # Uniform over 3 and over 2; old probabilities 1/3 and 1/4, so the ratios are 1 and 2; A = 1, epsilon 0.2:
    # -(1 + 1.2) / 2 = -1.1; entropy ln 3 + ln 2
    old = np.log(np.float32([[1 / 3, 1 / 4]]))
    given = torch.zeros(1, 5), np.float32([[0, 1]]), old, np.float32([1.0]), BRANCHES, 0.2, 0.0
    for (loss, entropy, kl, clipped), gradient in (surrogate(*given), of_formula(*given)):
        assert loss == pytest.approx(-1.1)
        assert entropy == pytest.approx(math.log(6))
        assert kl == pytest.approx((0 + 2 - 1 - math.log(2)) / 2)
        assert clipped == 0.5
        # only the first branch pulls: -(1/2) (1 - 1/3), +(1/2)/3, +(1/2)/3
        np.testing.assert_allclose(gradient[0], [-1 / 3, 1 / 6, 1 / 6, 0, 0], atol=1e-7)


def test_gaussian_surrogate_of_one_row_by_hand():
    # Means 0, deviations 1 and e; actions 1 and 0. log p = -1/2 - c and -1 - c with c = ln(2 pi) / 2; ratios 1.
    # Entropy: the mean of 1/2 + c + (0 and 1) = 1 + c. d log p / d mean = 1, 0; d log p / d log std = 0, -1.
    c = 0.5 * math.log(2 * math.pi)
    parameters, old = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), np.float32([[-0.5 - c, -1 - c]])
    given = parameters, np.float32([[1, 0]]), old, np.float32([2.0]), ActionSpec((Continuous(2),)), 0.2, 0.1
    for (loss, entropy, kl, clipped), gradient in (surrogate(*given), of_formula(*given)):
        assert loss == pytest.approx(-2)
        assert entropy == pytest.approx(1 + c)
        assert (kl, clipped) == (pytest.approx(0, abs=1e-6), 0)
        np.testing.assert_allclose(gradient[0], [-1, 0, -0.05, 1 - 0.05], atol=1e-6)


def test_value_loss_by_hand():
    # errors 0.5 and -3: (0.25 + 9) / 2; gradient 0.25 x 2 x error / 2. Nothing is clipped, however far a value moved.
    loss, gradient = value_loss(torch.tensor([1.5, 97.0]), np.float32([1.0, 100.0]), 0.25)
    assert loss == pytest.approx(4.625)
    assert gradient.tolist() == [0.125, -0.75]
    of_streams = torch.tensor([[1.0, 4.0], [2.0, 0.0]]), torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    loss, gradient = value_tensors(*of_streams, torch.tensor([0.75, 0.25]), 0.5)  # 0.75 (1 + 9) / 2 + 0.25 (0 + 16) / 2
    assert loss.item() == 5.75
    assert gradient.tolist() == [[0.375, 1.125], [0.0, -0.5]]


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
