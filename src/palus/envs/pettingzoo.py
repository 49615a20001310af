"""PettingZoo's environments as games: agents act at the same time, or in turn, and may leave before the others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from palus.envs.game import Actions, Arrays, GameStep, by_behavior, points_of
from palus.errors import EnvError
from palus.types import F32, MASKS, AgentSpec, AnyArray, BehaviorSpec, Bool, GameSpec

try:
    from gymnasium.spaces import Dict, Discrete, Space

    from palus.envs.gymnasium_spaces import ActionWriter, EnvGame, ObservationReader, episode_stats, fps_of
except ImportError as error:
    raise EnvError("PettingZoo's games need the package gymnasium; pip install 'palus[doom]'") from error

MASK = "action_mask"
REWARD = "reward"


def make(
    module: str,
    *,
    teams: Sequence[str | Sequence[str]] = (),
    wins: str = REWARD,
    handicaps: Sequence[float] = (),
    **options: Any,
) -> PettingZooGame:
    """The environment of a module such as `mpe2.simple_tag_v3`: its `parallel_env`, else its `env`.

    teams, wins, handicaps: as in `PettingZooGame`. options: the environment's keywords.
    Raises EnvError when there is no such module or environment, or the teams do not fit its agents.
    """
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"{module} cannot be imported: {error}; install its package, pettingzoo or its extra") from error
    factory = getattr(imported, "parallel_env", None) or getattr(imported, "env", None)
    if factory is None:
        raise EnvError(f"{module} has neither parallel_env nor env; name a module of one environment")
    return PettingZooGame(factory(**options), module.rpartition(".")[2], teams, wins, handicaps)


class PettingZooGame(EnvGame):
    """One environment, parallel or AEC. Use it on an instance of your own: `PettingZooGame(MyEnv(), "my_env")`.

    Agents that share their spaces share a behavior: one without a name when all do, else each named after its agents
    (`adversary` of adversary_0). Where an observation is a Dict with `observation` and `action_mask`, as in the classic
    games, actions are masked. AEC environments go through PettingZoo's own conversion; where agents take turns, those
    that wait have a single choice, which changes nothing, so that nobody learns from it.

    The verdict compares the means of the teams' members: of what the environment paid each in the episode, or of a
    number that it tells in their infos.
    """

    def __init__(
        self,
        env: Any,
        env_id: str,
        teams: Sequence[str | Sequence[str]] = (),
        wins: str = REWARD,
        handicaps: Sequence[float] = (),
    ) -> None:
        """teams: for each the names of its agents, or patterns such as `adversary_*`; () for each agent its own.

        wins: `reward`, or the name of a number in the infos. handicaps: what each team's mean has to exceed.
        """
        super().__init__(_parallel(env))
        self._agents: list[Any] = list(self._env.possible_agents)
        self._in_turn = hasattr(self._env, "aec_env") and not env.metadata.get("is_parallelizable", False)
        spaces = [(self._env.observation_space(agent), self._env.action_space(agent)) for agent in self._agents]
        kinds = [pair for i, pair in enumerate(spaces) if pair not in spaces[:i]]
        members = [[i for i, pair in enumerate(spaces) if pair == kind] for kind in kinds]
        names = _names([[str(self._agents[i]) for i in own] for own in members])
        self._kinds = [
            _Kind(name, *kind, own, self._in_turn) for name, kind, own in zip(names, kinds, members, strict=True)
        ]
        behavior = {i: kind.name for kind in self._kinds for i in kind.members}
        named = [str(agent) for agent in self._agents]
        sides = _teams(env_id, named, teams)
        agents = [
            AgentSpec(name, side, side, behavior[i]) for i, (name, side) in enumerate(zip(named, sides, strict=True))
        ]
        self.spec = GameSpec(env_id, tuple(kind.spec for kind in self._kinds), tuple(agents), fps=fps_of(env))
        self._wins, self._handicaps = wins, np.array(handicaps or [0.0] * len(self.spec.sides))
        if self._handicaps.shape != (len(self.spec.sides),):
            raise EnvError(
                f"{env_id}: {len(handicaps)} handicaps; expected one for each of {len(self.spec.sides)} teams"
            )
        self.active: Bool = np.zeros(len(self._agents), np.bool_)
        self._observations: Mapping[Any, Any] = {}

    def reset(self, seed: int) -> None:
        """Start an episode with that seed."""
        self._observations, _ = self._env.reset(seed=seed)
        self._scores = np.full(len(self._agents), 0.0 if self._wins == REWARD else np.nan)
        self._ended: Bool = np.zeros(len(self._agents), np.bool_)
        self._find_active()

    def observe(self, out: Arrays) -> None:
        """Write the observations of all agents that have one; the environment gives none to those who left."""
        arrays = by_behavior(self.spec, out)
        for kind in self._kinds:
            for row, agent in enumerate(self._agents[member] for member in kind.members):
                if agent in self._observations:
                    waits = self._in_turn and agent != self._env.aec_env.agent_selection
                    kind.write(self._observations[agent], arrays[kind.name], row, waits)

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
        terminated = self._flags(terminations) & played
        truncated = self._flags(truncations) & played & ~terminated
        self._ended |= terminated | truncated
        self._find_active()
        gone = played & ~self.active & ~terminated & ~truncated
        if gone.any():
            raise EnvError(f"{self.spec.env_id}: {self._agents[int(gone.argmax())]} left without an end of its episode")
        reward = np.array([rewards.get(agent, 0.0) for agent in self._agents], np.float32)
        ended = np.flatnonzero(terminated | truncated).tolist()
        stats = {row: episode_stats(infos.get(self._agents[row], {})) for row in ended}
        reward = np.where(played, reward, np.float32(0))
        self._count(reward, infos)
        over = not self.active.any()
        return GameStep(reward, terminated, truncated, over, stats, self._verdict() if over else ())

    def _count(self, reward: F32, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """What the verdict compares, as far as it is known."""
        if self._wins == REWARD:
            self._scores += reward
            return
        for i, agent in enumerate(self._agents):
            self._scores[i] = infos.get(agent, {}).get(self._wins, self._scores[i])

    def _verdict(self) -> tuple[float, ...]:
        silent = np.isnan(self._scores)
        if silent.any():
            raise EnvError(
                f"{self.spec.env_id}: nothing in the infos of {self._agents[int(silent.argmax())]} is called "
                f"{self._wins!r}, which decides who wins; name a number that the environment tells, or `reward`"
            )
        teams = np.array(self.spec.teams)
        means = [self._scores[teams == side].mean() for side in self.spec.sides]
        return points_of((means - self._handicaps).tolist())

    def _find_active(self) -> None:
        present = set(self._env.agents)
        self.active[:] = [agent in present for agent in self._agents]
        self.active &= ~self._ended

    def _flags(self, values: Mapping[Any, bool]) -> Bool:
        return np.array([values.get(agent, False) for agent in self._agents], np.bool_)


class _Kind:
    """Agents with the same spaces. members: their indices. in_turn: one of all agents acts, the others wait."""

    def __init__(
        self, name: str, observation: Space[Any], action: Space[Any], members: list[int], in_turn: bool
    ) -> None:
        shown = dict(observation.spaces) if isinstance(observation, Dict) else {}
        self.has_mask = set(shown) == {"observation", MASK} and isinstance(action, Discrete)
        self.name, self.members = name, members
        self.reader = ObservationReader(Dict({"observation": shown["observation"]}) if self.has_mask else observation)
        self.writer = ActionWriter(action, self.has_mask or (in_turn and isinstance(action, Discrete)))
        self.spec = BehaviorSpec(name, self.reader.specs, self.writer.spec)

    def write(self, observation: Any, out: Mapping[str, AnyArray], row: int, waits: bool) -> None:
        """One agent's observation, and what it may choose, into a row."""
        self.reader.write_one({"observation": observation["observation"]} if self.has_mask else observation, out, row)
        if MASKS in out:
            out[MASKS][row] = observation[MASK] if self.has_mask and not waits else True
            out[MASKS][row, 1:] &= not waits


