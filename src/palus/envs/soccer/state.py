"""The arrays of N matches: what a match is (`State`) and what its latest decision brought (`Outcome`).

Named tuples, because Numba kernels take them whole and name their fields.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from palus.envs.soccer.geometry import STEPS_PER_DECISION
from palus.envs.soccer.pitch import FRAMES, Pitch
from palus.types import F32, I32, Bool


class State(NamedTuple):
    """Everything that decides how N matches go on. Bodies: P agents, then the ball.

    position, velocity: [N, P + 1, 2] (x, z) m, m/s.   spin: [N] rad/s of the ball.
    yaw: [N, P] degrees in [-180, 180].
    push: [N, 2] m/s that kicks of the last fixed step add to the ball's velocity in the next one.
    touching: [N, P] agent and ball were in contact in the last fixed step.
    time: [N] fixed steps since reset.   random: [N] state of the slot's generator.
    ray_object: [N, P, 3, max_rays] oldest frame first: the slot of what was hit, see `Pitch`, -1 frame not taken yet.
    ray_fraction: [N, P, 3, max_rays] distance / 20 m; 1 when nothing was hit.
    """

    position: F32
    velocity: F32
    spin: F32
    yaw: F32
    push: F32
    touching: Bool
    time: I32
    random: NDArray[np.uint64]
    ray_object: NDArray[np.int8]
    ray_fraction: F32


class Outcome(NamedTuple):
    """What the latest decision brought, in the terms of `palus.types.Step`, plus rays at the end and the trace.

    winner: [N] team that scored, -1 none.   final_object, final_fraction: like the rays of `State`, before the reset.
    trace: [N, 5, 3 P + 2] after each fixed step (x, z, yaw) of agents, (x, z) of the ball; N = 0 if not recording.
    trace_length: [N] fixed steps played.   kick: [N, 5] agent that kicked in that fixed step, -1 none.
    """

    reward: F32
    group_reward: F32
    terminated: Bool
    truncated: Bool
    match_over: Bool
    winner: NDArray[np.int8]
    final_object: NDArray[np.int8]
    final_fraction: F32
    trace: F32
    trace_length: I32
    kick: NDArray[np.int8]


def new_state(num_matches: int, pitch: Pitch) -> State:
    """Zeroed arrays for `num_matches` matches."""
    n = num_matches
    return State(
        position=np.zeros((n, pitch.bodies, 2), np.float32),
        velocity=np.zeros((n, pitch.bodies, 2), np.float32),
        spin=np.zeros(n, np.float32),
        yaw=np.zeros((n, pitch.agents), np.float32),
        push=np.zeros((n, 2), np.float32),
        touching=np.zeros((n, pitch.agents), np.bool_),
        time=np.zeros(n, np.int32),
        random=np.zeros(n, np.uint64),
        ray_object=np.full((n, pitch.agents, FRAMES, pitch.max_rays), -1, np.int8),
        ray_fraction=np.zeros((n, pitch.agents, FRAMES, pitch.max_rays), np.float32),
    )


def new_outcome(num_matches: int, pitch: Pitch, record: bool) -> Outcome:
    """Empty outcome of `num_matches` matches; the trace has no rows unless `record`."""
    n, traced = num_matches, num_matches if record else 0
    return Outcome(
        reward=np.zeros((n, pitch.agents), np.float32),
        group_reward=np.zeros((n, pitch.agents), np.float32),
        terminated=np.zeros((n, pitch.agents), np.bool_),
        truncated=np.zeros((n, pitch.agents), np.bool_),
        match_over=np.zeros(n, np.bool_),
        winner=np.full(n, -1, np.int8),
        final_object=np.full((n, pitch.agents, FRAMES, pitch.max_rays), -1, np.int8),
        final_fraction=np.zeros((n, pitch.agents, FRAMES, pitch.max_rays), np.float32),
        # Of a fixed step: (x, z, yaw) of agents, (x, z) of the ball.
        trace=np.zeros((traced, STEPS_PER_DECISION, 3 * pitch.agents + 2), np.float32),
        trace_length=np.zeros(n, np.int32),
        kick=np.full((traced, STEPS_PER_DECISION), -1, np.int8),
    )
