"""Reward signals beside the game's own reward: one file each, maths as pure functions."""

from __future__ import annotations

from collections.abc import Callable

import torch

from palus.config.trainer import Behavior
from palus.learn.signals.curiosity import CuriositySignal
from palus.learn.signals.gail import GailSignal
from palus.learn.signals.rnd import RndSignal
from palus.learn.signals.signal import Experience as Experience
from palus.learn.signals.signal import LearnedReward as LearnedReward
from palus.learn.signals.signal import decisions_of as decisions_of
from palus.trust import NOBODY, Trust
from palus.types import BehaviorSpec

EXTRINSIC = "extrinsic"
SIGNALS: dict[str, Callable[..., LearnedReward]] = {
    "curiosity": CuriositySignal,
    "gail": GailSignal,
    "rnd": RndSignal,
}
"""By their names in a run file."""


def make_signals(
    behavior: Behavior, spec: BehaviorSpec, seed: int, trust: Trust = NOBODY
) -> dict[str, LearnedReward | None]:
    """Every reward that a behavior learns from, by name, in the order of their value streams; None: the game's own.

    Raises ConfigError, DemonstrationError, TrustError.
    """
    made: dict[str, LearnedReward | None] = {}
    for number, name in enumerate(type(behavior.reward_signals).model_fields):
        settings = getattr(behavior.reward_signals, name)
        if settings is None:
            continue
        # Draws of its own: what a signal draws does not move what the others and the policy do.
        generator = torch.Generator().manual_seed(seed * len(SIGNALS) + number)
        made[name] = None if name == EXTRINSIC else SIGNALS[name](settings, spec, generator, trust)
    return made or {EXTRINSIC: None}
