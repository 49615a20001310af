"""ONNX models, collected node by node, and the one layout of a policy's file. No torch here.

Inputs, in this order: every observation under its name [batch, *shape], uint8 or float32 as the game gives it;
`action_masks` [batch, M], 1 where a choice is allowed; `recurrent_in` [batch, S], zeros at an episode's start.
Outputs: ML-Agents' `version_number`, `memory_size`, drawn and likeliest actions with their shapes, `recurrent_out`;
then `action_probabilities` [batch, M], `action_means` and `action_deviations` [batch, numbers], from which an arena
draws with its own seeded generator, and `values` [batch]. What a game or a network does not have is left out. Where the
file's fact `squash` is true, means and deviations are those of numbers before tanh; the actions are after it.

Where the observations have ML-Agents' names obs_0, obs_1, ... the file is one for Unity too: the mask is an input even
if the game forbids nothing, and the memory is [batch, 1, S]. Opset 9 and IR version 4 are the ones that it writes.
Source: ML-Agents 1.1.0 model serialisation and its Unity-side model checks; ONNX operators, version 9.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from palus import __version__
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Continuous, Discrete, GameSpec

OPSET, IR_VERSION = 9, 4
MODEL_VERSION = 3.0
"""`version_number` of ML-Agents 2.x models; Unity rejects files without it."""
FORBIDDEN = -1e8
"""The logit of a forbidden choice: beside an allowed one its probability is 0, exactly. Where a branch allows nothing
at all, its choices are equally likely: a distribution, not NaN."""
LOG_STD_LIMIT = math.log(1e4)
"""Deviations stay within [1e-4, 1e4], as in Sample Factory."""
STATE_INPUT, STATE_OUTPUT = "recurrent_in", "recurrent_out"
_TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Graph:
    """Collects inputs, nodes, constants and outputs; values are called by their names.

    weights: id of a parameter -> its name in the file and its numbers.
    """

    def __init__(self, weights: Mapping[int, tuple[str, F32]] | None = None) -> None:
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._weights, self._stored = weights or {}, set[str]()

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> str:
        """Something that whoever runs the model gives."""
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], list(shape)))
        return name

    def output(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> None:
        """Hand out the value of that name."""
        self.outputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], list(shape)))

    def constant(self, name: str, value: AnyArray) -> str:
        """A tensor stored in the file."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float | Sequence[float]) -> str:
        """A float32 constant [n] under a name of its own."""
        return self.constant(f"number_{len(self.constants)}", np.atleast_1d(np.asarray(value, np.float32)))

    def shape(self, *sizes: int) -> str:
        """The second input of a Reshape: 0 keeps a size, -1 is what is left."""
        return self.constant(f"shape_{len(self.constants)}", np.array(sizes, np.int64))

    def weight(self, parameter: object) -> str:
        """A parameter of the network, stored once."""
        name, value = self._weights[id(parameter)]
        if name not in self._stored:
            self._stored.add(name)
            self.constant(name, value)
        return name

    def weight_array(self, parameter: object) -> F32:
        """The numbers of a parameter, for who stores them in another order."""
        return self._weights[id(parameter)][1]

    def add(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """A node with one output, which carries the node's name too; None makes a name."""
        output = output or f"{op.lower()}_{len(self.nodes)}"
        self.add_all(op, inputs, [output], **attributes)
        return output

    def add_all(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """A node with several outputs, "" for those that nobody wants; its name is the last one's."""
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), name=outputs[-1], **attributes))

    def columns(self, x: str, start: int, stop: int) -> str:
        """x[:, start:stop]."""
        return self.add("Slice", [x], axes=[1], starts=[start], ends=[stop])

    def beside(self, names: Sequence[str]) -> str:
        """Values [batch, ...] side by side."""
        return self.add("Concat", names, axis=1) if len(names) > 1 else names[0]

    def model(self, name: str, props: Mapping[str, str], check: bool = True) -> onnx.ModelProto:
        """The whole. props: facts that go with it. check: raise onnx's ValidationError where it breaks its rules."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="palus",
            producer_version=__version__,
        )
        helper.set_model_props(model, dict(props))
        if check:
            onnx.checker.check_model(model, full_check=True)
        return model


@dataclass(frozen=True)
class PolicyOutputs:
    """Names of what a network computes. parts: for every part of the action its numbers [batch, n], logits or means and
    logarithms of deviations; values: [batch], None without; state: [batch, S] after the decision, None without memory.
    squash: continuous actions pass through tanh.
    """

    parts: tuple[str, ...]
    values: str | None = None
    state: str | None = None
    squash: bool = False


def is_unity_file(spec: BehaviorSpec) -> bool:
    """Whether the observations have ML-Agents' names."""
    return [o.name for o in spec.observations] == [f"obs_{i}" for i in range(len(spec.observations))]


