"""The newest decisions of a learner whose data may be old: a ring of rows, struct of arrays.

For a network with memory the rows lie in sequences: `length` decisions of one agent's column, one after another, over
as many episodes as there were. The actor's memory before a sequence is kept beside it. Critics begin it with an empty
memory, so its first decisions only warm them up, until an episode begins; what only warms up is not kept.
Source: the burn-in of Kapturowski et al. 2019 (R2D2), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from palus.errors import ConfigError
from palus.learn.returns import kept_memory
from palus.learn.sequences import Sequences
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, AnyArray, BehaviorSpec, Bool

WARM_UP = 0.25
"""The share of a sequence that begins amid an episode, or of a rollout that is shorter, of which nothing is learned."""


class ReplayBuffer:
    """At most `capacity` decisions; where it is full, a new one takes the oldest one's place.

    observations, following: name -> [capacity, *shape], before and after the decision, as the game gave them;
    masks: [capacity, M] bool, None where the game masks nothing; actions: [capacity, A] as drawn; rewards: [capacity];
    terminated: [capacity] bool, nothing follows. renewed: [capacity] bool, but something was seen then, `following`:
    the episode's last observation where also shown: [capacity] bool, else the agent's next episode; both None where
    nobody asks. size: rows that are filled, the first ones. Raises ConfigError where memory has no room for it.

    With memory, of `state_size` numbers: memory: [capacity / length, state_size], the actor's before each sequence;
    keep: [capacity] float32, 0 where an episode begins; counts: [capacity] bool, whether a decision is learned from.
    """

    def __init__(
        self, spec: BehaviorSpec, capacity: int, length: int = 1, state_size: int = 0, renews: bool = False
    ) -> None:
        capacity = max(capacity // length, 1) * length
        self.capacity, self.length, self.size, self._next = capacity, length, 0, 0
        try:  # zeros that nobody wrote take no memory
            self.observations, self.following = (
                {o.name: np.zeros((capacity, *o.shape), o.dtype) for o in spec.observations} for _ in range(2)
            )
        except MemoryError as error:
            row = 2 * sum(np.dtype(o.dtype).itemsize * o.size for o in spec.observations)
            raise ConfigError(
                f"hyperparameters.buffer_size {capacity}: so many rows of {row} bytes are {capacity * row / 2**30:.1f} "
                "GiB, more than this machine gives; lower it"
            ) from error
        self.actions = np.zeros((capacity, spec.actions.columns), np.float32)
        self.rewards, self.terminated = np.zeros(capacity, np.float32), np.zeros(capacity, np.bool_)
        self.memory = np.zeros((capacity // length, state_size), np.float32)
        self.keep, self.counts = np.ones(capacity, np.float32), np.ones(capacity, np.bool_)
        self.renewed: Bool | None = np.zeros(capacity, np.bool_) if renews else None
        self.shown: Bool | None = np.zeros(capacity, np.bool_) if renews else None
        self.masks: Bool | None = np.zeros((capacity, sum(spec.branches)), np.bool_) if spec.actions.masked else None

    def _arrays(self) -> dict[str, AnyArray]:
        named = {f"observations {name}": array for name, array in self.observations.items()}
        named |= {f"following {name}": array for name, array in self.following.items()}
        named |= {"actions": self.actions, "rewards": self.rewards, "terminated": self.terminated}
        if self.memory.size:
            named |= {"memory": self.memory, "keep": self.keep, "counts": self.counts}
        optional = {"masks": self.masks, "renewed": self.renewed, "shown": self.shown}
        return named | {name: array for name, array in optional.items() if array is not None}

    def add(self, rollout: Rollout, usable: Bool, rewards: F32, states: F32 | None = None) -> None:
        """Take in the usable decisions of a rollout, oldest first; with memory, the sequences of which any counts.

        usable, rewards: [T, B]; states: [sequences, B, S], the actor's before every `length`-th decision.
        """
        sequences = Sequences(usable, self.length)
        numbers = sequences.numbers
        index, counts = sequences.decisions(numbers)
        if states is not None and self.memory.size:
            memory, keep = states.reshape(-1, states.shape[2])[numbers], kept_memory(rollout).ravel()[index]
            late = np.arange(self.length)[:, None] >= int(min(self.length, len(usable)) * WARM_UP)
            counts &= late | (np.cumsum(keep == 0.0, 0) > 0) | ~memory.any(1)
        taught = np.flatnonzero(counts.any(0))[-(self.capacity // self.length) :]
        index = index[:, taught]
        t, b = np.divmod(index.T.ravel(), usable.shape[1])
        places = (self._next + np.arange(len(t))) % self.capacity
        if states is not None and self.memory.size:
            self.memory[places[:: self.length] // self.length] = memory[taught]
            self.keep[places], self.counts[places] = keep[:, taught].T.ravel(), counts[:, taught].T.ravel()
        for name, seen in rollout.observations.items():
            self.observations[name][places] = seen[t, b]
        for name, seen in rollout.following(t, b).items():
            self.following[name][places] = seen
        self.actions[places] = rollout.actions[t, b]
        self.rewards[places], self.terminated[places] = rewards[t, b], rollout.terminated[t, b]
        if self.renewed is not None and self.shown is not None:
            self.renewed[places] = rollout.terminated[t, b] & rollout.followed[t, b]
            self.shown[places] = rollout.concluded[t, b]
        if self.masks is not None:
            self.masks[places] = True if rollout.masks is None else rollout.masks[t, b]
        self._next = (self._next + len(t)) % self.capacity
        self.size = min(self.size + len(t), self.capacity)

    def draw(self, count: int, generator: torch.Generator) -> I64:
        """Numbers [length, n] of `count` rows, in whole sequences, each of all that are filled; one may come twice."""
        drawn = torch.randint(self.size // self.length, (max(count // self.length, 1),), generator=generator)
        rows: I64 = drawn.numpy() * self.length + np.arange(self.length)[:, None]
        return rows

    def _filled(self, array: AnyArray, size: int) -> int:
        """How much of an array `size` rows are."""
        return size * len(array) // self.capacity

    def state_dict(self) -> dict[str, Any]:
        """The filled rows: views, which hold until `add`."""
        rows = {name: array[: self._filled(array, self.size)] for name, array in self._arrays().items()}
        return {"next": self._next, "size": self.size, "capacity": self.capacity, "rows": rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. ValueError or KeyError, and nothing is changed, where it is no buffer
        of this game and size, or holds numbers that are not finite."""
        size, after, arrays = int(state["size"]), int(state["next"]), self._arrays()
        if state["capacity"] != self.capacity:
            raise ValueError(f"replay buffer: saved with buffer_size {state['capacity']}, now {self.capacity}")
        if (
            not 0 <= size <= self.capacity
            or size % self.length
            or after != (size if size < self.capacity else after) % self.capacity
        ):
            raise ValueError(f"replay buffer: {size} rows of {self.capacity}, the next at {after}")
        rows = {"shown": np.zeros(size, np.bool_)} | state["rows"]  # not in those of older versions
        for name, array in arrays.items():
            found, shape = rows[name], (self._filled(array, size), *array.shape[1:])
            if found.shape != shape or found.dtype != array.dtype:
                wanted = f"{shape} {array.dtype}"
                raise ValueError(f"replay buffer, {name}: {found.shape} {found.dtype}; expected {wanted}")
            if array.dtype == np.float32 and not np.isfinite(found).all():
                raise ValueError(f"replay buffer, {name}: holds numbers that are not finite")
        for name, array in arrays.items():
            array[: len(rows[name])] = rows[name]
        self.size, self._next = size, after
