"""Pages: buffers of T decisions of B rows, half in shared memory (what games say), half here (what policies said)."""

from __future__ import annotations

import numpy as np

from palus.rollout.acting import Decisions
from palus.rollout.layout import Layout, SharedArrays
from palus.rollout.trajectories import FROZEN, EpisodeEnd, Trajectories
from palus.types import F32, I64, Bool

Place = tuple[int, int, slice] | tuple[I64, I64, I64]
"""An index into arrays [pages, T, B]: neighbouring rows at one decision, or a list of (page, decision, row)."""


class Pages:
    """All pages of a sampler. A page is written by the sampler alone, read by the learner alone, in turns."""

    def __init__(self, layout: Layout, shared: SharedArrays, state_size: int) -> None:
        spec, (n, T, B) = layout.spec, shared.rewards.shape
        self.count = n
        self._frameskip = spec.frameskip
        self._shared = shared
        self._actions = np.zeros((n, T, B, spec.actions.columns), np.float32)
        self._parameters = np.zeros((n, T, B, spec.actions.parameters), np.float32)
        self._log_probs = np.zeros((n, T, B), np.float32)
        self._values = np.zeros((n, T, B), np.float32)
        self._entropies = np.zeros((n, T, B), np.float32)
        self._versions = np.zeros((n, T, B), np.int32)
        self._policies = np.zeros((n, T, B), np.int32)
        self._lost = np.zeros((n, B), np.bool_)
        self.final_values = np.zeros((n, T, B), np.float32)
        self.states = np.zeros((n, B, state_size), np.float32)
        self.last_states = np.zeros((n, B, state_size), np.float32)
        self._ends: list[list[tuple[int, int, EpisodeEnd]]] = [[] for _ in range(n)]

    def record(self, at: Place, decisions: Decisions) -> None:
        """Keep a batch of decisions. at: the page, decision and row of each, as an index."""
        self._actions[at] = decisions.actions
        self._parameters[at] = decisions.parameters
        self._log_probs[at] = decisions.log_probs
        self._values[at] = decisions.values
        self._entropies[at] = decisions.entropies
        self._versions[at] = decisions.versions
        self._policies[at] = decisions.policies

    def add_end(self, page: int, t: int, row: int, end: EpisodeEnd) -> None:
        """Keep an episode that ended with decision t."""
        self._ends[page].append((t, row, end))

    def lose(self, page: int, decided: int, rows: slice) -> int:
        """Give up these rows of a page after `decided` decisions; returns how many of them would have been samples."""
        self._lost[page, rows] = True
        return int(self._shared.active[page, :decided, rows].sum())

    def clear(self, page: int) -> None:
        """Make ready for new decisions what they do not overwrite by themselves."""
        self._lost[page] = False
        self.final_values[page] = 0.0
        self._ends[page].clear()

    def is_empty(self, page: int) -> bool:
        """Whether no policy can learn from it."""
        return not (self._present(page) & (self._policies[page] < FROZEN)).any()

    def _present(self, page: int) -> Bool:
        present: Bool = self._shared.active[page, :-1] & ~self._lost[page]
        return present

    def ends(self, page: int, policy: int | None = None) -> list[EpisodeEnd]:
        """Episodes of a policy, or of all of them, that ended in a page, by decision, then by row."""
        # Workers speak in any order; what is learned from their words must not depend on it.
        return [end for _, _, end in sorted(self._ends[page], key=lambda e: e[:2]) if policy in (None, end.policy)]

    def entropy(self, page: int, policy: int) -> float:
        """Mean entropy of a policy's decisions in a page, nats; 0 when it took none."""
        valid = self._present(page) & (self._policies[page] == policy)
        return float(self._entropies[page][valid].mean()) if valid.any() else 0.0

    def trajectories(self, page: int, policy: int, reward_scale: float, reward_clip: float) -> Trajectories:
        """A page as a policy may learn from it: views, except for rewards and `valid`."""
        shared = self._shared
        valid = self._present(page) & (self._policies[page] == policy)
        scaled = np.clip(shared.rewards[page] * np.float32(reward_scale), -reward_clip, reward_clip)
        rewards: F32 = np.where(valid, scaled, np.float32(0.0))
        return Trajectories(
            observations={name: array[page] for name, array in shared.observations.items()},
            states=self.states[page],
            last_states=self.last_states[page],
            actions=self._actions[page],
            parameters=self._parameters[page],
            log_probs=self._log_probs[page],
            values=self._values[page],
            rewards=rewards,
            terminated=shared.terminated[page],
            truncated=shared.truncated[page],
            final_values=self.final_values[page],
            valid=valid,
            versions=self._versions[page],
            frames=int(valid.sum()) * self._frameskip,
        )
