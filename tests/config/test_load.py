"""What a run file means: reference configurations, defaults, conversions, overrides."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from palus.config import RunFile, load_run, preset_names
from palus.config.environment import UniformSampler
from palus.config.load import changes
from palus.config.trainer import OnPolicyBehavior, PocaBehavior, PpoBehavior, SacBehavior
from palus.errors import ConfigError

DATA = Path(__file__).parent / "data"


def soccer(run: RunFile) -> OnPolicyBehavior:
    behavior = run.behaviors["SoccerTwos"]
    assert isinstance(behavior, OnPolicyBehavior)
    return behavior


def test_the_course_configuration_means_what_it_means_in_ml_agents() -> None:
    behavior = soccer(load_run(DATA / "course.yaml"))
    hyper = behavior.hyperparameters
    assert behavior.trainer_type == "poca"
    assert (hyper.batch_size, hyper.buffer_size, hyper.num_epoch) == (2048, 20480, 3)
    assert (hyper.learning_rate, hyper.beta, hyper.epsilon, hyper.lambd) == (3e-4, 0.005, 0.2, 0.95)
    assert (hyper.learning_rate_schedule, hyper.beta_schedule, hyper.epsilon_schedule) == ("constant",) * 3
    network = behavior.network_settings
    assert (network.normalize, network.hidden_units, network.num_layers) == (False, 512, 2)
    assert (network.memory, network.goal_conditioning_type, network.deterministic) == (None, "hyper", False)
    assert (behavior.extrinsic.gamma, behavior.extrinsic.strength) == (0.99, 1.0)
    assert (behavior.keep_checkpoints, behavior.checkpoint_interval, behavior.even_checkpoints) == (5, 500000, False)
    assert (behavior.max_steps, behavior.time_horizon, behavior.summary_freq) == (5_000_000, 1000, 10000)
    play = behavior.self_play
    assert play is not None
    assert (play.save_steps, play.team_change, play.swap_steps, play.window) == (50000, 200000, 2000, 10)
    assert (play.play_against_latest_model_ratio, play.initial_elo) == (0.5, 1200.0)


def test_a_full_dump_of_ml_agents_means_what_it_means_there() -> None:
    run = load_run(DATA / "dump.yaml")
    behavior = soccer(run)
    hyper = behavior.hyperparameters
    assert (hyper.learning_rate, hyper.learning_rate_schedule) == (5e-4, "linear")
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("linear", "linear")
    assert (behavior.max_steps, behavior.checkpoint_interval) == (10_000_000, 200000)
    assert behavior.self_play is not None and behavior.self_play.team_change == 250000
    assert behavior.extrinsic.network_settings.hidden_units == 128
    assert (run.engine_settings.no_graphics, run.engine_settings.time_scale) == (True, 20.0)
    assert run.checkpoint_settings.run_id == "SoccerTwos"
    assert run.env_id == "SoccerTwos"


PYTHON_OBJECT = """
behaviors: !!python/object/apply:mlagents.trainers.settings.DefaultTrainerDict
  args: [!!python/name:mlagents.trainers.settings.TrainerSettings '']
  dictitems: {A: {trainer_type: sac, max_steps: 5}}
