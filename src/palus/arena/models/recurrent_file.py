"""Opens the ONNX file of an agent with pictures, measurements and memory. Nothing of the file is trusted.

The sister of `palus.arena.models.policy_file` for sampled games. Read is what `palus.nn.graph` lays out: every
observation under its name, `recurrent_in` and `recurrent_out` where the agent remembers, `action_probabilities`; the
graph is cut down to what those outputs depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper

from palus.arena.models.grammar import count_parameters, parse_model
from palus.arena.models.policy_file import PROBABILITY_OUTPUT, check_draws, describe_values, nodes_behind, shape_of
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import LOCAL_RULES, Rules
from palus.errors import ModelError
from palus.types import ActionSpec, Discrete, GameSpec

STATE_INPUT, STATE_OUTPUT = "recurrent_in", "recurrent_out"
MAX_STATE = 65536
_TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}

# onnx is not typed; this name says what is meant.
ModelProto = Any


@dataclass(frozen=True)
class RecurrentGraph:
    """A checked agent, ready for an inference session.

    model: serialised ONNX with the outputs `action_probabilities` and, with memory, `recurrent_out`.
    observations: names of those that the graph looks at.   state_size: numbers that it remembers, 0 without memory.
    nodes, parameters, opset, producer: of the file as it came, for those who describe it.
    """

    model: bytes
    observations: tuple[str, ...]
    state_size: int
    nodes: int
    parameters: int
    opset: int
    producer: str


def read_recurrent(data: bytes, origin: str, spec: GameSpec, rules: Rules = LOCAL_RULES) -> RecurrentGraph:
    """Check an agent's file and keep what decides its actions.

    data: the file's bytes. origin: how messages call it, "" for not at all.
    Raises RefusedError (a ModelError) when the file is corrupt, unsafe, or made for another game.
    """
    try:
        model = parse_model(data, rules)
        state_size = _check_inputs(model, spec)
        _check_outputs(model, spec, state_size)
        return _cut_down(model, spec, state_size)
    except RefusedError as error:
        raise error.at(origin) from error


def choices_of(actions: ActionSpec) -> tuple[int, ...]:
    """Choices of every part. Raises ModelError where a part is continuous: nothing could be drawn from it here."""
    sizes = tuple(part.choices for part in actions.parts if isinstance(part, Discrete))
    if len(sizes) != len(actions.parts):
        raise ModelError("games with continuous actions are not played in the arena; choose one with discrete actions")
    return sizes


def _check_inputs(model: ModelProto, spec: GameSpec) -> int:
    """The size of the memory of a model that takes what an agent of this game sees."""
    stored = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in stored]
    found = {i.name: (i.type.tensor_type.elem_type, shape_of(i)[1:]) for i in given}
    wanted = {o.name: (_TYPES[o.dtype], o.shape) for o in spec.observations}
    kind, state_shape = found.pop(STATE_INPUT, (TensorProto.FLOAT, (0,)))
    size = state_shape[0] if len(state_shape) == 1 else None
    is_state = kind == TensorProto.FLOAT and isinstance(size, int) and 0 <= size <= MAX_STATE
    if found == wanted and is_state:
        assert isinstance(size, int)
        return size
    needs = ", ".join(f"{o.name} {_shape_text(o.shape)} {o.dtype}" for o in spec.observations)
    takes = ", ".join(f"{i.name} {_shape_text(shape_of(i)[1:])} {_type_name(i)}" for i in given) or "nothing"
    raise RefusedError(
        "wrong-contract",
        f"Takes per agent {takes}; {spec.env_id} needs {needs} and, with memory, {STATE_INPUT} [numbers] float32 of up "
        f"to {MAX_STATE} numbers.",
        f"It was trained for another game or with another resolution: train it in {spec.env_id} with the observations "
        "unchanged and export it with palus.",
    )


def _check_outputs(model: ModelProto, spec: GameSpec, state_size: int) -> None:
    found = {o.name: shape_of(o) for o in model.graph.output}
    width = sum(choices_of(spec.actions))
    remembers = found.get(STATE_OUTPUT, ("", 0))[1:] == (state_size,)
    if found.get(PROBABILITY_OUTPUT, ())[1:] != (width,) or not remembers:
        memory = f" and {STATE_OUTPUT} [batch, {state_size}]" if state_size else f" and no {STATE_OUTPUT}"
        raise RefusedError(
            "wrong-outputs",
            f"Gives {describe_values(found)}; {spec.env_id} needs {PROBABILITY_OUTPUT} [batch, {width}]{memory}.",
            f"Train it in {spec.env_id} and export it with palus.",
        )


def _cut_down(model: ModelProto, spec: GameSpec, state_size: int) -> RecurrentGraph:
    outputs = {PROBABILITY_OUTPUT: sum(choices_of(spec.actions))} | ({STATE_OUTPUT: state_size} if state_size else {})
    kept, needed = nodes_behind(list(model.graph.node), set(outputs))
    check_draws(kept)
    inputs = [
        helper.make_tensor_value_info(o.name, _TYPES[o.dtype], ["batch", *o.shape])
        for o in spec.observations
        if o.name in needed
    ]
    if state_size:
        inputs.append(helper.make_tensor_value_info(STATE_INPUT, TensorProto.FLOAT, ["batch", state_size]))
    graph = helper.make_graph(
        kept,
        "recurrent",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in outputs.items()],
        [t for t in model.graph.initializer if t.name in needed],
    )
    cut = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))
    return RecurrentGraph(
        model=cut.SerializeToString(),
        observations=tuple(o.name for o in spec.observations if o.name in needed),
        state_size=state_size,
        nodes=len(model.graph.node),
        parameters=count_parameters(model),
        opset=max(opset.version for opset in model.opset_import),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:80],
    )


def _shape_text(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _type_name(value: Any) -> str:
    return str(TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower().replace("float", "float32"))
