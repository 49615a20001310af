"""A trainer of one's own, named by a run file: the example trains, and nobody else's code runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from events import read_values
from typer.testing import CliRunner

from palus.cli import app

STEPS, ROLLOUT = 16384, 2048
CHANGES = (
    *("palus.threads=1", "palus.matmul=highest", "palus.baseline_interval=0"),
    *("behaviors.SoccerTwos.trainer_type=ppo", f"behaviors.SoccerTwos.max_steps={STEPS}"),
    *(f"behaviors.SoccerTwos.{key}={ROLLOUT}" for key in ("hyperparameters.buffer_size", "summary_freq")),
    "behaviors.SoccerTwos.hyperparameters.learning_rate_schedule=linear",
)
OWN = "palus.trainers.SoccerTwos=own_trainer:Cosine"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))


def train(*words: str, code: int = 0) -> str:
    told = CliRunner().invoke(app, ["train", *words])
    assert told.exit_code == code, told.output
    return " ".join(told.stderr.split())


def test_the_example_of_a_trainer_learns_by_its_own_schedule(tmp_path: Path) -> None:
    train("debug", *CHANGES, OWN, "--results-dir", str(tmp_path), "--run-id", "x")
    values = read_values(tmp_path / "x" / "SoccerTwos")
    rates = [(step, value) for step, tag, value in values if tag == "Policy/Learning Rate"]
    assert len(rates) > 4
    for step, rate in rates:  # told once per rollout, of its beginning
        low, high = (3e-4 * (1 + math.cos(math.pi * max(step - late, 0) / STEPS)) / 2 for late in (0, 2 * ROLLOUT))
        assert isinstance(rate, float) and 0.99 * low <= rate <= 1.01 * high
    straight = [3e-4 * (1 - step / STEPS) for step, _ in rates]
    assert max(abs(rate - line) for (_, rate), line in zip(rates, straight, strict=True)) > 3e-5


def test_a_trainer_is_trusted_by_name_and_made_from_the_one_that_it_replaces(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("behaviors: {SoccerTwos: {trainer_type: ppo}}\npalus: {trainers: {SoccerTwos: own_trainer:Cosine}}")
    assert "would run code of the module own_trainer" in train(str(file), "--check", code=2)
    train(str(file), "--check", "--trust", "own_trainer")
    place = ("--results-dir", str(tmp_path), "--run-id", "x")
    for own, found in (
        ("own_trainer:Cosinus", "palus.trainers own_trainer:Cosinus: no such class"),
        ("own_trainer:PPO", "would run code of the module palus.learn.ppo"),
    ):
        assert found in train("debug", *CHANGES, f"palus.trainers.SoccerTwos={own}", *place, code=2)
    assert "expected a class made from palus.learn.POCA, that of trainer_type poca" in train(
        "debug", OWN, *place, code=2
    )
    assert "Goalie is no behavior of this file" in train("debug", OWN.replace("SoccerTwos", "Goalie"), code=2)
