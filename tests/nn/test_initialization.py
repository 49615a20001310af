"""The first weights of every layer, measured, against ML-Agents' table; the sizes of pictures that encoders take."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import pytest
import torch

from palus.config.network import NetworkSettings
from palus.errors import ConfigError
from palus.nn.attention import AttentionCritic
from palus.nn.encoders import ImageEncoder, Joint, ResidualBlock
from palus.nn.layers import Activate, Convolution, Linear, MaxPool
from palus.nn.network import Network
from palus.nn.twin_critic import TwinCritic
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

H = 128
SEEN = (
    ObservationSpec("goal", (40,), goal=True),
    ObservationSpec("place", (60,)),
    ObservationSpec("eye", (3, 24, 24)),
    ObservationSpec("others", (4, 50)),
)
SPEC = BehaviorSpec("B", SEEN, ActionSpec((Continuous(20), Discrete(30))))
NORMAL, UNIFORM, TORCH = "normal", "uniform", "torch"


def fan_in(gain: float) -> Any:
    return lambda shape: gain / math.sqrt(shape[1])


def xavier(shape: Any) -> float:
    return math.sqrt(6.0 / (shape[0] + shape[1]))


def attention(units: int) -> Any:
    return lambda shape: math.sqrt(0.125 / units)


TABLE: dict[str, tuple[str, Any]] = {
    r".*conv_head.*": (TORCH, None),
    r".*mlp_layers.*": (NORMAL, fan_in(1.41)),
    r".*encoder\.attention\..*": (NORMAL, attention(128)),
    r".*encoder\.layers\.matrix": (UNIFORM, lambda shape: math.sqrt(1.0 / shape[0])),
    r".*encoder\.layers(\..*)?": (NORMAL, fan_in(1.0)),
    r"critic\.(observation|action|attention\..*)": (NORMAL, attention(H)),
    r"critic\.layers.*": (NORMAL, lambda shape: math.sqrt(0.125 / H) / math.sqrt(shape[1])),
    r"(critic_linear|critic.*\.head)": (UNIFORM, xavier),
}
"""Module -> how its weights are drawn, and their deviation or bound by their shape. The first that fits counts."""
CRITICS = {
    "ppo": "separate",
    "shared": "shared",
    "poca": AttentionCritic,
    "sac": partial(TwinCritic, coefficient=1.0),
}


@pytest.mark.parametrize("trainer", CRITICS)
def test_first_weights_are_ml_agents(trainer: str) -> None:
    more = {"adaptive_deviation": True} if trainer == "sac" else {}
    settings = NetworkSettings(memory={"memory_size": 256}, **more)
    network = Network(SPEC, settings, torch.Generator().manual_seed(1), critic=CRITICS[trainer])
    seen = set()
    for name, values in network.weights.masters.items():
        module, _, kind = name.rpartition(".")
        if name == "action_parameterization.learned_stddev" or name.endswith("log_coefficients"):
            assert (values == 0.0).all()
        elif module == "action_parameterization.distribution_linear":
            size = 40 if trainer == "sac" else 20
            assert kind == "bias" or values[:size].std() == pytest.approx(0.2 / math.sqrt(H), rel=0.05)
            assert kind == "bias" or values[size:].std() == pytest.approx(0.1 / math.sqrt(H), rel=0.05)
        elif module.endswith("core.core"):
            gates = values.chunk(4)
            if kind.startswith("bias"):
                assert [gate.unique().tolist() for gate in gates] == [[0.0], [1.0], [0.0], [0.0]]
                continue
            seen.add("core")
            for gate in gates:
                assert gate.abs().max() == pytest.approx(xavier(gate.shape), rel=0.01)
                assert gate.std() == pytest.approx(xavier(gate.shape) / math.sqrt(3.0), rel=0.03)
        else:
            pattern = next(pattern for pattern in TABLE if re.fullmatch(pattern, module))
            seen.add(pattern)
            how, size = TABLE[pattern]
            if how != TORCH and kind == "bias":
                assert (values == 0.0).all(), name
            elif how != TORCH:
                wanted = size(values.shape) / (math.sqrt(3.0) if how == UNIFORM else 1.0)
                assert values.std() == pytest.approx(wanted, rel=0.1), name
                assert how == NORMAL or values.abs().max() <= size(values.shape), name
    assert len(seen) == {"ppo": 7, "shared": 7, "poca": 9, "sac": 7}[trainer]


@pytest.mark.parametrize(
    ("name", "least"), [("fully_connected", 1), ("match3", 5), ("simple", 20), ("nature_cnn", 36), ("resnet", 15)]
)
def test_pictures_have_to_be_as_large_as_the_encoder_needs(name: str, least: int) -> None:
    settings = NetworkSettings(vis_encode_type=name, hidden_units=8)
    Joint((ObservationSpec("eye", (3, least, least + 2)),), settings)
    if least > 1:
        wrong = rf"vis_encode_type {name}: images of {least + 1} x {least - 1} .* which need {least} x {least};"
        with pytest.raises(ConfigError, match=wrong):
            Joint((ObservationSpec("eye", (3, least - 1, least + 1)),), settings)


STAGE = "conv {} 3/1+1, pool {}, block {kind} {kind}, block {kind} {kind}"
STACKS = {
    "fully_connected": ("", "leaky_relu"),
    "match3": ("conv 35 3/1, leaky_relu, conv 144 3/1, leaky_relu", "leaky_relu"),
    "simple": ("conv 16 8/4, leaky_relu, conv 32 4/2, leaky_relu", "leaky_relu"),
    "nature_cnn": ("conv 32 8/4, leaky_relu, conv 64 4/2, leaky_relu, conv 64 3/1, leaky_relu", "leaky_relu"),
    "resnet": (", ".join(STAGE.format(n, 0, kind="swish") for n in (16, 32, 32)) + ", swish", "relu"),
    "convnet_simple": ("conv 32 8/4, elu, conv 64 4/2, elu, conv 128 3/2, elu", "elu"),
    "convnet_impala": ("conv 16 8/4, elu, conv 32 4/2, elu", "elu"),
    "convnet_atari": ("conv 32 8/4, elu, conv 64 4/2, elu, conv 64 3/1, elu", "elu"),
    "resnet_impala": (", ".join(STAGE.format(n, 1, kind="elu") for n in (16, 32, 32)) + ", elu", "elu"),
    "resnet_strided": (
        "conv 32 8/4, block elu elu, elu, conv 64 3/2+1, block elu elu, elu, conv 64 3/2+1, elu",
        "elu",
    ),
}
"""Name -> its layers (channels, kernel / stride + padding) and the activation of the layer after them."""


def told(layer: torch.nn.Module) -> str:
    """A layer in a word or two."""
    if isinstance(layer, Convolution):
        padding = int(layer.padding[0])
        return f"conv {layer.out_channels} {layer.kernel_size[0]}/{layer.stride[0]}" + f"+{padding}" * (padding > 0)
    if isinstance(layer, MaxPool):
        return f"pool {layer.padding}"
    if isinstance(layer, ResidualBlock):
        return "block " + " ".join(m.kind for m in layer.modules() if isinstance(m, Activate))
    assert isinstance(layer, Activate)
    return layer.kind


@pytest.mark.parametrize("name", STACKS)
def test_pictures_go_through_the_layers_of_the_encoder_s_source(name: str) -> None:
    encoder = ImageEncoder((3, 64, 64), NetworkSettings(vis_encode_type=name, activation="elu", hidden_units=8))
    found = ", ".join(told(layer) for layer in encoder.conv_head)
    (after,) = (m.kind for m in encoder.mlp_layers.modules() if isinstance(m, Activate))
    assert (found, after) == STACKS[name]


@pytest.mark.parametrize("kind", ["orthogonal", "xavier_uniform", "mlagents"])
def test_first_weights_have_the_gain_that_was_asked_for(kind: str) -> None:
    settings = NetworkSettings(initialization=kind, initialization_gain=3.0, memory=None, goal_conditioning_type="none")
    network = Network(SPEC, settings, torch.Generator().manual_seed(1))
    for module in network.modules():
        if not isinstance(module, Linear | Convolution):
            continue
        weight = module.weight.detach().flatten(1)
        if kind == "mlagents":  # of convolutions it says nothing
            if module is network._parts[""][0].layers[0]:
                assert weight.std() == pytest.approx(3.0 * fan_in(1.0)(weight.shape), rel=0.05)
            continue
        assert not module.bias.any()
        if kind == "orthogonal":
            short = weight if len(weight) <= weight.shape[1] else weight.T
            torch.testing.assert_close(short @ short.T, 9.0 * torch.eye(len(short)), atol=1e-4, rtol=0)
        else:
            size = module.weight[0, 0].numel()  # of a kernel
            bound = 3.0 * math.sqrt(6.0 / (weight.shape[1] + len(weight) * size))
            assert weight.abs().max() <= 1.00001 * bound
            assert weight.abs().max() > 0.95 * bound or weight.numel() < 1000


def test_networks_drawn_one_after_the_other_have_first_weights_of_their_own() -> None:
    for kind in ("mlagents", "orthogonal", "torch"):
        generator, settings = torch.Generator().manual_seed(1), NetworkSettings(initialization=kind)
        one, other = (Network(SPEC, settings, generator).weights.masters for _ in range(2))
        name = "encoder.layers.embed.0.weight"
        assert not torch.equal(one[name], other[name]), kind


def test_first_weights_as_ml_agents_draws_them() -> None:
    spec = BehaviorSpec.of_vectors("b", (264, 72), (3, 3, 3))
    generator = torch.Generator().manual_seed(3)
    policy = Network(spec, NetworkSettings(hidden_units=512), generator, critic="separate")
    weights = {name: w for name, w in policy.weights.masters.items() if name.endswith("weight")}
    again = torch.Generator().manual_seed(3)
    for name, deviation in (
        ("actor_encoder.layers.0", 336**-0.5), ("actor_encoder.layers.2", 512**-0.5),
        ("action_parameterization.distribution_linear", 0.1 * 512**-0.5),
        ("critic_encoder.layers.0", 336**-0.5), ("critic_encoder.layers.2", 512**-0.5),
    ):  # fmt: skip
        expected = torch.empty(weights[f"{name}.weight"].shape).normal_(0.0, deviation, generator=again)
        assert torch.equal(weights[f"{name}.weight"], expected), name
    bound = (6 / 513) ** 0.5
    assert torch.equal(weights["critic_linear.weight"], torch.empty(1, 512).uniform_(-bound, bound, generator=again))
    assert torch.equal(generator.get_state(), again.get_state())
    assert not any(v.any() for k, v in policy.weights.masters.items() if k.endswith("bias"))
