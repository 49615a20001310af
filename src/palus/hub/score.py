"""How strong a model is: its line of a leaderboard, and what `palus enjoy` measured and left in the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palus.errors import HubError

EVALUATION, VIDEO = "evaluation.json", "replay.mp4"
SCHEMA = 1


@dataclass(frozen=True)
class Rating:
    """One line of a leaderboard.

    rating: 1200 is its mean, 400 points = 10:1 odds; half_width: of the 95 % interval. opponents: who else is on it.
    """

    rating: float
    half_width: float
    rank_range: tuple[int, int]
    players: int
    games: int
    opponents: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentScore:
    """What evaluation.json tells. mean, std: of the true objective over `episodes`; std of the population.

    mean_reward: mean sum of rewards, shaping included. steps: engine frames that the agent was trained for.
    deterministic: it took its likeliest action. best: it is the best policy of its run, not the newest.
    """

    env_id: str
    episodes: int
    mean: float
    std: float
    mean_reward: float
    steps: int
    deterministic: bool = False
    best: bool = False
    schema: int = SCHEMA

    @property
    def text(self) -> str:
        """As model cards state it: 12.34 +/- 1.20."""
        return f"{self.mean:.2f} +/- {self.std:.2f}"


def read_score(folder: Path) -> AgentScore | None:
    """The score in a run's folder; None when nobody measured it. Raises HubError when the file is damaged."""
    path = folder / EVALUATION
    if not path.is_file():
        return None
    try:
        score = AgentScore(**json.loads(path.read_text("utf-8")))
        valid = score.schema == SCHEMA and math.isfinite(score.mean) and math.isfinite(score.std)
    except (OSError, ValueError, TypeError) as error:
        raise HubError(f"{path}: not an evaluation ({error}); measure again with `palus enjoy`") from error
    if not valid:
        raise HubError(f"{path}: an evaluation of schema {score.schema} with mean {score.mean}; measure again")
    return score


def find_rating(board: Mapping[str, Any], sha256: str) -> Rating | None:
    """The line of a `palus rank --json` leaderboard about the file of this hash; None when it did not take part.

    Raises HubError when it is not such a leaderboard.
    """
    try:
        standings = board["standings"]
        mine = next((s for s in standings if s["sha256"] == sha256), None)
        if mine is None:
            return None
        low, high = (int(rank) for rank in mine["rank_range"])
        others = tuple(str(line["name"]) for line in standings if line is not mine)
        figures = float(mine["rating"]), float(mine["half_width"]), (low, high), len(standings), int(mine["games"])
        return Rating(*figures, others)
    except (KeyError, TypeError, ValueError) as error:
        raise HubError(
            f"the leaderboard lacks {error}; write one with: palus rank FOLDER --json > board.json"
        ) from error
