"""What a recorded match hands to those who draw or store it. No file formats: `referee.replay` writes files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from palus.types import F32

FIXED_STEP_S = 0.02
"""Seconds between two frames of a recording."""

STEPS_PER_DECISION = 5
"""Fixed steps that one decision lasts; the last decision of a match may be cut short by the goal."""


@dataclass(frozen=True)
class RecordedEvent:
    """Something that happened during a fixed step.

    tick: fixed steps since kick-off, 1 for the first; `frames[tick]` shows the moment after it.
    team: 0 blue, 1 purple; for a goal the team that scored.
    agent: index of the agent (0 blue A, 1 purple A, 2 blue B, 3 purple B) that kicked; for a goal -1.
    """

    tick: int
    kind: Literal["goal", "kick"]
    team: int
    agent: int


@dataclass(frozen=True)
class Recording:
    """One SoccerTwos match, enough to draw it again without playing it.

    names: player of the blue and of the purple side.
    frames: [ticks + 1, 14], metres and degrees at 50 Hz, the initial state first: (x, z, yaw) of the four agents in
        the environment's order (blue A, purple A, blue B, purple B), then (x, z) of the ball.
    actions: [decisions, 4, 3], branch indices.
    probabilities: [decisions, 4, 9] what the actions were drawn from; None when a side is a scripted bot.
    score: goals of blue and purple.
    result: "blue", "purple" or "draw".
    """

    env_id: str
    seed: int
    names: tuple[str, str]
    frames: F32
    actions: NDArray[np.int8]
    probabilities: F32 | None
    events: tuple[RecordedEvent, ...]
    score: tuple[int, int]
    result: Literal["blue", "purple", "draw"]
