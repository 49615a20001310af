"""One fixed step of 0.02 s of one match: drive, drag, contacts, integration, swept test, kicks.

The reduced model of a 3-D engine: discs in a plane. What the third dimension leaves behind is the loss of ball
displacement (`BALL_LOSS_MAX_SPEED`); neither ball nor agents feel floor friction otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from palus.envs.soccer.compile import inlined, inner
from palus.envs.soccer.contacts import (
    CONTACT_COLUMNS,
    MAX_CONTACTS,
    ONE,
    TARGET_KEEP,
    TARGET_MOVE,
    ZERO,
    away_from_walls,
    disc_rectangle,
    find_contacts,
    solve,
)
from palus.envs.soccer.geometry import (
    AGENT_DRAG_FACTOR,
    AGENT_RADIUS,
    BALL_DRAG_FACTOR,
    BALL_LOSS_MAX_SPEED,
    BALL_LOSS_SHARE,
    BALL_MAX_SPIN,
    BALL_RADIUS,
    BALL_RESTITUTION,
    KICK_SPEED,
    STEP_S,
    SWEPT_SHARE,
    TURN_DEG,
)
from palus.envs.soccer.pitch import PITCH

MOVE_SWEEPS = 6
KEEP_SWEEPS = 4
DEG = np.float32(math.pi / 180)
HALF_TURN = np.float32(180)
FULL_TURN = np.float32(360)
NEVER = np.float32(2)
HEADING = 5
"""Index of the headings [P, 2] in the scratch of `new_scratch`."""
SIGN = np.array([0, 1, -1], np.float32)
TURN_SIN = np.float32(math.sin(math.radians(2)))
TURN_COS = np.float32(math.cos(math.radians(2)))


@njit(nogil=True)
def new_scratch():
    """Working memory of `fixed_step`: contacts, moving velocities, spins, touches, headings, positions afterwards."""
    return (
        np.empty((MAX_CONTACTS, CONTACT_COLUMNS), np.float32),
        np.empty((MAX_CONTACTS, 2), np.int64),
        np.empty((PITCH.bodies, 2), np.float32),
        np.empty(PITCH.bodies, np.float32),
        np.empty(PITCH.agents, np.bool_),
        np.empty((PITCH.agents, 2), np.float32),
        np.empty((PITCH.bodies, 2), np.float32),
    )


@inlined
def face(yaw, heading):
    """Write the forward direction (x, z) of every agent; fixed steps then turn it along with the yaw."""
    for a in range(PITCH.agents):
        heading[a, 0], heading[a, 1] = math.sin(yaw[a] * DEG), math.cos(yaw[a] * DEG)


@inlined
def drive(velocity, yaw, heading, actions):
    """Apply one fixed step of actions [P, 3] to velocities (drag included), yaws and headings.

    The heading before this step's turn drives; a lateral action replaces the forward one.
    """
    for a in range(PITCH.agents):
        forward, lateral, turn = actions[a, 0], actions[a, 1], actions[a, 2]
        sin, cos = heading[a, 0], heading[a, 1]
        ahead, right = SIGN[forward] * PITCH.ahead[a], SIGN[lateral] * PITCH.aside[a]
        if lateral != 0:
            ahead = ZERO
        velocity[a, 0] = (velocity[a, 0] + ahead * sin + right * cos) * AGENT_DRAG_FACTOR
        velocity[a, 1] = (velocity[a, 1] + ahead * cos - right * sin) * AGENT_DRAG_FACTOR
        if turn != 0:
            # Rotate 1 is left (-), 2 is right (+): the opposite signs of the drive branches.
            turned = yaw[a] - SIGN[turn] * TURN_DEG
            if turned > HALF_TURN:
                turned -= FULL_TURN
            elif turned < -HALF_TURN:
                turned += FULL_TURN
            yaw[a] = turned
            step_sin = -SIGN[turn] * TURN_SIN
            heading[a, 0], heading[a, 1] = sin * TURN_COS + cos * step_sin, cos * TURN_COS - sin * step_sin


@inner
def sweep_time(x, z, dx, dz, radius, k):
    """Share of the displacement (dx, dz) after which a disc meets rectangle k from outside, > 1 when it does not.

    Also the unit normal there.
    """
    cos, sin = PITCH.rectangles[k, 4], PITCH.rectangles[k, 5]
    rx, rz = x - PITCH.rectangles[k, 0], z - PITCH.rectangles[k, 1]
    ox, oz = rx * cos - rz * sin, rx * sin + rz * cos
    ux, uz = dx * cos - dz * sin, dx * sin + dz * cos
    half_x, half_z = PITCH.rectangles[k, 2], PITCH.rectangles[k, 3]
    # Slabs of the rectangle grown by the radius; the corners are rounded below.
    enter, leave = -NEVER, NEVER
    nx, nz = ZERO, ZERO
    if ux != ZERO:
        near = (-math.copysign(half_x + radius, ux) - ox) / ux
        far = (math.copysign(half_x + radius, ux) - ox) / ux
        enter, leave = near, far
        nx = -math.copysign(ONE, ux)
    elif abs(ox) > half_x + radius:
        return NEVER, ZERO, ZERO
    if uz != ZERO:
        near = (-math.copysign(half_z + radius, uz) - oz) / uz
        far = (math.copysign(half_z + radius, uz) - oz) / uz
        leave = min(leave, far)
        if near > enter:
            enter = near
            nx, nz = ZERO, -math.copysign(ONE, uz)
    elif abs(oz) > half_z + radius:
        return NEVER, ZERO, ZERO
    enter = max(enter, ZERO)
    if enter > leave:
        return NEVER, ZERO, ZERO
    px, pz = ox + enter * ux, oz + enter * uz
    if abs(px) > half_x and abs(pz) > half_z:
        cx, cz = math.copysign(half_x, px) - ox, math.copysign(half_z, pz) - oz
        square = ux * ux + uz * uz
        along = cx * ux + cz * uz
        under = along * along - square * (cx * cx + cz * cz - radius * radius)
        if under < ZERO or along < ZERO:
            return NEVER, ZERO, ZERO
        enter = (along - math.sqrt(under)) / square
        nx, nz = (enter * ux - cx) / radius, (enter * uz - cz) / radius
    return enter, nx * cos + nz * sin, nz * cos - nx * sin


@inner
def stop_at_wall(body, position, velocity, x, z):
    """Where a body that moves to (x, z) really ends: at the first wall that its fast path meets.

    The rest of such a step is lost and the normal velocity is reflected without friction. A wall that the body touches
    already, or that it meets too slowly to jump, is left to the contacts.
    """
    start_x, start_z = position[body, 0], position[body, 1]
    dx, dz = x - start_x, z - start_z
    radius = PITCH.radius[body]
    first, nx, nz = NEVER, ZERO, ZERO
    for k in range(PITCH.num_rectangles):
        distance, _, _ = disc_rectangle(start_x, start_z, k)
        if distance <= radius:
            continue
        time, tx, tz = sweep_time(start_x, start_z, dx, dz, radius, k)
        thin = min(PITCH.rectangles[k, 2], PITCH.rectangles[k, 3])
        if time <= ONE and time < first and -(dx * tx + dz * tz) >= SWEPT_SHARE * (radius + thin):
            first, nx, nz = time, tx, tz
    if first > ONE:
        return x, z
    restitution = BALL_RESTITUTION if body == PITCH.ball else ZERO
    normal = velocity[body, 0] * nx + velocity[body, 1] * nz
    if normal < ZERO:
        velocity[body, 0] -= (ONE + restitution) * normal * nx
        velocity[body, 1] -= (ONE + restitution) * normal * nz
    return start_x + first * dx, start_z + first * dz


@inner
def kick_push(before, after, agent, kick_on_ball, push):
    """Add the kick of an agent to `push`: from its centre after the step to the contact point found before it."""
    dx, dz = before[PITCH.ball, 0] - before[agent, 0], before[PITCH.ball, 1] - before[agent, 1]
    distance = math.sqrt(dx * dx + dz * dz)
    nx, nz = (dx / distance, dz / distance) if distance > ZERO else (ONE, ZERO)
    if kick_on_ball:
        px, pz = before[PITCH.ball, 0] - BALL_RADIUS * nx, before[PITCH.ball, 1] - BALL_RADIUS * nz
    else:
        px, pz = before[agent, 0] + AGENT_RADIUS * nx, before[agent, 1] + AGENT_RADIUS * nz
    kx, kz = px - after[agent, 0], pz - after[agent, 1]
    length = math.sqrt(kx * kx + kz * kz)
    if length > ZERO:
        push[0] += KICK_SPEED * kx / length
        push[1] += KICK_SPEED * kz / length


@inlined
def integrate(position, velocity, moving, after):
    """Write to `after` where the bodies go: the ball loses way to the floor, walls stop what would jump them."""
    speed = math.sqrt(moving[PITCH.ball, 0] * moving[PITCH.ball, 0] + moving[PITCH.ball, 1] * moving[PITCH.ball, 1])
    if speed > ZERO:
        rest = ONE - min(BALL_LOSS_MAX_SPEED / speed, BALL_LOSS_SHARE)
        moving[PITCH.ball, 0] *= rest
        moving[PITCH.ball, 1] *= rest
    for b in range(PITCH.bodies):
        dx, dz = moving[b, 0] * STEP_S, moving[b, 1] * STEP_S
        x, z = position[b, 0] + dx, position[b, 1] + dz
        if dx * dx + dz * dz >= PITCH.swept_from_square[b] and not (
            away_from_walls(x, z) and away_from_walls(position[b, 0], position[b, 1])
        ):
            x, z = stop_at_wall(b, position, velocity, x, z)
        after[b, 0], after[b, 1] = x, z


@inlined
def begin_touches(before, after, touch, touching, actions, kick_on_ball, push):
    """Kicks of the agents whose contact with the ball is new. Returns (bit set of those agents, last kicker or -1)."""
    began, kicker = 0, -1
    for a in range(PITCH.agents):
        if touch[a] and not touching[a]:
            began |= 1 << a
            if actions[a, 0] == 1 or PITCH.kicks_always[a]:
                kicker = a
                kick_push(before, after, a, kick_on_ball, push)
        touching[a] = touch[a]
    return began, kicker


@inlined
def fixed_step(position, velocity, spin, yaw, push, touching, actions, kick_on_ball, scratch):
    """Advance one match by one fixed step, in place. Returns what `begin_touches` returns.

    position, velocity: [P + 1, 2].  spin: [1], the ball's.  yaw: [P].  push: [2].  touching: [P].  actions: [P, 3].
    scratch: of `new_scratch`, its headings those of `face` before the first step and left alone since.
    """
    rows, bodies, moving, spins, touch, heading, after = scratch
    drive(velocity, yaw, heading, actions)
    velocity[PITCH.ball, 0] = (velocity[PITCH.ball, 0] + push[0]) * BALL_DRAG_FACTOR
    velocity[PITCH.ball, 1] = (velocity[PITCH.ball, 1] + push[1]) * BALL_DRAG_FACTOR
    push[0] = push[1] = ZERO
    for a in range(PITCH.agents):
        spins[a] = ZERO
    spins[PITCH.ball] = min(max(spin[0] * BALL_DRAG_FACTOR, -BALL_MAX_SPIN), BALL_MAX_SPIN)

    count = find_contacts(position, velocity, kick_on_ball, touch, rows, bodies)
    if count:
        solve(rows, bodies, count, velocity, spins, TARGET_MOVE, MOVE_SWEEPS)
    for b in range(PITCH.bodies):
        moving[b, 0], moving[b, 1] = velocity[b, 0], velocity[b, 1]
    if count:
        solve(rows, bodies, count, velocity, spins, TARGET_KEEP, KEEP_SWEEPS)
    spin[0] = spins[PITCH.ball]

    integrate(position, velocity, moving, after)
    began, kicker = begin_touches(position, after, touch, touching, actions, kick_on_ball, push)
    for b in range(PITCH.bodies):
        position[b, 0], position[b, 1] = after[b, 0], after[b, 1]
    return began, kicker
