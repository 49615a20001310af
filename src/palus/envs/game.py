"""The contract of games that run one instance at a time in worker processes: Doom, Gymnasium, PettingZoo, one's own.

`palus.envs.protocol` is its batched sister for games that step thousands of matches in one call.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from palus.errors import EnvError
from palus.spaces import Discrete, GameSpec
from palus.types import F32, F64, AnyArray, Bool

GAMES: dict[str, str] = dict.fromkeys(
    (
        "doom_basic",
        "doom_two_colors_easy",
        "doom_two_colors_hard",
        "doom_my_way_home",
        "doom_my_way_home_flat_actions",
        "doom_deadly_corridor",
        "doom_defend_the_center",
        "doom_defend_the_center_flat_actions",
        "doom_defend_the_line",
        "doom_health_gathering",
        "doom_health_gathering_supreme",
        "doom_battle",
        "doom_battle2",
        "doom_benchmark",
        "doom_duel_bots",
        "doom_deathmatch_bots",
        "doom_duel",
        "doom_deathmatch_full",
        "doom_dm",
        "doom_dwango5",
    ),
    "palus.envs.doom:make",
)
"""Short name -> `module:factory` of the games that come with palus, Doom's among them; factories take keywords."""


@dataclass(frozen=True)
class GameStep:
    """What one decision brought to P agents. Arrays belong to the game and live until its next step.

    reward: [P] float32. terminated: [P] the agent's episode ended by the rules. truncated: [P] it was cut off.
    over: the whole game ended; the caller calls `reset` before it steps again.
    stats: of episodes that ended now, agent index -> name -> number. `true_objective`, where present, is what ranks and
    reports use in place of the sum of rewards.

    An agent that ended without `over` is inactive until the game is over, or, when it is still active, has begun its
    next episode by itself (vectorised environments).
    """

    reward: F32
    terminated: Bool
    truncated: Bool
    over: bool
    stats: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


class Game(Protocol):
    """One game instance with P agents. Not thread-safe; every method may be slow, none is called after `close`."""

    spec: GameSpec
    active: Bool
    """[P]: the agent takes a decision now. The rows of others are neither observed nor acted for."""

    def reset(self, seed: int) -> None:
        """Start a new episode. The same seed and actions give the same episode, where the engine allows it."""

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """Write the observations of all active agents: out[name] is [P, *shape] of the observation's type."""

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """The last observations of agents that were truncated in the latest step, before any reset; same arrays."""

    def step(self, actions: F32) -> GameStep:
        """Play one decision of `spec.frameskip` frames. actions: [P, A], columns as `spec.actions` lays them out."""

    def render(self) -> AnyArray:
        """The current picture for people, [height, width, 3] uint8. EnvError when the game has none."""

    def close(self) -> None:
        """Free everything, child processes and files included; calling it twice does no harm."""


class ShapedGame(Game, Protocol):
    """A game whose reward contains numbers that may be tuned: those of `GameSpec.shaping`, for each agent its own."""

    shaping: F64
    """[P, numbers]: obeyed from the next step on; one array for the game's life, written by whoever tunes."""


def make_game(env_id: str, **options: Any) -> Game:
    """A new instance of a game: a key of `GAMES`, or `module:factory` of one's own (a class or a function).

    A Gymnasium or PettingZoo environment is made by the adapters' factories, `palus.envs.gymnasium:make` and
    `palus.envs.pettingzoo:make`. Raises EnvError when there is no such game or it refuses the options.
    """
    path = GAMES.get(env_id, env_id)
    module, _, attribute = path.partition(":")
    if not attribute:
        raise EnvError(f"unknown game {env_id!r}; give one of {', '.join(sorted(GAMES)) or 'none'}, or module:factory")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvError(f"game {path!r} cannot be imported ({error}); check module, attribute and PYTHONPATH") from error
    if path != env_id:
        options = {"env_id": env_id, **options}
    try:
        return cast(Game, factory(**options))
    except TypeError as error:
        raise EnvError(f"game {env_id} refuses the options {sorted(options)}: {error}") from error


def random_actions(spec: GameSpec, generator: np.random.Generator) -> F32:
    """Uniform actions [P, A]; a standard normal, clipped, where a continuous part has no finite limits."""
    columns: list[AnyArray] = []
    for part in spec.actions.parts:
        shape = (spec.num_agents, part.columns)
        if isinstance(part, Discrete):
            columns.append(generator.integers(part.choices, size=shape).astype(np.float32))
        elif np.isfinite([part.low, part.high]).all():
            columns.append(generator.uniform(part.low, part.high, shape).astype(np.float32))
        else:
            columns.append(generator.standard_normal(shape, np.float32).clip(part.low, part.high))
    return np.concatenate(columns, axis=1)
