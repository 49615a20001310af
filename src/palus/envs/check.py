"""`check_env`: does an environment keep the contract of `palus.envs.protocol`? Run it on your own games.

It plays random matches and compares bits; it judges the contract, not whether a game is interesting.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from palus.envs.game import draw_actions
from palus.envs.protocol import MultiAgentEnv, room_for
from palus.errors import EnvError
from palus.types import (
    F32,
    I32,
    I64,
    MASKS,
    RAY_DISTANCES,
    RAY_TAGS,
    AnyArray,
    BehaviorSpec,
    Bool,
    GameSpec,
    Step,
)

Order = np.typing.NDArray[np.intp]
Seen = dict[str, AnyArray]
"""What the agents of one behavior see: name -> [N, P_b, ...], zeros for those that were not asked for."""
STEP_DTYPES = {
    "reward": np.float32,
    "group_reward": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "match_over": np.bool_,
}


@dataclass(frozen=True)
class Moment:
    """One decision of a played record: what was seen before it, and what it brought. Lists are per behavior."""

    active: Bool
    observations: list[Seen]
    step: Step
    finals: list[Seen]


def check_env(
    env: MultiAgentEnv,
    *,
    make: Callable[[int], MultiAgentEnv] | None = None,
    decisions: int = 40,
    seed: int = 7,
    repeatable: bool = True,
) -> None:
    """Raise EnvError, naming the fault, unless `env` keeps the contract. Leaves `env` in the middle of some match.

    make: builds the same game with another number of matches; then independence of that number is tested too.
    decisions: random decisions per record played; let it cover a few matches.   seed: of matches and actions.
    repeatable: the same seed and actions must bring the same bits; False for engines that cannot promise it.
    """
    _check_spec(env)
    n = env.num_matches
    seeds = np.arange(n, dtype=np.int64) * 1_000_003 + seed
    env.reset(seeds)
    first = _play(env, seeds, decisions)
    _check_lengths(env.spec, first)
    if not repeatable:
        return

    env.reset(seeds)
    played = _play(env, seeds, decisions, idle=1)
    _compare(env.spec, first, played, np.arange(n), "the same seeds and actions (inactive agents' actions aside)")
    if n > 1:
        order = np.roll(np.arange(n), 1)
        env.reset(seeds[order])
        played = _play(env, seeds[order], decisions)
        _compare(env.spec, first, played, order, "the same seeds in other slots (a slot must depend on its own seed)")
    if make is not None:
        single = make(1)
        single.reset(seeds[:1])
        played = _play(single, seeds[:1], decisions)
        _compare(env.spec, first, played, np.zeros(1, np.intp), "the same match with num_matches 1")
    _check_state(env, seeds, decisions)


def fail(spec: GameSpec, message: str) -> EnvError:
    """The error that names the game."""
    return EnvError(f"{spec.env_id}: {message}")


def _check_spec(env: MultiAgentEnv) -> None:
    spec = env.spec
    names = [b.name for b in spec.behaviors]
    if env.num_matches < 1:
        raise fail(spec, f"num_matches is {env.num_matches}; expected at least 1")
    if len(set(names)) != len(names) or not names:
        raise fail(spec, f"behaviors are named {names}; expected distinct names, at least one")
    if spec.max_decisions < 0:
        raise fail(spec, f"max_decisions is {spec.max_decisions}; expected 0 (no limit) or more")
    for b in spec.behaviors:
        if not spec.agents_of(b.name):
            raise fail(spec, f"behavior {b.name} drives no agent; remove it or give an agent that behavior")
    teams: dict[int, int] = {}
    for agent in spec.agents:
        if agent.behavior not in names:
            raise fail(spec, f"agent {agent.name} has behavior {agent.behavior!r}; expected one of {names}")
        if teams.setdefault(agent.group, agent.team) != agent.team:
            raise fail(spec, f"group {agent.group} spans several teams; give each team its own group number")


def _random_actions(env: MultiAgentEnv, seeds: I64, t: int, idle: int, seen: list[Seen]) -> list[F32]:
    """Actions that depend on slot seed and time only; inactive agents get some by `idle`, which must not matter."""
    actions = []
    for b, own in zip(env.spec.behaviors, seen, strict=True):
        agents = env.spec.agents_of(b.name)
        masks = own.get(MASKS, [None] * len(seeds))
        drawn = [
            draw_actions(b.actions, len(agents), masks[n], np.random.default_rng((seed, t)))
            for n, seed in enumerate(seeds.tolist())
        ]
        aside = draw_actions(b.actions, len(agents), None, np.random.default_rng(idle))
        actions.append(np.where(env.active[:, agents, None], drawn, aside))
    return actions


def _observe(env: MultiAgentEnv, wanted: Bool, *, final: bool = False) -> list[Seen]:
    """What the wanted agents see, per behavior; tests that exactly their rows are written, over two grounds."""
    what = "observe_final" if final else "observe"
    result = []
    for b in env.spec.behaviors:
        agents = env.spec.agents_of(b.name)
        mask = wanted[:, agents]
        # Even rows are asked for, in reverse order; odd rows and the unwanted agents' must stay as they are.
        rows = (2 * np.arange(mask.size, dtype=np.int32)[::-1]).reshape(mask.shape)
        written = _two_grounds(env, b.name, np.where(mask, rows, np.int32(-1)).astype(np.int32), 2 * mask.size, final)
        expected = np.zeros(2 * mask.size, np.bool_)
        expected[rows[mask]] = True
        seen: Seen = {}
        for name, (first, second) in written.items():
            flat = (first.reshape(len(first), -1), second.reshape(len(second), -1))
            if ((flat[0] != 0) | (flat[1] != 1)).any(1)[~expected].any():
                raise fail(env.spec, f"{what}({b.name!r}) wrote rows it was not given; write out[rows[n, p]] only")
            missing = np.argwhere(mask & ~(np.isfinite(flat[0]) & (flat[0] == flat[1])).all(1)[rows])
            if len(missing):
                where = f"match {missing[0][0]}, agent {env.spec.agents[agents[missing[0][1]]].name}"
                raise fail(
                    env.spec,
                    f"{what}({b.name!r}) left numbers of {name} unwritten, changed them when called again, or wrote "
                    f"non-finite numbers for {where}",
                )
            seen[name] = np.where(mask.reshape(*mask.shape, *[1] * (first.ndim - 1)), first[rows], 0)
        _check_masks(env.spec, b.name, seen.get(MASKS), mask)
        _check_rays(env, b, mask, seen, final)
        result.append(seen)
    return result


def _two_grounds(
    env: MultiAgentEnv, behavior: str, rows: I32, count: int, final: bool
) -> dict[str, tuple[AnyArray, AnyArray]]:
    """The arrays that an observation wrote over zeros, and those that it wrote over ones."""
    grounds = []
    for ground in (0, 1):
        room = room_for(env.spec.behavior(behavior), count, masks=not final)
        for array in room.values():
            array[:] = ground
        (env.observe_final if final else env.observe)(behavior, rows, room)
        grounds.append(room)
    return {name: (grounds[0][name], grounds[1][name]) for name in grounds[0]}


def _check_rays(env: MultiAgentEnv, behavior: BehaviorSpec, wanted: Bool, whole: Seen, final: bool) -> None:
    """Rays say the same in compact form, where the spec says that there are any."""
    rays = [o for o in behavior.observations if o.rays]
    if not rays:
        return
    rows = np.where(wanted, np.arange(wanted.size).reshape(wanted.shape), -1).astype(np.int32)
    room = room_for(behavior, wanted.size, masks=not final, rays=True)
    look = env.observe_final if final else env.observe
    what = f"{look.__name__}({behavior.name!r})"
    try:
        look(behavior.name, rows, room)
    except KeyError as error:
        raise fail(
            env.spec,
            f"{what} asks for {error} where rays are wanted in compact form (`palus.types.RAY_TAGS`); write that where "
            "`out` has it, or leave `ObservationSpec.rays` at 0",
        ) from error
    for o in rays:
        tags, distances = room[o.name + RAY_TAGS], room[o.name + RAY_DISTANCES]
        unfolded = (tags[..., None] == np.arange(1, o.size // o.rays + 1)).astype(np.float32)
        unfolded[..., -1] = distances
        if (unfolded.reshape(*wanted.shape, -1) != whole[o.name])[wanted].any():
            raise fail(env.spec, f"{what}: rays of {o.name} in compact form are others than in the whole observation")


def _check_masks(spec: GameSpec, behavior: str, masks: AnyArray | None, wanted: Bool) -> None:
    """Every branch leaves a choice."""
    if masks is None:
        return
    offsets = spec.behavior(behavior).branch_offsets
    for branch, (first, end) in enumerate(itertools.pairwise(offsets.tolist())):
        stuck = np.argwhere(wanted & ~masks[:, :, first:end].any(2))
        if len(stuck):
            agent = spec.agents[spec.agents_of(behavior)[stuck[0][1]]].name
            raise fail(spec, f"match {stuck[0][0]}: the mask of agent {agent} forbids every choice of branch {branch}")


def _play_decision(env: MultiAgentEnv, seeds: I64, t: int, idle: int = 0) -> Moment:
    """Observe twice, act, observe the ends; raises on every broken rule that one decision can show."""
    spec, shape = env.spec, (env.num_matches, len(env.spec.agents))
    if env.active.shape != shape or env.active.dtype != np.bool_:
        raise fail(spec, f"active is {env.active.dtype} {env.active.shape}; expected bool {shape}")
    active = env.active.copy()
    # A single game may pause as a whole: vectorised environments that take a step for their resets.
    if env.num_matches > 1 and not active.any(axis=1).all():
        raise fail(spec, f"match {int(np.argmin(active.any(axis=1)))} goes on without an active agent")
    observations = _observe(env, active)
    _check_half(env, active, observations, t)
    live = env.step(_random_actions(env, seeds, t, idle, observations))
    step = copy.deepcopy(live)
    # Who is active next may be known when the next match has begun: the last observations are read before.
    _check_step(spec, step, active, active if step.match_over.all() else env.active)
    return Moment(active, observations, step, _observe_finals(env, step))


def _check_half(env: MultiAgentEnv, active: Bool, observations: list[Seen], t: int) -> None:
    """Observing every second agent again gives the same numbers and leaves the others' rows alone."""
    n, p = active.shape
    half = active & ((np.arange(n)[:, None] + np.arange(p) + t) % 2 == 0)
    again = _observe(env, half)
    for b, before, after in zip(env.spec.behaviors, observations, again, strict=True):
        mask = half[:, env.spec.agents_of(b.name)]
        if not all(np.array_equal(before[name][mask], after[name][mask]) for name in before):
            raise fail(env.spec, f"observe({b.name!r}) changed its numbers when called again; it must only read")


