"""What runs inside a locked process: one stranger's models, opened, examined or asked. Imports nothing after its lock.

The other end is `palus.arena.locked.sandbox`. Everything said here may be a lie of the model that took the process
over: the referee's side checks sizes and values and believes nothing else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from onnx import ModelProto, TensorProto

from palus.arena.locked.frames import OUT_OF_MEMORY, Kind, Rows, Task, read_frame, write_frame
from palus.arena.locked.probe import probe, probe_rows
from palus.arena.models.computation import computation_of
from palus.arena.models.grammar import check_padding
from palus.arena.models.policies import PolicySession, fails_when_run
from palus.arena.models.policy_graph import PolicyGraph, read_policy
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import arena_rules
from palus.nn.graph import Graph, PolicyOutputs, close_policy, mlp_policy, open_policy
from palus.types import F32, ActionSpec, AnyArray, BehaviorSpec, Discrete, ObservationSpec

_POLICY = BehaviorSpec.of_vectors("Sample", (3, 2), (2, 2))
_RECURRENT = BehaviorSpec(
    "Remembering",
    (ObservationSpec("obs", (1, 8, 8), "uint8"), ObservationSpec("numbers", (2,))),
    ActionSpec((Discrete(2), Discrete(3))),
)
"""What harmless small models play, one of each kind that is played: a locked process is warmed up with them."""
_STATE = 4


@dataclass(frozen=True)
class OpenedModel:
    """rows: of questions. graph: what of the file is run, in the session."""

    rows: Rows
    graph: PolicyGraph
    session: PolicySession

    def answer(self, questions: AnyArray) -> F32:
        """[rows, sum(branches) + S] to questions as `rows` lays them out."""
        probabilities, states = self.session.answer(*self.rows.unpack(questions))
        return np.concatenate([probabilities, states], axis=1) if self.graph.state_size else probabilities

    def probabilities(self, questions: AnyArray) -> F32:
        """The answers without the memory."""
        return self.answer(questions)[:, : sum(self.rows.behavior.branches)]


def open_model(data: bytes, behavior: BehaviorSpec) -> OpenedModel:
    """Check a file by the arena's rules and open it. Raises RefusedError."""
    graph = read_policy(data, "", behavior, arena_rules(any(o.is_image for o in behavior.observations)))
    return OpenedModel(Rows(behavior, graph.state_size), graph, PolicySession(graph, behavior, ""))


def warm_up() -> None:
    """Open, examine and refuse harmless models, so that nothing is left to be imported or looked up afterwards."""
    for model, behavior in ((_policy(), _POLICY), (_recurrent(), _RECURRENT)):
        data = model.SerializeToString()
        _examine(open_model(data, behavior), len(data), np.inf)
        for broken in (b"", b"\x08\x04\x3a\xff"):
            with contextlib.suppress(RefusedError):
                open_model(broken, behavior)
        with contextlib.suppress(RefusedError):
            open_model(data, BehaviorSpec.of_vectors("Other", (1, 1), (2, 2)))


def serve(channel: int, isolation: str) -> None:
    """Say how locked this process is, take a task and its models, report, then answer questions until the end.

    channel: descriptor of a socket, see `frames`. Raises EOFError or OSError when the other end is gone.
    """
    _report(channel, isolation=isolation)
    task = Task.model_validate_json(read_frame(channel)[1])
    models, details = list[OpenedModel](), list[dict[str, object]]()
    try:
        files = [read_frame(channel)[1] for _ in task.behaviors]
        for behavior, data in zip(task.behaviors, files, strict=True):
            model = open_model(data, behavior)
            if task.examine_up_to_ms is not None:
                details.append(_examine(model, len(data), task.examine_up_to_ms))
            models.append(model)
    except RefusedError as error:
        _report(channel, refusal=asdict(task.about(len(models), error.refusal)))
        return
    except MemoryError:
        write_frame(channel, Kind.FAILED, OUT_OF_MEMORY.encode())
        return
    _report(channel, details=details, state_sizes=[model.graph.state_size for model in models])
    while True:
        _answer(channel, models)


def _report(channel: int, **facts: object) -> None:
    write_frame(channel, Kind.REPORT, json.dumps(facts).encode())


def _answer(channel: int, models: Sequence[OpenedModel]) -> None:
    asked = read_frame(channel)[1]
    model = models[asked[-1]]
    questions = np.frombuffer(asked, np.uint8, len(asked) - 1).reshape(-1, model.rows.question_bytes)
    try:
        answer = model.answer(questions)
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        write_frame(channel, Kind.FAILED, str(error).splitlines()[0][:200].encode())
        return
    write_frame(channel, Kind.PROBABILITIES, np.ascontiguousarray(answer, np.float32).tobytes())


def _examine(model: OpenedModel, file_bytes: int, up_to_ms: float) -> dict[str, object]:
    """Probe the model; returns what there is to say of it. Raises RefusedError."""
    check_padding(file_bytes, len(model.graph.model))
    rng = np.random.default_rng()  # of the system's randomness, which nobody knows beforehand
    try:
        report = probe(model.probabilities, probe_rows(model.rows, rng), model.rows, up_to_ms, rng)
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        if "alloc" in str(error).lower():
            raise MemoryError from error
        raise fails_when_run(error) from error
    graph = model.graph
    facts = {name: getattr(graph, name) for name in ("nodes", "parameters", "opset", "producer")}
    return facts | asdict(report) | {"computation": computation_of(graph.model)}


def _policy() -> ModelProto:
    shapes = {"layer0": (4, 5), "branch0": (2, 4), "branch1": (2, 4)}
    arrays: dict[str, F32] = {}
    for name, shape in shapes.items():
        arrays[f"{name}_weight"], arrays[f"{name}_bias"] = np.ones(shape, np.float32), np.zeros(shape[0], np.float32)
    return mlp_policy(arrays, _POLICY)


def _recurrent() -> ModelProto:
    """A convolution, a layer, a GRU and two softmaxes."""
    g, behavior = Graph(), _RECURRENT
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
    return close_policy(g, behavior, PolicyOutputs(tuple(heads), None, x), _STATE, {})
