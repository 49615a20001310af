"""The ONNX file of a policy, written node by node.

Names, order, shapes and the constant version fields are those of ML-Agents, so Unity and every tool made for it load
the file; one output more, `action_probabilities`, lets an arena draw actions with its own seeded generator. Opset 9 and
IR version 4, the ones that ML-Agents writes.
Source: ML-Agents 1.1.0 model serialisation and its Unity-side model checks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from palus import __version__
from palus.errors import ModelError
from palus.export.graph import Graph
from palus.types import F32, BehaviorSpec

OPSET, IR_VERSION = 9, 4
MODEL_VERSION = 3.0
"""`version_number` of ML-Agents 2.x models; Unity rejects files without it."""
MASK_PENALTY = 1e8


def build_onnx(arrays: Mapping[str, F32], spec: BehaviorSpec) -> onnx.ModelProto:
    """The model of a policy. arrays: as in `league.snapshot.Snapshot`. Raises ModelError on non-finite weights."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ModelError(f"{spec.name}: {name} holds NaN or infinity; the training diverged, export a snapshot.")
    g = Graph()
    hidden = _body(g, arrays, spec)
    probabilities = _heads(g, arrays, spec, hidden)
    _actions(g, spec, probabilities)
    outputs = _outputs(g, spec)
    inputs = [_floats(f"obs_{i}", ["batch", size]) for i, size in enumerate(spec.observation_sizes)]
    inputs.append(_floats("action_masks", ["batch", sum(spec.branches)]))
    graph = helper.make_graph(g.nodes, spec.name, inputs, outputs, g.constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="palus",
        producer_version=__version__,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _floats(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _body(g: Graph, arrays: Mapping[str, F32], spec: BehaviorSpec) -> str:
    observations = [f"obs_{i}" for i in range(len(spec.observation_sizes))]
    x = g.add("Concat", observations, "observations", axis=1) if len(observations) > 1 else observations[0]
    if "normalizer_mean" in arrays:
        mean = g.constant("normalizer_mean", arrays["normalizer_mean"])
        std = g.constant("normalizer_std", arrays["normalizer_std"])
        x = g.add("Div", [g.add("Sub", [x, mean], "centred"), std], "scaled")
        x = g.add("Clip", [x], "normalized", min=-5.0, max=5.0)
    layer = 0
    while f"layer{layer}_weight" in arrays:
        weight = g.constant(f"layer{layer}_weight", arrays[f"layer{layer}_weight"])
        bias = g.constant(f"layer{layer}_bias", arrays[f"layer{layer}_bias"])
        z = g.add("Gemm", [x, weight, bias], f"layer{layer}_linear", transB=1)
        x = g.add("Mul", [z, g.add("Sigmoid", [z], f"layer{layer}_gate")], f"layer{layer}")
        layer += 1
    return x


def _heads(g: Graph, arrays: Mapping[str, F32], spec: BehaviorSpec, hidden: str) -> list[str]:
    """One masked softmax per branch: logits * m + (1e8 * m - 1e8), m = 1 where the action is allowed.

    Beside an allowed action a forbidden one has probability 0, exactly. Where a branch allows nothing at all, its
    actions are equally likely: a distribution, not NaN.
    """
    penalty = g.constant("mask_penalty", np.array([MASK_PENALTY], np.float32))
    outputs = []
    for b in range(len(spec.branches)):
        low, high = (int(v) for v in spec.branch_offsets[b : b + 2])
        weight = g.constant(f"branch{b}_weight", arrays[f"branch{b}_weight"])
        bias = g.constant(f"branch{b}_bias", arrays[f"branch{b}_bias"])
        logits = g.add("Gemm", [hidden, weight, bias], f"branch{b}_logits", transB=1)
        mask = g.add("Slice", ["action_masks"], f"branch{b}_mask", axes=[1], starts=[low], ends=[high])
        # The mask stands first: engines that fold `constant - x` into `x - constant` would turn it around.
        lowered = g.add("Sub", [g.add("Mul", [mask, penalty], f"branch{b}_raised"), penalty], f"branch{b}_lowered")
        allowed = g.add("Mul", [logits, mask], f"branch{b}_allowed")
        masked = g.add("Add", [allowed, lowered], f"branch{b}_masked")
        outputs.append(g.add("Softmax", [masked], f"branch{b}_probabilities", axis=1))
    return outputs


def _actions(g: Graph, spec: BehaviorSpec, probabilities: list[str]) -> None:
    """Draws and best choices. log(0) = -infinity is what Multinomial never draws."""
    sampled, best = [], []
    for b, p in enumerate(probabilities):
        log_p = g.add("Log", [p], f"branch{b}_log")
        sampled.append(g.add("Multinomial", [log_p], f"branch{b}_sampled", dtype=TensorProto.INT64, sample_size=1))
        best.append(g.add("ArgMax", [p], f"branch{b}_best", axis=1, keepdims=1))
    g.add("Concat", sampled, "discrete_actions", axis=1)
    g.add("Concat", best, "deterministic_discrete_actions", axis=1)
    g.add("Concat", probabilities, "action_probabilities", axis=1)


def _outputs(g: Graph, spec: BehaviorSpec) -> list[onnx.ValueInfoProto]:
    A = len(spec.branches)
    for name, value in (
        ("version_number", np.array([MODEL_VERSION], np.float32)),
        ("memory_size", np.array([0.0], np.float32)),
        ("discrete_action_output_shape", np.array([spec.branches], np.float32)),
    ):
        g.add("Identity", [g.constant(f"{name}_value", value)], name)
    return [
        _floats("version_number", [1]),
        _floats("memory_size", [1]),
        helper.make_tensor_value_info("discrete_actions", TensorProto.INT64, ["batch", A]),
        _floats("discrete_action_output_shape", [1, A]),
        helper.make_tensor_value_info("deterministic_discrete_actions", TensorProto.INT64, ["batch", A]),
        _floats("action_probabilities", ["batch", sum(spec.branches)]),
    ]
