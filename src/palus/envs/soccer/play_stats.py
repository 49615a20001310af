"""What a replay says about how both sides played. Pure: a recording in, plain numbers out.

All statistics are lists of two, blue first. Definitions are the field's: possession belongs to the team that touched
the ball last; a shot is a touch after which the ball would roll into the opponents' goal if nobody stopped it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palus.envs.recording import RecordedEvent, Recording
from palus.envs.soccer.pitch import GROUNDS
from palus.types import F32

TICK_S = 0.02
"""Of a fixed step, which is a frame of a recording."""

HEAT_ROWS, HEAT_COLUMNS = 12, 24
HEAT_REACH_X_M, HEAT_REACH_Z_M = 16.5, 8.25
"""The heat map covers |x|, |z| up to here; what lies beyond counts to the outermost cells."""

GOAL_X_M, GOAL_HALF_WIDTH_M = 15.5, 4.25
ROLLING_S = 1.0
"""A rolling ball loses 2 % of its speed per fixed step of 0.02 s, so it travels its speed times about one second."""

SHOT_PAUSE_S = 0.5
"""Touches of a team within this time are one shot: pushing the ball over the line is not five of them."""


def play_statistics(recording: Recording) -> dict[str, Any]:
    """possession: shares of the time, sum 1. shots: counts. distance_m: all agents of a side together. goal_s: when
    the side scored, None when it did not. ball_heat: [12][24] shares of the time, rows from the far touchline
    (+z) to the near one, columns from blue's goal to purple's; all cells sum to 1. Rounded, so that equal replays
    give equal text.
    """
    kicks = [event for event in recording.events if event.kind == "kick"]
    goals = [[event for event in recording.events if event.kind == "goal" and event.team == team] for team in (0, 1)]
    ticks = len(recording.frames) - 1
    return {
        "possession": _possession(kicks, ticks),
        "shots": _shots(kicks, recording.frames),
        "distance_m": _distance(recording.frames, [place.team for place in GROUNDS[recording.env_id].places]),
        "goal_s": [round(own[0].tick * TICK_S, 2) if own else None for own in goals],
        "ball_heat": _heat(recording.frames[:, -2:]),
    }


def _possession(kicks: list[RecordedEvent], ticks: int) -> list[float]:
    """Before the first touch nobody has the ball; a match without touches is shared equally."""
    held = [0, 0]
    for number, touch in enumerate(kicks):
        until = kicks[number + 1].tick if number + 1 < len(kicks) else ticks
        held[touch.team] += until - touch.tick
    total = sum(held)
    blue = round(held[0] / total, 4) if total else 0.5
    return [blue, round(1.0 - blue, 4)]


def _shots(kicks: list[RecordedEvent], frames: F32) -> list[int]:
    shots = [0, 0]
    last_s = [-np.inf, -np.inf]
    for kick in kicks:
        if not _is_on_goal(kick, frames):
            continue
        at_s = kick.tick * TICK_S
        if at_s - last_s[kick.team] > SHOT_PAUSE_S:
            shots[kick.team] += 1
        last_s[kick.team] = at_s
    return shots


def _is_on_goal(kick: RecordedEvent, frames: F32) -> bool:
    """Whether the straight way of the ball after this touch ends in the goal that the team attacks."""
    after = min(kick.tick + 1, len(frames) - 1)
    position = frames[kick.tick, -2:].astype(np.float64)
    velocity = (frames[after, -2:].astype(np.float64) - position) / TICK_S
    forward = 1.0 if kick.team == 0 else -1.0
    missing_x = GOAL_X_M - forward * position[0]
    speed_x = forward * velocity[0]
    if speed_x * ROLLING_S < max(missing_x, 0.0) or speed_x <= 0.0:
        return False
    z_at_line = position[1] + velocity[1] * missing_x / speed_x
    return bool(abs(z_at_line) <= GOAL_HALF_WIDTH_M)


def _distance(frames: F32, teams: list[int]) -> list[float]:
    steps = np.diff(frames[:, :-2].reshape(len(frames), len(teams), 3)[:, :, :2].astype(np.float64), axis=0)
    per_agent = np.linalg.norm(steps, axis=2).sum(axis=0)
    return [round(float(per_agent[np.array(teams) == team].sum()), 2) for team in (0, 1)]


def _heat(ball: F32) -> list[list[float]]:
    column = (ball[:, 0].astype(np.float64) / HEAT_REACH_X_M + 1.0) / 2.0 * HEAT_COLUMNS
    row = (1.0 - ball[:, 1].astype(np.float64) / HEAT_REACH_Z_M) / 2.0 * HEAT_ROWS
    cell = np.clip(row.astype(np.int64), 0, HEAT_ROWS - 1) * HEAT_COLUMNS
    cell += np.clip(column.astype(np.int64), 0, HEAT_COLUMNS - 1)
    counts = np.bincount(cell, minlength=HEAT_ROWS * HEAT_COLUMNS).reshape(HEAT_ROWS, HEAT_COLUMNS)
    heat: list[list[float]] = (counts / len(ball)).round(5).tolist()
    return heat
