"""What PPO and MA-POCA share: the seam that `train.py` holds on to, settings by schedule, and the optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from palus.config import OnPolicyBehavior
from palus.errors import DivergenceError
from palus.learn.adam import Adam
from palus.learn.losses import linear_schedule
from palus.nn.mlp import MlpShape, Normalizer, actor_logits
from palus.nn.parameters import FlatParameters, Shard
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, BehaviorSpec

EVALUATION_ROWS = 2048
"""Rows per critic call outside the update: large enough for full speed, small enough to stay in the cache."""


T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Schedules:
    """Learning rate, clip range and entropy weight at one trainer step."""

    learning_rate: float
    epsilon: float
    beta: float

    @classmethod
    def at(cls, behavior: OnPolicyBehavior, step: int) -> Schedules:
        """Linear ones fall to 1e-10, 0.1 and 1e-5 at max_steps (ML-Agents' minima); constant ones stay."""
        h = behavior.hyperparameters
        rows = (
            (h.learning_rate, h.learning_rate_schedule, 1e-10),
            (h.epsilon, h.epsilon_schedule, 0.1),
            (h.beta, h.beta_schedule, 1e-5),
        )
        return cls(*(v if s == "constant" else linear_schedule(v, low, step, behavior.max_steps) for v, s, low in rows))


@dataclass(frozen=True)
class UpdateStats:
    """Means over the minibatches of one update. baseline_* are None for PPO."""

    policy_loss: float
    value_loss: float
    baseline_loss: float | None
    value_estimate: float
    baseline_estimate: float | None
    kl: float
    clipped: float
    schedules: Schedules


class Learner(Protocol):
    """An algorithm: owns weights, optimiser and shuffling; turns a rollout into an update."""

    actor: Actor
    updates: int

    def update(self, rollout: Rollout, step: int) -> UpdateStats | None:
        """One update from a rollout; `step` is the trainer step for the schedules. None where nobody was active.

        Raises DivergenceError.
        """

    def state_dict(self) -> dict[str, object]:
        """Everything that the next update depends on."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue where `state_dict` was taken. KeyError or RuntimeError when it is of another shape."""


class Actor:
    """The acting half of the weights, as a function and as plain arrays."""

    def __init__(self, parameters: FlatParameters, shape: MlpShape, spec: BehaviorSpec, normalize: bool) -> None:
        self.parameters, self.shape, self.spec = parameters, shape, spec
        self.normalizer = Normalizer(shape.observation_size) if normalize else None

    def inputs(self, observations: Tensor) -> Tensor:
        """Observations as the network reads them: normalised, in its number format."""
        if self.normalizer is not None:
            observations = self.normalizer(observations)
        return observations.to(self.parameters.dtype)

    @torch.inference_mode()
    def __call__(self, observations: Tensor) -> Tensor:
        """[R, D] float32 -> logits [R, sum of branches] float32, without gradient."""
        return actor_logits(self.parameters.tensors, self.shape.num_layers, self.inputs(observations)).float()

    def arrays(self) -> dict[str, F32]:
        """The policy as numpy arrays: the form of snapshots and the input of the ONNX writer.

        `layer<i>_weight` [h, in], `layer<i>_bias` [h], `branch<b>_weight` [size, h], `branch<b>_bias` [size]; with
        normalisation `normalizer_mean` and `normalizer_std` [D].
        """
        tensors = self.parameters.masters("actor_")
        arrays = {k: v.detach().numpy().copy() for k, v in tensors.items() if not k.startswith("heads")}
        offsets = self.spec.branch_offsets
        for b in range(len(self.spec.branches)):
            part = slice(int(offsets[b]), int(offsets[b + 1]))
            arrays[f"branch{b}_weight"] = tensors["heads_weight"][part].detach().numpy().copy()
            arrays[f"branch{b}_bias"] = tensors["heads_bias"][part].detach().numpy().copy()
        if self.normalizer is not None:
            arrays["normalizer_mean"] = self.normalizer.mean32.numpy().copy()
            arrays["normalizer_std"] = self.normalizer.std32.numpy().copy()
        return arrays


def frozen_policy(arrays: Mapping[str, F32], dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A snapshot's arrays (`Actor.arrays`) as a function of observations, in the number format of the run."""
    tensors = {f"actor_{k}": torch.from_numpy(v).to(dtype) for k, v in arrays.items() if k.startswith("layer")}
    num_layers = len(tensors) // 2
    branches = len([k for k in arrays if k.startswith("branch") and k.endswith("_weight")])
    for part in ("weight", "bias"):
        heads = [torch.from_numpy(arrays[f"branch{b}_{part}"]) for b in range(branches)]
        tensors[f"actor_heads_{part}"] = torch.cat(heads).to(dtype)
    normalized = "normalizer_mean" in arrays
    mean = torch.from_numpy(arrays["normalizer_mean"]) if normalized else None
    std = torch.from_numpy(arrays["normalizer_std"]) if normalized else None

    @torch.inference_mode()
    def policy(observations: Tensor) -> Tensor:
        if mean is not None and std is not None:
            observations = ((observations - mean) / std).clamp_(-5.0, 5.0)
        return actor_logits(tensors, num_layers, observations.to(dtype)).float()

    return policy


class DataParallel:
    """Gradient steps on several threads: each takes a part of the minibatch, then a shard of the weights.

    Parts run their operators on one thread each: for networks of this size that scales where threads inside the
    operators do not (measured on 2 cores: 0.9 x for PPO). torch's own thread count has to be 1. Gradients are summed in
    a fixed order, so the same number of threads gives the same bits.
    """

    def __init__(self, parameters: FlatParameters, optimizer: Adam, threads: int) -> None:
        self.parameters, self.optimizer, self.threads = parameters, optimizer, threads
        self.shards = parameters.shards(threads)
        # OpenMP counts threads per calling thread: without this, every operator here would ask for all cores.
        self._pool = ThreadPoolExecutor(threads - 1, "learner", torch.set_num_threads, (1,)) if threads > 1 else None

    def map(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """[work(item) for item in items], the items spread over the threads."""
        if self._pool is None:
            return [work(item) for item in items]
        own = slice(0, None, self.threads)
        waiting = [None if i % self.threads == 0 else self._pool.submit(work, item) for i, item in enumerate(items)]
        mine = iter([work(item) for item in items[own]])
        return [next(mine) if future is None else future.result() for future in waiting]

    def refuse_divergence(self, updates: int) -> None:
        """Raise DivergenceError when a weight is not finite, or a gradient was not: checkpoints on disk stay good."""
        if not (np.isfinite(self.parameters.master.numpy()).all() and np.isfinite(self.optimizer.square).all()):
            raise DivergenceError(
                f"update {updates}: weights or gradients are not finite; lower learning_rate, or check that the game's "
                "observations and rewards are finite, then resume from the last checkpoint"
            )

    def step(self, index: I64, work: Callable[[I64, I64], Part], learning_rate: float) -> tuple[float, ...]:
        """One gradient step on a minibatch; returns its mean statistics.

        index: rows of the minibatch. work: (rows of a part, rows of the minibatch) -> Part; called from several threads
        at once.
        """
        pieces = [piece for piece in np.array_split(index, self.threads) if len(piece)]
        parts = self.map(lambda piece: work(piece, index), pieces)
        self.optimizer.begin(learning_rate)

        def move(shard: Shard) -> None:
            self.parameters.set_gradient([part.gradient for part in parts], shard)
            self.optimizer.move(shard)

        self.map(move, self.shards)
        return tuple(map(sum, zip(*(part.statistics for part in parts), strict=True)))


@dataclass(frozen=True)
class Part:
    """What one thread found for its rows: what they add to the minibatch's gradients, per tensor, and to its means."""

    gradient: tuple[Tensor, ...]
    statistics: tuple[float, ...]


def learner_state(learner: Any) -> dict[str, object]:
    """The state of a learner with `parameters`, `optimizer`, `actor`, `generator` and `updates`."""
    normalizer = learner.actor.normalizer
    return {
        "parameters": learner.parameters.master.detach().clone(),
        "optimizer": learner.optimizer.state_dict(),
        "normalizer": normalizer.state_dict() if normalizer is not None else None,
        "generator": learner.generator.get_state(),
        "updates": learner.updates,
    }


def load_learner_state(learner: Any, state: Mapping[str, Any]) -> None:
    """Put back what `learner_state` took."""
    learner.parameters.load(state["parameters"])
    learner.optimizer.load_state_dict(state["optimizer"])
    if learner.actor.normalizer is not None:
        learner.actor.normalizer.load_state_dict(state["normalizer"])
    learner.generator.set_state(state["generator"])
    learner.updates = int(state["updates"])