def open_policy(g: Graph, spec: BehaviorSpec, state_size: int) -> str:
    """Declare the inputs of a policy; returns the name of its memory [batch, S], "" without."""
    for o in spec.observations:
        g.input(o.name, ["batch", *o.shape], o.dtype)
    if spec.branches and (spec.actions.masked or is_unity_file(spec)):
        g.input(MASKS, ["batch", sum(spec.branches)])
    if not state_size:
        return ""
    if not is_unity_file(spec):
        return g.input(STATE_INPUT, ["batch", state_size])
    return g.add("Squeeze", [g.input(STATE_INPUT, ["batch", 1, state_size])], axes=[1])


def close_policy(
    g: Graph,
    spec: BehaviorSpec,
    outputs: PolicyOutputs,
    state_size: int,
    props: Mapping[str, str],
    check: bool = True,
) -> onnx.ModelProto:
    """Add what the outputs of a policy need beyond the network, and make the file. check: see `Graph.model`."""
    _fixed(g, "version_number", [MODEL_VERSION])
    _fixed(g, "memory_size", [float(state_size)])
    parts = list(zip(spec.actions.parts, outputs.parts, strict=True))
    gaussians = [_gaussian(g, part, name, outputs.squash) for part, name in parts if isinstance(part, Continuous)]
    numbers = sum(part.size for part, _ in parts if isinstance(part, Continuous))
    if gaussians:
        for name, k in (("continuous_actions", 2), ("deterministic_continuous_actions", 3)):
            g.add("Concat", [gaussian[k] for gaussian in gaussians], name, axis=1)
        g.output("continuous_actions", ["batch", numbers])
        _fixed(g, "continuous_action_output_shape", [float(numbers)])
        g.output("deterministic_continuous_actions", ["batch", numbers])
    probabilities = _probabilities(g, spec, [name for part, name in parts if isinstance(part, Discrete)])
    if probabilities:
        _draws(g, spec, probabilities)
    if outputs.state is not None:
        unity = is_unity_file(spec)
        g.add("Unsqueeze", [outputs.state], STATE_OUTPUT, axes=[1]) if unity else g.add(
            "Identity", [outputs.state], STATE_OUTPUT
        )
        g.output(STATE_OUTPUT, ["batch", 1, state_size] if unity else ["batch", state_size])
    if probabilities:
        g.add("Concat", probabilities, "action_probabilities", axis=1)
        g.output("action_probabilities", ["batch", sum(spec.branches)])
    if gaussians:
        for name, k in (("action_means", 0), ("action_deviations", 1)):
            g.add("Concat", [gaussian[k] for gaussian in gaussians], name, axis=1)
            g.output(name, ["batch", numbers])
    if outputs.values is not None:
        g.add("Identity", [outputs.values], "values")
        g.output("values", ["batch"])
    actions = [{"kind": type(part).__name__.lower(), **asdict(part)} for part in spec.actions.parts]
    facts = {"actions": json.dumps(actions)} | ({"squash": "true"} if gaussians and outputs.squash else {})
    return g.model(spec.name or props.get("game") or "policy", {**facts, **props}, check)


def game_facts(game: GameSpec) -> dict[str, str]:
    """What goes with a file about the game."""
    return {"game": game.env_id, "frameskip": str(game.frameskip)}


