"""The ray sensors: 14 sphere casts per agent, reduced to point rays in the plane, stacked to 264 and 72 floats.

A cast sphere of radius 0.5 at height 1 meets spheres at height 0.5: in the plane a point ray meets discs of the
radii below, and rectangles grown by 0.5 with rounded corners. Whatever overlaps the start of a cast is invisible.

Rays of an agent are 16 lanes (two idle) of plain loops over one flat scratch array at constant offsets: LLVM then
knows that the lanes do not alias and vectorises them; primitives are the outer loop.
"""

from __future__ import annotations

import math

import numpy as np

from palus.envs.soccer.compile import inner
from palus.envs.soccer.geometry import AGENTS, BALL, NUM_RECTANGLES, RECTANGLE_TAG, RECTANGLES, TEAM_OF_AGENT, WALL
from palus.envs.soccer.state import FRAMES, RAYS

FORWARD_RAYS = 11
REVERSE_RAYS = 3
RAY_SLOTS = 8
"""Numbers per ray: six one-hot object slots, nothing hit, distance / length."""
NOTHING = 6
FORWARD_FRAME = FORWARD_RAYS * RAY_SLOTS
REVERSE_FRAME = REVERSE_RAYS * RAY_SLOTS
OBSERVATION_SIZES = (FRAMES * FORWARD_FRAME, FRAMES * REVERSE_FRAME)

RAY_LENGTH = np.float32(20)
CAST_RADIUS = np.float32(0.5)
BALL_REACH = np.float32(math.sqrt(1.1241719**2 - 0.5**2))
AGENT_REACH = np.float32(math.sqrt(1 - 0.5**2))
SEEN_SQUARE = np.float32((20.0 + 0.5) ** 2)

LANES = 16
# Angles from the agent's right, counter-clockwise: straight ahead first, then alternating right and left; the reverse
# sensor is the same idea, turned by 180 degrees.
RAY_ANGLES_DEG = (90, 78, 102, 66, 114, 54, 126, 42, 138, 30, 150, 270, 225, 315)
_PADDED = np.radians(np.array((*RAY_ANGLES_DEG, 90, 90), np.float64))
RAY_RIGHT = np.cos(_PADDED).astype(np.float32)
RAY_FORWARD = np.sin(_PADDED).astype(np.float32)

# Slot of an object in the eyes of a team: ball 0, own goal 1, attacked goal 2, wall 3, mate 4, opponent 5.
RECTANGLE_SLOT = np.array(
    [[3.0 if tag == WALL else (1.0 if tag - 1 == team else 2.0) for tag in RECTANGLE_TAG] for team in (0, 1)],
    np.float32,
)
AGENT_SLOT = np.array([[4.0 if other == team else 5.0 for other in TEAM_OF_AGENT] for team in (0, 1)], np.float32)
TEAM = np.array(TEAM_OF_AGENT, np.int64)

# Frame of each rectangle: 0 axis-parallel, 1 turned by +60, 2 by -60 degrees; offsets of its ray directions in the
# scratch array: (x, z, 1/x, 1/z), 16 lanes each.
RECTANGLE_FRAME = np.array([0 if s == 0 else (1 if s > 0 else 2) for s in RECTANGLES[:, 5]], np.int64)
BEST = 0
OBJECT = LANES
DIRECTIONS = 2 * LANES
SCRATCH = DIRECTIONS + 3 * 4 * LANES

ZERO = np.float32(0)
ONE = np.float32(1)
TINY = np.float32(1e-9)
COS60 = np.float32(0.5)
SIN60 = np.float32(math.sin(math.radians(60)))
DEG = np.float32(math.pi / 180)


@inner
def _inverse(d):
    """1/d, huge instead of infinite for d = 0: infinity times zero would be NaN."""
    return ONE / (d if abs(d) > TINY else TINY)


@inner
def _aim(lanes, yaw):
    """Ray directions of an agent in the three frames, and no hit yet."""
    sin, cos = math.sin(yaw * DEG), math.cos(yaw * DEG)
    for i in range(LANES):
        dx = RAY_RIGHT[i] * cos + RAY_FORWARD[i] * sin
        dz = RAY_FORWARD[i] * cos - RAY_RIGHT[i] * sin
        px, pz = dx * COS60 - dz * SIN60, dx * SIN60 + dz * COS60
        mx, mz = dx * COS60 + dz * SIN60, dz * COS60 - dx * SIN60
        lanes[DIRECTIONS + i], lanes[DIRECTIONS + LANES + i] = dx, dz
        lanes[DIRECTIONS + 2 * LANES + i], lanes[DIRECTIONS + 3 * LANES + i] = _inverse(dx), _inverse(dz)
        lanes[DIRECTIONS + 4 * LANES + i], lanes[DIRECTIONS + 5 * LANES + i] = px, pz
        lanes[DIRECTIONS + 6 * LANES + i], lanes[DIRECTIONS + 7 * LANES + i] = _inverse(px), _inverse(pz)
        lanes[DIRECTIONS + 8 * LANES + i], lanes[DIRECTIONS + 9 * LANES + i] = mx, mz
        lanes[DIRECTIONS + 10 * LANES + i], lanes[DIRECTIONS + 11 * LANES + i] = _inverse(mx), _inverse(mz)
        lanes[BEST + i], lanes[OBJECT + i] = RAY_LENGTH, np.float32(NOTHING)


