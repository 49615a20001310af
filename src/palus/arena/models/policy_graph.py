"""Opens an ONNX policy from anywhere and makes it tell its action probabilities. Nothing of the file is trusted.

ML-Agents' graphs sample inside, without a seed. A fair, repeatable match needs the probabilities themselves, so the
graph is cut down to what they depend on and they become its output, beside the memory where it has one; weights and
nodes stay as they are.

Read: every observation under its name, or one vector_observation of all numbers in the same order (exports before
mid-2021); with or without action_masks; recurrent_in and recurrent_out of a policy with memory. Written by: ML-Agents
with sampled, sampled and deterministic, or log-probability outputs; palus with `action_probabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper, numpy_helper

from palus.arena.models.grammar import count_parameters, parse_model
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import LOCAL_RULES, Rules
from palus.types import MASKS, BehaviorSpec

VECTOR_INPUT = "vector_observation"
PROBABILITY_OUTPUT = "action_probabilities"
"""What palus's exports call their [batch, sum(branches)] probabilities, and the first output of a `PolicyGraph`."""
STATE_INPUT, STATE_OUTPUT = "recurrent_in", "recurrent_out"
MAX_STATE = 65536
"""Numbers that a policy may remember of an agent."""

_TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}
_RANDOM_OPERATORS = frozenset(
    ("Multinomial", "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
_LOG_OUTPUT = "discrete_actions"
_CONTINUOUS_OUTPUTS = {"continuous_actions", "deterministic_continuous_actions"}
_VERSIONS = (2.0, 3.0)
"""`version_number` of ML-Agents' discrete policies: 2 before mid-2021, 3 since."""

Sizes = tuple[int | str, ...]
"""Of a tensor after its batch; a name where a size is open."""

# onnx is not typed; these names say what is meant.
ModelProto = Any
NodeProto = Any


@dataclass(frozen=True)
class PolicyGraph:
    """A checked policy, ready for an inference session.

    model: serialised ONNX with the outputs `action_probabilities` [batch, sum(branches)] and, with memory,
    `recurrent_out`.
    inputs: what it takes and looks at, besides its memory: names of observations, `action_masks` [batch,
    sum(branches)], 1 = allowed, or `vector_observation`.
    state_sizes: of its memory after the batch, (S,) or ML-Agents' (1, S); () without memory.
    nodes, parameters, opset, producer: of the file as it came, for those who describe it.
    """

    model: bytes
    inputs: tuple[str, ...]
    state_sizes: tuple[int, ...]
    nodes: int
    parameters: int
    opset: int
    producer: str

    @property
    def state_size(self) -> int:
        """Numbers that it remembers, 0 without memory."""
        return self.state_sizes[-1] if self.state_sizes else 0


def read_policy(data: bytes, origin: str, behavior: BehaviorSpec, rules: Rules = LOCAL_RULES) -> PolicyGraph:
    """Check a policy file and expose its action probabilities.

    data: the file's bytes. origin: how messages call it, "" for not at all.
    Raises RefusedError (a ModelError) when the file is corrupt, unsafe, or made for another game.
    """
    try:
        model = parse_model(data, rules)
        inputs = _inputs(model, behavior, rules)
        if rules.needs_version:
            _check_version(model, STATE_INPUT in inputs)
        nodes = list(model.graph.node) + _probability_nodes(model, behavior)
        _check_outputs(model, behavior, inputs.get(STATE_INPUT, (0, ()))[1])
        return _cut_down(model, nodes, inputs, behavior)
    except RefusedError as error:
        raise error.at(origin) from error


Inputs = Mapping[str, tuple[int, tuple[int, ...]]]
"""name -> (type of ONNX, sizes after the batch)."""


def _inputs(model: ModelProto, behavior: BehaviorSpec, rules: Rules) -> Inputs:
    """What a file takes, in one of the accepted layouts."""
    stored = {t.name for t in model.graph.initializer}
    given = {i.name: i for i in model.graph.input if i.name not in stored}
    found = {name: (i.type.tensor_type.elem_type, _shape_of(i)[1:]) for name, i in given.items()}
    own = {o.name: (_TYPES[o.dtype], o.shape) for o in behavior.observations}
    beside: dict[str, tuple[int, tuple[int, ...]]] = {}
    if MASKS in found or behavior.actions.masked:
        beside[MASKS] = TensorProto.FLOAT, (sum(behavior.branches),)
    _, state = found.get(STATE_INPUT, (0, ()))
    if len(state) in (1, 2) and isinstance(state[-1], int) and 1 <= state[-1] <= MAX_STATE:
        beside[STATE_INPUT] = TensorProto.FLOAT, (1, state[-1])[-len(state) :]
    layouts: list[Inputs] = [own | beside]
    if all(o.is_vector and o.dtype == "float32" for o in behavior.observations):
        layouts.append({VECTOR_INPUT: (TensorProto.FLOAT, (behavior.observation_size,)), **beside})
    for layout in layouts:
        if found == layout:
            return layout
    takes = ", ".join(f"{name} {_sizes(_shape_of(i))} {_type_name(i)}" for name, i in given.items()) or "nothing"
    needs = ", ".join(f"{o.name} {_sizes(('batch', *o.shape))} {o.dtype}" for o in behavior.observations)
    memory = "" if rules.needs_version else f" and {STATE_INPUT} [batch, numbers] float32 of up to {MAX_STATE} numbers"
    raise RefusedError(
        "wrong-contract",
        f"Takes {takes}; {behavior.name} needs {needs}, with or without {MASKS} [batch, {sum(behavior.branches)}] "
        f"float32{memory}.",
        "It was trained for another game or with other sensors: "
        f"train it in {behavior.name} with the observations unchanged.",
    )


def _check_version(model: ModelProto, remembers: bool) -> None:
    """ML-Agents' own numbers in the file, read without running it."""
    version, memory = (_constant_output(model, name) for name in ("version_number", "memory_size"))
    if version not in _VERSIONS:
        raise RefusedError(
            "model-version",
            f"Has the version_number {_or_none(version)}; 2 and 3 are played.",
            "Export it with ML-Agents 1.0 or later, or with palus.",
        )
    if memory != 0 or remembers:
        raise RefusedError(
            "recurrent",
            f"Has the memory_size {_or_none(memory)}{' and takes ' + STATE_INPUT if remembers else ''}; it must be 0, "
            "policies with memory are not played.",
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
    outputs = {o.name: _shape_of(o) for o in model.graph.output}
    width = sum(behavior.branches)
    if PROBABILITY_OUTPUT in outputs:
        if not _fit(outputs[PROBABILITY_OUTPUT][1:], (width,)):
            raise _wrong_outputs(outputs, behavior, f"; {behavior.name} needs {PROBABILITY_OUTPUT} [batch, {width}]")
        return []
    softmaxes = _softmax_of_each_branch(model, len(behavior.branches))
    if softmaxes:
        return [helper.make_node("Concat", softmaxes, [PROBABILITY_OUTPUT], axis=1)]
    floats = any(
        o.name == _LOG_OUTPUT and o.type.tensor_type.elem_type == TensorProto.FLOAT for o in model.graph.output
    )
    if floats and outputs[_LOG_OUTPUT][-1:] == (width,):
        return [helper.make_node("Exp", [_LOG_OUTPUT], [PROBABILITY_OUTPUT])]
    if _LOG_OUTPUT not in outputs and _CONTINUOUS_OUTPUTS & outputs.keys():
        needed = f"discrete ones with {' x '.join(map(str, behavior.branches))} choices"
        raise _wrong_outputs(outputs, behavior, f": its actions are continuous; {behavior.name} needs {needed}")
    branches = f"the {len(behavior.branches)} action branches of {behavior.name}"
    forms = f"{_LOG_OUTPUT} with a Softmax for each, or {PROBABILITY_OUTPUT} [batch, {width}]"
    raise _wrong_outputs(outputs, behavior, f", from which no probabilities of {branches} can be read; needs {forms}")


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


def _check_outputs(model: ModelProto, behavior: BehaviorSpec, state_sizes: tuple[int, ...]) -> None:
    """A policy that remembers gives back as much as it takes."""
    outputs = {o.name: _shape_of(o) for o in model.graph.output}
    if state_sizes and not _fit(outputs.get(STATE_OUTPUT, ())[1:], state_sizes):
        memory = f"{STATE_OUTPUT} {_sizes(('batch', *state_sizes))}"
        probabilities = f"{PROBABILITY_OUTPUT} [batch, {sum(behavior.branches)}]"
        raise _wrong_outputs(outputs, behavior, f"; {behavior.name} needs {probabilities} and {memory}")


def _fit(found: Sizes, wanted: tuple[int, ...]) -> bool:
    """Whether sizes after the batch are these; open ones are."""
    return len(found) == len(wanted) and all(isinstance(f, str) or f == w for f, w in zip(found, wanted, strict=True))


def _wrong_outputs(outputs: dict[str, Sizes], behavior: BehaviorSpec, fault: str) -> RefusedError:
    gives = ", ".join(f"{name} {_sizes(shape)}" for name, shape in outputs.items()) or "nothing"
    advice = f"Export it with ML-Agents or palus for {behavior.name}."
    return RefusedError("wrong-outputs", f"Gives {gives}{fault}.", advice)


def _cut_down(model: ModelProto, nodes: Sequence[NodeProto], inputs: Inputs, behavior: BehaviorSpec) -> PolicyGraph:
    """Keep only what probabilities and memory depend on, so that no sampling node runs."""
    state_sizes = inputs.get(STATE_INPUT, (0, ()))[1]
    outputs: dict[str, Sizes] = {PROBABILITY_OUTPUT: (sum(behavior.branches),)}
    if state_sizes:
        outputs[STATE_OUTPUT] = state_sizes
    kept, needed = _nodes_behind(nodes, set(outputs))
    _check_draws(kept)
    used = {name: kind for name, kind in inputs.items() if name in needed or name == STATE_INPUT}
    graph = helper.make_graph(
        kept,
        "policy",
        [helper.make_tensor_value_info(name, kind, ["batch", *sizes]) for name, (kind, sizes) in used.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *sizes]) for name, sizes in outputs.items()],
        [t for t in model.graph.initializer if t.name in needed],
    )
    cut = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))
    return PolicyGraph(
        model=cut.SerializeToString(),
        inputs=tuple(name for name in used if name != STATE_INPUT),
        state_sizes=state_sizes,
        nodes=len(model.graph.node),
        parameters=count_parameters(model),
        opset=max(opset.version for opset in model.opset_import),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:80],
    )


def _check_draws(nodes: Sequence[NodeProto]) -> None:
    """Refuse probabilities that depend on chance. Read from the graph: asking could miss what rarely shows."""
    drawn = sorted({node.op_type for node in nodes} & _RANDOM_OPERATORS)
    if drawn:
        raise RefusedError(
            "not-repeatable",
            f"Draws at random ({', '.join(drawn)}) before its probabilities.",
            "Probabilities must be computed without drawing at random: the arena draws the actions.",
        )


def _nodes_behind(nodes: Sequence[NodeProto], outputs: set[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes on which these outputs depend, in order, and the names of all values that those take or give."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):  # ONNX nodes are in topological order
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    return kept[::-1], needed


def _shape_of(value: Any) -> Sizes:
    """Of an input or output: sizes, and names of those that are open."""
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)


def _sizes(shape: Sizes) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _type_name(value: Any) -> str:
    name = str(TensorProto.DataType.Name(value.type.tensor_type.elem_type)).lower()
    return "float32" if name == "float" else name
