"""What a person sees of a run: a progress bar, one line per summary and learner, TensorBoard with ML-Agents' tags, and
the same numbers as lines of JSON for the live page (`palus.progress`)."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tensorboardX import summary

from palus.config import RunFile
from palus.errors import StorageError
from palus.files import GrowingFile
from palus.progress import PROGRESS, ProgressWriter, finite
from palus.rollout.game_statistics import GameTold
from palus.run.events import EventFile
from palus.run.folder import RunFolder
from palus.run.postponed import Postponed
from palus.run.timers import Timers
from palus.run.trainee import PolicyRecord, Trainee
from palus.terminal import Terminal

RECENT_UPDATES = 20
"""Updates that the shown speed is averaged over."""


@dataclass
class _Line:
    """One learner in the report."""

    trainee: Trainee
    summary_step: int = 0
    events: EventFile | None = None
    task: TaskID | None = None
    pace: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT_UPDATES))

    @property
    def rate(self) -> float:
        """Steps per second of late."""
        if not self.pace:
            return 0.0
        (t0, s0), (t1, s1) = self.pace[0], self.pace[-1]
        return (s1 - s0) / max(t1 - t0, 1e-9)


class Report:
    """Collects what happened since the last summary; a summary is due at every multiple of `summary_freq`."""

    def __init__(
        self,
        run: RunFile,
        trainees: Sequence[Trainee],
        folder: RunFolder,
        timers: Timers,
        console: Console | None = None,
        log: Callable[[str, str], None] | None = None,
        note: Callable[[Mapping[str, Any]], None] | None = None,
        postponed: Postponed | None = None,
    ) -> None:
        """log: takes level and text of every line in place of the console, which then shows no progress either. note:
        takes what goes to the progress file, too. postponed: what is done before the report ends, however it does."""
        self.run, self.lines, self.folder = run, [_Line(trainee) for trainee in trainees], folder
        self._timers, self._postponed = timers, postponed or Postponed()
        self.console, self._tell, self._also = console or Terminal(stderr=True), log, note
        self.last_scores: dict[str, float] = {}
        self._log = ProgressWriter(folder.root / PROGRESS)
        self._failed = set[str]()  # what lacks lines, and was told of
        self.seconds = 0.0
        """Of the run so far, as what is told next says; `advance` sets it."""
        self._progress: Progress | None = None

    def __enter__(self) -> Report:
        if self.console.is_terminal and self._tell is None:
            # Plain strings would be read as markup or not, as the line that is printed above the bar is.
            text = partial(TextColumn, markup=False)
            columns = (text("{task.description}", style="bold"), BarColumn(None), text("{task.percentage:>3.0f}%"))
            times = (text("{task.fields[state]}"), TimeElapsedColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, *times, console=self.console)
            self._progress.start()
        self._open(self.lines)
        return self

    def add(self, trainees: Sequence[Trainee]) -> None:
        """Tell of more learners from now on, those of a behavior that has just appeared."""
        fresh, is_open = [_Line(trainee) for trainee in trainees], self.lines[0].events is not None
        self.lines += fresh
        if is_open:
            self._open(fresh)

    def go_on(self) -> None:
        """Learners have made steps elsewhere, whose summaries were written there."""
        for line in self.lines:
            line.summary_step = line.trainee.step

    def _open(self, lines: Sequence[_Line]) -> None:
        """Begin the files and the progress bars of these learners."""
        for line in lines:
            line.events = EventFile(line.trainee.folder)
            settings = json.dumps(line.trainee.behavior.model_dump(mode="json"), indent=2)
            self._add(line, summary.text("Hyperparameters", f"```\n{settings}\n```"), 0)
            line.pace.append((time.perf_counter(), line.summary_step))
            if self._progress is not None:
                total, done = line.trainee.behavior.max_steps, line.summary_step
                line.task = self._progress.add_task(line.trainee.label, total=total, completed=done, state="")
        trainees = [line.trainee for line in self.lines]
        self._note(
            kind="run",
            run_id=self.run.checkpoint_settings.run_id,
            game=self.run.env_id,
            env_options=self.run.palus.env_options,
            behaviors=list(self.folder.behaviors),
            learners=[[trainee.label, trainee.policy, trainee.name] for trainee in trainees],
            max_steps={trainee.name: trainee.behavior.max_steps for trainee in trainees},
            max_minutes=self.run.palus.max_minutes,
            started=time.time(),
        )

    def __exit__(self, *_: object) -> None:
        with suppress(StorageError):
            self._postponed.do()
        trainees = [line.trainee for line in self.lines]
        finished = all(trainee.step >= trainee.behavior.max_steps for trainee in trainees)
        self._note(kind="end", step=min(t.step for t in trainees), seconds=self.seconds, finished=finished)
        if self._progress is not None:
            self._progress.stop()

    def is_due(self, number: int) -> bool:
        """Whether the next `advance` of a learner writes a summary."""
        line, step = self.lines[number], self.lines[number].trainee.shown_step
        return step - step % line.trainee.behavior.summary_freq > line.summary_step

    def advance(
        self,
        number: int,
        step: int,
        seconds: float,
        now: float,
        elo: float | None,
        performance: Mapping[str, float],
        statistics: GameTold = GameTold(),  # noqa: B008 - it cannot be changed
    ) -> None:
        """After an update of learner `number`: show progress, write a summary for every multiple of summary_freq that
        passed, each of the episodes until then; an update's losses are in the last one.

        step: that it had come to, as it is shown; now: when it had, by `time.perf_counter`. performance: tag -> number,
        beside what its record says; statistics: for the last one alone.
        """
        line, self.seconds = self.lines[number], seconds
        line.pace.append((now, step))
        if self._progress is not None and line.task is not None:
            self._progress.update(line.task, completed=step, state=self._state(line, step, elo))
        record, freq = line.trainee.record, line.trainee.behavior.summary_freq
        while (due := line.summary_step - line.summary_step % freq + freq) <= step:
            line.summary_step = due
            is_last = due + freq > step
            told = record.split_off(due, losses=is_last)
            self._summarize(line, told, due, seconds, elo, performance, statistics if is_last else GameTold())

    def _state(self, line: _Line, step: int, elo: float | None) -> str:
        parts = [f"{step:,} {line.trainee.unit}", f"{line.rate:,.0f}/s"]
        if elo is not None:
            parts.append(f"Elo {elo:.0f}")
        best = line.trainee.record.mean(line.trainee.metric) if line.trainee.metric else None
        parts += [f"{line.trainee.metric} {best:.2f}"] if best is not None else []
        parts += [f"{name} {score:.0%}" for name, score in self.last_scores.items()]
        return " · ".join(parts)

    def _summarize(
        self,
        line: _Line,
        record: PolicyRecord,
        step: int,
        seconds: float,
        elo: float | None,
        performance: Mapping[str, float],
        statistics: GameTold,
    ) -> None:
        values = {**record.summarize(), **performance, **statistics.numbers}
        values |= {f"Performance/{line.trainee.unit.title()} per Second": line.rate}
        if elo is not None:
            values["Self-play/ELO"] = elo
        contents = {tag: summary.scalar("value", value) for tag, value in values.items()}
        for tag, value in values.items():
            self._timers.gauge(line.trainee.label, tag, value, record.numbers_of(tag))
        for tag, value in (("Is Training", float(_is_training(line, step))), ("Step", float(step))):
            self._timers.gauge(line.trainee.label, tag, value)
        if record.episodes:
            contents["Environment/Cumulative Reward_hist"] = _histogram(record.rewards)
        for tag, numbers in statistics.spread.items():
            contents[f"{tag}_hist"] = _histogram(numbers)
        if record.group_rewards:
            contents["Environment/Group Cumulative Reward_hist"] = _histogram(record.group_rewards)
        self._write(line, contents, step)
        self._note_values(line.trainee, step, values)
        self.tell(_text(line, record, step, seconds, values))

    def _note_values(self, trainee: Trainee, step: int, values: Mapping[str, float]) -> None:
        names = {"learner": trainee.label, "policy": trainee.policy, "behavior": trainee.name}
        self._note(kind="summary", **names, step=step, seconds=round(self.seconds, 3), values=finite(values))

    def _note(self, **line: Any) -> None:
        """One line of the progress file."""
        if self._also is not None:
            self._also(line)
        self._grow(self._log, lambda: self._log.append(line), "the live page")

    def _grow(self, file: GrowingFile, write: Callable[[], None], reader: str) -> None:
        """Write to a file; what goes wrong is told once, and never stops the run."""
        try:
            self.folder.own(file.path)
            write()
        except StorageError as error:
            if reader not in self._failed:
                self.warn(f"{error} Training goes on; {reader} lacks what was not written.")
            self._failed.add(reader)

    def _write(self, line: _Line, contents: Mapping[str, Any], step: int) -> None:
        """Values under exactly these tags, in one event; tensorboardX's own calls would turn ML-Agents' blanks into
        underscores."""
        whole, *others = contents.values()
        for tag, content in contents.items():
            content.value[0].tag = tag
        for content in others:
            whole.value.extend(content.value)
        self._add(line, whole, step)

    def _add(self, line: _Line, event: Any, step: int) -> None:
        events = line.events
        if events is not None:
            self._grow(events, lambda: events.add(event, step), "TensorBoard")

    def scores(self, step: int, scores: Mapping[str, float], number: int = 0) -> None:
        """Shares of points of learner `number` against the baselines, when they were just played."""
        if not scores:
            return
        self.last_scores = dict(scores)
        line = self.lines[number]
        self._write(line, {f"Baselines/{name}": summary.scalar("value", score) for name, score in scores.items()}, step)
        self._note_values(line.trainee, step, {f"Baselines/{name}": score for name, score in scores.items()})
        text = ", ".join(f"{score:.1%} against {name}" for name, score in scores.items())
        self.tell(f"{line.trainee.label}. Step: {step}. Share of points: {text}.")

    def tell(self, message: str) -> None:
        """One line of text."""
        if self._tell is not None:
            self._tell("INFO", message)
            return
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def warn(self, message: str) -> None:
        """Something went wrong that does not stop the run."""
        if self._tell is not None:
            self._tell("WARNING", message)
            return
        self.console.print(f"[yellow]warning:[/] {escape(message)}", highlight=False, soft_wrap=True)

    def state_dict(self) -> dict[str, Any]:
        """The open summaries, so that a resumed run writes the same ones."""
        lines = [{"summary_step": line.summary_step, **line.trainee.record.state_dict()} for line in self.lines]
        return {"lines": lines, "scores": dict(self.last_scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. The trainees have their steps already."""
        self.last_scores = dict(state["scores"])
        self._log.cut_back({line.trainee.policy: line.trainee.step for line in self.lines})
        for line, saved in zip(self.lines, state["lines"], strict=False):  # one that has just appeared has none
            line.summary_step = int(saved["summary_step"])
            line.trainee.record.load_state_dict(saved)


