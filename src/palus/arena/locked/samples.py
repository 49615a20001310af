"""Harmless small models, one of each kind that is played: what a locked process is warmed up with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from palus.nn.graph import Graph, PolicyOutputs, close_policy, mlp_policy, open_policy
from palus.types import F32, ActionSpec, BehaviorSpec, Discrete, ObservationSpec

POLICY = BehaviorSpec.of_vectors("Sample", (3, 2), (2, 2))
RECURRENT = BehaviorSpec(
    "Remembering",
    (ObservationSpec("obs", (1, 8, 8), "uint8"), ObservationSpec("numbers", (2,))),
    ActionSpec((Discrete(2), Discrete(3))),
)
_STATE = 4


def sample_models() -> Iterator[tuple[bytes, BehaviorSpec]]:
    """Files, each with what it plays."""
    yield _policy(), POLICY
    yield _recurrent(), RECURRENT


def _policy() -> bytes:
    shapes = {"layer0": (4, 5), "branch0": (2, 4), "branch1": (2, 4)}
    arrays: dict[str, F32] = {}
    for name, shape in shapes.items():
        arrays[f"{name}_weight"], arrays[f"{name}_bias"] = np.ones(shape, np.float32), np.zeros(shape[0], np.float32)
    data: bytes = mlp_policy(arrays, POLICY).SerializeToString()
    return data


def _recurrent() -> bytes:
    """A convolution, a layer, a GRU and two softmaxes."""
    g, behavior = Graph(), RECURRENT
    state = open_policy(g, behavior, _STATE)

    def ones(name: str, *shape: int) -> str:
        return g.constant(name, np.full(shape, 0.01, np.float32))

    picture = g.add("Cast", ["obs"], "picture", to=TensorProto.FLOAT)
    x = g.add("Elu", [g.add("Conv", [picture, ones("filters", 2, 1, 4, 4)], "conv", strides=[4, 4])], "seen")
    x = g.add("Concat", [g.add("Flatten", [x], "flat", axis=1), "numbers"], "all", axis=1)
    x = g.add("Relu", [g.add("Gemm", [x, ones("layer", 10, 5), ones("bias", 5)], "layer_out")], "features")
    step, before = g.add("Unsqueeze", [x], "step", axes=[0]), g.add("Unsqueeze", [state], "before", axes=[0])
    weights = [ones("input_weight", 1, 3 * _STATE, 5), ones("state_weight", 1, 3 * _STATE, _STATE)]
    g.add_all("GRU", [step, *weights, "", "", before], ["", "after"], hidden_size=_STATE, linear_before_reset=1)
    x = g.add("Squeeze", ["after"], "state", axes=[0])
    heads = [
        g.add("Gemm", [x, ones(f"head{k}", _STATE, n), ones(f"head{k}_bias", n)], f"logits{k}")
        for k, n in enumerate(behavior.branches)
    ]
    model = close_policy(g, behavior, PolicyOutputs(tuple(heads), None, x), _STATE, {})
    data: bytes = model.SerializeToString()
    return data
