"""The soccer games in the arena."""

from __future__ import annotations

from typing import Any

import numpy as np

from palus.envs.arena_game import ArenaGame, BotAct
from palus.envs.recording import MatchLayout, RecordedEvent, Recording
from palus.envs.soccer import play_stats
from palus.envs.soccer.geometry import STEPS_PER_DECISION
from palus.types import F32, I64


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

    def still(self, env: Any, n: int) -> F32:
        """(x, z, yaw) of every agent, (x, z) of the ball."""
        agents = np.concatenate([env.agent_pos[n], env.agent_yaw[n][:, None]], axis=1)
        return np.concatenate([agents.ravel(), env.ball_pos[n]]).astype(np.float32)

    def frames(self, env: Any, n: int) -> F32:
        """The same after every fixed step."""
        found: F32 = env.trace[n, : env.trace_length[n]].copy()
        return found

    def events(self, env: Any, n: int, before: int) -> list[RecordedEvent]:
        """Kicks."""
        kickers = env.kick[n, : env.trace_length[n]].tolist()
        return [
            RecordedEvent(tick, "kick", env.spec.agents[agent].team, agent)
            for tick, agent in enumerate(kickers, before + 1)
            if agent >= 0
        ]

    def play_statistics(self, recording: Recording) -> dict[str, Any]:
        """Possession, shots, ways, goals, and where the ball was."""
        return play_stats.play_statistics(recording)


_BODY = ("position_unit_m", "position_unit_m", "yaw_unit_degrees")


def _layout(pitch: str, agents: int) -> MatchLayout:
    return MatchLayout(
        pitch=pitch,
        channels=agents * _BODY + _BODY[:2],
        units={"position_unit_m": 0.001, "yaw_unit_degrees": 0.1},
        branches=agents * ((3, 3, 3),),
        frame_hz=round(1 / play_stats.TICK_S),
        ticks_per_decision=STEPS_PER_DECISION,
        events=("goal", "kick"),
    )


GAME = SoccerMatches(
    env="SoccerTwos",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"),
    bots=("ball-chaser", "goalie-striker"),
    yardsticks=("random", "ball-chaser"),
    preset="soccertwos-fast",
    tick_s=play_stats.TICK_S,
    layout=_layout("soccer-twos/1", 4),
    baselines=("unity/MLAgents-SoccerTwos",),
)

_SHORT_TICKS = 1000
"""Unity's 5000 tell good players apart no more: their strikers score in every match. 20 s without a goal are a draw."""

STRIKERS = SoccerMatches(
    env="StrikersVsGoalie",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-StrikersVsGoalie"),
    roles=("Striker", "Goalie"),
    options={"max_steps": _SHORT_TICKS},
    bots=("ball-chaser", "goalie-striker"),
    preset="strikers-vs-goalie-fast",
    tick_s=play_stats.TICK_S,
    max_ticks=_SHORT_TICKS,
    layout=_layout("strikers-vs-goalie/1", 3),
)
