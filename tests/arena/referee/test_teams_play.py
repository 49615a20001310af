"""Matches of several behaviors: each side brings a model for every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from team_models import ENV, RIGHT, WRONG, striker, team_folder

from palus.arena.models.players import Team, load_player
from palus.arena.referee.match import play_pairs
from palus.errors import ModelError
from palus.types import GameSpec


def test_each_member_of_a_team_plays_its_own_behavior(squads: GameSpec, tmp_path: Path) -> None:
    """Half a team beats one that knows nothing, and loses against a whole one."""
    folders = {"whole": (RIGHT, RIGHT), "striking": (RIGHT, WRONG), "keeping": (WRONG, RIGHT), "lost": (WRONG, WRONG)}
    whole, striking, keeping, lost = (
        load_player(str(team_folder(tmp_path / name, *weights)), squads) for name, weights in folders.items()
    )
    for better, worse in ((whole, striking), (whole, keeping), (striking, lost), (keeping, lost)):
        results = play_pairs(better, worse, 3, seed=0, env_id=ENV, num_parallel=4)
        assert [r.result for r in results] == ["win1", "win2"] * 3
    assert play_pairs(whole, whole, 1, seed=0, env_id=ENV)[0].result == "draw"
    random = load_player("random", squads)
    assert isinstance(whole, Team) and whole.sha256 != striking.sha256 and random.sha256 is None
    assert {r.result for r in play_pairs(whole, random, 4, seed=0, env_id=ENV)} == {"win1", "win2"}


def test_a_team_is_a_folder_with_a_model_for_each_behavior(squads: GameSpec, tmp_path: Path) -> None:
    folder = team_folder(tmp_path / "half", RIGHT, RIGHT)
    with pytest.raises(ModelError, match=r"one model, and Squads needs several; give the folder of Striker\.onnx and"):
        load_player(str(folder / "Striker.onnx"), squads)
    (folder / "Keeper.onnx").write_bytes(striker(RIGHT))
    with pytest.raises(ModelError, match=r"Keeper\.onnx: takes obs_0 \[batch, 4\] .*; Keeper needs obs_0"):
        load_player(str(folder), squads)
    (folder / "Keeper.onnx").unlink()
    with pytest.raises(ModelError, match=r"not a bundle, Keeper\.onnx is missing; it holds Striker\.onnx"):
        load_player(str(folder), squads)
