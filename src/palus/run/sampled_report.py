"""What a person sees of an `appo` run: a progress bar, one line per summary and policy, TensorBoard.

Tags are ML-Agents' where it has the quantity; steps count engine frames.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from tensorboardX import SummaryWriter, summary

from palus.config.trainer import AppoBehavior
from palus.learn.appo import AppoStats
from palus.rollout.trajectories import EpisodeEnd
from palus.run.folder import RunFolder
from palus.run.report import event_writer, progress_bar

RECENT_EPISODES = 100
"""Episodes that means are taken over: for lines, best checkpoints and populations."""
RECENT_UPDATES = 20
"""Updates that the shown speed is averaged over."""
_LOSSES = {
    "policy_loss": "Losses/Policy Loss",
    "value_loss": "Losses/Value Loss",
    "exploration_loss": "Losses/Exploration Loss",
    "kl_loss": "Losses/KL Loss",
    "value": "Policy/Extrinsic Value Estimate",
    "kl": "Policy/KL",
    "clipped": "Policy/Clipped",
    "gradient_norm": "Policy/Gradient Norm",
}


def statistic(end: EpisodeEnd, name: str) -> float | None:
    """An episode's number by name: reward, true_objective, length (engine frames), or one of its game's statistics."""
    known = {"reward": end.reward, "true_objective": end.true_objective, "length": float(end.frames)}
    return known[name] if name in known else end.stats.get(name)


@dataclass
class PolicyRecord:
    """What is remembered of one policy: its last episodes, and what happened since the last summary."""

    recent: deque[EpisodeEnd] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))
    episodes: list[EpisodeEnd] = field(default_factory=list)
    updates: list[tuple[AppoStats, float]] = field(default_factory=list)

    def add(self, ends: Sequence[EpisodeEnd], stats: AppoStats, entropy: float) -> None:
        """Take in one update. entropy: mean of the acting policy, nats."""
        self.recent.extend(ends)
        self.episodes.extend(ends)
        if stats.gradient_steps:
            self.updates.append((stats, entropy))

    def mean(self, name: str) -> float | None:
        """Mean of a statistic over the last episodes; None before there are any that have it."""
        values = [v for v in (statistic(end, name) for end in self.recent) if v is not None]
        return float(np.mean(values)) if values else None

    def summarize(self) -> dict[str, float]:
        """Tag -> mean since the last summary, which ends here."""
        values: dict[str, float] = {}
        if self.episodes:
            names = {"Cumulative Reward": "reward", "True Objective": "true_objective", "Episode Length": "length"}
            others = sorted({name for end in self.episodes for name in end.stats} - {"true_objective"})
            for tag, name in [*names.items(), *((other, other) for other in others)]:
                numbers = [v for v in (statistic(end, name) for end in self.episodes) if v is not None]
                values[f"Environment/{tag}"] = float(np.mean(numbers))
        if self.updates:
            stats = [s for s, _ in self.updates]
            values["Policy/Entropy"] = float(np.mean([entropy for _, entropy in self.updates]))
            values["Policy/Learning Rate"] = stats[-1].learning_rate
            values["Policy/Lag"] = float(np.mean([s.lag[1] for s in stats]))
            values["Policy/Lag Max"] = max(s.lag[2] for s in stats)
            values["Policy/Valid Share"] = float(np.mean([s.valid for s in stats]))
            for name, tag in _LOSSES.items():
                values[tag] = float(np.mean([s.losses[name] for s in stats]))
        self.episodes.clear()
        self.updates.clear()
        return values

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "recent": [_plain(end) for end in self.recent],
            "episodes": [_plain(end) for end in self.episodes],
            "updates": [(asdict(stats), entropy) for stats, entropy in self.updates],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.recent = deque((EpisodeEnd(**end) for end in state["recent"]), RECENT_EPISODES)
        self.episodes = [EpisodeEnd(**end) for end in state["episodes"]]
        self.updates = [(AppoStats(**{**s, "lag": tuple(s["lag"])}), entropy) for s, entropy in state["updates"]]


def _plain(end: EpisodeEnd) -> dict[str, Any]:
    return {**asdict(end), "stats": {name: float(value) for name, value in end.stats.items()}}


class SampledReport:
    """One record and one TensorBoard folder per policy; a summary is due at every multiple of `summary_freq`."""

    def __init__(
        self, name: str, behavior: AppoBehavior, folders: Sequence[Path], run: RunFolder, console: Console | None = None
    ) -> None:
        self.name, self.behavior, self.folders, self.run = name, behavior, folders, run
        self.console = console or Console(stderr=True)
        self.records = [PolicyRecord() for _ in folders]
        self._writers: list[SummaryWriter] = []
        self._progress: Progress | None = None
        self._pace: deque[tuple[float, int]] = deque(maxlen=RECENT_UPDATES)
        self._summary_step = 0

    def __enter__(self) -> SampledReport:
        self._writers = [event_writer(folder, self.run) for folder in self.folders]
        settings = json.dumps(self.behavior.model_dump(mode="json"), indent=2)
        for writer in self._writers:
            writer.add_text("Hyperparameters", f"```\n{settings}\n```")
        if self.console.is_terminal:
            self._progress = progress_bar(self.console)
            total, done = self.behavior.max_steps, self._summary_step
            self._task = self._progress.add_task(self.name, total=total, completed=done, state="")
            self._progress.start()
        self._pace.append((time.perf_counter(), self._summary_step))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        for writer in self._writers:
            writer.close()

    def advance(self, step: int, seconds: float, performance: Mapping[str, float]) -> None:
        """After all policies' updates: show progress, write a summary when a multiple of summary_freq was passed.

        performance: tag -> number, of the run as a whole.
        """
        self._pace.append((time.perf_counter(), step))
        if self._progress is not None:
            self._progress.update(self._task, completed=step, state=self._state(step))
        due = step - step % self.behavior.summary_freq
        if due > self._summary_step:
            self._summary_step = due
            for k, record in enumerate(self.records):
                self._summarize(k, record, due, seconds, performance)

    @property
    def _frames_per_second(self) -> float:
        (t0, s0), (t1, s1) = self._pace[0], self._pace[-1]
        return (s1 - s0) / max(t1 - t0, 1e-9)

    def _state(self, step: int) -> str:
        parts = [f"{step:,} frames", f"{self._frames_per_second:,.0f}/s"]
        means = [
            mean for mean in (record.mean(self.behavior.best_metric) for record in self.records) if mean is not None
        ]
        return " · ".join([*parts, *([f"{self.behavior.best_metric} {max(means):.2f}"] if means else [])])

    def _summarize(
        self, k: int, record: PolicyRecord, step: int, seconds: float, performance: Mapping[str, float]
    ) -> None:
        values = record.summarize()
        speed = {"Performance/Frames per Second": self._frames_per_second}
        for tag, value in {**values, **speed, **performance}.items():
            content = summary.scalar("value", value)
            content.value[0].tag = tag  # tensorboardX's own calls would turn ML-Agents' blanks into underscores
            self._writers[k].file_writer.add_summary(content, step)
        self.console.print(
            self._line(k, record, step, seconds, {**values, **performance}), highlight=False, soft_wrap=True
        )

    def _line(self, k: int, record: PolicyRecord, step: int, seconds: float, values: Mapping[str, float]) -> str:
        """ML-Agents' console line, then what it has no words for."""
        name = self.name if len(self.records) == 1 else f"{self.name} policy {k}"
        parts = [name, f"Step: {step}", f"Time Elapsed: {seconds:.3f} s"]
        if "Environment/Cumulative Reward" in values:
            parts.append(f"Mean Reward: {values['Environment/Cumulative Reward']:.3f}")
        else:
            parts.append("No episode was completed since last summary")
        objective = record.mean(self.behavior.best_metric)
        if objective is not None:
            parts.append(f"{self.behavior.best_metric} of the last {len(record.recent)}: {objective:.3f}")
        parts.append(f"{self._frames_per_second:,.0f} frames/s")
        if "Policy/Lag" in values:
            parts.append(f"Policy lag: {values['Policy/Lag']:.1f}, at most {values['Policy/Lag Max']:.0f}")
        parts.append("Training")
        if "Self-play/ELO" in values:
            parts.append(f"ELO: {values['Self-play/ELO']:.3f}")
        return ". ".join(parts) + "."

    def tell(self, message: str) -> None:
        """One line of text."""
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def warn(self, message: str) -> None:
        """Something went wrong that does not stop the run."""
        self.console.print(f"[yellow]warning:[/] {escape(message)}", highlight=False, soft_wrap=True)

    def state_dict(self) -> dict[str, Any]:
        """The records and the open summary, so that a resumed run writes the same one."""
        return {"summary_step": self._summary_step, "records": [record.state_dict() for record in self.records]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._summary_step = int(state["summary_step"])
        for record, saved in zip(self.records, state["records"], strict=True):
            record.load_state_dict(saved)
