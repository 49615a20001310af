"""Trials are compared at equal shares of their budget, whatever they reported when."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from palus.arena.referee.result import PairingSummary
from palus.config import load_run
from palus.progress import PROGRESS, ProgressReader
from palus.run.baselines import Baselines
from palus.run.misfits import completed
from palus.sweep.objective import MARKS, Objective, curve, is_over
from palus.train import train

RUN = {"kind": "run", "max_steps": {"A": 2000, "B": 1000}}


def said(step: int, seconds: float, values: dict[str, float | None], behavior: str = "A") -> dict[str, Any]:
    policy = "AB".index(behavior)
    names = {"kind": "summary", "policy": policy, "behavior": behavior}
    return {**names, "step": step, "seconds": seconds, "values": values}


def rewards(step: int, seconds: float, reward: float | None, behavior: str = "A") -> dict[str, Any]:
    return said(step, seconds, {"Environment/Cumulative Reward": reward, "Losses/Value Loss": 9.0}, behavior)


def test_a_mark_is_the_mean_of_its_part_and_what_is_missing_stands_as_it_was() -> None:
    lines = [RUN, rewards(20, 1, 1.0), rewards(100, 2, 3.0), rewards(310, 3, 5.0), rewards(390, 4, None)]
    assert curve(lines, Objective("reward"), 0) == {1: 2.0, 2: 2.0, 3: 2.0}  # the fourth part goes on
    ended = [*lines, {"kind": "end", "step": 400, "seconds": 5, "finished": True}]
    found = curve(ended, Objective("reward"), 0)
    assert (found[3], found[4], found[MARKS]) == (2.0, 5.0, 5.0)


def test_the_true_objective_of_a_game_without_a_score_is_its_reward() -> None:
    group: dict[str, float | None] = {"Environment/Cumulative Reward": 1.0, "Environment/Group Cumulative Reward": 2.0}
    lines = [RUN, rewards(20, 1, 1.0), said(150, 2, group), rewards(310, 3, None), said(390, 4, {})]
    assert curve(lines, Objective("true_objective"), 0) == {1: 1.0, 2: 3.0, 3: 3.0}
    scored = said(20, 1, {"Environment/Cumulative Reward": 1.0, "Environment/True Objective": 5.0})
    assert curve([RUN, scored, rewards(150, 2, None)], Objective("true_objective"), 0) == {1: 5.0}


def test_by_minutes_it_is_the_time_that_counts() -> None:
    lines = [RUN, rewards(20, 1, 1.0), rewards(40, 31, 3.0)]
    assert curve(lines, Objective("reward"), minutes=1) == dict.fromkeys(range(1, 11), 1.0)
    stopped = {"kind": "end", "step": 40, "seconds": 31.0, "finished": False}
    assert not is_over([*lines, stopped], minutes=1)
    assert is_over([*lines, stopped | {"seconds": 59.9}], minutes=1)
    assert is_over([*lines, stopped | {"finished": True}], minutes=1)
    assert not is_over([*lines, stopped | {"seconds": 9e9}], minutes=0)
    assert not is_over([], minutes=1)
    late = [*lines, rewards(60, 65, 7.0), stopped | {"seconds": 66.0, "finished": True}]
    assert curve(late, Objective("reward"), minutes=1)[MARKS] == 7.0


def test_test_matches_that_outlast_the_budget_are_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose time is over while it plays its fixed opponents used it up: nothing is left to go on with."""
    clock, late = time.perf_counter, [0.0]

    def slow(_: Baselines, __: int, ___: float) -> dict[str, PairingSummary]:
        late[0] += 60.0
        return {}

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + late[0])
    monkeypatch.setattr(Baselines, "evaluate_if_due", slow)
    behavior = {
        "trainer_type": "ppo", "hyperparameters": {"batch_size": 64, "buffer_size": 256}, "max_steps": 1_000_000,
        "network_settings": {"hidden_units": 16, "num_layers": 1}, "time_horizon": 8, "summary_freq": 256,
    }  # fmt: skip
    tree: dict[str, Any] = {"behaviors": {"MenuToy": behavior}}
    tree["palus"] = {"env": "MenuToy", "num_matches": 16, "matmul": "highest", "threads": 1, "max_minutes": 1.0}
    tree["checkpoint_settings"] = {"run_id": "seed-0", "results_dir": str(tmp_path)}
    (tmp_path / "run.yaml").write_text(json.dumps(tree))
    assert train(load_run(tmp_path / "run.yaml")).steps == 256
    _, lines = ProgressReader(tmp_path / "seed-0" / PROGRESS).news()
    assert is_over(lines, minutes=1), lines[-1]
    assert MARKS in curve(lines, Objective("reward"), minutes=1)


