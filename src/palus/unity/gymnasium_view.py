"""A Unity game of one agent as a Gymnasium environment, by the name that ML-Agents' own wrapper has.

env = UnityToGymWrapper("Builds/Game", worker_id=1, no_graphics=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from palus.config.run_file import EDITOR, EngineSettings, EnvSettings
from palus.errors import EnvError
from palus.types import F32, MASKS, ActionSpec, AnyArray, BehaviorSpec, ObservationSpec
from palus.unity.base_env import BaseEnvGame
from palus.unity.news import News, Steps, TalkingGame

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.envs.registration import EnvSpec
except ImportError as error:
    raise EnvError("views of Unity games need the package gymnasium; pip install 'palus[unity]' gymnasium") from error


def open_game(env: Any, worker_id: int = 0, seed: int = 0, **settings: Any) -> TalkingGame:
    """env: an executable, None for the Editor, or an environment of ML-Agents' Python interface (`BaseEnvGame`).

    settings: of executables, by the names of a run file's `env_settings` and `engine_settings` (`base_port`,
    `timeout_wait`, `no_graphics`, `time_scale`, ...). Raises EnvError where it cannot be started, or for another name.
    """
    if env is not None and not isinstance(env, str | Path):
        talks: TalkingGame = env if hasattr(env, "receive") else BaseEnvGame(env)
        return talks
    from palus.unity.environment import UnityEnv

    path: dict[str, Any] = {"env_path": EDITOR if env is None else str(env)}
    own = {name: value for name, value in settings.items() if name in EnvSettings.model_fields.keys() - path.keys()}
    try:
        engine = EngineSettings(**{name: value for name, value in settings.items() if name not in own})
        launch = EnvSettings(**path, **own)
    except ValidationError as error:
        raise EnvError("; ".join(f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in error.errors())) from error
    return UnityEnv(launch, engine, worker_id, seed=seed)


def action_space(spec: ActionSpec) -> spaces.Space[Any]:
    """A Box in +-1, a Discrete for one branch, a MultiDiscrete for several, or a Tuple of both kinds."""
    numbers, branches = spec.columns - len(spec.branches), spec.branches
    parts: list[spaces.Space[Any]] = [spaces.Box(-1.0, 1.0, (numbers,), np.float32)] if numbers else []
    if branches:
        parts.append(spaces.Discrete(branches[0]) if len(branches) == 1 else spaces.MultiDiscrete(list(branches)))
    return parts[0] if len(parts) == 1 else spaces.Tuple(parts)


def columns(action: Any) -> F32:
    """[A] of an action of `action_space`."""
    return np.concatenate([np.ravel(part) for part in (action if isinstance(action, tuple) else (action,))]).astype(
        np.float32
    )


def box(spec: ObservationSpec) -> spaces.Box:
    """Pictures are (channels, height, width) in 0..1."""
    low, high = (0.0, 1.0) if spec.is_image else (-np.inf, np.inf)
    return spaces.Box(low, high, spec.shape, np.float32)


def hear(game: TalkingGame) -> News:
    """What a game says next that is about agents."""
    news = game.receive()
    while not (news.decisions or news.ends):
        game.send({})
        news = game.receive()
    return news


class UnityToGymWrapper(gymnasium.Env[Any, Any]):
    """One behavior with one agent. `info` has `action_mask`, 1 where a choice is allowed, where actions are branches.

    What a game does at random is seeded when it starts: `reset(seed=...)` seeds `np_random` alone.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(
        self,
        unity_env: Any,
        uint8_visual: bool = False,
        flatten_branched: bool = False,
        allow_multiple_obs: bool = False,
        action_space_seed: int | None = None,
        **settings: Any,
    ) -> None:
        """unity_env, settings: as `open_game` takes them. uint8_visual: pictures in 0..255. flatten_branched: one
        Discrete for all combinations. allow_multiple_obs: a tuple of all pictures, all lists of entities, and all
        vectors joined; else there may be one of these.

        Raises EnvError for a game of several behaviors, agents or forms of observation.
        """
        self._game = open_game(unity_env, **settings)
        self._uint8, self._over = uint8_visual, True
        try:
            self._name, _ = self._begin()
            self._spec: BehaviorSpec = self._game.behaviors[self._name]
            own = self._spec.observations
            self._parts = [[o] for o in own if o.is_image] + [[o] for o in own if len(o.shape) == 2]
            vectors = [o for o in own if o.is_vector]
            self._parts += [vectors] if vectors else []
            if len(self._parts) > 1 and not allow_multiple_obs:
                forms = ", ".join(str(part[0].shape) for part in self._parts)
                raise EnvError(f"{self._name} has several observations ({forms}); give allow_multiple_obs=True")
        except BaseException:
            self._game.kill()
            raise
        self.spec = EnvSpec(f"{self._spec.name}-v0", nondeterministic=True)
        seen = [self._space(part) for part in self._parts]
        self.observation_space = spaces.Tuple(seen) if allow_multiple_obs else seen[0]
        self._branches = self._spec.branches if flatten_branched and self._spec.actions.is_discrete else ()
        self.action_space = (
            spaces.Discrete(prod(self._branches)) if self._branches else action_space(self._spec.actions)
        )
        self.action_space.seed(action_space_seed)

    def _space(self, part: list[ObservationSpec]) -> spaces.Box:
        if part[0].is_image and self._uint8:
            return spaces.Box(0, 255, part[0].shape, np.uint8)
        return box(part[0]) if len(part) == 1 else spaces.Box(-np.inf, np.inf, (sum(o.size for o in part),), np.float32)

    def _begin(self, seed: int = 0) -> tuple[str, Steps]:
        """A new episode: the behavior id and its first decision."""
        self._game.reset({}, seed)
        news = hear(self._game)
        while not news.decisions:
            self._game.send({})
            news = hear(self._game)
        count = sum(len(steps) for steps in news.decisions.values())
        if count != 1:
            raise EnvError(f"{count} agents of {', '.join(news.decisions)}; expected one: use UnityParallelEnv")
        ((name, steps),) = news.decisions.items()
        return name, steps

    def _seen(self, steps: Steps) -> Any:
        found: list[AnyArray] = []
        for part in self._parts:
            values = np.concatenate([steps.observations[o.name][0] for o in part])
            as_bytes = part[0].is_image and self._uint8
            found.append((values * 255).round().astype(np.uint8) if as_bytes else values)
        return tuple(found) if isinstance(self.observation_space, spaces.Tuple) else found[0]

    def _info(self, steps: Steps) -> dict[str, Any]:
        masks = steps.observations.get(MASKS)
        return {} if masks is None or self._branches else {"action_mask": masks[0].astype(np.int8)}

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Let the game begin anew. options: none are known."""
        super().reset(seed=seed)
        _, steps = self._begin(seed or 0)
        self._over = False
        return self._seen(steps), self._info(steps)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play on until the agent decides again, or its episode is over. Raises EnvError when it is over already."""
        if self._over:
            raise EnvError("the episode is over; call reset")
        if self._branches:
            action = np.unravel_index(int(action), self._branches)
        self._game.send({self._name: columns(action)[None]})
        news = hear(self._game)
        steps = news.ends.get(self._name) or news.decisions[self._name]
        self._over = self._name in news.ends
        cut = bool(self._over and steps.truncated[0])
        info = {} if self._over else self._info(steps)
        return self._seen(steps), float(steps.reward[0] + steps.group_reward[0]), self._over and not cut, cut, info

    def close(self) -> None:
        """End the game."""
        self._game.close()
