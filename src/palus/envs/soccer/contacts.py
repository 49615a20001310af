"""Contacts of the discs of a match with each other and with the walls: finding them, and solving their impulses.

The engine's order is kept (PhysX 4.1, sequential impulses): contacts come from the positions at the *start* of a
step; sweeps with push-out give the velocities that move the bodies, further sweeps without it the velocities kept.
"""

from __future__ import annotations

import math

import numpy as np

from palus.envs.soccer.compile import inlined, inner
from palus.envs.soccer.geometry import (
    BALL_RADIUS,
    BALL_RESTITUTION,
    BOUNCE_SPEED,
    CONTACT_GAP,
    CORNER_NX,
    CORNER_NZ,
    FREE_CORNER,
    FREE_Z,
    FRICTION,
    PUSH_OUT_MAX_SPEED,
    PUSH_OUT_SHARE,
    STEP_S,
)
from palus.envs.soccer.pitch import PITCH

ZERO = np.float32(0)
ONE = np.float32(1)
STATIC = -1
# N s: 0.03 mm/s of the ball.
SETTLED = np.float32(1e-4)
MAX_CONTACTS = 48

# Columns of a contact's row. The normal points from body b (or the wall) to body a; arms are the distances from the
# two centres to the contact point, along the normal.
NX, NZ, ARM_A, ARM_B, NORMAL_MASS, TANGENT_MASS, TARGET_MOVE, TARGET_KEEP, NORMAL_SUM, TANGENT_SUM = range(10)
CONTACT_COLUMNS = 10


@inner
def disc_rectangle(x, z, k):
    """Distance of a point to rectangle k (negative inside) and the unit normal towards the point, world frame."""
    cos, sin = PITCH.rectangles[k, 4], PITCH.rectangles[k, 5]
    rx, rz = x - PITCH.rectangles[k, 0], z - PITCH.rectangles[k, 1]
    local_x, local_z = rx * cos - rz * sin, rx * sin + rz * cos
    out_x, out_z = abs(local_x) - PITCH.rectangles[k, 2], abs(local_z) - PITCH.rectangles[k, 3]
    if out_x <= ZERO and out_z <= ZERO:
        # The centre is inside: the nearest face decides.
        distance = out_x if out_x > out_z else out_z
        nx, nz = (ONE, ZERO) if out_x > out_z else (ZERO, ONE)
    else:
        dx, dz = max(out_x, ZERO), max(out_z, ZERO)
        distance = math.sqrt(dx * dx + dz * dz)
        nx, nz = dx / distance, dz / distance
    nx, nz = math.copysign(nx, local_x), math.copysign(nz, local_z)
    return distance, nx * cos + nz * sin, nz * cos - nx * sin


@inlined
def away_from_walls(x, z):
    """No rectangle is within reach of a disc centred here (see `FREE_X`)."""
    ax, az = abs(x), abs(z)
    return ax < PITCH.free_x and az < FREE_Z and CORNER_NX * ax + CORNER_NZ * az < FREE_CORNER


@inner
def _add(rows, bodies, count, velocity, a, b, nx, nz, arm_a, arm_b, gap, restitution):
    """Append one contact; returns the new count."""
    vx, vz = velocity[a, 0], velocity[a, 1]
    inverse_normal = PITCH.inverse_mass[a]
    inverse_tangent = PITCH.inverse_mass[a] + arm_a * arm_a * PITCH.inverse_inertia[a]
    if b != STATIC:
        vx, vz = vx - velocity[b, 0], vz - velocity[b, 1]
        inverse_normal += PITCH.inverse_mass[b]
        inverse_tangent += PITCH.inverse_mass[b] + arm_b * arm_b * PITCH.inverse_inertia[b]
    approach = -(vx * nx + vz * nz)
    if restitution > ZERO and approach > BOUNCE_SPEED and approach * STEP_S > gap:
        move = keep = restitution * approach
    elif gap > ZERO:
        move = keep = -gap / STEP_S
    else:
        move, keep = min(-PUSH_OUT_SHARE * gap / STEP_S, PUSH_OUT_MAX_SPEED), ZERO
    bodies[count, 0], bodies[count, 1] = a, b
    rows[count, NX], rows[count, NZ], rows[count, ARM_A], rows[count, ARM_B] = nx, nz, arm_a, arm_b
    rows[count, NORMAL_MASS], rows[count, TANGENT_MASS] = ONE / inverse_normal, ONE / inverse_tangent
    rows[count, TARGET_MOVE], rows[count, TARGET_KEEP] = move, keep
    rows[count, NORMAL_SUM] = rows[count, TANGENT_SUM] = ZERO
    return count + 1


