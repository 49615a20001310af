"""The table of environments, and where map files are looked for."""

from __future__ import annotations

import importlib.util

import pytest

from palus.envs import BUILT_IN, make_game
from palus.envs.doom.scenarios import ENVIRONMENTS, find_wad
from palus.errors import EnvError, ScenarioError

needs_vizdoom = pytest.mark.skipif(importlib.util.find_spec("vizdoom") is None, reason="needs the extra doom")


def test_every_environment_of_the_table_is_a_game_by_its_name():
    assert len(ENVIRONMENTS) == 20
    assert set(ENVIRONMENTS) == {name for name in BUILT_IN if name.startswith("doom_")}


@pytest.mark.parametrize(
    ("name", "wad", "agents", "bots", "scale", "frameskip", "logits"),
    [
        ("doom_basic", "basic.wad", 1, 0, 0.01, 4, 4),
        ("doom_my_way_home", "my_way_home.wad", 1, 0, 1, 4, 6),
        ("doom_deadly_corridor", "deadly_corridor.wad", 1, 0, 0.01, 4, 11),
        ("doom_health_gathering_supreme", "health_gathering_supreme.wad", 1, 0, 1, 4, 5),
        ("doom_battle2", "battle2.wad", 1, 0, 1, 4, 21),
        ("doom_duel_bots", "ssl2.wad", 1, 1, 1, 2, 41),
        ("doom_deathmatch_bots", "dwango5.wad", 1, 7, 1, 2, 39),
        ("doom_duel", "ssl2.wad", 2, 0, 1, 2, 41),
        ("doom_deathmatch_full", "freedm.wad", 4, 4, 1, 2, 41),
        ("doom_dm", "cig.wad", 8, 0, 1, 2, 15),
    ],
)
def test_who_plays_what(name, wad, agents, bots, scale, frameskip, logits):
    env = ENVIRONMENTS[name]
    assert (env.scenario.wad, env.agents, env.bots) == (wad, agents, bots)
    assert (env.reward_scale, env.frameskip, env.layout.spec.parameters) == (scale, frameskip, logits)


def test_the_named_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "basic.wad").write_bytes(b"own")
    monkeypatch.setenv("PALUS_DOOM_SCENARIOS", str(tmp_path))
    assert find_wad("basic.wad") == tmp_path / "basic.wad"


def test_a_missing_map_names_the_package_that_holds_it_and_a_stand_in(tmp_path, monkeypatch):
    monkeypatch.setenv("PALUS_DOOM_SCENARIOS", str(tmp_path))
    monkeypatch.setattr("palus.envs.doom.scenarios._package_folder", lambda package, *parts: [])
    with pytest.raises(ScenarioError, match=r"no map file battle.wad in .*sample-factory.*PALUS_DOOM_SCENARIOS"):
        find_wad("battle.wad")
    with pytest.raises(ScenarioError, match=r"option wad: multi_duel.wad"):
        find_wad("ssl2.wad")


@needs_vizdoom
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("doom_basic", {"num_bots": 3}, "a game for one"),
        ("doom_basic", {"shaping": {"HEALTH": [1, 1]}}, "names HEALTH, which .* give one of AMMO2"),
        ("doom_basic", {"gravity": 3}, "gravity: no such option; there are frameskip, resolution, "),
        ("doom_basic", {"frame_skip": 3}, "frame_skip: no such option; did you mean frameskip?"),
        ("doom_basic", {"wad": "/etc/passwd"}, "wad: String should match pattern"),
        ("doom_basic", {"wad": "../basic.wad"}, "wad: String should match pattern"),
        ("doom_basic", {"resolution": [72, 10**9]}, "resolution.1: Input should be less than or equal to 2048"),
        ("doom_basic", {"shaping": {"AMMO2": [float("nan"), 0]}}, "shaping.AMMO2.0: Input should be a finite number"),
        ("doom_basic", {"env_id": "doom_duel"}, "env_id: "),
        ("doom_basic", {"trust": {"modules": ["os"]}}, "trust: no such option"),
    ],
)
def test_options_without_use_are_refused(name, options, message):
    with pytest.raises(EnvError, match=message):
        make_game(name, **options)


@needs_vizdoom
def test_an_unknown_environment_is_answered_with_the_list():
    from palus.envs.doom.game import make

    with pytest.raises(EnvError, match="unknown Doom environment 'doom_nowhere'; give one of doom_basic, "):
        make("doom_nowhere")


@needs_vizdoom
def test_the_spec_is_known_without_an_engine():
    spec = make_game("doom_duel", wad="multi_duel.wad", frameskip=3, resolution=(60, 80)).spec
    assert (spec.num_agents, spec.frameskip, spec.fps) == (2, 3, 35)
    assert [(o.name, o.shape, o.dtype) for o in spec.behaviors[0].observations] == [
        ("obs", (3, 60, 80), "uint8"),
        ("measurements", (23,), "float32"),
    ]
