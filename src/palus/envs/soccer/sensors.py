"""The ray sensors: sphere casts, reduced to point rays in the plane, stacked over frames.

A cast sphere of radius 0.5 at height 1 meets spheres at height 0.5: in the plane a point ray meets discs of the
radii below, and rectangles grown by 0.5 with rounded corners. Whatever overlaps the start of a cast is invisible.

Rays of an agent are fans of 16 lanes (some idle) of plain loops over one flat scratch array at constant offsets: LLVM
then knows that the lanes do not alias and vectorises them; primitives are the outer loop.
"""

from __future__ import annotations

import math

import numpy as np

from palus.envs.soccer.compile import inner
from palus.envs.soccer.geometry import LANES, RECTANGLES
from palus.envs.soccer.pitch import FRAMES, PITCH, SENSOR

RAY_LENGTH = np.float32(20)
CAST_RADIUS = np.float32(0.5)
BALL_REACH = np.float32(math.sqrt(1.1241719**2 - 0.5**2))
AGENT_REACH = np.float32(math.sqrt(1 - 0.5**2))
SEEN_SQUARE = np.float32((20.0 + 0.5) ** 2)

# Frame of each rectangle: 0 axis-parallel, 1 turned by +60, 2 by -60 degrees; offsets of its ray directions in the
# scratch array: (x, z, 1/x, 1/z), 16 lanes each. A blocker is axis-parallel.
RECTANGLE_FRAME = np.array([*(0 if s == 0 else (1 if s > 0 else 2) for s in RECTANGLES[:, 5]), 0], np.int64)
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
def _aim(lanes, yaw, fan, nothing):
    """Ray directions of a fan in the three frames, and no hit yet."""
    sin, cos = math.sin(yaw * DEG), math.cos(yaw * DEG)
    for i in range(LANES):
        dx = PITCH.ray_right[fan, i] * cos + PITCH.ray_forward[fan, i] * sin
        dz = PITCH.ray_forward[fan, i] * cos - PITCH.ray_right[fan, i] * sin
        px, pz = dx * COS60 - dz * SIN60, dx * SIN60 + dz * COS60
        mx, mz = dx * COS60 + dz * SIN60, dz * COS60 - dx * SIN60
        lanes[DIRECTIONS + i], lanes[DIRECTIONS + LANES + i] = dx, dz
        lanes[DIRECTIONS + 2 * LANES + i], lanes[DIRECTIONS + 3 * LANES + i] = _inverse(dx), _inverse(dz)
        lanes[DIRECTIONS + 4 * LANES + i], lanes[DIRECTIONS + 5 * LANES + i] = px, pz
        lanes[DIRECTIONS + 6 * LANES + i], lanes[DIRECTIONS + 7 * LANES + i] = _inverse(px), _inverse(pz)
        lanes[DIRECTIONS + 8 * LANES + i], lanes[DIRECTIONS + 9 * LANES + i] = mx, mz
        lanes[DIRECTIONS + 10 * LANES + i], lanes[DIRECTIONS + 11 * LANES + i] = _inverse(mx), _inverse(mz)
        lanes[BEST + i], lanes[OBJECT + i] = RAY_LENGTH, nothing


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
def _cast_fan(position, yaw, agent, fan, lanes):
    """Let the rays of one fan of an agent meet everything; the nearest hits are in `lanes` then."""
    x, z = position[agent, 0], position[agent, 1]
    _aim(lanes, yaw, fan, PITCH.nothing[agent])
    for k in range(PITCH.num_rectangles):
        cos, sin = PITCH.rectangles[k, 4], PITCH.rectangles[k, 5]
        rx, rz = x - PITCH.rectangles[k, 0], z - PITCH.rectangles[k, 1]
        ox, oz = rx * cos - rz * sin, rx * sin + rz * cos
        half_x, half_z = PITCH.rectangles[k, 2], PITCH.rectangles[k, 3]
        out_x, out_z = max(abs(ox) - half_x, ZERO), max(abs(oz) - half_z, ZERO)
        square = out_x * out_x + out_z * out_z
        if square <= CAST_RADIUS * CAST_RADIUS or square > SEEN_SQUARE:
            continue
        slot = PITCH.rectangle_slot[agent, k]
        frame = RECTANGLE_FRAME[k]
        if frame == 0:
            _cast_box(lanes, DIRECTIONS, ox, oz, half_x, half_z, slot)
        elif frame == 1:
            _cast_box(lanes, DIRECTIONS + 4 * LANES, ox, oz, half_x, half_z, slot)
        else:
            _cast_box(lanes, DIRECTIONS + 8 * LANES, ox, oz, half_x, half_z, slot)
    for other in range(PITCH.agents):
        if other != agent:
            slot = PITCH.agent_slot[agent, other]
            _cast_disc(lanes, position[other, 0] - x, position[other, 1] - z, AGENT_REACH, slot)
    _cast_disc(lanes, position[PITCH.ball, 0] - x, position[PITCH.ball, 1] - z, BALL_REACH, ZERO)


@inner
def cast_rays(position, yaw, agent, lanes, objects, fractions):
    """Take one frame of an agent: the slot hit by each of its rays and the distance as a share of 20 m.

    position: [P + 1, 2].  yaw: degrees.  lanes: [SCRATCH] float32.  objects: [max_rays] int8 out.  fractions: alike.
    """
    for part in range(PITCH.max_fans):
        if part >= PITCH.fans[agent]:
            break
        _cast_fan(position, yaw, agent, PITCH.first_fan[agent] + part, lanes)
        for i in range(min(LANES, PITCH.max_rays - part * LANES)):
            objects[part * LANES + i] = np.int8(lanes[OBJECT + i])
            fractions[part * LANES + i] = lanes[BEST + i] / RAY_LENGTH


@inner
def write_observation(objects, fractions, out):
    """Unfold three frames [3, max_rays], of which `SENSOR` names the rays, into `out`, oldest frame first.

    Per ray: a slot for each tag, one for nothing hit, and the distance, which also covers the slot of what has no tag.
    """
    out[:] = ZERO
    size = SENSOR.tags + 2
    for frame in range(FRAMES):
        if objects[frame, 0] < 0:
            continue
        for ray in range(SENSOR.rays):
            start = (frame * SENSOR.rays + ray) * size
            out[start + objects[frame, SENSOR.first_ray + ray]] = ONE
            out[start + SENSOR.tags + 1] = fractions[frame, SENSOR.first_ray + ray]


@inner
def write_compact(objects, fractions, tags, distances):
    """The same in compact form (`palus.types.RAY_TAGS`), frame by frame: [3 rays] each."""
    for frame in range(FRAMES):
        for ray in range(SENSOR.rays):
            place, known = frame * SENSOR.rays + ray, objects[frame, 0] >= 0
            tags[place] = objects[frame, SENSOR.first_ray + ray] + 1 if known else 0
            distances[place] = fractions[frame, SENSOR.first_ray + ray] if known else ZERO
