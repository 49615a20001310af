"""`palus push`, `pull` and `login` as typed, and ML-Agents' two commands, against a folder and a real hub."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml
from hub_server import RunningHub, running_hub
from small_run import make_run, policy_model
from typer.testing import CliRunner

import palus.hub
from palus.arena.referee.replay import read_replay
from palus.cli import app
from palus.cli.login import login
from palus.cli.mlagents_hub import load_from_hf, push_to_hf
from palus.errors import HubError
from palus.export.bundle import Provenance, write_bundle
from palus.types import BehaviorSpec


def run(*words: str | Path, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(autouse=True)
def own_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "hf" / "stored_tokens"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return make_run(tmp_path / "results" / "mine")


def test_from_a_run_to_a_match_against_the_published_model(tmp_path: Path, results: Path) -> None:
    pool = tmp_path / "pool"
    said = run("push", results, "ada/striker", "--hub", f"folder:{pool}")
    assert "an arena accepts it for SoccerTwos" in said
    assert f"palus pull ada/striker --hub folder:{pool}" in said
    published = pool / "ada" / "striker"
    assert "ada/striker" in read_replay(published / "replay.match")[1].recordings[0].names
    assert "<html" in (published / "replay.html").read_text()
    assert "Nothing changed" in run("push", results, "ada/striker", "--hub", pool)
    assert "SoccerTwos.onnx: Unity can load it." in run("push", results, "--check")
    run("pull", "ada/striker", tmp_path / "rival", "--hub", pool)
    report = json.loads(run("match", results, tmp_path / "rival", "--pairs", 1, "--json"))
    assert report["wins"] + report["draws"] + report["losses"] == 2
    (published / "SoccerTwos" / "policy.npz").write_bytes(b"of a whole run")
    said = run("pull", "ada/striker", tmp_path / "whole", "--hub", pool)
    assert "palus match YOUR_MODEL" in said and "palus enjoy" not in said  # by itself a team only meets itself


def test_who_fetches_an_agent_of_somebody_s_game_is_told_to_name_the_game(tmp_path: Path) -> None:
    published = tmp_path / "pool" / "ada" / "walker"
    (published / "Walker").mkdir(parents=True)
    for name in ("Walker.onnx", "Walker/policy.npz"):
        (published / name).write_bytes(b"never looked at")
    (published / "configuration.yaml").write_text("behaviors: {Walker: {}}\nenv_settings: {env_path: Builds/Walker}\n")
    said = run("pull", "ada/walker", tmp_path / "got", "--hub", tmp_path / "pool")
    assert f"palus enjoy {tmp_path / 'got'} --env YOUR_GAME" in said


def test_a_team_of_two_behaviors_is_checked_recorded_and_met_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, pool = tmp_path / "team", tmp_path / "the pool"
    specs = [
        BehaviorSpec.of_vectors("Striker", (231, 63), (3, 3, 3)),
        BehaviorSpec.of_vectors("Goalie", (738,), (3, 3, 3)),
    ]
    models = {spec.name: policy_model(1, spec) for spec in specs}
    configuration = yaml.safe_dump({"behaviors": {"Goalie": {}, "Striker": {}}})
    provenance = Provenance("StrikersVsGoalie", "poca")
    write_bundle(team, models, {spec.name: spec for spec in specs}, configuration, provenance)
    said = run("push", team, "ada/team", "--hub", f"folder:{pool}")
    assert f"{team}: an arena accepts it for StrikersVsGoalie" in said
    recording = read_replay(pool / "ada" / "team" / "replay.match")[1].recordings[0]
    assert recording.env_id == "StrikersVsGoalie" and "ada/team" in recording.names
    card = (pool / "ada" / "team" / "README.md").read_text()
    assert "palus pull ada/team rival --hub 'folder:the pool'" in card
    (command,) = re.findall(r"palus (match YOUR_MODEL rival .*)--pairs", card)
    words = command.replace("YOUR_MODEL", "goalie-striker").replace("rival", str(team)).split()
    assert json.loads(run(*words, "--pairs", 1, "--json"))["pairs"] == 1
    assert str(tmp_path) not in card
    monkeypatch.chdir(team)  # what is told works anywhere
    (fetch,) = re.findall(r"Anyone can fetch it: palus (.*)", said)
    run(*shlex.split(fetch))
    assert (team / "team" / "Striker.onnx").exists()


def test_the_card_shows_the_rating_of_a_leaderboard(tmp_path: Path, results: Path) -> None:
    board = tmp_path / "board.json"
    board.write_text(
        run("rank", results, "--pairs", 1, "--without", "goalie-striker", "--without", "ball-chaser", "--json")
    )
    pool = tmp_path / "pool"
    run("push", results, "ada/striker", "--hub", pool, "--rating", board, "--no-replay", "--no-check")
    standings = json.loads(board.read_text())["standings"]
    (mine,) = (s for s in standings if s["name"] == "mine")
    assert (
        f"| rating | {mine['rating']:.0f} ± {mine['half_width']:.0f}, rank"
        in (pool / "ada" / "striker" / "README.md").read_text()
    )
    assert "palus rank FOLDER --json" in run("push", results, "ada/x", "--hub", pool, "--rating", results, code=2)
    assert "--json > 'my board'" in run("push", results, "ada/x", "--hub", pool, "--rating", "my board", code=2)


def test_a_model_that_an_arena_refuses_is_not_uploaded(tmp_path: Path, results: Path) -> None:
    pool = tmp_path / "pool"
    (results / "SoccerTwos.onnx").write_bytes(b"not a model at all")
    for words in (("push", results, "--check"), ("push", results, "ada/striker", "--hub", pool)):
        said = run(*words, code=1)
        code, _, sentence = said.partition(": ")
        assert re.fullmatch(r"[a-z0-9-]+", code) and sentence
        assert "What to do: " in said
        assert "nothing was uploaded" in said
    assert not pool.exists()
    said = run("push", results, "ada/striker", "--hub", pool, "--no-check")
    assert "No replay" in said
    assert (pool / "ada" / "striker" / "SoccerTwos.onnx").read_bytes() == b"not a model at all"


def test_where_models_cannot_be_held_in_they_are_published_unchecked_and_no_arena_is_played(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, which is told before anything was trained for an arena or taken from one."""
    monkeypatch.delattr(os, "fork")
    said = run("push", results, "ada/striker", "--hub", f"folder:{tmp_path / 'pool'}")
    assert "accepts it is not checked, which needs Linux or macOS; on Windows, run palus in WSL" in said
    assert (tmp_path / "pool" / "ada" / "striker" / "SoccerTwos.onnx").is_file()
    assert "--check needs Linux or macOS" in run("push", results, "--check", code=2)
    assert "the arena, in which the demo ends, needs" in run("demo", "--results-dir", tmp_path / "demo", code=2)
    assert not (tmp_path / "demo").exists()
    worker = ("worker", "--arena", "http://127.0.0.1:9", "--token-file", "no.token")
    assert "playing for an arena needs" in run(*worker, code=2)
    assert "a sweep needs" in run("sweep", "run", "debug", "--space", "s.yaml", "--study", "s.db", code=2)
    assert "a league needs" in run("league", "cup.yaml", code=2)


