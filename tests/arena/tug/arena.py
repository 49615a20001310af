"""What the game brings to be ranked, recorded, played again and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palus.envs.arena_game import ArenaGame, BotAct, PlayStatistic
from palus.envs.recording import MatchLayout, RecordedEvent, Recording
from palus.types import F32, I64
from tug.env import PULLS, TICKS


class TugMatches(ArenaGame):
    """Scores are the centimetres by which the rope was pulled."""

    def bot(self, name: str) -> BotAct:
        return lambda env, team, matches: np.tile(np.int32([[PULLS - 1, 0], [0, 0]]), (len(matches), 1, 1))

    def ticks(self, env: Any) -> I64:
        return np.full(env.num_matches, TICKS)

    def score(self, points: Sequence[float], stats: Mapping[int, Mapping[str, float]]) -> tuple[int, int]:
        cm = round(stats[0]["cm"])
        return max(cm, 0), max(-cm, 0)

    def still(self, env: Any, n: int) -> F32:
        return np.array([env.rope_cm[n] / 100], np.float32)

    def frames(self, env: Any, n: int) -> F32:
        return (env.trace_cm[n] / 100).astype(np.float32)[:, None]

    def events(self, env: Any, n: int, before: int) -> list[RecordedEvent]:
        return [RecordedEvent(before + 1, "shout", agent % 2, agent) for agent in env.slips[n]]

    def play_statistics(self, recording: Recording) -> dict[str, Any]:
        return {"shouts": [sum((e.kind, e.team) == ("shout", team) for e in recording.events) for team in (0, 1)]}


GAME = TugMatches(
    env="Tug",
    tags=("tug",),
    roles=("Puller", "Shouter"),
    bots=("strong",),
    score_word="Centimetres",
    statistics=(PlayStatistic("shouts", "Shouts", "per match", digits=1),),
    tick_s=0.05,
    max_ticks=6 * TICKS,
    max_score=6 * TICKS * PULLS,
    decided_by="whistle",
    packages=("pydantic",),
    side_by_side=4,
    layout=MatchLayout(
        pitch="tug/1",
        channels=("rope_unit_m",),
        units={"rope_unit_m": 0.01},
        branches=((PULLS,), (PULLS,), (2, 3), (2, 3)),
        frame_hz=20,
        ticks_per_decision=TICKS,
        events=("shout", "whistle"),
    ),
)
