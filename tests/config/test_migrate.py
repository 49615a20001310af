"""Run files of older ML-Agents: each format is recognised, refused with one sentence, and translated as a whole.

The texts have the structure and numbers of that time's files, in as few keys as show every rule.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from palus.cli import app
from palus.config import RunFile, load_run
from palus.config.migrate import old_format
from palus.errors import ConfigError

FLAT = """
default:
    trainer: ppo
    batch_size: 1024
    beta: 5.0e-3
    buffer_size: 10240
    epsilon: 0.2
    hidden_units: 128
    lambd: 0.95
    learning_rate: 3.0e-4
    learning_rate_schedule: linear
    max_steps: 5.0e5
    memory_size: 128
    normalize: false
    num_epoch: 3
    num_layers: 2
    time_horizon: 64
    sequence_length: 64
    summary_freq: 10000
    use_recurrent: false
    vis_encode_type: simple
    reward_signals:
        extrinsic: {strength: 1.0, gamma: 0.99}
Wall:
    max_steps: 5e6
    batch_size: 128
    buffer_size: 2048
Hall:
    use_recurrent: true
    sequence_length: 32
    num_layers: 1
    batch_size: 64
    reward_signals:
        curiosity: {strength: 0.02, gamma: 0.99, encoding_size: 256}
Tennis:
    learning_rate_schedule: constant
    self_play: {window: 10, play_against_current_self_ratio: 0.3, save_steps: 50000, swap_steps: 50000}
Twin: Tennis
Crawler:
    trainer: sac
    train_interval: 2
    num_update: 4
    init_entcoef: 0.5
    gamma: 0.9
"""
SAMPLERS = """
resampling-interval: 5000
mass: {sampler-type: uniform, min_value: 0.5, max_value: 10}
scale: {sampler-type: multirange_uniform, intervals: [[1, 2], [4, 5]]}
"""
CURRICULUM = """
Wall:
    measure: progress
    thresholds: [0.1, 0.3]
    min_lesson_length: 100
    signal_smoothing: true
    parameters:
        low: [0.0, 4.0, 6.0]
        mass: [1, 2, 3]
Hall:
    thresholds: [0.5]
    parameters: {high: [1, 2]}
"""
MIDDLE = """
behaviors:
    Wall: {trainer_type: ppo, max_steps: 1000, self_play: {play_against_current_self_ratio: 0.2, swap_steps: 9}}
parameter_randomization:
    mass: {sampler-type: gaussian, mean: 2, st_dev: 0.5}
curriculum:
    Wall: {measure: reward, thresholds: [0.5], parameters: {low: [0, 1]}}
"""
ONE_KEY = """
behaviors: {Wall: {trainer_type: ppo}}
environment_parameters:
    low:
        curriculum:
            - Lesson0: {completion_criteria: {behavior: Wall, measure: progress, threshold: 0.1}, value: 1}
            - Lesson1: {value: {sampler_type: uniform, sampler_parameters: {min_value: 2, max_value: 3}}}
    fixed: 3
