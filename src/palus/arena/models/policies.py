"""Policies that the arena can run without torch: ONNX files, those in league snapshots, and the uniform random one.

All turn observations into action probabilities and never sample: drawing actions is the referee's business
(`palus.arena.referee.sampling`). A row's answer does not depend on the other rows of the batch, and nothing is kept
between calls: the referee carries each agent's memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at the import: nobody is told who plays what here
import onnxruntime as ort

from palus.arena.models.policy_graph import (
    PROBABILITY_OUTPUT,
    STATE_INPUT,
    STATE_OUTPUT,
    VECTOR_INPUT,
    PolicyGraph,
    read_policy,
)
from palus.arena.models.refusal import RefusedError
from palus.errors import ModelError
from palus.export.policy_file import model_in
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Bool, GameSpec

_PROBE_ROWS = 16

Observations = Mapping[str, AnyArray]
"""name -> [rows, *shape]."""


def played_behaviors(spec: GameSpec) -> tuple[BehaviorSpec, ...]:
    """What the players of a match see and do, called like the game where a behavior has no name.

    Raises ModelError where an action is continuous: nothing could be drawn from it here.
    """
    if not all(behavior.actions.is_discrete for behavior in spec.behaviors):
        raise ModelError("games with continuous actions are not played in the arena; choose one with discrete actions")
    return tuple(BehaviorSpec(b.name or spec.env_id, b.observations, b.actions) for b in spec.behaviors)


class RandomPlayer:
    """Every choice of every branch that is allowed is equally likely."""

    state_size = 0

    def __init__(self, behavior: BehaviorSpec, name: str = "random", sha256: str | None = None) -> None:
        self.name, self.sha256 = name, sha256
        self._row = np.concatenate([np.full(size, 1.0 / size, np.float32) for size in behavior.branches])
        self._starts = behavior.branch_offsets[:-1]
        self._sizes = behavior.branches

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`."""
        if masks is None:
            return np.tile(self._row, (len(states), 1)), states
        allowed = np.repeat(np.add.reduceat(masks, self._starts, axis=1, dtype=np.float32), self._sizes, axis=1)
        return masks / allowed, states


class PolicySession:
    """A checked graph in an onnxruntime session of one thread. origin: how messages call the file, "" for not at all.

    Raises RefusedError when onnxruntime cannot run it.
    """

    def __init__(self, graph: PolicyGraph, behavior: BehaviorSpec, origin: str) -> None:
        self._graph = graph
        self._names = [o.name for o in behavior.observations]
        self._allowed = np.ones((1, sum(behavior.branches)), np.float32)
        self._outputs = [PROBABILITY_OUTPUT, STATE_OUTPUT] if graph.state_size else [PROBABILITY_OUTPUT]
        self._session = open_session(graph.model, origin)

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As the file computes it. masks: None where every action is allowed."""
        feed = {name: observations[name] for name in self._graph.inputs if name in observations}
        if VECTOR_INPUT in self._graph.inputs and not feed:
            feed[VECTOR_INPUT] = np.concatenate([observations[name] for name in self._names], axis=1)
        if MASKS in self._graph.inputs:
            feed[MASKS] = self._all_allowed(len(states)) if masks is None else masks.astype(np.float32)
        if not self._graph.state_size:
            return self._session.run(self._outputs, feed)[0], states
        feed[STATE_INPUT] = states.reshape(-1, *self._graph.state_sizes)
        probabilities, after = self._session.run(self._outputs, feed)
        return probabilities, after.reshape(states.shape)

    def _all_allowed(self, rows: int) -> F32:
        if len(self._allowed) < rows:
            self._allowed = np.ones((rows, self._allowed.shape[1]), np.float32)
        return self._allowed[:rows]


class OnnxPlayer:
    """A file that the user names, run in this process: ONNX, or a policy's file or league snapshot (`.npz`) that holds
    one. Strangers' files: `palus.arena.locked`.

    Raises ModelError when it cannot be read, is made for another game, or fails a probe with random inputs.
    """

    def __init__(self, path: Path, behavior: BehaviorSpec, name: str | None = None) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(
                f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
            ) from error
        self.name = name or path.stem
        self.sha256: str | None = hashlib.sha256(data).hexdigest()
        model = model_in(data, str(path)) if path.suffix == ".npz" else data
        graph = read_policy(model, str(path), behavior)
        self.state_size = graph.state_size
        self._session = PolicySession(graph, behavior, str(path))
        _probe(self, behavior, str(path))

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`."""
        return self._session.answer(observations, states, masks)


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


def _probe(player: OnnxPlayer, behavior: BehaviorSpec, origin: str) -> None:
    """One pass over random inputs: the output must be a distribution over each branch."""
    rng = np.random.default_rng(0)
    seen = {
        o.name: rng.integers(0, 256, (_PROBE_ROWS, *o.shape), np.uint8)
        if o.dtype == "uint8"
        else rng.random((_PROBE_ROWS, *o.shape), dtype=np.float32)
        for o in behavior.observations
    }
    try:
        rows, _ = player.answer(seen, np.zeros((_PROBE_ROWS, player.state_size), np.float32))
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
    sums = np.add.reduceat(rows, behavior.branch_offsets[:-1], axis=1)
    if rows.min() < 0 or np.abs(sums - 1).max() > 1e-3:
        raise ModelError(
            f"{origin}: its outputs are not probabilities over branches of {behavior.branches} choices "
            f"(a branch sums to {sums.flat[np.abs(sums - 1).argmax()]:.3f})"
        )
