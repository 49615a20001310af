"""Two scripted teams of any soccer game that act from the public state: `ball_chaser` and `goalie_striker`.

Every position is first turned so that the own goal lies at -x: one set of rules plays both sides. With the drive off an
agent coasts 0.31 s of its speed; the rules steer where it will be after half of that. Numbers in capitals were tuned
against the ball chaser and two policies trained in Unity.
"""

from __future__ import annotations

import math

import numpy as np

from palus.envs.soccer.compile import inner, kernel
from palus.envs.soccer.env import Soccer
from palus.envs.soccer.pitch import GROUNDS
from palus.types import I32, I64

F = np.float32
GOAL_X = F(15.5)
COAST_S = F(0.16)
DEGREES = F(180 / math.pi)
# Half a decision's turn: closer than this, turning would overshoot.
TURN_DEADBAND_DEG = F(5)
# One decision of drive moves the resting point by about 3 m forward and 0.9 m sideways.
FORWARD_REACH_M = F(3.0)
LATERAL_REACH_M = F(0.9)

# Striker: distance at which it lines up behind the ball, depth inside the ball that it runs at, detour around the ball.
LINE_UP_M = F(3.2)
AIM_BEHIND_M = F(0.7)
IN_THE_WAY_M = F(1.8)
DETOUR_M = F(2.4)
# Keeper: where it stands, how far it leaves the middle, the point behind its goal from which it looks at the ball.
KEEPER_X = F(-14.7)
KEEPER_MAX_Z = F(3.4)
KEEPER_PIVOT_X = F(-17)


def agents_of(env: Soccer, team: int) -> I64:
    """The team's agents, in order."""
    return np.array([a for a, agent in enumerate(env.spec.agents) if agent.team == team], np.int64)


def act_ball_chaser(env: Soccer, team: int, matches: I64) -> I32:
    """All agents turn to the ball and run at it, wherever that sends the ball.

    team: 0 blue, 1 purple.   matches: [M] match indices.   Returns branch indices [M, agents, 3] in agent order.
    """
    agents = agents_of(env, team)
    out = np.zeros((len(matches), len(agents), 3), np.int32)
    _ball_chaser(env.agent_pos, env.agent_yaw, env.ball_pos, agents, np.ascontiguousarray(matches, np.int64), out)
    return out


def act_goalie_striker(env: Soccer, team: int, matches: I64) -> I32:
    """Agents strike: get behind the ball, then drive it at the goal. The team's last keeps, unless its goal is blocked.

    The keeper stands sideways in front of its goal, because an agent is three times as fast along its heading as
    across it. Arguments and result as in `act_ball_chaser`.
    """
    agents = agents_of(env, team)
    out = np.zeros((len(matches), len(agents), 3), np.int32)
    blocked = team == 0 and GROUNDS[env.spec.env_id].blocked
    _goalie_striker(
        env.agent_pos,
        env.agent_vel,
        env.agent_yaw,
        env.ball_pos,
        env.ball_vel,
        agents,
        -1 if blocked else agents[-1],
        team,
        np.ascontiguousarray(matches, np.int64),
        out,
    )
    return out


@inner
def _wrapped(degrees):
    """The same angle in [-180, 180)."""
    return (degrees + F(180)) % F(360) - F(180)


@inner
def _heading(dx, dz):
    """Yaw in degrees that looks along (dx, dz)."""
    return math.atan2(dx, dz) * DEGREES


@inner
def _turn(yaw, wanted):
    """Action of the rotation branch that brings `yaw` nearer to `wanted`."""
    error = _wrapped(wanted - yaw)
    if abs(error) <= TURN_DEADBAND_DEG:
        return 0
    return 2 if error > 0 else 1


@inner
def _drive(yaw, ex, ez, out):
    """Set the two drive branches so that the resting point moves by (ex, ez): along the axis that needs more time."""
    sin, cos = math.sin(yaw / DEGREES), math.cos(yaw / DEGREES)
    ahead, right = ex * sin + ez * cos, ex * cos - ez * sin
    out[0] = out[1] = 0
    forward_need, lateral_need = abs(ahead) / FORWARD_REACH_M, abs(right) / LATERAL_REACH_M
    if max(forward_need, lateral_need) < F(0.25):
        return
    if forward_need > F(0.25) and (forward_need >= lateral_need or forward_need > F(0.7)):
        out[0] = 1 if ahead > 0 else 2
    else:
        out[1] = 1 if right > 0 else 2