"""
OLD_RATIO = """
behaviors: {Wall: {trainer_type: ppo, self_play: {play_against_current_self_ratio: 0.2, swap_steps: 9}}}
default_settings: {trainer_type: ppo, self_play: {play_against_current_self_ratio: 0.3}}
"""
TODAY = "{behaviors: {Wall: {trainer_type: ppo}}, environment_parameters: {low: {curriculum: [{name: a, value: 1}]}}}"


def migrated(folder: Path, text: str, **beside: str) -> tuple[RunFile, str]:
    (folder / "old.yaml").write_text(text)
    words = ["migrate", str(folder / "old.yaml"), "--output", str(folder / "new.yaml")]
    for name, content in beside.items():
        (folder / f"{name}.yaml").write_text(content)
        words += [f"--{name}", str(folder / f"{name}.yaml")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return load_run(folder / "new.yaml"), result.stderr


def test_a_flat_file_is_written_out_behavior_by_behavior(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, FLAT)
    wall, hall, tennis, twin, crawler = (run.behaviors[name] for name in ("Wall", "Hall", "Tennis", "Twin", "Crawler"))
    assert (wall.max_steps, wall.hyperparameters.batch_size, wall.hyperparameters.buffer_size) == (5_000_000, 128, 2048)
    assert (wall.summary_freq, wall.hyperparameters.beta, wall.network_settings.memory) == (10000, 0.005, None)
    assert hall.network_settings.memory is not None
    assert (hall.network_settings.memory.sequence_length, hall.network_settings.memory.memory_size) == (32, 128)
    assert hall.network_settings.num_layers == 1
    assert hall.reward_signals.extrinsic is None  # a section took the place of the default's as a whole
    assert hall.reward_signals.curiosity.network_settings.hidden_units == 256
    assert "&id" not in (tmp_path / "new.yaml").read_text()  # no aliases
    assert tennis == twin and tennis.self_play.play_against_latest_model_ratio == 0.3
    assert crawler.trainer_type == "sac" and crawler.hyperparameters.steps_per_update == 0.5
    assert crawler.hyperparameters.init_entcoef == 0.5
    for line in (
        "default -> written into every behavior",
        "Twin -> the keys of Tennis",
        "Wall.trainer -> behaviors.Wall.trainer_type ppo",
        "Hall.(memory_size, sequence_length) -> behaviors.Hall.network_settings.memory",
        "Crawler.train_interval / num_update -> behaviors.Crawler.hyperparameters.steps_per_update 0.5",
        "Crawler.(gamma) -> left out; sac does not have them",
        "behaviors.Tennis.self_play.play_against_current_self_ratio -> play_against_latest_model_ratio",
        "behaviors.Tennis.self_play.swap_steps 50000 stays; it counts the ghost's steps now",
    ):
        assert line in told


OLDEST = """
default: {trainer: ppo, batch_size: 1024, buffer_size: 10240, gamma: 0.99, use_curiosity: false,
    curiosity_strength: 0.01, curiosity_enc_size: 128, sequence_length: 64, num_layers: 2, tau: 0.1}
