"""The contract of games that run one instance at a time in worker processes: Doom, Gymnasium, PettingZoo, one's own.

`palus.envs.protocol` is its batched sister for games that step thousands of matches in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from palus.envs.protocol import room_for
from palus.errors import EnvError
from palus.types import F32, MASKS, ActionSpec, AnyArray, Bool, Discrete, GameSpec


@dataclass(frozen=True)
class GameStep:
    """What one decision brought to P agents. Arrays belong to the game and live until its next step.

    reward: [P] float32. terminated: [P] the agent's episode ended by the rules. truncated: [P] it was cut off.
    over: the whole game ended; the caller calls `reset` before it steps again.
    points: the game's verdict when it is over, in the order of `GameSpec.sides`, as in `palus.types.Step`; () for none.
    group_reward: [P] float32, the same for every member of a group that is still in the game; None for zeros.
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
    points: tuple[float, ...] = ()
    group_reward: F32 | None = None


Arrays = Mapping[str, Any]
"""Arrays by name for a game with one behavior; for one with several, behavior -> arrays by name."""
Actions = Any
"""[P, A] float32 for a game with one behavior, behavior -> [P_b, A_b] for one with several."""


class Game(Protocol):
    """One game instance with P agents. Not thread-safe; every method may be slow, none is called after `close`.

    Arrays of a behavior have P_b rows: its agents (`GameSpec.agents_of`), all P where there is one behavior only.
    """

    spec: GameSpec
    active: Bool
    """[P]: the agent takes a decision now. The rows of others are neither observed nor acted for."""

    def reset(self, seed: int) -> None:
        """Start a new episode. The same seed and actions give the same episode, where the engine allows it."""

    def observe(self, out: Arrays) -> None:
        """Write what all active agents see: out[name] is [P_b, *shape] of the observation's type, rays in full.

        Where actions are masked, out[palus.types.MASKS] is [P_b, M] bool: True for every choice that is allowed now, of
        all discrete parts side by side, and at least one of each.
        """

    def observe_final(self, out: Arrays) -> None:
        """The last observations of agents that were truncated in the latest step, before any reset; same arrays, whose
        masks need not be written."""

    def step(self, actions: Actions) -> GameStep:
        """Play one decision of `spec.frameskip` frames. actions: [P_b, A], columns as the behavior's actions lay them
        out."""

    def render(self) -> AnyArray:
        """The current picture for people, [height, width, 3] uint8. EnvError when the game has none."""

    def close(self) -> None:
        """Free everything, child processes and files included; calling it twice does no harm."""


@runtime_checkable
class EngineGame(Game, Protocol):
    """A game that an engine of its own plays: it may hang, and draws more pictures than there are decisions."""

    recorder: Callable[[AnyArray], None] | None
    """Gets every tic's picture, [height, width, 3] uint8, and with them as many a second as `GameSpec.fps` says."""

    def kill(self) -> None:
        """End the engine at once, from any thread: a call that waits for it then raises EnvError."""


def points_of(scores: Sequence[float]) -> tuple[float, ...]:
    """What the scores of all sides mean: the mean over the others of 1 for ahead, 0.5 for level, 0 for behind."""
    others = max(len(scores) - 1, 1)
    beaten = [sum((own > other) + 0.5 * (own == other) for other in scores) - 0.5 for own in scores]
    return tuple(points / others for points in beaten) if len(scores) > 1 else ()


def by_behavior(spec: GameSpec, arrays: Any) -> dict[str, Any]:
    """Behavior -> its part of `Arrays` or `Actions`, for any number of behaviors."""
    return dict(arrays) if len(spec.behaviors) > 1 else {spec.behaviors[0].name: arrays}


def joined(spec: GameSpec, parts: Mapping[str, Any]) -> Any:
    """The opposite: `Arrays` or `Actions` as the contract has them."""
    return parts if len(spec.behaviors) > 1 else parts[spec.behaviors[0].name]


def whole(spec: GameSpec) -> GameSpec:
    """The specification without compact rays: a game that steps alone writes whole observations."""
    if not any(o.rays for b in spec.behaviors for o in b.observations):
        return spec
    seen = [tuple(replace(o, rays=0) for o in b.observations) for b in spec.behaviors]
    return replace(spec, behaviors=tuple(replace(b, observations=o) for b, o in zip(spec.behaviors, seen, strict=True)))


def observation_arrays(spec: GameSpec) -> Arrays:
    """Zeroed arrays for `Game.observe`; masks allow everything."""
    arrays = {b.name: room_for(b, len(spec.agents_of(b.name))) for b in spec.behaviors}
    for room in arrays.values():
        if MASKS in room:
            room[MASKS][:] = True
    found: Arrays = joined(spec, arrays)
    return found


def random_actions(game: Game, generator: np.random.Generator) -> Actions:
    """Uniform actions among those that are allowed; a standard normal, clipped, where there are no finite limits."""
    spec = game.spec
    arrays = observation_arrays(spec)
    if any(b.actions.masked for b in spec.behaviors):
        game.observe(arrays)
    seen = by_behavior(spec, arrays)
    sizes = {b.name: len(spec.agents_of(b.name)) for b in spec.behaviors}
    drawn = {b.name: draw_actions(b.actions, sizes[b.name], seen[b.name].get(MASKS), generator) for b in spec.behaviors}
    return joined(spec, drawn)


def draw_actions(spec: ActionSpec, rows: int, masks: Bool | None, generator: np.random.Generator) -> F32:
    """[rows, A] as `random_actions` has them. masks: [rows, M]; a row that forbids everything gets first choices."""
    columns: list[AnyArray] = []
    first = 0
    for part in spec.parts:
        shape = (rows, part.columns)
        if isinstance(part, Discrete):
            if masks is None:
                choice = generator.integers(part.choices, size=shape)
            else:
                allowed = masks[:, first : first + part.choices]
                rank = generator.integers(np.maximum(allowed.sum(1, keepdims=True), 1))
                choice = np.argmax(allowed & (allowed.cumsum(1) == rank + 1), 1)[:, None]
            first += part.choices
            columns.append(choice.astype(np.float32))
        elif np.isfinite([part.low, part.high]).all():
            columns.append(generator.uniform(part.low, part.high, shape).astype(np.float32))
        else:
            columns.append(generator.standard_normal(shape, np.float32).clip(part.low, part.high))
    return np.concatenate(columns, axis=1)


def set_parameters(game: Game, parameters: Mapping[str, float]) -> None:
    """Change numbers of a game that has a method of this name. Raises EnvError for names that it does not have."""
    change = getattr(game, "set_parameters", None)
    if change is not None:
        change(parameters)
    elif parameters:
        raise EnvError(f"{game.spec.env_id} has no environment parameters; found {', '.join(sorted(parameters))}")
