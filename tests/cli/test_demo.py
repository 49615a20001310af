"""`palus demo` from end to end, with seconds instead of minutes of training and without the network."""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console
from small_run import policy_model
from sqlalchemy import select
from typer.testing import CliRunner

from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee import match
from palus.arena.referee.replay import read_replay
from palus.arena.study import highlights
from palus.arena.study.highlights import beauty_of
from palus.cli import app, demo_arena, train
from palus.cli.demo import _goals as write_goals
from palus.cli.players import load
from palus.hub.model_card import share_text
from palus.store import open_store
from palus.store.tables import entries


@pytest.fixture
def stranger(tmp_path):
    """A folder with one policy from elsewhere and one file that cannot be played."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "stranger.onnx").write_bytes(policy_model())
    (folder / "broken.onnx").write_bytes(b"broken")
    return folder


@pytest.fixture
def few_matches(monkeypatch):
    """A tenth of the matches that the demo plays where nobody watches; the policy trains on a tenth of a rollout.

    It has its place after four games, not twenty, and the demo goes on when the stranger is on the board too.
    """
    import_module("palus.arena.locked.play")  # which would otherwise keep what is patched below
    play, load_run, record = match.play_pairs, train.load_run, highlights.record_wins

    def small_run(source, overrides=(), **more):
        settings = ("hyperparameters.buffer_size=4096", "network_settings.hidden_units=32")
        quick = ["palus.baseline_pairs=2", "palus.threads=1", "palus.matmul=highest", "palus.num_matches=32"]
        return load_run(source, [*(f"behaviors.SoccerTwos.{s}" for s in settings), *quick, *overrides], **more)

    monkeypatch.setattr(train, "load_run", small_run)
    monkeypatch.setattr("palus.config.load_run", small_run)
    monkeypatch.setattr(match, "play_pairs", lambda a, b, pairs, **more: play(a, b, min(pairs, 4), **more))
    monkeypatch.setattr(highlights, "record_wins", lambda *who, pairs, **more: record(*who, pairs=2, **more))
    settings = partial(ArenaSettings, entry_pairs=2, quiet_s=0.5)
    monkeypatch.setattr("palus.arena.ladder.settings.ArenaSettings", settings)
    monkeypatch.setattr("palus.web.api.leaderboard.is_provisional", lambda games, half_width: games < 4)
    await_place = demo_arena.await_place

    def await_both(arena, repo, seconds):
        deadline = time.monotonic() + seconds
        while "stranger/team" not in {row.repo for row in demo_arena.board(arena)} and time.monotonic() < deadline:
            time.sleep(0.5)
        return await_place(arena, repo, seconds)

    monkeypatch.setattr(demo_arena, "await_place", await_both)


def test_the_demo_trains_pushes_ranks_and_shows(tmp_path, stranger, few_matches, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "arena").mkdir()
    (tmp_path / "arena" / "palus.db").write_text("of an arena that went on after a former demo")
    words = ["demo", "--minutes", "0.02", "--arena-minutes", "5", "--json", "--leave"]
    result = CliRunner().invoke(app, [*words, "--results-dir", str(tmp_path), "--models", str(stranger)])
    assert result.exit_code == 0, result.output
    folder, found = tmp_path / "demo", json.loads(result.stdout)
    assert set(found["scores"]) == {"random", "ball-chaser"}
    assert found["repo"].endswith("/demo")
    ranked = {row["repo"]: row for row in found["board"]}
    assert {found["repo"], "palus/random", "palus/ball-chaser", "palus/goalie-striker", "stranger/team"} <= set(ranked)
    assert ranked[found["repo"]]["games"] >= 2
    assert "Its best win:" in result.stderr
    assert f"/room?purple={found['repo']}&play=1" in result.stderr  # a seat, as the model page's link gives one
    again = f"palus arena --data {tmp_path / 'arena-2'}"
    assert f"these addresses answer again after: {again}" in result.stderr
    last_line = ", ".join(f"{100 * score:.1f} % against {name}" for name, score in found["scores"].items())
    assert last_line in " ".join(result.stderr.split())
    card = (folder / "README.md").read_text()
    assert all(f"against {name} | {share_text(score, 100)} |" in card for name, score in found["scores"].items())
    assert json.loads((folder / "bundle.json").read_text())["results"] == found["scores"]
    assert "palus train soccertwos-strong" in result.stderr
    assert (folder / "SoccerTwos.onnx").is_file()
    assert json.loads((folder / "bundle.json").read_text())["steps"] >= 4096
    assert (found["page"] is None) == ("It scored no goal worth showing yet" in result.stderr)
    if found["page"] is not None:
        assert Path(found["page"]).stat().st_size > 10_000
        goals = read_replay(folder / "goals.match")[1].recordings
        assert goals and all(beauty_of(goal, "demo") > 0 for goal in goals)
    assert opened == []
    assert (tmp_path / "arena" / "palus.db").read_text().startswith("of an arena")
    store = open_store(tmp_path / "arena-2")
    with contextlib.closing(store), store.read() as connection:
        refused = connection.execute(select(entries.c.repo, entries.c.code).where(entries.c.state == "refused")).all()
    assert [repo for repo, _ in refused] == ["broken/team"]


def test_a_folder_of_models_that_is_not_there_is_told_before_anything_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("palus.cli.demo.train_team", lambda *_args, **_options: pytest.fail("trained"))
    result = CliRunner().invoke(app, ["demo", "--leave", "--models", str(tmp_path / "modles")])
    assert (result.exit_code, "--models" in result.stderr) == (2, True), result.output


def test_the_page_shows_the_best_goals_against_the_house_bots(tmp_path, monkeypatch):
    """With a player that does score."""
    house = load("ball-chaser", "goalie-striker", "random")
    monkeypatch.setattr("palus.cli.players.load", lambda *names: house)
    asked: list[list[str]] = []
    record = highlights.record_wins

    def fewer(player, opponents, **more):
        asked.append([o.name for o in opponents])
        return record(player, opponents[-1:], **{**more, "pairs": 3})

    monkeypatch.setattr(highlights, "record_wins", fewer)
    page = write_goals(tmp_path, 0, Console())
    assert asked == [["goalie-striker", "random"]]
    goals = read_replay(tmp_path / "goals.match")[1].recordings
    assert 1 <= len(goals) <= 4
    beauty = [beauty_of(goal, "ball-chaser") for goal in goals]
    assert beauty == sorted(beauty, reverse=True)
    assert all(b > 0 for b in beauty)
    assert page is not None and page.read_text().startswith("<!doctype html>")


def test_without_goals_there_is_a_sentence_and_no_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(highlights, "record_wins", lambda *who, **more: [])
    monkeypatch.setattr("palus.cli.players.load", lambda *names: list(names))
    assert write_goals(tmp_path, 0, Console()) is None
    assert "It scored no goal worth showing yet; train longer with --minutes." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