def _observe_finals(env: MultiAgentEnv, step: Step) -> list[Seen]:
    """Final observations of truncated agents; the environment is given every row and must not write other agents'."""
    ended = step.terminated | step.truncated
    for b in env.spec.behaviors:
        mask = ended[:, env.spec.agents_of(b.name)]
        rows = np.arange(mask.size, dtype=np.int32).reshape(mask.shape)
        for first, second in _two_grounds(env, b.name, rows, mask.size, final=True).values():
            touched = ((first != 0) | (second != 1)).reshape(mask.size, -1).any(1)
            if (touched & ~mask.ravel()).any():
                raise fail(env.spec, f"observe_final({b.name!r}) wrote rows of agents that did not end")
    return _observe(env, step.truncated, final=True)


def _check_step(spec: GameSpec, step: Step, active: Bool, active_after: Bool) -> None:
    n, p = active.shape
    for name, dtype in STEP_DTYPES.items():
        array, shape = getattr(step, name), (n,) if name == "match_over" else (n, p)
        if array.shape != shape or array.dtype != dtype:
            raise fail(spec, f"step.{name} is {array.dtype} {array.shape}; expected {np.dtype(dtype)} {shape}")
    _check_points(spec, step)
    if not (np.isfinite(step.reward).all() and np.isfinite(step.group_reward).all()):
        raise fail(spec, "step brought a reward that is NaN or infinite")
    ended = step.terminated | step.truncated
    for fault, message in (
        (step.terminated & step.truncated, "is terminated and truncated at once; an end is one or the other"),
        (ended & ~active, "ended without being active"),
        (~active & (step.reward != 0), "got a reward without being active"),
        (~active & (step.group_reward != 0), "got a group reward without being active"),
        (step.match_over[:, None] & active & ~ended, "neither terminated nor truncated although its match is over"),
        (~step.match_over[:, None] & active & ~ended & ~active_after, "became inactive without having ended"),
    ):
        if fault.any():
            match, agent = np.argwhere(fault)[0]
            raise fail(spec, f"match {match}: agent {spec.agents[agent].name} {message}")
    for match, agents in step.stats.items():
        strange = [agent for agent in agents if not ended[match, agent]]
        if strange:
            raise fail(spec, f"match {match}: stats of agent {strange[0]}, whose episode did not end")
    for group in {a.group for a in spec.agents}:
        members = [i for i, a in enumerate(spec.agents) if a.group == group]
        share = np.where(active[:, members], step.group_reward[:, members], np.nan)
        for match in np.flatnonzero(active[:, members].any(axis=1)):
            if np.nanmax(share[match]) != np.nanmin(share[match]):
                raise fail(spec, f"match {match}: members of group {group} got different group rewards")


