"""At which trainer steps a run writes summaries and policies: those of ML-Agents, though rollouts come as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from palus.config import load_run
from palus.progress import PROGRESS
from palus.rollout.rollout import Collected, Episode, Pace, Rollout
from palus.run.postponed import Postponed
from palus.run.timers import Timers
from palus.train import Run, train
from palus.trust import Trust


def trained(folder: Path, behaviors: Mapping[str, Mapping[str, Any]], **palus: Any) -> Path:
    tree = {
        "behaviors": {
            name: {
                "trainer_type": "ppo",
                "hyperparameters": {"batch_size": 64, "buffer_size": 512},
                "network_settings": {"hidden_units": 8, "num_layers": 1},
                "time_horizon": 16,
                **own,
            }
            for name, own in behaviors.items()
        },
        "checkpoint_settings": {"run_id": "run", "results_dir": str(folder)},
        "palus": {"env": "MenuToy", "matmul": "highest", "threads": 1, "num_matches": 16, **palus},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(tree))
    train(load_run(folder / "run.yaml"), trust=Trust(frozenset({"stand_ins"})))
    return folder / "run"


def summaries(run: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, (run / PROGRESS).read_text().splitlines()):
        if line["kind"] == "summary":
            found.setdefault(line["behavior"], []).append(line)
    return found


def kept(run: Path, behavior: str) -> list[int]:
    """Steps of the policies that are there; `training_status.json` has the same ones, in order."""
    files = sorted(int(path.stem.split("-")[1]) for path in (run / behavior).glob(f"{behavior}-*.onnx"))
    status = json.loads((run / "run_logs" / "training_status.json").read_text())[behavior]
    assert [entry["steps"] for entry in status["checkpoints"]] == files
    assert status["final_checkpoint"]["steps"] == files[-1]
    return files


def test_every_multiple_of_summary_freq_has_its_summary(tmp_path: Path) -> None:
    """Updates after 512, 1024, 1536 and 2048 steps; 2000 is the last multiple that they reach."""
    run = trained(tmp_path, {"MenuToy": {"summary_freq": 100, "max_steps": 2000, "checkpoint_interval": 700}})
    found = summaries(run)["MenuToy"]
    assert [line["step"] for line in found] == list(range(100, 2001, 100))
    with_losses = [line["step"] for line in found if "Losses/Policy Loss" in line["values"]]
    assert with_losses == [500, 1000, 1500, 2000]
    assert all("Environment/Cumulative Reward" in line["values"] for line in found)  # four decisions long
    timers = json.loads((run / "run_logs" / "timers.json").read_text())
    learning = timers["children"]["TrainerController.start_learning"]["children"]
    advance = learning["TrainerController.advance"]
    assert (timers["name"], advance["count"], learning["RLTrainer._checkpoint"]["count"]) == ("root", 4, 3)
    assert advance["children"]["env_step"]["count"] == 4
    assert advance["children"]["trainer_advance"]["children"]["_update_policy"]["count"] == 4
    parts = sum(child["total"] for child in learning.values())
    assert parts <= timers["children"]["TrainerController.start_learning"]["total"] <= timers["total"]
    rewards = [line["values"]["Environment/Cumulative Reward"] for line in found]
    gauge = timers["gauges"]["MenuToy.Environment.CumulativeReward.mean"]
    assert gauge == pytest.approx({"value": rewards[-1], "min": min(rewards), "max": max(rewards), "count": 20})
    total = timers["gauges"]["MenuToy.Environment.CumulativeReward.sum"]
    assert total["value"] == pytest.approx(32 * rewards[-1])  # the last summary has 32 episodes
    entropy = (timers["gauges"][f"MenuToy.Policy.Entropy.{kind}"]["value"] for kind in ("mean", "sum"))
    assert len(set(entropy)) == 1  # of one update
    assert timers["metadata"]["timer_format_version"] == "0.1.0"
    assert kept(run, "MenuToy") == [1024, 1536, 2048]  # the first after 700, the first after 1400, the end


def test_even_checkpoints_and_pruning(tmp_path: Path) -> None:
    even = {"summary_freq": 4000, "max_steps": 4096, "keep_checkpoints": 4, "even_checkpoints": True}
    assert kept(trained(tmp_path, {"MenuToy": even}), "MenuToy") == [1024, 2048, 3072, 4096]
    (tmp_path / "b").mkdir()
    often = {"summary_freq": 4000, "max_steps": 4096, "keep_checkpoints": 2, "checkpoint_interval": 600}
    assert kept(trained(tmp_path / "b", {"MenuToy": often}), "MenuToy") == [3072, 4096]  # 3600 passes with the end


def test_a_checkpoint_that_is_due_at_the_end_is_that_of_the_end(tmp_path: Path) -> None:
    """Due after 1024 and 2048 steps, and the run is over after 2048."""
    run = trained(tmp_path, {"MenuToy": {"max_steps": 2048, "checkpoint_interval": 1024}})
    timers = json.loads((run / "run_logs" / "timers.json").read_text())
    learning = timers["children"]["TrainerController.start_learning"]["children"]
    assert kept(run, "MenuToy") == [1024, 2048] and learning["RLTrainer._checkpoint"]["count"] == 2


def test_a_run_that_goes_on_saves_at_the_next_multiple(tmp_path: Path) -> None:
    run = trained(tmp_path, {"MenuToy": {"max_steps": 1024, "checkpoint_interval": 1000}})
    parts, found = Run(load_run(tmp_path / "run.yaml", ["behaviors.MenuToy.max_steps=4096"]), resume=True), []
    with parts.report:
        for _ in range(2):
            parts.iterate()
            parts.save_if_due()
            found.append((parts.step, kept(run, "MenuToy")))
    assert found == [(1536, [1024]), (2048, [1024, 2048])]
    parts.close()


def test_a_behavior_s_policy_is_kept_at_its_own_multiples_only(tmp_path: Path) -> None:
    often, seldom = {"checkpoint_interval": 500, "max_steps": 2048}, {"checkpoint_interval": 1500, "max_steps": 2048}
    behaviors = {"BigWallJump": often, "SmallWallJump": seldom}
    game = {"env": "stand_ins:StandIn", "env_options": {"behaviors": list(behaviors)}}
    run = trained(tmp_path, behaviors, **game, sampling={"collector": "in_process"})
    assert kept(run, "BigWallJump") == [512, 1024, 1536, 2048]
    assert kept(run, "SmallWallJump") == [1536, 2048]


@pytest.mark.parametrize(("episodes", "at"), [(3, [2, 4, 6]), (2, [3, 6])])
def test_episodes_count_when_they_end_in_their_rows(episodes: int, at: list[int]) -> None:
    """Three decisions of two rows; one row ends at each."""
    ended = np.array([[True, False], [False, True], [True, False]])
    numbers = np.zeros((3, 2), np.float32)
    rollout = Rollout(
        {"o": np.zeros((4, 2, 1), np.float32)}, None, numbers[:2], numbers[:2], numbers[..., None], numbers[..., None],
        numbers[..., None], None, numbers, numbers, ended, np.zeros_like(ended), np.ones((3, 2), np.bool_),
        np.ones(2, np.bool_), {}, numbers[:0], 1, np.zeros((3, 2), np.int32),
    )  # fmt: skip
    assert rollout.pace.ended_after(episodes).tolist() == at


def test_a_learner_that_counts_frames_has_episodes_end_after_frames() -> None:
    """Two rows for three decisions of four frames: the first episode ends after two decisions, the second after six."""
    told: list[list[float]] = []
    trainee: Any = SimpleNamespace(
        policy=0, behavior=SimpleNamespace(max_steps=0), plays_only=False, shown_step=1000,
        learner=SimpleNamespace(steps_in=lambda decisions, frameskip: decisions * frameskip),
        record=SimpleNamespace(add=lambda episodes, stats, entropy, at: told.append(at)),
    )  # fmt: skip
    episodes = [Episode(0, 0, 0, learned, 1, 0.0, 0.0) for learned in (True, False, True)]  # one does not count
    pace = Pace(np.array([2, 2, 2]), np.array([1, 0, 1]))
    run: Any = SimpleNamespace(
        timers=Timers(), computing=SimpleNamespace(postponed=Postponed(waits=False)), learning_seconds=0.0,
        spec=SimpleNamespace(frameskip=4),
    )  # fmt: skip
    rollout: Any = SimpleNamespace()
    Run._learn(run, trainee, Collected({0: rollout}, {0: 0.5}, episodes, [], {}, {0: pace}), 0)
    assert told == [[984.0, 1000.0]]
