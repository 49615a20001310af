"""Gymnasium's spaces in palus' words, for single and vectorised environments alike.

Observations: images become [channels, height, width] and keep uint8, everything else a float32 vector, one-hot where it
is a choice. Boards, planes of int8 or bool, are vectors too: they are smaller than the convolutions for images.
Actions: whatever is made of Discrete, MultiDiscrete, MultiBinary and Box, nested or not, becomes parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from palus.errors import EnvError
from palus.types import F32, ActionPart, ActionSpec, AnyArray, Bool, Continuous, Discrete, GameSpec, ObservationSpec

CHANNELS = (1, 3, 4)


class ObservationReader:
    """Writes a space's observations into named arrays. Raises EnvError on a space that no encoder takes."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._fields = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        self._is_dict = isinstance(space, spaces.Dict)
        self.specs = tuple(_observation_spec(name, field) for name, field in self._fields.items())

    def write(self, observations: Any, out: Mapping[str, AnyArray]) -> None:
        """observations: a batch of N, as vectorised environments give it. out[name]: [N, *shape]."""
        for spec in self.specs:
            space = self._fields[spec.name]
            value = np.asarray(observations[spec.name] if self._is_dict else observations)
            out[spec.name][...] = _arrange(space, spec, value)

    def write_one(self, observation: Any, out: Mapping[str, AnyArray], row: int = 0) -> None:
        """The same for a single observation, into one row."""
        batch = (
            {k: np.asarray(v)[None] for k, v in observation.items()} if self._is_dict else np.asarray(observation)[None]
        )
        self.write(batch, {name: array[row : row + 1] for name, array in out.items()})


def _observation_spec(name: str, space: spaces.Space[Any]) -> ObservationSpec:
    if isinstance(space, spaces.Discrete):
        return ObservationSpec(name, (int(space.n),), sparse=space.n > 2)
    if isinstance(space, spaces.MultiDiscrete):
        return ObservationSpec(name, (int(space.nvec.sum()),), sparse=bool((space.nvec > 2).all()))
    if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype not in (np.int8, np.bool_):
        height, width, channels = space.shape if _channels_last(space) else (*space.shape[1:], space.shape[0])
        return ObservationSpec(name, (channels, height, width), "uint8" if space.dtype == np.uint8 else "float32")
    if isinstance(space, spaces.Box) and len(space.shape) == 2 and space.dtype == np.uint8:
        return ObservationSpec(name, (1, *space.shape), "uint8")
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return ObservationSpec(name, (max(int(np.prod(space.shape)), 1),))
    raise EnvError(
        f"observation {name}: {space} is neither numbers, an image nor a choice; wrap the environment with "
        "gymnasium.wrappers.FlattenObservation, or return a Dict of plain spaces"
    )


def _channels_last(space: spaces.Box) -> bool:
    return space.shape[-1] in CHANNELS and space.shape[0] not in CHANNELS


