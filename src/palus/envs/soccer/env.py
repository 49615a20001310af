"""`Soccer`: N matches of a game of this pitch behind the `MultiAgentEnv` protocol. The rules live in the kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from palus.envs.soccer import match
from palus.envs.soccer.compile import compiled, side_by_side
from palus.envs.soccer.geometry import STEPS_PER_DECISION
from palus.envs.soccer.pitch import GROUNDS, Ground, Pitch, pitch_of, sensors_of
from palus.envs.soccer.state import new_outcome, new_state
from palus.errors import EnvError
from palus.spinning import spinners, take_threads
from palus.types import F32, F64, I32, I64, RAY_DISTANCES, RAY_TAGS, AgentSpec, AnyArray, GameSpec, Step

TOUCH_REWARD = 0.2
WAKING = 25
"""Matches whose decision takes as long as to wake a thread, about: a thread too many costs more than it takes over."""


class _Kernels(NamedTuple):
    """The kernels of a game. look: takes a first frame anew. observe, compact: by behavior, of each sensor."""

    reset: Any
    step: Any
    look: Any
    observe: dict[str, tuple[Any, ...]]
    compact: dict[str, tuple[Any, ...]]


@cache
def _kernels_of(ground: Ground) -> tuple[Pitch, _Kernels]:
    """The numbers of a game, and what they are compiled into."""
    pitch, name = pitch_of(ground), ground.env_id
    entries = match.observe_sensor, match.observe_compact
    observe, compact = dict[str, tuple[Any, ...]](), dict[str, tuple[Any, ...]]()
    for role in ground.roles:
        observe[role.behavior], compact[role.behavior] = zip(
            *(
                compiled(entries, f"{name}-{role.behavior}-{i}", SENSOR=sensor)
                for i, sensor in enumerate(sensors_of(ground, role))
            ),
            strict=True,
        )
    reset, step, look = compiled((match.reset_range, match.step_range, match.refresh_frames), name, PITCH=pitch)
    return pitch, _Kernels(reset, step, look, observe, compact)


@cache
def _side_by_side(ground: Ground) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    """A game's kernels `step` and `compact` of several ranges of matches side by side."""
    name, kernels = ground.env_id, _kernels_of(ground)[1]
    compact = {
        behavior: tuple(
            side_by_side(match.observe_ranges, own, f"{name}-{behavior}-{i}") for i, own in enumerate(entries)
        )
        for behavior, entries in kernels.compact.items()
    }
    return side_by_side(match.step_ranges, kernels.step, name), compact


