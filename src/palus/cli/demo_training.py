"""The first half of `palus demo`: a training that is as long as this machine can do in the given minutes."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console

PRESET = "soccertwos-demo"
MEASURED_ITERATIONS = 3
SHARE_OF_RATE = 0.75
"""Of the rate at the start: later more past selves are in play, and test matches take their time."""
FEWEST_STEPS = 4_000_000
"""With less the team would hardly have learned to score; the clock then ends the training early."""


def train_team(folder: Path, minutes: float, seed: int, console: Console) -> None:
    """Train the run `folder` for at most `minutes`. Its schedules fit: learning rate and entropy weight have to fall to
    their ends in the time that there is, since that is when a team becomes good."""
    from palus.cli.train import train

    with console.status("Compiling the game and measuring this machine ..."):
        steps = fitting_steps(minutes)
    console.print(f"{steps / 1e6:.1f}M steps fit into {minutes:g} minutes here.")
    train(
        PRESET,
        [f"palus.max_minutes={minutes}", f"behaviors.SoccerTwos.max_steps={steps}"],
        run_id=folder.name,
        results_dir=str(folder.parent),
        seed=seed,
        resume=False,
        force=True,
        check=False,
        as_json=False,
    )


def fitting_steps(minutes: float) -> int:
    """Trained steps that this machine does in `minutes`, between FEWEST_STEPS and what the preset says."""
    from palus.config import load_run
    from palus.train import Run

    with tempfile.TemporaryDirectory() as folder:
        settings = (f"checkpoint_settings.results_dir={folder!r}", "palus.baseline_interval=0")
        parts = Run(load_run(PRESET, list(settings)))
        parts.report.console = Console(quiet=True)
        with closing(parts), parts.report:
            parts.iterate()  # compiles and allocates
            before, started = parts.step, time.perf_counter()
            for _ in range(MEASURED_ITERATIONS):
                parts.iterate()
            rate = (parts.step - before) / (time.perf_counter() - started)
    return min(parts.trainees[0].behavior.max_steps, max(FEWEST_STEPS, int(SHARE_OF_RATE * rate * 60.0 * minutes)))
