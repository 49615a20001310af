"""Trials are compared at equal shares of their budget, whatever they reported when."""

from __future__ import annotations

from typing import Any

import pytest

from palus.sweep.objective import MARKS, Objective, curve, is_over

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


def test_by_minutes_it_is_the_time_that_counts() -> None:
    lines = [RUN, rewards(20, 1, 1.0), rewards(40, 31, 3.0)]
    assert curve(lines, Objective("reward"), minutes=1) == dict.fromkeys(range(1, 11), 1.0)
    stopped = {"kind": "end", "step": 40, "seconds": 31.0, "finished": False}
    assert not is_over([*lines, stopped], minutes=1)
    assert is_over([*lines, stopped | {"seconds": 59.9}], minutes=1)
    assert is_over([*lines, stopped | {"finished": True}], minutes=1)
    assert not is_over([*lines, stopped | {"seconds": 9e9}], minutes=0)
    assert not is_over([], minutes=1)


def test_behaviors_and_opponents_count_alike_or_one_of_them_alone() -> None:
    lines = [RUN, rewards(100, 1, 1.0), rewards(50, 1, 2.0, "B"), rewards(2000, 2, 5.0), rewards(1000, 2, 8.0, "B")]
    assert curve(lines, Objective("reward"), 0)[1] == 1.5
    assert curve(lines, Objective.of("reward:B"), 0)[1] == 2.0
    shares = [RUN, said(100, 1, {"Baselines/random": 0.9, "Baselines/bot": 0.5}), rewards(200, 2, 0.0)]
    assert curve(shares, Objective.of("win_rate"), 0) == {1: pytest.approx(0.7)}
    assert curve(shares, Objective.of("win_rate:bot"), 0) == {1: 0.5}
    assert curve(shares, Objective.of("elo"), 0) == {}
