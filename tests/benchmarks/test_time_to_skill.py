"""When a run has crossed, what the table says of one that has not, and which folders are whose."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import time_to_skill
from palus.arena.referee.result import PairingSummary


def point(minutes, *scores):
    when = {"run": ".", "steps": 10**6 * minutes, "wall_s": 60.0 * minutes}
    return {**when, "scores": list(scores), "pairs": [50, 200, 200]}


def trained(seed, way, *points):
    sittings = [{"commit": "abc", "cpu": "Some CPU"}]
    return {"seed": seed, "way": way, "max_steps": 30e6, "matmul": "auto", "trained": sittings, "points": points}


def test_a_crossing_is_an_evaluation_and_another_that_confirms_it(monkeypatch) -> None:
    asked: list[tuple[int, int]] = []
    scores = iter([0.48, 0.55, 0.61, 0.59, 0.52, 0.63, 0.6])

    def play(policy, official, pairs, seed):
        asked.append((pairs, seed))
        return next(scores)

    monkeypatch.setattr(time_to_skill, "play_pairs", play)
    empty = PairingSummary(0.0, (0.0, 0.0), 0, 0, 0, 0, 0.0, None, None)
    monkeypatch.setattr(time_to_skill, "summarize", lambda score: PairingSummary(**{**vars(empty), "score": score}))
    found = [[s.score for s in time_to_skill.evaluate(None, None, 200, 7, 0.6)] for _ in range(3)]
    assert found == [[0.48], [0.55, 0.61, 0.59], [0.52, 0.63, 0.6]]
    assert [time_to_skill.crossed({"scores": scores}, 0.6) for scores in found] == [False, False, True]
    assert [pairs for pairs, _ in asked] == [50, 50, 200, 200, 50, 200, 200]
    assert len({seed for _, seed in asked}) == 3


def test_the_table_tells_the_median_and_who_did_not_get_there() -> None:
    machine = {"cpu": "Some CPU", "cpu_flags": [], "cores": 2, "commit": "abc", "versions": {"python": "3.11.9"}}
    load = {"before": [0.5, 0, 0], "after": [1.5, 0, 0]}
    report = {"machine": machine, "started": "2026-01-02T03:04:05+00:00", "wall_s": 60.0, "load_average": load}
    report |= {"recipe": "time-to-skill", "arguments": {"preset": "some", "pairs": 200, "target": 0.6}}
    runs = [
        trained(1, "one", point(1, 0.3), point(9, 0.6, 0.61, 0.62)),
        trained(2, "one", point(2, 0.3), point(30, 0.55, 0.58)),
        trained(3, "one", point(7, 0.6, 0.61, 0.62)),
        trained(1, "ranks", point(11, 0.6, 0.61, 0.62)),
    ]
    text = time_to_skill.markdown(report | {"runs": runs})
    assert "runs of 30M steps with matmul `auto`, two cores" in text
    assert "| one process on two threads | 3 | **9.0 minutes** |" in text
    assert "| two ranks of one thread | 1 | **11.0 minutes** |" in text
    assert "| one | 2 | not reached | 30.0M | 58.0% | |" in text.replace("  ", " ")


def test_trainings_are_found_by_seed_and_way_when_all_of_their_runs_ended(tmp_path: Path) -> None:
    ended = ["p-seed2", "p-seed1-ranks", "p-seed1-league/run-1", "p-seed3-league/run-1", "p-seed3-league/run-2"]
    for name in [*ended, "p-seed4-other", "q-seed5"]:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "bundle.json").touch()
    (tmp_path / "p-seed6").mkdir()
    arguments = argparse.Namespace(preset="p", results=tmp_path)
    found = time_to_skill.trained_runs(arguments)
    assert [(seed, way) for seed, way, _ in found] == [(2, "one"), (1, "ranks"), (3, "league")]
    with pytest.raises(SystemExit, match="no trained run of r"):
        time_to_skill.trained_runs(argparse.Namespace(preset="r", results=tmp_path))
