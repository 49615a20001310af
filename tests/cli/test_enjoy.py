"""`palus enjoy` as typed: measure, film, publish, fetch, measure again."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import onnxruntime as ort
import pytest
import torch
from countdown import Filmed
from hub_server import running_hub
from typer.testing import CliRunner

from palus.cli import app
from palus.config.appo import AppoNetworkSettings
from palus.config.network import NetworkSettings
from palus.envs import GameSource
from palus.export.policy_file import PolicyFile, write_policy
from palus.hub import client
from palus.hub.card import read_card
from palus.nn.network import Network
from palus.trust import Trust

MINE = ("--trust", "countdown")
SF_AGENT = Path(__file__).parents[1] / "run" / "data" / "sf_health_gathering"


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a toy game, as training leaves it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "mine"
    (folder / "countdown").mkdir(parents=True)
    (folder / "configuration.yaml").write_text(
        "behaviors: {countdown: {trainer_type: appo, network_settings: {hidden_units: 8, memory: {memory_size: 8}}}}\n"
        "palus: {env: 'countdown:Filmed'}\n"
    )
    for name, seed, steps in (("policy.npz", 1, 5000), ("best.npz", 2, 3000)):
        settings = AppoNetworkSettings(hidden_units=8, memory={"memory_size": 8})
        policy = Network(Filmed().spec.behaviors[0], settings, torch.Generator().manual_seed(seed))
        write_policy(folder / "countdown" / name, PolicyFile.of(policy, Filmed().spec, "countdown", steps, 1.0))
    return folder


def measured(*words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("enjoy", *words, *MINE, "--json").splitlines()[-1])
    return found


def test_measure_publish_fetch_and_measure_again(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("av", reason="the extra `video` is not installed")
    said = run("enjoy", folder, *MINE, "--max-num-episodes", 20, "--push-to-hub", "ada/counter", "--hub", "folder:pool")
    assert "over 20 episodes" in said
    assert (folder / "replay.mp4").stat().st_size > 1000
    published = tmp_path / "pool" / "ada" / "counter"
    metric = read_card((published / "README.md").read_bytes()).data["model-index"][0]["results"][0]["metrics"][0]
    assert metric["value"] in said
    assert (published / "replay.mp4").is_file()
    session = ort.InferenceSession(str(published / "countdown.onnx"), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["left", "recurrent_in"]
    mine = measured(folder, "--no-render", "--max-num-episodes", 20)
    theirs = measured("ada/counter", "--no-render", "--max-num-episodes", 20, "--hub", "folder:pool")
    assert (tmp_path / "counter" / "countdown" / "policy.npz").is_file()
    assert mine["objectives"] == theirs["objectives"]
    assert f"{mine['mean']:.2f} +/- {mine['std']:.2f}" == metric["value"]


def test_rights_to_publish_are_asked_for_before_anything_is_played(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "hf" / "stored_tokens"))
    words = ("enjoy", folder, *MINE, "--no-render", "--push-to-hub", "ada/counter")
    with running_hub(tmp_path / "hub") as hub:
        assert "no token is stored for this hub" in run(*words, "--hub", hub.url, code=2)
        client.log_in(hub.url, hub.token("bob"))
        assert "may not push to ada" in run(*words, "--hub", hub.url, code=2)
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        monkeypatch.delitem(sys.modules, "palus.hub.client")
        monkeypatch.delattr("palus.hub.client")
        assert "pip install 'palus[hub]'" in run(*words, "--hub", hub.url, code=2)
    assert not (folder / "evaluation.json").exists()


def test_an_agent_goes_through_a_hub_by_name_with_score_and_video(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av", reason="the extra `video` is not installed")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "hf" / "stored_tokens"))
    with running_hub(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert client.log_in(hub.url, hub.token("ada")) == "ada"
        said = run("enjoy", folder, *MINE, "--max-num-episodes", 20, "--push-to-hub", "ada/counter")
        assert f"{hub.url}/ada/counter" in said
        by_name = measured("ada/counter", "--no-render", "--max-num-episodes", 20)
        run("pull", "ada/counter", "again")
    pulled = measured("again", "--no-render", "--max-num-episodes", 20)
    mine = measured(folder, "--no-render", "--max-num-episodes", 20)
    assert mine["objectives"] == by_name["objectives"] == pulled["objectives"]
    assert (tmp_path / "again" / "replay.mp4").read_bytes() == (folder / "replay.mp4").read_bytes()
    card = read_card((tmp_path / "again" / "README.md").read_bytes())
    metric = card.data["model-index"][0]["results"][0]["metrics"][0]
    assert metric["value"] == f"{mine['mean']:.2f} +/- {mine['std']:.2f}"
    assert (tmp_path / "counter" / "countdown" / "best.npz").is_file()


def test_the_best_policy_is_the_one_that_is_played_and_published(folder: Path, tmp_path: Path) -> None:
    assert measured(folder, "--no-render")["steps"] == 5000
    run("push", folder, "ada/newest", "--hub", tmp_path / "pool")
    assert measured(folder, "--no-render", "--best", "--deterministic")["steps"] == 3000
    run("push", folder, "ada/best", "--hub", tmp_path / "pool")
    models = [(tmp_path / "pool" / "ada" / name / "countdown.onnx").read_bytes() for name in ("newest", "best")]
    assert models[0] != models[1]
    assert "best policy played" in (tmp_path / "pool" / "ada" / "best" / "README.md").read_text()


def test_an_agent_whose_folder_takes_no_file_is_measured_and_not_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    told = " ".join(run("enjoy", folder, *MINE, "--no-render").split())
    assert told.startswith(f"{folder} cannot be written: the score is told here") and "over 10 episodes" in told
    assert not (folder / "evaluation.json").exists()
    refused = run("enjoy", folder, *MINE, "--no-render", "--push-to-hub", "ada/counter", "--hub", "folder:pool", code=2)
    assert "evaluation.json: cannot be written (Permission denied); choose another place for the run" in refused
    assert "episodes" not in refused


def test_a_score_that_cannot_be_kept_is_told_first(folder: Path) -> None:
    (folder / "evaluation.json").mkdir()
    assert "over 10 episodes" in run("enjoy", folder, *MINE, "--no-render", code=2)


def test_the_video_changes_no_result(folder: Path) -> None:
    configuration = folder / "configuration.yaml"
    configuration.write_text(configuration.read_text().replace("Filmed", "Blushing"))
    av = pytest.importorskip("av", reason="the extra `video` is not installed")
    filmed = measured(folder, "--video", "seen.mp4", "--video-frames", 12)
    assert filmed["objectives"] == measured(folder, "--no-render")["objectives"]
    with av.open("seen.mp4") as video:
        assert video.streams.video[0].frames == 12


def test_numbers_have_the_units_in_which_they_were_counted(folder: Path) -> None:
    told = " ".join(run("enjoy", folder, *MINE, "--no-render").split())
    assert " frames in " in told and told.endswith("the agent was trained for 5,000 frames.")
    configuration = folder / "configuration.yaml"
    configuration.write_text(configuration.read_text().replace("appo", "ppo").replace("Filmed", "Unskipped"))
    told = " ".join(run("enjoy", folder, *MINE, "--no-render").split())
    assert " decisions in " in told and told.endswith("the agent was trained for 5,000 steps.")


def test_what_is_no_agent_is_said_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "give results/RUN_ID" in " ".join(run("enjoy", "nowhere", code=2).split())
    for name in ("results/nowhere", "mine/nowhere"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        assert f"{name}: no such folder; give results/RUN_ID" in " ".join(run("enjoy", name, code=2).split())
    (tmp_path / "pool").mkdir()
    refused = " ".join(run("enjoy", "ada/nowhere", "--hub", "folder:pool", code=2).split())
    assert "ada/nowhere: no such folder here, so a hub was asked: " in refused
    (tmp_path / "mine/SoccerTwos.onnx").touch()
    refused = " ".join(run("enjoy", "mine/SoccerTwos.onnx", code=2).split())
    assert "mine/SoccerTwos.onnx: a file; give the run's folder" in refused
    (tmp_path / "empty").mkdir()
    assert "expected configuration.yaml" in " ".join(run("enjoy", "empty", code=2).split())


def small_agent(folder: Path, name: str, source: GameSource) -> None:
    """A run's folder with a policy that nothing has taught."""
    (folder / name).mkdir(parents=True)
    network = {"hidden_units": 8, "num_layers": 1}
    tree = {"behaviors": {name: {"trainer_type": "ppo", "network_settings": network}}}
    tree["palus"] = {"env": source.env_id, "env_options": dict(source.options)}
    (folder / "configuration.yaml").write_text(json.dumps(tree))
    settings = NetworkSettings(hidden_units=8, num_layers=1)
    policy = Network(source.spec.behaviors[0], settings, torch.Generator().manual_seed(0))
    write_policy(folder / name / "policy.npz", PolicyFile.of(policy, source.spec, name, 1, 0.0))