def test_a_policy_of_a_unity_game_is_published_unvetted_with_unitys_verdict(tmp_path: Path) -> None:
    menu, pool = tmp_path / "results" / "d4", tmp_path / "pool"
    menu.mkdir(parents=True)
    (menu / "configuration.yaml").write_text("behaviors: {MenuToy: {trainer_type: ppo}}")
    (menu / "MenuToy.onnx").write_bytes(policy_model())
    for words in (("--check",), ("ada/menu", "--hub", pool)):
        said = run("push", menu, *words)
        assert "MenuToy is no game of an arena" in said and "MenuToy.onnx: Unity can load it." in said
    card = (pool / "ada" / "menu" / "README.md").read_text()
    assert "palus match YOUR_MODEL rival --env YOUR_GAME" in card


def test_login_push_and_pull_with_a_hub_never_show_the_token(tmp_path: Path, results: Path, hub: RunningHub) -> None:
    token = hub.token("ada")
    assert "no token is stored" in run("push", results, "ada/striker", "--hub", hub.url, code=2)
    said = run("login", hub.url, stdin=f"{token}\n")
    said += run("push", results, "ada/striker", "--hub", hub.url, "--no-replay", "--no-check")
    assert f"Signed in to {hub.url} as ada" in said
    assert f"Published {hub.url}/ada/striker" in said
    said += run("pull", "ada/striker", tmp_path / "rival", "--hub", hub.url)
    assert token not in said
    assert (tmp_path / "rival" / "SoccerTwos.onnx").read_bytes() == (results / "SoccerTwos.onnx").read_bytes()
    assert not (tmp_path / "rival" / ".cache").exists()


