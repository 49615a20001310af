"""A league of seconds, and what has to be true of it whatever was killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from palus.cluster.plan import LeaguePlan, make_plan
from palus.league.records import LeagueRecord, RunRecord, news
from palus.run.folder import RunFolder
from palus.store.depot import Depot
from palus.trust import NOBODY

FILE = {
    "behaviors": {
        "DuelToy": {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 256, "buffer_size": 512},
            "network_settings": {"hidden_units": 16, "num_layers": 1},
            "max_steps": 6000, "checkpoint_interval": 1000, "summary_freq": 2000, "time_horizon": 64,
            "self_play": {"save_steps": 500, "team_change": 2000, "swap_steps": 200, "window": 3},
        }
    },
    "palus": {
        "env": "DuelToy", "num_matches": 8, "matmul": "highest", "threads": 1, "baseline_interval": 0,
        "league": {"runs": {"ada": {}, "bob": {"behaviors.DuelToy.hyperparameters.learning_rate": 1e-3}}},
    },
}  # fmt: skip


def write_file(folder: Path, **more: Any) -> Path:
    """The run file of the league. more: of its behavior."""
    path = folder / "cup.yaml"
    behavior = {**FILE["behaviors"]["DuelToy"], **more}
    path.write_text(yaml.safe_dump({**FILE, "behaviors": {"DuelToy": behavior}}))
    return path


def plan_of(file: Path, overrides: Sequence[str] = (), **more: Any) -> LeaguePlan:
    """The same league as `palus league FILE --results-dir` beside it."""
    given = [f"checkpoint_settings.results_dir={json.dumps(str(file.parent / 'results'))}",
             "checkpoint_settings.run_id=cup", *overrides]  # fmt: skip
    options: dict[str, Any] = {"number": None, "storage": None, "only": (), "cores": 2, "trust": NOBODY}
    return make_plan(str(file), given, **(options | more))


def read(storage: str) -> dict[str, RunRecord]:
    return LeagueRecord(Depot(storage)).read().runs


def wait(condition: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    """Raises AssertionError when it does not come true."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.1)


def assert_whole(storage: str, folder: Path) -> None:
    """Every match counts once, every snapshot is told of once, and nobody ever fell behind a checkpoint."""
    for name, told in read(storage).items():
        steps = [line["steps"]["0"] for line in news(Depot(storage), name, 0)[1] if line["kind"] == "checkpoint"]
        assert steps == sorted(steps)
        state = RunFolder(folder / name, ["DuelToy"]).load()
        assert told.matches == state["exchange"]["matches"] > 0
        assert told.step >= told.steps["0"] == state["learners"][0][0]
        assert [one.number for one in told.snapshots] == list(range(state["league"]["snapshot_count"]))
