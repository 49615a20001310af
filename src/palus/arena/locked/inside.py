"""What runs inside a locked process: one stranger's model, opened, examined or asked. Imports nothing after its lock.

The other end is `palus.arena.locked.sandbox`. Everything said here may be a lie of the model that took the process
over: the referee's side checks sizes and values and believes nothing else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from palus.arena.locked.frames import OUT_OF_MEMORY, Contract, Kind, read_frame, read_task, write_frame
from palus.arena.locked.probe import probe, probe_observations, probe_rows
from palus.arena.locked.samples import sample_models
from palus.arena.models.computation import computation_of
from palus.arena.models.grammar import check_padding
from palus.arena.models.policies import PolicySession
from palus.arena.models.policy_file import read_policy
from palus.arena.models.recurrent_file import choices_of, read_recurrent
from palus.arena.models.recurrent_players import RecurrentSession, Rows
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import ARENA_RULES, DUEL_RULES
from palus.types import F32, AnyArray, BehaviorSpec, GameSpec


@dataclass(frozen=True)
class OpenedModel:
    """game: what it plays. choices: of each branch or part. state_size: numbers that it remembers.

    columns, dtype: of a row of questions. probes: makes rows to examine it with. answer: rows of questions ->
    [rows, sum(choices) + state_size]. graph: what of the file is run. facts: what there is to say of it.
    """

    game: str
    choices: tuple[int, ...]
    state_size: int
    columns: int
    dtype: type[np.generic]
    probes: Callable[[np.random.Generator], AnyArray]
    answer: Callable[[AnyArray], F32]
    graph: bytes
    facts: dict[str, object]

    def probabilities(self, questions: AnyArray) -> F32:
        """The answers without the memory."""
        return self.answer(questions)[:, : sum(self.choices)] if self.state_size else self.answer(questions)


def open_model(data: bytes, contract: Contract) -> OpenedModel:
    """Check a file by the arena's rules and open it. Raises RefusedError."""
    return _open_recurrent(data, contract) if isinstance(contract, GameSpec) else _open_policy(data, contract)


def _open_policy(data: bytes, behavior: BehaviorSpec) -> OpenedModel:
    graph = read_policy(data, "", behavior, ARENA_RULES)
    return OpenedModel(
        game=behavior.name,
        choices=behavior.branches,
        state_size=0,
        columns=behavior.observation_size,
        dtype=np.float32,
        probes=lambda rng: probe_observations(behavior, rng),
        answer=PolicySession(graph, behavior, "").probabilities,
        graph=graph.model,
        facts={"nodes": graph.nodes, "parameters": graph.parameters, "opset": graph.opset, "producer": graph.producer},
    )


def _open_recurrent(data: bytes, spec: GameSpec) -> OpenedModel:
    graph = read_recurrent(data, "", spec, DUEL_RULES)
    session, rows = RecurrentSession(graph, ""), Rows(spec, graph.state_size)

    def answer(questions: AnyArray) -> F32:
        probabilities, states = session.answer(*rows.unpack(questions))
        return np.concatenate([probabilities, states], axis=1) if graph.state_size else probabilities

    return OpenedModel(
        game=spec.env_id,
        choices=choices_of(spec.actions),
        state_size=graph.state_size,
        columns=rows.question_bytes,
        dtype=np.uint8,
        probes=lambda rng: probe_rows(rows, rng),
        answer=answer,
        graph=graph.model,
        facts={"nodes": graph.nodes, "parameters": graph.parameters, "opset": graph.opset, "producer": graph.producer},
    )


def warm_up() -> None:
    """Open, examine and refuse harmless models, so that nothing is left to be imported or looked up afterwards."""
    for data, contract in sample_models():
        _examine(open_model(data, contract), len(data), np.inf)
        for broken in (b"", b"\x08\x04\x3a\xff"):
            with contextlib.suppress(RefusedError):
                open_model(broken, contract)
        with contextlib.suppress(RefusedError):
            open_model(data, BehaviorSpec.of_vectors("Other", (1, 1), (2, 2)))


def serve(channel: int, isolation: str) -> None:
    """Say how locked this process is, take a task and a model, report, then answer questions until the end.

    channel: descriptor of a socket, see `frames`. Raises EOFError or OSError when the other end is gone.
    """
    write_frame(channel, Kind.REPORT, json.dumps({"isolation": isolation}).encode())
    contract, up_to_ms = read_task(json.loads(read_frame(channel)[1]))
    try:
        data = read_frame(channel)[1]
        model = open_model(data, contract)
        details = {} if up_to_ms is None else _examine(model, len(data), up_to_ms)
    except RefusedError as error:
        write_frame(channel, Kind.REPORT, json.dumps({"refusal": asdict(error.refusal)}).encode())
        return
    except MemoryError:
        write_frame(channel, Kind.FAILED, OUT_OF_MEMORY.encode())
        return
    report = {"refusal": None, "details": details, "state_size": model.state_size}
    write_frame(channel, Kind.REPORT, json.dumps(report).encode())
    while True:
        _answer(channel, model)


def _answer(channel: int, model: OpenedModel) -> None:
    questions = np.frombuffer(read_frame(channel)[1], model.dtype).reshape(-1, model.columns)
    try:
        answer = model.answer(questions)
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        write_frame(channel, Kind.FAILED, str(error).splitlines()[0][:200].encode())
        return
    write_frame(channel, Kind.PROBABILITIES, np.ascontiguousarray(answer, np.float32).tobytes())


def _examine(model: OpenedModel, file_bytes: int, up_to_ms: float) -> dict[str, object]:
    """Probe the model; returns what there is to say of it. Raises RefusedError."""
    check_padding(file_bytes, len(model.graph))
    rng = np.random.default_rng()  # of the system's randomness, which nobody knows beforehand
    try:
        report = probe(model.probabilities, model.probes(rng), model.game, model.choices, up_to_ms, rng)
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        if "alloc" in str(error).lower():
            raise MemoryError from error
        reason = str(error).splitlines()[0][:200]
        raise RefusedError(
            "cannot-run", f"Fails when it is run ({reason}).", "Try it in onnxruntime with a batch of 4 observations."
        ) from error
    return model.facts | asdict(report) | {"computation": computation_of(model.graph)}
