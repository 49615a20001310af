"""The rules of a match: start, one decision of five fixed steps, goal, time limit, restart. Kernels over match ranges.

Random numbers: each match slot owns one splitmix64 stream, seeded from its seed alone and advanced only by the
starts of its own matches. So a slot's matches depend neither on the other slots nor on their number.

Not compiled with fastmath: it was measured to save 2 to 5 % of a decision, while without it the order of every float
operation, and so every bit, is given by this text.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from palus.envs.soccer.compile import inlined, inner, kernel
from palus.envs.soccer.geometry import (
    BALL_START_SPREAD,
    GOAL_FLOOR_X,
    GOAL_FLOOR_Z,
    GOAL_REACH,
    START_X_SPREAD,
    START_YAW_MIN_DEG,
    START_YAW_SPREAD_DEG,
    STEPS_PER_DECISION,
)
from palus.envs.soccer.physics import HEADING, face, fixed_step, new_scratch
from palus.envs.soccer.pitch import FRAMES, PITCH, SENSOR
from palus.envs.soccer.sensors import SCRATCH, cast_rays, write_compact, write_observation

ZERO = np.float32(0)
ONE = np.float32(1)
TWO = np.float32(2)
TO_UNIT = np.float32(2.0**-24)
BLUE_GOAL_SCORER = 1
PURPLE_GOAL_SCORER = 0


@inlined
def mix(value):
    """The output function of splitmix64 (Steele, Lea, Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inlined
def uniform(random):
    """Next float32 in [0, 1) of the stream held by random[0]."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    return np.float32(mix(random[0]) >> np.uint64(40)) * TO_UNIT


@inner
def start_match(state, n):
    """Place agents and ball of match n at random; everything rests."""
    random = state.random[n : n + 1]
    for a in range(PITCH.agents):
        side = -ONE if PITCH.team[a] == 0 else ONE
        state.position[n, a, 0] = PITCH.start_x[a] + START_X_SPREAD * (TWO * uniform(random) - ONE)
        state.position[n, a, 1] = PITCH.start_z[a]
        state.yaw[n, a] = -side * (START_YAW_MIN_DEG + START_YAW_SPREAD_DEG * uniform(random))
        state.touching[n, a] = False
    state.position[n, PITCH.ball, 0] = BALL_START_SPREAD * (TWO * uniform(random) - ONE)
    state.position[n, PITCH.ball, 1] = BALL_START_SPREAD * (TWO * uniform(random) - ONE)
    state.velocity[n] = ZERO
    state.spin[n] = ZERO
    state.push[n] = ZERO
    state.time[n] = 0


@inlined
def take_frame(state, n, lanes):
    """Append a frame to the rays of the agents of match n and forget the oldest."""
    for a in range(PITCH.agents):
        objects, fractions = state.ray_object[n, a], state.ray_fraction[n, a]
        for frame in range(FRAMES - 1):
            for ray in range(PITCH.max_rays):
                objects[frame, ray] = objects[frame + 1, ray]
                fractions[frame, ray] = fractions[frame + 1, ray]
        cast_rays(state.position[n], state.yaw[n, a], a, lanes, objects[FRAMES - 1], fractions[FRAMES - 1])


@inner
def first_frame(state, n, lanes):
    """Forget all frames of match n, then take one."""
    state.ray_object[n] = -1
    take_frame(state, n, lanes)


@inlined
def scored(x, z):
    """Team that scores with the ball centre at (x, z), -1 none: the ball touches the floor of a goal box."""
    out_x, out_z = max(GOAL_FLOOR_X - abs(x), ZERO), max(abs(z) - GOAL_FLOOR_Z, ZERO)
    if out_x * out_x + out_z * out_z >= GOAL_REACH * GOAL_REACH:
        return -1
    if x > ZERO:
        return PURPLE_GOAL_SCORER
    return BLUE_GOAL_SCORER if PITCH.blue_open else -1


@inner
def record_step(state, outcome, n, i, kicker):
    """Write the trace of fixed step i of this decision."""
    row = outcome.trace[n, i]
    for a in range(PITCH.agents):
        row[3 * a], row[3 * a + 1] = state.position[n, a, 0], state.position[n, a, 1]
        row[3 * a + 2] = state.yaw[n, a]
    row[3 * PITCH.agents], row[3 * PITCH.agents + 1] = (
        state.position[n, PITCH.ball, 0],
        state.position[n, PITCH.ball, 1],
    )
    outcome.kick[n, i] = kicker


@inner
def end_match(state, outcome, n, winner, max_steps, lanes):
    """Rewards and flags of a match that ended, its final rays, and the start of the next match in its slot."""
    outcome.match_over[n] = True
    outcome.winner[n] = winner
    take_frame(state, n, lanes)
    for a in range(PITCH.agents):
        for frame in range(FRAMES):
            for ray in range(PITCH.max_rays):
                outcome.final_object[n, a, frame, ray] = state.ray_object[n, a, frame, ray]
                outcome.final_fraction[n, a, frame, ray] = state.ray_fraction[n, a, frame, ray]
    gain = ONE - np.float32(state.time[n]) / np.float32(max_steps)
    for a in range(PITCH.agents):
        outcome.terminated[n, a] = winner >= 0
        outcome.truncated[n, a] = winner < 0
        if winner >= 0:
            outcome.group_reward[n, a] = gain if PITCH.team[a] == winner else -ONE
    start_match(state, n)


@inlined
def play_decision(state, outcome, n, actions, touch_reward, kick_on_ball, max_steps, record, scratch):
    """Up to five fixed steps of match n. Returns the scoring team, -1 for none, -2 when the time is up."""
    position, velocity, spin, yaw = state.position[n], state.velocity[n], state.spin[n : n + 1], state.yaw[n]
    push, touching = state.push[n], state.touching[n]
    face(yaw, scratch[HEADING])
    began_at = state.time[n]
    length = 0
    result = -1
    for i in range(STEPS_PER_DECISION):
        state.time[n] += 1
        if state.time[n] >= max_steps:
            # The engine checks the clock before the physics of the step.
            result = -2
            break
        team = scored(position[PITCH.ball, 0], position[PITCH.ball, 1])
        began, kicker = fixed_step(position, velocity, spin, yaw, push, touching, actions, kick_on_ball, scratch)
        for a in range(PITCH.agents):
            if began & (1 << a):
                outcome.reward[n, a] += touch_reward[n]
        if record:
            record_step(state, outcome, n, i, kicker)
        length += 1
        if team >= 0:
            result = team
            break
    outcome.trace_length[n] = length
    # Agents act in the step in which the time is up, too.
    share = np.float32(state.time[n] - began_at) / np.float32(max_steps)
    for a in range(PITCH.agents):
        outcome.reward[n, a] += PITCH.existential[a] * share
    return result


@kernel
def reset_range(state, seeds, first, last):
    """Start new matches in slots first..last-1; seeds: [N] int64."""
    lanes = np.empty(SCRATCH, np.float32)
    for n in range(first, last):
        state.random[n] = mix(np.uint64(seeds[n]) + np.uint64(0x9E3779B97F4A7C15))
        start_match(state, n)
        first_frame(state, n, lanes)


@kernel
def step_range(state, outcome, actions, touch_reward, kick_on_ball, max_steps, record, first, last):
    """Play one decision of matches first..last-1 and take the next frames. actions: [N, P, 3] int32.

    touch_reward: [N] float32."""
    lanes = np.empty(SCRATCH, np.float32)
    scratch = new_scratch()
    for n in range(first, last):
        outcome.match_over[n] = False
        outcome.winner[n] = -1
        for a in range(PITCH.agents):
            outcome.reward[n, a] = outcome.group_reward[n, a] = ZERO
            outcome.terminated[n, a] = outcome.truncated[n, a] = False
        if record:
            outcome.kick[n] = -1
        result = play_decision(state, outcome, n, actions[n], touch_reward, kick_on_ball, max_steps, record, scratch)
        if result == -1:
            take_frame(state, n, lanes)
        else:
            end_match(state, outcome, n, result if result >= 0 else -1, max_steps, lanes)
            first_frame(state, n, lanes)


@kernel
def refresh_frames(state, n):
    """Take the first frame of match n anew, after its bodies were placed by hand."""
    first_frame(state, n, np.empty(SCRATCH, np.float32))


@kernel
def observe_sensor(objects, fractions, rows, out):
    """Write what agent p of the sensor's role sees with it in match n to out[rows[n, p]]; -1 skips."""
    for n in range(rows.shape[0]):
        for p in range(rows.shape[1]):
            if rows[n, p] >= 0:
                a = SENSOR.first_agent + p
                write_observation(objects[n, a], fractions[n, a], out[rows[n, p]])


@kernel
def observe_compact(objects, fractions, rows, tags, distances):
    """The same in compact form."""
    for n in range(rows.shape[0]):
        for p in range(rows.shape[1]):
            if rows[n, p] >= 0:
                a = SENSOR.first_agent + p
                write_compact(objects[n, a], fractions[n, a], tags[rows[n, p]], distances[rows[n, p]])


def step_ranges(state, outcome, actions, touch_reward, kick_on_ball, max_steps, record, bounds):
    """`step_range` of the ranges between these bounds, side by side. For `compile.side_by_side`."""
    for k in prange(len(bounds) - 1):
        step_range(state, outcome, actions, touch_reward, kick_on_ball, max_steps, record, bounds[k], bounds[k + 1])


def observe_ranges(objects, fractions, rows, tags, distances, bounds):
    """`observe_compact` of the matches between these bounds, side by side."""
    for k in prange(len(bounds) - 1):
        a, b = bounds[k], bounds[k + 1]
        observe_compact(objects[a:b], fractions[a:b], rows[a:b], tags, distances)
