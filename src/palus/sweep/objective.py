"""What trials are compared by, out of what every run reports of itself (`palus.progress`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from palus.config import RunFile
from palus.config.faults import near_name
from palus.run.misfits import baselines_of

MARKS = 20
"""Equal parts of a trial's budget, at the end of each of which trials are compared."""
BASELINES = "Baselines/"

TAGS = {
    "win_rate": BASELINES,
    "rating": "Self-play/Rating",
    "elo": "Self-play/ELO",
    "reward": "Environment/Cumulative Reward",
    "group_reward": "Environment/Group Cumulative Reward",
    "true_objective": "Environment/True Objective",
}
"""Objective -> the tag that runs report it under. All of them are better when higher."""


@dataclass(frozen=True)
class Objective:
    """name: of TAGS. which: the only opponent (win_rate) or behavior that counts; "" for the mean of all."""

    name: str
    which: str = ""

    @classmethod
    def of(cls, word: str) -> Objective:
        """`win_rate`, `win_rate:ball-chaser`, `reward:Striker`."""
        name, _, which = word.partition(":")
        return cls(name, which)

    def __str__(self) -> str:
        return f"{self.name}:{self.which}" if self.which else self.name

    def fault(self, run: RunFile) -> str | None:
        """Why a run, `completed`, cannot be judged by it, or None."""
        if self.name not in TAGS:
            near = near_name(self.name, TAGS)
            return f"objective {self}: there is none of that name; " + (
                f"did you mean {near}?" if near else f"expected {', '.join(TAGS)}"
            )
        if self.name == "win_rate":
            known = [_called(word) for word in baselines_of(run)]
            if not known:
                return f"objective {self}: the run meets no fixed opponents (palus.baselines, baseline_interval)"
        else:
            later = run.default_settings if run.talks else None  # of behaviors that are known when they appear
            known = [] if later is not None else list(run.behaviors)
            own = [behavior for behavior in (*run.behaviors.values(), later) if behavior is not None]
            if self.name in ("rating", "elo") and not any(behavior.self_play for behavior in own):
                return f"objective {self}: takes self_play, which no behavior of the run has; choose reward"
            if self.name == "group_reward" and not any(behavior.learns_from_groups for behavior in own):
                return f"objective {self}: takes poca; others count what a group is paid as reward: choose that"
        if self.which and known and self.which not in known:
            return f"objective {self}: there is no {self.which}; expected {' or '.join(known)}"
        return None

    def values(self, line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Series and value of each number in a line of progress that it looks at."""
        tag, told = TAGS[self.name], line["values"]
        if self.name == "true_objective" and tag not in told:  # of a game that has none it is the reward
            paid = [told[own] for own in (TAGS["reward"], TAGS["group_reward"]) if told.get(own) is not None]
            told = {tag: sum(paid)} if paid else {}
        for name, value in told.items():
            if self.name == "win_rate":
                is_meant = name.startswith(tag) and self.which in ("", name.removeprefix(tag))
            else:
                is_meant = name == tag and self.which in ("", line["behavior"])
            if is_meant and value is not None:
                yield f"{line['policy']} {name}", value


def _called(word: str) -> str:
    """What results call a fixed opponent (`load_player`)."""
    path = Path(word)
    return path.resolve().name if path.is_dir() else path.stem if path.is_file() else word


def curve(lines: Sequence[Mapping[str, Any]], objective: Objective, minutes: float) -> dict[int, float]:
    """Mark, from 1 to MARKS -> mean of what was reported in the part of the budget that it ends.

    lines: of a run's progress so far; marks that it has not passed are left out. minutes: the budget, 0 for the run's
    max_steps; who has none to do is as far as the others. Where a part brought nothing new the value before it stands;
    several learners and opponents count alike.
    """
    series: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    passed, limits = 0, dict[str, int]()
    for line in lines:
        if line["kind"] == "run":
            limits = line["max_steps"]
        elif line["kind"] == "summary":
            limit = limits.get(line["behavior"], 0)
            now = (passed + 0.5) / MARKS
            share = line["seconds"] / (60 * minutes) if minutes else line["step"] / limit if limit else now
            mark = min(max(math.ceil(share * MARKS), 1), MARKS)
            passed = max(passed, mark - 1)
            for name, value in objective.values(line):
                series[name][mark].append(value)
    if is_over(lines, minutes):
        passed = MARKS
    latest: dict[str, float] = {}
    found: dict[int, float] = {}
    for mark in range(1, passed + 1):
        latest |= {name: fmean(own[mark]) for name, own in series.items() if mark in own}
        if latest:
            found[mark] = fmean(latest.values())
    return found


def is_over(lines: Sequence[Mapping[str, Any]], minutes: float) -> bool:
    """Whether a run used up its budget, and was not stopped before."""
    match lines[-1] if lines else {}:
        case {"kind": "end", "finished": finished, "seconds": seconds}:
            return bool(finished or 0 < minutes * 60 <= seconds * 1.01 + 1)
    return False
