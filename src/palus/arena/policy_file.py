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
import onnx
from onnx import TensorProto, checker, helper, numpy_helper

from palus.errors import ModelError
from palus.types import BehaviorSpec

MAX_BYTES = 64 * 2**20
MASK_INPUT = "action_masks"
VECTOR_INPUT = "vector_observation"
PROBABILITY_OUTPUT = "action_probabilities"
"""What palus's exports call their [batch, sum(branches)] probabilities, and the only output of a `PolicyGraph`."""

_LOG_OUTPUT = "discrete_actions"
_DEFAULT_DOMAINS = ("", "ai.onnx")

# onnx is not typed; these names say what is meant.
ModelProto = Any
NodeProto = Any


@dataclass(frozen=True)
class PolicyGraph:
    """A checked policy, ready for an inference session.

    model: serialised ONNX whose only output is `action_probabilities` [batch, sum(branches)].
    observation_inputs: (name, start, stop), the columns of an observation row that each input takes.
    takes_masks: the graph also wants `action_masks` [batch, sum(branches)], 1 = allowed.
    """

    model: bytes
    observation_inputs: tuple[tuple[str, int, int], ...]
    takes_masks: bool


def read_policy(data: bytes, origin: str, behavior: BehaviorSpec) -> PolicyGraph:
    """Check a policy file and expose its action probabilities.

    data: the file's bytes. origin: how messages call it.
    Raises ModelError when the file is corrupt, unsafe, or made for another game.
    """
    model = _parse(data, origin)
    _refuse_unsafe(model, origin)
    inputs = _observation_inputs(model, origin, behavior)
    nodes = list(model.graph.node) + _probability_nodes(model, origin, behavior)
    return _cut_down(model, nodes, inputs, behavior)


def _parse(data: bytes, origin: str) -> ModelProto:
    if len(data) > MAX_BYTES:
        raise ModelError(
            f"{origin}: {len(data) / 2**20:.0f} MiB; policies of up to {MAX_BYTES // 2**20} MiB are played. "
            "Export a smaller network."
        )
    if data[:2] == b"PK":
        raise ModelError(f"{origin}: this is a PyTorch checkpoint or a zip archive, not ONNX; export it to .onnx first")
    if data.startswith(b"version https://git-lfs"):
        raise ModelError(f"{origin}: this is a Git LFS pointer, not the model itself; run `git lfs pull` and try again")
    try:
        model = onnx.load_model_from_string(data)
        checker.check_model(model)
    except Exception as error:  # besides onnx's own: protobuf's errors, from a package that onnx brings along
        reason = (str(error).strip() or "not an ONNX file").splitlines()[0]
        raise ModelError(f"{origin}: corrupt or not an ONNX model ({reason}); export or download it again") from error
    return model


def _refuse_unsafe(model: ModelProto, origin: str) -> None:
    """Only plain tensors and standard operators: no files beside the model, foreign code, loops, or broken weights."""
    domains = [o.domain for o in model.opset_import] + [n.domain for n in model.graph.node]
    foreign = sorted({d for d in domains if d not in _DEFAULT_DOMAINS})
    if foreign or model.functions:
        what = ", ".join(foreign) or "local functions"
        raise ModelError(f"{origin}: uses operators outside the ONNX standard ({what}); export with standard operators")
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                raise ModelError(f"{origin}: contains control flow ({node.op_type}); policies must be straight graphs")
            if attribute.HasField("t"):
                tensors.append(attribute.t)
    sparse = model.graph.sparse_initializer or any(
        a.HasField("sparse_tensor") for n in model.graph.node for a in n.attribute
    )
    if sparse or any(t.data_location == TensorProto.EXTERNAL or t.external_data for t in tensors):
        raise ModelError(f"{origin}: keeps weights outside the file or sparse; export with all weights inside, dense")
    for tensor in tensors:
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            values = numpy_helper.to_array(tensor)
            if not np.isfinite(values).all():
                name = tensor.name or "a constant"
                raise ModelError(f"{origin}: weight {name} holds NaN or infinity; the training run that wrote it broke")


def _observation_inputs(model: ModelProto, origin: str, behavior: BehaviorSpec) -> tuple[tuple[str, int], ...]:
    """The layout among the accepted ones that this file has."""
    stored = {t.name for t in model.graph.initializer}
    found = {i.name: _shape(i) for i in model.graph.input if i.name not in stored}
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
    raise ModelError(
        f"{origin}: takes {_describe(found)}; {behavior.name} needs float inputs {needs} "
        f"(or {VECTOR_INPUT} [batch, {behavior.observation_size}]) and {MASK_INPUT} [batch, {sum(behavior.branches)}]. "
        "It was trained for another game or with other sensors."
    )


def _probability_nodes(model: ModelProto, origin: str, behavior: BehaviorSpec) -> list[NodeProto]:
    """Nodes to add so that the graph computes `action_probabilities`."""
    outputs = {o.name: _shape(o) for o in model.graph.output}
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
    raise ModelError(
        f"{origin}: gives {_describe(outputs)}, from which no probabilities of the {len(behavior.branches)} action "
        f"branches of {behavior.name} can be read. Export it with ML-Agents or palus for {behavior.name}."
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
    needed = {PROBABILITY_OUTPUT}
    kept = []
    for node in reversed(nodes):  # ONNX nodes are in topological order
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    width = sum(behavior.branches)
    takes_masks = MASK_INPUT in needed
    stops = np.cumsum([size for _, size in inputs]).tolist()
    used = tuple((n, stop - size, stop) for (n, size), stop in zip(inputs, stops, strict=True) if n in needed)
    wanted = [(name, stop - start) for name, start, stop in used] + [(MASK_INPUT, width)] * takes_masks
    graph = helper.make_graph(
        kept[::-1],
        "policy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in wanted],
        [helper.make_tensor_value_info(PROBABILITY_OUTPUT, TensorProto.FLOAT, ["batch", width])],
        [t for t in model.graph.initializer if t.name in needed],
    )
    cut = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))
    return PolicyGraph(cut.SerializeToString(), used, takes_masks)


def _shape(value: Any) -> tuple[int | str, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)


def _describe(values: dict[str, tuple[int | str, ...]]) -> str:
    return ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in values.items()) or "nothing"