class Soccer:
    """N matches side by side; decisions every 0.1 s, five physics steps each.

    env_id: a game of `GROUNDS`, of P agents.   num_matches: N.
    ball_touch: ML-Agents' environment parameter; 0.2 times it rewards every touch of the ball.
    kick_point: where the contact point lies that a kick pushes along, on the surface of the "ball" or of the "agent"
    (the original depends on the order in which its objects were made; with "agent" the matches of all Unity-trained
    policies at hand last about as long as Unity logged, with "ball" some of them a half longer).
    record: keep `trace` and `kick` of the latest decision.   max_steps: fixed steps until a match is truncated.
    threads: ranges of matches stepped at the same time; the results do not depend on it. spinning: by threads that wait
    for the next decision at work, where there are any (`palus.spinning`).

    Live arrays for scripted players and recorders, in the order of `spec.agents`, not to be written to:
    agent_pos [N, P, 2] (x, z) m, agent_vel [N, P, 2] m/s, agent_yaw [N, P] degrees, ball_pos [N, 2], ball_vel [N, 2],
    time [N] fixed steps since the start. Of the latest step, before any restart: winner [N] team that scored or -1,
    trace [N, 5, 3 P + 2] (x, z, yaw) of agents and (x, z) of the ball after each fixed step, trace_length [N] fixed
    steps played, kick [N, 5] agent that kicked or -1.
    """

    def __init__(
        self,
        env_id: str,
        num_matches: int,
        *,
        ball_touch: float = 0.0,
        kick_point: Literal["ball", "agent"] = "agent",
        record: bool = False,
        max_steps: int = 5000,
        threads: int = 1,
        spinning: bool = False,
    ) -> None:
        """Raises EnvError for no game, sizes below one and an unknown kick_point."""
        if env_id not in GROUNDS:
            raise EnvError(f"{env_id!r} is no game of this pitch; there are {', '.join(GROUNDS)}")
        for name, value in (("num_matches", num_matches), ("max_steps", max_steps), ("threads", threads)):
            if value < 1:
                raise EnvError(f"{env_id}: {name} is {value}; give at least 1")
        if kick_point not in ("ball", "agent"):
            raise EnvError(f'{env_id}: kick_point is {kick_point!r}; choose "ball" or "agent"')
        ground = GROUNDS[env_id]
        self._pitch, self._kernels = _kernels_of(ground)
        self.spec = GameSpec(
            env_id=env_id,
            behaviors=tuple(role.spec for role in ground.roles),
            agents=tuple(AgentSpec(p.name, p.team, p.team, p.role.behavior) for p in ground.places),
            max_decisions=-(-max_steps // STEPS_PER_DECISION),
        )
        self.num_matches = num_matches
        self.active = np.ones((num_matches, self._pitch.agents), np.bool_)
        self._agents_of = {role.behavior: ground.agents_of(role) for role in ground.roles}
        self._actions = np.zeros((num_matches, self._pitch.agents, 3), np.int32)
        self._touch_reward: F32 = np.full(num_matches, TOUCH_REWARD * ball_touch, np.float32)
        self._held = 0.5 if ground.holder is None else (np.arange(2) == ground.holder).astype(np.float32)
        self._kick_on_ball = kick_point == "ball"
        self._record = record
        self._max_steps = max_steps
        self._state = state = new_state(num_matches, self._pitch)
        self._outcome = outcome = new_outcome(num_matches, self._pitch, record)
        self._step = Step(
            outcome.reward,
            outcome.group_reward,
            outcome.terminated,
            outcome.truncated,
            outcome.match_over,
            np.full((num_matches, 2), np.nan, np.float32),
        )
        self.agent_pos: F32 = state.position[:, :-1]
        self.agent_vel: F32 = state.velocity[:, :-1]
        self.agent_yaw: F32 = state.yaw
        self.ball_pos: F32 = state.position[:, -1]
        self.ball_vel: F32 = state.velocity[:, -1]
        self.time: I32 = state.time
        self.winner: NDArray[np.int8] = outcome.winner
        self.trace: F32 = outcome.trace
        self.trace_length: I32 = outcome.trace_length
        self.kick: NDArray[np.int8] = outcome.kick
        spins = spinners(threads) if spinning else 0
        parts = max(1, min(spins or threads, round(math.sqrt(num_matches / WAKING))))
        bounds = np.linspace(0, num_matches, min(parts, num_matches) + 1).astype(np.int64)
        self._spinning = bounds if spins else None
        if spins:
            self._steps, self._compacts = _side_by_side(ground)
            take_threads(parts)
        self._ranges = list(itertools.pairwise(bounds.tolist()))
        self._pool = ThreadPoolExecutor(len(self._ranges) - 1) if len(self._ranges) > 1 and not spins else None

    def reset(self, seeds: I64) -> None:
        """Start N new matches. seeds: [N] integers; slot n's matches depend on seeds[n] alone."""
        seeds = np.ascontiguousarray(seeds, np.int64)
        if seeds.shape != (self.num_matches,):
            raise EnvError(f"{self.spec.env_id}.reset: seeds have shape {seeds.shape}; expected ({self.num_matches},)")
        self._in_ranges(lambda first, last: self._kernels.reset(self._state, seeds, first, last))

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what agents see with each sensor to `out[name][rows[n, p]]`; rows [N, P_b], -1 skips."""
        self._observe(behavior, self._state.ray_object, self._state.ray_fraction, rows, out)

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """The same for the moment in which matches ended in the latest step; other rows stay as they are."""
        ended = np.where(self._outcome.match_over[:, None], rows, np.int32(-1)).astype(np.int32)
        self._observe(behavior, self._outcome.final_object, self._outcome.final_fraction, ended, out)

    def _observe(
        self, behavior: str, objects: NDArray[np.int8], fractions: F32, rows: I32, out: Mapping[str, AnyArray]
    ) -> None:
        kernels = self._kernels.observe.get(behavior)
        if kernels is None:
            known = ", ".join(self._kernels.observe)
            raise EnvError(f"{self.spec.env_id} has no behavior {behavior!r}; there are {known}")
        for k, o in enumerate(self.spec.behavior(behavior).observations):
            if o.name in out:
                kernels[k](objects, fractions, rows, out[o.name])
                continue
            given = objects, fractions, rows, out[o.name + RAY_TAGS], out[o.name + RAY_DISTANCES]
            if self._spinning is None:
                self._kernels.compact[behavior][k](*given)
            else:
                self._compacts[behavior][k](*given, self._spinning)

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision; actions: per behavior [N, P_b, 3] branch indices. The result lives until the next step."""
        for (behavior, agents), chosen in zip(self._agents_of.items(), actions, strict=True):
            mine = self._actions[:, agents]
            if np.shape(chosen) != mine.shape:
                found = f"actions of {behavior} have shape {np.shape(chosen)}"
                raise EnvError(f"{self.spec.env_id}.step: {found}; expected {mine.shape}")
            mine[...] = chosen
        given = (
            self._state, self._outcome, self._actions, self._touch_reward, self._kick_on_ball, self._max_steps,
            self._record,
        )  # fmt: skip
        if self._spinning is None:
            self._in_ranges(lambda first, last: self._kernels.step(*given, first, last))
        else:
            self._steps(*given, self._spinning)
        over, winner = self._outcome.match_over, self._outcome.winner
        if over.any():
            self._step.points[over] = np.where(winner[over, None] < 0, self._held, winner[over, None] == np.arange(2))
        return self._step

    def get_state(self) -> dict[str, object]:
        """Copies of all arrays that decide how the matches go on."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned. Raises EnvError when arrays are missing or of another size."""
        for name, mine in self._state._asdict().items():
            theirs = state.get(name)
            if not isinstance(theirs, np.ndarray) or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
                found = f"{theirs.dtype} {theirs.shape}" if isinstance(theirs, np.ndarray) else type(theirs).__name__
                raise EnvError(
                    f"{self.spec.env_id}.set_state: {name} is {found}; expected {mine.dtype} {mine.shape}. "
                    "Restore into an environment of the same num_matches."
                )
            mine[...] = theirs

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def set_parameters(self, parameters: Mapping[str, float | F64]) -> None:
        """Change ML-Agents' environment parameters from the next decision on. EnvError for any but `ball_touch`."""
        unknown = sorted(set(parameters) - {"ball_touch"})
        if unknown:
            raise EnvError(f"{self.spec.env_id}: no environment parameter {unknown[0]!r}; its only one is 'ball_touch'")
        if "ball_touch" in parameters:
            self._touch_reward[:] = TOUCH_REWARD * parameters["ball_touch"]

    def _in_ranges(self, work: Callable[[int, int], None]) -> None:
        """Run `work(first, last)` over all matches, one thread per range; the caller's thread takes the last one."""
        if self._pool is None:
            work(0, self.num_matches)
            return
        futures = [self._pool.submit(work, first, last) for first, last in self._ranges[:-1]]
        work(*self._ranges[-1])
        for future in futures:
            future.result()


SoccerTwos = partial(Soccer, "SoccerTwos")
StrikersVsGoalie = partial(Soccer, "StrikersVsGoalie")
