"""What SAC's critics see of actions, whatever else they see."""

from __future__ import annotations

import pytest
import torch

from palus.config.network import Memory, NetworkSettings
from palus.nn.encoders import VECTORS
from palus.nn.twin_critic import Estimate, TwinCritic
from palus.trust import NOBODY
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

EYE, PLACE = ObservationSpec("eye", (1, 4, 4)), ObservationSpec("place", (3,))


@pytest.mark.parametrize(
    ("observations", "encoding", "name"),
    [([EYE], "joint", "eye"), ([PLACE], "joint", VECTORS), ([EYE], "apart", "eye"), ([PLACE], "apart", "place")],
)
def test_continuous_actions_are_seen_beside_anything(observations, encoding, name) -> None:
    settings = NetworkSettings(hidden_units=8, vis_encode_type="fully_connected", encoding=encoding)
    torch.manual_seed(1)
    estimate = Estimate(observations, 2, 1, settings, NOBODY)
    for parameter in estimate.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    seen, acted = {name: torch.rand(5, *observations[0].shape)}, torch.rand(5, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(estimate(seen, acted).sum(), acted)
    assert (gradient != 0).all()


def test_every_signal_has_a_value_and_one_of_every_choice() -> None:
    actions = ActionSpec((Discrete(2), Continuous(2), Discrete(3)))
    critic = TwinCritic(BehaviorSpec("B", (PLACE,), actions), NetworkSettings(), coefficient=0.5, streams=2)
    sizes = [estimate.head.weight.shape[0] for estimate in (critic.value, critic.q1, critic.q2)]
    assert sizes == [2, 10, 10]
    assert critic.log_coefficients.exp().tolist() == [0.5, 0.5, 0.5]  # of two branches, and of both numbers


def test_actions_stand_behind_what_is_seen() -> None:
    torch.manual_seed(1)
    estimate = Estimate([PLACE], 2, 1, NetworkSettings(hidden_units=8), NOBODY)
    first, seen = estimate.encoder.layers[0], {VECTORS: torch.rand(5, 3)}
    first.weight.data[:, 3:] = 0.0
    one, other = (estimate(seen, torch.full((5, 2), x)) for x in (-1.0, 1.0))
    assert torch.equal(one, other) and len(one.unique()) == 5


def test_what_is_remembered_has_no_gradient() -> None:
    estimate = Estimate([PLACE], 0, 1, NetworkSettings(hidden_units=8, memory=Memory(memory_size=4)), NOBODY)
    states = estimate.states({VECTORS: torch.rand(6, 3)}, None, torch.ones(3, 2))
    assert states.shape == (4, 2, 4) and not states.requires_grad
