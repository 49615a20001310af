"""A search space is checked as strictly as a run file, before anything trains."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from palus.config.source import Source
from palus.errors import ConfigError
from palus.sweep.objective import Objective
from palus.sweep.plan import Plan, make_plan
from palus.sweep.space import Dimension, read_space
from palus.trust import NOBODY

RUN = {
    "behaviors": {
        "MenuToy": {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 64, "buffer_size": 256, "learning_rate_schedule": "constant"},
            "max_steps": 4000,
        }
    },
    "palus": {"env": "MenuToy"},
}
KEY = "behaviors.MenuToy.hyperparameters"


def plan(folder: Path, space: str, *objectives: str) -> Plan:
    (folder / "menu.yaml").write_text(json.dumps(RUN))
    (folder / "space.yaml").write_text(space)
    return make_plan(str(folder / "menu.yaml"), [], folder / "space.yaml", objectives or ["reward"], NOBODY)


def faults(folder: Path, space: str, *objectives: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(folder, space, *objectives)
    return caught.value.faults


def test_every_key_and_value_is_tried_on_the_run_file(tmp_path: Path) -> None:
    space = f"""
{KEY}.learning_rat: {{log: [1e-6, 1e-2]}}
{KEY}.num_epoch: {{int: [0, 4]}}
{KEY}.beta: {{uniform: [-1, 0.1]}}
palus.matmul: {{choice: [highest, low]}}
behaviors.Menu.time_horizon: {{choice: [8, 16]}}
palus.env_options: {{choice: [{{}}, {{dishes: 3}}]}}
"""
    told = faults(tmp_path, space)
    assert told[:5] == [
        f"space.yaml, {KEY}.learning_rat: unknown key; did you mean learning_rate?",
        f"space.yaml, {KEY}.num_epoch: expected more than 0, found 0",
        f"space.yaml, {KEY}.beta: expected at least 0, found -1.0",
        "space.yaml, palus.matmul: expected one of auto, highest, medium, bf16, int16, found 'low'",
        "space.yaml, behaviors.Menu.time_horizon: no behavior Menu; the file has MenuToy",
    ]
    assert len(told) == 6 and "dishes" in told[5]  # which only the game can know


def test_values_that_are_right_together_are_no_fault(tmp_path: Path) -> None:
    """A batch larger than the file's own buffer, beside larger buffers; but not beyond the largest."""
    space = f"{KEY}.batch_size: {{choice: [64, 512]}}\n{KEY}.buffer_size: {{choice: [256, 1024]}}\n"
    assert [dimension.values for dimension in plan(tmp_path, space).space] == [(64, 512), (256, 1024)]
    assert "batch_size" in faults(tmp_path, space.replace("512", "4096"))[0]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{log: [0, 1]}", "a.log: expected a LOW above 0, found 0; zero has no logarithm"),
        ("{uniform: [2, 1]}", "a.uniform: expected [LOW, HIGH], two numbers with LOW < HIGH, found [2, 1]"),
        ("{uniform: [.nan, 1]}", "a.uniform: expected [LOW, HIGH], two numbers with LOW < HIGH, found [nan, 1]"),
        ("{int: [1.5, 3]}", "a.int: expected two whole numbers, found [1.5, 3]; uniform takes others"),
        ("{choice: [1]}", "a.choice: expected a list of at least two values, found [1]"),
        ("{choises: [1, 2]}", "a.choises: did you mean choice?"),
        ("3", "a: expected {log: [LOW, HIGH]}, {uniform: [LOW, HIGH]}, {int: [LOW, HIGH]} or {choice: [ONE, OTHER, "),
    ],
)
def test_a_line_that_is_none_is_explained(line: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_space(Source("space.yaml", f"a: {line}\n"))
    assert caught.value.faults[0].startswith(f"space.yaml, {fault}")


def test_a_space_in_which_nothing_varies_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^space.yaml: nothing varies; give a line for each key"):
        read_space(Source("space.yaml", "{}\n"))


def test_an_empty_space_is_told_what_a_line_is() -> None:
    with pytest.raises(
        ConfigError, match=r"^space.yaml: the file is empty; expected at least one key that varies, as "
    ):
        read_space(Source("space.yaml", "# nothing yet\n"))


@pytest.mark.parametrize("key", ["env_settings.seed", "checkpoint_settings.run_id", "behaviors.MenuToy.max_steps"])
def test_what_makes_trials_comparable_cannot_vary(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot vary"):
        read_space(Source("space.yaml", f"{key}: {{choice: [1, 2]}}\n"))


def test_objectives_are_looked_up_before_anything_trains_and_told_beside_the_space_s_faults(tmp_path: Path) -> None:
    space = f"{KEY}.num_epoch: {{int: [0, 4]}}\n"
    assert faults(tmp_path, space, "rewards", "win_rate", "rating", "reward:Menu") == [
        "objective rewards: there is none of that name; did you mean reward?",
        "objective win_rate: the run meets no fixed opponents (palus.baselines, baseline_interval)",
        "objective rating: takes self_play, which no behavior of the run has; choose reward",
        "objective reward:Menu: there is no Menu; expected MenuToy",
        f"space.yaml, {KEY}.num_epoch: expected more than 0, found 0",
    ]


def test_a_trial_is_the_run_file_with_its_values_and_nothing_derived_stays_behind(tmp_path: Path) -> None:
    """beta_schedule follows learning_rate_schedule in trials too; numbers arrive as numbers, sections whole."""
    space = f"""
{KEY}.learning_rate_schedule: {{choice: [constant, linear]}}
{KEY}.learning_rate: {{log: [1e-6, 1e-2]}}
behaviors.MenuToy.reward_signals.extrinsic: {{choice: [{{gamma: 0.9}}, {{gamma: 0.99}}]}}
"""
    own = plan(tmp_path, space)
    labels = {
        f"{KEY}.learning_rate_schedule": "linear", f"{KEY}.learning_rate": 1e-05,
        "behaviors.MenuToy.reward_signals.extrinsic": '{"gamma": 0.9}',
    }  # fmt: skip
    run = own.run(labels, tmp_path, seed=2)
    behavior = run.behaviors["MenuToy"]
    assert (behavior.hyperparameters.learning_rate, behavior.hyperparameters.beta_schedule) == (1e-05, "linear")
    assert behavior.reward_signals.extrinsic.gamma == 0.9
    assert (run.env_settings.seed, run.checkpoint_settings.run_id, behavior.summary_freq) == (2, "seed-2", 200)
    assert Plan.of_json(own.to_json()) == own


def test_a_trial_keeps_the_budget_of_the_sweep_and_counts_seeds_from_the_file_s(tmp_path: Path) -> None:
    own = plan(tmp_path, f"{KEY}.learning_rate: {{log: [1e-6, 1e-2]}}\n")
    tree = {**own.tree, "env_settings": {"seed": 7}}
    tree["behaviors"] = {"MenuToy": {**RUN["behaviors"]["MenuToy"], "summary_freq": 30}}
    by_steps = replace(own, tree=tree, steps=1000, objectives=(Objective("win_rate"),))
    run = by_steps.run({f"{KEY}.learning_rate": 1e-4}, tmp_path, seed=2)
    behavior = run.behaviors["MenuToy"]
    assert (run.env_settings.seed, run.checkpoint_settings.run_id) == (9, "seed-9")
    assert (behavior.max_steps, behavior.summary_freq) == (1000, 30), "it reports often enough already"
    assert (run.palus.baseline_interval, run.palus.max_minutes) == (50, 0.0)
    by_clock = replace(by_steps, steps=None, minutes=5.0).run({f"{KEY}.learning_rate": 1e-4}, tmp_path, seed=0)
    assert by_clock.palus.max_minutes == 5.0 and by_clock.behaviors["MenuToy"].max_steps == 4000
    assert by_clock.palus.baseline_interval == 1, "how many steps the time is enough for is not known"


def test_a_behavior_that_is_to_learn_nothing_learns_nothing_in_trials(tmp_path: Path) -> None:
    side = {"trainer_type": "ppo", "self_play": {}, "even_checkpoints": True, "keep_checkpoints": 4}
    tree = {"behaviors": {"Striker": side, "Keeper": {**side, "max_steps": 0}}, "palus": {"env": "PenaltyToy"}}
    run = Plan(tree, (), (Objective("elo"), Objective("win_rate")), steps=4000).run({}, tmp_path, seed=0)
    told = {name: (own.max_steps, own.checkpoint_interval) for name, own in run.behaviors.items()}
    assert told == {"Striker": (4000, 1000), "Keeper": (0, 1)}
    assert run.palus.baseline_interval == 200, "by the steps of the one that learns"


@pytest.mark.parametrize(("key", "value"), [("initialize_from", "other"), ("inference", True)])
def test_a_run_of_which_trials_could_not_be_compared_is_refused(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "menu.yaml").write_text(json.dumps({**RUN, "checkpoint_settings": {key: value}}))
    (tmp_path / "space.yaml").write_text(f"{KEY}.learning_rate: {{log: [1e-6, 1e-2]}}\n")
    with pytest.raises(ConfigError, match=f"checkpoint_settings.{key}: "):
        make_plan(str(tmp_path / "menu.yaml"), [], tmp_path / "space.yaml", ["reward"], NOBODY)


def test_a_rate_is_drawn_evenly_over_its_powers_of_ten_and_others_over_their_range() -> None:
    asked = optuna.trial.FixedTrial({"a": 1e-3, "b": 0.5, "c": 3, "d": 2})
    space = {"a": ("log", (1e-6, 1.0)), "b": ("uniform", (0.0, 1.0)), "c": ("int", (1, 4)), "d": ("choice", (2, 8))}
    assert [Dimension(path, *own).suggest(asked) for path, own in space.items()] == [1e-3, 0.5, 3, 2]
    assert asked.distributions == {
        "a": FloatDistribution(1e-6, 1.0, log=True),
        "b": FloatDistribution(0.0, 1.0),
        "c": IntDistribution(1, 4),
        "d": CategoricalDistribution((2, 8)),
    }


def test_the_file_s_own_values_are_the_first_trial_where_the_space_holds_them(tmp_path: Path) -> None:
    space = f"{KEY}.learning_rate: {{log: [1e-6, 1e-2]}}\n{KEY}.batch_size: {{choice: [32, 64]}}\n"
    assert plan(tmp_path, space).present() == {f"{KEY}.learning_rate": 3e-4, f"{KEY}.batch_size": 64}
    assert plan(tmp_path, space.replace("64]", "128]")).present() is None
    assert not Dimension("a", "int", (0, 1)).holds(True)
    powers = f"{KEY}.learning_rate: {{choice: [1e-5, 3e-4]}}\n"  # texts to YAML
    assert plan(tmp_path, powers).present() == {f"{KEY}.learning_rate": 3e-4}
    layers = "behaviors.MenuToy.network_settings.decoder_layers"
    assert plan(tmp_path, f"{layers}: {{choice: [[8], []]}}\n").present() == {layers: "[]"}
    signal = "behaviors.MenuToy.reward_signals.extrinsic"
    gammas = f"{signal}: {{choice: [{{gamma: 0.9}}, {{gamma: 0.99}}]}}\n"
    assert plan(tmp_path, gammas).present() == {signal: '{"gamma": 0.99}'}, "the file leaves the whole section out"
    assert plan(tmp_path, gammas.replace("gamma: 0.99", "gamma: 0.99, strength: 2")).present() is None
    foreign = replace(plan(tmp_path, powers), tree={**RUN, "palus": {"env": "of_one_s_own:game"}})
    assert foreign.present() == {f"{KEY}.learning_rate": 3e-4}, "whose code the command line trusts"
    for ends in ("[3e-4, 1e-2]", "[1e-6, 3e-4]"):  # both ends included
        assert plan(tmp_path, f"{KEY}.learning_rate: {{log: {ends}}}\n").present() == {f"{KEY}.learning_rate": 3e-4}
