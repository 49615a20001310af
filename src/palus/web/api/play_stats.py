"""What replays say about a player: possession, shots, distance and where the ball was, averaged over recent matches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import Connection, select

from palus.store.derived import play_stats
from palus.web.shapes import Shape

MATCHES = 50


class PlayStats(Shape):
    """From the replays of `matches` games; the player's side is turned to blue, which attacks to the right."""

    matches: int
    possession: float = Field(description="share of the time, both teams' possession being 1")
    shots_per_match: float
    distance_m_per_match: float = Field(description="of the whole team")
    ball_heat: list[list[float]] = Field(description="rows from the far touchline to the near one; all cells sum to 1")


def read_play_stats(connection: Connection, sides: Sequence[tuple[str, bool]]) -> PlayStats | None:
    """Means over matches, the newest `MATCHES` that have statistics. sides: (match id, whether the player was blue).

    None when no match has any.
    """
    was_blue = dict(sides)
    rows = connection.execute(
        select(play_stats.c.match_id, play_stats.c.stats).where(play_stats.c.match_id.in_(list(was_blue)))
    ).all()
    return mean_stats([(json.loads(row.stats), was_blue[row.match_id]) for row in rows[:MATCHES]])


def mean_stats(stats: Sequence[tuple[dict[str, Any], bool]]) -> PlayStats | None:
    """Means of the statistics of matches, each with whether the player was blue."""
    if not stats:
        return None
    heat = np.mean([_heat(match, is_blue) for match, is_blue in stats], axis=0)

    def mean(name: str) -> float:
        return float(np.mean([match[name][0 if is_blue else 1] for match, is_blue in stats]))

    return PlayStats(
        matches=len(stats),
        possession=mean("possession"),
        shots_per_match=mean("shots"),
        distance_m_per_match=mean("distance_m"),
        ball_heat=heat.round(5).tolist(),
    )


def _heat(match: dict[str, Any], is_blue: bool) -> NDArray[np.float64]:
    """Shares of the match's time. A half turn brings purple's view to blue's."""
    heat = np.asarray(match["ball_heat"], np.float64)
    heat = heat / max(float(heat.sum()), 1e-12)
    return heat if is_blue else heat[::-1, ::-1]