def _arrange(space: spaces.Space[Any], spec: ObservationSpec, value: AnyArray) -> AnyArray:
    """One field's batch in the layout of its spec."""
    if isinstance(space, spaces.Discrete):
        return _one_hot(value - space.start, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        offset, sizes = value - space.start, space.nvec.ravel()
        columns = offset.reshape(len(value), -1).T
        return np.concatenate([_one_hot(column, int(n)) for column, n in zip(columns, sizes, strict=True)], axis=1)
    if isinstance(space, spaces.Box) and spec.is_image and len(space.shape) == 3 and _channels_last(space):
        return np.moveaxis(value, -1, 1)
    return value.reshape(len(value), *spec.shape)


def _one_hot(index: AnyArray, choices: int) -> AnyArray:
    return np.asarray(index.reshape(-1, 1) == np.arange(choices), np.float32)


class ActionWriter:
    """Turns action columns into what the space's environment takes. Raises EnvError on a space it cannot express.

    masked: the environment says which choices are allowed.
    """

    def __init__(self, space: spaces.Space[Any], masked: bool = False) -> None:
        self._space = space
        self.spec = ActionSpec(tuple(_parts(space)), masked)

    def batch(self, actions: F32) -> Any:
        """actions: [N, A] -> a vectorised environment's batch; continuous numbers are clipped to their box."""
        return _decode(self._space, actions)

    def one(self, action: F32) -> Any:
        """action: [A] -> a single environment's action."""
        return _first(self._space, _decode(self._space, action[None]))


def _parts(space: spaces.Space[Any]) -> list[ActionPart]:
    if isinstance(space, spaces.Discrete):
        return [Discrete(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        return [Discrete(int(n)) for n in space.nvec.ravel()]
    if isinstance(space, spaces.MultiBinary):
        return [Discrete(2)] * int(np.prod(space.shape))
    if isinstance(space, spaces.Box):
        low, high = space.low.ravel().astype(float), space.high.ravel().astype(float)
        if (low == low[0]).all() and (high == high[0]).all():
            return [Continuous(len(low), low[0], high[0])]
        return [Continuous(1, a, b) for a, b in zip(low, high, strict=True)]
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return [part for _, child in _children(space) for part in _parts(child)]
    raise EnvError(f"action space {space}; expected one made of Discrete, MultiDiscrete, MultiBinary and Box")


def _children(space: Any) -> list[tuple[Any, spaces.Space[Any]]]:
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))


def _decode(space: spaces.Space[Any], columns: F32) -> Any:
    if isinstance(space, spaces.Tuple | spaces.Dict):
        children = _children(space)
        widths = [sum(part.columns for part in _parts(child)) for _, child in children]
        blocks = np.split(columns, np.cumsum(widths)[:-1], axis=1)
        decoded = {key: _decode(child, block) for (key, child), block in zip(children, blocks, strict=True)}
        return decoded if isinstance(space, spaces.Dict) else tuple(decoded.values())
    if isinstance(space, spaces.Discrete):
        return columns[:, 0].astype(np.int64) + space.start
    shaped = columns.reshape(len(columns), *(space.shape or ()))
    if isinstance(space, spaces.MultiDiscrete):
        return shaped.astype(space.dtype) + space.start
    if isinstance(space, spaces.Box):
        return np.clip(shaped, space.low, space.high).astype(space.dtype)
    return shaped.astype(space.dtype)


def _first(space: spaces.Space[Any], batch: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _first(child, batch[key]) for key, child in _children(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_first(child, batch[i]) for i, child in _children(space))
    return batch[0]


def action_mask(space: spaces.Space[Any], info: Mapping[str, Any]) -> Bool | None:
    """What an environment's info allows to choose in a Discrete space, as [choices] or [N, choices]; None: all."""
    mask = info.get("action_mask") if isinstance(space, spaces.Discrete) else None
    return None if mask is None else np.asarray(mask).astype(np.bool_)


def episode_stats(info: Mapping[str, Any]) -> dict[str, float]:
    """What an environment says about an episode that ended: `true_objective`, and all of `episode_extra_stats`."""
    stats = {str(name): float(value) for name, value in dict(info.get("episode_extra_stats", {})).items()}
    if "true_objective" in info:
        stats["true_objective"] = float(info["true_objective"])
    return stats


def fps_of(env: Any) -> float:
    """Pictures per second of an environment's time."""
    return float(env.metadata.get("render_fps") or 30)


class EnvGame:
    """What games share that are somebody's environment, `_env`."""

    spec: GameSpec

    def __init__(self, env: Any) -> None:
        self._env, self._open = env, True

    def render(self) -> AnyArray:
        """The environment's own picture. Raises EnvError when it draws none."""
        drawn = self._env.render() if getattr(self._env, "render_mode", None) == "rgb_array" else None
        if drawn is None or not len(drawn):
            raise EnvError(f"{self.spec.env_id} draws no pictures now; give the option render_mode: rgb_array")
        return np.asarray(drawn)

    def close(self) -> None:
        """Close the environment once."""
        if self._open:
            self._open = False
            self._env.close()
