"""Whole runs in executables, over the wire: they learn, are saved and go on, and start nothing that cannot begin."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hand_made import executable, said
from typer.testing import CliRunner
from wire_ends import in_thread

from palus import __version__
from palus.cli import app
from palus.cli.mlagents_learn import learn
from palus.config import load_run
from palus.errors import CheckpointError, EnvError, WorkerError
from palus.rollout.exchanging import ExchangeCollector
from palus.train import Run, train
from palus.unity.environment import UnityEnv
from palus.unity.messages import API_VERSION, message
from palus.unity.wire import Dialer
from ports import free_port


def run_file(folder: Path, path: Path, name: str, *overrides: str, **behavior: Any) -> Any:
    own = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 0.003, "num_epoch": 3},
        "network_settings": {"hidden_units": 32, "num_layers": 1},
        "time_horizon": 32,
        "summary_freq": 1000,
    } | behavior
    file = folder / "run.yaml"
    file.write_text(json.dumps({
        "behaviors": {name: own},
        "env_settings": {"env_path": str(path), "base_port": free_port(), "seed": 1},
        "checkpoint_settings": {"results_dir": str(folder / "results"), "run_id": "x"},
        "palus": {"matmul": "highest", "threads": 1},
    }))  # fmt: skip
    return load_run(file, list(overrides))


def rewards(capsys: Any, kind: str) -> list[float]:
    """Those of all summaries."""
    return [float(number) for number in re.findall(rf"{kind}: (\d\.\d+)", capsys.readouterr().err)]


def test_a_run_learns_over_the_wire(served: Any, tmp_path: Path, capsys: Any) -> None:
    """MenuToy pays 2 for guessing and 11/3 for the best order."""
    run = run_file(tmp_path, served("MenuToy", 8), "MenuToy", max_steps=5000)
    assert train(run).finished
    first, *_, last = rewards(capsys, "Mean Reward")
    assert first < 2.8 and last > 3.2
    assert (tmp_path / "results" / "x" / "MenuToy.onnx").exists()
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        train(run)
    folder, path = str(tmp_path / "results" / "x"), str(run.env_settings.env_path)
    refused = CliRunner().invoke(app, ["enjoy", folder])
    assert refused.exit_code == 2 and f"--env {path}" in " ".join(refused.output.split())
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", path, "--max-num-episodes", "20", "--json"])
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["episodes"] == 20 and found["mean"] > 3.0 and found["decisions"] > 20
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", path, "--max-num-episodes", "2"])
    assert "decisions in" in said.output and "frames" not in said.output
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", str(served("DuelToy", 1))])
    assert said.exit_code == 2 and "nobody of MenuToy asked for a decision; it has DuelToy" in said.output


def test_what_cannot_begin_starts_no_game_and_leaves_no_run(served: Any, tmp_path: Path) -> None:
    run = run_file(
        tmp_path, executable(tmp_path, "exec sleep 60"), "DuelToy", "checkpoint_settings.initialize_from=gone"
    )
    with pytest.raises(CheckpointError, match="gone: no such run to initialize from"):
        train(run)
    run = run_file(tmp_path, executable(tmp_path, "exec sleep 60"), "DuelToy")
    with pytest.raises(CheckpointError, match="nothing to resume"):
        train(run, resume=True)
    assert not (tmp_path / "results").exists()
    path = served("DuelToy", 1)
    with pytest.raises(EnvError, match="DuelTo did not appear"):
        train(run_file(tmp_path, path, "DuelTo"))
    assert (tmp_path / "results" / "x" / "run_logs" / "Player-0.log").exists()
    assert train(run_file(tmp_path, path, "DuelToy", max_steps=0)).finished  # nobody has to force it


def test_a_drawn_seed_is_sent_again_on_resume(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It is -1 in the file whenever the run is started, and the game is started before the checkpoint is read."""
    sent, shake = list[int](), UnityEnv._shake_hands
    monkeypatch.setattr(UnityEnv, "_shake_hands", lambda game, seed: (sent.append(seed), shake(game, seed))[1])
    for count, resume in ((1, False), (600, True)):
        run = run_file(tmp_path, served("MenuToy", 1), "MenuToy", "env_settings.seed=-1", max_steps=count)
        train(run, resume=resume)
    assert sent[0] == sent[1] > 1