def test_an_environment_of_gymnasium_is_called_by_its_name(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="needs the extra doom")
    source = GameSource("palus.envs.gymnasium:make", {"id": "CartPole-v1"}, Trust.of(["gymnasium"]))
    small_agent(tmp_path / "cart", "CartPole", source)
    words = ("enjoy", tmp_path / "cart", "--no-render", "--max-num-episodes", 1, "--trust", "gymnasium")
    assert run(*words).splitlines()[0].startswith("CartPole-v1: ")


def test_a_video_of_a_game_without_pictures_is_refused_at_once(tmp_path: Path) -> None:
    small_agent(tmp_path / "soccer", "SoccerTwos", GameSource("SoccerTwos"))
    told = " ".join(run("enjoy", tmp_path / "soccer", "--video", tmp_path / "x.mp4", code=2).split())
    assert "x.mp4: SoccerTwos draws no pictures; palus match --replay, then palus watch, show its matches" in told


def test_an_environment_that_was_made_without_pictures_is_told_of_before_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gymnasium", reason="needs the extra doom")
    monkeypatch.setattr("palus.cli.enjoy._play", lambda *_: pytest.fail("played"))
    source = GameSource("palus.envs.gymnasium:make", {"id": "CartPole-v1"}, Trust.of(["gymnasium"]))
    small_agent(tmp_path / "cart", "CartPole", source)
    words = ("enjoy", tmp_path / "cart", "--video", tmp_path / "x.mp4", "--trust", "gymnasium")
    told = " ".join(run(*words, code=2).split())
    assert f"rgb_array in palus.env_options of {tmp_path}/cart/configuration.yaml" in told


def test_an_agent_of_sample_factory_plays_doom(tmp_path: Path) -> None:
    pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
    experiment = shutil.copytree(SF_AGENT, tmp_path / "experiment")
    found = measured(experiment, "--no-render", "--max-num-episodes", 2, "--max-num-frames", 5000)
    assert found["env_id"] == "doom_health_gathering_supreme"
    assert all(1.0 < objective <= 21.0 for objective in found["objectives"])
    refused = run("enjoy", experiment, "--push-to-hub", "ada/doom", "--hub", tmp_path / "pool", code=2)
    assert "publishes runs of palus" in " ".join(refused.split())
