"""SoccerTwos in the arena."""

from __future__ import annotations

from typing import Any

from palus.envs.arena_game import ArenaGame, BotAct
from palus.types import I64


class SoccerMatches(ArenaGame):
    """The first goal wins; a match lasts as many fixed steps as it takes."""

    def bot(self, name: str) -> BotAct:
        """A scripted team."""
        from palus.envs.soccer import bots

        return {"ball-chaser": bots.act_ball_chaser, "goalie-striker": bots.act_goalie_striker}[name]

    def ticks(self, env: Any) -> I64:
        """The goal cuts the last decision short."""
        steps: I64 = env.trace_length.astype("int64")
        return steps


GAME = SoccerMatches(
    env="SoccerTwos",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"),
    bots=("ball-chaser", "goalie-striker"),
)
