"""When a run has crossed, and what the table says of one that has not."""

from __future__ import annotations

import time_to_skill
from palus.arena.referee.result import PairingSummary


def point(minutes, *scores):
    return {"steps": 10**6 * minutes, "wall_s": 60.0 * minutes, "scores": list(scores), "pairs": [50, 200, 200]}


def test_a_crossing_is_an_evaluation_and_another_that_confirms_it(monkeypatch) -> None:
    asked: list[tuple[int, int]] = []
    scores = iter([0.48, 0.55, 0.61, 0.59, 0.52, 0.63, 0.6])

    def play(policy, official, pairs, seed):
        asked.append((pairs, seed))
        return next(scores)

    monkeypatch.setattr(time_to_skill, "play_pairs", play)
    empty = PairingSummary(0.0, (0.0, 0.0), 0, 0, 0, 0, 0.0, None, None)
    monkeypatch.setattr(time_to_skill, "summarize", lambda score: PairingSummary(**{**vars(empty), "score": score}))
    found = [[s.score for s in time_to_skill.evaluate(None, None, 200, 7)] for _ in range(3)]
    assert found == [[0.48], [0.55, 0.61, 0.59], [0.52, 0.63, 0.6]]
    assert [time_to_skill.crossed({"scores": scores}) for scores in found] == [False, False, True]
    assert [pairs for pairs, _ in asked] == [50, 50, 200, 200, 50, 200, 200]
    assert len({seed for _, seed in asked}) == 3


def test_the_table_tells_the_median_and_who_did_not_get_there() -> None:
    machine = {"cpu": "Some CPU", "cpu_flags": [], "cores": 2, "commit": "abc", "versions": {"python": "3.11.9"}}
    load = {"before": [0.5, 0, 0], "after": [1.5, 0, 0]}
    report = {"machine": machine, "started": "2026-01-02T03:04:05+00:00", "wall_s": 60.0, "load_average": load}
    report["arguments"] = {"preset": "soccertwos-strong", "pairs": 200}
    sittings = [{"commit": "abc", "cpu": "Some CPU"}]
    runs = [
        {"seed": 1, "trained": sittings, "points": [point(1, 0.3), point(9, 0.6, 0.61, 0.62)]},
        {"seed": 2, "trained": sittings, "points": [point(2, 0.3), point(30, 0.55, 0.58)]},
        {"seed": 3, "trained": sittings, "points": [point(7, 0.6, 0.61, 0.62)]},
    ]
    text = time_to_skill.markdown(report | {"runs": runs})
    assert "**Median 9.0 minutes**" in text
    assert "| 2 | not reached | 30.0M | 58.0% | |" in text.replace("  ", " ")
