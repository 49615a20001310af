"""ML-Agents' own configuration of StrikersVsGoalie starts as it is, and both sides come out of it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import onnx
import yaml
from typer.testing import CliRunner

from palus import envs
from palus.cli import app
from palus.config import load_run, unsupported
from palus.config.run_file import BEHAVIORS_OF

SMALL = {
    "hyperparameters": {"buffer_size": 512, "batch_size": 256},
    "network_settings": {"hidden_units": 16},
    "summary_freq": 500,
}
"""Sizes only, so that it ends in seconds."""


def test_run_files_name_the_games_of_ml_agents_by_their_behaviors():
    for game, names in BEHAVIORS_OF.items():
        assert tuple(behavior.name for behavior in envs.make(game, 1).spec.behaviors) == names


def test_the_references_file_says_what_it_trains_and_gives_both_models(tmp_path: Path) -> None:
    text = files("palus").joinpath("presets/strikers-vs-goalie.yaml").read_text("utf-8")
    file = tmp_path / "StrikersVsGoalie.yaml"
    file.write_text(yaml.safe_dump({"behaviors": yaml.safe_load(text)["behaviors"]}))
    run = load_run(str(file))
    assert run.env_id == "StrikersVsGoalie" and unsupported(run) == []
    sizes = [
        f"behaviors.{name}.{section}={json.dumps(value)}"
        for name in ("Striker", "Goalie")
        for section, value in {**SMALL, "max_steps": 1024, "self_play.team_change": 512}.items()
    ]
    words = ["train", str(file), *sizes, "palus.num_matches=8", "palus.matmul=highest", "palus.threads=1"]
    done = CliRunner().invoke(app, [*words, "--results-dir", str(tmp_path), "--run-id", "both", "--seed", "3"])
    assert done.exit_code == 0, done.output
    for name, observations in (("Striker", {"obs_0": 231, "obs_1": 63}), ("Goalie", {"obs_0": 738})):
        inputs = onnx.load(tmp_path / "both" / f"{name}.onnx").graph.input
        found = {i.name: i.type.tensor_type.shape.dim[1].dim_value for i in inputs}
        assert found == {**observations, "action_masks": 9}
