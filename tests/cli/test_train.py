"""`palus train`: what it validates, prints and leaves behind, and that a continued run is the same run."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from events import read_values
from typer.testing import CliRunner

from palus.cli import app
from palus.cli.train import what_next
from palus.config import load_run
from palus.errors import CheckpointError
from palus.launch.pace import fitted, fitting_share, scratch
from palus.nn.matmul import MatmulPath
from palus.run.folder import RunFolder
from palus.train import Run, train
from palus.trust import Trust

FAST = ("palus.threads=1", "palus.matmul=highest")
SETTINGS = "behaviors.SoccerTwos."
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


def palus(*words: str | Path, code: int = 0):
    result = CliRunner().invoke(app, ["train", *(str(word) for word in words)])
    assert result.exit_code == code, result.output
    return result


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


# -- minutes ------------------------------------------------------------------------------------------------------


def test_minutes_size_a_run_to_the_machine_and_never_beyond_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    killed = tmp_path / "tmp" / "palus-trial-of-one-that-was-killed"
    killed.mkdir(parents=True)
    os.utime(killed, (time.time() - 100,) * 2)
    words = ("debug", *FAST, "--results-dir", tmp_path / "r", "--check", "--json")
    for wanted, minutes in ((1e12, 0.05), (1024, 60)):
        told = palus(*words, f"{SETTINGS}max_steps={wanted}", "--minutes", minutes)
        configuration = json.loads(told.stdout)["configuration"]
        steps = configuration["behaviors"]["SoccerTwos"]["max_steps"]
        assert configuration["palus"]["max_minutes"] == minutes, "the clock ends what is slower than measured"
        assert f"SoccerTwos: {steps:,} of {int(wanted):,} steps fit into {minutes:g} minutes here." in told.stderr
        assert 1 < steps < 1e8 if wanted == 1e12 else steps == 1024
    assert not (tmp_path / "r").exists(), "measured elsewhere"
    assert not list((tmp_path / "tmp").glob("palus-trial-*")), "and nothing is left there"
    assert fitting_share(1000.0, 10.0, 1e6) == pytest.approx(0.75 * 0.6)  # 600,000 steps at the rate of the start
    assert "--minutes sizes a run before it begins" in palus("debug", "--minutes", 1, "--resume", code=2).output


@pytest.mark.parametrize(("striker", "fits"), [("1e9", 450_000), ("0", 0)])
def test_minutes_leave_a_behavior_that_is_to_learn_nothing_as_it_is(striker, fits, monkeypatch):
    class Measured:
        """Both play a thousand steps an iteration, which takes a second."""

        def __init__(self, run):
            self.trainees = [
                SimpleNamespace(policy=k, name=name, behavior=behavior)
                for k, (name, behavior) in enumerate(run.behaviors.items())
            ]
            self.steps = dict.fromkeys(range(2), 0)

        def iterate(self):
            self.steps = {policy: step + 1000 for policy, step in self.steps.items()}

    seconds = itertools.count()
    monkeypatch.setattr("palus.launch.pace.time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    monkeypatch.setattr("palus.launch.pace.trial", lambda run, trust: nullcontext(Measured(run)))
    settings = ["behaviors.Goalie.max_steps=0", f"behaviors.Striker.max_steps={striker}"]
    sized = fitted(load_run("strikers-vs-goalie", settings), 10.0)
    assert sized.behaviors["Goalie"].max_steps == 0
    assert sized.behaviors["Striker"].max_steps == pytest.approx(fits, abs=1)


def test_what_is_measured_learns_at_once_and_leaves_the_run_s_folder_and_origin_alone(tmp_path):
    sac = "{trainer_type: sac, hyperparameters: {buffer_init_steps: 500}}"
    other = ["checkpoint_settings={initialize_from: first, resume: true}", "palus.baseline_interval=9"]
    run = load_run("debug", [*other, f"default_settings={sac}", f"behaviors.SoccerTwos={sac}"])
    own = scratch(run, str(tmp_path))
    settings = own.checkpoint_settings
    assert (settings.results_dir, settings.initialize_from, settings.resume) == (str(tmp_path), None, False)
    assert own.behaviors["SoccerTwos"].hyperparameters.buffer_init_steps == 0, "not after the minute that is measured"
    assert own.default_settings.hyperparameters.buffer_init_steps == 0
    assert own.palus.baseline_interval == 0


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


# -- validation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["debug", "soccertwos", "soccertwos-demo"])
def test_check_prints_a_configuration_that_loads_to_the_same_run(preset, tmp_path):
    words = (preset, "--check", "--seed", "5", f"{SETTINGS}max_steps=2e6", "palus.threads=1")
    text = palus(*words, "--run-id", "mine", "--results-dir", tmp_path / "r").stdout
    (tmp_path / "printed.yaml").write_text(text)
    given = ["checkpoint_settings={run_id: mine, force: false}", f"checkpoint_settings.results_dir={tmp_path / 'r'}"]
    meant = load_run(preset, [*given, "env_settings.seed=5", f"{SETTINGS}max_steps=2e6", "palus.threads=1"])
    assert load_run(tmp_path / "printed.yaml") == meant
    assert text.endswith("# The run file is valid.\n")
    assert list((tmp_path).iterdir()) == [tmp_path / "printed.yaml"], "nothing was trained"


def test_check_as_json_holds_the_configuration_and_what_it_implies(tmp_path):
    report = json.loads(palus("debug", "--check", "--json").stdout)
    assert report["valid"] is True
    assert "SoccerTwos: beta_schedule constant follows learning_rate_schedule" in report["notes"]
    (tmp_path / "back.yaml").write_text(yaml.safe_dump(report["configuration"]))
    assert load_run(tmp_path / "back.yaml") == load_run("debug")


def test_check_tells_what_this_game_has_no_use_for():
    words = ("palus.sampling.splits=3", "palus.baselines=[]", "palus.baseline_interval=9", f"{SETTINGS}time_horizon=9")
    notes = json.loads(palus("debug", *words, "palus.num_matches=4", "--check", "--json").stdout)["notes"]
    assert [line.partition(";")[0] for line in notes if "no effect" in line] == [
        "palus.sampling.splits has no effect",
        "behaviors.SoccerTwos.time_horizon has no effect",
        "palus.baseline_interval has no effect",
    ]


def test_a_preset_names_its_run_and_a_file_keeps_its_own_name(tmp_path):
    (tmp_path / "mine.yaml").write_text("behaviors: {SoccerTwos: {trainer_type: ppo}}\n")
    named = {}
    for source in ("soccertwos-fast", tmp_path / "mine.yaml"):
        report = json.loads(palus(source, "--check", "--json").stdout)
        named[str(source)] = report["configuration"]["checkpoint_settings"]["run_id"]
    assert list(named.values()) == ["soccertwos-fast", "ppo"]


def test_all_faults_of_a_file_are_told_at_once(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        """
behaviors:
  SoccerTwos:
    trainer_type: poca
    hyperparameters:
      batch_sise: 512
      learning_rate: fast
    network_settings: {hidden_units: 30}
    max_steps: -1
  Goalie:
    trainer_type: ppo
    hyperparameters: {batch_size: 20480, buffer_size: 2048}
