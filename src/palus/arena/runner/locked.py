"""What runs inside a locked process: one stranger's model, opened, examined or asked. Imports nothing after its lock.

The other end is `palus.arena.runner.sandbox`. Everything said here may be a lie of the model that took the process
over: the referee's side checks sizes and values and believes nothing else.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

import numpy as np

from palus.arena.policies import PolicySession
from palus.arena.policy_file import PolicyGraph, read_policy
from palus.arena.runner.frames import OUT_OF_MEMORY, Kind, read_frame, write_frame
from palus.arena.runner.tasks import read_task
from palus.arena.vetting.probe import probe
from palus.arena.vetting.refusal import RefusedError
from palus.arena.vetting.rules import ARENA_RULES
from palus.export.onnx import build_onnx
from palus.types import F32, BehaviorSpec


def warm_up() -> None:
    """Open, examine and refuse harmless models, so that nothing is left to be imported or looked up afterwards."""
    behavior = BehaviorSpec("Sample", (3, 2), (2, 2))
    shapes = {"layer0": (4, 5), "branch0": (2, 4), "branch1": (2, 4)}
    arrays: dict[str, F32] = {}
    for name, shape in shapes.items():
        arrays[f"{name}_weight"], arrays[f"{name}_bias"] = np.ones(shape, np.float32), np.zeros(shape[0], np.float32)
    graph = read_policy(build_onnx(arrays, behavior).SerializeToString(), "", behavior, ARENA_RULES)
    session = PolicySession(graph, behavior, "")
    _examine(graph, session, behavior, np.inf)
    for broken in (b"", b"\x08\x04\x3a\xff"):
        with contextlib.suppress(RefusedError):
            read_policy(broken, "", behavior, ARENA_RULES)
    with contextlib.suppress(RefusedError):
        _examine(graph, session, BehaviorSpec("Other", (1, 1), (2, 2)), np.inf)


def serve(channel: int, isolation: str) -> None:
    """Say how locked this process is, take a task and a model, report, then answer observations until the end.

    channel: descriptor of a socket, see `frames`. Raises EOFError or OSError when the other end is gone.
    """
    write_frame(channel, Kind.REPORT, json.dumps({"isolation": isolation}).encode())
    behavior, up_to_ms = read_task(json.loads(read_frame(channel)[1]))
    try:
        graph = read_policy(read_frame(channel)[1], "", behavior, ARENA_RULES)
        session = PolicySession(graph, behavior, "")
        details = {} if up_to_ms is None else _examine(graph, session, behavior, up_to_ms)
    except RefusedError as error:
        write_frame(channel, Kind.REPORT, json.dumps({"refusal": asdict(error.refusal)}).encode())
        return
    except MemoryError:
        write_frame(channel, Kind.FAILED, OUT_OF_MEMORY.encode())
        return
    write_frame(channel, Kind.REPORT, json.dumps({"refusal": None, "details": details}).encode())
    while True:
        _answer(channel, session, behavior)


def _answer(channel: int, session: PolicySession, behavior: BehaviorSpec) -> None:
    observations = np.frombuffer(read_frame(channel)[1], np.float32).reshape(-1, behavior.observation_size)
    try:
        answer = session.probabilities(observations)
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        write_frame(channel, Kind.FAILED, str(error).splitlines()[0][:200].encode())
        return
    write_frame(channel, Kind.PROBABILITIES, np.ascontiguousarray(answer, np.float32).tobytes())


def _examine(graph: PolicyGraph, session: PolicySession, behavior: BehaviorSpec, up_to_ms: float) -> dict[str, object]:
    """Probe the policy; returns what there is to say of it. Raises RefusedError."""
    try:
        report = probe(session.probabilities, behavior, up_to_ms)
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        if "alloc" in str(error).lower():
            raise MemoryError from error
        reason = str(error).splitlines()[0][:200]
        raise RefusedError(
            "cannot-run", f"Fails when it is run ({reason}).", "Try it in onnxruntime with a batch of 4 observations."
        ) from error
    facts = {"nodes": graph.nodes, "parameters": graph.parameters, "opset": graph.opset, "producer": graph.producer}
    return facts | asdict(report)
