"""Names of code from outside: nothing of theirs runs unless a person named the module on the command line.

The files are those of a stranger's published agent; each kind of path into the program is tried as typed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from code_that_runs import MODULE, Stranger
from countdown import Filmed
from typer.testing import CliRunner

from palus import envs
from palus.cli import app
from palus.config.appo import AppoNetworkSettings
from palus.envs import GameSource, make_game
from palus.errors import PalusError, TrustError
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.network import Network
from palus.trust import Trust, load
from palus.types import GameSpec, ObservationSpec

SF_AGENT = Path(__file__).parent / "run" / "data" / "sf_health_gathering"
MINE = ("--trust", "countdown")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    monkeypatch.chdir(tmp_path)
    return Stranger(tmp_path, monkeypatch)


def refused(*words: str | Path) -> str:
    """What a command says that does not do what it was asked, as one line."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def agent_folder(folder: Path, palus: dict[str, Any], encoder: str = "convnet_simple") -> Path:
    """A published agent: its configuration, and weights with settings of their own."""
    network = {"hidden_units": 8, "memory": {"memory_size": 8}, "vis_encode_type": encoder}
    tree = {"behaviors": {"Duel": {"trainer_type": "appo", "network_settings": network}}, "palus": palus}
    (folder / "Duel").mkdir(parents=True)
    (folder / "configuration.yaml").write_text(yaml.safe_dump(tree))
    settings = AppoNetworkSettings(hidden_units=8, memory={"memory_size": 8})
    policy = Network(Filmed().spec.behaviors[0], settings, torch.Generator())
    told = settings.model_copy(update={"vis_encode_type": encoder})
    file = replace(PolicyFile.of(policy, Filmed().spec, "Duel", 1), settings=told, model=None)
    write_policy(folder / "Duel" / "policy.npz", file)
    return folder


def test_a_package_is_trusted_with_what_is_in_it_and_nothing_beside_it() -> None:
    trust = Trust.of(["games.mine"], ["palus.env=typed:Game", "palus.threads=1", "x.vis_encode_type='nets.own:Net'"])
    allowed = [
        name for name in ("games.mine", "games.mine.a", "typed", "nets.own", "nets", "games", "games.miner", "os", "")
        if trust.allows(name)
    ]  # fmt: skip
    assert allowed == ["games.mine", "games.mine.a", "typed", "nets.own"]
    assert trust.option == " --trust games.mine --trust nets.own --trust typed"
    with pytest.raises(TrustError, match="--trust os:_exit: not the name of a module"):
        Trust.of(["os:_exit"])


def test_what_a_trusted_module_itself_imports_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("code_that_calls")
    module.Popen = subprocess.Popen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "code_that_calls", module)
    assert load("palus.trust:Trust", Trust.of(["palus.trust"]), "it") is Trust
    with pytest.raises(TrustError, match="would run code of the module subprocess"):
        load("code_that_calls:Popen", Trust.of(["code_that_calls"]), "it")


@pytest.mark.parametrize("env_id", [f"{MODULE}:make", "os:_exit", "palus.files:write_text", ":", "os:", "os"])
def test_games_come_from_the_tables_alone(stranger: Stranger, env_id: str) -> None:
    for make in (
        lambda: envs.make(env_id, 1),
        lambda: make_game(env_id),
        lambda: GameSource(env_id).single(),
        lambda: GameSource(env_id).spec,
    ):
        with pytest.raises(PalusError):
            make()
    assert not stranger.ran


GAMES = [
    {"env": f"{MODULE}:make"},
    {"env": "palus.envs.gymnasium:make", "env_options": {"id": f"{MODULE}:Pole-v1"}},
    {"env": "palus.envs.pettingzoo:make", "env_options": {"module": MODULE}},
    {"env": f"{MODULE}:make", "env_options": {"trust": {"modules": [MODULE]}, "env_id": "doom_basic"}},
]


@pytest.mark.parametrize("palus", GAMES)
def test_a_strangers_agent_runs_no_game_of_his(stranger: Stranger, tmp_path: Path, palus: dict[str, Any]) -> None:
    folder = agent_folder(tmp_path / "pulled", palus)
    file = folder / "configuration.yaml"
    for words in (("enjoy", folder), ("train", file), ("train", file, "--resume"), ("train", file, "--check")):
        said = refused(*words)
        assert "pulled" in said and palus["env"] in said, said
        assert f"would run code of the module {MODULE}" in said and f"add --trust {MODULE}" in said, said
    CliRunner().invoke(app, ["push", str(folder), "--check"])
    assert not stranger.ran
    refused("enjoy", folder, "--trust", MODULE)  # it runs, and then has no game to offer
    assert stranger.ran


