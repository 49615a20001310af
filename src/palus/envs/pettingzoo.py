"""PettingZoo's parallel environments as games: agents act at the same time and may leave before the others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from palus.envs.game import GameStep, points_of
from palus.errors import EnvError
from palus.types import F32, AnyArray, Bool, GameSpec

try:
    from palus.envs.gymnasium_spaces import ActionWriter, ObservationReader, episode_stats
except ImportError as error:
    raise EnvError("PettingZoo's games need the package gymnasium; pip install 'palus[doom]'") from error

FPS = 30.0


def make(module: str, **options: Any) -> PettingZooGame:
    """The `parallel_env` of a module such as `pettingzoo.butterfly.pistonball_v6`. options: its keywords.

    Raises EnvError when there is no such module, or it is a turn-based game.
    """
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"{module} cannot be imported: {error}; install its package, pettingzoo or its extra") from error
    if not hasattr(imported, "parallel_env"):
        raise EnvError(f"{module} has no parallel_env; a turn-based game needs pettingzoo.utils.aec_to_parallel first")
    return PettingZooGame(imported.parallel_env(**options), module.rpartition(".")[2])


class PettingZooGame:
    """One parallel environment. Use it on an instance of your own: `PettingZooGame(MyEnv(), "my_env")`.

    All possible agents must share one observation space and one action space, as one network plays them. The verdict
    compares what the environment itself paid each agent in the episode.
    """

    def __init__(self, env: Any, env_id: str) -> None:
        self._env = env
        self._agents: list[Any] = list(env.possible_agents)
        observation, action = (space(self._agents[0]) for space in (env.observation_space, env.action_space))
        for agent in self._agents:
            if env.observation_space(agent) != observation or env.action_space(agent) != action:
                raise EnvError(
                    f"{env_id}: agents {self._agents[0]} and {agent} have different spaces; make them alike, with "
                    "supersuit's pad_observations_v0 and pad_action_space_v0 for example"
                )
        self._reader, self._writer = ObservationReader(observation), ActionWriter(action)
        fps = float(env.metadata.get("render_fps") or FPS)
        self.spec = GameSpec.alike(env_id, self._reader.specs, self._writer.spec, len(self._agents), fps=fps)
        self.active: Bool = np.zeros(len(self._agents), np.bool_)
        self._observations: Mapping[Any, Any] = {}
        self._open = True

    def reset(self, seed: int) -> None:
        """Start an episode with that seed."""
        self._observations, _ = self._env.reset(seed=seed)
        self._scores = np.zeros(len(self._agents))
        self._find_active()

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """Write the observations of all agents that have one; the environment gives none to those who left."""
        for row, agent in enumerate(self._agents):
            if agent in self._observations:
                self._reader.write_one(self._observations[agent], out, row)

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """The same: nothing is reset unasked."""
        self.observe(out)

    def step(self, actions: F32) -> GameStep:
        """One step of all agents that are left."""
        played = self.active.copy()
        chosen = {agent: self._writer.one(actions[i]) for i, agent in enumerate(self._agents) if played[i]}
        self._observations, rewards, terminations, truncations, infos = self._env.step(chosen)
        self._find_active()
        terminated = self._flags(terminations) & played
        truncated = self._flags(truncations) & played & ~terminated
        gone = played & ~self.active & ~terminated & ~truncated
        if gone.any():
            raise EnvError(f"{self.spec.env_id}: {self._agents[int(gone.argmax())]} left without an end of its episode")
        reward = np.array([rewards.get(agent, 0.0) for agent in self._agents], np.float32)
        ended = np.flatnonzero(terminated | truncated).tolist()
        stats = {row: episode_stats(infos.get(self._agents[row], {})) for row in ended}
        reward = np.where(played, reward, np.float32(0))
        self._scores += reward
        over = not self.active.any()
        points = points_of(self._scores.tolist()) if over else ()
        return GameStep(reward, terminated, truncated, over, stats, points)

    def _find_active(self) -> None:
        present = set(self._env.agents)
        self.active[:] = [agent in present for agent in self._agents]

    def _flags(self, values: Mapping[Any, bool]) -> Bool:
        return np.array([values.get(agent, False) for agent in self._agents], np.bool_)

    def render(self) -> AnyArray:
        """The environment's own picture."""
        picture = self._env.render() if getattr(self._env, "render_mode", None) == "rgb_array" else None
        if picture is None:
            raise EnvError(f"{self.spec.env_id} draws no pictures now; give the option render_mode: rgb_array")
        return np.asarray(picture)

    def close(self) -> None:
        """Close the environment once."""
        if self._open:
            self._open = False
            self._env.close()
