"""Numbers that all games of the pitch share: walls, bodies and clock, in metres, seconds, kilograms, degrees.

Frame: Unity's, seen from above. x points to the purple goal, z to the left of an agent that looks along +x; yaw is
clockwise, forward = (sin yaw, cos yaw). Blue (team 0) defends -x. Source: the serialized assets of Unity ML-Agents
releases 18 to 22, example "Soccer".

All scalars are float32, so that kernels stay in single precision: Numba reads a bare Python float as float64.
"""

from __future__ import annotations

import math

import numpy as np

from palus.types import F32

F = np.float32

# --- clock
STEP_S = F(0.02)
STEPS_PER_DECISION = 5

# --- bodies
AGENT_RADIUS = F(0.5)
BALL_RADIUS = F(0.6241719)
AGENT_INVERSE_MASS = F(1 / 50)
BALL_INVERSE_MASS = F(1 / 3)
# Agents cannot turn, yet the engine's contact solver lets them: the lock is applied before and after it, not within.
AGENT_INVERSE_INERTIA = F(1 / 5)
BALL_INVERSE_INERTIA = F(1 / 0.467508)
AGENT_DRAG_FACTOR = F(1 - 3 * 0.02)
BALL_DRAG_FACTOR = F(1 - 1 * 0.02)
BALL_MAX_SPIN = F(7.0)

# --- contacts
CONTACT_GAP = F(0.02)
FRICTION = F(0.6)
BALL_RESTITUTION = F(0.8)
BOUNCE_SPEED = F(2.0)
PUSH_OUT_SHARE = F(0.8)
PUSH_OUT_MAX_SPEED = F(10.0)
# The ball is sunk into the floor by its radius minus 0.5. The solver pushes it up, the floor's friction on that push
# shortens the ball's displacement (not its velocity): by at most 0.35 * push, and no more than makes it roll.
BALL_LOSS_MAX_SPEED = F(0.35 * 0.8 * (0.6241719 - 0.5) / 0.02)
BALL_LOSS_SHARE = F(1 / (1 + 3 * 0.5**2 / 0.467508))

# Shorter displacements, in radii, are not swept (threshold of the engine).
SWEPT_SHARE = F(0.75)

# --- actions
DRIVE_SPEED = F(2.0)
TURN_DEG = F(2.0)
KICK_SPEED = F(2000 / 3 * 0.02)

# --- start of a match
START_X_SPREAD = F(5.0)
START_YAW_MIN_DEG = F(80.0)
START_YAW_SPREAD_DEG = F(20.0)
BALL_START_SPREAD = F(2.5)

# --- goals: the ball counts as in when it touches the floor box of a goal, whose top edge lies 0.5 below its centre
GOAL_FLOOR_X = F(15.5)
GOAL_FLOOR_Z = F(4.25)
GOAL_REACH = F(math.sqrt((0.6241719 + 0.02) ** 2 - 0.5**2))

# --- the twelve upright boxes that bodies and rays meet
WALL = 0
BLUE_GOAL = 1
PURPLE_GOAL = 2
RECTANGLE_TAG = (WALL,) * 6 + (BLUE_GOAL,) * 3 + (PURPLE_GOAL,) * 3

_S60 = math.sin(math.radians(60))
# centre x, centre z, half x, half z, cos(yaw), sin(yaw)
RECTANGLES: F32 = np.array(
    [
        (0.0, 7.738426, 15.5, 0.2303539, 1.0, 0.0),  # side walls
        (0.0, -7.738426, 15.5, 0.2303539, 1.0, 0.0),
        (14.46, 6.41, 2.4, 0.2303539, 0.5, _S60),  # corner walls, turned by +-60 degrees
        (-14.46, 6.41, 2.4, 0.2303539, 0.5, -_S60),
        (-14.46, -6.41, 2.4, 0.2303539, 0.5, _S60),
        (14.46, -6.41, 2.4, 0.2303539, 0.5, -_S60),
        (-16.5, 4.2, 1.0, 0.05, 1.0, 0.0),  # blue goal: two side nets, back net
        (-16.5, -4.2, 1.0, 0.05, 1.0, 0.0),
        (-17.436311, 0.0, 0.0636875, 4.15, 1.0, 0.0),
        (16.47, 4.2, 1.0, 0.05, 1.0, 0.0),  # purple goal, 3 cm nearer: so it is in the original
        (16.47, -4.2, 1.0, 0.05, 1.0, 0.0),
        (17.406, 0.0, 0.05, 4.15, 1.0, 0.0),
    ],
    np.float32,
)
# The wall in front of the blue goal, where there is one.
BLOCKER: F32 = np.array([(-15.51, 0.0, 0.5, 3.95733, 1.0, 0.0)], np.float32)

# A disc centre inside this region is at least 0.65 m (ball radius + contact gap) away from every rectangle.
FREE_X = F(14.8)
FREE_X_BLOCKED = F(14.36)
FREE_Z = F(6.85)
FREE_CORNER = F(14.84)
CORNER_NX = F(_S60)
CORNER_NZ = F(0.5)

# --- sensors
# Rays are cast side by side, so many at a time.
LANES = 16
