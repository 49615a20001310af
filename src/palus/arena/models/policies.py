"""Policies that the arena can run without torch: ONNX files, league snapshots and the uniform random one.

All turn observation rows into action probabilities and never sample: drawing actions is the referee's business
(`palus.arena.referee.sampling`). A row's probabilities do not depend on the other rows of the batch.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at the import: nobody is told who plays what here
import onnxruntime as ort

from palus.arena.models.policy_file import MASK_INPUT, PROBABILITY_OUTPUT, PolicyGraph, read_policy
from palus.arena.models.refusal import RefusedError
from palus.errors import ModelError
from palus.export.policy_file import model_in
from palus.types import F32, BehaviorSpec

_PROBE_ROWS = 16


class RandomPolicy:
    """Every choice of every branch is equally likely."""

    def __init__(self, behavior: BehaviorSpec) -> None:
        self.name = "random"
        self.sha256: str | None = None
        self._row = np.concatenate([np.full(size, 1.0 / size, np.float32) for size in behavior.branches])

    def probabilities(self, observations: F32) -> F32:
        """[rows, D] -> [rows, sum(branches)]."""
        return np.tile(self._row, (len(observations), 1))


class PolicySession:
    """A checked graph in an onnxruntime session of one thread. origin: how messages call the file, "" for not at all.

    Raises RefusedError when onnxruntime cannot run it.
    """

    def __init__(self, graph: PolicyGraph, behavior: BehaviorSpec, origin: str) -> None:
        self._graph = graph
        self._masks = np.ones((1, sum(behavior.branches)), np.float32)
        self._session = open_session(graph.model, origin)

    def probabilities(self, observations: F32) -> F32:
        """[rows, D] -> [rows, sum(branches)], as the file computes them with every action allowed."""
        rows = len(observations)
        feed = {
            name: np.ascontiguousarray(observations[:, start:stop])
            for name, start, stop in self._graph.observation_inputs
        }
        if self._graph.takes_masks:
            if len(self._masks) < rows:
                self._masks = np.ones((rows, self._masks.shape[1]), np.float32)
            feed[MASK_INPUT] = self._masks[:rows]
        result: F32 = self._session.run([PROBABILITY_OUTPUT], feed)[0]
        return result


class OnnxPolicy:
    """An ONNX file that the user names, run in this process. Strangers' files: `palus.arena.locked`.

    Raises ModelError when the file cannot be read, is made for another game, or fails a probe with random inputs.
    """

    def __init__(self, path: Path, behavior: BehaviorSpec, name: str | None = None) -> None:
        data = _read(path)
        self.name = name or path.stem
        self.sha256: str | None = hashlib.sha256(data).hexdigest()
        self._session = PolicySession(read_policy(data, str(path), behavior), behavior, str(path))
        _probe(self, behavior, str(path))

    def probabilities(self, observations: F32) -> F32:
        """[rows, D] -> [rows, sum(branches)], as the file computes them with every action allowed."""
        return self._session.probabilities(observations)


class SnapshotPolicy:
    """A policy's file or a league snapshot (`.npz`): the ONNX model in it, run as every other policy.

    Raises ModelError when there is none, and as `OnnxPolicy` does.
    """

    def __init__(self, path: Path, behavior: BehaviorSpec, name: str | None = None) -> None:
        data = _read(path)
        self.name = name or path.stem
        self.sha256: str | None = hashlib.sha256(data).hexdigest()
        model = model_in(data, str(path))
        self._session = PolicySession(read_policy(model, str(path), behavior), behavior, str(path))
        _probe(self, behavior, str(path))

    def probabilities(self, observations: F32) -> F32:
        """[rows, D] -> [rows, sum(branches)], the softmax of each branch."""
        return self._session.probabilities(observations)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error


def open_session(model: bytes, origin: str) -> Any:
    """An onnxruntime session of one thread. origin: as in `PolicySession`. Raises RefusedError."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        raise RefusedError(
            "cannot-run",
            f"Cannot be run by onnxruntime {ort.__version__} ({str(error).splitlines()[0][:200]}).",
            "Export it again with ML-Agents or palus, and try it once in onnxruntime.",
            origin,
        ) from error


def _probe(policy: OnnxPolicy | SnapshotPolicy, behavior: BehaviorSpec, origin: str) -> None:
    """One pass over random inputs: the output must be a distribution over each branch."""
    rng = np.random.default_rng(0)
    observations = rng.random((_PROBE_ROWS, behavior.observation_size), dtype=np.float32)
    try:
        rows = policy.probabilities(observations)
    except (ValueError, ModelError):
        raise
    except Exception as error:  # onnxruntime raises its own untyped exceptions
        raise ModelError(f"{origin}: fails when it is run ({str(error).splitlines()[0]})") from error
    if rows.shape != (_PROBE_ROWS, sum(behavior.branches)):
        raise ModelError(
            f"{origin}: gives probabilities of shape {rows.shape}, expected {(_PROBE_ROWS, sum(behavior.branches))}: "
            f"the branches of {behavior.name} have {behavior.branches} choices"
        )
    if not np.isfinite(rows).all():
        raise ModelError(f"{origin}: answers NaN or infinity; the training run that wrote it broke")
    ends = np.cumsum(behavior.branches)[:-1]
    sums = np.stack([part.sum(axis=1) for part in np.split(rows, ends, axis=1)], axis=1)
    if rows.min() < 0 or np.abs(sums - 1).max() > 1e-3:
        raise ModelError(
            f"{origin}: its outputs are not probabilities over branches of {behavior.branches} choices "
            f"(a branch sums to {sums.flat[np.abs(sums - 1).argmax()]:.3f})"
        )
