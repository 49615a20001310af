"""Derived values are explained; what cannot be trained yet is refused by name."""

from __future__ import annotations

import pytest

from palus.config import load_run, notes, preset_names, unsupported
from palus.config.run_file import PalusSettings


def test_derived_values_come_with_their_reason(load) -> None:
    run = load("""
        behaviors:
          SoccerTwos:
            trainer_type: poca
            hyperparameters: {learning_rate_schedule: constant, epsilon_schedule: linear, buffer_size: 5000}
            max_steps: 900
            keep_checkpoints: 4
            even_checkpoints: true
            threaded: true
            self_play: {save_steps: 50000}
        env_settings: {num_envs: 4}
    """)
    assert notes(run) == [
        "SoccerTwos: beta_schedule constant follows learning_rate_schedule",
        "SoccerTwos: buffer_size 5000 is not a multiple of batch_size 1024: 4 full minibatches and 904 rows over",
        "SoccerTwos: checkpoint_interval 225 = max_steps 900 / keep_checkpoints 4 (even_checkpoints)",
        "SoccerTwos: team_change 250000 = 5 x save_steps",
        "palus.env SoccerTwos: the behaviors are that game's, and there is no env_settings.env_path",
        "behaviors.SoccerTwos.threaded has no effect; palus uses all threads anyway",
        "env_settings.num_envs has no effect; it is about Unity executables; use palus.num_matches or palus.sampling",
    ]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_trained(name: str) -> None:
    assert unsupported(load_run(name)) == []


ALL = {"ppo", "poca", "appo"}
READERS = {
    "env": (ALL, "SoccerTwos"),
    "env_options": (ALL, "{wad: x.wad}"),
    "trainers": (ALL, "{NAME: own:Trainer}"),
    "sampling": (ALL, "{workers: 0}"),
    "league": (ALL, "{delta: 0}"),
    "num_matches": (ALL, "8"),
    "matmul": (ALL, "highest"),
    "acting": (ALL, "exact"),
    "threads": (ALL, "1"),
    "baselines": (ALL, "[random]"),
    "baseline_interval": (ALL, "0"),
    "baseline_pairs": (ALL, "3"),
    "max_minutes": (ALL, "3"),
}
"""Key of `palus` -> the trainers that read it, and a value that is not its default; NAME: the behavior's."""


@pytest.mark.parametrize("trainer", sorted(ALL))
@pytest.mark.parametrize("key", PalusSettings.model_fields)
def test_a_key_that_the_trainer_ignores_is_told(key: str, trainer: str, load) -> None:
    readers, value = READERS[key]
    name, game = ("doom_basic", "doom_basic") if trainer == "appo" else ("SoccerTwos", "SoccerTwos")
    text = f"{{behaviors: {{{name}: {{trainer_type: {trainer}}}}}, palus: {{env: {game}}}}}"
    run = load(text, [f"palus.{key}={value.replace('NAME', name)}"])
    told = [line for line in [*notes(run), *unsupported(run)] if line.startswith(f"palus.{key} ") or "options:" in line]
    assert len(told) == (trainer not in readers)


def test_a_plain_constant_and_signal_strength_are_supported() -> None:
    overrides = ["environment_parameters.ball_touch=0.2", "behaviors.SoccerTwos.reward_signals.extrinsic.strength=2"]
    assert unsupported(load_run("debug", overrides)) == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reward_signals={extrinsic: {}, rnd: {}}", "reward_signals.rnd: appo learns from extrinsic alone"),
        ("reward_signals={extrinsic: null, rnd: {}}", "reward_signals.extrinsic: appo learns from it alone"),
        ("behavioral_cloning.demo_path=x", "behavioral_cloning: appo does not imitate"),
    ],
)
def test_what_appo_cannot_learn_from_is_refused_by_name_and_others_take_it(override: str, message: str) -> None:
    at = "behaviors.SoccerTwos."
    sentences = unsupported(load_run("debug", [f"{at}trainer_type=appo", at + override]))
    assert any(sentence.startswith(at + message) for sentence in sentences)
    assert unsupported(load_run("debug", [at + override])) == []


