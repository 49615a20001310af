"""A game of 256 agents that costs next to nothing: what is left to measure is sampling, deciding and learning.

The same as the one in peer/sf_run.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from palus.envs.game import GameStep
from palus.errors import EnvError
from palus.types import F32, ActionSpec, AnyArray, Bool, Discrete, GameSpec, ObservationSpec

AGENTS, SIZE, LENGTH = 256, 336, 1000


class Synthetic:
    """Observations from a table, the first choice as reward, episodes of 1000 decisions that end out of step."""

    def __init__(self) -> None:
        actions = ActionSpec((Discrete(3), Discrete(3), Discrete(3)))
        self.spec = GameSpec.alike("synthetic", (ObservationSpec("obs", (SIZE,)),), actions, num_agents=AGENTS)
        self.active: Bool = np.ones(AGENTS, np.bool_)
        self._rows = np.random.default_rng(0).uniform(-1, 1, (16, AGENTS, SIZE)).astype(np.float32)
        self._never = np.zeros(AGENTS, np.bool_)
        self._age = np.arange(AGENTS) * 3 % LENGTH
        self._decision = 0

    def reset(self, seed: int) -> None:
        """The table does not depend on the seed."""
        self._age = np.arange(AGENTS) * 3 % LENGTH
        self._decision = 0

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """One row of the table each."""
        out["obs"][:] = self._rows[self._decision % 16]

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """Nothing is ever truncated."""

    def step(self, actions: F32) -> GameStep:
        """Agents begin their next episode by themselves."""
        self._decision += 1
        self._age += 1
        over = self._age >= LENGTH
        self._age[over] = 0
        return GameStep(np.float32(0.01) * actions[:, 0], over, self._never, False)

    def render(self) -> AnyArray:
        """There is nothing to see."""
        raise EnvError("the synthetic game draws no pictures")

    def close(self) -> None:
        """Nothing is open."""
