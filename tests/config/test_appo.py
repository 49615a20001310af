"""The keys of `appo` behaviors: rules between them, notes, and the dictionary for people from Sample Factory."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from palus.config import load_run, notes, unsupported
from palus.config.appo import AppoHyperparameters, AppoMemory, AppoNetworkSettings, Sampling
from palus.config.population import Population
from palus.config.run_file import RunFile
from palus.config.trainer import AppoBehavior
from palus.envs.doom import game as doom
from palus.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "from-sample-factory.md"
MINIMAL = "behaviors: {Doom: {trainer_type: appo}}\npalus: {env: doom_basic}\n"


def run_of(tmp_path: Path, *overrides: str) -> RunFile:
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL)
    return load_run(path, [f"behaviors.Doom.{override}" for override in overrides])


def test_a_minimal_run_file_can_be_trained(tmp_path: Path) -> None:
    assert unsupported(run_of(tmp_path)) == []


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("time_horizon=48", "buffer_size 1024 is not a multiple of time_horizon 48"),
        ("hyperparameters={buffer_size: 1536, batch_size: 1024}", "1536 is not a multiple of batch_size 1024"),
        ("hyperparameters.adam_beta1=1", "adam_beta1: expected less than 1, found 1"),  # it would divide by 1 - beta
        ("hyperparameters.adam_beta2=1", "adam_beta2: expected less than 1, found 1"),
        ("hyperparameters.advantages=vtrace", "cannot be combined with normalize_returns"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused(tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        run_of(tmp_path, override)


def test_on_windows_games_are_stepped_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run_of(tmp_path).palus.sampling.workers == 0
    (tmp_path / "run.yaml").write_text(MINIMAL.replace("env:", "sampling: {workers: 2}, env:"))
    with pytest.raises(ConfigError, match=r"palus.sampling.workers: a worker process needs Linux or macOS"):
        load_run(tmp_path / "run.yaml")


@pytest.mark.parametrize("written", ["off", "'off'", "Off"])
def test_an_adaptive_rate_is_off_as_the_pages_write_it(tmp_path: Path, written: str) -> None:
    run = run_of(tmp_path, f"hyperparameters.adaptive_learning_rate={written}")
    behavior = run.behaviors["Doom"]
    assert isinstance(behavior, AppoBehavior) and behavior.hyperparameters.adaptive_learning_rate == "off"
    with pytest.raises(ConfigError, match="expected one of off, minibatch, epoch, found true"):
        run_of(tmp_path, "hyperparameters.adaptive_learning_rate=on")


def test_what_appo_does_another_way_is_refused_with_the_way(tmp_path: Path) -> None:
    (memory,) = unsupported(run_of(tmp_path, "network_settings.memory={sequence_length: 16}"))
    assert "sequences are time_horizon long" in memory


def test_keys_without_effect_are_noted(tmp_path: Path) -> None:
    found = notes(run_of(tmp_path, "hyperparameters={adaptive_learning_rate: epoch, learning_rate_schedule: linear}"))
    assert [line for line in found if "no effect" in line] == [
        "behaviors.Doom.hyperparameters.learning_rate_schedule has no effect; adaptive_learning_rate moves the rate",
    ]


def dictionary() -> list[str]:
    """Every key in the middle column of the page's table of options."""
    table = PAGE.read_text().split("## Options")[1].split("## An encoder")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("|")]
    words = [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
    return [word.split(": ")[0] for word in words if re.fullmatch(r"[a-z_.0-9]+(: \w+)?", word)]


def known_keys() -> set[str]:
    """Dotted paths below a run file and below a behavior; hyperparameters without their section."""

    def fields(model: type[BaseModel], prefix: str) -> set[str]:
        return {prefix + name for name in model.model_fields}

    sections = {name: field.annotation for name, field in RunFile.model_fields.items()}
    keys = fields(AppoHyperparameters, "") | fields(AppoBehavior, "") | fields(AppoNetworkSettings, "network_settings.")
    keys |= (
        fields(AppoMemory, "network_settings.memory.")
        | fields(Population, "population.")
        | fields(Sampling, "palus.sampling.")
        | fields(Sampling, "")
    )
    keys |= {"reward_signals.extrinsic.gamma", "reward_signals.extrinsic.strength"}
    keys |= {f"palus.env_options.{name}" for name in inspect.signature(doom.make).parameters}
    for name in ("palus", "env_settings", "checkpoint_settings", "torch_settings"):
        section = sections[name]
        assert isinstance(section, type)
        keys |= fields(section, f"{name}.")
    return keys


def test_every_key_of_the_dictionary_exists() -> None:
    words = [word for word in dictionary() if word not in ("constant", "linear", "minibatch", "epoch", "num_envs")]
    values = {"gru", "lstm"}
    assert [word for word in words if word not in known_keys() | values and ":" not in word] == []
    assert len(words) > 60


def test_every_number_of_the_algorithm_is_in_the_dictionary() -> None:
    assert set(AppoHyperparameters.model_fields) - set(dictionary()) == set()
