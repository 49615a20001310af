"""Gymnasium environments as games: one environment, or many of one kind side by side as the agents of one game.

One that tells `action_mask` in its info at a reset, and whose action is one Discrete, is played with masked actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from palus.envs.game import GameStep
from palus.errors import EnvError
from palus.types import F32, MASKS, AnyArray, Bool, GameSpec

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
except ImportError as error:
    raise EnvError("Gymnasium's games need the package gymnasium; pip install 'palus[doom]'") from error

from palus.envs.gymnasium_spaces import (
    ActionWriter,
    EnvGame,
    ObservationReader,
    action_mask,
    episode_stats,
    fps_of,
)


def make(id: str, *, num_envs: int = 1, vectorization_mode: str = "sync", **options: Any) -> GymnasiumGame | VectorGame:
    """A registered environment; `module:Name-v0` imports the module first. options: the environment's own keywords.

    num_envs: more than one are stepped together, as the agents of one game: for environments whose step costs less than
    a message. vectorization_mode: `vector_entry_point` uses the environment's own vectorised implementation.
    Raises EnvError when Gymnasium does not know the environment, or what it needs cannot be imported.
    """
    try:
        if num_envs == 1:
            return GymnasiumGame(gymnasium.make(id, **options), id)
        settings = {"autoreset_mode": AutoresetMode.SAME_STEP} if vectorization_mode == "sync" else None
        env = gymnasium.make_vec(id, num_envs, vectorization_mode, settings, **options)
    except gymnasium.error.Error as error:
        raise EnvError(f"Gymnasium cannot make {id!r}: {error}") from error
    except ImportError as error:
        raise EnvError(f"Gymnasium cannot make {id!r}: {str(error).rstrip('.')}; check PYTHONPATH") from error
    return VectorGame(env, id)


class GymnasiumGame(EnvGame):
    """One environment, one agent. Use it on an instance of your own: `GymnasiumGame(MyEnv(), "my_env")`."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._name = env_id
        self.reset(0)
        masked = action_mask(env.action_space, self._info) is not None
        self._reader, self._writer = ObservationReader(env.observation_space), ActionWriter(env.action_space, masked)
        self.spec = GameSpec.alike(env_id, self._reader.specs, self._writer.spec, fps=fps_of(env))
        self.active: Bool = np.ones(1, np.bool_)

    def reset(self, seed: int) -> None:
        """Start an episode with that seed. Raises EnvError for an environment of the API before Gymnasium's."""
        begun = self._env.reset(seed=seed)
        if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], Mapping)):
            raise EnvError(f"{self._name}: reset has to return (observation, info); found {type(begun).__name__}")
        self._observation, self._info = begun

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """Write the observation of the latest reset or step."""
        self._reader.write_one(self._observation, out)
        if MASKS in out:
            mask = action_mask(self._env.action_space, self._info)
            out[MASKS][:] = True if mask is None else mask

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """The same: nothing is reset unasked."""
        self.observe(out)

    def step(self, actions: F32) -> GameStep:
        """One step of the environment; an end that is both counts as terminated."""
        self._observation, reward, terminated, truncated, self._info = self._env.step(self._writer.one(actions[0]))
        over = bool(terminated or truncated)
        return GameStep(
            reward=np.array([reward], np.float32),
            terminated=np.array([terminated], np.bool_),
            truncated=np.array([truncated and not terminated], np.bool_),
            over=over,
            stats={0: episode_stats(self._info)} if over else {},
        )


class VectorGame(EnvGame):
    """N environments of one kind as N agents, each with episodes of its own; the game as a whole is never over.

    An environment that resets itself within the step goes on at once. One that needs a step for it (`NEXT_STEP`) is
    inactive for that step.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        if self._mode is AutoresetMode.DISABLED:
            raise EnvError(f"{env_id} does not reset its environments; build it with autoreset_mode SAME_STEP")
        self._observations, self._info = env.reset(seed=0)
        masked = action_mask(env.single_action_space, self._info) is not None
        self._reader = ObservationReader(env.single_observation_space)
        self._writer = ActionWriter(env.single_action_space, masked)
        self.spec = GameSpec.alike(env_id, self._reader.specs, self._writer.spec, env.num_envs, fps=fps_of(env))
        self.active: Bool = np.ones(env.num_envs, np.bool_)
        self._finals: Mapping[int, Any] = {}

    def reset(self, seed: int) -> None:
        """Start all episodes; environment i has the seed `seed` + i."""
        self._observations, self._info = self._env.reset(seed=seed)
        self.active[:] = True

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """Write every environment's observation."""
        self._reader.write(self._observations, out)
        if MASKS in out:
            mask = action_mask(self._env.single_action_space, self._info)
            told = self._info.get("_action_mask", True)  # who told one
            out[MASKS][:] = True if mask is None else mask | ~np.broadcast_to(told, len(mask))[:, None]

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """Write the observations before the resets of the latest step; other rows as `observe` does."""
        self.observe(out)
        for row, observation in self._finals.items():
            self._reader.write_one(observation, out, row)

    def step(self, actions: F32) -> GameStep:
        """One step of all environments."""
        played = self.active.copy()
        self._observations, reward, terminated, truncated, self._info = self._env.step(self._writer.batch(actions))
        terminated, truncated = terminated & played, truncated & ~terminated & played
        ended = np.flatnonzero(terminated | truncated).tolist()
        if self._mode is AutoresetMode.SAME_STEP:
            self._finals = {row: self._info["final_obs"][row] for row in ended}
            infos = self._info.get("final_info", {})
        else:
            self.active[:] = ~(terminated | truncated)
            infos = self._info
        stats = {row: episode_stats(_info_of(infos, row)) for row in ended}
        return GameStep(np.where(played, reward, 0).astype(np.float32), terminated, truncated, False, stats)

    def render(self) -> AnyArray:
        """The first environment's picture."""
        first: AnyArray = super().render()[0]
        return first


def _info_of(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """One environment's part of a vectorised info: arrays beside `_name` masks, nested for dictionaries."""
    own: dict[str, Any] = {}
    for name, values in infos.items():
        if isinstance(values, Mapping):
            own[name] = _info_of(values, row)
        elif not name.startswith("_") and bool(infos.get(f"_{name}", np.ones(row + 1))[row]):
            own[name] = values[row]
    return own