def _parallel(env: Any) -> Any:
    """A parallel environment as it is, an AEC one through PettingZoo's conversion for its kind."""
    if not hasattr(env, "agent_iter"):
        return env
    from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel

    return (aec_to_parallel if env.metadata.get("is_parallelizable", False) else turn_based_aec_to_parallel)(env)


def _teams(env_id: str, agents: Sequence[str], teams: Sequence[str | Sequence[str]]) -> list[int]:
    """The team of each agent. Raises EnvError unless each is on exactly one, and every pattern fits somebody."""
    if not teams:
        return list(range(len(agents)))
    patterns = [(k, word) for k, team in enumerate(teams) for word in ([team] if isinstance(team, str) else team)]
    found = [{k for k, word in patterns if fnmatchcase(agent, word)} for agent in agents]
    lost = [agent for agent, sides in zip(agents, found, strict=True) if len(sides) != 1]
    idle = [word for _, word in patterns if not any(fnmatchcase(agent, word) for agent in agents)]
    if lost or idle:
        raise EnvError(
            f"{env_id}: teams {list(teams)}: {', '.join(lost or idle)} "
            f"{'on no team, or on several' if lost else 'is no agent'}; its agents are {', '.join(agents)}"
        )
    return [sides.pop() for sides in found]


def _names(agents: list[list[str]]) -> list[str]:
    """A name for each kind: what its agents' names begin with, or else its first agent."""
    if len(agents) == 1:
        return [""]
    stems = [{name.rpartition("_")[0] for name in own} for own in agents]
    names = [own.pop() if len(own) == 1 else "" for own in stems]
    return [n if n and names.count(n) == 1 else own[0] for n, own in zip(names, agents, strict=True)]
