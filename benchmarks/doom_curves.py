"""What Doom's presets reach: trained from nothing, several seeds, evaluated over 100 episodes.

    python benchmarks/doom_curves.py train --out FOLDER                                     everything, hours
    python benchmarks/doom_curves.py train --out FOLDER --presets doom-basic --seeds 1      one run, others later
    python benchmarks/doom_curves.py table --out FOLDER                                     result, table, picture

`train` skips runs that FOLDER has already. A run is `palus train PRESET --seed SEED`, then `palus enjoy` of the newest
and of the best policy, actions drawn, on seeds that training never saw. `table` writes results/doom-curves.json and
.md, and docs/images/doom-curves.png.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import machine
from machine import Json, caption, table
from palus.files import write_text
from palus.hub.training_curve import read_scalars

PRESETS = ("doom-health-gathering-supreme", "doom-basic", "doom-defend-the-center", "doom-my-way-home")
SEEDS = (1, 2, 3)
EPISODES = 100
EVALUATION_SEED = 1_000_003
TAGS = ("Environment/True Objective", "Environment/Cumulative Reward")
"""What a curve shows: the score where the game has one of its own, else the reward."""
AVERAGED = 10
"""Summaries in a curve's running mean: games start anew at each checkpoint, and short episodes end first."""
COLOURS = ("#0072b2", "#d55e00", "#009e73")
PICTURE = machine.ROOT / "docs" / "images" / "doom-curves.png"


def palus(*words: str | Path) -> Json:
    """The JSON that a command prints last. Exits when the command fails."""
    done = subprocess.run([sys.executable, "-m", "palus", *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"palus {' '.join(map(str, words))}: exit code {done.returncode}")
    found: Json = json.loads(done.stdout.splitlines()[-1])
    return found


def train(out: Path, presets: Sequence[str], seeds: Sequence[int], overrides: Sequence[str]) -> None:
    """Train and evaluate what is missing; every run leaves FOLDER/<preset>-<seed>.json."""
    for preset in presets:
        for seed in seeds:
            name = f"{preset}-{seed}"
            record = out / f"{name}.json"
            if record.exists():
                continue
            session = machine.Session("doom-curves", {"preset": preset, "seed": seed, "overrides": list(overrides)})
            place = ("--run-id", name, "--results-dir", out, "--seed", str(seed), "--force", "--json")
            trained = palus("train", preset, *overrides, *place)
            scores = {"newest": _score(out / name)}
            if any((out / name).glob("*/best.npz")):
                scores["best"] = _score(out / name, "--best")
            curve = _curve(out / name)
            figures = {"preset": preset, "seed": seed, "frames": trained["steps"], "wall": trained["wall_seconds"]}
            write_text(record, json.dumps(session.report(**figures, scores=scores, curve=curve), indent=1) + "\n")
            print(f"{name}: {scores}", file=sys.stderr)


def _score(run: Path, *words: str) -> Json:
    evaluation = ("--max-num-episodes", str(EPISODES), "--seed", str(EVALUATION_SEED), "--no-render", "--json")
    found = palus("enjoy", run, *words, *evaluation)
    return {key: found[key] for key in ("mean", "std", "mean_reward", "episodes", "steps")}


def _curve(run: Path) -> list[tuple[int, float]]:
    """(frames, score) of every summary."""
    found: dict[str, list[tuple[int, float]]] = {tag: [] for tag in TAGS}
    for path in sorted(run.glob("*/events.out.tfevents.*")):
        for step, tag, value in read_scalars(path.read_bytes()):
            if tag in found:
                found[tag].append((step, round(value, 4)))
    return next((points for points in found.values() if points), [])


def collect(out: Path) -> Json:
    """All runs of a folder as one result."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("doom-*-*.json"))]
    if not runs:
        sys.exit(f"{out}: no runs; train some first")
    first = runs[0]
    return {
        "recipe": "doom-curves",
        "machine": first["machine"],
        "started": first["started"],
        "wall_s": sum(run["wall_s"] for run in runs),
        "load_average": {"before": first["load_average"]["before"], "after": runs[-1]["load_average"]["after"]},
        "runs": runs,
    }


def markdown(report: Json) -> str:
    """One row per run."""
    header = [
        "preset",
        "seed",
        "frames",
        "minutes",
        "frames/s",
        "score, newest policy",
        "mean - std",
        "best",
        "mean - std",
    ]
    rows = []
    for run in sorted(report["runs"], key=lambda r: (r["preset"], r["seed"])):
        newest, best = run["scores"]["newest"], run["scores"].get("best")
        rows.append(
            [
                run["preset"],
                str(run["seed"]),
                f"{run['frames'] / 1e6:.1f}M",
                f"{run['wall'] / 60:.1f}",
                f"{run['frames'] / run['wall']:,.0f}",
                *_cells(newest),
                *(_cells(best) if best else ["", ""]),
            ]
        )
    parts = [
        "# What Doom's presets reach",
        "Made by `python benchmarks/doom_curves.py` from the JSON file beside it. Scores: true objective, mean ± "
        f"standard deviation over {EPISODES} episodes on seeds that training never saw, actions drawn from the policy.",
        caption(report),
        table(header, rows),
        "![Learning curves](../../docs/images/doom-curves.png)",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _cells(score: Json) -> list[str]:
    return [f"{score['mean']:.2f} ± {score['std']:.2f}", f"{score['mean'] - score['std']:.2f}"]


def draw(report: Json) -> None:
    """Score over frames and its running mean, one panel per preset, one line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    presets = sorted({run["preset"] for run in report["runs"]})
    figure, panels = pyplot.subplots(1, len(presets), figsize=(4.2 * len(presets), 3.2), squeeze=False)
    for panel, preset in zip(panels[0], presets, strict=True):
        runs = [run for run in report["runs"] if run["preset"] == preset]
        for run, colour in zip(runs, COLOURS * len(runs), strict=False):
            steps, values = zip(*run["curve"], strict=True)
            million = [step / 1e6 for step in steps]
            recent = [sum(values[max(0, i - AVERAGED + 1) : i + 1]) / min(i + 1, AVERAGED) for i in range(len(values))]
            panel.plot(million, values, color=colour, alpha=0.2, linewidth=0.8)
            panel.plot(million, recent, color=colour, label=f"seed {run['seed']}")
        panel.set(title=preset.removeprefix("doom-"), xlabel="million frames", ylabel="score in training")
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.tight_layout()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=110)
    print(f"Written: {PICTURE}")


def main() -> None:
    """Parse and call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "table"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the run file")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    if arguments.what == "train":
        train(arguments.out.resolve(), arguments.presets, arguments.seeds, arguments.set)
        return
    report = collect(arguments.out)
    draw(report)
    machine.save(report, machine.RESULTS / "doom-curves.json", markdown)


if __name__ == "__main__":
    main()