def test_an_executable_is_the_game_and_its_keys_are_read() -> None:
    unity = ["env_settings.env_path=Soccer.x86_64", "env_settings.num_envs=2", "palus.num_matches=3"]
    run = load_run("debug", unity)
    assert unsupported(run) == [] and run.env_id is None
    told = [note for note in notes(run) if "has no effect" in note]
    assert told == [
        "palus.num_matches has no effect; it is about games of palus; use env_settings.num_envs",
        "palus.baseline_interval has no effect; it is about games of palus",
    ]
    (both,) = unsupported(load_run("debug", [*unity, "palus.env=SoccerTwos"]))
    assert both == "palus.env SoccerTwos: env_settings.env_path names a game too; remove one of the two"


def test_keys_are_told_where_default_settings_stand_for_all_behaviors(load) -> None:
    run = load("{default_settings: {trainer_type: ppo}, debug: true, palus: {env: PenaltyToy}}")
    assert "debug has no effect; what a run logs is always the same" in notes(run)


def test_a_behavior_without_a_game_is_refused(load) -> None:
    run = load("behaviors: {Walker: {}}")
    (told,) = unsupported(run)
    assert told.startswith(
        "palus.env: no game; set palus.env to a built-in game, for example SoccerTwos, or name a Unity"
    )
    assert load("{behaviors: {Walker: {}}, palus: {env: SoccerTwos}}").env_id == "SoccerTwos"


@pytest.mark.parametrize(
    ("league", "play", "told"),
    [
        ("{opponents: psro_nash}", "{}", []),
        ("{delta: 0.5}", "{}", ["palus.league.delta has no effect; opponents is window, and delta is about history"]),
        ("{opponents: history, delta: 0.5}", "{}", []),
        ("{change_unit: episode}", "{}", []),
        (
            "{change_every: 3}",
            "{swap_steps: 9}",
            ["behaviors.X.self_play.swap_steps has no effect; palus.league.change_every stands above it"],
        ),
        (
            "{opponents: history}",
            "{play_against_latest_model_ratio: 0.2}",
            ["behaviors.X.self_play.play_against_latest_model_ratio has no effect; palus.league.opponents is history, "
             "in which the latest policy is one version of many"],
        ),
        (
            "{counting: reference, change_every: 3}",
            "{}",
            ["palus.league.change_every has no effect; counting is reference, which changes opponents by swap_steps"],
        ),
        (
            "{opponents: psro_nash, evaluation_share: 0}",
            "{}",
            ["palus.league.evaluation_share 0: past selves that never meet count as even, so all are met alike"],
        ),
        ("{strong_only: 0.2}", "null", ["palus.league.strong_only has no effect; no behavior has self_play"]),
    ],
)  # fmt: skip
def test_a_key_of_the_league_without_effect_is_told(league: str, play: str, told: list[str], load) -> None:
    run = load(f"{{behaviors: {{X: {{self_play: {play}}}}}, palus: {{env: DuelToy, league: {league}}}}}")
    assert [line for line in notes(run) if "league" in line] == told


def test_several_learners_of_a_behavior_are_named_once_and_counted_by_matches(load) -> None:
    run = load("""
        behaviors:
          A: {trainer_type: ppo, self_play: {}, population: {size: 2, mix_in_game: false}}
          B: {trainer_type: poca, population: {size: 3, period: 100000, start: 200000}}
        palus: {env: PenaltyToy, league: {counting: reference, roles: {main_exploiter: 1}}}
    """)
    assert unsupported(run) == [
        "behaviors.A.population: palus.league.roles names the learners already; remove one of the two",
        "palus.league.counting reference: ML-Agents has one learner of a behavior; remove it or behaviors.A.population",
    ]
    assert run.learners_of("A") == ("main", "main") and run.learners_of("B") == ("main",) * 3
    told = [note for note in notes(run) if "population" in note]
    assert told == [
        "A: its population never changes; population.start 20000000 or period 5000000 is not below max_steps 500000",
        "behaviors.A.population.mix_in_game has no effect; in self-play a team follows one policy",
    ]
    roles = load("behaviors: {A: {self_play: {}}}\npalus: {league: {roles: {main: 2, league_exploiter: 1}}}")
    assert roles.learners_of("A") == ("main", "main", "league_exploiter")
