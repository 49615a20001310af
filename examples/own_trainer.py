"""A trainer of your own: PPO whose learning rate falls along a cosine.

    palus train soccertwos-ppo palus.trainers.SoccerTwos=own_trainer:Cosine

with `PYTHONPATH=examples`. A class made from `palus.learn.PPO`, `POCA`, `SAC` or `APPO` has all keys of that trainer,
and may replace any of its methods; `self.behavior` holds the settings, `self.network` what learns.
"""

from __future__ import annotations

import math

from palus.learn import PPO


class Cosine(PPO):
    """PPO, but for `learning_rate_schedule: linear`, which here means half a cosine from the rate to `minimum`."""

    def scheduled(self, key: str, step: int, minimum: float = 0.0) -> float:
        """As `Learner.scheduled`."""
        h = self.behavior.hyperparameters
        if key != "learning_rate" or h.learning_rate_schedule == "constant":
            return super().scheduled(key, step, minimum)
        done = min(step / self.behavior.max_steps, 1.0)
        return minimum + (h.learning_rate - minimum) * (1.0 + math.cos(math.pi * done)) / 2.0
