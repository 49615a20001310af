"""One match of a batched game as a `palus.envs.game.Game`, so that such games can run in worker processes too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from palus.envs.game import Actions, Arrays, GameStep, by_behavior
from palus.envs.protocol import MultiAgentEnv
from palus.errors import EnvError
from palus.types import AnyArray, Bool


class OneMatch:
    """A `MultiAgentEnv` with `num_matches` 1, which it closes. Every match begins with `reset`, from its own seed."""

    def __init__(self, env: MultiAgentEnv) -> None:
        if env.num_matches != 1:
            raise EnvError(f"{env.spec.env_id} plays {env.num_matches} matches at once; make it with num_matches 1")
        self.spec = env.spec
        self._env = env
        sizes = {behavior.name: len(env.spec.agents_of(behavior.name)) for behavior in env.spec.behaviors}
        self._rows = {name: np.arange(size, dtype=np.int32)[None] for name, size in sizes.items()}

    @property
    def active(self) -> Bool:
        """The environment's own."""
        active: Bool = self._env.active[0]
        return active

    def reset(self, seed: int) -> None:
        """Start the match of that seed."""
        self._env.reset(np.array([seed], np.int64))

    def observe(self, out: Arrays) -> None:
        """Write what active agents see."""
        for name, own in by_behavior(self.spec, out).items():
            self._env.observe(name, self._rows[name], own)

    def observe_final(self, out: Arrays) -> None:
        """Write what truncated agents saw last."""
        for name, own in by_behavior(self.spec, out).items():
            self._env.observe_final(name, self._rows[name], own)

    def step(self, actions: Actions) -> GameStep:
        """One decision; a match without a verdict has no points."""
        given = by_behavior(self.spec, actions)
        step = self._env.step([given[behavior.name][None] for behavior in self.spec.behaviors])
        over = bool(step.match_over[0])
        points = () if not over or np.isnan(step.points[0]).any() else tuple(step.points[0].tolist())
        ends, stats = (step.terminated[0], step.truncated[0]), step.stats.get(0, {})
        return GameStep(step.reward[0], *ends, over, stats, points, step.group_reward[0])

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change numbers of the game from the next decision on. Raises EnvError for names that it does not have."""
        self._env.set_parameters(parameters)

    def render(self) -> AnyArray:
        """EnvError: batched games draw no pictures."""
        raise EnvError(f"{self.spec.env_id} draws no pictures; watch its matches in the arena")

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