def mlp_policy(arrays: Mapping[str, F32], spec: BehaviorSpec) -> onnx.ModelProto:
    """A file of plain layers, for who has weights and no network.

    arrays: `layer<i>_weight` [out, in], `layer<i>_bias` [out], with x * sigmoid(x) between them; `branch<b>_weight`,
    `branch<b>_bias`.
    """
    g = Graph()
    open_policy(g, spec, 0)

    def linear(name: str, x: str) -> str:
        return g.add(
            "Gemm", [x, *(g.constant(f"{name}_{k}", arrays[f"{name}_{k}"]) for k in ("weight", "bias"))], transB=1
        )

    x = g.beside([o.name for o in spec.observations])
    for layer in range(sum(name.startswith("layer") for name in arrays) // 2):
        x = linear(f"layer{layer}", x)
        x = g.add("Mul", [x, g.add("Sigmoid", [x])])
    logits = tuple(linear(f"branch{b}", x) for b in range(len(spec.branches)))
    return close_policy(g, spec, PolicyOutputs(logits), 0, {})


def _fixed(g: Graph, name: str, value: list[float] | list[list[float]]) -> None:
    array = np.array(value, np.float32)
    g.add("Identity", [g.constant(f"{name}_value", array)], name)
    g.output(name, array.shape)


def _probabilities(g: Graph, spec: BehaviorSpec, logits: Sequence[str]) -> list[str]:
    """One softmax per branch, masked: logits * m + (1e8 * m - 1e8), m = 1 where the choice is allowed."""
    masked = MASKS in {value.name for value in g.inputs}
    penalty = g.constant("mask_penalty", np.array([-FORBIDDEN], np.float32)) if masked else ""
    outputs = []
    for b, name in enumerate(logits):
        if masked:
            low, high = (int(v) for v in spec.branch_offsets[b : b + 2])
            mask = g.columns(MASKS, low, high)
            # The mask stands first: engines that fold `constant - x` into `x - constant` would turn it around.
            lowered = g.add("Sub", [g.add("Mul", [mask, penalty]), penalty])
            name = g.add("Add", [g.add("Mul", [name, mask]), lowered])
        outputs.append(g.add("Softmax", [name], f"branch{b}_probabilities", axis=1))
    return outputs


def _draws(g: Graph, spec: BehaviorSpec, probabilities: Sequence[str]) -> None:
    """Draws and best choices. log(0) = -infinity is what Multinomial never draws."""
    drawn, best = [], []
    for p in probabilities:
        log_p = g.add("Log", [p])
        drawn.append(g.add("Multinomial", [log_p], dtype=TensorProto.INT64, sample_size=1))
        best.append(g.add("ArgMax", [p], axis=1, keepdims=1))
    A = len(spec.branches)
    g.add("Concat", drawn, "discrete_actions", axis=1)
    g.output("discrete_actions", ["batch", A], "int64")
    _fixed(g, "discrete_action_output_shape", [[float(n) for n in spec.branches]])
    g.add("Concat", best, "deterministic_discrete_actions", axis=1)
    g.output("deterministic_discrete_actions", ["batch", A], "int64")


def _gaussian(g: Graph, part: Continuous, numbers: str, squash: bool) -> tuple[str, str, str, str]:
    """Means and deviations, then a draw and the means within what the game accepts
    (`palus.nn.distributions.told`)."""
    means = g.columns(numbers, 0, part.size)
    log_std = g.columns(numbers, part.size, 2 * part.size)
    limited = g.add("Clip", [log_std], min=-LOG_STD_LIMIT, max=LOG_STD_LIMIT)
    deviations = g.add("Exp", [limited])
    noise = g.add("Mul", [g.add("RandomNormalLike", [means]), deviations])
    limits: dict[str, Any] = {
        name: value for name, value in (("min", part.low), ("max", part.high)) if np.isfinite(value)
    }
    drawn, best = g.add("Add", [means, noise]), means
    if squash:
        drawn, best = (_stretched(g, part, g.add("Tanh", [x])) for x in (drawn, best))
    drawn, best = (g.add("Clip", [x], **limits) for x in (drawn, best))
    return means, deviations, drawn, best


def _stretched(g: Graph, part: Continuous, x: str) -> str:
    middle, half = part.squashed
    x = g.add("Mul", [x, g.number(half)]) if half != 1.0 else x
    return g.add("Add", [x, g.number(middle)]) if middle != 0.0 else x
