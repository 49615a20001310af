"""Policies that the arena can run without torch: ONNX files, those in league snapshots, and the uniform random one.

All turn observations into action probabilities and never sample: drawing actions is the referee's business
(`palus.arena.referee.sampling`). A row's answer does not depend on the other rows of the batch, and nothing is kept
between calls: the referee carries each agent's memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
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
from palus.threads import after
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Bool, GameSpec

_PROBE_ROWS = 16
PROBE_BYTES = 1 << 30
"""What a file that the user names may take for `_PROBE_ROWS` observations, weights included: a file of kilobytes can
compute with tensors of gigabytes, for hours."""
PROBE_S = 60.0
"""The same on the clock; a busy machine is no file's fault."""

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
    limited: to `PROBE_BYTES`, and each answer to `PROBE_S`.

    Raises RefusedError when onnxruntime cannot run it.
    """

    def __init__(self, graph: PolicyGraph, behavior: BehaviorSpec, origin: str, *, limited: bool = False) -> None:
        self._graph = graph
        self._names = [o.name for o in behavior.observations]
        self._choices = sum(behavior.branches)
        self._outputs = [PROBABILITY_OUTPUT, STATE_OUTPUT] if graph.state_size else [PROBABILITY_OUTPUT]
        self._session, self._limited = open_session(graph.model, origin, limited=limited), limited

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As the file computes it. masks: None where every action is allowed."""
        found = self._run(self.feed(observations, states, masks))
        return found[0], found[1].reshape(states.shape) if self._graph.state_size else states

    def feed(self, observations: Observations, states: F32, masks: Bool | None) -> dict[str, AnyArray]:
        """The inputs of the graph: name -> [rows, ...]."""
        feed = {name: observations[name] for name in self._graph.inputs if name in observations}
        if VECTOR_INPUT in self._graph.inputs and not feed:
            feed[VECTOR_INPUT] = np.concatenate([observations[name] for name in self._names], axis=1)
        if MASKS in self._graph.inputs:
            every = np.ones((len(states), self._choices), np.float32)
            feed[MASKS] = every if masks is None else masks.astype(np.float32)
        if self._graph.state_size:
            feed[STATE_INPUT] = states.reshape(-1, *self._graph.state_sizes)
        return feed

    def _run(self, feed: Mapping[str, AnyArray]) -> Any:
        if not self._limited:
            return self._session.run(self._outputs, feed)
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        with after(PROBE_S, lambda: setattr(options, "terminate", True)):
            return self._session.run(self._outputs, feed, options)


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
        for limited in (True, False):
            self._session = PolicySession(graph, behavior, str(path), limited=limited)
            try:
                _probe(self, behavior)
            except RefusedError as error:
                raise error.at(str(path)) from error

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`."""
        return self._session.answer(observations, states, masks)


@cache
def _limit_memory() -> None:
    """For the sessions of this process that ask for its allocator, together."""
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg({"max_mem": PROBE_BYTES, "arena_extend_strategy": 1}))


def open_session(model: bytes, origin: str, *, limited: bool = False) -> Any:
    """An onnxruntime session of one thread. origin, limited: as in `PolicySession`. Raises RefusedError."""
    options = ort.SessionOptions()
    if limited:
        _limit_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Else what depends on constants alone would be computed when the session opens, outside of that memory.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
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


def check_answers(answers: F32, rows: int, behavior: BehaviorSpec) -> None:
    """Whether they are distributions over each branch. rows: of the observations that were answered.

    Raises RefusedError: "wrong-outputs", "nan-output" or "not-probabilities".
    """
    choices = behavior.branches
    expected = (rows, sum(choices))
    if answers.shape != expected or answers.dtype != np.float32:
        raise RefusedError(
            "wrong-outputs",
            f"Gives probabilities of shape {answers.shape} and type {answers.dtype} for {rows} observations; "
            f"expected {expected} and float32: the branches of {behavior.name} have {choices} choices.",
            f"Export it with ML-Agents or palus for {behavior.name}.",
        )
    if not np.isfinite(answers).all():
        raise RefusedError(
            "nan-output",
            f"Answers NaN or infinity to {int((~np.isfinite(answers)).any(axis=1).sum())} of {rows} observations.",
            "The training run that wrote it broke: export an earlier checkpoint.",
        )
    sums = np.add.reduceat(answers, behavior.branch_offsets[:-1], axis=1)
    bad = (np.abs(sums - 1.0) >= 1e-3).any(axis=1) | (answers < 0).any(axis=1)
    if bad.any():
        raise RefusedError(
            "not-probabilities",
            f"Answers {int(bad.sum())} of {rows} observations with numbers that are negative or do not sum to 1 in "
            f"each of the branches of {choices} choices.",
            "Let every branch end in a Softmax, as ML-Agents' and palus's exports do.",
        )


def fails_when_run(error: Exception) -> RefusedError:
    """What onnxruntime's untyped exceptions mean, once its session stands."""
    reason = str(error).splitlines()[0][:200]
    advice = "Try it in onnxruntime with a batch of 4 observations."
    if "Available memory" in str(error):
        found = f"Needs more than {PROBE_BYTES >> 20} MiB of memory for {_PROBE_ROWS} observations."
        return RefusedError("out-of-memory", found, "Export a smaller network.")
    if "terminate flag" in str(error):
        found = f"Takes more than {PROBE_S:g} s for {_PROBE_ROWS} observations."
        return RefusedError("too-slow", found, "Export a smaller network.")
    return RefusedError("cannot-run", f"Fails when it is run ({reason}).", advice)


def _probe(player: OnnxPlayer, behavior: BehaviorSpec) -> None:
    """One pass over random inputs. Raises RefusedError."""
    rng = np.random.default_rng(0)
    seen = {
        o.name: rng.integers(0, 256, (_PROBE_ROWS, *o.shape), np.uint8)
        if o.dtype == "uint8"
        else rng.random((_PROBE_ROWS, *o.shape), dtype=np.float32)
        for o in behavior.observations
    }
    try:
        answers, _ = player.answer(seen, np.zeros((_PROBE_ROWS, player.state_size), np.float32))
    except ValueError:
        raise
    except Exception as error:
        raise fails_when_run(error) from error
    check_answers(answers.astype(np.float32), _PROBE_ROWS, behavior)
