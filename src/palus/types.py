"""The small frozen types that cross the folders. Leaf module: imports nothing of palus.

Letters: N matches played side by side, P agents per match, A action branches, D observation floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
AnyArray = NDArray[Any]


@dataclass(frozen=True)
class BehaviorSpec:
    """What one kind of agent sees and does.

    observation_sizes: floats per observation, in ML-Agents' order (`obs_0`, `obs_1`, ...); D is their sum.
    branches: number of choices of each discrete action branch.
    """

    name: str
    observation_sizes: tuple[int, ...]
    branches: tuple[int, ...]

    @property
    def observation_size(self) -> int:
        """D: all observations of one agent concatenated."""
        return sum(self.observation_sizes)

    @property
    def branch_offsets(self) -> I64:
        """First logit of each branch, and the end: branches (3, 3, 3) -> [0, 3, 6, 9]."""
        return np.concatenate([[0], np.cumsum(self.branches)]).astype(np.int64)


@dataclass(frozen=True)
class AgentSpec:
    """One agent slot of a match: which side it is on, whose result it shares, which behavior drives it."""

    name: str
    team: int
    group: int
    behavior: str


@dataclass(frozen=True)
class EnvSpec:
    """The constant facts of a game.

    agents: the P agent slots of a match, in the order of every `[N, P]` array.
    max_decisions: decisions after which a match is truncated; 0 means never.
    """

    env_id: str
    behaviors: tuple[BehaviorSpec, ...]
    agents: tuple[AgentSpec, ...]
    max_decisions: int

    def behavior(self, name: str) -> BehaviorSpec:
        """The behavior of that name; KeyError when the game has none."""
        return {b.name: b for b in self.behaviors}[name]

    def agents_of(self, behavior: str) -> tuple[int, ...]:
        """Indices into `agents` of the slots that a behavior drives, ascending: the P_b of its arrays."""
        return tuple(i for i, a in enumerate(self.agents) if a.behavior == behavior)


@dataclass(frozen=True)
class Step:
    """What one decision step of N matches brought. Arrays belong to the environment and live until its next step.

    reward:       [N, P] float32, the agent's own.
    group_reward: [N, P] float32, its group's (the same number for every member still in the match).
    terminated:   [N, P] bool, the agent's episode ended by the rules: do not bootstrap.
    truncated:    [N, P] bool, it was cut off by the time limit: bootstrap from the final observation.
    match_over:   [N] bool, the whole match ended; the environment has already started the next one in that slot.

    An agent that leaves early is terminated alone; its slot is inactive (`MultiAgentEnv.active`) until the match ends.
    """

    reward: F32
    group_reward: F32
    terminated: Bool
    truncated: Bool
    match_over: Bool