debug: true
"""


def test_behaviors_that_were_written_as_a_python_object_are_the_map_in_it(load) -> None:
    run = load(PYTHON_OBJECT)
    assert (run.behaviors["A"].trainer_type, run.behaviors["A"].max_steps, run.debug) == ("sac", 5, True)
    with pytest.raises(ConfigError, match="there is nothing to train"):
        load(PYTHON_OBJECT.replace("dictitems", "items"))
    with pytest.raises(ConfigError, match="could not determine a constructor for the tag"):
        load(PYTHON_OBJECT.replace("DefaultTrainerDict", "TrainerSettings"))


def test_each_trainer_has_its_own_defaults(load) -> None:
    run = load("""
        behaviors:
          A: {}
          B: {trainer_type: poca}
          C: {trainer_type: sac, hyperparameters: {steps_per_update: 4}}
    """)
    ppo, poca, sac = (run.behaviors[name] for name in "ABC")
    assert isinstance(ppo, PpoBehavior) and isinstance(poca, PocaBehavior) and isinstance(sac, SacBehavior)
    assert (ppo.hyperparameters.batch_size, ppo.hyperparameters.buffer_size) == (1024, 10240)
    assert (ppo.hyperparameters.shared_critic, ppo.hyperparameters.beta_schedule) == (False, "linear")
    assert poca.hyperparameters.learning_rate_schedule == "linear"
    assert (sac.hyperparameters.batch_size, sac.hyperparameters.buffer_size) == (128, 50000)
    assert (sac.hyperparameters.learning_rate_schedule, sac.hyperparameters.tau) == ("constant", 0.005)
    assert sac.hyperparameters.reward_signal_steps_per_update == 4.0
    assert (ppo.max_steps, ppo.time_horizon, ppo.summary_freq, ppo.self_play) == (500000, 64, 50000, None)


def test_schedules_copy_the_learning_rates_unless_written(load) -> None:
    run = load("""
        behaviors:
          SoccerTwos:
            trainer_type: ppo
            hyperparameters: {learning_rate_schedule: constant, beta_schedule: linear}
    """)
    hyper = soccer(run).hyperparameters
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("linear", "constant")


def test_team_change_is_five_times_save_steps_unless_written(load) -> None:
    play = soccer(load("behaviors: {SoccerTwos: {self_play: {save_steps: 30000}}}")).self_play
    assert play is not None and play.team_change == 150000


def test_even_checkpoints_replace_a_written_interval(load) -> None:
    text = "behaviors: {SoccerTwos: {even_checkpoints: true, keep_checkpoints: 3, max_steps: 100, %s}}"
    assert soccer(load(text % "checkpoint_interval: 7")).checkpoint_interval == 33
    assert soccer(load((text % "").replace("max_steps: 100", "max_steps: 2"))).checkpoint_interval == 1


def test_even_checkpoints_follow_max_steps_that_are_changed_later(load) -> None:
    """As `palus train --minutes` and trials of sweeps do."""
    text = "behaviors: {SoccerTwos: {even_checkpoints: %s, keep_checkpoints: 4, max_steps: 1000}}"
    shorter = {
        even: load(text % even).behaviors["SoccerTwos"].changed(max_steps=100).checkpoint_interval
        for even in ("true", "false")
    }
    assert shorter == {"true": 25, "false": 500000}


def test_numbers_written_as_text_are_numbers(load) -> None:
    run = load("""
        behaviors:
          SoccerTwos:
            trainer_type: poca
            max_steps: 5e6
            hyperparameters: {learning_rate: 1e-4, buffer_size: '20480', batch_size: 2.048e3}
            self_play: {save_steps: 5.0e4}
        environment_parameters: {ball_touch: 1e-1}
        engine_settings: {no_graphics: 'true'}
        checkpoint_settings: {run_id: 2024}
        debug: yes
    """)
    behavior = soccer(run)
    assert behavior.max_steps == 5_000_000
    assert behavior.hyperparameters.learning_rate == 1e-4
    assert (behavior.hyperparameters.buffer_size, behavior.hyperparameters.batch_size) == (20480, 2048)
    assert behavior.self_play is not None and behavior.self_play.save_steps == 50000
    assert run.environment_parameters == {"ball_touch": 0.1}
    assert (run.engine_settings.no_graphics, run.debug) == (True, True)
    assert run.checkpoint_settings.run_id == "2024"


def test_a_run_id_that_looks_like_a_date_stays_text(load) -> None:
    run = load("{behaviors: {A: {}}, checkpoint_settings: {run_id: 2024-05-01}}")
    assert run.checkpoint_settings.run_id == "2024-05-01"


def test_a_character_that_json_writes_as_two_escapes_is_one(load) -> None:
    run = load(r'{"behaviors": {"A": {}}, "checkpoint_settings": {"run_id": "cup \ud83c\udfc6"}}')
    assert run.checkpoint_settings.run_id == "cup \U0001f3c6"


def test_environment_parameters_keep_their_three_forms(load) -> None:
    run = load("""
        behaviors: {A: {}}
        environment_parameters:
          gravity: 9.81
          mass: {sampler_type: uniform, sampler_parameters: {max_value: 2}}
          fixed: {sampler_type: constant, sampler_parameters: {value: 3}}
          height:
            curriculum:
            - {name: low, value: 1, completion_criteria: {behavior: A, threshold: 0.8}}
            - name: high
              value: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1, 2], [4, 5]]}}
    """)
    assert run.environment_parameters is not None
    mass = run.environment_parameters["mass"]
    assert isinstance(mass, UniformSampler)
    assert (mass.sampler_parameters.min_value, mass.sampler_parameters.max_value) == (0.0, 2.0)
    lessons = run.environment_parameters["height"].curriculum
    assert lessons[0].value == 1.0 and lessons[0].completion_criteria.signal_smoothing is True
    assert lessons[1].value.sampler_parameters.intervals == ((1.0, 2.0), (4.0, 5.0))
    assert (run.environment_parameters["gravity"], lessons[0].value) == (9.81, 1.0)


def test_default_settings_lie_under_every_behavior(load) -> None:
    run = load("""
        default_settings:
          trainer_type: ppo
          max_steps: 70
          hyperparameters: {batch_size: 64, num_epoch: 5}
          network_settings: {hidden_units: 32}
        behaviors:
          A: {hyperparameters: {batch_size: 16}}
          B: {trainer_type: poca, network_settings: {num_layers: 1}}
    """)
    a, b = run.behaviors["A"], run.behaviors["B"]
    assert (a.trainer_type, a.max_steps) == ("ppo", 70)
    assert (a.hyperparameters.batch_size, a.hyperparameters.num_epoch) == (16, 5)
    assert (b.trainer_type, b.hyperparameters.batch_size, b.hyperparameters.buffer_size) == ("poca", 64, 10240)
    assert (b.network_settings.hidden_units, b.network_settings.num_layers) == (32, 1)
    assert run.completed(["B", "Unlisted", ""]).behaviors == run.behaviors | {"Unlisted": run.default_settings}
    course = load_run(DATA / "course.yaml")
    assert course.completed(["SoccerTwos", "Goalie"]) == course, "nothing stands in where there are no default_settings"


def test_another_trainer_takes_over_what_was_written_of_the_network_and_no_defaults(load) -> None:
    run = load("""
        default_settings: {trainer_type: appo, network_settings: {hidden_units: 32, memory: {memory_size: 16}}}
        behaviors: {A: {trainer_type: ppo}}
    """)
    assert run.behaviors["A"].time_horizon == 64
    network = run.behaviors["A"].network_settings
    assert (network.hidden_units, network.activation, network.encoding) == (32, "swish", "joint")
    assert network.memory is not None and (network.memory.memory_size, network.memory.kind) == (16, "lstm")
    other = "default_settings: {trainer_type: %s}\nbehaviors: {A: {trainer_type: appo}}"
    assert load(other % "ppo").behaviors["A"].time_horizon == 32
    assert load(other % "ppo, time_horizon: 64").behaviors["A"].time_horizon == 64


def test_a_schedule_out_of_default_settings_is_not_copied_again(load) -> None:
    # ML-Agents merges over the defaults with all values filled in, so the linear schedules count as written.
    run = load("""
        default_settings: {trainer_type: ppo}
        behaviors: {SoccerTwos: {hyperparameters: {learning_rate_schedule: constant}}}
    """)
    assert soccer(run).hyperparameters.beta_schedule == "linear"


def test_reward_signals_without_extrinsic_drop_the_games_reward(load) -> None:
    behavior = soccer(load("behaviors: {SoccerTwos: {reward_signals: {rnd: {}}}}"))
    assert behavior.reward_signals.extrinsic is None
    assert behavior.extrinsic.strength == 0.0
    assert behavior.reward_signals.rnd is not None and behavior.reward_signals.rnd.learning_rate == 1e-4


def test_an_empty_reward_signal_is_a_slip_unless_it_switches_one_off(load) -> None:
    """YAML reads `extrinsic:` as null, which once meant off: the game's own reward was left out."""
    with pytest.raises(ConfigError) as caught:
        load("""
            default_settings: {reward_signals: {curiosity: }}
            behaviors: {SoccerTwos: {trainer_type: ppo, reward_signals: {extrinsic: , rnd: {}}}}
        """)
    assert [sentence.partition(", ")[2] for sentence in caught.value.faults] == [
        "default_settings.reward_signals.curiosity: empty; write `curiosity: {}` for its defaults, or leave it out",
        "behaviors.SoccerTwos.reward_signals.extrinsic: empty; write `extrinsic: {}` for its defaults, or leave it out",
    ]
    below = load("""
        default_settings: {reward_signals: {extrinsic: {}, rnd: {}}}
        behaviors: {SoccerTwos: {trainer_type: ppo, reward_signals: {rnd: null}}}
    """)
    assert below.behaviors["SoccerTwos"].reward_signals.rnd is None
    off = ["behaviors.SoccerTwos.reward_signals={extrinsic: null, rnd: {}}"]
    assert load_run("soccertwos-ppo", off).behaviors["SoccerTwos"].reward_signals.extrinsic is None


