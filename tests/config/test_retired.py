"""Run files and agents of palus's earlier words: read as they were meant, with a warning for each old word."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from palus.config import AppoBehavior, load_run
from palus.config.appo import AppoMemory
from palus.config.network import Memory
from palus.export.policy_file import find_policies
from palus.nn.network import Network

OLD = Path(__file__).parents[1] / "run" / "data" / "old_words"
"""A run's folder with every default written out: an lstm of 2 layers of 6 units, an own critic, convnet_atari."""


def network_of(load, **written: object):
    text = ", ".join(f"{key}: {value}" for key, value in written.items())
    run = load(
        f"{{behaviors: {{Doom: {{trainer_type: appo, network_settings: {{{text}}}}}}}, palus: {{env: doom_basic}}}}"
    )
    return run.behaviors["Doom"].network_settings


def test_a_resolved_file_of_old_words_means_what_it_meant(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = load_run(OLD / "configuration.yaml")
    behavior = run.behaviors["Countdown"]
    assert isinstance(behavior, AppoBehavior)
    assert behavior.network_settings.memory == AppoMemory(kind="lstm", memory_size=12, num_layers=2)
    assert behavior.network_settings.vis_encode_type == "convnet_atari"
    assert behavior.hyperparameters.shared_critic is False
    assert run.palus.env_options == {}
    assert run.palus.sampling.asynchronous is False
    at = "configuration.yaml, behaviors.Countdown.network_settings"
    assert [record.message for record in caplog.records] == [
        f"{at}.encoder: old word; used as vis_encode_type",
        f"{at}.core: old word; used as memory.kind, or memory: null for none",
        f"{at}.core_size: old word; used as memory.memory_size, twice of it for an lstm",
        f"{at}.core_layers: old word; used as memory.num_layers",
        f"{at}.shared_critic: old word; used as hyperparameters.shared_critic",
        "configuration.yaml, palus.kick_point: ignored; countdown:Countdown has no such option",
        "configuration.yaml, palus.sampling.pages: ignored; what plays is at most one rollout ahead",
    ]


def test_an_agent_file_of_old_words_acts_as_it_did() -> None:
    (agent,) = find_policies(OLD).values()
    policy = Network(agent.spec, agent.settings, torch.Generator(), critic="separate")
    policy.load_arrays(agent.arrays)
    states = torch.linspace(-1, 1, 2 * policy.state_size).reshape(2, -1)
    parameters, values, after = policy.act({"left": torch.tensor([[-1.0], [1.0]])}, states)
    assert policy.state_size == 48
    # What the policy answered on the day on which the file was written.
    assert parameters[:, 0].tolist() == pytest.approx([0.1536528766, -0.0284344126], abs=1e-5)
    assert values.tolist() == pytest.approx([0.0592812747, -0.0054368284], abs=1e-5)
    assert after.sum(1).tolist() == pytest.approx([-6.1673035622, 11.8226661682], abs=1e-4)


def test_old_words_of_a_network_one_by_one(load) -> None:
    assert network_of(load, core="none").memory is None
    assert network_of(load, core_size=16, memory="null").memory == AppoMemory(memory_size=16)
    assert network_of(load, core="lstm").memory == AppoMemory(kind="lstm", memory_size=1024)
    assert network_of(load, core="lstm", core_size="1e2").memory == AppoMemory(kind="lstm", memory_size=200)
    assert network_of(load, core_layers=2).memory == AppoMemory(num_layers=2)


def test_an_old_word_that_is_wrong_is_a_fault_of_the_new_one(faults) -> None:
    text = "{behaviors: {D: {trainer_type: appo, network_settings: {core: rnn, core_size: wide}}}, palus: {env: X}}"
    at = "run.yaml, behaviors.D.network_settings.memory"
    assert faults(text) == [
        f"{at}.memory_size: expected a whole number, found 'wide'",
        f"{at}.kind: expected one of lstm, gru, found 'rnn'",
    ]


def test_the_old_place_of_kick_point_is_an_option_of_soccertwos(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = load_run("debug", ["palus.kick_point=ball"])
    assert run.palus.env_options == {"kick_point": "ball"}
    assert caplog.messages == ["preset debug, palus.kick_point: old word; used as palus.env_options.kick_point"]


@pytest.mark.parametrize(("memory", "width"), [(Memory(), 64), (AppoMemory(), 512), (Memory(kind="gru"), 128)])
def test_the_width_of_a_memory_is_what_its_floats_give(memory: Memory, width: int) -> None:
    assert memory.width == width


def test_the_network_of_another_trainers_default_settings_is_taken_over_where_it_was_written(load) -> None:
    run = load("""
        default_settings: {trainer_type: ppo, network_settings: {hidden_units: 32, memory: {memory_size: 64}}}
        behaviors: {Doom: {trainer_type: appo}}
        palus: {env: doom_basic}
    """)
    network = run.behaviors["Doom"].network_settings
    assert (network.hidden_units, network.activation, network.normalize) == (32, "elu", True)
    assert network.memory == AppoMemory(memory_size=64)
