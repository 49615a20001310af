"""Every documented Doom environment has a run file that says what it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from palus.config import load_run, preset_names, unsupported
from palus.envs import BUILT_IN

LEFTOVERS = {"doom_dm", "doom_dwango5"}
"""Environments for which Sample Factory documents no training."""
DOOM = sorted(name for name in BUILT_IN if name.startswith("doom_"))
PAGE = (Path(__file__).parents[2] / "docs" / "doom.md").read_text("utf-8")


@pytest.mark.parametrize("env_id", [name for name in DOOM if name not in LEFTOVERS])
def test_every_environment_has_a_preset_of_its_name(env_id: str) -> None:
    name = env_id.replace("_", "-")
    assert name in preset_names()
    run = load_run(name)
    assert unsupported(run) == []
    assert run.env_id == env_id
    assert list(run.behaviors) == [env_id]
    behavior = run.behaviors[env_id]
    games, left = divmod(behavior.hyperparameters.buffer_size, behavior.time_horizon)
    assert (left, games % 16) == (0, 0), "2 workers x 2 splits x up to 4 agents"


def test_the_page_names_every_environment() -> None:
    short = {name.removesuffix("_flat_actions").removesuffix("_supreme") for name in DOOM} - {"doom_two_colors_hard"}
    assert [name for name in sorted(short) if f"`{name}`" not in PAGE] == []
