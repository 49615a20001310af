"""Agents as files: what is written comes back, the better one is taken, anything else is refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from palus.config.network import NetworkSettings
from palus.errors import CheckpointError
from palus.run.agent_folder import Agent, read_agent, write_agent
from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

SPEC = GameSpec.alike(
    "doom_duel",
    (ObservationSpec("obs", (3, 72, 128), "uint8"), ObservationSpec("measurements", (23,))),
    ActionSpec((Discrete(3), Discrete(11, -12.5, 12.5), Continuous(2, -1.0))),
    num_agents=2,
    teams=(0, 1),
    frameskip=2,
    fps=35.0,
)


def agent(metric: float | None = 7.5, steps: int = 4000) -> Agent:
    arrays = {"core.core.weight_hh_l0": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array([1e300])}
    return Agent(SPEC, NetworkSettings(memory={"kind": "lstm"}, decoder_layers=(64,)), arrays, steps, metric)


def test_an_agent_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "Doom").mkdir()
    write_agent(tmp_path / "Doom" / "policy.npz", agent())
    found = read_agent(tmp_path)
    assert (found.spec, found.settings, found.steps, found.metric) == (SPEC, agent().settings, 4000, 7.5)
    for name, array in agent().arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


def test_of_a_population_the_best_or_the_one_asked_for_is_read(tmp_path: Path) -> None:
    for k, metric in enumerate([1.0, None, 3.0]):
        (tmp_path / "Doom" / f"policy_{k}").mkdir(parents=True)
        write_agent(tmp_path / "Doom" / f"policy_{k}" / "best.npz", agent(metric, steps=k))
    assert read_agent(tmp_path, "best").steps == 2
    assert read_agent(tmp_path, "best", policy=1).steps == 1


def test_a_folder_without_an_agent_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no best policy \(best\.npz\).*take the latest"):
        read_agent(tmp_path, "best")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x04N."])
def test_a_file_that_is_no_agent_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "Doom").mkdir()
    (tmp_path / "Doom" / "policy.npz").write_bytes(content)
    with pytest.raises(CheckpointError, match="not an agent that palus wrote"):
        read_agent(tmp_path)
