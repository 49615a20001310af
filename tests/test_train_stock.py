"""Every run file that ML-Agents ships trains: in palus's own game where it has it, in a stand-in elsewhere.

Shorter in three things: minibatches and buffers are small, matches few, and after some updates it is enough.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from stock import stock_files
from test_stock import over
from typer.testing import CliRunner

from palus.cli import app
from palus.progress import PROGRESS
from ports import free_port
from stand_ins import demonstrate

STOCK = stock_files("new")
OWN = {"poca/SoccerTwos", "poca/StrikersVsGoalie"}
MORE = {"ppo/Match3": ["Match3VisualObs"]}
"""Behaviors of the game that a file leaves to its default_settings."""
QUICK = ("ppo/Match3", "ppo/Sorter_curriculum", "poca/PushBlockCollab", "imitation/Hallway")
CASES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in STOCK]


def shortened(name: str, folder: Path) -> Path:
    """The file with small buffers for two updates and more, in its game."""
    file = STOCK[name]
    for section in [*file["behaviors"], "default_settings"]:
        own = file["behaviors"].get(section) or file.get(section)
        if own is None:
            continue
        rows = min(own["hyperparameters"]["batch_size"], 64)
        sizes = {"batch_size": rows, "buffer_size": 2 * rows}
        if own["trainer_type"] == "sac":
            sizes |= {"buffer_size": 10 * rows, "buffer_init_steps": 0, "steps_per_update": rows}
        short = {"hyperparameters": sizes, "max_steps": 4 * rows + 1, "summary_freq": rows, "time_horizon": 16}
        imitated = {k: v for k, v in own.get("reward_signals", {}).items() if "demo_path" in v}
        demo = {"demo_path": str(folder / f"{section}.demo")}
        if imitated:
            demonstrate(section, folder / f"{section}.demo")
            short["reward_signals"] = dict.fromkeys(imitated, demo)
            short |= {"behavioral_cloning": demo} if "behavioral_cloning" in own else {}
        file = over(file, {section: short} if section == "default_settings" else {"behaviors": {section: short}})
    palus: dict[str, Any] = {"matmul": "highest", "threads": 1, "num_matches": 4, "baseline_interval": 0}
    if name not in OWN:
        behaviors = [*file["behaviors"], *MORE.get(name, [])]
        palus |= {
            "env": "stand_ins:StandIn",
            "env_options": {"behaviors": behaviors},
            "sampling": {"collector": "in_process"},
        }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(file | {"palus": palus, "env_settings": {"seed": 1}}))
    return path


def check(name: str, folder: Path) -> None:
    """Every behavior has a model, and learned from finite losses."""
    lines = [json.loads(line) for line in (folder / PROGRESS).read_text().splitlines()]
    for behavior in [*STOCK[name]["behaviors"], *MORE.get(name, [])]:
        assert (folder / f"{behavior}.onnx").exists()
        own = [line["values"] for line in lines if line["kind"] == "summary" and line["behavior"] == behavior]
        losses = [values["Losses/Policy Loss"] for values in own if "Losses/Policy Loss" in values]
        assert losses and all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize("name", CASES)
def test_a_stock_file_trains(name: str, tmp_path: Path) -> None:
    words = ["train", str(shortened(name, tmp_path)), "--run-id", "x", "--results-dir", str(tmp_path / "results")]
    result = CliRunner().invoke(app, [*words, "--trust", "stand_ins"])
    assert result.exit_code == 0, result.output
    check(name, tmp_path / "results" / "x")


EXECUTABLE = """#!{python}
import sys

sys.path.insert(0, {tests!r})
from palus.envs import GameSource
from palus.trust import Trust
from palus.unity.serving import parse_launch, serve

game = GameSource("stand_ins:StandIn", {options!r}, Trust(frozenset(["stand_ins"])))
serve(game.batch, 2, parse_launch(sys.argv[1:]).port, 60.0, print)
"""
"""A stand-in as `palus unity-serve` serves built-in games."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["poca/PushBlockCollab", "ppo/Sorter_curriculum", "imitation/Hallway", "sac/Walker", *sorted(OWN)]
)
def test_a_stock_file_trains_over_a_socket(name: str, tmp_path: Path) -> None:
    file = yaml.safe_load(shortened(name, tmp_path).read_text())
    path, tests = tmp_path / "Game", str(Path(__file__).parent)
    if name in OWN:
        words = ["unity-serve", name.rpartition("/")[2], "--num-matches", "2", "--write-executable", str(path)]
        assert CliRunner().invoke(app, words).exit_code == 0
    else:
        options = file["palus"]["env_options"]
        path.write_text(EXECUTABLE.format(python=sys.executable, tests=tests, options=options))
        path.chmod(0o755)
    file["env_settings"] |= {"base_port": free_port()}
    file["palus"] = {"matmul": "highest", "threads": 1}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(file))
    words = ["--env", str(path), "--run-id", "x", "--results-dir", str(tmp_path / "results")]
    result = CliRunner().invoke(app, ["train", str(tmp_path / "run.yaml"), *words])
    assert result.exit_code == 0, result.output
    check(name, tmp_path / "results" / "x")
