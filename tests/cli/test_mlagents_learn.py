"""`mlagents-learn`: its flags, which value wins, and its lines, as golden text written from ML-Agents' facts."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from palus.cli import app
from palus.cli.mlagents_learn import FLAGS, RETIRED, _parser, _run_file, learn, run_experiment
from palus.config import RunFile

GOLDEN = Path(__file__).parent / "data" / "mlagents_learn.txt"
RUN = """
behaviors:
  SoccerTwos:
    trainer_type: ppo
    hyperparameters: {batch_size: 128, buffer_size: 256, learning_rate_schedule: constant}
    network_settings: {hidden_units: 8, num_layers: 1}
    max_steps: 600
    summary_freq: 256
environment_parameters: {ball_touch: 0.5}
env_settings: {seed: 3, base_port: 6000}
engine_settings: {time_scale: 3}
palus: {num_matches: 2, baselines: [], env_options: {max_steps: 50}, matmul: highest, threads: 1}
"""
VALUES = {str: "x", int: "7", float: "7.5"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN)
    return tmp_path


def run_of(*words: str):
    given = vars(_parser().parse_args(["run.yaml", *words]))
    return _run_file(given.pop("trainer_config_path"), given)


def shown(output: str) -> str:
    """Output without what differs from run to run and from machine to machine."""
    output = re.sub(r"(PyTorch|palus): .*", r"\1: V", output)
    return re.sub(r"Time Elapsed: [\d.]+ s", "Time Elapsed: T s", re.sub(r"-?\d+\.\d{3}\b", "R", output))


def test_there_are_31_flags() -> None:
    assert len({*FLAGS, *RETIRED, "--env-args"}) == 31


@pytest.mark.parametrize("flag", sorted(flag for flag, (key, *_) in FLAGS.items() if key and "env" not in flag))
def test_a_flag_stands_above_the_file_and_its_default_does_not(flag: str, here: Path) -> None:
    key, kind, _ = FLAGS[flag]
    section, _, name = key.rpartition(".")
    Path("x").mkdir()  # a run of that id
    if flag == "--torch-device":
        words, expected = [flag, "cpu"], "cpu"
    elif kind is bool:
        words, expected = [flag], True
    else:
        words, expected = [f"{flag}={VALUES[kind]}"], kind(VALUES[kind])
    run, plain = run_of(*words), run_of()
    found = [getattr(getattr(r, section) if section else r, name) for r in (run, plain)]
    assert found[0] == expected != found[1]
    assert (plain.env_settings.base_port, plain.engine_settings.time_scale) == (6000, 3.0)


def test_what_the_memory_does_not_hold_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text(RUN.replace("num_matches: 2", f"num_matches: {10**15}"))
    assert learn(["run.yaml"]) == 2
    assert "error: out of memory: Unable to allocate" in capsys.readouterr().err


def test_prefixes_are_enough_where_they_are_unambiguous(here: Path) -> None:
    run = run_of("--run-i=a", "--resul=out", "--see", "5")
    assert (run.checkpoint_settings.run_id, run.checkpoint_settings.results_dir, run.env_settings.seed) == (
        "a",
        "out",
        5,
    )
    with pytest.raises(SystemExit):
        run_of("--resu")
    with pytest.raises(SystemExit):
        run_of("--no-g")  # --no-graphics is a flag itself, this one is not
    with pytest.raises(SystemExit):
        run_of("--unknown")


def test_the_default_of_a_flag_that_is_given_stands_above_the_file_too(here: Path) -> None:
    assert run_of("--base-port=5005", "--time-scale=20").env_settings.base_port == 5005


def test_what_a_flag_says_may_be_any_character(here: Path) -> None:
    run = run_of("--run-id=fußball \U0001f600", "--results-dir=\U0001f3ae")
    assert (run.checkpoint_settings.run_id, run.checkpoint_settings.results_dir) == ("fußball \U0001f600", "\U0001f3ae")


def test_env_args_take_the_rest(here: Path) -> None:
    given = vars(_parser().parse_args(["run.yaml", "--env=Game", "--env-args", "--fast", "--run-id=3"]))
    assert given["env_args"] == ["--fast", "--run-id=3"] and "run_id" not in given


def test_deterministic_is_for_every_behavior(here: Path) -> None:
    assert run_of("--deterministic").behaviors["SoccerTwos"].network_settings.deterministic
    assert not run_of().behaviors["SoccerTwos"].network_settings.deterministic


def test_resume_and_initialize_from(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of("--resume", "--initialize-from=a")
    assert "initialize_from a is ignored" in capsys.readouterr().out
    Path("run.yaml").write_text(RUN + "checkpoint_settings: {resume: true}\n")
    assert not run_of("--initialize-from=a").checkpoint_settings.resume
    assert "The file's resume is ignored" in capsys.readouterr().out
    Path("run.yaml").write_text(RUN + "checkpoint_settings: {resume: true, initialize_from: a}\n")
    assert run_of().checkpoint_settings.resume
    assert "initialize_from a is ignored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--num-envs=2", "3DBall.yaml"], "unrecognized arguments: 3DBall.yaml"),
        (["--num-areas=0"], "num_areas: expected more than 0"),
        (["--torch-device=gpu"], "torch_settings.device gpu: no device that palus computes on"),
        (["--timeout-wait=long"], "invalid int value"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    words: list[str], sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = learn(["run.yaml", *words])
    except SystemExit as error:
        code = error.code
    assert code == 2 and sentence in " ".join(capsys.readouterr().err.split())


def test_a_run_prints_what_ml_agents_prints(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn(["run.yaml", "--run-id=first"]) == 0
    first = shown(capsys.readouterr().out)
    assert learn(["run.yaml", "--run-id=first"]) == 2
    assert "a run of this id exists" in capsys.readouterr().err
    assert learn(["results/first/configuration.yaml", "--run-id=second", "--initialize-from=first"]) == 0
    second = shown(capsys.readouterr().out)
    assert learn(["run.yaml", "--run-id=first", "--load", "--train", "--torch"]) == 0
    third = shown(capsys.readouterr().out)
    told = "\n".join([first, *(re.sub(r"\n\t.*", "", text) for text in (second, third))])
    assert told == GOLDEN.read_text()
    assert yaml.safe_load((here / "results/second/configuration.yaml").read_text())["behaviors"]["SoccerTwos"][
        "init_path"
    ] == str(Path("results/first/SoccerTwos/checkpoint.pt"))
    assert run_experiment(["results/first/configuration.yaml"]) == 2  # that run is there, and nobody said --resume
    assert (
        "This command has no flags: write resume, force or another run_id into checkpoint_settings of results/first"
        in capsys.readouterr().err
    )
    Path("lost.yaml").write_text("{behaviors: {SoccerTwos: {init_path: gone.pt}}, checkpoint_settings: {run_id: new}}")
    assert run_experiment(["lost.yaml"]) == 2 and "flags" not in capsys.readouterr().err
    assert learn(["results/first/configuration.yaml", "--force"]) == 0


def test_ctrl_c_ends_with_a_model_and_without_a_fault(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from palus.train import Run

    iterate = Run.iterate
    monkeypatch.setattr(Run, "iterate", lambda parts: (iterate(parts), signal.raise_signal(signal.SIGINT))[0])
    assert learn(["run.yaml", "--run-id=stopped"]) == 0
    told = capsys.readouterr().out.splitlines()[-3:]
    assert told == [
        "[INFO] Learning was interrupted. Please wait while the graph is generated.",
        "[INFO] Exported results/stopped/SoccerTwos/SoccerTwos-256.onnx",
        "[INFO] Copied results/stopped/SoccerTwos/SoccerTwos-256.onnx to results/stopped/SoccerTwos.onnx.",
    ]


def test_palus_train_names_the_command_that_has_a_flag(here: Path) -> None:
    for flag in ("--width=9", "--torch-device", "--num-envs"):
        result = CliRunner().invoke(app, ["train", "run.yaml", flag])
        assert result.exit_code == 2 and "is a flag of mlagents-learn" in result.output
    assert "mlagents-learn" not in CliRunner().invoke(app, ["train", "run.yaml", "--runid=3"]).output


@pytest.mark.parametrize(("words", "path"), [([], "UnityEditor"), (["--env=Game"], "Game")])
def test_without_a_file_and_a_game_every_behavior_of_the_editors_has_ppos_defaults(
    words: list[str], path: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[RunFile] = []
    Path("Game").touch()
    monkeypatch.setattr("palus.train.train", lambda run, **more: started.append(run))
    assert learn(words) == 0
    told = capsys.readouterr().out
    assert "[WARNING] No trainer configuration was given" in told
    assert "Listening" not in told  # nobody does yet
    (run,) = started
    assert (run.env_settings.env_path, run.behaviors) == (path, {})
    assert run.default_settings is not None and run.default_settings.trainer_type == "ppo"
    assert learn(["--num-envs=2"]) == 2 and "there is one Editor" in capsys.readouterr().err
