"""Picking the goals that are worth watching out of recorded matches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from palus.arena.models.players import Player
from palus.arena.referee.games import game_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.envs.recording import Recording

BUILD_UP_S = 4.0
"""Seconds before a goal in which kicks count as its build-up."""
TEAM_OF_AGENT = (0, 1, 0, 1)


def goal_beauty(recording: Recording, player: str) -> float:
    """How much a goal of `player` deserves to be seen; 0 when it scored none, or the last kick was the opponent's.

    A point for the goal, one for each change of kicker inside the team just before it (a pass), and the ball's speed at
    the line over 20 m/s.
    """
    goals = [e for e in recording.events if e.kind == "goal"]
    if not goals or recording.names[goals[-1].team] != player:
        return 0.0
    goal, tick_s = goals[-1], game_of(recording.env_id).tick_s
    first_tick = goal.tick - BUILD_UP_S / tick_s
    kickers = [e.agent for e in recording.events if e.kind == "kick" and e.tick >= first_tick]
    if not kickers or TEAM_OF_AGENT[kickers[-1]] != goal.team:
        return 0.0
    own = [agent for agent in kickers if TEAM_OF_AGENT[agent] == goal.team]
    passes = sum(a != b for a, b in itertools.pairwise(own))
    ball = recording.frames[-6:, 12:14]
    speed = float(np.linalg.norm(np.diff(ball, axis=0), axis=1).max()) / tick_s if len(ball) > 1 else 0.0
    return 1.0 + passes + speed / 20.0


def best_goals(recordings: Iterable[Recording], player: str, count: int) -> list[Recording]:
    """The `count` most beautiful goals of a player, best first; fewer when it scored fewer."""
    rated = [(goal_beauty(r, player), i, r) for i, r in enumerate(recordings)]
    return [r for beauty, _, r in sorted(rated, key=lambda x: (-x[0], x[1])) if beauty > 0][:count]


def record_goals(
    player: Player, opponents: Sequence[Player], pairs: int, seed: int, per_opponent: int
) -> list[Recording]:
    """Play `pairs` mirrored pairs against each opponent and keep the best goals against each."""
    kept: list[Recording] = []
    for opponent in opponents:
        recorder = Recorder()
        play_pairs(player, opponent, pairs, seed, recorder=recorder)
        kept += best_goals(recorder.recordings.values(), player.name, per_opponent)
    return kept
