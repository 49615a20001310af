"""`palus compare` between players whose order is known, on the real game."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest
from typer.testing import CliRunner

from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import MatchResult
from palus.cli import app


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
