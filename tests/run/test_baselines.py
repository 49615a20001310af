"""Matches against fixed opponents: whom the game or the run file names, and how much time they may take."""

from __future__ import annotations

from typing import Any

import pytest

from palus import envs
from palus.arena.referee.result import PairingSummary
from palus.config import load_run
from palus.envs.arena_game import ArenaGame
from palus.run import baselines
from palus.run.baselines import Baselines
from palus.run.misfits import baselines_of


class Silent:
    state_size = 0


class Clock:
    """Time that passes when somebody says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_game_says_whom_a_run_measures_itself_against_and_the_run_file_may_say_others() -> None:
    assert baselines_of(load_run("debug", ["palus.baseline_interval=1"])) == ("random", "ball-chaser")
    assert baselines_of(load_run("debug", ["palus.baseline_interval=1", "palus.baselines=[goalie-striker]"])) == (
        "goalie-striker",
    )
    assert baselines_of(load_run("debug", ["palus.baseline_interval=0"])) == ()
    assert baselines_of(load_run("strikers-vs-goalie-fast")) == ("random", "ball-chaser")
    assert (
        baselines_of(load_run("debug", ["palus.env=DuelToy", "palus.baseline_interval=1", "palus.baselines=[random]"]))
        == ()
    )


def test_a_game_of_another_folder_declares_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ArenaGame("other", ("tag",), bots=("sitter",), yardsticks=("sitter",))
    monkeypatch.setattr("palus.run.misfits.arena_games", lambda: {"other": other})
    assert baselines_of(load_run("debug", ["palus.env=other", "palus.baseline_interval=1"])) == ("sitter",)


def test_evaluation_takes_a_twentieth_of_the_time_by_a_counted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, played = Clock(), []

    def play(a: Any, b: Any, pairs: int, **_: Any) -> tuple[()]:
        clock.now += 30.0
        played.append(clock.now)
        return ()

    monkeypatch.setattr(baselines, "play_pairs", play)
    monkeypatch.setattr(baselines.time, "perf_counter", clock)
    run = load_run("debug", ["palus.baseline_interval=1000", "palus.baselines=[random]"])
    made = Baselines(run, envs.make("SoccerTwos", 1).spec, {"SoccerTwos": Silent()})  # type: ignore[dict-item]
    shares = []
    for step in range(100, 400_000, 100):
        clock.now += 1.0
        if made.evaluate_if_due(step, clock.now):
            shares.append(30.0 * len(played) / clock.now)
    assert 5 <= len(played) < 400 and all(share <= 0.05 for share in shares[1:])
    assert 30.0 * len(played) / clock.now > 0.04  # and hardly less than it may
    again = Baselines(run, envs.make("SoccerTwos", 1).spec, {"SoccerTwos": Silent()})  # type: ignore[dict-item]
    again.load_state_dict(made.state_dict())
    assert again.state_dict() == made.state_dict()
    assert not again.evaluate_if_due(10**9, clock.now)  # what was spent before counts on


def test_an_update_of_several_intervals_is_one_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "play_pairs", lambda *_, **__: ())
    run = load_run("debug", ["palus.baseline_interval=1000", "palus.baselines=[random]"])
    made = Baselines(run, envs.make("SoccerTwos", 1).spec, {"SoccerTwos": Silent()})  # type: ignore[dict-item]
    steps = (999, 3500, 3600, 3999, 4000, 4001)
    assert [step for step in steps if made.evaluate_if_due(step, 1e6)] == [3500, 4000]


def test_a_result_is_told_by_opponent_once_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "play_pairs", lambda *_, **__: ())
    run = load_run("debug", ["palus.baseline_interval=1000"])
    made = Baselines(run, envs.make("SoccerTwos", 1).spec, {"SoccerTwos": Silent()})  # type: ignore[dict-item]
    found = made.evaluate(5)
    assert list(found) == ["random", "ball-chaser"] and all(isinstance(r, PairingSummary) for r in found.values())
    assert made.evaluate(5) == {} and list(made.evaluate(6)) == ["random", "ball-chaser"]
