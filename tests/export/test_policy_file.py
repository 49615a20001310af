"""Policies as files: what is written comes back and plays, the better one is taken, others are refused in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch

from palus.config.appo import AppoNetworkSettings
from palus.config.network import NetworkSettings
from palus.errors import CheckpointError, ModelError, StorageError
from palus.export.policy_file import PolicyFile, find_policies, model_in, read_policy, write_policy
from palus.nn.network import Network
from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

GAME = GameSpec.alike(
    "doom_duel",
    (ObservationSpec("obs", (3, 40, 48), "uint8"), ObservationSpec("measurements", (23,), normalize=False)),
    ActionSpec((Discrete(3), Discrete(11, -12.5, 12.5), Continuous(2, -1.0)), masked=True),
    num_agents=2,
    teams=(0, 1),
    frameskip=2,
)
SMALL = {"hidden_units": 8, "image_units": 8, "memory": {"kind": "lstm", "memory_size": 8}}


def policy(metric: float | None = 7.5, steps: int = 4000, critic="shared") -> PolicyFile:
    settings = AppoNetworkSettings(**SMALL)
    network = Network(GAME.behaviors[0], settings, torch.Generator().manual_seed(0), critic=critic)
    return PolicyFile.of(network, GAME, "Duel", steps, metric, snapshot=12)


def test_a_policy_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "Duel").mkdir()
    write_policy(tmp_path / "Duel" / "policy.npz", policy())
    found = find_policies(tmp_path)["Duel"]
    assert (found.behavior, found.env_id, found.spec) == ("Duel", "doom_duel", GAME.behaviors[0])
    assert found.settings.model_dump() == policy().settings.model_dump()
    assert (found.steps, found.metric, found.snapshot) == (4000, 7.5, 12)
    assert found.model == policy().model
    assert found.arrays.keys() == policy().arrays.keys()
    for name, array in policy().arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize("critic", ["shared", "separate", "none"])
def test_what_acts_is_in_it_twice_as_weights_and_as_a_model(critic: str, tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.npz", policy(critic=critic))
    file = read_policy(tmp_path / "policy.npz")
    network = Network.acting(file.spec, file.settings, file.arrays)
    rng = np.random.default_rng(0)
    seen = {"obs": rng.integers(0, 256, (4, 3, 40, 48), np.uint8), "measurements": rng.random((4, 23), np.float32)}
    parameters, values, _ = network.act({k: torch.from_numpy(v) for k, v in seen.items()}, torch.zeros(4, 8))
    assert (values is None) == (critic != "shared")
    data = model_in((tmp_path / "policy.npz").read_bytes(), "it")
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    memory, masks = np.zeros((4, 8), np.float32), np.ones((4, 14), np.float32)
    (found,) = session.run(["action_probabilities"], seen | {"recurrent_in": memory, "action_masks": masks})
    np.testing.assert_allclose(found[:, :3], parameters[:, :3].softmax(1).numpy(), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["frameskip"] == "2"
    assert "critic_encoder.encoders.obs.enc.conv_head.0.weight" not in file.arrays


def test_of_every_behavior_the_best_of_its_population_is_read(tmp_path: Path) -> None:
    for k, metric in enumerate([1.0, None, 3.0]):
        (tmp_path / "Doom" / f"policy_{k}").mkdir(parents=True)
        write_policy(tmp_path / "Doom" / f"policy_{k}" / "best.npz", policy(metric, steps=k))
    (tmp_path / "Keeper").mkdir()
    write_policy(tmp_path / "Keeper" / "best.npz", policy(2.0, steps=7))
    assert {name: best.steps for name, best in find_policies(tmp_path, "best").items()} == {"Doom": 2, "Keeper": 7}


def test_a_folder_without_a_policy_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no best policy \(best\.npz\).*take the latest"):
        find_policies(tmp_path, "best")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x04N."])
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "Doom").mkdir()
    (tmp_path / "Doom" / "policy.npz").write_bytes(content)
    with pytest.raises(CheckpointError, match="not a policy that palus wrote"):
        find_policies(tmp_path)


def test_a_file_that_could_execute_code_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", __meta__=np.array(json.dumps({})), w=np.array([{"a": "pickled object"}], dtype=object))
    with pytest.raises(CheckpointError, match="not a policy that palus wrote"):
        read_policy(tmp_path / "p.npz")


def test_older_files_still_act_or_say_what_they_lack(tmp_path: Path) -> None:
    file = policy()
    spec = {
        "env_id": "doom_duel", "num_agents": 2, "teams": [0, 1], "frameskip": 2, "fps": 35.0,
        "observations": [asdict(o) for o in file.spec.observations],
        "actions": {"parts": [{"choices": 3}, {"choices": 11, "low": -12.5, "high": 12.5}, {"size": 2, "low": -1.0}]},
    }  # fmt: skip
    network = {"hidden_units": 8, "image_units": 8, "encoder": "convnet_simple", "core": "lstm", "core_size": 4}
    meta = {"spec": spec, "network_settings": network, "steps": 9, "metric": None}
    np.savez(tmp_path / "policy.npz", __meta__=np.array(json.dumps(meta)), **file.arrays)
    old = read_policy(tmp_path / "policy.npz")
    assert (old.env_id, old.steps, old.settings.encoding) == ("doom_duel", 9, "apart")
    Network.acting(old.spec, old.settings, old.arrays)
    with pytest.raises(ModelError, match="no ONNX model"):
        model_in((tmp_path / "policy.npz").read_bytes(), "policy.npz")
    np.savez(tmp_path / "snapshot-00003.npz", snapshot=np.array('{"id": 3}'), layer0_weight=np.ones((2, 2), np.float32))
    with pytest.raises(CheckpointError, match="older versions wrote"):
        read_policy(tmp_path / "snapshot-00003.npz")


def test_weights_that_diverged_are_not_written() -> None:
    network = Network(GAME.behaviors[0], NetworkSettings(**SMALL), torch.Generator())
    network.weights.master[3] = torch.nan
    with pytest.raises(ModelError, match="holds NaN or infinity"):
        PolicyFile.of(network, GAME, "Duel", 1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.policy\.npz: could not be written"):
        write_policy(tmp_path / "file" / "policy.npz", policy())
