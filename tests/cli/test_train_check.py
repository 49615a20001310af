"""What `palus train` refuses before it begins, and `--check`, which tells as much, all at once, and trains nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from train_command import FAST, SETTINGS, palus
from typer.testing import CliRunner

from palus.cli import app
from palus.config import load_run


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
