"""Learners: one file per algorithm, maths as pure functions. Needs torch."""

from __future__ import annotations

from collections.abc import Callable

from palus.learn.appo import APPO
from palus.learn.learner import Learner
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC

ALGORITHMS: dict[str, Callable[..., Learner]] = {"ppo": PPO, "poca": POCA, "appo": APPO, "sac": SAC}
"""By `trainer_type`."""
