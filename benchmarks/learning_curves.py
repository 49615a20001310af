"""Learning curves over wall time: which checkpoints a run left and when, and the picture of their scores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from machine import Json, caption, table

OFFICIAL = "unity-official-soccertwos"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, for readers with any colour vision; one per seed."""


@dataclass(frozen=True)
class Checkpoint:
    """A policy that a run exported on its way. wall_s: seconds of training until then."""

    path: Path
    steps: int
    wall_s: float


def checkpoints(run: Path, behavior: str) -> list[Checkpoint]:
    """The checkpoints whose policy is still there, in order of their steps.

    Wall time: training_status.json has each checkpoint's time of creation; every start of the run, also a resumed one,
    leaves an event file named after the second in which training began. Pauses between a run's last checkpoint and its
    resumption do not count. Test matches against the run's baselines do.
    """
    entries = json.loads((run / "run_logs" / "training_status.json").read_text())[behavior]["checkpoints"]
    starts = sorted(int(path.name.split(".")[3]) for path in (run / behavior).glob("events.out.tfevents.*"))
    found, before = [], 0.0
    for start, end in zip(starts, [*starts[1:], float("inf")], strict=True):
        inside = [entry for entry in entries if start <= entry["creation_time"] < end]
        for entry in inside:
            path = run / behavior / Path(entry["file_path"]).name
            if path.exists():
                found.append(Checkpoint(path, entry["steps"], before + entry["creation_time"] - start))
        if inside:
            before += inside[-1]["creation_time"] - start
    return found


def thinned(found: list[Checkpoint], count: int) -> list[Checkpoint]:
    """At most `count` of them, evenly spaced, the last one included."""
    if len(found) <= count:
        return found
    return [found[(i + 1) * len(found) // count - 1] for i in range(count)]


def markdown(report: Json) -> str:
    """The points of the curves."""
    opponents = list(dict.fromkeys(point["opponent"] for point in report["points"]))
    scores = {(p["seed"], p["steps"], p["opponent"]): p["score"] for p in report["points"]}
    rows = [
        [f"{seed}", f"{steps / 1e6:.2f}M", f"{wall_s / 60:.1f}", *(f"{scores[seed, steps, o]:.1%}" for o in opponents)]
        for seed, steps, wall_s in dict.fromkeys((p["seed"], p["steps"], p["wall_s"]) for p in report["points"])
    ]
    return (
        "# Learning curves\n\nMade by `python benchmarks/strength.py curves` from curves.json beside it: share of "
        f"points over {max(p['pairs'] for p in report['points'])} mirrored pairs.\n\n{caption(report)}\n\n"
        + table(["seed", "steps", "minutes", *opponents], rows)
    )


def draw(report: Json, picture: Path) -> None:
    """One panel per opponent, one line per seed with its 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    opponents = list(dict.fromkeys(point["opponent"] for point in report["points"]))
    seeds = list(dict.fromkeys(point["seed"] for point in report["points"]))
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, len(opponents), figsize=(9, 3.6), sharey=True, squeeze=False, layout="constrained")
    for panel, opponent in zip(panels[0], opponents, strict=True):
        panel.axhline(50, color="0.6", linewidth=1, linestyle=(0, (4, 3)))
        for number, seed in enumerate(seeds):
            points = [p for p in report["points"] if (p["seed"], p["opponent"]) == (seed, opponent)]
            minutes = [p["wall_s"] / 60 for p in points]
            low, high = ([100 * p["interval"][end] for p in points] for end in (0, 1))
            colour = COLOURS[number % len(COLOURS)]
            panel.fill_between(minutes, low, high, color=colour, alpha=0.12, linewidth=0)
            shares = [100 * p["score"] for p in points]
            panel.plot(minutes, shares, color=colour, label=f"seed {seed}", marker="o", markersize=3)
        panel.set(title=f"against {opponent}", xlabel="minutes of training", ylim=(0, 100))
        panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(axis="y", color="0.92")
        panel.set_axisbelow(True)
    panels[0][0].set_ylabel("share of points, %")
    panels[0][-1].legend(frameon=False, loc="lower right")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)
    plt.close(figure)
