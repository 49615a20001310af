"""Opens an ONNX policy from anywhere and makes it tell its action probabilities. Nothing of the file is trusted.

ML-Agents' graphs sample inside, without a seed. A fair, repeatable match needs the probabilities themselves, so the
graph is cut down to what they depend on and they become its only output; weights and nodes stay as they are.

Read: obs_0, obs_1, ... or one vector_observation of the same numbers in the same order (exports before mid-2021), each
with or without action_masks. Written by: ML-Agents with sampled, sampled and deterministic, or log-probability
outputs; palus with `action_probabilities`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from palus.arena.models.grammar import count_parameters, parse_model
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import LOCAL_RULES, Rules
from palus.types import BehaviorSpec

MASK_INPUT = "action_masks"
VECTOR_INPUT = "vector_observation"
PROBABILITY_OUTPUT = "action_probabilities"
"""What palus's exports call their [batch, sum(branches)] probabilities, and the only output of a `PolicyGraph`."""

_RANDOM_OPERATORS = frozenset(
    ("Multinomial", "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
_LOG_OUTPUT = "discrete_actions"
_VERSIONS = (2.0, 3.0)
"""`version_number` of ML-Agents' discrete policies: 2 before mid-2021, 3 since."""

# onnx is not typed; these names say what is meant.
ModelProto = Any
NodeProto = Any


@dataclass(frozen=True)
class PolicyGraph:
    """A checked policy, ready for an inference session.

    model: serialised ONNX whose only output is `action_probabilities` [batch, sum(branches)].
    observation_inputs: (name, start, stop), the columns of an observation row that each input takes.
    takes_masks: the graph also wants `action_masks` [batch, sum(branches)], 1 = allowed.
    nodes, parameters, opset, producer: of the file as it came, for those who describe it.
    """

    model: bytes
    observation_inputs: tuple[tuple[str, int, int], ...]
    takes_masks: bool
    nodes: int
    parameters: int
    opset: int
    producer: str


def read_policy(data: bytes, origin: str, behavior: BehaviorSpec, rules: Rules = LOCAL_RULES) -> PolicyGraph:
    """Check a policy file and expose its action probabilities.

    data: the file's bytes. origin: how messages call it, "" for not at all.
    Raises RefusedError (a ModelError) when the file is corrupt, unsafe, or made for another game.
    """
    try:
        model = parse_model(data, rules)
        inputs = _observation_inputs(model, behavior)
        if rules.needs_version:
            _check_version(model)
        nodes = list(model.graph.node) + _probability_nodes(model, behavior)
        return _cut_down(model, nodes, inputs, behavior)
    except RefusedError as error:
        raise error.at(origin) from error


def _observation_inputs(model: ModelProto, behavior: BehaviorSpec) -> tuple[tuple[str, int], ...]:
    """The layout among the accepted ones that this file has."""
    stored = {t.name for t in model.graph.initializer}
    found = {i.name: shape_of(i) for i in model.graph.input if i.name not in stored}
    float_inputs = all(
        i.type.tensor_type.elem_type == TensorProto.FLOAT for i in model.graph.input if i.name not in stored
    )
    parts = tuple((f"obs_{i}", size) for i, size in enumerate(behavior.observation_sizes))
    for layout in (parts, ((VECTOR_INPUT, behavior.observation_size),)):
        wanted = dict(layout) | ({MASK_INPUT: sum(behavior.branches)} if MASK_INPUT in found else {})
        fits = found.keys() == wanted.keys() and all(
            len(found[name]) == 2 and found[name][1] == size for name, size in wanted.items()
        )
        if fits and float_inputs:
            return layout
    needs = ", ".join(f"{name} [batch, {size}]" for name, size in parts)
    raise RefusedError(
        "wrong-contract",
        f"Takes {describe_values(found)}; {behavior.name} needs float inputs {needs} "
        f"(or {VECTOR_INPUT} [batch, {behavior.observation_size}]) and {MASK_INPUT} [batch, {sum(behavior.branches)}].",
        "It was trained for another game or with other sensors: "
        f"train it in {behavior.name} with the sensors unchanged.",
    )


def _check_version(model: ModelProto) -> None:
    """ML-Agents' own numbers in the file, read without running it."""
    version, memory = (_constant_output(model, name) for name in ("version_number", "memory_size"))
    if version not in _VERSIONS:
        raise RefusedError(
            "model-version",
            f"Has the version_number {_or_none(version)}; 2 and 3 are played.",
            "Export it with ML-Agents 1.0 or later, or with palus.",
        )
    if memory != 0:
        raise RefusedError(
            "recurrent",
            f"Has the memory_size {_or_none(memory)}; it must be 0, policies with memory are not played.",
            "Train without memory: leave `memory` out of network_settings.",
        )


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _constant_output(model: ModelProto, name: str) -> float | None:
    """The number that an output always has; None when the output is missing or has to be computed."""
    if name not in {output.name for output in model.graph.output}:
        return None
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    sources = {}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
        elif node.op_type == "Identity":
            sources[node.output[0]] = node.input[0]
    while name in sources:
        name = sources.pop(name)
    if name not in constants:
        return None
    values = numpy_helper.to_array(constants[name])
    return float(values.item()) if values.size == 1 else None


def _probability_nodes(model: ModelProto, behavior: BehaviorSpec) -> list[NodeProto]:
    """Nodes to add so that the graph computes `action_probabilities`."""
    outputs = {o.name: shape_of(o) for o in model.graph.output}
    width = sum(behavior.branches)
    if PROBABILITY_OUTPUT in outputs:
        return []
    softmaxes = _softmax_of_each_branch(model, len(behavior.branches))
    if softmaxes:
        return [helper.make_node("Concat", softmaxes, [PROBABILITY_OUTPUT], axis=1)]
    floats = any(
        o.name == _LOG_OUTPUT and o.type.tensor_type.elem_type == TensorProto.FLOAT for o in model.graph.output
    )
    if floats and outputs[_LOG_OUTPUT][-1:] == (width,):
        return [helper.make_node("Exp", [_LOG_OUTPUT], [PROBABILITY_OUTPUT])]
    raise RefusedError(
        "wrong-outputs",
        f"Gives {describe_values(outputs)}, from which no probabilities of the {len(behavior.branches)} action "
        f"branches of {behavior.name} can be read.",
        f"Export it with ML-Agents or palus for {behavior.name}.",
    )


def _softmax_of_each_branch(model: ModelProto, branches: int) -> list[str]:
    """Name of the Softmax output that feeds each branch of `discrete_actions`, in its order; empty when unclear.

    Positions in the Concat that makes the output decide the order, not the order of the nodes in the file.
    """
    producer = {name: node for node in model.graph.node for name in node.output}
    name = _LOG_OUTPUT
    while name in producer and producer[name].op_type in ("Identity", "Cast"):
        name = producer[name].input[0]
    if name not in producer:
        return []
    parts = list(producer[name].input) if producer[name].op_type == "Concat" else [name]
    found = [_nearest_softmaxes(part, producer) for part in parts]
    if len(parts) != branches or any(len(f) != 1 for f in found):
        return []
    softmaxes = [f.pop() for f in found]
    return softmaxes if len(set(softmaxes)) == branches else []


def _nearest_softmaxes(name: str, producer: dict[str, NodeProto]) -> set[str]:
    """Outputs of the first Softmax nodes met when walking from a value towards the inputs."""
    found: set[str] = set()
    seen: set[str] = set()
    open_names = [name]
    while open_names:
        current = open_names.pop()
        if current in seen or current not in producer:
            continue
        seen.add(current)
        if producer[current].op_type == "Softmax":
            found.add(current)
        else:
            open_names.extend(producer[current].input)
    return found


def _cut_down(
    model: ModelProto, nodes: Sequence[NodeProto], inputs: tuple[tuple[str, int], ...], behavior: BehaviorSpec
) -> PolicyGraph:
    """Keep only what the probabilities depend on, so that no sampling node runs."""
    kept, needed = nodes_behind(nodes, {PROBABILITY_OUTPUT})
    check_draws(kept)
    width = sum(behavior.branches)
    takes_masks = MASK_INPUT in needed
    stops = np.cumsum([size for _, size in inputs]).tolist()
    used = tuple((n, stop - size, stop) for (n, size), stop in zip(inputs, stops, strict=True) if n in needed)
    wanted = [(name, stop - start) for name, start, stop in used] + [(MASK_INPUT, width)] * takes_masks
    graph = helper.make_graph(
        kept,
        "policy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in wanted],
        [helper.make_tensor_value_info(PROBABILITY_OUTPUT, TensorProto.FLOAT, ["batch", width])],
        [t for t in model.graph.initializer if t.name in needed],
    )
    cut = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))
    return PolicyGraph(
        model=cut.SerializeToString(),
        observation_inputs=used,
        takes_masks=takes_masks,
        nodes=len(model.graph.node),
        parameters=count_parameters(model),
        opset=max(opset.version for opset in model.opset_import),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:80],
    )


def check_draws(nodes: Sequence[NodeProto]) -> None:
    """Refuse probabilities that depend on chance. Read from the graph: asking could miss what rarely shows."""
    drawn = sorted({node.op_type for node in nodes} & _RANDOM_OPERATORS)
    if drawn:
        raise RefusedError(
            "not-repeatable",
            f"Draws at random ({', '.join(drawn)}) before its probabilities.",
            "Probabilities must be computed without drawing at random: the arena draws the actions.",
        )


def nodes_behind(nodes: Sequence[NodeProto], outputs: set[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes on which these outputs depend, in order, and the names of all values that those take or give."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):  # ONNX nodes are in topological order
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    return kept[::-1], needed


def shape_of(value: Any) -> tuple[int | str, ...]:
    """Of an input or output: sizes, and names of those that are open."""
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)


def describe_values(values: dict[str, tuple[int | str, ...]]) -> str:
    """Names and shapes for a message."""
    return ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in values.items()) or "nothing"
