"""`palus compare` between players whose order is known, on the real game."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from small_run import SPEC, policy_model
from typer.testing import CliRunner

from palus.arena.models.players import find_players
from palus.arena.referee.games import source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import MatchResult
from palus.cli import app
from palus.export.bundle import Provenance, write_bundle


def compare(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compare", *words])
    return done.exit_code, done.output


def test_a_better_team_is_called_better_and_the_numbers_add_up() -> None:
    code, output = compare("random", "goalie-striker", "--elo1", "100", "--json")
    report = json.loads(output)
    assert code == 0
    assert (report["a"], report["b"], report["outcome"]) == ("random", "goalie-striker", "better")
    assert report["llr"] >= report["bounds"][1] == 2.9444389791664403
    assert sum(report["pair_counts"]) == report["pairs"] < 200
    assert report["wins_of_b"] + report["draws"] + report["losses_of_b"] == 2 * report["pairs"]
    assert 0.5 < report["interval"][0] < report["score_of_b"]
    assert compare("random", "goalie-striker", "--elo1", "100", "--json") == (code, output)


def test_the_worse_team_is_not_called_better_and_the_words_say_so() -> None:
    code, output = compare("goalie-striker", "random", "--elo1", "100")
    assert code == 0
    assert "random is not better than goalie-striker: the results fit a lead of 0 points, not of 100." in output
    assert "mirrored pairs" in output and "palus match" in output


def test_too_few_pairs_leave_it_undecided() -> None:
    code, output = compare("random", "random", "--max-pairs", "3")
    assert code == 0
    assert "Undecided whether random is better than random" in output
    assert "in 3 mirrored pairs" in output


def test_ctrl_c_tells_what_was_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*args: Any, **options: Any) -> list[MatchResult]:
        if batches:
            os.kill(os.getpid(), signal.SIGINT)
        batches.append(args[2])
        return play_pairs(*args, **options)

    batches: list[int] = []
    monkeypatch.setattr("palus.arena.referee.match.play_pairs", play)
    done = CliRunner().invoke(app, ["compare", "random", "random", "--json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, len(batches)) == (130, 2)
    assert (report["pairs"], report["interrupted"], report["outcome"]) == (8, True, "undecided")
    assert "Interrupted: 8 of 2000 pairs were over and count" in done.stderr


def test_hypotheses_in_the_wrong_order_are_refused() -> None:
    code, output = compare("random", "random", "--elo0", "50")
    assert code == 2
    assert "elo0 must be smaller than elo1" in output


def test_without_a_terminal_lines_tell_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.cli.output.LINE_S", 0.0)
    done = CliRunner().invoke(app, ["compare", "ball-chaser", "random", "--max-pairs", "10"])
    assert re.fullmatch(
        r"(random - ball-chaser: \d+ % -2\.94 < [+-]\d\.\d\d < \+2\.94 after \d+ pairs, \d+ s\n)+", done.stderr
    )
    done = CliRunner().invoke(app, ["match", "ball-chaser", "random", "--pairs", "2"])
    assert "ball-chaser - random: 100 % 4/4 matches, " in done.stderr
    monkeypatch.setattr("palus.cli.output.LINE_S", 1e9)
    assert CliRunner().invoke(app, ["match", "ball-chaser", "random", "--pairs", "2"]).stderr == ""


def bundle_of(folder: Path, game: str) -> str:
    """A run's folder of a game that an arena plays, as far as commands that play look into it."""
    if game == "StrikersVsGoalie":
        specs = {behavior.name: behavior for behavior in source_of(game).spec.behaviors}
        models = {name: policy_model(0, spec) for name, spec in specs.items()}
    elif game == "my_games:Shaped":
        specs, models = {SPEC.name: SPEC}, {SPEC.name: policy_model()}
    else:
        specs, models = {"CartPole": SPEC}, {"CartPole": policy_model()}
    write_bundle(folder, models, specs, "behaviors: {}", Provenance(game))
    return str(folder)


def test_the_game_is_that_of_the_run(tmp_path: Path) -> None:
    strikers = bundle_of(tmp_path / "svg", "StrikersVsGoalie")
    code, output = compare(strikers, "random", "--max-pairs", "1")
    assert code == 0 and "than svg" in output
    code, output = compare("random", strikers, "--game", "SoccerTwos")
    assert code == 2 and "svg: trained for StrikersVsGoalie, and SoccerTwos is played here" in output
    cart = bundle_of(tmp_path / "cart", "palus.envs.gymnasium:make")
    for words in (["match", "random", cart], ["compare", cart, "random"], ["rank", cart]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2 and f"palus enjoy {cart}" in done.output
        assert "cart: trained for palus.envs.gymnasium:make, and what can be played here is SoccerTwos" in done.output
    shaped = bundle_of(tmp_path / "shaped", "my_games:Shaped")  # SoccerTwos with rewards of somebody's own
    code, output = compare(shaped, "random", "--max-pairs", "1")
    assert code == 0 and "than shaped" in output
    (Path(cart) / "bundle.json").write_text("[" * 100_000)
    assert "not a bundle, SoccerTwos.onnx is missing" in compare(cart, "random")[1]


def test_a_run_of_several_behaviors_is_ranked_as_a_whole(tmp_path: Path) -> None:
    strikers = bundle_of(tmp_path / "svg", "StrikersVsGoalie")
    players, rejected = find_players(Path(strikers), source_of("StrikersVsGoalie").spec)
    assert [player.name for player in players] == ["svg"] and not rejected
    bundle_of(tmp_path / "cart", "palus.envs.gymnasium:make")
    done = CliRunner().invoke(app, ["rank", str(tmp_path), "--pairs", "1", "--without", "goalie-striker"])
    assert done.exit_code == 0 and "│ svg " in done.stdout
