"""The figures of a run over its training: from its progress file, or from TensorBoard's of older versions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from palus.hub.training_curve import read_scalars
from palus.progress import PROGRESS, EndLine, ProgressReader, SessionLine, SummaryLine, understood
from palus.web.shapes import Shape

MAX_POINTS = 400
"""Of a curve in an answer; a screen shows no more."""
PACE_SUMMARIES = 10
"""The last so many give the speed."""
TEST_MATCHES = "Baselines/"
"""So begin the tags of rows that come when test matches were played, a moment after a summary."""
EVENTS = "events.out.tfevents.*"

State = Literal["waiting", "running", "finished", "stopped"]


class Curves(Shape):
    """The figures of a learner. steps, seconds and every list of values are equally long, the oldest summary first.

    seconds: of training, None in runs of older versions. values: TensorBoard tag -> number, None where a summary lacks
    it. speed: trainer steps per second of late; left_s: seconds to its last step at that speed; None when not known.
    """

    learner: str
    policy: int
    behavior: str
    step: int
    max_steps: int | None
    speed: float | None
    left_s: float | None
    steps: list[int]
    seconds: list[float | None]
    values: dict[str, list[float | None]]


Row = tuple[int, float | None, Mapping[str, float | None]]
"""Step, seconds and the values by tag."""


@dataclass
class _Series:
    """What a learner's summaries said so far, row by row."""

    learner: str
    policy: int
    behavior: str
    rows: list[Row] = field(default_factory=list)

    def curves(self, max_steps: int | None, ends_in_s: float | None) -> Curves:
        """As it is sent. ends_in_s: when its session ends at the latest."""
        kept = thinned(self.rows)
        tags = dict.fromkeys(tag for _, _, values in self.rows for tag in values)
        step = self.rows[-1][0] if self.rows else 0
        speed = self._speed()
        left_s = (max_steps - step) / speed if max_steps is not None and speed else None
        return Curves.like(
            self,
            step=step,
            max_steps=max_steps,
            speed=speed,
            left_s=None if left_s is None else max(0.0, left_s if ends_in_s is None else min(left_s, ends_in_s)),
            steps=[step for step, _, _ in kept],
            seconds=[seconds for _, seconds, _ in kept],
            values={tag: [values.get(tag) for _, _, values in kept] for tag in tags},
        )

    def _speed(self) -> float | None:
        """By the summaries of late, those of one update taken for one."""
        timed = {
            seconds: step
            for step, seconds, values in self.rows
            if seconds is not None and not (values and all(tag.startswith(TEST_MATCHES) for tag in values))
        }
        if not timed:
            return None
        late = [*timed.items()][-PACE_SUMMARIES:]
        (t0, s0), (t1, s1) = late[0] if len(late) > 1 else (0.0, 0), late[-1]
        return (s1 - s0) / (t1 - t0) if t1 > t0 and s1 > s0 else None


def thinned(rows: Sequence[Row]) -> list[Row]:
    """At most MAX_POINTS rows: neighbours become one with the last value of each tag; not all say the same."""
    every = math.ceil(len(rows) / MAX_POINTS) or 1
    parts = [rows[max(0, end - every) : end] for end in range(len(rows), 0, -every)]
    return [
        (part[-1][0], part[-1][1], {tag: value for _, _, values in part for tag, value in values.items()})
        for part in reversed(parts)
    ]


class Figures:
    """Follows one run's folder, which may be anybody's. opening: the last line that opened a session, None before there
    is one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = ProgressReader(folder / PROGRESS)
        self._forget()

    def _forget(self) -> None:
        self.opening: SessionLine | None = None
        self.state: State = "waiting"
        self._series: dict[str, _Series] = {}
        self._events: tuple[tuple[str, int], ...] = ()

    def update(self) -> None:
        """Read what is new."""
        void, lines = self._reader.news()
        if void:
            self._forget()
        for line in lines:
            self._take(line)
        if self.opening is None:
            self._read_events()

    @property
    def heard_ms(self) -> int | None:
        """When the run last wrote a line, by the clock of its disk."""
        try:
            return int((self.folder / PROGRESS).stat().st_mtime * 1000)
        except OSError:
            return None

    def _take(self, line: Mapping[str, Any]) -> None:
        match understood(line):
            case SessionLine() as opening:
                self.opening, self.state = opening, "running"
                for learner, policy, behavior in opening.learners:
                    self._series.setdefault(learner, _Series(learner, policy, behavior))
            case SummaryLine() as said:
                series = self._series.get(said.learner)
                if series is not None:
                    series.rows.append((said.step, said.seconds, said.values))
            case EndLine() as end:
                self.state = "finished" if end.finished else "stopped"

    def curves(self, max_steps: Mapping[str, int], now_s: float) -> list[Curves]:
        """Of every learner. max_steps: by behavior, or by learner where those of one differ; now_s: Unix time."""
        opening, ends_in_s = self.opening, None
        if opening is not None and opening.max_minutes and opening.started:
            ends_in_s = opening.started + 60.0 * opening.max_minutes - now_s
        return [
            series.curves(max_steps.get(series.learner, max_steps.get(series.behavior)), ends_in_s)
            for series in self._series.values()
        ]

    def _read_events(self) -> None:
        """What TensorBoard's files hold, read anew when they have grown."""
        files = sorted([*self.folder.glob(f"*/{EVENTS}"), *self.folder.glob(f"*/policy_*/{EVENTS}")])
        sizes = tuple((str(path), path.stat().st_size) for path in files)
        if sizes == self._events:
            return
        self._events, self._series, self.state = sizes, {}, "stopped"
        for path in files:
            behavior, *policy = path.relative_to(self.folder).parts[:-1]
            label = " ".join([behavior, *(part.replace("_", " ") for part in policy)])
            series = self._series.setdefault(label, _Series(label, len(self._series), behavior))
            rows = {step: values for step, _, values in series.rows} | dict(_rows(path))
            series.rows = [(step, None, rows[step]) for step in sorted(rows)]


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, float | None]]]:
    """The numbers of every step in an event file; a step that a resumed run repeats comes from its last file."""
    rows: dict[int, dict[str, float | None]] = {}
    for step, tag, value in read_scalars(path.read_bytes()):
        rows.setdefault(step, {})[tag] = value if math.isfinite(value) else None
    yield from rows.items()


def slowest(curves: Sequence[Curves]) -> float | None:
    """Seconds until the last learner is done; None while one of them cannot say."""
    left = [curve.left_s for curve in curves]
    return None if not left or None in left else max(s for s in left if s is not None)
