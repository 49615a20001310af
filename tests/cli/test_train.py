"""`palus train`: what it prints and leaves behind, and that a continued run is the same run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from events import read_values
from train_command import FAST, SETTINGS, palus

from palus.cli.train import what_next
from palus.config import load_run
from palus.errors import CheckpointError
from palus.nn.matmul import MatmulPath
from palus.run.folder import RunFolder
from palus.train import Run, train
from palus.trust import Trust

EXTRINSIC = {"Policy/Extrinsic Value Estimate", "Policy/Extrinsic Reward"}
TAGS = EXTRINSIC | {
    "Environment/Cumulative Reward",
    "Environment/Cumulative Reward_hist",
    "Environment/Episode Length",
    "Policy/Entropy",
    "Policy/Learning Rate",
    "Policy/Epsilon",
    "Policy/Beta",
    "Losses/Policy Loss",
    "Losses/Value Loss",
    "Policy/KL",
    "Policy/Clipped",
    "Performance/Learning Share",
    "Performance/Steps per Second",
    "Self-play/ELO",
    *(f"Self-play/{rating}{bound}" for rating in ("Rating", "Skill") for bound in ("", " Low", " High")),
    "Hyperparameters/text_summary",
}
POCA_TAGS = TAGS | {
    "Environment/Group Cumulative Reward",
    "Environment/Group Cumulative Reward_hist",
    "Policy/Extrinsic Baseline Estimate",
    "Losses/Baseline Loss",
}


@pytest.fixture(scope="module")
def poca(tmp_path_factory):
    """A finished run, long enough for some goals: the folder and what it printed."""
    results = tmp_path_factory.mktemp("poca")
    settings = ("max_steps=24000", "checkpoint_interval=3000", "keep_checkpoints=2")
    more = (*(SETTINGS + s for s in settings), "--seed", "1")
    return results / "debug", palus("debug", *FAST, *more, "--results-dir", results)


@pytest.fixture(scope="module")
def ppo(tmp_path_factory):
    """The same with PPO, its result as JSON."""
    results = tmp_path_factory.mktemp("ppo")
    more = (f"{SETTINGS}trainer_type=ppo", f"{SETTINGS}max_steps=24000", "--seed", "3", "--run-id", "mine")
    return results / "mine", palus("debug", *FAST, *more, "--results-dir", results, "--json")


def tags(folder: Path) -> set[str]:
    return {tag for _, tag, _ in read_values(folder / "SoccerTwos")}


# -- a finished run -----------------------------------------------------------------------------------------------


def test_a_run_leaves_the_documented_folder(poca):
    folder, _ = poca
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    events = {f for f in files if f.startswith("SoccerTwos/events.out.tfevents.")}
    snapshots = {f for f in files if f.startswith("SoccerTwos/snapshots/")}
    assert len(events) == 1
    assert files - events - snapshots == {
        ".palus-files",
        "configuration.yaml",
        "SoccerTwos.onnx",
        "README.md",
        "bundle.json",
        "SoccerTwos/checkpoint.pt",
        "SoccerTwos/payoffs.json",
        "SoccerTwos/policy.npz",
        "SoccerTwos/SoccerTwos-22528.onnx",
        "SoccerTwos/SoccerTwos-24576.onnx",
        "run_logs/training_status.json",
        "run_logs/progress.jsonl",
        "run_logs/timers.json",
        "league/league.json",
    }
    # the window of three, and at most the older ones that a match was still being played against
    assert snapshots >= {f"SoccerTwos/snapshots/snapshot-0000{k}.npz" for k in (4, 5, 6)}
    assert snapshots <= {f"SoccerTwos/snapshots/snapshot-0000{k}.npz" for k in range(7)}


def test_the_status_lists_the_checkpoints_that_are_kept(poca):
    folder, _ = poca
    status = json.loads((folder / "run_logs" / "training_status.json").read_text())
    checkpoints = status["SoccerTwos"]["checkpoints"]
    assert [c["steps"] for c in checkpoints] == [22528, 24576]
    assert [c["file_path"] for c in checkpoints] == [
        str(folder / "SoccerTwos" / f"SoccerTwos-{n}.onnx") for n in (22528, 24576)
    ]
    assert status["SoccerTwos"]["final_checkpoint"]["file_path"] == str(folder / "SoccerTwos.onnx")
    assert status["SoccerTwos"]["elo"] == pytest.approx(1200, abs=50)
    assert (folder / "SoccerTwos.onnx").read_bytes() == (folder / "SoccerTwos" / "SoccerTwos-24576.onnx").read_bytes()


def test_tensorboard_has_the_reference_tags_of_each_trainer(poca, ppo):
    met = {"Self-play/Win Rate/Latest", "Self-play/Win Rate/Window"}  # where there were matches against them
    assert tags(poca[0]) - met == POCA_TAGS
    assert tags(ppo[0]) - met == TAGS


def test_summaries_stand_at_round_steps(poca):
    values = read_values(poca[0] / "SoccerTwos")
    assert [step for step, tag, _ in values if tag == "Policy/Entropy"] == list(range(4000, 24001, 4000))
    entropy = [value for _, tag, value in values if tag == "Policy/Entropy"]
    assert all(3.0 < e <= 3.296 for e in entropy)  # of 3 x 3 actions, at most 3 ln 3


def test_the_console_speaks_as_the_reference_does(poca):
    lines = [line for line in poca[1].stderr.splitlines() if line.startswith("SoccerTwos. Step")]
    body = r"(Mean Reward: -?\d+\.\d{3}\. Mean Group Reward: -?\d+\.\d{3}|No episode was completed since last summary)"
    form = re.compile(
        rf"SoccerTwos\. Step: \d+000\. Time Elapsed: \d+\.\d{{3}} s\. {body}\. Training\. ELO: \d+\.\d{{3}}\."
    )
    assert len(lines) == 6
    assert all(form.fullmatch(line) for line in lines), lines
    assert re.search(
        r"Finished at step 24,576: 24,576 steps in \d\.\d min \([\d,]+ steps/s\)\. Model: ", poca[1].stderr
    )


def test_the_result_as_json_is_all_that_stands_on_stdout(ppo):
    folder, result = ppo
    report = json.loads(result.stdout)
    assert report.keys() == {"model", "steps", "wall_seconds", "finished"}
    assert (report["model"], report["steps"], report["finished"]) == (str(folder / "SoccerTwos.onnx"), 24576, True)
    assert report["wall_seconds"] > 0


def test_the_bundle_says_where_the_policy_comes_from(ppo):
    card = json.loads((ppo[0] / "bundle.json").read_text())
    assert (card["env_id"], card["trainer_type"], card["steps"]) == ("SoccerTwos", "ppo", 24576)
    assert "ML-Agents-SoccerTwos" in (ppo[0] / "README.md").read_text()


def test_the_configuration_keeps_what_was_given(poca, ppo):
    assert load_run(poca[0] / "configuration.yaml").behaviors["SoccerTwos"].keep_checkpoints == 2
    kept = load_run(ppo[0] / "configuration.yaml")
    assert (kept.env_settings.seed, kept.checkpoint_settings.run_id) == (3, "mine")


def test_what_comes_next_is_what_the_game_is_for(tmp_path):
    def commands(*settings: str, behavior: str = "Guard") -> list[str]:
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump({"behaviors": {behavior: {"trainer_type": "ppo"}}}))
        return what_next(load_run(path, settings), Path("results/mine"), Trust(frozenset({"mine"})))

    match = "palus match results/mine goalie-striker"
    assert commands(behavior="SoccerTwos") == [f"{match} --pairs 20 --replay match.match", "palus watch match.match"]
    assert commands(behavior="Goalie")[0] == f"{match} --game StrikersVsGoalie --pairs 20 --replay match.match"
    assert commands("palus.env=doom_duel", behavior="doom_duel") == ["palus enjoy results/mine --trust mine"]
    assert commands("palus.env=mine:Game") == ["palus enjoy results/mine --trust mine"]
    python = ("palus.env=palus.unity.base_env:make", "palus.env_options={factory: mine:Env}")
    assert commands(*python) == ["palus enjoy results/mine --trust mine"]
    assert what_next(load_run("debug"), Path("results/my run"), Trust())[0].startswith("palus match 'results/my run' ")
    assert commands("env_settings.env_path=Game.x86_64") == [
        "give the model to the agents' Behavior Parameters in Unity"
    ]


def test_a_run_is_not_overwritten_by_accident(ppo):
    words = ("debug", *FAST, f"{SETTINGS}trainer_type=ppo", "--run-id", "mine", "--results-dir", ppo[0].parent)
    assert "continue it with --resume, replace it with --force" in palus(*words, code=2).stderr


def test_who_resumes_is_told_what_was_done_since(ppo):
    words = (ppo[0] / "configuration.yaml", *FAST, "--resume")
    longer = (f"{SETTINGS}max_steps=26000", "palus.baselines=[]")
    assert "Finished at step 26,624: 2,048 steps in 0." in palus(*words, *longer).stderr
    assert f"Finished at step 26,624. Model: {ppo[0]}" in palus(*words, *longer).stderr


def test_the_debug_run_replaces_its_own_former_run_and_no_other(tmp_path):
    words = ("debug", *FAST, f"{SETTINGS}max_steps=2048", "--results-dir", tmp_path)
    palus(*words)
    (tmp_path / "debug" / "SoccerTwos" / "notes.txt").write_text("mine")
    palus(*words)
    folder = tmp_path / "debug" / "SoccerTwos"
    kept = sorted(path.name for path in folder.iterdir() if not path.name.startswith("events"))
    assert kept == ["SoccerTwos-2048.onnx", "checkpoint.pt", "notes.txt", "payoffs.json", "policy.npz", "snapshots"]
    assert len(list(folder.glob("events*"))) == 1
    palus(*words, "--run-id", "mine")
    for named in (("--run-id", "mine"), ("checkpoint_settings.run_id=mine",)):
        assert "replace it with --force" in palus(*words, *named, code=2).stderr
    again = (tmp_path / "debug" / "configuration.yaml", "--run-id", "mine", "--results-dir", tmp_path)
    assert "replace it with --force" in palus(*again, code=2).stderr


def test_a_precision_that_this_cpu_is_slow_at_is_warned_of(tmp_path, monkeypatch):
    rates = {"highest": 80.0, "bf16": 20.0}
    monkeypatch.setattr("palus.nn.matmul.measure", lambda name, seconds, device: MatmulPath(name, rates[name], 0.0))
    words = ("debug", "palus.threads=1", "palus.matmul=bf16", f"{SETTINGS}max_steps=0", "--results-dir", tmp_path)
    assert "warning: palus.matmul bf16 makes 20 GFLOP/s on one thread here, highest 80" in palus(*words).stderr


# -- continuing ---------------------------------------------------------------------------------------------------


def test_a_run_with_a_drawn_seed_continues_as_the_same_run(tmp_path):
    length, keep = f"{SETTINGS}max_steps=", f"{SETTINGS}checkpoint_interval=1e9"
    palus("debug", *FAST, keep, f"{length}4096", "--run-id", "cut", "--results-dir", tmp_path)
    configuration = tmp_path / "cut" / "configuration.yaml"
    resumed = palus(configuration, f"{length}8192", "--resume")
    assert "Resuming training from step 4096." in resumed.stderr
    seed = load_run(configuration).env_settings.seed
    assert seed >= 0
    words = ("--run-id", "whole", "--results-dir", tmp_path, "--seed", seed)
    palus("debug", *FAST, keep, f"{length}8192", *words)
    cut, whole = (RunFolder(tmp_path / run_id, ["SoccerTwos"]).load() for run_id in ("cut", "whole"))
    (step, _, learner), (other_step, _, other) = cut["learners"][0], whole["learners"][0]
    assert step == other_step == 8192
    assert cut["seed"] == whole["seed"] == seed
    assert learner["network"].keys() == other["network"].keys()
    assert all(np.array_equal(weights, other["network"][name]) for name, weights in learner["network"].items())
    assert cut["league"] == whole["league"]
    for name in ("cut", "whole"):
        assert load_run(tmp_path / name / "configuration.yaml").env_settings.seed == seed


def test_a_run_goes_on_with_the_steps_it_was_sized_to_and_says_what_else_is_new(tmp_path):
    words = ("debug", *FAST, "--results-dir", tmp_path, "palus.baseline_interval=0")
    file = tmp_path / "debug" / "configuration.yaml"
    palus(*words, f"{SETTINGS}max_steps=2000", "palus.max_minutes=30")  # as --minutes 30 writes them
    for given, steps in ((f"{SETTINGS}hyperparameters.beta=0.25", 2000), (f"{SETTINGS}max_steps=5000", 5000)):
        told = palus(*words, given, "--resume").stderr
        kept = yaml.safe_load(file.read_text())["behaviors"]["SoccerTwos"]
        assert kept["max_steps"] == steps
        assert ("beta: 0.25, until now 0.005" in told) == (steps == 2000)
        assert ("max_steps: 5000, until now 2000" in told) == (steps == 5000)
        assert told.count("until now") == (1 if steps == 2000 else 3), "beta is as the preset has it, no limit of time"


def test_nobody_else_is_in_a_run_from_the_look_whether_it_is_there_on(tmp_path, monkeypatch):
    """Another one that saved and ended in between was replaced, as a run that had never saved."""
    asked = []

    def begins(run, *, resume, **how):
        with pytest.raises(CheckpointError, match="is training just now"):
            Run(run, force=True)
        asked.append(resume)
        return train(run, resume=resume, **how)

    monkeypatch.setattr("palus.train.train", begins)
    small = [f"{SETTINGS}hyperparameters={{buffer_size: 256, batch_size: 128}}", "palus.num_matches=2"]
    words = ["debug", "--resume-if-there", "--results-dir", tmp_path, *FAST, *small, "palus.baseline_interval=0"]
    for steps in (256, 512):
        palus(*words, f"{SETTINGS}max_steps={steps}")
    assert asked == [False, True]


def test_a_check_takes_first_weights_as_the_start_does(ppo, tmp_path: Path) -> None:
    run = (*FAST, f"checkpoint_settings.results_dir={tmp_path}", f"{SETTINGS}trainer_type=ppo", "--check")
    own = f"{SETTINGS}init_path={ppo[0] / 'SoccerTwos' / 'checkpoint.pt'}"
    palus("debug", *run, own)
    told = palus("debug", *run, own, f"{SETTINGS}network_settings.hidden_units=24", code=2).stderr
    assert "override, behaviors.SoccerTwos.init_path" in told and "does not fit behavior SoccerTwos" in told
    assert not list(tmp_path.iterdir())
