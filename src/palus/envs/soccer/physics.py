"""One fixed step of 0.02 s of one match: drive, drag, contacts, integration, swept test, kicks.

The reduced model of a 3-D engine: discs in a plane. What the third dimension leaves behind is the loss of ball
displacement (`BALL_LOSS_MAX_SPEED`); neither ball nor agents feel floor friction otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

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
    sweep,
)
from palus.envs.soccer.geometry import (
    AGENT_DRAG_FACTOR,
    AGENT_RADIUS,
    AGENTS,
    BALL,
    BALL_DRAG_FACTOR,
    BALL_LOSS_MAX_SPEED,
    BALL_LOSS_SHARE,
    BALL_MAX_SPIN,
    BALL_RADIUS,
    BALL_RESTITUTION,
    BODIES,
    DRIVE_SPEED,
    KICK_SPEED,
    LATERAL_SHARE,
    NUM_RECTANGLES,
    RADIUS,
    RECTANGLES,
    STEP_S,
    TURN_DEG,
)

MOVE_SWEEPS = 6
KEEP_SWEEPS = 4
SWEPT_SHARE = np.float32(0.75)
DEG = np.float32(math.pi / 180)
HALF_TURN = np.float32(180)
FULL_TURN = np.float32(360)
NEVER = np.float32(2)


@njit(nogil=True)
def new_scratch():
    """Working memory of `fixed_step`, reused over steps: contacts, moving velocities, spins, touches."""
    return (
        np.empty((MAX_CONTACTS, CONTACT_COLUMNS), np.float32),
        np.empty((MAX_CONTACTS, 2), np.int64),
        np.empty((BODIES, 2), np.float32),
        np.empty(BODIES, np.float32),
        np.empty(AGENTS, np.bool_),
    )


@njit(nogil=True, error_model="numpy")
def drive(velocity, yaw, actions):
    """Apply one fixed step of actions [4, 3] to velocities (drag included) and yaws.

    The heading before this step's turn drives; a lateral action replaces the forward one.
    """
    for a in range(AGENTS):
        forward, lateral, turn = actions[a, 0], actions[a, 1], actions[a, 2]
        speed = ZERO
        dx, dz = ZERO, ZERO
        if forward != 0 or lateral != 0:
            dx, dz = math.sin(yaw[a] * DEG), math.cos(yaw[a] * DEG)
        if lateral != 0:
            dx, dz = dz, -dx
            speed = DRIVE_SPEED * LATERAL_SHARE * (ONE if lateral == 1 else -ONE)
        elif forward != 0:
            speed = DRIVE_SPEED * (ONE if forward == 1 else -ONE)
        velocity[a, 0] = (velocity[a, 0] + dx * speed) * AGENT_DRAG_FACTOR
        velocity[a, 1] = (velocity[a, 1] + dz * speed) * AGENT_DRAG_FACTOR
        if turn != 0:
            turned = yaw[a] + (-TURN_DEG if turn == 1 else TURN_DEG)
            if turned > HALF_TURN:
                turned -= FULL_TURN
            elif turned < -HALF_TURN:
                turned += FULL_TURN
            yaw[a] = turned


@njit(nogil=True, error_model="numpy")
def sweep_time(x, z, dx, dz, radius, k):
    """Share of the displacement (dx, dz) after which a disc meets rectangle k from outside, > 1 when it does not.

    Also the unit normal there.
    """
    cos, sin = RECTANGLES[k, 4], RECTANGLES[k, 5]
    rx, rz = x - RECTANGLES[k, 0], z - RECTANGLES[k, 1]
    ox, oz = rx * cos - rz * sin, rx * sin + rz * cos
    ux, uz = dx * cos - dz * sin, dx * sin + dz * cos
    half_x, half_z = RECTANGLES[k, 2], RECTANGLES[k, 3]
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


@njit(nogil=True, error_model="numpy")
def stop_at_wall(body, position, velocity, x, z):
    """Where a body that moves to (x, z) really ends: at the first wall that its fast path meets.

    Only displacements that could jump a wall are tested (thresholds of the engine); the rest of such a step is lost
    and the normal velocity is reflected without friction.
    """
    start_x, start_z = position[body, 0], position[body, 1]
    dx, dz = x - start_x, z - start_z
    radius = RADIUS[body]
    threshold = SWEPT_SHARE * radius
    if dx * dx + dz * dz < threshold * threshold or (away_from_walls(x, z) and away_from_walls(start_x, start_z)):
        return x, z
    first, nx, nz = NEVER, ZERO, ZERO
    for k in range(NUM_RECTANGLES):
        distance, _, _ = disc_rectangle(start_x, start_z, k)
        if distance <= radius:
            continue
        time, tx, tz = sweep_time(start_x, start_z, dx, dz, radius, k)
        thin = min(RECTANGLES[k, 2], RECTANGLES[k, 3])
        if time <= ONE and time < first and -(dx * tx + dz * tz) >= SWEPT_SHARE * (radius + thin):
            first, nx, nz = time, tx, tz
    if first > ONE:
        return x, z
    restitution = BALL_RESTITUTION if body == BALL else ZERO
    normal = velocity[body, 0] * nx + velocity[body, 1] * nz
    if normal < ZERO:
        velocity[body, 0] -= (ONE + restitution) * normal * nx
        velocity[body, 1] -= (ONE + restitution) * normal * nz
    return start_x + first * dx, start_z + first * dz


@njit(nogil=True, error_model="numpy")
def kick_push(before, after, agent, kick_on_ball, push):
    """Add the kick of an agent to `push`: from its centre after the step to the contact point found before it."""
    dx, dz = before[BALL, 0] - before[agent, 0], before[BALL, 1] - before[agent, 1]
    distance = math.sqrt(dx * dx + dz * dz)
    nx, nz = (dx / distance, dz / distance) if distance > ZERO else (ONE, ZERO)
    if kick_on_ball:
        px, pz = before[BALL, 0] - BALL_RADIUS * nx, before[BALL, 1] - BALL_RADIUS * nz
    else:
        px, pz = before[agent, 0] + AGENT_RADIUS * nx, before[agent, 1] + AGENT_RADIUS * nz
    kx, kz = px - after[agent, 0], pz - after[agent, 1]
    length = math.sqrt(kx * kx + kz * kz)
    if length > ZERO:
        push[0] += KICK_SPEED * kx / length
        push[1] += KICK_SPEED * kz / length


@njit(nogil=True, error_model="numpy")
def fixed_step(position, velocity, spin, yaw, push, touching, actions, kick_on_ball, scratch, after):
    """Advance one match by one fixed step, in place. Returns (bit set of agents that began to touch the ball, kicker).

    position, velocity: [5, 2].  spin: scalar view [1].  yaw: [4].  push: [2].  touching: [4].  actions: [4, 3].
    after: [5, 2] scratch.  kicker: the last agent that kicked, -1 none.
    """
    rows, bodies, moving, spins, touch = scratch
    drive(velocity, yaw, actions)
    velocity[BALL, 0] = (velocity[BALL, 0] + push[0]) * BALL_DRAG_FACTOR
    velocity[BALL, 1] = (velocity[BALL, 1] + push[1]) * BALL_DRAG_FACTOR
    push[0] = push[1] = ZERO
    for a in range(AGENTS):
        spins[a] = ZERO
    spins[BALL] = min(max(spin[0] * BALL_DRAG_FACTOR, -BALL_MAX_SPIN), BALL_MAX_SPIN)

    count = find_contacts(position, velocity, spins, kick_on_ball, touch, rows, bodies)
    for _ in range(MOVE_SWEEPS if count else 0):
        sweep(rows, bodies, count, velocity, spins, TARGET_MOVE)
    for b in range(BODIES):
        moving[b, 0], moving[b, 1] = velocity[b, 0], velocity[b, 1]
    for _ in range(KEEP_SWEEPS if count else 0):
        sweep(rows, bodies, count, velocity, spins, TARGET_KEEP)
    spin[0] = spins[BALL]

    speed = math.sqrt(moving[BALL, 0] * moving[BALL, 0] + moving[BALL, 1] * moving[BALL, 1])
    if speed > ZERO:
        rest = ONE - min(BALL_LOSS_MAX_SPEED / speed, BALL_LOSS_SHARE)
        moving[BALL, 0] *= rest
        moving[BALL, 1] *= rest
    for b in range(BODIES):
        x, z = position[b, 0] + moving[b, 0] * STEP_S, position[b, 1] + moving[b, 1] * STEP_S
        after[b, 0], after[b, 1] = stop_at_wall(b, position, velocity, x, z)

    began, kicker = 0, -1
    for a in range(AGENTS):
        if touch[a] and not touching[a]:
            began |= 1 << a
            if actions[a, 0] == 1:
                kicker = a
                kick_push(position, after, a, kick_on_ball, push)
        touching[a] = touch[a]
    for b in range(BODIES):
        position[b, 0], position[b, 1] = after[b, 0], after[b, 1]
    return began, kicker