@kernel
def _ball_chaser(agent_pos, agent_yaw, ball_pos, agents, matches, out):
    for m in range(len(matches)):
        n = matches[m]
        for i, a in enumerate(agents):
            wanted = _heading(ball_pos[n, 0] - agent_pos[n, a, 0], ball_pos[n, 1] - agent_pos[n, a, 1])
            out[m, i, 2] = _turn(agent_yaw[n, a], wanted)
            if abs(_wrapped(wanted - agent_yaw[n, a])) < F(45):
                out[m, i, 0] = 1


@inner
def _strike(x, z, vx, vz, yaw, bx, bz, bvx, bvz, out):
    """Get to the own side of the ball, then through it towards the goal at +x."""
    lead = min(math.sqrt((bx - x) ** 2 + (bz - z) ** 2) / F(25), F(0.5))
    bx, bz = bx + bvx * lead, min(max(bz + bvz * lead, F(-6.8)), F(6.8))
    ux, uz = GOAL_X + F(0.5) - bx, -bz
    length = math.sqrt(ux * ux + uz * uz) + F(1e-6)
    ux, uz = ux / length, uz / length
    along, side = (bx - x) * ux + (bz - z) * uz, (bz - z) * ux - (bx - x) * uz
    if along > F(0.5) and abs(side) < F(0.4) + F(0.35) * along:
        cx, cz = bx - AIM_BEHIND_M * ux - x, bz - AIM_BEHIND_M * uz - z
        wanted = _heading(cx, cz)
        error = _wrapped(wanted - yaw)
        out[2] = _turn(yaw, wanted)
        if abs(error) < F(50):
            out[0] = 1
            if abs(error) > F(20) and along < F(2.5):
                out[1] = 1 if error > 0 else 2
        else:
            _drive(yaw, cx - vx * COAST_S, cz - vz * COAST_S, out)
        return
    qx, qz = bx - LINE_UP_M * ux, bz - LINE_UP_M * uz
    if along < F(0.5) and abs(side) < IN_THE_WAY_M:
        # The ball is in the way: pass it on the side where the agent already is.
        away = -DETOUR_M if side > 0 else DETOUR_M
        qx, qz = qx - uz * away, qz + ux * away
    qx, qz = max(qx, F(-14.5)) - x, min(max(qz, F(-6.9)), F(6.9)) - z
    # Moving backward is as fast as forward: face the half in which the goal lies.
    wanted = _heading(ux, uz)
    if qx * qx + qz * qz > F(16):
        wanted = _heading(qx, qz) if qx * ux + qz * uz > 0 else _heading(-qx, -qz)
    out[2] = _turn(yaw, wanted)
    _drive(yaw, qx - vx * COAST_S, qz - vz * COAST_S, out)


@inner
def _keep(x, z, vx, vz, yaw, bx, bz, bvx, bvz, out):
    """Stand between ball and goal, facing sideways; meet shots where they will cross the own line."""
    if bvx < F(-4) and bx > KEEPER_X:
        # Drag 1/s slows the ball: it covers v (1 - exp(-t)), so this share of v when it gets here.
        share = min((bx - KEEPER_X) / -bvx, F(0.95))
        tz = bz + bvz * share
    else:
        tz = bz * (KEEPER_X - KEEPER_PIVOT_X) / (max(bx, KEEPER_X + F(1)) - KEEPER_PIVOT_X)
    tz = min(max(tz, -KEEPER_MAX_Z), KEEPER_MAX_Z)
    out[2] = _turn(yaw, F(0) if abs(_wrapped(yaw)) <= F(90) else F(180))
    _drive(yaw, KEEPER_X - x - vx * COAST_S, tz - z - vz * COAST_S, out)


@kernel
def _goalie_striker(agent_pos, agent_vel, agent_yaw, ball_pos, ball_vel, agents, keeper, team, matches, out):
    side = F(1) if team == 0 else F(-1)
    for m in range(len(matches)):
        n = matches[m]
        bx, bz = side * ball_pos[n, 0], side * ball_pos[n, 1]
        bvx, bvz = side * ball_vel[n, 0], side * ball_vel[n, 1]
        for i, a in enumerate(agents):
            x, z = side * agent_pos[n, a, 0], side * agent_pos[n, a, 1]
            vx, vz = side * agent_vel[n, a, 0], side * agent_vel[n, a, 1]
            yaw = agent_yaw[n, a] if team == 0 else agent_yaw[n, a] + F(180)
            if a == keeper:
                _keep(x, z, vx, vz, yaw, bx, bz, bvx, bvz, out[m, i])
            else:
                _strike(x, z, vx, vz, yaw, bx, bz, bvx, bvz, out[m, i])
