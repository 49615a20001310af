"""Goals condition layers: the passes against torch's autograd, the columns that are goals, what is refused."""

from __future__ import annotations

import pytest
import torch

from palus.config.network import NetworkSettings
from palus.errors import ConfigError
from palus.nn import goals
from palus.nn.encoders import VECTORS, Apart, Joint
from palus.nn.goals import GoalLayers, conditioned
from palus.nn.layers import Activate
from palus.types import ObservationSpec

SEEN = (
    ObservationSpec("what", (2,), goal=True),
    ObservationSpec("eye", (1, 6, 6), goal=True),
    ObservationSpec("where", (3,)),
    ObservationSpec("how", (1,), goal=True),
    ObservationSpec("others", (4, 5)),
)


@pytest.mark.parametrize("piece", [1, 13 * 12, goals.PIECE])
def test_passes_are_those_of_torch_however_they_are_cut(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "PIECE", piece)
    torch.manual_seed(0)
    x, z, weight, bias = torch.randn(5, 4), torch.randn(5, 2), torch.randn(12, 2), torch.randn(12)
    inputs = [t.requires_grad_() for t in (x, z, weight, bias)]
    expected = torch.einsum("ri,rio->ro", x, (z @ weight.T + bias).view(5, 4, 3))
    found = conditioned(*inputs)
    torch.testing.assert_close(found, expected)
    slope = torch.randn(5, 3)
    for own, plain in zip(
        torch.autograd.grad(found, inputs, slope), torch.autograd.grad(expected, inputs, slope), strict=True
    ):
        torch.testing.assert_close(own, plain)


class Ones(torch.nn.Module):
    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(x), self.out_features)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_last_layer_s_weights_are_made_from_the_goal_alone(layers: int) -> None:
    settings = NetworkSettings(hidden_units=8, num_layers=layers, vis_encode_type="match3")
    made = Joint(SEEN, settings)
    assert isinstance(made.layers, GoalLayers)
    # vectors in their order, then the image, then the attention over lists; goals in the game's order
    assert made.layers.goal.tolist() == [0, 1, *range(6, 14), 5]
    inside = 8 if layers > 1 else 6 + 8 + 128
    assert made.layers.matrix.weight.shape == (inside * 8, 8)
    made.layers.layers = Ones(inside)  # the layers before it see everything
    x = torch.randn(1, 6 + 8 + 128).repeat(2, 1)
    for column, matters in ((0, True), (2, False)):
        changed = x.clone()
        changed[1, column] += 1.0
        one, other = made.layers(changed)
        assert torch.allclose(one, other, atol=1e-5) != matters


def test_goals_are_observations_as_any_other_where_nothing_is_conditioned() -> None:
    made = Joint(SEEN[:4], NetworkSettings(hidden_units=8, goal_conditioning_type="none", vis_encode_type="match3"))
    assert not isinstance(made.layers, GoalLayers)
    assert made({VECTORS: torch.zeros(2, 6), "eye": torch.zeros(2, 1, 6, 6)}).shape == (2, 8)
    entities = ObservationSpec("others", (4, 5), goal=True)
    Joint((entities,), NetworkSettings(goal_conditioning_type="none"))
    with pytest.raises(ConfigError, match="hyper: the goal others is a list of entities; expected a vector or an im"):
        Joint((entities,), NetworkSettings())
    with pytest.raises(ConfigError, match="no hidden layers in common for the goal"):
        Apart(SEEN, NetworkSettings())


def test_a_goal_is_embedded_by_swish_whatever_the_other_layers_activation_is() -> None:
    made = Joint(SEEN, NetworkSettings(hidden_units=8, activation="elu", vis_encode_type="match3")).layers
    assert isinstance(made, GoalLayers)
    assert [m.kind for m in made.embed.modules() if isinstance(m, Activate)] == ["swish", "swish"]
    assert made.activate.kind == "elu"
