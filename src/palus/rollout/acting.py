"""Decides for batches of rows: the acting weights of every policy, recurrent states in and out, counter-based draws."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from palus.nn.distributions import sample
from palus.types import F32, I32, I64, ActionSpec, AnyArray


class Policy(Protocol):
    """What decides. version: gradient steps behind its weights. state_size: S, 0 without a recurrent core."""

    version: int
    state_size: int

    def act(self, observations: Mapping[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """No gradients. [R, *shape] as games give them, [R, S] -> parameters [R, L], values [R], new states [R, S].

        All float32; values in units of returns. The tensors may be views of memory that is written again later.
        """


@dataclass(frozen=True)
class Decisions:
    """One batch: actions [R, A], their joint log_probs [R], parameters [R, L] of the distributions, entropies [R],
    values [R], states [R, S] after it, versions [R] of the weights, policies [R] ids."""

    actions: F32
    log_probs: F32
    parameters: F32
    entropies: F32
    values: F32
    states: F32
    versions: I32
    policies: I32


class Actor:
    """The acting side of all policies; weights may be exchanged from another thread."""

    def __init__(self, policies: Mapping[int, Policy], spec: ActionSpec, seed: int) -> None:
        self._policies = dict(policies)
        self._spec = spec
        self._seed = seed
        self._lock = threading.Lock()
        self.tick = 0  # batches drawn so far; part of the key of every draw

    @property
    def state_size(self) -> int:
        """S, the same for all policies."""
        return next(iter(self._policies.values())).state_size

    def publish(self, policy_id: int, policy: Policy) -> None:
        """Use these weights from the next batch on. On return no batch uses the former ones any more."""
        with self._lock:
            self._policies[policy_id] = policy

    def decide(self, observations: Mapping[str, AnyArray], states: F32, ids: I32, rows: I64) -> Decisions:
        """Draw actions. observations: [R, *shape]; states: [R, S]; ids: [R]; rows: [R], part of a draw's key."""
        with self._lock:
            parameters, values, after, versions = self._forward(observations, states, ids)
        actions, log_probs, entropies = sample(parameters, self._spec, self._seed, self.tick, rows)
        self.tick += 1
        return Decisions(actions, log_probs, parameters, entropies, values, after, versions, ids)

    def evaluate(self, observations: Mapping[str, AnyArray], states: F32, ids: I32) -> F32:
        """The values [R] that the rows' policies see."""
        with self._lock:
            return self._forward(observations, states, ids)[1]

    def _forward(self, observations: Mapping[str, AnyArray], states: F32, ids: I32) -> tuple[F32, F32, F32, I32]:
        if (ids == ids[0]).all():
            policy = self._policies[int(ids[0])]
            parameters, values, after = _act(policy, observations, states)
            return parameters, values, after, np.full(len(ids), policy.version, np.int32)
        R = len(ids)
        parameters, values = np.empty((R, self._spec.parameters), np.float32), np.empty(R, np.float32)
        after, versions = np.empty_like(states), np.empty(R, np.int32)
        for policy_id in np.unique(ids).tolist():
            policy, own = self._policies[policy_id], np.flatnonzero(ids == policy_id)
            seen = {name: array[own] for name, array in observations.items()}
            parameters[own], values[own], after[own] = _act(policy, seen, states[own])
            versions[own] = policy.version
        return parameters, values, after, versions


def _act(policy: Policy, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32, F32]:
    seen = {name: torch.from_numpy(array) for name, array in observations.items()}
    parameters, values, after = policy.act(seen, torch.from_numpy(states))
    return parameters.numpy(), values.numpy(), after.numpy()
