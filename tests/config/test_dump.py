"""The resolved run: its text, and that it rebuilds the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from palus.config import RunFile, dump_run, load_run, preset_names
from palus.config.source import Source
from palus.files import is_file_name

DATA = Path(__file__).parent / "data"


def reloaded(run: RunFile, folder: Path) -> RunFile:
    path = folder / "configuration.yaml"
    path.write_text(dump_run(run), encoding="utf-8")
    return load_run(path)


@pytest.mark.parametrize("source", [DATA / "course.yaml", DATA / "dump.yaml", *preset_names()])
def test_a_dump_rebuilds_the_run(source: Path | str, tmp_path: Path) -> None:
    run = load_run(source)
    assert reloaded(run, tmp_path) == run


def test_a_dump_has_ml_agents_keys_in_ml_agents_order_and_palus_last() -> None:
    tree = yaml.safe_load(dump_run(load_run(DATA / "course.yaml")))
    reference = yaml.safe_load((DATA / "dump.yaml").read_text())
    assert list(tree) == [*reference, "palus"]
    behavior, expected = tree["behaviors"]["SoccerTwos"], reference["behaviors"]["SoccerTwos"]
    assert list(behavior) == list(expected)
    assert behavior["reward_signals"] == expected["reward_signals"]
    assert behavior["self_play"] == expected["self_play"] | {"team_change": 200000}
    assert behavior["hyperparameters"]["beta_schedule"] == "constant"


def test_parameters_and_mixed_trainers_survive_a_dump(load, tmp_path: Path) -> None:
    run = load("""
        default_settings: {trainer_type: ppo, hyperparameters: {shared_critic: true, num_epoch: 4}}
        behaviors:
          A: {trainer_type: poca}
          B: {reward_signals: {curiosity: {encoding_size: 32}}, self_play: {}}
          C: {trainer_type: sac, network_settings: {memory: {}}, behavioral_cloning: {demo_path: d.demo}}
        environment_parameters:
          mass: 2
          size: {sampler_type: gaussian, sampler_parameters: {st_dev: 0.5}}
          wall: {curriculum: [{name: one, value: {sampler_type: uniform, sampler_parameters: {}}}]}
    """)
    assert reloaded(run, tmp_path) == run
    assert run.behaviors["A"].hyperparameters.model_dump()["num_epoch"] == 4


finite = st.floats(min_value=1e-12, max_value=1e12)
counts = st.integers(min_value=1, max_value=10**12)
texts = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
names = texts.filter(is_file_name)
run_ids = names.filter(lambda name: not name.startswith("-"))  # which is refused, as an option without its name


@settings(max_examples=60, deadline=None)
@given(rate=finite, steps=counts, elo=st.floats(-1e9, 1e9), run_id=run_ids, name=names, seed=st.integers(-1, 2**31 - 1))
def test_any_values_survive_a_dump(tmp_path_factory, rate, steps, elo, run_id, name, seed) -> None:
    run = RunFile.model_validate(
        {
            "behaviors": {
                name: {
                    "trainer_type": "poca",
                    "max_steps": steps,
                    "hyperparameters": {"learning_rate": rate},
                    "self_play": {"initial_elo": elo, "save_steps": steps},
                }
            },
            "env_settings": {"seed": seed, "env_args": [run_id]},
            "checkpoint_settings": {"run_id": run_id},
        }
    )
    assert reloaded(run, tmp_path_factory.getbasetemp()) == run


_FIRST = "batch_size buffer_size learning_rate beta epsilon lambd num_epoch"
_LAST = "learning_rate_schedule beta_schedule epsilon_schedule"
HYPERPARAMETERS = {
    "ppo": f"{_FIRST} shared_critic {_LAST}",
    "poca": f"{_FIRST} {_LAST}",
    "sac": "learning_rate learning_rate_schedule batch_size buffer_size buffer_init_steps tau steps_per_update "
    "save_replay_buffer init_entcoef reward_signal_steps_per_update",
}
"""As ML-Agents 1.1.0 writes its own settings."""


@pytest.mark.parametrize("trainer", HYPERPARAMETERS)
def test_hyperparameters_stand_as_ml_agents_writes_them(trainer: str) -> None:
    run = load_run(Source("text", f"behaviors: {{Walker: {{trainer_type: {trainer}}}}}"))
    (behavior,) = yaml.safe_load(dump_run(run))["behaviors"].values()
    expected = HYPERPARAMETERS[trainer].split()
    assert [key for key in behavior["hyperparameters"] if key in expected] == expected
