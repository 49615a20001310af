"""Checkpoints that Sample Factory 2.1.1 wrote: data/ holds two experiments with small networks, and its own outputs.

`expected.npz` of each: random observations and states, and what the original's network answered to them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palus.errors import CheckpointError
from palus.nn.network import Network
from palus.run.sf_checkpoint import CONFIGURATIONS, is_sf_experiment, read_sf_agent
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec

DATA = Path(__file__).parent / "data"
IMAGE = ObservationSpec("obs", (3, 36, 64), "uint8")
BATTLE = tuple(Discrete(n) for n in (3, 3, 2, 2, 11))


@pytest.mark.parametrize(
    ("folder", "observations", "parts"),
    [
        ("sf_health_gathering", (IMAGE,), (Discrete(5),)),
        ("sf_battle", (IMAGE, ObservationSpec("measurements", (23,))), BATTLE),
    ],
    ids=["gru", "lstm and measurements"],
)
def test_our_network_answers_as_the_original_does(
    folder: str, observations: tuple[ObservationSpec, ...], parts: tuple[Discrete, ...]
) -> None:
    agent = read_sf_agent(DATA / folder)
    network = Network(BehaviorSpec(agent.env_id, observations, ActionSpec(parts)), agent.settings, torch.Generator())
    network.load_arrays(agent.arrays)
    expected = np.load(DATA / folder / "expected.npz")
    seen = {o.name: torch.from_numpy(expected[o.name]) for o in observations}
    parameters, values, states = network.act(seen, torch.from_numpy(expected["states"]))
    np.testing.assert_allclose(parameters.numpy(), expected["parameters"], atol=1e-5)
    np.testing.assert_allclose(values.numpy(), expected["values"].ravel(), atol=1e-5)
    np.testing.assert_allclose(states.numpy(), expected["new_states"], atol=1e-5)


def test_reads_what_the_experiment_was(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    shutil.copytree(DATA / "sf_health_gathering", folder)
    checkpoints = folder / "checkpoint_p0"
    shutil.copy(checkpoints / "checkpoint_000000025_12800.pth", checkpoints / "best_000000005_2560_reward_5.070.pth")
    assert is_sf_experiment(folder)
    agent = read_sf_agent(folder)
    assert (agent.env_id, agent.steps) == ("doom_health_gathering_supreme", 12800)
    assert agent.env_options == {"frameskip": 4, "resolution": (36, 64), "wide": False}
    assert (agent.settings.vis_encode_type, agent.settings.image_units) == ("convnet_impala", 16)
    assert agent.settings.memory is not None and agent.settings.memory.kind == "gru"
    (checkpoints / "checkpoint_000000025_12800.pth").unlink()
    assert read_sf_agent(folder, "best").steps == 12800
    with pytest.raises(CheckpointError, match="no checkpoint"):
        read_sf_agent(folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"env_frameskip": "four"},
        {"res_h": None},
        {"res_w": 1e400},
        {"rnn_size": [512]},
        {"encoder_conv_architecture": {"a": 1}},
        {"rnn_type": "os:_exit"},
        {"decoder_mlp_layers": 3},
    ],
)
def test_options_of_other_types_are_a_fault_of_the_experiment(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = shutil.copytree(DATA / "sf_health_gathering", tmp_path / "experiment")
    (path,) = (folder / name for name in CONFIGURATIONS if (folder / name).exists())
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(CheckpointError, match="its options are not Sample Factory's"):
        read_sf_agent(folder)
