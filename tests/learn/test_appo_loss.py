"""The losses of APPO by hand."""

from __future__ import annotations

import math

import pytest
import torch

from palus.config.appo import AppoHyperparameters
from palus.learn.appo import Minibatch, Whole, clipped_value_loss, loss
from palus.learn.losses import clipped_policy_loss
from palus.types import ActionSpec, Discrete


def test_the_policy_loss_clips_towards_one() -> None:
    # epsilon 0.25: [0.8, 1.25]. min(2 x 1, 1.25) = 1.25; min(0.5 x -2, 0.8 x -2) = -1.6; -mean = 0.175
    found = clipped_policy_loss(torch.tensor([2.0, 0.5]), torch.tensor([1.0, -2.0]), 1 / 1.25, 1.25)
    assert found.item() == pytest.approx(0.175)


def test_the_value_loss_takes_the_worse_of_moved_and_limited() -> None:
    # V 3, old 1, clip 1 -> 2, target 4: max(1, 4) = 4. V 0, old 0, target 1: 1. Mean 2.5.
    found = clipped_value_loss(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([4.0, 1.0]), 1.0)
    assert found.item() == pytest.approx(2.5)


def test_the_whole_loss_by_hand() -> None:
    # Two decisions with p = (1/2, 1/2) now and before; advantages 3 and 1 become 1 and -1; the third is not usable.
    h = AppoHyperparameters(kl_coefficient=1.0, value_coefficient=0.5)
    batch = Minibatch(
        actions=torch.tensor([[0.0], [1.0]]), parameters=torch.zeros(2, 2), log_probs=torch.full((2,), -math.log(4)),
        old_values=torch.tensor([1.0, 1.0]), advantages=torch.tensor([3.0, 1.0]), targets=torch.tensor([2.0, 1.0]),
        usable=torch.tensor([[True, False, True]]),
    )  # fmt: skip
    total, found = loss(
        torch.zeros(1, 3, 2),
        torch.tensor([[1.0, 99.0, 1.0]]),
        batch,
        ActionSpec((Discrete(2),)),
        h,
        0.01,
        Whole(2, 2.0, 1.0),
    )
    # ratio = 2 for both: -(min(2, 1.1) + min(-2, -1.1)) / 2 = 0.45; values: 0.5 (1 + 0) / 2; entropy ln 2
    assert found["Losses/Policy Loss"] == pytest.approx(0.45)
    assert found["Losses/Value Loss"] == pytest.approx(0.25)
    assert found["Losses/Exploration Loss"] == pytest.approx(-0.01 * math.log(2))
    assert found["Policy/KL"] == pytest.approx(0.0)
    assert found["Policy/Clipped"] == 1.0
    assert total.item() == pytest.approx(0.45 + 0.25 - 0.01 * math.log(2))


def test_a_ratio_is_clipped_from_below_at_one_over_one_plus_epsilon() -> None:
    # p = 1/2 now, 1 before; epsilon 0.25: -min(0.5 x -1, 0.8 x -1) = 0.8, where 1 - epsilon would give 0.75
    batch = Minibatch(
        actions=torch.zeros(1, 1), parameters=torch.zeros(1, 2), log_probs=torch.zeros(1), old_values=torch.zeros(1),
        advantages=torch.tensor([-1.0]), targets=torch.zeros(1), usable=torch.tensor([[True]]),
    )  # fmt: skip
    h, spec = AppoHyperparameters(epsilon=0.25), ActionSpec((Discrete(2),))
    _, found = loss(torch.zeros(1, 1, 2), torch.zeros(1, 1), batch, spec, h, 0.0, Whole(1, 0.0, 1.0))
    assert found["Losses/Policy Loss"] == pytest.approx(0.8)


def test_the_kl_is_that_of_the_new_policy_to_the_acting_one_and_weighs_its_coefficient() -> None:
    # p = (1/2, 1/2) now, (3/4, 1/4) before: 1/2 ln(2/3) + 1/2 ln 2 = 1/2 ln(4/3), twice that in the loss
    batch = Minibatch(
        actions=torch.zeros(1, 1), parameters=torch.tensor([[math.log(3.0), 0.0]]), log_probs=torch.zeros(1),
        old_values=torch.zeros(1), advantages=torch.zeros(1), targets=torch.zeros(1), usable=torch.tensor([[True]]),
    )  # fmt: skip
    h, spec = AppoHyperparameters(kl_coefficient=2.0), ActionSpec((Discrete(2),))
    total, found = loss(torch.zeros(1, 1, 2), torch.zeros(1, 1), batch, spec, h, 0.0, Whole(1, 0.0, 1.0))
    assert found["Policy/KL"] == pytest.approx(math.log(4 / 3) / 2)
    assert total.item() == pytest.approx(math.log(4 / 3))


def test_ratios_are_cut_to_twenty_and_a_twentieth() -> None:
    # p = (1/2, 1/2) now, e^-5 and e^5 of it before: the ratios are 20 and 1 / 20. Advantages -1 and 1:
    # -(min(-20, -1.1) + min(0.05, 0.91)) / 2 = 9.975
    batch = Minibatch(
        actions=torch.zeros(2, 1), parameters=torch.zeros(2, 2),
        log_probs=torch.tensor([-math.log(2) - 5, -math.log(2) + 5]), old_values=torch.zeros(2),
        advantages=torch.tensor([-1.0, 1.0]), targets=torch.zeros(2), usable=torch.tensor([[True, True]]),
    )  # fmt: skip
    h, spec = AppoHyperparameters(), ActionSpec((Discrete(2),))
    _, found = loss(torch.zeros(1, 2, 2), torch.zeros(1, 2), batch, spec, h, 0.0, Whole(2, 0.0, 1.0))
    assert found["Losses/Policy Loss"] == pytest.approx(9.975)


@pytest.mark.parametrize(("of_all", "expected"), [(30.0, 0.0), (31.0, 0.3)])
def test_an_exploration_loss_beyond_its_limit_is_the_limit(of_all: float, expected: float) -> None:
    # p = (1/2, 1/2), which is uniform, but the minibatch's mean is above 30: 0.01 x 30
    batch = Minibatch(
        actions=torch.zeros(1, 1), parameters=torch.zeros(1, 2), log_probs=torch.full((1,), -math.log(2)),
        old_values=torch.zeros(1), advantages=torch.zeros(1), targets=torch.zeros(1), usable=torch.tensor([[True]]),
    )  # fmt: skip
    h, spec = AppoHyperparameters(exploration_loss="symmetric_kl"), ActionSpec((Discrete(2),))
    _, found = loss(torch.zeros(1, 1, 2), torch.zeros(1, 1), batch, spec, h, 0.01, Whole(1, 0.0, 1.0, of_all))
    assert found["Losses/Exploration Loss"] == pytest.approx(expected)