def test_old_keys_are_translated_or_ignored_with_a_warning(load, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = load("""
            behaviors:
              SoccerTwos:
                framework: pytorch
                reward_signals:
                  extrinsic: {network_settings: {memory: {memory_size: 8}}}
                  curiosity: {encoding_size: 64}
            checkpoint_settings: {load_model: true}
        """)
    signals = soccer(run).reward_signals
    assert signals.extrinsic is not None and signals.extrinsic.network_settings.memory is None
    assert signals.curiosity is not None and signals.curiosity.network_settings.hidden_units == 64
    assert run.checkpoint_settings.resume is True
    assert [record.message for record in caplog.records] == [
        "run.yaml, behaviors.SoccerTwos.framework: ignored; PyTorch is the only framework",
        "run.yaml, behaviors.SoccerTwos.reward_signals.extrinsic.network_settings.memory: "
        "ignored; the networks of reward signals have none",
        "run.yaml, behaviors.SoccerTwos.reward_signals.curiosity.encoding_size: "
        "old word for network_settings.hidden_units; used as network_settings.hidden_units",
        "run.yaml, checkpoint_settings.load_model: old word for resume; resume is set",
    ]


def test_overrides_set_values_and_create_sections() -> None:
    run = load_run(
        DATA / "course.yaml",
        [
            "behaviors.SoccerTwos.max_steps=1e6",
            "behaviors.SoccerTwos.hyperparameters.learning_rate=1e-4",
            "behaviors.SoccerTwos.network_settings.memory.memory_size=64",
            "palus.baselines=[random]",
            "palus.max_minutes=10",
            "behaviors.SoccerTwos.max_steps=2e6",
        ],
    )
    behavior = soccer(run)
    assert behavior.max_steps == 2_000_000
    assert behavior.hyperparameters.learning_rate == 1e-4
    assert behavior.network_settings.memory is not None and behavior.network_settings.memory.memory_size == 64
    assert (run.palus.baselines, run.palus.max_minutes) == (("random",), 10.0)


def test_an_override_can_turn_self_play_off() -> None:
    assert soccer(load_run("debug", ["behaviors.SoccerTwos.self_play=null"])).self_play is None


def test_a_preset_is_loaded_by_name_and_a_file_of_that_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert soccer(load_run("soccertwos")) == soccer(load_run(DATA / "course.yaml"))
    monkeypatch.chdir(tmp_path)
    Path("debug").write_text("behaviors: {Mine: {}}")
    assert list(load_run("debug").behaviors) == ["Mine"]


def test_the_trainer_is_all_that_differs_between_the_two_stock_presets() -> None:
    poca, ppo = load_run("soccertwos"), load_run("soccertwos-ppo")
    shared = {"trainer_type", "hyperparameters"}
    assert soccer(poca).model_dump(exclude=shared) == soccer(ppo).model_dump(exclude=shared)
    assert (
        soccer(ppo).hyperparameters.model_dump(exclude={"shared_critic"}) == soccer(poca).hyperparameters.model_dump()
    )


def test_run_files_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_run("debug").palus.threads = 2  # type: ignore[misc]


def test_a_map_changes_values_of_a_section_and_leaves_its_others() -> None:
    run = load_run("debug", ["env_settings.num_envs=2", "env_settings.seed=5"])
    other = run.changed(env_settings={"seed": 7}, palus={"env_options": {"length": 3}, "league": {"landmarks": 1}})
    assert (other.env_settings.seed, other.env_settings.num_envs, run.env_settings.seed) == (7, 2, 5)
    assert (other.palus.league.landmarks, other.palus.env_options) == (1, {"length": 3})
    assert other.palus.league.opponents == run.palus.league.opponents and other.behaviors == run.behaviors


def test_preset_names_are_the_shipped_files() -> None:
    assert {"debug", "soccertwos", "soccertwos-ppo"} <= set(preset_names())


def test_what_a_run_that_goes_on_has_otherwise_is_told_also_where_it_has_no_more_of_it() -> None:
    place, rate = "checkpoint_settings.results_dir=elsewhere", "behaviors.SoccerTwos.hyperparameters.learning_rate"
    parameters = "environment_parameters={{speed: {}, size: 2.0}}"
    before = load_run("debug", [f"{rate}=0.001", parameters.format(1.0), "env_settings.seed=3"])
    play = "behaviors.SoccerTwos.self_play"
    now = load_run("debug", [f"{rate}=0.002", "environment_parameters={speed: 1.5}", f"{play}=null", place])
    told = changes(before, now)
    assert told.pop(1).startswith(f'{play}: null, until now {{"save_steps": 3000, ')
    assert told == [
        f"{rate}: 0.002, until now 0.001",
        "environment_parameters.speed: 1.5, until now 1.0",
        "environment_parameters.size: null, until now 2.0",
    ]
    assert changes(now, before)[-3:] == [
        "env_settings.seed: 3, until now -1",  # one that is drawn is the one that was
        "environment_parameters.speed: 1.0, until now 1.5",
        "environment_parameters.size: 2.0, until now null",
    ]
