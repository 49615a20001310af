"""A Unity game as an environment of PettingZoo, parallel or AEC, by the names that ML-Agents' own wrappers have.

env = UnityParallelEnv("Builds/Game", no_graphics=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from palus.errors import EnvError
from palus.types import F32, MASKS, BehaviorSpec
from palus.unity.gymnasium_view import action_space, box, columns, hear, open_game
from palus.unity.news import Steps

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
    from pettingzoo.utils.conversions import parallel_to_aec
except ImportError as error:
    raise EnvError(
        "views of Unity games need the package pettingzoo; pip install 'palus[unity]' gymnasium pettingzoo"
    ) from error


class UnityParallelEnv(ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """Agents are called `<behavior id>?agent_id=<id>`, and see an array, or a tuple of several.

    Where actions are branches it is a dictionary of `observation` and `action_mask`, 1 where a choice is allowed: an
    array, or a tuple of one for each branch. Infos have `behavior_name`, `group_id` and `group_reward`, which is no
    part of the reward, and `interrupted` at an end. An agent that does not decide at a step sees what it saw, and its
    action is ignored; one whose episode is over rests until `reset`, though the game lets it play on; one that is born
    later joins. What a game does at random is seeded when it starts.
    """

    metadata: dict[str, Any] = {"name": "unity", "render_modes": []}  # noqa: RUF012 - PettingZoo's own declaration
    render_mode = None

    def __init__(self, env: Any, seed: int | None = None, **settings: Any) -> None:
        """env, settings: as `open_game` takes them. seed: of the action spaces."""
        self._game = open_game(env, **settings)
        self._seed = seed
        self._spaces: dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]] = {}
        self.agents: list[str] = []
        self.possible_agents: list[str] = []
        self._asked: Mapping[str, Steps] = {}
        self._seen: dict[str, Any] = {}
        self._ended: set[str] = set()
        try:
            self.reset()
        except BaseException:
            self._game.kill()
            raise

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Of an agent that has been there."""
        return self._space_of(agent)[0]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Of an agent that has been there."""
        return self._space_of(agent)[1]

    def _space_of(self, agent: str) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        if agent not in self._spaces:
            spec = self._game.behaviors[agent.rpartition("?agent_id=")[0]]
            boxes = [box(o) for o in spec.observations]
            seen: spaces.Space[Any] = boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)
            if spec.branches:
                masks = [spaces.MultiBinary(n) for n in spec.branches]
                mask = masks[0] if len(masks) == 1 else spaces.Tuple(masks)
                seen = spaces.Dict({"observation": seen, "action_mask": mask})
            acts = action_space(spec.actions)
            acts.seed(self._seed)
            self._spaces[agent] = seen, acts
        return self._spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Let the game begin anew. seed: of samplers of environment parameters; options: none are known."""
        self._game.reset({}, seed or 0)
        self.agents, self._seen, self._ended = [], {}, set()
        told: dict[str, dict[str, Any]] = {}
        while not self.agents:
            told |= self._hear()
            if not self.agents:
                self._answer({})
        return {name: self._seen[name] for name in self.agents}, {name: told[name]["info"] for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play on until an agent decides again or ends. actions: by agent; those of who does not decide are ignored."""
        before, told = list(self.agents), dict[str, dict[str, Any]]()
        if not before:
            return {}, {}, {}, {}, {}
        while not told:
            self._answer(actions)
            told = self._hear()
        names = [*before, *(name for name in self.agents if name not in before)]
        nothing = {"reward": 0.0, "terminated": False, "truncated": False, "info": {}}
        seen = {name: self._seen[name] for name in names}
        return seen, *({name: told.get(name, nothing)[key] for name in names} for key in nothing)

    def _answer(self, actions: Mapping[str, Any]) -> None:
        made: dict[str, F32] = {}
        for behavior, steps in self._asked.items():
            rows = np.zeros((len(steps), self._game.behaviors[behavior].actions.columns), np.float32)
            for i, agent in enumerate(steps.agent.tolist()):
                name = f"{behavior}?agent_id={agent}"
                if name in self.agents and name in actions:
                    rows[i] = columns(actions[name])
            made[behavior] = rows
        self._game.send(made)

    def _hear(self) -> dict[str, dict[str, Any]]:
        """Take in a message. Returns what it tells of agents that play: `reward`, `terminated`, `truncated`, `info`."""
        news, told = hear(self._game), dict[str, dict[str, Any]]()
        self._asked = news.decisions
        for over, by_behavior in ((True, news.ends), (False, news.decisions)):
            for behavior, steps in by_behavior.items():
                spec = self._game.behaviors[behavior]
                for i, agent in enumerate(steps.agent.tolist()):
                    name = f"{behavior}?agent_id={agent}"
                    if name in self._ended or (over and name not in self.agents):
                        continue
                    self._seen[name] = _observation(spec, steps, i)
                    cut = bool(over and steps.truncated[i])
                    info = {
                        "behavior_name": behavior,
                        "group_id": int(steps.group[i]),
                        "group_reward": float(steps.group_reward[i]),
                    } | ({"interrupted": cut} if over else {})
                    reward, terminated = float(steps.reward[i]), over and not cut
                    told[name] = {"reward": reward, "terminated": terminated, "truncated": cut, "info": info}
                    if over:
                        self._ended.add(name)
                        self.agents.remove(name)
                    elif name not in self.agents:
                        self.agents.append(name)
                    if name not in self.possible_agents:
                        self.possible_agents.append(name)
        return told

    def close(self) -> None:
        """End the game."""
        self._game.close()


def _observation(spec: BehaviorSpec, steps: Steps, i: int) -> Any:
    arrays = tuple(steps.observations[o.name][i] for o in spec.observations)
    seen: Any = arrays[0] if len(arrays) == 1 else arrays
    if not spec.branches:
        return seen
    size = sum(spec.branches)
    mask = steps.observations[MASKS][i].astype(np.int8) if MASKS in steps.observations else np.ones(size, np.int8)
    parts = tuple(np.split(mask, np.cumsum(spec.branches)[:-1]))
    return {"observation": seen, "action_mask": parts[0] if len(parts) == 1 else parts}


def UnityAECEnv(env: Any, seed: int | None = None, **settings: Any) -> Any:  # noqa: N802 - ML-Agents' name
    """The same in turns, by PettingZoo's own conversion. Arguments as of `UnityParallelEnv`."""
    return parallel_to_aec(UnityParallelEnv(env, seed, **settings))