def _is_training(line: _Line, step: int) -> bool:
    """Whether a learner still learned in the period that a summary at that step ends."""
    behavior = line.trainee.behavior
    return step - behavior.summary_freq < behavior.max_steps and not line.trainee.plays_only


def _text(line: _Line, record: PolicyRecord, step: int, seconds: float, values: Mapping[str, float]) -> str:
    """The console line of ML-Agents, so that people's log readers keep working, then what it has no words for."""
    parts = [line.trainee.label, f"Step: {step}", f"Time Elapsed: {seconds:.3f} s"]
    if record.episodes:
        parts.append(f"Mean Reward: {values['Environment/Cumulative Reward']:.3f}")
        if "Environment/Group Cumulative Reward" in values:
            parts.append(f"Mean Group Reward: {values['Environment/Group Cumulative Reward']:.3f}")
        elif not record.splits_rewards:
            parts.append(f"Std of Reward: {np.std(record.rewards):.3f}")
    else:
        parts.append("No episode was completed since last summary")
    parts.append("Training" if _is_training(line, step) else "Not Training")
    if "Self-play/ELO" in values:
        parts.append(f"ELO: {values['Self-play/ELO']:.3f}")
    if "Self-play/League Points" in values:
        parts.append(f"League points: {values['Self-play/League Points']:.3f}")
    best = record.mean(line.trainee.metric) if line.trainee.metric else None
    if best is not None:
        parts.append(f"{line.trainee.metric} of the last {len(record.recent)}: {best:.3f}")
        parts.append(f"{line.rate:,.0f} {line.trainee.unit}/s")
    if values.get("Policy/Lag Max"):
        parts.append(f"Policy lag: {values['Policy/Lag']:.1f}, at most {values['Policy/Lag Max']:.0f}")
    return ". ".join(parts) + "."


def _histogram(numbers: Sequence[float]) -> Any:
    values = np.array(numbers)
    return summary.histogram("values", values, bins=np.linspace(values.min(), values.max() + 1e-9, 31))
