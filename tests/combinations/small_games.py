"""Games for learning tests that run through `palus train`: each is solved in seconds, and by nothing but its lesson."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces

from palus.envs.game import GameStep
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 4


class Recall:
    """A cue is shown at first; the last of LENGTH decisions is paid 1 for naming it. Without memory: 0.5."""

    def __init__(self) -> None:
        self.spec = GameSpec.alike("recall", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)))
        self.active = np.ones(1, np.bool_)

    def reset(self, seed: int) -> None:
        self.age, self.cue = 0, seed % 2

    def observe(self, out: Any) -> None:
        out["obs"][:] = 0.0
        out["obs"][0, self.cue] = self.age == 0
        out["obs"][0, 2] = self.age == LENGTH - 1

    observe_final = observe

    def step(self, actions: np.ndarray) -> GameStep:
        self.age += 1
        over = self.age == LENGTH
        paid = np.float32(over and actions[0, 0] == self.cue)
        return GameStep(np.array([paid]), np.array([over]), np.zeros(1, np.bool_), over)

    def close(self) -> None:
        pass


class Pictures(Recall):
    """One decision: a bright square lies left or right in a picture, 1 for saying where."""

    def __init__(self) -> None:
        image = (ObservationSpec("picture", (1, 36, 36), "uint8"),)
        self.spec = GameSpec.alike("pictures", image, ActionSpec((Discrete(2),)))
        self.active = np.ones(1, np.bool_)

    def observe(self, out: Any) -> None:
        out["picture"][:] = 0
        out["picture"][0, 0, 12:24, 4 + 16 * self.cue : 16 + 16 * self.cue] = 255

    observe_final = observe

    def step(self, actions: np.ndarray) -> GameStep:
        paid = np.float32(actions[0, 0] == self.cue)
        return GameStep(np.array([paid]), np.ones(1, np.bool_), np.zeros(1, np.bool_), True)


class Aim(gymnasium.Env[np.ndarray, np.ndarray]):
    """One decision: 1 for the number that is shown, less its distance from the answer; chance is below 0."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.shown, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self.shown, 1.0 - float(abs(action[0] - self.shown[0])), True, False, {}


gymnasium.register("Aim-v0", entry_point=Aim)


class Echo(pettingzoo.ParallelEnv):
    """Two agents see a cue of their own each and are paid 1 for naming it, in every one of LENGTH rounds."""

    metadata = {"name": "echo"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (3,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def _show(self) -> dict[str, np.ndarray]:
        self.cues = {agent: int(self.random.integers(3)) for agent in self.possible_agents}
        return {agent: np.eye(3, dtype=np.float32)[cue] for agent, cue in self.cues.items()}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.random, self.round, self.agents = np.random.default_rng(seed), 0, list(self.possible_agents)
        return self._show(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        self.round += 1
        paid = {agent: float(actions[agent] == self.cues[agent]) for agent in self.agents}
        over = dict.fromkeys(self.agents, self.round == LENGTH)
        if self.round == LENGTH:
            self.agents = []
        nothing = dict.fromkeys(self.possible_agents, False)
        return self._show(), paid, over, nothing, {agent: {} for agent in self.possible_agents}


def parallel_env() -> Echo:
    """What PettingZoo's modules offer."""
    return Echo()