def test_the_options_go_with_what_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"args": "touch it-ran", "shell": True}
    folder = agent_folder(tmp_path / "pulled", {"env": "subprocess:Popen", "env_options": options})
    said = refused("enjoy", folder)
    assert "palus.env subprocess:Popen" in said and "touch it-ran" in said and "--trust subprocess" in said
    assert not (tmp_path / "it-ran").exists()


def test_a_strangers_encoder_does_not_run(stranger: Stranger, tmp_path: Path) -> None:
    """The weights' own settings name it, whatever the run file says."""
    encoder = f"{MODULE}:make"
    actions = Filmed().spec.behaviors[0].actions
    picture = GameSpec.alike("picture", (ObservationSpec("obs", (3, 40, 44), "uint8"),), actions)
    with pytest.raises(TrustError, match=f"network_settings.vis_encode_type {encoder}: would run"):
        Network(picture.behaviors[0], AppoNetworkSettings(vis_encode_type=encoder), torch.Generator())
    folder = agent_folder(tmp_path / "pulled", {"env": "doom_basic"}, encoder)
    said = refused("train", folder / "configuration.yaml")
    assert f"behaviors.Duel.network_settings.vis_encode_type {encoder}: would run" in said
    file = tmp_path / "defaults.yaml"
    network = f"{{network_settings: {{vis_encode_type: {encoder}}}}}"
    file.write_text(f"{{default_settings: {network}, palus: {{env: PenaltyToy}}}}")
    said = refused("train", file, "--check")
    assert f"default_settings.network_settings.vis_encode_type {encoder}: would run" in said
    assert not stranger.ran


def test_an_experiment_of_sample_factory_names_built_in_games_only(stranger: Stranger, tmp_path: Path) -> None:
    folder = shutil.copytree(SF_AGENT, tmp_path / "experiment")
    name = "config.json" if (folder / "config.json").exists() else "cfg.json"
    tree = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(tree | {"env": f"{MODULE}:make"}))
    assert f"--trust {MODULE}" in refused("enjoy", folder)
    assert not stranger.ran


def test_a_pushed_models_name_is_looked_up_not_imported(stranger: Stranger, tmp_path: Path) -> None:
    folder = tmp_path / "pulled"
    folder.mkdir()
    name = f"{MODULE}:make"
    (folder / f"{name}.onnx").write_bytes(b"\x08\x08")
    (folder / "configuration.yaml").write_text(yaml.safe_dump({"behaviors": {name: {"trainer_type": "ppo"}}}))
    told = CliRunner().invoke(app, ["push", str(folder), "--check"])
    assert f"{name} is no game of an arena" in " ".join(told.output.split())
    assert not stranger.ran


def test_ones_own_module_is_named_once_more_or_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = agent_folder(tmp_path / "mine", {"env": "countdown:Filmed"}) / "configuration.yaml"
    for words in (MINE, ("palus.env=countdown:Filmed",)):
        result = CliRunner().invoke(app, ["train", str(file), "--check", *words])
        assert result.exit_code == 0, result.output
    assert CliRunner().invoke(app, ["enjoy", "mine", "--no-render", *MINE]).exit_code == 0


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("checkpoint_settings.run_id=../outside", "run_id ../outside leads out of results_dir"),
        ("checkpoint_settings.run_id=/tmp/outside", "run_id /tmp/outside leads out of results_dir"),
        ("checkpoint_settings.run_id=.", "run_id . leads out of results_dir"),
    ],
)
def test_a_run_files_names_stay_below_its_folder(change: str, fault: str) -> None:
    assert fault in refused("train", "debug", change, "--check")


@pytest.mark.parametrize("name", ["../outside", "/outside", ".ssh", "a/b"])
def test_a_behaviors_name_is_the_name_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"behaviors": {name: {"trainer_type": "ppo"}}}))
    assert "a behavior's name is a file's name" in refused("train", tmp_path / "run.yaml", "--check")
