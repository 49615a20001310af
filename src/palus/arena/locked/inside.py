"""What runs inside a locked process: one stranger's model, opened, examined or asked. Imports nothing after its lock.

The other end is `palus.arena.locked.sandbox`. Everything said here may be a lie of the model that took the process
over: the referee's side checks sizes and values and believes nothing else.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

import numpy as np

from palus.arena.locked.frames import OUT_OF_MEMORY, Kind, read_frame, write_frame
from palus.arena.locked.opened import OpenedModel, open_model
from palus.arena.locked.probe import probe
from palus.arena.locked.samples import sample_models
from palus.arena.locked.tasks import read_task
from palus.arena.models.computation import computation_of
from palus.arena.models.grammar import check_padding
from palus.arena.models.refusal import RefusedError
from palus.types import BehaviorSpec


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
