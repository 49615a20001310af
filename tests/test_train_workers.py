"""Runs on worker processes from start to end: learning, checkpoints, resuming, populations, self-play."""

from __future__ import annotations

import io
import json
import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import yaml
from rich.console import Console
from sampled import RecallGame

from palus.config import RunFile, load_run
from palus.envs.game import GameStep
from palus.errors import CheckpointError, ConfigError
from palus.export.policy_file import find_policies, read_policy
from palus.hub.layout import read_run
from palus.hub.publish import publish
from palus.hub.target import FolderTarget
from palus.hub.training_curve import read_scalars
from palus.rollout.rollout import Episode, Rollout
from palus.train import Run as _Run
from palus.train import train as _train
from palus.trust import Trust

TRUST = Trust(frozenset({"sampled"}))
Run, train = partial(_Run, trust=TRUST), partial(_train, trust=TRUST)

BEHAVIOR = {
    "trainer_type": "appo",
    "hyperparameters": {"buffer_size": 512, "batch_size": 256, "learning_rate": 0.01, "num_epoch": 2},
    "network_settings": {"hidden_units": 16, "num_layers": 1, "memory": {"memory_size": 16}},
    "time_horizon": 8,
    "max_steps": 16384,
    "checkpoint_interval": 1024,
    "summary_freq": 2048,
    "save_best_after": 1000,
}


def run_file(folder: Path, *overrides: str, workers: int = 0) -> RunFile:
    tree = {
        "behaviors": {"Recall": BEHAVIOR},
        "checkpoint_settings": {"run_id": "recall", "results_dir": str(folder)},
        "env_settings": {"seed": 3},
        "palus": {"env": "sampled:RecallGame", "sampling": {"workers": workers}, "matmul": "highest", "threads": 1},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    return load_run(path, overrides)


def weights(parts: _Run) -> np.ndarray:
    return parts.trainees[0].learner.network.weights.master.numpy().copy()


def test_a_run_learns_to_remember_and_leaves_its_agents(tmp_path: Path) -> None:
    result = train(run_file(tmp_path, "behaviors.Recall.max_steps=8192"))
    assert result.finished and result.steps == 8192
    latest, best = ((*find_policies(tmp_path / "recall", kind).values(),)[0] for kind in ("latest", "best"))
    assert latest.metric is not None and latest.metric > 0.95
    assert best.metric is not None and best.metric >= latest.metric - 1e-3
    assert (latest.steps, latest.env_id) == (8192, "recall")
    assert load_run(tmp_path / "recall" / "configuration.yaml").env_settings.seed == 3


def test_checkpoints_leave_what_is_published(tmp_path: Path) -> None:
    result = train(run_file(tmp_path, "behaviors.Recall.max_steps=1024"))
    root = tmp_path / "recall"
    assert result.model == root / "Recall.onnx"
    session = ort.InferenceSession(str(result.model), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["obs", "recurrent_in"]
    facts = json.loads((root / "bundle.json").read_text())
    assert (facts["steps"], facts["trainer_type"], facts["env_id"]) == (1024, "appo", "sampled:RecallGame")
    assert facts["wall_seconds"] == pytest.approx(result.wall_seconds, rel=0.5)
    (root / "bundle.json").write_text(json.dumps({**facts, "wall_seconds": 90.0}))
    publish(read_run(root), "ada/recall", FolderTarget(tmp_path / "pool"))
    card = (tmp_path / "pool" / "ada" / "recall" / "README.md").read_text()
    assert "Trained with palus for 1,024 engine frames in 1.5 minutes." in card


@pytest.mark.slow
def test_games_played_beside_the_learner_teach_the_same(tmp_path: Path) -> None:
    train(run_file(tmp_path, workers=2))
    (metric,) = (policy.metric for policy in find_policies(tmp_path / "recall").values())
    assert metric is not None and metric > 0.95


PPO = ["behaviors.Recall={trainer_type: ppo, hyperparameters: {buffer_size: 512, batch_size: 256}, time_horizon: 8}"]


@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        ([], True),
        (["palus.sampling.asynchronous=false"], False),
        (["palus.sampling.workers=0"], False),
        (["palus.sampling.workers=0", "palus.sampling.asynchronous=true"], True),
        (PPO, False),
    ],
)
def test_games_are_played_beside_the_learner_where_workers_step_them_and_lag_is_corrected(
    changes: list[str], beside: bool, tmp_path: Path, monkeypatch
) -> None:
    parts = Run(run_file(tmp_path, *changes, workers=2))
    with parts.report:
        found = list[tuple[int, int]]()
        learn = parts.trainees[0].learner.update

        def update(rollout: Rollout, step: int) -> dict[str, float]:
            found.append((int(rollout.versions.min()), parts.trainees[0].learner.network.version))
            assert (rollout.versions == rollout.versions.min()).all()
            return learn(rollout, step)

        monkeypatch.setattr(parts.trainees[0].learner, "update", update)
        for _ in range(4):
            parts.iterate()
    told = "each rollout is played while the one before is learned from (palus.sampling.asynchronous)"
    assert (told in parts.collector.describe()) == beside
    versions = [version for _, version in found]
    assert versions[0] == 0 < versions[1] < versions[2]
    assert [acted for acted, _ in found] == ([0, *versions[:-1]] if beside else versions)
    parts.close()


