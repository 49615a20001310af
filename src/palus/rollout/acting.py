"""Decides for batches of rows: the acting weights of every policy, recurrent states in and out, counter-based draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from palus.nn.distributions import sample
from palus.rollout.rollout import Policy
from palus.types import F32, I32, I64, MASKS, ActionSpec, AnyArray


@dataclass(frozen=True)
class Decisions:
    """One batch: actions, their log_probs [R, A], parameters [R, L] of the distributions, entropies [R], values [R]
    (0 of policies that give none), states [R, S] after it, versions [R] of the weights."""

    actions: F32
    log_probs: F32
    parameters: F32
    entropies: F32
    values: F32
    states: F32
    versions: I32


class Actor:
    """The acting side of all policies; weights may be exchanged from another thread.

    without_values: policies that act without giving values, as far as they have acted.
    """

    def __init__(self, policies: Mapping[int, Policy], load: Callable[[int], Policy], seed: int) -> None:
        """load: gives a policy that was not published."""
        self._policies = dict(policies)
        self._load = load
        self._seed = seed
        self._lock = threading.Lock()
        self.retired: set[int] = set()
        self.without_values: set[int] = set()
        self.tick = 0  # batches drawn so far; part of the key of every draw

    def publish(self, policy_id: int, policy: Policy) -> None:
        """Use these weights from the next batch on. On return no batch uses the former ones any more."""
        with self._lock:
            self._policies[policy_id] = policy
            self.retired.discard(policy_id)

    def provide(self, wanted: Iterable[int]) -> None:
        """Have these policies at hand. Raises what `load` raises."""
        for policy_id in wanted:
            if policy_id not in self._policies:
                self.publish(policy_id, self._load(policy_id))

    def retire(self, policy_id: int) -> None:
        """Forget a policy with the next `forget` that does not need it."""
        with self._lock:
            self.retired.add(policy_id)

    def forget(self, needed: set[int]) -> None:
        """Drop the retired policies that nobody needs."""
        with self._lock:
            for policy_id in self.retired - needed:
                self._policies.pop(policy_id, None)
                self.retired.discard(policy_id)

    def decide(
        self, observations: Mapping[str, AnyArray], states: F32, ids: I32, rows: I64, spec: ActionSpec
    ) -> Decisions:
        """Draw actions. observations: [R, *shape], masks among them; states: [R, S]; ids: [R]; rows: [R], part of a
        draw's key."""
        with self._lock:
            parameters, values, after, versions = self._forward(observations, states, ids, spec)
        actions, log_probs, entropies = sample(parameters, spec, self._seed, self.tick, rows)
        self.tick += 1
        return Decisions(actions, log_probs, parameters, entropies, values, after, versions)

    def _forward(
        self, observations: Mapping[str, AnyArray], states: F32, ids: I32, spec: ActionSpec
    ) -> tuple[F32, F32, F32, I32]:
        R = len(ids)
        if (ids == ids[0]).all():
            parameters, values, after = self._act(int(ids[0]), observations, states)
            return parameters, values, after, np.full(R, self._policies[int(ids[0])].version, np.int32)
        parameters, values = np.empty((R, spec.parameters), np.float32), np.empty(R, np.float32)
        after, versions = np.empty_like(states), np.empty(R, np.int32)
        for policy_id in np.unique(ids).tolist():
            own = np.flatnonzero(ids == policy_id)
            seen = {name: array[own] for name, array in observations.items()}
            parameters[own], values[own], after[own] = self._act(policy_id, seen, states[own])
            versions[own] = self._policies[policy_id].version
        return parameters, values, after, versions

    def _act(self, policy_id: int, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32, F32]:
        seen = {name: torch.from_numpy(array) for name, array in observations.items()}
        masks = seen.pop(MASKS, None)
        parameters, values, after = self._policies[policy_id].act(seen, torch.from_numpy(states), masks)
        if values is None:
            self.without_values.add(policy_id)
            return parameters.numpy(), np.zeros(len(states), np.float32), after.numpy()
        return parameters.numpy(), values.numpy(), after.numpy()