chekpoint_settings: {}
"""
    )
    message = palus(path, "palus.threads=many", code=2).stderr
    at = "bad.yaml, behaviors.SoccerTwos"
    for sentence in (
        "bad.yaml, chekpoint_settings: unknown key; did you mean checkpoint_settings?",
        f"{at}.hyperparameters.batch_sise: unknown key; did you mean batch_size?",
        f"{at}.hyperparameters.learning_rate: expected a number, found 'fast'",
        f"{at}.network_settings: hidden_units 30 cannot be split over the 4 attention heads",
        f"{at}.max_steps: expected at least 0, found -1",
        "bad.yaml, behaviors.Goalie.hyperparameters: buffer_size 2048 is smaller than batch_size 20480; "
        "raise buffer_size to a multiple of batch_size",
        "override, palus.threads: expected a whole number, found 'many'",
        "bad.yaml, behaviors.Goalie: SoccerTwos has no behavior of that name; rename it to SoccerTwos",
    ):
        assert sentence in message
    assert message.startswith("error: ")
    assert message.count("\n") == 8


def test_settings_that_palus_cannot_train_with_are_refused_together(tmp_path):
    path = tmp_path / "later.yaml"
    path.write_text(
        "{torch_settings: {device: gpu}, behaviors: {SoccerTwos: {trainer_type: appo, "
        "reward_signals: {curiosity: {}}}}}"
    )
    message = palus(path, "--check", code=2).stderr
    for sentence in (
        "torch_settings.device gpu: no device that palus computes on; use cpu, cuda, cuda:1 (the second of several)",
        "behaviors.SoccerTwos.reward_signals.curiosity: appo learns from extrinsic alone",
        "behaviors.SoccerTwos.reward_signals.extrinsic: appo learns from it alone",
    ):
        assert sentence in message


def test_check_says_what_the_start_would_die_of_beside_the_faults_of_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        """
behaviors:
  SoccerTwo:
    trainer_type: poca
    hyperparameters: {batch_sise: 512}
