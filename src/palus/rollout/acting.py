"""The acting weights of every policy: batches of rows in, distributions and recurrent states out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from palus.nn.distributions import told
from palus.types import F32, I32, MASKS, ActionSpec, AnyArray


class Policy(Protocol):
    """What decides. version: gradient steps behind its weights. state_size: S, 0 without memory. squash: what it draws
    reaches games through tanh (`palus.nn.distributions.told`)."""

    version: int
    state_size: int
    squash: bool

    def act(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """No gradients. [R, *shape] as games give them, [R, S], [R, M] bool -> parameters [R, L], values [R] or None
        where they would cost a pass of their own, new states [R, S].

        All float32; values in units of returns. Forbidden choices have logits so low that their probability is 0. The
        tensors may be views of memory that is written again later, and lie on the policy's device: who reads them waits
        for it.
        """


def memories(policies: Mapping[int, tuple[str, Policy]]) -> dict[str, int]:
    """Behavior -> floats of memory, the most of any of its policies. policies: id -> behavior and policy."""
    sizes: dict[str, int] = {}
    for behavior, policy in policies.values():
        sizes[behavior] = max(sizes.get(behavior, 0), policy.state_size)
    return sizes


def widened(states: F32, size: int) -> F32:
    """Memories [..., S] with room for `size` floats each: the same array where there is."""
    lacking = size - states.shape[-1]
    return states if lacking <= 0 else np.pad(states, [(0, 0)] * (states.ndim - 1) + [(0, lacking)])


class Policies:
    """All policies by id. Several threads may act side by side, while none is exchanged.

    retired: ids that no seat will name again. without_values: policies that act without giving values, as far as they
    have acted.
    """

    def __init__(self, known: Mapping[int, Policy], load: Callable[[int], Policy]) -> None:
        """load: gives a policy that was not published."""
        self.known = dict(known)
        self._load = load
        self.retired: set[int] = set()
        self.without_values: set[int] = set()

    def __getitem__(self, policy_id: int) -> Policy:
        """Raises what `load` raises."""
        if policy_id not in self.known:
            self.publish(policy_id, self._load(policy_id))
        return self.known[policy_id]

    def publish(self, policy_id: int, policy: Policy) -> None:
        """Use these weights from the next batch on."""
        self.known[policy_id] = policy
        self.retired.discard(policy_id)

    def forget(self, needed: set[int]) -> None:
        """Drop the retired policies that nobody needs."""
        for policy_id in self.retired - needed:
            self.known.pop(policy_id, None)
            self.retired.discard(policy_id)

    def act(
        self, observations: Mapping[str, AnyArray], states: F32, ids: I32, parameters_each: int
    ) -> tuple[F32, F32, F32, I32]:
        """Parameters [R, L], values [R] (0 of policies that give none), states after it, versions [R] of the weights.

        observations: [R, *shape], masks among them; states: [R, S]; ids: [R], all at hand; parameters_each: L.
        """
        R = len(ids)
        if (ids == ids[0]).all():
            found = self._act(int(ids[0]), observations, states)
            return *found, np.full(R, self.known[int(ids[0])].version, np.int32)
        parameters, values = np.empty((R, parameters_each), np.float32), np.empty(R, np.float32)
        after, versions = np.empty_like(states), np.empty(R, np.int32)
        for policy_id in np.unique(ids).tolist():
            own = np.flatnonzero(ids == policy_id)
            seen = {name: array[own] for name, array in observations.items()}
            parameters[own], values[own], after[own] = self._act(policy_id, seen, states[own])
            versions[own] = self.known[policy_id].version
        return parameters, values, after, versions

    def told(self, actions: F32, ids: I32, spec: ActionSpec) -> F32:
        """What games are told where these policies drew `actions` [R, A]. ids: [R], all at hand."""
        if spec.is_discrete:
            return actions
        squashing = np.isin(ids, [k for k in np.unique(ids).tolist() if self.known[k].squash])
        return np.where(squashing[:, None], told(actions, spec, True), told(actions, spec, False))

    def _act(self, policy_id: int, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32, F32]:
        parameters, values, after = decide(self.known[policy_id], observations, states)
        if values is None:
            self.without_values.add(policy_id)
            values = np.zeros(len(states), np.float32)
        return parameters, values, after


def decide(policy: Policy, seen: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32 | None, F32]:
    """Parameters [R, L], values [R] where acting gives them, memories [R, S] after it.

    seen: [R, *shape], masks among them. states: [R, S]; a policy that remembers less takes its part from the left: a
    snapshot has no critic's memory. What comes back are views that hold until the policy acts again.
    """
    return fetched(asked(policy, seen, states), states.shape[1])


Answer = tuple[Tensor, Tensor | None, Tensor]
"""What `Policy.act` gives."""


def asked(policy: Policy, seen: Mapping[str, AnyArray], states: F32) -> Answer:
    """A policy's answer, on which a device may be at work yet. Arguments as of `decide`."""
    tensors = {name: torch.from_numpy(x) for name, x in seen.items()}
    masks = tensors.pop(MASKS, None)
    return policy.act(tensors, torch.from_numpy(states[:, : policy.state_size]), masks)


def kept(answer: Answer) -> Answer:
    """An answer that holds although the policy is asked again."""
    parameters, values, after = answer
    return parameters.clone(), None if values is None else values.clone(), after.clone()


def fetched(answer: Answer, width: int) -> tuple[F32, F32 | None, F32]:
    """An answer as `decide` gives it. width: floats of memory, the most of any policy."""
    parameters, values, after = answer
    memory = after.cpu().numpy()
    if memory.shape[1] < width:
        memory = np.pad(memory, ((0, 0), (0, width - memory.shape[1])))
    return parameters.cpu().numpy(), None if values is None else values.cpu().numpy(), memory
