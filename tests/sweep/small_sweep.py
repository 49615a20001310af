"""A run of seconds that a sweep tries with other numbers, and one that is over at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

from palus.config import RunFile
from palus.config.source import Source
from palus.launch.apart import Ending
from palus.progress import PROGRESS, ProgressWriter
from palus.sweep.objective import Objective
from palus.sweep.plan import Plan
from palus.sweep.space import read_space
from palus.sweep.study import Worker

KEY = "behaviors.MenuToy.hyperparameters"
RATE, EPOCHS = f"{KEY}.learning_rate", f"{KEY}.num_epoch"
RUN = {
    "behaviors": {
        "MenuToy": {
            "trainer_type": "ppo",
            "hyperparameters": {
                "batch_size": 64, "buffer_size": 256, "learning_rate": 1e-6, "learning_rate_schedule": "constant",
            },
            "network_settings": {"hidden_units": 16, "num_layers": 1},
            "max_steps": 3000, "time_horizon": 8,
        }
    },
    "palus": {"env": "MenuToy", "num_matches": 16, "matmul": "highest", "threads": 1},
}  # fmt: skip
SPACE = f"{RATE}: {{choice: [1e-7, 1e-6, 2e-6, 1e-2]}}\n"  # of which one alone learns


def plan(space: str = f"{RATE}: {{log: [1e-6, 1]}}\n{EPOCHS}: {{int: [1, 4]}}\n", **others: Any) -> Plan:
    return replace(Plan(RUN, read_space(Source("space.yaml", space)), (Objective("reward"),)), **others)


Reward = Callable[[RunFile, float], float | None]
Make = Callable[..., Worker]


class Quick:
    """A run that does a quarter of its steps whenever somebody waits for it."""

    ending = Ending()

    def __init__(self, run: RunFile, reward: Reward) -> None:
        settings = run.checkpoint_settings
        self.run, self.reward, self.step = run, reward, 0
        self.writer = ProgressWriter(Path(settings.results_dir) / settings.run_id / PROGRESS)
        self.writer.append({"kind": "run", "max_steps": {"MenuToy": 100}})

    def wait(self, timeout_s: float) -> bool:
        for step in range(self.step + 5, self.step + 26, 5):
            values = {"Environment/Cumulative Reward": self.reward(self.run, step / 100)}
            names = {"kind": "summary", "policy": 0, "behavior": "MenuToy"}
            self.writer.append({**names, "step": step, "seconds": step, "values": values})
        self.step = step
        if step == 100:
            self.writer.append({"kind": "end", "step": 100, "seconds": 100, "finished": True})
        return step == 100


def rate(run: RunFile) -> float:
    return float(run.behaviors["MenuToy"].hyperparameters.learning_rate)


def number_of(run: RunFile) -> int:
    """Of the trial that a run belongs to."""
    return int(Path(run.checkpoint_settings.results_dir).name.removeprefix("trial-"))