def test_a_behavior_that_learns_nothing_is_as_far_as_the_others() -> None:
    """Test matches are told of the first behavior, whichever that is."""
    run = {"kind": "run", "max_steps": {"A": 0, "B": 1000}}
    lines = [run, rewards(10, 1, 1.0, "B"), rewards(10, 1, 9.0), said(10, 1, {"Baselines/bot": 0.1})]
    assert curve(lines, Objective("reward"), 0) == {}
    lines += [rewards(500, 2, 3.0, "B"), rewards(500, 2, 7.0), said(500, 2, {"Baselines/bot": 0.5})]
    assert curve(lines, Objective("reward"), 0) == dict.fromkeys(range(1, 10), 5.0)
    lines += [rewards(960, 3, 4.0, "B"), said(960, 3, {"Baselines/bot": 0.9})]
    ended = [*lines, {"kind": "end", "step": 1000, "seconds": 4, "finished": True}]
    found = curve(ended, Objective("win_rate"), 0)
    assert (found[1], found[10], found[MARKS]) == (0.1, 0.5, 0.9)


def test_behaviors_and_opponents_count_alike_or_one_of_them_alone() -> None:
    lines = [RUN, rewards(100, 1, 1.0), rewards(50, 1, 2.0, "B"), rewards(2000, 2, 5.0), rewards(1000, 2, 8.0, "B")]
    assert curve(lines, Objective("reward"), 0)[1] == 1.5
    assert curve(lines, Objective.of("reward:B"), 0)[1] == 2.0
    half = [RUN, rewards(40, 1, 1.0, "B"), rewards(480, 2, 3.0, "B")]  # of its own steps
    assert curve(half, Objective("reward"), 0) == dict.fromkeys(range(1, 10), 1.0)
    shares = [RUN, said(100, 1, {"Baselines/random": 0.9, "Baselines/bot": 0.5}), rewards(200, 2, 0.0)]
    assert curve(shares, Objective.of("win_rate"), 0) == {1: pytest.approx(0.7)}
    assert curve(shares, Objective.of("win_rate:bot"), 0) == {1: 0.5}
    assert curve(shares, Objective.of("elo"), 0) == {}


def test_only_who_learns_from_groups_tells_what_they_were_paid(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps({"behaviors": {"SoccerTwos": {"trainer_type": "ppo"}}}))
    ppo = completed(load_run(tmp_path / "run.yaml"))
    assert Objective("group_reward").fault(ppo) == (
        "objective group_reward: takes poca; others count what a group is paid as reward: choose that"
    )
    poca = completed(load_run(tmp_path / "run.yaml", ["behaviors.SoccerTwos.trainer_type=poca"]))
    assert Objective("group_reward").fault(poca) is None


def test_behaviors_that_default_settings_stand_in_for_are_judged_and_report_like_the_others(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="plans take palus[sweep]")
    from palus.sweep.plan import Plan

    tree: dict[str, Any] = {
        "default_settings": {"trainer_type": "ppo", "self_play": {}},
        "palus": {"env": "PenaltyToy", "baselines": ["random"]},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(tree))
    run = completed(load_run(tmp_path / "run.yaml"))
    assert Objective.of("elo:Keeper").fault(run) is None
    assert (
        Objective.of("elo:Kepper").fault(run) == "objective elo:Kepper: there is no Kepper; expected Striker or Keeper"
    )
    unity = load_run(tmp_path / "run.yaml", ["palus.env=null", "env_settings.env_path=Game"])
    assert Objective.of("elo:Kepper").fault(unity) is None, "who plays in a game of Unity is known when it runs"
    with_budget = Plan(tree, (), (Objective("win_rate"),), steps=4000).run({}, tmp_path, 0)
    assert {name: own.summary_freq for name, own in with_budget.behaviors.items()} == {"Striker": 200, "Keeper": 200}
    assert with_budget.palus.baseline_interval == 200