def test_rights_are_asked_for_before_the_work(results: Path, hub: RunningHub) -> None:
    (results / "SoccerTwos.onnx").write_bytes(b"a model that an arena refuses, had it been looked at")
    words = ("push", results, "ada/striker", "--hub", hub.url)
    for token, reason in (
        (hub.token("bob"), "ada/striker: you are bob at .* and may not push to ada; name it bob/striker"),
        (hub.token("ada", "read"), "the token of ada may only read; get one that may write"),
    ):
        run("login", hub.url, stdin=token)
        assert re.search(reason, run(*words, code=2).replace("\n", " "))
    for token in (hub.token("Ada"), hub.token("carol", "read", "write", "admin")):
        run("login", hub.url, stdin=token)
        assert "nothing was uploaded" in run(*words, code=1)  # now the model is looked at


def test_mistakes_are_explained(tmp_path: Path, results: Path) -> None:
    assert "no repository is named" in run("push", results, code=2)
    assert "expected OWNER/NAME" in run("push", results, "striker", code=2)
    assert "not a hub" in run("push", results, "ada/striker", "--hub", "nowhere", code=2)
    assert "no such run" in run("push", tmp_path / "none", "ada/striker", code=2)
    assert "a folder needs no token" in run("login", f"folder:{tmp_path}", code=2)
    assert "empty: no such folder" in run("pull", "ada/striker", "--hub", tmp_path / "empty", code=2)
    (tmp_path / "empty").mkdir()
    assert "holds none" in run("pull", "ada/striker", "--hub", tmp_path / "empty", code=2)


def test_the_commands_of_mlagents_work_with_their_flags(
    tmp_path: Path, results: Path, hub: RunningHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("login", hub.url, stdin=hub.token("ada"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    before = sorted(path.name for path in results.iterdir())
    push = ["--run-id=mine", f"--local-dir={results}", "--repo-id=ada/course", "--commit-message=First"]
    assert push_to_hf(push) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Pushing repo mine to the Hugging Face Hub"
    assert said[-1] == f"Your model is pushed to the hub. You can view your model here: {hub.url}/ada/course"
    assert sorted(path.name for path in results.iterdir()) == before
    assert load_from_hf(["--repo-id=ada/course", f"--local-dir={tmp_path / 'models'}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"The repository ada/course has been downloaded to {tmp_path / 'models' / 'course'}"
    )
    assert (tmp_path / "models" / "course" / "SoccerTwos" / "checkpoint.pt").is_file()
    assert push_to_hf([f"--local-dir={tmp_path}", "--repo-id=ada/course"]) == 2
    assert "found no .onnx file" in capsys.readouterr().err


def test_login_without_standard_input_says_how_to_give_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(HubError, match="no token was given"):
        login("http://127.0.0.1:9")


def test_the_commands_of_mlagents_name_the_package_that_they_miss(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "palus.hub.client", raising=False)
    monkeypatch.delattr(palus.hub, "client", raising=False)
    assert push_to_hf([f"--local-dir={results}", "--repo-id=ada/course"]) == 2
    assert load_from_hf(["--repo-id=ada/course", f"--local-dir={tmp_path}"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["error: huggingface_hub is not installed; pip install 'palus[hub]'"] * 2
