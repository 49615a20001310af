"""The card of a published agent: the score where leaderboards read it, and the user's own words kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palus.errors import HubError
from palus.hub.card import read_card
from palus.hub.layout import read_run
from palus.hub.publish import publish
from palus.hub.score import AgentScore, read_score
from palus.hub.target import FolderTarget

GAME = "doom_health_gathering_supreme"
SCORE = AgentScore(GAME, episodes=100, mean=12.5, std=1.25, mean_reward=30.5, steps=4_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder as training and `palus enjoy` leave it; nobody looks into the model here."""
    folder = tmp_path / "results" / "doom"
    folder.mkdir(parents=True)
    (folder / f"{GAME}.onnx").write_bytes(b"model")
    (folder / "configuration.yaml").write_text(
        f"behaviors:\n  {GAME}:\n    trainer_type: appo\npalus:\n  env: {GAME}\n"
    )
    (folder / "evaluation.json").write_text(json.dumps(SCORE.__dict__))
    (folder / "replay.mp4").write_bytes(b"video")
    return folder


def test_the_card_states_the_score_as_leaderboards_read_it(folder: Path, tmp_path: Path) -> None:
    publish(read_run(folder), "ada/doom", FolderTarget(tmp_path / "pool"))
    published = tmp_path / "pool" / "ada" / "doom"
    card = read_card((published / "README.md").read_bytes())
    assert card.warning is None
    assert card.library_name == "palus"
    assert GAME in card.tags
    result = card.data["model-index"][0]["results"][0]
    assert result["metrics"] == [
        {"type": "mean_reward", "value": "12.50 +/- 1.25", "name": "mean_reward", "verified": False}
    ]
    assert result["dataset"] == {"name": GAME, "type": GAME}
    text = (published / "README.md").read_text()
    assert "**11.25**" in text  # mean - std, the course's mark
    assert "4,000,000 engine frames" in text
    assert (published / "replay.mp4").read_bytes() == b"video"


@pytest.mark.parametrize(
    ("trainer", "title", "counted"),
    [("appo", "An **APPO** agent", "engine frames"), ("ppo", "A **PPO** agent", "steps")],
)
def test_the_card_names_the_trainer_and_what_it_counts(tmp_path: Path, trainer: str, title: str, counted: str) -> None:
    folder = tmp_path / "pendulum"
    folder.mkdir()
    (folder / "Pendulum.onnx").write_bytes(b"model")
    (folder / "configuration.yaml").write_text(
        f"behaviors:\n  Pendulum:\n    trainer_type: {trainer}\npalus:\n  env: palus.envs.gymnasium:make\n"
    )
    (folder / "evaluation.json").write_text(json.dumps({**SCORE.__dict__, "env_id": "Pendulum", "steps": 90_000}))
    publish(read_run(folder), "ada/pendulum", FolderTarget(tmp_path / "pool"))
    text = (tmp_path / "pool" / "ada" / "pendulum" / "README.md").read_text()
    assert f"# {title} for **Pendulum**" in text and f"with palus for 90,000 {counted}." in text
    assert read_card(text.encode()).data["model-index"][0]["name"] == trainer.upper()
    assert "palus match" not in text  # no arena plays it


def test_an_agent_of_a_game_that_arenas_film_is_measured_by_its_score_and_met_in_matches(tmp_path: Path) -> None:
    folder = tmp_path / "duel"
    folder.mkdir()
    (folder / "doom_duel.onnx").write_bytes(b"model")
    (folder / "configuration.yaml").write_text(
        "behaviors: {doom_duel: {trainer_type: appo}}\npalus: {env: doom_duel}\n"
    )
    publish(read_run(folder), "ada/duel", FolderTarget(tmp_path / "pool"))
    text = (tmp_path / "pool" / "ada" / "duel" / "README.md").read_text()
    assert "palus enjoy agent" in text and "palus match YOUR_MODEL rival --game doom_duel --pairs 200" in text
    assert set(read_card(text.encode()).tags) >= {"doom_duel", "palus", "reinforcement-learning"}


def test_words_of_ones_own_stay_and_gain_the_labels(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("---\ntags: [mine]\n---\nMy own words.\n")
    publish(read_run(folder), "ada/doom", FolderTarget(tmp_path / "pool"))
    text = (tmp_path / "pool" / "ada" / "doom" / "README.md").read_text()
    assert text.endswith("My own words.\n")
    assert set(read_card(text.encode()).tags) == {
        "mine",
        GAME,
        "deep-reinforcement-learning",
        "reinforcement-learning",
        "palus",
    }


def test_a_score_that_is_no_number_is_refused(folder: Path) -> None:
    (folder / "evaluation.json").write_text(json.dumps({**SCORE.__dict__, "mean": float("nan")}))
    with pytest.raises(HubError, match="measure again"):
        read_score(folder)