def _check_points(spec: GameSpec, step: Step) -> None:
    """A finished match has a verdict for every side or for none."""
    shape = (len(step.match_over), len(spec.sides))
    if step.points.shape != shape or step.points.dtype != np.float32:
        raise fail(spec, f"step.points is {step.points.dtype} {step.points.shape}; expected float32 {shape}")
    told = step.points[step.match_over]
    none = np.isnan(told).all(1)
    if not (none | ((told >= 0) & (told <= 1)).all(1)).all():
        raise fail(spec, f"points {told[~none][0]} of a match; expected a share in [0, 1] for each side, or NaN")
    if not np.allclose(told[~none].sum(1), shape[1] / 2):
        raise fail(spec, f"points {told[~none][0]} of a match; expected the sum {shape[1] / 2:g}")


def _check_lengths(spec: GameSpec, record: list[Moment]) -> None:
    """No match lasts longer than `max_decisions`."""
    played = np.zeros(len(record[0].step.match_over), np.int64)
    for moment in record:
        played += 1
        if spec.max_decisions and (played > spec.max_decisions).any():
            raise fail(spec, f"a match lasts longer than max_decisions = {spec.max_decisions}")
        played[moment.step.match_over] = 0


def _play(env: MultiAgentEnv, seeds: I64, decisions: int, idle: int = 0) -> list[Moment]:
    return [_play_decision(env, seeds, t, idle) for t in range(decisions)]


