"""The soccer games in the arena."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palus.envs.arena_game import ArenaGame, BotAct, PlayStatistic
from palus.envs.recording import MatchLayout, RecordedEvent, Recording
from palus.envs.soccer import play_stats
from palus.envs.soccer.geometry import BLOCKER, RECTANGLE_TAG, RECTANGLES, STEPS_PER_DECISION, WALL
from palus.envs.soccer.highlights import goal_beauty
from palus.envs.soccer.pitch import SOCCER_TWOS, STRIKERS_VS_GOALIE, Ground, Starter
from palus.types import F32, I64


class SoccerMatches(ArenaGame):
    """The first goal wins, or the time; a match lasts as many fixed steps as it takes."""

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

    def beauty(self, recording: Recording) -> float:
        """Of its goal."""
        return goal_beauty(recording)

    def play_statistics(self, recording: Recording) -> dict[str, Any]:
        """Possession, shots, ways, goals, and where the ball was."""
        return play_stats.play_statistics(recording)


_STATISTICS = (
    PlayStatistic("possession", "Possession", "of both teams' time on the ball", "%"),
    PlayStatistic("shots", "Shots", "per match", digits=1),
    PlayStatistic("distance_m", "Distance", "per match, the team", "m"),
)
_BODY = ("position_unit_m", "position_unit_m", "yaw_unit_degrees")


def _layout(pitch: str, ground: Ground) -> MatchLayout:
    agents = len(ground.places)
    return MatchLayout(
        pitch=pitch,
        channels=agents * _BODY + _BODY[:2],
        units={"position_unit_m": 0.001, "yaw_unit_degrees": 0.1},
        branches=agents * ((3, 3, 3),),
        frame_hz=round(1 / play_stats.TICK_S),
        ticks_per_decision=STEPS_PER_DECISION,
        events=("goal", "kick"),
        scenery={
            "agents": [_agent(place) for place in ground.places],
            "boxes": [_box(row, tag) for row, tag in zip(RECTANGLES, RECTANGLE_TAG, strict=True)],
            "barriers": [_box(row, WALL) for row in BLOCKER] if ground.blocked else [],
        },
    )


def _agent(place: Starter) -> dict[str, Any]:
    """name: without the team's colour, which readers may change. tags, sensors: as of its `Role`."""
    role = place.role
    return {
        "name": place.name.removeprefix(f"{('blue', 'purple')[place.team]} "),
        "team": place.team,
        "tags": role.tags,
        "sensors": role.sensors,
        "kicks_always": role.kicks_always,
    }


def _box(row: F32, tag: int) -> dict[str, float | None]:
    """One of `RECTANGLES`, yaw in degrees. goal: of which team it is the net."""
    x, z, half_x, half_z, cos, sin = (float(str(number)) for number in row)
    yaw = round(math.degrees(math.atan2(sin, cos)))
    return {"goal": None if tag == WALL else tag - 1, "x": x, "z": z, "half_x": half_x, "half_z": half_z, "yaw": yaw}


GAME = SoccerMatches(
    env="SoccerTwos",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"),
    bots=("ball-chaser", "goalie-striker"),
    yardsticks=("random", "ball-chaser"),
    preset="soccertwos-fast",
    tick_s=play_stats.TICK_S,
    layout=_layout("soccer-twos/1", SOCCER_TWOS),
    decided_by="goal",
    score_word="Goals",
    statistics=_STATISTICS,
    baselines=("unity/MLAgents-SoccerTwos",),
)

_SHORT_TICKS = 1000
"""Unity's 5000 tell good players apart no more: their strikers score in every match. Who keeps 20 s has won."""

STRIKERS = SoccerMatches(
    env="StrikersVsGoalie",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-StrikersVsGoalie"),
    roles=("Striker", "Goalie"),
    sides=("strikers", "goalie"),
    options={"max_steps": _SHORT_TICKS},
    bots=("ball-chaser", "goalie-striker"),
    preset="strikers-vs-goalie-fast",
    yardsticks=("random", "ball-chaser"),
    tick_s=play_stats.TICK_S,
    max_ticks=_SHORT_TICKS,
    layout=_layout("strikers-vs-goalie/1", STRIKERS_VS_GOALIE),
    decided_by="goal",
    holder=STRIKERS_VS_GOALIE.holder,
    statistics=_STATISTICS,
)