environment_parameters: {bal_touch: 0.2}
palus: {env: SoccerTwos, env_options: {wad: x}, baselines: [nobody]}
"""
    )
    lines = palus(path, "--check", code=2).stderr.removeprefix("error: ").replace("run.yaml, ", "").splitlines()
    assert [line.split(";")[0] for line in lines] == [
        "behaviors.SoccerTwo.hyperparameters.batch_sise: unknown key",
        "palus.env_options: game SoccerTwos refuses its options: wad: no such option",
        "behaviors.SoccerTwo: SoccerTwos has no behavior of that name",
        "environment_parameters: SoccerTwos: no environment parameter 'bal_touch'",
        "palus.baselines: nobody: no such player",
    ]
    assert "did you mean SoccerTwos?" in lines[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("debug", "palus.env=doom_basic"), "behaviors.SoccerTwos.self_play: doom_basic has one side only"),
        (("debug", "palus.env=SocerTwos"), "palus.env: unknown game 'SocerTwos'; did you mean SoccerTwos?"),
        (("debug", "palus.env=RescueToy"), "behaviors.SoccerTwos.self_play: RescueToy has one side only"),
        (
            ("debug", "palus.env_options={kick_point: foot, threads: 0.5}"),
            "palus.env_options: game SoccerTwos refuses its options: kick_point: Input should be 'ball' or 'agent', "
            "found 'foot'; threads: Input should be a valid integer",
        ),
        (
            ("debug", "behaviors.SoccerTwos.behavioral_cloning.demo_path=x.demo"),
            "behaviors.SoccerTwos.behavioral_cloning.demo_path: x.demo: no such file or folder; demo_path",
        ),
        (("debug", "env_settings.env_path=Builds/Nowhere"), "env_settings.env_path Builds/Nowhere: no executable"),
        (("debug", "--env", "Builds/Nowhere"), "env_settings.env_path Builds/Nowhere: no executable"),
        (("doom-basic", "palus.env=SoccerTwos"), "behaviors.doom_basic: SoccerTwos has no behavior of that name"),
        (
            ("doom-basic", "palus.env_options.wat=1"),
            "palus.env_options: game doom_basic refuses its options: wat: no such option; did you mean wad?",
        ),
        (("doom-basic", "behaviors.doom_basic.self_play={}"), "doom_basic.self_play: doom_basic has one side only"),
        (
            ("doom-basic", "palus.sampling.workers=7"),
            "agents, which palus.sampling cannot divide into 7 workers x any",
        ),
    ],
)
def test_check_asks_the_game(words, message, tmp_path):
    if words[0].startswith("doom"):
        pytest.importorskip("vizdoom")
    assert message in palus(*words, "--check", code=2).stderr


@pytest.mark.parametrize("command", [["train"], ["league"], ["sweep", "--space", "space.yaml"]])
def test_a_program_that_only_a_run_file_names_is_not_started(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    game = tmp_path / "Game.sh"
    game.write_text("#!/bin/sh\ntouch started")
    game.chmod(0o755)
    file = tmp_path / "their.yaml"
    file.write_text(f"env_settings: {{env_path: {game}}}\nbehaviors: {{Guard: {{trainer_type: ppo}}}}")
    (tmp_path / "space.yaml").write_text("behaviors.Guard.hyperparameters.beta: {uniform: [0.001, 0.01]}")
    told = CliRunner().invoke(app, [command[0], "their.yaml", *command[1:]])
    assert told.exit_code == 2 and "would start the program" in told.stderr and "nothing was started" in told.stderr
    assert not (tmp_path / "started").exists()


def test_defaults_without_a_behavior_are_no_run(tmp_path):
    (tmp_path / "defaults.yaml").write_text("default_settings: {trainer_type: poca}")
    message = palus(tmp_path / "defaults.yaml", "--check", code=2).stderr
    assert "behaviors: default_settings alone names nothing to train; add a behavior of the game" in message


def test_a_source_that_does_not_exist_is_named(tmp_path):
    assert "soccertows" in palus("soccertows", "--check", code=2).stderr
    message = palus("debug", "--resume", "--results-dir", tmp_path, code=2).stderr
    assert "nothing to resume" in message


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


def test_a_file_of_a_unity_game_is_checked_without_the_game(tmp_path: Path) -> None:
    file = tmp_path / "menu.yaml"
    file.write_text("{behaviors: {MenuToy: {trainer_type: ppo}}, env_settings: {num_envs: 2, timeout_wait: 9}}")
    checked = CliRunner().invoke(app, ["train", str(file), "--check"])
    assert checked.exit_code == 0 and "name it: --env PATH" in checked.output, checked.output
    assert "has no effect" not in checked.output  # these are about such games
    sized = CliRunner().invoke(app, ["train", str(file), "--check", "--minutes", "1"])
    assert sized.exit_code == 2 and "--minutes measures the game; name it" in " ".join(sized.output.split())
    started = CliRunner().invoke(app, ["train", str(file)])
    assert started.exit_code == 2 and "--env PATH" in started.output


def test_a_check_names_first_weights_that_are_not_there(tmp_path: Path) -> None:
    run = ["train", "debug", f"checkpoint_settings.results_dir={tmp_path}", "--check"]
    gone, lost = "behaviors.SoccerTwos.init_path=gone.pt", "checkpoint_settings.initialize_from=lost"
    for override, told in (
        (gone, "behaviors.SoccerTwos.init_path gone.pt: no such file, or not a .pt; give a checkpoint.pt."),
        (lost, f"{tmp_path}/lost: no such run to initialize from; give the run id of one in {tmp_path}."),
    ):
        checked = CliRunner().invoke(app, [*run, override])
        assert checked.exit_code == 2 and told in checked.output.replace("\n", " "), checked.output
        resumed = CliRunner().invoke(app, [*run, override, "--resume"])  # which takes the run's own
        assert resumed.exit_code == 0, resumed.output
        checkpoint = tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt"
        for there in (False, True):
            if there:
                checkpoint.parent.mkdir(parents=True, exist_ok=True)
                checkpoint.touch()
            checked = CliRunner().invoke(app, [*run, override, "--resume-if-there"])
            assert checked.exit_code == (0 if there else 2), checked.output
        checkpoint.unlink()
    file = tmp_path / "defaults.yaml"
    file.write_text("{default_settings: {trainer_type: ppo, init_path: gone.pt}, palus: {env: SoccerTwos}}")
    checked = CliRunner().invoke(app, ["train", str(file), "--check"])
    assert checked.exit_code == 2 and "init_path gone.pt: no such file" in checked.output.replace("\n", " ")


def test_a_check_takes_first_weights_as_the_start_does(ppo, tmp_path: Path) -> None:
    run = (*FAST, f"checkpoint_settings.results_dir={tmp_path}", f"{SETTINGS}trainer_type=ppo", "--check")
    own = f"{SETTINGS}init_path={ppo[0] / 'SoccerTwos' / 'checkpoint.pt'}"
    palus("debug", *run, own)
    told = palus("debug", *run, own, f"{SETTINGS}network_settings.hidden_units=24", code=2).stderr
    assert "override, behaviors.SoccerTwos.init_path" in told and "does not fit behavior SoccerTwos" in told
    assert not list(tmp_path.iterdir())


def test_a_check_reads_demonstrations_to_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "Mine.demo"
    recorded = CliRunner().invoke(app, ["record", "ball-chaser", str(file), "--game", "SoccerTwos", "--episodes", "1"])
    assert recorded.exit_code == 0, recorded.output
    run = ("debug", *FAST, f"{SETTINGS}behavioral_cloning.demo_path={file}", "--check")
    palus(*run)
    file.write_bytes(file.read_bytes()[:9000])
    told = palus(*run, code=2).stderr
    assert f"override, behaviors.SoccerTwos.behavioral_cloning.demo_path: {file}: record " in told
    assert "is no message of a demonstration, or one cut short" in told


def test_a_check_makes_the_networks_that_the_start_makes(tmp_path: Path) -> None:
    run = (*FAST, f"checkpoint_settings.results_dir={tmp_path}", "--check")
    symmetric = "network_settings.symmetric=true"
    palus("debug", *run, f"{SETTINGS}{symmetric}")
    told = palus("debug", *run, f"{SETTINGS}{symmetric}", f"{SETTINGS}network_settings.hidden_units=33", code=2).stderr
    assert "network_settings.symmetric: SoccerTwos has layers of odd width" in " ".join(told.split())
    file = tmp_path / "duel.yaml"
    file.write_text("{behaviors: {DuelToy: {trainer_type: ppo}}, palus: {env: DuelToy}}")
    told = palus(file, f"behaviors.DuelToy.{symmetric}", "--check", code=2).stderr
    assert "DuelToy has no mirror image" in " ".join(told.split())
    assert list(tmp_path.iterdir()) == [file]
