"""PettingZoo's parallel environments as games: agents act at the same time and may leave before the others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from palus.envs.game import Actions, Arrays, GameStep, by_behavior, points_of
from palus.errors import EnvError
from palus.types import MASKS, AgentSpec, AnyArray, BehaviorSpec, Bool, GameSpec

try:
    from gymnasium.spaces import Dict, Discrete, Space

    from palus.envs.gymnasium_spaces import ActionWriter, ObservationReader, episode_stats, fps_of, picture
except ImportError as error:
    raise EnvError("PettingZoo's games need the package gymnasium; pip install 'palus[doom]'") from error

MASK = "action_mask"


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

    Agents that share their spaces share a behavior: one without a name when all do, else each named after its agents
    (`adversary` of adversary_0). Where an observation is a Dict with `observation` and `action_mask`, as in the classic
    games, actions are masked. The verdict compares what the environment itself paid each agent in the episode.
    """

    def __init__(self, env: Any, env_id: str) -> None:
        self._env = env
        self._agents: list[Any] = list(env.possible_agents)
        spaces = [(env.observation_space(agent), env.action_space(agent)) for agent in self._agents]
        kinds = [pair for i, pair in enumerate(spaces) if pair not in spaces[:i]]
        members = [[i for i, pair in enumerate(spaces) if pair == kind] for kind in kinds]
        names = _names([[str(self._agents[i]) for i in own] for own in members])
        self._kinds = [_Kind(name, *kind, own) for name, kind, own in zip(names, kinds, members, strict=True)]
        behavior = {i: kind.name for kind in self._kinds for i in kind.members}
        agents = [AgentSpec(str(agent), i, i, behavior[i]) for i, agent in enumerate(self._agents)]
        self.spec = GameSpec(env_id, tuple(kind.spec for kind in self._kinds), tuple(agents), fps=fps_of(env))
        self.active: Bool = np.zeros(len(self._agents), np.bool_)
        self._observations: Mapping[Any, Any] = {}
        self._open = True

    def reset(self, seed: int) -> None:
        """Start an episode with that seed."""
        self._observations, _ = self._env.reset(seed=seed)
        self._scores = np.zeros(len(self._agents))
        self._find_active()

    def observe(self, out: Arrays) -> None:
        """Write the observations of all agents that have one; the environment gives none to those who left."""
        arrays = by_behavior(self.spec, out)
        for kind in self._kinds:
            for row, member in enumerate(kind.members):
                if self._agents[member] in self._observations:
                    kind.write(self._observations[self._agents[member]], arrays[kind.name], row)

    def observe_final(self, out: Arrays) -> None:
        """The same: nothing is reset unasked."""
        self.observe(out)

    def step(self, actions: Actions) -> GameStep:
        """One step of all agents that are left."""
        played = self.active.copy()
        given = by_behavior(self.spec, actions)
        chosen = {
            self._agents[i]: kind.writer.one(given[kind.name][row])
            for kind in self._kinds
            for row, i in enumerate(kind.members)
            if played[i]
        }
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
        return np.asarray(picture(self._env, self.spec.env_id))

    def close(self) -> None:
        """Close the environment once."""
        if self._open:
            self._open = False
            self._env.close()


class _Kind:
    """Agents with the same spaces. members: their indices."""

    def __init__(self, name: str, observation: Space[Any], action: Space[Any], members: list[int]) -> None:
        shown = dict(observation.spaces) if isinstance(observation, Dict) else {}
        self.masked = set(shown) == {"observation", MASK} and isinstance(action, Discrete)
        self.name, self.members = name, members
        self.reader = ObservationReader(Dict({"observation": shown["observation"]}) if self.masked else observation)
        self.writer = ActionWriter(action, self.masked)
        self.spec = BehaviorSpec(name, self.reader.specs, self.writer.spec)

    def write(self, observation: Any, out: Mapping[str, AnyArray], row: int) -> None:
        """One agent's observation, and what it may choose, into a row."""
        self.reader.write_one({"observation": observation["observation"]} if self.masked else observation, out, row)
        if MASKS in out:
            out[MASKS][row] = observation[MASK]


def _names(agents: list[list[str]]) -> list[str]:
    """A name for each kind: what its agents' names begin with, or else its first agent."""
    if len(agents) == 1:
        return [""]
    stems = [{name.rpartition("_")[0] for name in own} for own in agents]
    names = [own.pop() if len(own) == 1 else "" for own in stems]
    return [n if n and names.count(n) == 1 else own[0] for n, own in zip(names, agents, strict=True)]