@pytest.mark.parametrize(
    ("changes", "is_full"),
    [
        (["palus.sampling.asynchronous=true"], False),
        ([*PPO, "palus.sampling.collector=in_process"], False),
        ([*PPO, "palus.sampling.workers=0"], True),
    ],
)
def test_what_was_learned_before_a_game_of_this_process_raises_is_saved(
    changes: list[str], is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, taken, told = RecallGame.step, list[int](), list[str]()

    def stumbling(game: RecallGame, actions: np.ndarray) -> GameStep:
        taken.append(1)
        if len(taken) == 1300:  # in the third rollout of 512
            raise KeyError("unexpected")
        return step(game, actions)

    monkeypatch.setattr(RecallGame, "step", stumbling)
    rarely = ["palus.sampling.decorrelate=false", "behaviors.Recall.checkpoint_interval=100000"]
    run = run_file(tmp_path, *changes, *rarely)
    if is_full:  # no file takes its place
        (tmp_path / "recall" / "Recall" / "Recall-1024.onnx").mkdir(parents=True)
    with pytest.raises(KeyError, match="unexpected"):
        train(run, log=lambda level, text: told.append(text))
    assert any("could not be written" in line for line in told) == is_full
    if not is_full:
        saved = (tmp_path / "recall" / "Recall" / "checkpoint.pt").read_bytes()
        taken[-1:] = []
        with pytest.raises(KeyError, match="unexpected"):
            train(run, resume=True)
        assert (tmp_path / "recall" / "Recall" / "checkpoint.pt").read_bytes() == saved, "nothing was learned since"
        taken.clear()
        with closing(Run(run, resume=True)) as parts, parts.report:
            assert parts.step == 1024
            parts.iterate()


@pytest.mark.parametrize("asynchronous", ["auto", pytest.param("false", marks=pytest.mark.slow)])
def test_a_run_resumed_from_a_checkpoint_equals_the_uninterrupted_one(asynchronous: str, tmp_path: Path) -> None:
    changes = ("palus.env_options.length=5", f"palus.sampling.asynchronous={asynchronous}")
    whole = Run(run_file(tmp_path, *changes, workers=2))
    with whole.report:
        for _ in range(2):
            whole.iterate()
        whole.save()
        halfway, checkpoint = weights(whole), whole.folder.checkpoint.read_bytes()
        for _ in range(3):
            whole.iterate()
    whole.folder.checkpoint.write_bytes(checkpoint)
    whole._kept.close()  # lets another process in, as a kill would
    resumed = Run(run_file(tmp_path, *changes, workers=2), resume=True)
    np.testing.assert_array_equal(weights(resumed), halfway)
    with resumed.report:
        for _ in range(3):
            resumed.iterate()
    np.testing.assert_array_equal(weights(resumed), weights(whole))
    assert not np.array_equal(weights(resumed), halfway)
    assert (resumed.step, resumed.report.state_dict()) == (whole.step, whole.report.state_dict())
    whole.close()
    resumed.close()


def test_a_best_metric_that_no_episode_tells_is_told_of_once(tmp_path: Path) -> None:
    parts = Run(run_file(tmp_path, "behaviors.Recall.best_metric=frag"))
    (trainee,), told = parts.trainees, list[str]()
    report: Any = SimpleNamespace(warn=told.append)
    for episodes in (99, 1, 100):
        trainee.record.recent.extend([Episode(0, 0, 0, True, 4, 0.0, 0.0, stats={"frags": 1.0})] * episodes)
        parts.saving.keep_best(trainee, report)
    assert len(told) == 1
    for more in ("frag", ""):  # of another policy, and of one that is not asked for it
        trainee.behavior, trainee.policy = trainee.behavior.changed(best_metric=more), trainee.policy + 1
        parts.saving.keep_best(trainee, report)
    parts.close()
    told_once = (
        "Recall: none of 100 episodes tells best_metric frag, so no policy is the best; they tell reward, length, "
        "true_objective, frags."
    )
    assert told == [told_once] * 2


def test_a_new_best_policy_leads_by_a_thousandth_over_a_hundred_episodes_after_a_restart_too(tmp_path: Path) -> None:
    parts = Run(run_file(tmp_path))
    (trainee,) = parts.trainees

    def best_after(score: float, episodes: int = 100, step: int = 1000) -> float | None:
        """The score of best.npz."""
        told = Episode(0, 0, 0, True, 4, 0.0, 0.0, stats={"true_objective": score})
        trainee.step, file = step, trainee.folder / "best.npz"
        trainee.record.recent.clear()
        trainee.record.recent.extend([told] * episodes)
        parts.saving.keep_best(trainee, parts.report)
        return read_policy(file).metric if file.exists() else None

    assert best_after(0.5, episodes=99) is None
    assert best_after(0.5, step=999) is None  # `save_best_after`
    assert best_after(0.5) == 0.5 == trainee.best
    more = 0.5 + 2**-9  # than a thousandth
    assert best_after(0.5 + 2**-11) == 0.5 and best_after(more) == more == best_after(0.4)
    parts.previous_seconds, parts.baselines.latest = 1000.0, {"random": 0.75}
    parts.save()
    assert best_after(0.875) == 0.875  # and killed before the next checkpoint
    parts.close()
    for damaged in (False, True):
        if damaged:
            (trainee.folder / "best.npz").write_bytes(b"no policy")
        resumed = Run(run_file(tmp_path), resume=True)
        assert resumed.trainees[0].best == (more if damaged else 0.875)
        resumed.close()
    (trainee,) = resumed.trainees
    assert len(trainee.record.recent) == trainee.record.recent.maxlen == 100
    assert resumed.wall_seconds > 1000.0 and resumed.baselines.latest == {"random": 0.75}


@pytest.mark.parametrize("mixes", ["true", "false"])
def test_policies_of_a_population_share_a_match_unless_they_are_not_to(mixes: str, tmp_path: Path) -> None:
    population = f"behaviors.Recall.population={{size: 3, mix_in_game: {mixes}}}"
    parts = Run(run_file(tmp_path, population, "palus.env_options.agents=2"))
    casts = [parts.league.cast(slot) for slot in range(40)]
    assert any(one != two for one, two in casts) == (mixes == "true")
    parts.close()


def test_a_population_trains_replaces_and_goes_on(tmp_path: Path) -> None:
    section = "{size: 3, period: 512, start: 512, mutation_rate: 1.0, replace_gap: 0.0, replace_gap_absolute: 0}"
    overrides = (f"behaviors.Recall.population={section}", "behaviors.Recall.max_steps=2048")
    train(run_file(tmp_path, *overrides))
    root = tmp_path / "recall" / "Recall"
    numbers = [json.loads((root / f"policy_{k}" / "hyperparameters.json").read_text()) for k in (1, 2)]
    assert numbers[0]["learning_rate"] != numbers[1]["learning_rate"]
    assert all((root / f"policy_{k}" / "policy.npz").exists() for k in range(3))
    resumed = Run(run_file(tmp_path, *overrides), resume=True)
    assert resumed.step >= 2048
    rates = [trainee.learner.behavior.hyperparameters.learning_rate for trainee in resumed.trainees]
    assert rates == [own["learning_rate"] for own in resumed.populations["Recall"].numbers]
    resumed.close()


def test_a_population_tunes_what_the_game_pays(tmp_path: Path) -> None:
    overrides = ("behaviors.Recall.population={size: 2, mutation_rate: 1.0}", "palus.env_options.pay=0.5")
    parts = Run(run_file(tmp_path, *overrides))
    with parts.report:
        parts.iterate()
        parts.save()
    parts.close()
    root = tmp_path / "recall" / "Recall"
    pays = [json.loads((root / f"policy_{k}" / "hyperparameters.json").read_text())["shaping.pay"] for k in range(2)]
    assert pays[0] == 0.5 and pays[1] != 0.5
    resumed = Run(run_file(tmp_path, *overrides), resume=True)
    collected = resumed.collector.collect()
    for k, pay in enumerate(pays):
        rollout = collected.rollouts[k]
        assert set(np.unique(rollout.rewards[rollout.active])) == {np.float32(0), np.float32(pay)}
    resumed.close()


def test_what_a_population_tunes_is_paid_from_its_turn_on(tmp_path: Path, monkeypatch) -> None:
    section = "{size: 2, period: 512, start: 512, mutation_rate: 1.0}"
    parts, told = Run(run_file(tmp_path, f"behaviors.Recall.population={section}")), dict[int, list[float]]()
    first = [parts._numbers[k]["shaping.pay"] for k in range(2)]
    monkeypatch.setattr(parts.collector, "shape_rewards", lambda policy, pays: told.update({policy: list(pays)}))
    with parts.report:
        for _ in range(6):
            parts.iterate()
    pays = [parts._numbers[k]["shaping.pay"] for k in range(2)]
    assert pays != first and told == {k: [pay] for k, pay in enumerate(pays)}
    parts.close()


SELF_PLAY = (
    "behaviors.Recall.self_play={save_steps: 1024, window: 2, play_against_latest_model_ratio: 0.0}",
    "palus.env_options.agents=2",
)


def elos_of(folder: Path) -> list[float]:
    (events,) = (folder / "recall" / "Recall").glob("events*")
    return [value for _, tag, value in read_scalars(events.read_bytes()) if tag == "Self-play/ELO"]


@pytest.mark.slow
def test_self_play_learns(tmp_path: Path) -> None:
    train(run_file(tmp_path, *SELF_PLAY, "behaviors.Recall.max_steps=16384"))
    (metric,) = (policy.metric for policy in find_policies(tmp_path / "recall").values())
    assert metric is not None and metric > 0.9
    elos = elos_of(tmp_path)
    assert len(elos) == 8 and max(elos) > 1200.5


def test_self_play_takes_its_own_side_alone_and_goes_on_with_its_past(tmp_path: Path) -> None:
    overrides = (*SELF_PLAY, "behaviors.Recall.max_steps=4096")
    train(run_file(tmp_path, *overrides))
    elos = elos_of(tmp_path)
    assert len(elos) == 2
    resumed = Run(run_file(tmp_path, *overrides), resume=True)
    pool, count = resumed.league.pools[0], resumed.league.snapshot_count
    assert pool.elo == pytest.approx(elos[-1])
    assert json.loads((tmp_path / "recall" / "bundle.json").read_text())["elo"] == pool.elo
    kept = {int(path.stem.partition("-")[2]) for path in (tmp_path / "recall" / "Recall" / "snapshots").iterdir()}
    assert kept == resumed.league.needed(set())
    assert resumed.collector.collect().rollouts[0].active.mean() == pytest.approx(0.5)
    assert pool.window == [count - 2, count - 1]
    resumed.close()


def test_a_learner_is_calibrated_by_every_rollout_that_it_learned_from(tmp_path: Path, monkeypatch) -> None:
    parts, seen = Run(run_file(tmp_path, "behaviors.Recall.max_steps=512")), list[tuple[int, int]]()
    learner = parts.trainees[0].learner
    monkeypatch.setattr(learner, "calibrate", lambda data: seen.append((data.agent_steps, learner.network.version)))
    with parts.report:
        for _ in range(2):
            parts.iterate()
    assert seen == [(512, 4)]  # after the update, of two epochs of two minibatches; then it was done
    parts.close()


def test_a_policy_that_takes_over_another_learns_nothing_from_its_own_past(tmp_path: Path) -> None:
    parts = Run(run_file(tmp_path, "behaviors.Recall.population={size: 2}"))
    one, two = (trainee.learner for trainee in parts.trainees)
    rollout = parts.collector.collect().rollouts[0]
    one.take_over(two)
    np.testing.assert_array_equal(one.network.weights.master, two.network.weights.master)
    assert one.update(rollout, 0) == {}
    parts.close()


def test_ctrl_c_ends_with_everything_saved(tmp_path: Path) -> None:
    result = train(run_file(tmp_path), on_start=lambda parts: signal.raise_signal(signal.SIGINT))
    assert not result.finished
    assert result.model.exists()
    assert train(run_file(tmp_path, "behaviors.Recall.max_steps=512"), resume=True).steps == 512


def test_a_lost_worker_is_told_in_the_terminal(tmp_path: Path) -> None:
    said = io.StringIO()

    def kill_a_worker(parts: _Run) -> None:
        parts.report.console = Console(file=said, width=200)
        os.kill(parts.collector.pids[0], signal.SIGKILL)

    assert train(run_file(tmp_path, "behaviors.Recall.max_steps=2048", workers=2), on_start=kill_a_worker).finished
    (line,) = [line for line in said.getvalue().splitlines() if line.startswith("warning:")]
    assert "lost worker 0: " in line and "so far 1 were lost" in line


def test_a_run_whose_workers_are_silent_hears_ctrl_c(tmp_path: Path) -> None:
    def freeze_and_press(parts: _Run) -> None:
        for pid in parts.collector.pids:
            os.kill(pid, signal.SIGSTOP)
        signal.raise_signal(signal.SIGINT)

    result = train(run_file(tmp_path, "palus.sampling.timeout=3600", workers=2), on_start=freeze_and_press)
    assert result.steps == 0 and result.model.exists()


def test_losses_are_told_before_a_rollout_is_complete(tmp_path: Path, monkeypatch) -> None:
    told: list[tuple[int, str]] = []

    def freeze(parts: _Run) -> None:
        for pid in parts.collector.pids:
            os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(parts.report, "warn", lambda line: told.append((parts.step, line)))

    settings = ("behaviors.Recall.max_steps=512", "palus.sampling.timeout=10")
    assert train(run_file(tmp_path, *settings, workers=2), on_start=freeze).finished
    (step, line), *_ = told
    assert step == 0 and line.startswith("lost worker ") and "raise palus.sampling.timeout. A new one" in line


def test_a_run_that_is_there_is_neither_replaced_nor_resumed_as_another(tmp_path: Path) -> None:
    train(run_file(tmp_path, "behaviors.Recall.max_steps=512"))
    with pytest.raises(CheckpointError, match="continue it with --resume"):
        train(run_file(tmp_path))
    with pytest.raises(CheckpointError, match="does not fit this run file"):
        train(run_file(tmp_path, "behaviors.Recall.network_settings.memory.kind=lstm"), resume=True)


def test_a_mistake_in_the_run_file_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"palus\.sampling cannot"):
        train(run_file(tmp_path, "palus.sampling.workers=3"))
    assert not (tmp_path / "recall").exists()