Grid: {gamma: 0.9, use_curiosity: true, curiosity_strength: 0.02, hidden_units: 64}
Hall: {curiosity_strength: 0.5, sequence_length: 32, tau: 0.2, brain: B}
Wall: {reward_signals: {extrinsic: {strength: 2.0}}, gamma: 0.8}
Student: {trainer: imitation, brain_to_imitate: T}
Own: {trainer: mine}
"""


def test_flat_rewards_become_reward_signals(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, OLDEST)
    grid, hall, wall = (run.behaviors[name].reward_signals for name in ("Grid", "Hall", "Wall"))
    assert (grid.extrinsic.strength, grid.extrinsic.gamma) == (1.0, 0.9)
    assert (grid.curiosity.strength, grid.curiosity.gamma) == (0.02, 0.9)
    assert grid.curiosity.network_settings.hidden_units == 128
    assert (hall.extrinsic.gamma, hall.curiosity) == (0.99, None)
    assert (wall.extrinsic.strength, wall.extrinsic.gamma) == (2.0, 0.99), "which has its own words for them"
    for line in (
        "Grid.gamma -> behaviors.Grid.reward_signals.extrinsic.gamma",
        "Grid.(use_curiosity, curiosity_strength, curiosity_enc_size) -> behaviors.Grid.reward_signals.curiosity",
        "Wall.(gamma) -> left out; ppo does not have them",
    ):
        assert line in told
    assert "old word" not in told


def test_curiosity_alone_keeps_the_reward_of_the_game(tmp_path: Path) -> None:
    run, _ = migrated(tmp_path, "default: {trainer: ppo, use_curiosity: true, hidden_units: 16}")
    assert run.default_settings.reward_signals.extrinsic.strength == 1.0
    assert run.default_settings.reward_signals.curiosity is not None


def test_what_a_behavior_itself_has_and_nothing_reads_is_told_though_the_default_has_it_too(tmp_path: Path) -> None:
    _, told = migrated(tmp_path, OLDEST)
    for line in (
        "Hall.(curiosity_strength) -> left out; without use_curiosity there is no curiosity",
        "Hall.(sequence_length) -> left out; without use_recurrent there is no memory",
        "Hall.(tau, brain) -> left out; ppo does not have them",
        "default.(sequence_length, tau) -> left out; no behavior has a use for them",
    ):
        assert line in told
    assert "Grid.(tau" not in told and "Grid.(sequence_length" not in told


def test_of_a_key_that_is_given_twice_the_last_counts_and_is_told(tmp_path: Path) -> None:
    text = FLAT.replace("    sequence_length: 32\n", "    sequence_length: 16\n    sequence_length: 32\n")
    run, told = migrated(tmp_path, text)
    memory = run.behaviors["Hall"].network_settings.memory
    assert memory is not None and memory.sequence_length == 32
    assert told.startswith("old.yaml, line 31: sequence_length is given twice, first in line 30; the last counts\n")
    with pytest.raises(ConfigError, match=r"^old\.yaml: in the format of ML-Agents up to 0\.16; translate it first"):
        load_run(tmp_path / "old.yaml")


def test_a_trainer_that_palus_has_not_is_named(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, OLDEST)
    assert run.behaviors["Student"].trainer_type == run.behaviors["Own"].trainer_type == "ppo"
    assert "Student.trainer imitation -> ppo; the trainer is gone, use behavioral_cloning" in told
    assert "Own.trainer mine -> ppo; palus has no such trainer" in told


SAC = """
Both: {trainer: sac, train_interval: 4, num_update: 2, reward_signal_num_update: 8}
Interval: {trainer: sac, train_interval: 3}
Signals: {trainer: sac, reward_signal_num_update: 2, batch_size: 64}
Own: {trainer: sac, train_interval: 3, steps_per_update: 5}
"""


def test_updates_of_sac_become_steps_per_update(tmp_path: Path) -> None:
    hyper = {name: own.hyperparameters for name, own in migrated(tmp_path, SAC)[0].behaviors.items()}
    assert {name: (own.steps_per_update, own.reward_signal_steps_per_update) for name, own in hyper.items()} == {
        "Both": (2.0, 0.5), "Interval": (3.0, 3.0), "Signals": (1.0, 0.5), "Own": (5.0, 5.0)
    }  # fmt: skip


def test_a_default_alone_stays_one(tmp_path: Path) -> None:
    run, _ = migrated(tmp_path, "default: {trainer: sac, batch_size: 64, hidden_units: 16}")
    assert run.behaviors == {} and run.default_settings is not None
    assert (run.default_settings.trainer_type, run.default_settings.network_settings.hidden_units) == ("sac", 16)


def test_samplers_and_curricula_of_files_beside_become_environment_parameters(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, FLAT, sampler=SAMPLERS, curriculum=CURRICULUM)
    parameters = run.environment_parameters or {}
    assert str(parameters["mass"]) == "Uniform sampler: min=0.5, max=10.0"  # the sampler wins over the curriculum
    assert str(parameters["scale"]) == "MultiRangeUniform sampler: intervals=[(1.0, 2.0), (4.0, 5.0)]"
    low, high = (parameters[name].curriculum for name in ("low", "high"))
    assert [(lesson.name, lesson.value) for lesson in low] == [("Lesson0", 0.0), ("Lesson1", 4.0), ("Lesson2", 6.0)]
    first = low[0].completion_criteria
    assert (first.behavior, first.measure, first.threshold) == ("Wall", "progress", 0.1)
    assert (first.min_lesson_length, first.signal_smoothing) == (100, True)
    plain = high[0].completion_criteria
    assert (plain.measure, plain.min_lesson_length, plain.signal_smoothing) == ("reward", 1, False)
    assert low[2].completion_criteria is None
    assert "resampling-interval -> left out; it is no sampler" in told


@pytest.mark.parametrize("given", ["folder", "folder/Wall.json"])
def test_a_curriculum_of_its_own_file_is_that_of_the_behavior_that_it_is_called_after(
    given: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    text = '{"measure": "progress", "thresholds": [0.1, 0.3],\n\t"parameters": {\n\t\t"low": [0.0, 4.0, 6.0]\n\t}}'
    (tmp_path / "folder" / "Wall.json").write_text(text)
    (tmp_path / "old.yaml").write_text(FLAT)
    words = ["migrate", str(tmp_path / "old.yaml"), "--curriculum", str(tmp_path / given)]
    done = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "new.yaml")])
    assert "Wall: thresholds of low -> environment_parameters.low.curriculum" in done.stderr
    lessons = (load_run(tmp_path / "new.yaml").environment_parameters or {})["low"].curriculum
    assert [lesson.value for lesson in lessons] == [0.0, 4.0, 6.0]
    assert (lessons[1].completion_criteria.behavior, lessons[1].completion_criteria.threshold) == ("Wall", 0.3)


def test_what_is_no_curriculum_is_told(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, FLAT, curriculum="Wall: {max_steps: 5}\nHall: 3")
    assert run.environment_parameters is None
    assert "Wall -> left out; it is no curriculum\nHall -> left out; it is no curriculum" in told


def test_the_format_between_keeps_its_behaviors(tmp_path: Path) -> None:
    run, _ = migrated(tmp_path, MIDDLE)
    assert str(run.environment_parameters["mass"]) == "Gaussian sampler: mean=2.0, stddev=0.5"
    assert len(run.environment_parameters["low"].curriculum) == 2
    assert run.behaviors["Wall"].max_steps == 1000
    assert run.behaviors["Wall"].self_play.play_against_latest_model_ratio == 0.2


def test_a_file_beside_goes_before_what_the_run_file_says_itself(tmp_path: Path) -> None:
    own = {
        "sampler": "mass: {sampler-type: uniform, min_value: 1, max_value: 3}",
        "curriculum": "Wall: {thresholds: [0.5], parameters: {low: [7, 8]}}",
    }
    parameters = migrated(tmp_path, MIDDLE, **own)[0].environment_parameters or {}
    assert str(parameters["mass"]) == "Uniform sampler: min=1.0, max=3.0"
    assert [lesson.value for lesson in parameters["low"].curriculum] == [7.0, 8.0]


def test_an_old_ratio_alone_is_renamed_wherever_it_stands(tmp_path: Path) -> None:
    run, told = migrated(tmp_path, OLD_RATIO)
    wall, default = run.behaviors["Wall"].self_play, run.default_settings.self_play
    assert (wall.play_against_latest_model_ratio, wall.swap_steps) == (0.2, 9)
    assert default.play_against_latest_model_ratio == 0.3
    assert "behaviors.Wall.self_play.swap_steps 9 stays; it counts the ghost's steps now" in told


def test_lessons_of_one_key_get_names(tmp_path: Path) -> None:
    run, _ = migrated(tmp_path, ONE_KEY)
    assert [lesson.name for lesson in run.environment_parameters["low"].curriculum] == ["Lesson0", "Lesson1"]
    assert run.environment_parameters["fixed"] == 3.0


@pytest.mark.parametrize(
    ("text", "versions"), [(FLAT, "up to 0.16"), (MIDDLE, "0.16 to 0.18"), (ONE_KEY, "0.18 to 0.20")]
)
def test_an_old_file_gets_one_sentence(text: str, versions: str, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_run(tmp_path / "old.yaml")
    command = f"palus migrate {tmp_path / 'old.yaml'} --output NEW.yaml"
    assert str(caught.value) == f"old.yaml: in the format of ML-Agents {versions}; translate it first: {command}"


def test_todays_files_are_not_old(tmp_path: Path) -> None:
    assert old_format(yaml.safe_load(TODAY)) is None
    assert old_format({"behavior": {"SoccerTwos": {"trainer_type": "ppo"}}}) is None  # a slip, told as such
    assert old_format({"A": {"batch_size": 64}}) is None
    assert old_format({"A": {"batch_size": 64, "hidden_units": 16}}) == "up to 0.16"  # without a trainer, too
    (tmp_path / "new.yaml").write_text(TODAY)
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "new.yaml")])
    assert result.exit_code == 2 and "nothing to translate" in result.output


def test_without_output_the_file_is_printed_and_an_output_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(ONE_KEY)
    printed = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml")])
    assert list(yaml.safe_load(printed.stdout)) == ["behaviors", "environment_parameters"]
    again = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml"), "--output", str(tmp_path / "old.yaml")])
    assert again.exit_code == 2 and (tmp_path / "old.yaml").read_text() == ONE_KEY


def test_what_is_still_wrong_is_said(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(FLAT.replace("batch_size: 128", "batch_size: many"))
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml")])
    assert result.exit_code == 2 and "Wall.hyperparameters.batch_size: expected a whole number" in result.output


def test_who_migrates_a_file_that_is_not_there_hears_of_no_presets(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["migrate", str(tmp_path / "old")])
    assert (done.exit_code, done.stderr) == (2, f"error: {tmp_path / 'old'}: no such file\n")
    done = CliRunner().invoke(app, ["migrate", "nowhere"])
    assert (done.exit_code, done.stderr) == (2, "error: nowhere: no such file\n")
