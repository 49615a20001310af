"""`SoccerTwos`: N matches of the 2v2 game behind the `MultiAgentEnv` protocol. The game itself lives in the kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from palus.envs.soccer.geometry import AGENTS, BALL, STEPS_PER_DECISION, TEAM_OF_AGENT
from palus.envs.soccer.match import observe_all, refresh_frames, reset_range, step_range
from palus.envs.soccer.sensors import OBSERVATION_SIZES
from palus.envs.soccer.state import new_outcome, new_state
from palus.errors import EnvError
from palus.types import F32, I32, I64, AgentSpec, AnyArray, BehaviorSpec, GameSpec, Step

BEHAVIOR = "SoccerTwos"
AGENT_NAMES = ("blue A", "purple A", "blue B", "purple B")
TOUCH_REWARD = 0.2


class SoccerTwos:
    """Two teams of two, N matches side by side; decisions every 0.1 s, five physics steps each.

    num_matches: N.   ball_touch: ML-Agents' environment parameter; 0.2 times it rewards every touch of the ball.
    kick_point: where the contact point lies that a kick pushes along, on the surface of the "ball" or of the "agent"
    (the original depends on the order in which its objects were made; with "agent" the matches of all Unity-trained
    policies at hand last about as long as Unity logged, with "ball" some of them a half longer).
    record: keep `trace` and `kick` of the latest decision.   max_steps: fixed steps until a match is truncated.
    threads: ranges of matches stepped at the same time; the results do not depend on it.

    Live arrays for scripted players and recorders, in the order of `spec.agents`, not to be written to:
    agent_pos [N, 4, 2] (x, z) m, agent_vel [N, 4, 2] m/s, agent_yaw [N, 4] degrees, ball_pos [N, 2], ball_vel [N, 2],
    time [N] fixed steps since the start. Of the latest step, before any restart: winner [N] team that scored or -1,
    trace [N, 5, 14] (x, z, yaw) of four agents and (x, z) of the ball after each fixed step, trace_length [N] fixed
    steps played, kick [N, 5] agent that kicked or -1.
    """

    def __init__(
        self,
        num_matches: int,
        *,
        ball_touch: float = 0.0,
        kick_point: Literal["ball", "agent"] = "agent",
        record: bool = False,
        max_steps: int = 5000,
        threads: int = 1,
    ) -> None:
        """Raises EnvError for sizes below one and an unknown kick_point."""
        for name, value in (("num_matches", num_matches), ("max_steps", max_steps), ("threads", threads)):
            if value < 1:
                raise EnvError(f"SoccerTwos: {name} is {value}; give at least 1")
        if kick_point not in ("ball", "agent"):
            raise EnvError(f'SoccerTwos: kick_point is {kick_point!r}; choose "ball" or "agent"')
        self.spec = GameSpec(
            env_id="SoccerTwos",
            behaviors=(BehaviorSpec.of_vectors(BEHAVIOR, OBSERVATION_SIZES, (3, 3, 3)),),
            agents=tuple(
                AgentSpec(name, team, team, BEHAVIOR) for name, team in zip(AGENT_NAMES, TEAM_OF_AGENT, strict=True)
            ),
            max_decisions=-(-max_steps // STEPS_PER_DECISION),
        )
        self.num_matches = num_matches
        self.active = np.ones((num_matches, AGENTS), np.bool_)
        self._touch_reward = np.float32(TOUCH_REWARD * ball_touch)
        self._kick_on_ball = kick_point == "ball"
        self._record = record
        self._max_steps = max_steps
        self._state = state = new_state(num_matches)
        self._outcome = outcome = new_outcome(num_matches, record)
        self._step = Step(
            outcome.reward,
            outcome.group_reward,
            outcome.terminated,
            outcome.truncated,
            outcome.match_over,
            np.full((num_matches, 2), np.nan, np.float32),
        )
        self.agent_pos: F32 = state.position[:, :AGENTS]
        self.agent_vel: F32 = state.velocity[:, :AGENTS]
        self.agent_yaw: F32 = state.yaw
        self.ball_pos: F32 = state.position[:, BALL]
        self.ball_vel: F32 = state.velocity[:, BALL]
        self.time: I32 = state.time
        self.winner: NDArray[np.int8] = outcome.winner
        self.trace: F32 = outcome.trace
        self.trace_length: I32 = outcome.trace_length
        self.kick: NDArray[np.int8] = outcome.kick
        bounds = np.linspace(0, num_matches, min(threads, num_matches) + 1).astype(int).tolist()
        self._ranges = list(itertools.pairwise(bounds))
        self._pool = ThreadPoolExecutor(len(self._ranges) - 1) if len(self._ranges) > 1 else None

    def reset(self, seeds: I64) -> None:
        """Start N new matches. seeds: [N] integers; slot n's matches depend on seeds[n] alone."""
        seeds = np.ascontiguousarray(seeds, np.int64)
        if seeds.shape != (self.num_matches,):
            raise EnvError(f"SoccerTwos.reset: seeds have shape {seeds.shape}; expected ({self.num_matches},)")
        self._in_ranges(lambda first, last: reset_range(self._state, seeds, first, last))

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write agent (n, p)'s 264 and 72 floats to `out[name][rows[n, p]]`; rows [N, 4], -1 skips."""
        self._check_behavior(behavior)
        observe_all(self._state.ray_object, self._state.ray_fraction, rows, out["obs_0"], out["obs_1"])

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """The same for the moment in which matches ended in the latest step; other rows stay as they are."""
        self._check_behavior(behavior)
        ended = np.where(self._outcome.match_over[:, None], rows, np.int32(-1)).astype(np.int32)
        observe_all(self._outcome.final_object, self._outcome.final_fraction, ended, out["obs_0"], out["obs_1"])

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision; actions: one array [N, 4, 3] of branch indices. The result lives until the next step."""
        played = np.ascontiguousarray(actions[0], np.int32)
        if played.shape != (self.num_matches, AGENTS, 3):
            raise EnvError(
                f"SoccerTwos.step: actions have shape {played.shape}; expected ({self.num_matches}, {AGENTS}, 3)"
            )
        self._in_ranges(
            lambda first, last: step_range(
                self._state,
                self._outcome,
                played,
                self._touch_reward,
                self._kick_on_ball,
                self._max_steps,
                self._record,
                first,
                last,
            )
        )
        over, winner = self._outcome.match_over, self._outcome.winner
        if over.any():
            self._step.points[over] = np.where(winner[over, None] < 0, 0.5, winner[over, None] == np.arange(2))
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
                    f"SoccerTwos.set_state: {name} is {found}; expected {mine.dtype} {mine.shape}. "
                    "Restore into an environment of the same num_matches."
                )
            mine[...] = theirs

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def set_scene(
        self,
        match: int,
        agents: Sequence[tuple[float, float, float]],
        ball: tuple[float, float],
        *,
        agent_vel: Sequence[tuple[float, float]] | None = None,
        ball_vel: tuple[float, float] = (0.0, 0.0),
        ball_spin: float = 0.0,
        time: int = 0,
    ) -> None:
        """Place the bodies of one match by hand; its frames start anew as after a reset.

        agents: four (x, z, yaw).   ball: (x, z).   agent_vel: four (x, z) m/s, default at rest.   ball_spin: rad/s.
        time: fixed steps since the start of the match.
        """
        state = self._state
        placed = np.asarray(agents, np.float32)
        state.position[match, :AGENTS] = placed[:, :2]
        state.yaw[match] = placed[:, 2]
        state.position[match, BALL] = ball
        state.velocity[match, :AGENTS] = 0.0 if agent_vel is None else agent_vel
        state.velocity[match, BALL] = ball_vel
        state.spin[match] = ball_spin
        state.push[match] = 0.0
        state.touching[match] = False
        state.time[match] = time
        refresh_frames(state, match)

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change ML-Agents' environment parameters from the next decision on. EnvError for any but `ball_touch`."""
        unknown = sorted(set(parameters) - {"ball_touch"})
        if unknown:
            raise EnvError(f"SoccerTwos: no environment parameter {unknown[0]!r}; its only one is 'ball_touch'")
        if "ball_touch" in parameters:
            self._touch_reward = np.float32(TOUCH_REWARD * parameters["ball_touch"])

    def _in_ranges(self, work: Callable[[int, int], None]) -> None:
        """Run `work(first, last)` over all matches, one thread per range; the caller's thread takes the last one."""
        if self._pool is None:
            work(0, self.num_matches)
            return
        futures = [self._pool.submit(work, first, last) for first, last in self._ranges[:-1]]
        work(*self._ranges[-1])
        for future in futures:
            future.result()

    def _check_behavior(self, behavior: str) -> None:
        if behavior != BEHAVIOR:
            raise EnvError(f"SoccerTwos has no behavior {behavior!r}; its only one is {BEHAVIOR!r}")
