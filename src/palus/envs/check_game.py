"""`check_game`: does a game keep the contract of `palus.envs.game`? Run it on your own games.

It plays random decisions; it judges the contract, not whether a game is interesting.
"""

from __future__ import annotations

import copy

import numpy as np

from palus.envs.game import Game, GameStep, by_behavior, observation_arrays, random_actions
from palus.errors import EnvError
from palus.types import MASKS, AnyArray, Bool, GameSpec

Record = list[tuple[dict[str, AnyArray], GameStep]]


def check_game(game: Game, *, decisions: int = 60, seed: int = 7, repeatable: bool = True) -> None:
    """Raise EnvError, naming the fault, unless `game` keeps the contract. Closes the game.

    decisions: random ones to play; let them cover a few episodes. repeatable: the same seed and actions must bring the
    same bits; False for engines that cannot promise it.
    """
    try:
        _check_shaping(game)
        first = _play(game, decisions, seed)
        if repeatable:
            _compare(game.spec.env_id, first, _play(game, decisions, seed))
    finally:
        game.close()
        game.close()


def _fail(env_id: str, message: str) -> EnvError:
    return EnvError(f"{env_id}: {message}")


def _play(game: Game, decisions: int, seed: int) -> Record:
    generator = np.random.default_rng(seed)
    game.reset(seed)
    record: Record = []
    for t in range(decisions):
        _check_active(game)
        seen = _observe(game, game.active)
        actions = random_actions(game, generator)
        given, active = copy.deepcopy(actions), game.active.copy()
        step = game.step(actions)
        before = by_behavior(game.spec, given)
        if not all(np.array_equal(part, before[name]) for name, part in by_behavior(game.spec, actions).items()):
            raise _fail(game.spec.env_id, "step changed the actions it was given; copy them first")
        _check_step(game, step, active)
        if step.truncated.any():
            _observe(game, step.truncated, final=True)
        kept = copy.deepcopy(step)
        record.append((seen, kept))
        if step.over:
            game.reset(seed + t + 1)
    return record


def _check_shaping(game: Game) -> None:
    spec = game.spec
    if not spec.shaping:
        return
    expected = np.tile([value for _, value in spec.shaping], (spec.num_agents, 1))
    found = getattr(game, "shaping", None)
    if not (isinstance(found, np.ndarray) and found.dtype == np.float64 and np.array_equal(found, expected)):
        raise _fail(
            spec.env_id,
            f"the specification names {len(spec.shaping)} numbers of shaping; expected an attribute `shaping`, float64 "
            f"{expected.shape}, that holds them for each agent",
        )


def _check_active(game: Game) -> None:
    spec = game.spec
    if game.active.shape != (spec.num_agents,) or game.active.dtype != np.bool_:
        raise _fail(
            spec.env_id, f"active is {game.active.dtype} {game.active.shape}; expected bool {(spec.num_agents,)}"
        )


def _observe(game: Game, wanted: Bool, final: bool = False) -> dict[str, AnyArray]:
    """Observations of the wanted agents, zeros for others; read over two grounds, to find what is not written."""
    what = "observe_final" if final else "observe"
    grounds = []
    for ground in (0, 1):
        arrays = observation_arrays(game.spec)
        for own in by_behavior(game.spec, arrays).values():
            for array in own.values():
                array[:] = ground
        (game.observe_final if final else game.observe)(arrays)
        grounds.append(by_behavior(game.spec, arrays))
    seen = {}
    for behavior, own in grounds[0].items():
        mine = wanted[list(game.spec.agents_of(behavior))]
        for name, first in own.items():
            if name == MASKS and final:
                continue
            label = f"{name} of {behavior}" if behavior else name
            if not np.isfinite(first[mine]).all():
                raise _fail(game.spec.env_id, f"{what} wrote numbers into {label} that are NaN or infinite")
            if not np.array_equal(first[mine], grounds[1][behavior][name][mine]):
                raise _fail(
                    game.spec.env_id, f"{what} leaves numbers of {label} unwritten, or changes them when called again"
                )
            if name == MASKS:
                _check_masks(game.spec, behavior, first[mine])
            first[~mine] = 0
            seen[label] = first
    return seen


def _check_masks(spec: GameSpec, behavior: str, masks: Bool) -> None:
    """Every discrete part leaves a choice."""
    ends = np.cumsum(spec.behavior(behavior).branches)[:-1]
    for part, allowed in enumerate(np.split(masks, ends, axis=1)):
        if not allowed.any(1).all():
            raise _fail(spec.env_id, f"masks forbid every choice of discrete part {part}; expected at least one")


def _check_step(game: Game, step: GameStep, active: Bool) -> None:
    spec, shape = game.spec, (game.spec.num_agents,)
    for name, dtype in (
        ("reward", np.float32), ("group_reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)
    ):  # fmt: skip
        array = getattr(step, name)
        if array is None and name == "group_reward":
            continue
        if array.shape != shape or array.dtype != dtype:
            raise _fail(spec.env_id, f"step.{name} is {array.dtype} {array.shape}; expected {np.dtype(dtype)} {shape}")
    shared = np.zeros(shape, np.float32) if step.group_reward is None else step.group_reward
    if not (np.isfinite(step.reward).all() and np.isfinite(shared).all()):
        raise _fail(spec.env_id, "step brought a reward that is NaN or infinite")
    ended = step.terminated | step.truncated
    for fault, message in (
        (step.terminated & step.truncated, "is terminated and truncated at once; an end is one or the other"),
        (ended & ~active, "ended without being active"),
        (~active & (step.reward != 0), "got a reward without being active"),
        (~active & (shared != 0), "got a group reward without being active"),
        (step.over & active & ~ended, "neither terminated nor truncated although the game is over"),
        (~np.bool_(step.over) & active & ~ended & ~game.active, "became inactive without having ended"),
    ):
        if fault.any():
            raise _fail(spec.env_id, f"agent {int(fault.argmax())} {message}")
    for group in {agent.group for agent in spec.agents}:
        members = np.array([agent.group == group for agent in spec.agents]) & active
        if len(set(shared[members].tolist())) > 1:
            raise _fail(spec.env_id, f"members of group {group} got different group rewards")
    if step.points and not (
        step.over and len(step.points) == len(spec.sides) and np.isclose(sum(step.points), len(spec.sides) / 2)
    ):
        raise _fail(
            spec.env_id,
            f"points {step.points}; expected, only when the game is over, one number for each of {len(spec.sides)} "
            f"sides with the sum {len(spec.sides) / 2:g}",
        )
    for agent in step.stats:
        if not 0 <= agent < spec.num_agents or not ended[agent]:
            raise _fail(spec.env_id, f"stats for agent {agent}, whose episode did not end in this step")


def _compare(env_id: str, first: Record, second: Record) -> None:
    """Raise unless both runs are equal bit for bit."""
    for t, ((seen, step), (seen_again, again)) in enumerate(zip(first, second, strict=True)):
        pairs = [(f"observation {name}", seen[name], seen_again[name]) for name in seen]
        pairs += [
            (f"step.{name}", getattr(step, name), getattr(again, name))
            for name in ("reward", "group_reward", "terminated", "truncated", "points")
        ]
        for name, a, b in pairs:
            if not np.array_equal(a, b):
                raise _fail(env_id, f"{name} of decision {t} differs between runs with the same seed and actions")
