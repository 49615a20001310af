"""Which goals are worth watching."""

from __future__ import annotations

import itertools

import numpy as np

from palus.envs.recording import Recording
from palus.envs.soccer.pitch import GROUNDS
from palus.envs.soccer.play_stats import TICK_S

BUILD_UP_S = 4.0
"""Seconds before a goal in which kicks count as its build-up."""


def goal_beauty(recording: Recording) -> float:
    """How much the goal of a match deserves to be seen; 0 without one, or when the last kick was the other team's.

    A point for the goal, one for each change of kicker inside the team just before it (a pass), and the ball's speed at
    the line over 20 m/s.
    """
    goals = [e for e in recording.events if e.kind == "goal"]
    if not goals:
        return 0.0
    goal, team_of = goals[-1], [place.team for place in GROUNDS[recording.env_id].places]
    first_tick = goal.tick - BUILD_UP_S / TICK_S
    kickers = [e.agent for e in recording.events if e.kind == "kick" and e.tick >= first_tick]
    if not kickers or team_of[kickers[-1]] != goal.team:
        return 0.0
    own = [agent for agent in kickers if team_of[agent] == goal.team]
    passes = sum(a != b for a, b in itertools.pairwise(own))
    ball = recording.frames[-6:, -2:]
    speed = float(np.linalg.norm(np.diff(ball, axis=0), axis=1).max()) / TICK_S if len(ball) > 1 else 0.0
    return 1.0 + passes + speed / 20.0