def _compare(spec: GameSpec, first: list[Moment], second: list[Moment], order: Order, what: str) -> None:
    """Raise unless slot i of `second` equals slot order[i] of `first` bit for bit."""
    for t, (a, b) in enumerate(zip(first, second, strict=True)):
        pairs: list[tuple[str, AnyArray, AnyArray]] = [("active", a.active, b.active)]
        pairs += _alike("observation", a.observations, b.observations)
        pairs += [(f"step.{name}", getattr(a.step, name), getattr(b.step, name)) for name in STEP_DTYPES]
        told = [np.where(m.step.match_over[:, None], m.step.points, 0) for m in (a, b)]
        pairs += [("step.points", told[0], told[1])]
        pairs += _alike("final observation", a.finals, b.finals)
        for name, x, y in pairs:
            if not np.array_equal(x[order], y, equal_nan=name == "step.points"):
                raise fail(spec, f"{name} of decision {t} differs between runs with {what}")


def _alike(what: str, first: list[Seen], second: list[Seen]) -> list[tuple[str, AnyArray, AnyArray]]:
    return [(f"{what} {name}", x[name], y[name]) for x, y in zip(first, second, strict=True) for name in x]


def _check_state(env: MultiAgentEnv, seeds: I64, decisions: int) -> None:
    """Continuing from a restored state equals having continued; two moments, so that one lies within a match."""
    half = max(decisions // 2, 1)
    for moment in (half, half + 1):
        env.reset(seeds)
        _play(env, seeds, moment)
        state = env.get_state()
        if state is None:
            return
        expected = _play(env, seeds + 1, half)
        env.reset(seeds + 2)
        env.set_state(state)
        played = _play(env, seeds + 1, half)
        _compare(env.spec, expected, played, np.arange(env.num_matches), "get_state, then set_state")