@inlined
def find_contacts(position, velocity, kick_on_ball, touch, rows, bodies):
    """Fill `rows` and `bodies` with this step's contacts, and `touch[a]` (agent a and the ball); returns their number.

    kick_on_ball: pair contact points lie on the ball's surface, else on the agent's.
    """
    count = 0
    for a in range(PITCH.agents):
        touch[a] = False
    for a in range(1, PITCH.bodies):
        for b in range(a):
            dx, dz = position[a, 0] - position[b, 0], position[a, 1] - position[b, 1]
            reach = PITCH.radius[a] + PITCH.radius[b] + CONTACT_GAP
            square = dx * dx + dz * dz
            if square >= reach * reach:
                continue
            distance = math.sqrt(square)
            # Coinciding centres have no normal; the engine picks an axis as well.
            nx, nz = (dx / distance, dz / distance) if distance > ZERO else (ONE, ZERO)
            restitution, arm_a = ZERO, PITCH.radius[a]
            if a == PITCH.ball:
                touch[b] = True
                restitution = BALL_RESTITUTION
                arm_a = BALL_RADIUS if kick_on_ball else distance - PITCH.radius[b]
            gap = distance - PITCH.radius[a] - PITCH.radius[b]
            count = _add(rows, bodies, count, velocity, a, b, nx, nz, arm_a, distance - arm_a, gap, restitution)
    for a in range(PITCH.bodies):
        x, z = position[a, 0], position[a, 1]
        if away_from_walls(x, z):
            continue
        for k in range(PITCH.num_rectangles):
            distance, nx, nz = disc_rectangle(x, z, k)
            gap = distance - PITCH.radius[a]
            if gap < CONTACT_GAP:
                restitution = BALL_RESTITUTION if a == PITCH.ball else ZERO
                arm = max(distance, ZERO)
                count = _add(rows, bodies, count, velocity, a, STATIC, nx, nz, arm, ZERO, gap, restitution)
    return count


@inner
def sweep(rows, bodies, count, velocity, spin, target):
    """One pass of sequential impulses over all contacts; returns the largest change of an impulse, N s.

    target: column of the wanted normal velocity.   velocity: [P + 1, 2] and spin: [P + 1] are changed in place.
    Tangent = the normal turned by +90 degrees in (x, z).
    """
    largest = ZERO
    for i in range(count):
        a, b = bodies[i, 0], bodies[i, 1]
        nx, nz, arm_a, arm_b = rows[i, NX], rows[i, NZ], rows[i, ARM_A], rows[i, ARM_B]
        vx, vz = velocity[a, 0], velocity[a, 1]
        slip = -spin[a] * arm_a
        if b != STATIC:
            vx, vz = vx - velocity[b, 0], vz - velocity[b, 1]
            slip -= spin[b] * arm_b
        normal = max(rows[i, NORMAL_SUM] + (rows[i, target] - (vx * nx + vz * nz)) * rows[i, NORMAL_MASS], ZERO)
        limit = FRICTION * normal
        slip += vz * nx - vx * nz
        tangent = min(max(rows[i, TANGENT_SUM] - slip * rows[i, TANGENT_MASS], -limit), limit)
        jn, jt = normal - rows[i, NORMAL_SUM], tangent - rows[i, TANGENT_SUM]
        rows[i, NORMAL_SUM], rows[i, TANGENT_SUM] = normal, tangent
        jx, jz = jn * nx - jt * nz, jn * nz + jt * nx
        velocity[a, 0] += jx * PITCH.inverse_mass[a]
        velocity[a, 1] += jz * PITCH.inverse_mass[a]
        spin[a] -= arm_a * jt * PITCH.inverse_inertia[a]
        if b != STATIC:
            velocity[b, 0] -= jx * PITCH.inverse_mass[b]
            velocity[b, 1] -= jz * PITCH.inverse_mass[b]
            spin[b] -= arm_b * jt * PITCH.inverse_inertia[b]
        largest = max(largest, abs(jn), abs(jt))
    return largest


@inner
def solve(rows, bodies, count, velocity, spin, target, sweeps):
    """Up to `sweeps` passes, fewer once the impulses stand still: most steps have a single contact, solved by one."""
    for _ in range(sweeps):
        if sweep(rows, bodies, count, velocity, spin, target) < SETTLED:
            break
