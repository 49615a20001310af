"""The table and the picture of doom_curves.py: functions of its stored result."""

from __future__ import annotations

import machine
from machine import Json, table

MARKS = (5, 8, 10)
"""mean - std that health_gathering_supreme is asked for: 5 passes the course of Hugging Face, 10 is ours."""
MARKED = "health-gathering-supreme"
AVERAGED = 10
"""Summaries in a curve's running mean: games start anew at each checkpoint, and short episodes end first."""
COLOURS = ("#0072b2", "#d55e00", "#009e73")
PICTURE = machine.ROOT / "docs" / "images" / "doom-curves.png"


LEGEND = {
    "-beside": "by `palus.sampling.asynchronous=true`, the others take turns",
    "-fp32": "by `palus.matmul=highest`",
    "-hour": "by `--minutes 58`, which sizes a run to the machine",
    "-int16": "by `palus.matmul=int16`",
    "-pictures": "without `measurements`, so that the agent is not told its health, as Sample Factory's is not",
}
"""What the end of a row's name means."""


def lower(policy: Json) -> float:
    """mean - std, which course leaderboards rank by."""
    return float(policy["mean"] - policy["std"])


def reached(run: Json, mark: float) -> Json | None:
    """The first evaluated policy of a run at or above a mark; None when there is none."""
    return next((policy for policy in run["policies"] if lower(policy) >= mark), None)


def markdown(report: Json) -> str:
    """One row per run; below it when runs of health_gathering_supreme reached their marks; below that the machines."""
    runs = sorted(report["runs"], key=lambda run: (run["row"], run["seed"]))
    first = runs[0]
    parts = [
        "# What Doom's presets reach",
        "Made by `python benchmarks/doom_curves.py` from the JSON file beside it. Scores: true objective of the last "
        f"policy, mean ± standard deviation over {first['evaluated']['episodes']} episodes from seed "
        f"{first['evaluated']['seed']:,}, actions drawn. Neither these episodes nor the seeds of training were ever "
        f"used to choose a setting. {_legend(runs)} CPU minutes: of the "
        "whole process tree; wall time says little where other work shared the cores (load average).",
        table(["", "seed", "frames", "wall min", "CPU min", "score", "mean - std"], [_row(run) for run in runs]),
        "## First policy at each mark of mean - std",
        "Frames / CPU minutes. Policies are evaluated every half million frames, so a mark is reached up to so much "
        "earlier.",
        table(
            ["", "seed", *(str(mark) for mark in MARKS)],
            [[run["row"], str(run["seed"]), *(_mark(run, m) for m in MARKS)] for run in runs if MARKED in run["row"]],
        ),
        "![Learning curves](../../docs/images/doom-curves.png)",
        "## Runs",
        "\n".join(_origin(run) for run in runs),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _legend(runs: list[Json]) -> str:
    """Of the rows that are there."""
    there = {end for end in LEGEND for run in runs if run["row"].endswith(end)}
    return " ".join(f"`{end}`: {what}." for end, what in LEGEND.items() if end in there)


def _row(run: Json) -> list[str]:
    last = run["policies"][-1]
    return [
        run["row"],
        str(run["seed"]),
        f"{last['frames'] / 1e6:.1f}M",
        f"{run['wall'] / 60:.0f}",
        f"{run['cpu'] / 60:.0f}",
        f"{last['mean']:.2f} ± {last['std']:.2f}",
        f"{lower(last):.2f}",
    ]


def _mark(run: Json, mark: float) -> str:
    first = reached(run, mark)
    return "not reached" if first is None else f"{first['frames'] / 1e6:.1f}M / {first['cpu'] / 60:.0f}"


def _origin(run: Json) -> str:
    """Where a run comes from, in one line."""
    found, load = run["machine"], run["load_average"]
    return (
        f"- {run['row']}, seed {run['seed']}: trained at commit {found['commit']}, evaluated at "
        f"{run['evaluated']['commit']}; {found['cpu']} ({', '.join(found['cpu_flags'])}), {found['cores']} cores; "
        f"{run['started'][:10]}; load average {load['before'][0]:.1f} before and {load['after'][0]:.1f} after."
    )


PANELS = 4
"""Beside each other."""


def draw(report: Json) -> None:
    """Score in training over frames and its running mean, one panel per row of the table, one line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = sorted({run["row"] for run in report["runs"]})
    lines = -(-len(rows) // PANELS)
    figure, panels = pyplot.subplots(lines, PANELS, figsize=(4.2 * PANELS, 3.2 * lines), squeeze=False)
    for panel in panels.ravel()[len(rows) :]:
        panel.set_axis_off()
    for panel, row in zip(panels.ravel(), rows, strict=False):
        runs = [run for run in report["runs"] if run["row"] == row]
        for run, colour in zip(runs, COLOURS * len(runs), strict=False):
            steps, values = zip(*run["curve"], strict=True)
            million = [step / 1e6 for step in steps]
            recent = [sum(values[max(0, i - AVERAGED + 1) : i + 1]) / min(i + 1, AVERAGED) for i in range(len(values))]
            panel.plot(million, values, color=colour, alpha=0.2, linewidth=0.8)
            panel.plot(million, recent, color=colour, label=f"seed {run['seed']}")
        panel.set(title=row.removeprefix("doom-"), xlabel="million frames", ylabel="score in training")
        panel.title.set_fontsize(9)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.tight_layout()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=110)
    print(f"Written: {PICTURE}")
