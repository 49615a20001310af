"""What a person sees of a run: a progress bar, one line per summary, TensorBoard with ML-Agents' tags."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tensorboardX import SummaryWriter, summary

from palus.config import RunFile
from palus.learn.learner import Schedules, UpdateStats
from palus.rollout.rollout import Episode
from palus.run.folder import RunFolder

RECENT_UPDATES = 20
"""Updates that the shown speed is averaged over."""


def progress_bar(console: Console) -> Progress:
    """A bar with shares and times; the task's field `state` stands beside it."""
    columns = ("[bold]{task.description}", BarColumn(None), "{task.percentage:>3.0f}%", "{task.fields[state]}")
    texts = [c if not isinstance(c, str) else TextColumn(c) for c in columns]
    return Progress(*texts, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


def event_writer(folder: Path, run: RunFolder) -> SummaryWriter:
    """A TensorBoard file in `folder`, entered among the run's own. The library names it, so it is found afterwards."""
    before = set(folder.glob("events.out.tfevents.*"))
    writer = SummaryWriter(str(folder), flush_secs=10)
    for path in set(folder.glob("events.out.tfevents.*")) - before:
        run.own(path)
    return writer


class Report:
    """Collects what happened since the last summary; a summary is due at every multiple of `summary_freq`."""

    def __init__(self, run: RunFile, name: str, folder: RunFolder, console: Console | None = None) -> None:
        self.run, self.name, self.folder, self.behavior = run, name, folder, run.behaviors[name]
        self.console = console or Console(stderr=True)
        self.uses_groups = self.behavior.trainer_type == "poca"
        self.mean_reward: float | None = None
        self.last_scores: dict[str, float] = {}
        self._episodes: list[Episode] = []
        self._updates: list[tuple[UpdateStats, float]] = []
        self._elo: float | None = None
        self._pace: list[tuple[float, int]] = []
        self._summary_step = 0
        self._writer: SummaryWriter | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> Report:
        self._writer = event_writer(self.folder.behavior_folder, self.folder)
        settings = json.dumps(self.behavior.model_dump(mode="json"), indent=2)
        self._writer.add_text("Hyperparameters", f"```\n{settings}\n```")
        if self.console.is_terminal:
            self._progress = progress_bar(self.console)
            self._task = self._progress.add_task(
                self.name, total=self.behavior.max_steps, completed=self._summary_step, state=""
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._writer is not None:
            self._writer.close()

    def add(
        self,
        step: int,
        seconds: float,
        episodes: Sequence[Episode],
        stats: UpdateStats | None,
        entropy: float,
        elo: float | None,
    ) -> None:
        """Take in one iteration; write a summary when a multiple of summary_freq was passed. stats: of an update."""
        self._episodes.extend(episodes)
        if stats is not None:
            self._updates.append((stats, entropy))
        self._elo = elo
        self._pace = [*self._pace, (time.perf_counter(), step)][-RECENT_UPDATES:]
        if self._progress is not None:
            self._progress.update(self._task, completed=step, state=self._state(step))
        due = step - step % self.behavior.summary_freq
        if due > self._summary_step:
            self._summary_step = due
            self._summarize(due, seconds)

    def _state(self, step: int) -> str:
        (t0, s0), (t1, s1) = self._pace[0], self._pace[-1]
        parts = [f"{step:,} steps", f"{(s1 - s0) / max(t1 - t0, 1e-9):,.0f}/s"]
        if self._elo is not None:
            parts.append(f"Elo {self._elo:.0f}")
        parts += [f"{name} {score:.0%}" for name, score in self.last_scores.items()]
        return " · ".join(parts)

    def _summarize(self, step: int, seconds: float) -> None:
        values = self._values()
        for parameter, number in self.run.lesson_numbers_at(step / self.behavior.max_steps).items():
            values[f"Environment/Lesson Number/{parameter}"] = float(number)
        for tag, value in values.items():
            self._write(tag, summary.scalar("value", value), step)
        if self._episodes:
            rewards = np.array([e.reward if self.uses_groups else e.reward + e.group_reward for e in self._episodes])
            self._write("Environment/Cumulative Reward_hist", _histogram(rewards), step)
            if self.uses_groups and (grouped := self._group_rewards()):
                self._write("Environment/Group Cumulative Reward_hist", _histogram(np.array(grouped)), step)
        self.console.print(self._line(step, seconds, values), highlight=False, soft_wrap=True)
        self._episodes.clear()
        self._updates.clear()

    def _group_rewards(self) -> list[float]:
        """What groups were paid, told by the agents that saw their group's end: others know a part of it."""
        return [e.group_reward for e in self._episodes if not e.left_early]

    def _write(self, tag: str, content: Any, step: int) -> None:
        """One value under exactly that tag; tensorboardX's own calls would turn ML-Agents' blanks into underscores."""
        if self._writer is not None:
            content.value[0].tag = tag
            self._writer.file_writer.add_summary(content, step)

    def _values(self) -> dict[str, float]:
        """ML-Agents' tag -> mean since the last summary."""
        stats = [s for s, _ in self._updates]
        last = stats[-1].schedules
        values = {
            "Policy/Entropy": float(np.mean([e for _, e in self._updates])),
            "Policy/Extrinsic Value Estimate": float(np.mean([s.value_estimate for s in stats])),
            "Policy/Learning Rate": last.learning_rate,
            "Policy/Epsilon": last.epsilon,
            "Policy/Beta": last.beta,
            "Losses/Policy Loss": float(np.mean([s.policy_loss for s in stats])),
            "Losses/Value Loss": float(np.mean([s.value_loss for s in stats])),
        }
        baseline_losses = [s.baseline_loss for s in stats if s.baseline_loss is not None]
        if baseline_losses:
            estimates = [s.baseline_estimate for s in stats if s.baseline_estimate is not None]
            values["Losses/Baseline Loss"] = float(np.mean(baseline_losses))
            values["Policy/Extrinsic Baseline Estimate"] = float(np.mean(estimates))
        if self._episodes:
            own = float(np.mean([e.reward for e in self._episodes]))
            grouped = float(np.mean([e.group_reward for e in self._episodes]))
            self.mean_reward = own if self.uses_groups else own + grouped
            values["Environment/Cumulative Reward"] = self.mean_reward
            values["Environment/Episode Length"] = float(np.mean([e.length - 1 for e in self._episodes]))
            values["Policy/Extrinsic Reward"] = own + grouped
            if self.uses_groups and (groups := self._group_rewards()):
                values["Environment/Group Cumulative Reward"] = float(np.mean(groups))
        if self._elo is not None:
            values["Self-play/ELO"] = self._elo
        return values

    def _line(self, step: int, seconds: float, values: Mapping[str, float]) -> str:
        """The console line of ML-Agents, so that people's log readers keep working."""
        parts = [self.name, f"Step: {step}", f"Time Elapsed: {seconds:.3f} s"]
        if self._episodes:
            parts.append(f"Mean Reward: {values['Environment/Cumulative Reward']:.3f}")
            if "Environment/Group Cumulative Reward" in values:
                parts.append(f"Mean Group Reward: {values['Environment/Group Cumulative Reward']:.3f}")
            elif not self.uses_groups:
                own = [e.reward + e.group_reward for e in self._episodes]
                parts.append(f"Std of Reward: {np.std(own):.3f}")
        else:
            parts.append("No episode was completed since last summary")
        parts.append("Training")
        if self._elo is not None:
            parts.append(f"ELO: {self._elo:.3f}")
        return ". ".join(parts) + "."

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Shares of points against the baselines, when they were just played."""
        if not scores:
            return
        self.last_scores = dict(scores)
        for name, score in scores.items():
            self._write(f"Baselines/{name}", summary.scalar("value", score), step)
        text = ", ".join(f"{score:.1%} against {name}" for name, score in scores.items())
        self.console.print(f"{self.name}. Step: {step}. Share of points: {text}.", highlight=False, soft_wrap=True)

    def checkpoint(self, step: int, model: Path) -> None:
        """A checkpoint was written."""
        self.console.print(f"Exported {model} at step {step}.", highlight=False, soft_wrap=True, markup=False)

    def warn(self, message: str) -> None:
        """Something went wrong that does not stop the run."""
        self.console.print(f"[yellow]warning:[/] {escape(message)}", highlight=False, soft_wrap=True)

    def state_dict(self) -> dict[str, Any]:
        """The open summary, so that a resumed run writes the same one."""
        return {
            "summary_step": self._summary_step,
            "mean_reward": self.mean_reward,
            "scores": dict(self.last_scores),
            "episodes": [astuple(episode) for episode in self._episodes],
            "updates": [(asdict(stats), entropy) for stats, entropy in self._updates],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._summary_step, self.mean_reward = state["summary_step"], state["mean_reward"]
        self.last_scores = dict(state["scores"])
        self._episodes = [Episode(*values) for values in state["episodes"]]
        self._updates = [
            (UpdateStats(**{**stats, "schedules": Schedules(**stats["schedules"])}), entropy)
            for stats, entropy in state["updates"]
        ]


def _histogram(values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    return summary.histogram("values", values, bins=np.linspace(values.min(), values.max() + 1e-9, 31))
