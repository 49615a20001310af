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
from palus.nn.encoders import Joint
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
