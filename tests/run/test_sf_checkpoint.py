"""Checkpoints that Sample Factory 2.1.1 wrote: data/ holds two experiments with small networks, and its own outputs.

`expected.npz` of each: random observations and states, and what the original's network answered to them.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palus.errors import CheckpointError
from palus.nn.network import Network
from palus.run.sf_checkpoint import CONFIGURATIONS, is_sf_experiment, read_sf_agent, read_tensors
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
    assert agent.metric == pytest.approx(5.07, abs=1e-3)
    assert (agent.settings.vis_encode_type, agent.settings.image_units) == ("convnet_impala", 16)
    assert agent.settings.memory is not None and agent.settings.memory.kind == "gru"
    (checkpoints / "checkpoint_000000025_12800.pth").unlink()
    assert read_sf_agent(folder, "best").steps == 12800
    with pytest.raises(CheckpointError, match="no checkpoint"):
        read_sf_agent(folder)


class _Harmful:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "evil.pth"
    torch.save({"model": _Harmful(mark)}, path)
    with pytest.raises(CheckpointError, match=r"asks for \w+\.mkdir"):
        read_tensors(path)
    assert not mark.exists()


def test_tensors_come_back_as_torch_saved_them(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    saved = {"view": base[1:3, ::2], "transposed": base.T, "bytes": torch.tensor([1, 255], dtype=torch.uint8), "n": 3}
    torch.save(saved, tmp_path / "t.pth")
    found = read_tensors(tmp_path / "t.pth")
    assert found["n"] == 3
    for name in ("view", "transposed", "bytes"):
        np.testing.assert_array_equal(found[name], saved[name])


def test_a_cut_file_is_an_error_with_advice(tmp_path: Path) -> None:
    whole = (DATA / "sf_battle" / "checkpoint_p0" / "checkpoint_000000025_12800.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"damaged.*fetch it again"):
        read_tensors(tmp_path / "cut.pth")


def test_a_tensor_that_reaches_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(4)}, tmp_path / "whole.pth")
    with zipfile.ZipFile(tmp_path / "whole.pth") as whole, zipfile.ZipFile(tmp_path / "short.pth", "w") as short:
        for info in whole.infolist():
            data = whole.read(info)
            short.writestr(info.filename, data[:8] if "/data/" in info.filename else data)
    with pytest.raises(CheckpointError, match=r"damaged.*fetch it again"):
        read_tensors(tmp_path / "short.pth")


def test_an_old_file_a_compressed_one_and_strange_numbers_are_refused(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(4)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"t": torch.zeros(4)}, tmp_path / "whole.pth")
    torch.save({"t": np.void(b"1234")}, tmp_path / "void.pth")
    with (
        zipfile.ZipFile(tmp_path / "whole.pth") as whole,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for info in whole.infolist():
            bomb.writestr(info.filename, whole.read(info))
        bomb.writestr("archive/data/1", bytes(10_000_000))
    for name in ("old.pth", "bomb.pth", "void.pth"):
        with pytest.raises(CheckpointError, match="or damaged"):
            read_tensors(tmp_path / name)


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