def test_mlagents_learn_says_what_it_is_connected_to(served: Any, tmp_path: Path, capsys: Any) -> None:
    run_file(tmp_path, served("DuelToy", 1), "DuelToy", max_steps=0)
    whole = json.loads((tmp_path / "run.yaml").read_text())
    (tmp_path / "run.yaml").write_text(json.dumps(whole | {"environment_parameters": {"level": 2}}))
    capsys.readouterr()
    assert learn([str(tmp_path / "run.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if re.search("Connected|Hyper|Parameter", line)] == [
        f"[INFO] Connected to Unity environment with package version {__version__} and communication version 1.5.0",
        "[INFO] Connected new brain: DuelToy?team=0",
        "[INFO] Connected new brain: DuelToy?team=1",
        "[INFO] Hyperparameters for behavior name DuelToy: ",
        "[INFO] Parameter 'level' is in lesson 'level' and has value 'Float: value=2'.",
    ]


@pytest.mark.slow
def test_groups_learn_over_the_wire(served: Any, tmp_path: Path, capsys: Any) -> None:
    """RescueToy pays the group 0.5 a match for what a member did before it left."""
    run = run_file(tmp_path, served("RescueToy", 8), "RescueToy", max_steps=4000, trainer_type="poca")
    assert train(run).finished
    first, *_, last = rewards(capsys, "Mean Group Reward")
    assert first < 0.5 and last > 0.75


@pytest.mark.slow
def test_a_behavior_that_appears_in_mid_run_learns_over_the_wire(tmp_path: Path) -> None:
    path = executable(tmp_path, "exec sleep 60")
    small = ["behaviors.B.hyperparameters.buffer_size=100", "env_settings.timeout_wait=20"]
    run = run_file(tmp_path, path, "B", *small, max_steps=250)
    run = run.model_copy(update={"behaviors": {}, "default_settings": run.behaviors["B"]})

    def play() -> list[int]:
        game, decisions = Dialer(run.env_settings.base_port, 20), [0, 0]
        first = message()
        first.unity_output.rl_initialization_output.communication_version = API_VERSION
        told: Any = [first, message(), said()]
        for at in range(5000):
            answer = game.exchange(told.pop(0) if told else both(at))
            if answer is None:
                break
            for k, name in enumerate(("B?team=0", "Late?team=0")):
                decisions[k] += len(answer.unity_input.rl_input.agent_actions[name].value)
        return decisions

    def both(at: int) -> Any:
        made = said(brain=False)
        if at > 100:
            made.MergeFrom(said(name="Late?team=0", brain=at == 101))
        return made

    end = in_thread(play)
    assert train(run).finished
    usual, late = end()
    folder = tmp_path / "results" / "x"
    assert late >= 250 and usual >= late + 90
    assert (folder / "Late.onnx").exists()
    assert json.loads((folder / "run_logs" / "training_status.json").read_text())["Late"]["checkpoints"]


def test_a_game_killed_in_mid_step_leaves_a_clear_message_and_a_saved_run(served: Any, tmp_path: Path) -> None:
    path = served("MenuToy", 2)
    run = run_file(tmp_path, path, "MenuToy", "env_settings.max_lifetime_restarts=0", max_steps=100000)

    def kill_after_an_update(parts: Run) -> None:
        assert isinstance(parts.collector, ExchangeCollector)
        (pid,) = [game.env._executable._process.pid for game in parts.collector._games]
        learn = parts.trainees[0].learner.update

        def update(*arguments: Any) -> Any:
            found = learn(*arguments)
            os.killpg(pid, signal.SIGKILL)  # type: ignore[arg-type]
            return found

        parts.trainees[0].learner.update = update  # type: ignore[method-assign]

    with pytest.raises(WorkerError, match=r"return code -9 \(SIGKILL\).*max_lifetime_restarts is 0"):
        train(run, on_start=kill_after_an_update)
    folder = tmp_path / "results" / "x"
    assert (folder / "MenuToy" / "checkpoint.pt").exists() and (folder / "MenuToy.onnx").exists()
    found = Run(run, resume=True)
    assert found.step >= 512
    found.close()


def test_a_behavior_that_the_game_does_not_have_is_named(served: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("palus.unity.discovery.SEARCH", 5)
    run = run_file(tmp_path, served("MenuToy", 1), "Nobody")
    with pytest.raises(EnvError, match="has MenuToy; Nobody did not appear within 5 messages"):
        train(run)