@inner
def _cast_disc(lanes, cx, cz, radius, slot):
    """Meet a disc whose centre is (cx, cz) from the ray start."""
    square = radius * radius
    if cx * cx + cz * cz <= square:
        return
    for i in range(LANES):
        dx, dz = lanes[DIRECTIONS + i], lanes[DIRECTIONS + LANES + i]
        along, across = cx * dx + cz * dz, cx * dz - cz * dx
        under = square - across * across
        distance = along - math.sqrt(under if under > ZERO else ZERO)
        hit = (under >= ZERO) & (along > ZERO) & (distance <= lanes[BEST + i])
        lanes[BEST + i] = distance if hit else lanes[BEST + i]
        lanes[OBJECT + i] = slot if hit else lanes[OBJECT + i]


@inner
def _cast_box(lanes, frame, ox, oz, half_x, half_z, slot):
    """Meet a box grown by the cast radius, corners rounded; (ox, oz) is the ray start in the box's frame.

    A ray that enters the sharp grown box within a corner square hits the rounded box only in that corner's disc.
    """
    wide_x, wide_z, square = half_x + CAST_RADIUS, half_z + CAST_RADIUS, CAST_RADIUS * CAST_RADIUS
    for i in range(LANES):
        dx, dz = lanes[frame + i], lanes[frame + LANES + i]
        ix, iz = lanes[frame + 2 * LANES + i], lanes[frame + 3 * LANES + i]
        middle_x, middle_z = -ox * ix, -oz * iz
        span_x, span_z = wide_x * abs(ix), wide_z * abs(iz)
        near_x, near_z = middle_x - span_x, middle_z - span_z
        far_x, far_z = middle_x + span_x, middle_z + span_z
        enter = near_x if near_x > near_z else near_z
        leave = far_x if far_x < far_z else far_z
        enter = enter if enter > ZERO else ZERO
        px, pz = ox + enter * dx, oz + enter * dz
        corner = (abs(px) > half_x) & (abs(pz) > half_z)
        cx, cz = math.copysign(half_x, px) - ox, math.copysign(half_z, pz) - oz
        along, across = cx * dx + cz * dz, cx * dz - cz * dx
        under = square - across * across
        round_ = along - math.sqrt(under if under > ZERO else ZERO)
        distance = round_ if corner else enter
        possible = (enter <= leave) & ((not corner) | ((under >= ZERO) & (along > ZERO)))
        hit = possible & (distance <= lanes[BEST + i])
        lanes[BEST + i] = distance if hit else lanes[BEST + i]
        lanes[OBJECT + i] = slot if hit else lanes[OBJECT + i]


@inner
def cast_rays(position, yaw, agent, lanes, objects, fractions):
    """Take one frame of an agent: the slot hit by each of its 14 rays and the distance as a share of 20 m.

    position: [5, 2].  yaw: degrees.  lanes: [SCRATCH] float32.  objects: [14] int8 out.  fractions: [14] out.
    """
    x, z, team = position[agent, 0], position[agent, 1], TEAM[agent]
    _aim(lanes, yaw)
    for k in range(NUM_RECTANGLES):
        cos, sin = RECTANGLES[k, 4], RECTANGLES[k, 5]
        rx, rz = x - RECTANGLES[k, 0], z - RECTANGLES[k, 1]
        ox, oz = rx * cos - rz * sin, rx * sin + rz * cos
        out_x, out_z = max(abs(ox) - RECTANGLES[k, 2], ZERO), max(abs(oz) - RECTANGLES[k, 3], ZERO)
        square = out_x * out_x + out_z * out_z
        if square <= CAST_RADIUS * CAST_RADIUS or square > SEEN_SQUARE:
            continue
        slot = RECTANGLE_SLOT[team, k]
        frame = RECTANGLE_FRAME[k]
        if frame == 0:
            _cast_box(lanes, DIRECTIONS, ox, oz, RECTANGLES[k, 2], RECTANGLES[k, 3], slot)
        elif frame == 1:
            _cast_box(lanes, DIRECTIONS + 4 * LANES, ox, oz, RECTANGLES[k, 2], RECTANGLES[k, 3], slot)
        else:
            _cast_box(lanes, DIRECTIONS + 8 * LANES, ox, oz, RECTANGLES[k, 2], RECTANGLES[k, 3], slot)
    for other in range(AGENTS):
        if other != agent:
            _cast_disc(lanes, position[other, 0] - x, position[other, 1] - z, AGENT_REACH, AGENT_SLOT[team, other])
    _cast_disc(lanes, position[BALL, 0] - x, position[BALL, 1] - z, BALL_REACH, ZERO)
    for i in range(RAYS):
        objects[i] = np.int8(lanes[OBJECT + i])
        fractions[i] = lanes[BEST + i] / RAY_LENGTH


@inner
def write_observation(objects, fractions, forward, reverse):
    """Unfold three frames of rays [3, 14] into `forward` [264] and `reverse` [72], oldest frame first."""
    forward[:] = ZERO
    reverse[:] = ZERO
    for frame in range(FRAMES):
        if objects[frame, 0] < 0:
            continue
        for ray in range(FORWARD_RAYS):
            start = frame * FORWARD_FRAME + ray * RAY_SLOTS
            forward[start + objects[frame, ray]] = ONE
            forward[start + 7] = fractions[frame, ray]
        for ray in range(REVERSE_RAYS):
            start = frame * REVERSE_FRAME + ray * RAY_SLOTS
            reverse[start + objects[frame, FORWARD_RAYS + ray]] = ONE
            reverse[start + 7] = fractions[frame, FORWARD_RAYS + ray]
