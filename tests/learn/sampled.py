"""The recall game one instance at a time, for real workers, and the settings of APPO for small games."""

from __future__ import annotations

import numpy as np

from palus.config import load_run
from palus.config.trainer import AppoBehavior
from palus.envs.game import GameStep, points_of
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 4
RECALL = GameSpec.alike("recall", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)))
"""One of two cues is shown at first; LENGTH - 1 decisions later the agent is paid for naming it. Chance: 0.5."""
SETTINGS = [
    "hyperparameters.learning_rate=0.01", "hyperparameters.num_epoch=2", "hyperparameters.buffer_size=1024",
    "hyperparameters.batch_size=512", "time_horizon=8", "network_settings.hidden_units=16",
    "network_settings.num_layers=1", "network_settings.memory.memory_size=16",
]  # fmt: skip


def appo_behavior(*more: str) -> AppoBehavior:
    overrides = ["behaviors.SoccerTwos.trainer_type=appo", "behaviors.SoccerTwos.network_settings=null"]
    overrides += [f"behaviors.SoccerTwos.{s}" for s in (*SETTINGS, *more)]
    behavior = load_run("debug", overrides).behaviors["SoccerTwos"]
    assert isinstance(behavior, AppoBehavior)
    return behavior


class RecallGame:
    """One instance of the recall game; several agents, each a side, all see one cue.

    pay: what naming it brings, to be tuned.
    """

    def __init__(self, length: int = LENGTH, agents: int = 1, pay: float = 1.0) -> None:
        (behavior,) = RECALL.behaviors
        self.spec = GameSpec.alike(
            RECALL.env_id, behavior.observations, behavior.actions, agents, shaping=(("pay", pay),)
        )
        self.shaping = np.full((agents, 1), pay)
        self.active, self.length = np.ones(agents, np.bool_), length

    def reset(self, seed: int) -> None:
        self.age, self.cue = 0, int(np.random.default_rng(seed).integers(2))

    def observe(self, out: dict[str, np.ndarray]) -> None:
        out["obs"][:] = 0.0
        out["obs"][:, self.cue] = self.age == 0
        out["obs"][:, 2] = self.age == self.length - 1

    observe_final = observe

    def step(self, actions: np.ndarray) -> GameStep:
        over = self.age == self.length - 1
        paid = over & (actions[:, 0] == self.cue)
        self.age += 1
        ended = np.full_like(self.active, over)
        stats = {k: {"true_objective": float(p), "cue": float(self.cue)} for k, p in enumerate(paid) if over}
        points = points_of(paid.tolist()) if over else ()
        reward = (paid * self.shaping[:, 0]).astype(np.float32)
        return GameStep(reward, ended, np.zeros_like(ended), over, stats, points)

    def close(self) -> None:
        pass
