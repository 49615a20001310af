"""Does training in bfloat16, or by int16, learn as well as in fp32? Learning curves over trained steps, same seeds.

    python benchmarks/precision.py train --results FOLDER       a run per path and seed; finished ones are skipped
    python benchmarks/precision.py table --results FOLDER       plays the checkpoints, writes results/precision.md
    python benchmarks/precision.py train --paths highest int16 --hidden 512 ...      whole numbers, of wide layers

No setting was chosen by these seeds. Every run is the preset soccertwos-demo annealed over fewer steps. Each
checkpoint plays mirrored pairs against random and the ball chaser, and the final teams of the two paths play each
other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean

import learning_curves
import machine
from machine import Json
from palus import envs
from palus.arena.models.players import load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize

BEHAVIOR, PRESET = "SoccerTwos", "soccertwos-demo"
OPPONENTS = ("random", "ball-chaser")
CHECKPOINTS = 4


def run_name(path: str, seed: int) -> str:
    """The run id of one path and seed."""
    return f"{path}-seed{seed}"


def steps_done(run: Path) -> int:
    """Trained steps of a run's export; 0 where there is none."""
    card = run / "bundle.json"
    return int(json.loads(card.read_text())["steps"]) if card.exists() else 0


def train(arguments: argparse.Namespace) -> None:
    """Train what is not finished, one after the other on one thread. Exits when a training fails."""
    for seed in arguments.seeds:
        for path in arguments.paths:
            name = run_name(path, seed)
            if steps_done(arguments.results / name) >= arguments.steps:
                continue
            settings = {
                "palus.matmul": path,
                "palus.threads": 1,
                "palus.baseline_interval": 0,
                f"behaviors.{BEHAVIOR}.network_settings.hidden_units": arguments.hidden,
                f"behaviors.{BEHAVIOR}.max_steps": arguments.steps,
                f"behaviors.{BEHAVIOR}.checkpoint_interval": arguments.steps // CHECKPOINTS,
            }
            machine.note_origin(arguments.results / name)
            command = [sys.executable, "-m", "palus", "train", PRESET, "--force", "--seed", str(seed)]
            command += ["--run-id", name, "--results-dir", str(arguments.results)]
            command += [f"{key}={value}" for key, value in settings.items()]
            if subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode != 0:
                sys.exit(f"{name}: training failed; see above.")


def table(arguments: argparse.Namespace) -> None:
    """Play every checkpoint and write precision.json and precision.md."""
    session = machine.Session("precision", vars(arguments))
    spec = envs.make(BEHAVIOR, 1).spec
    opponents = [load_player(name, spec) for name in OPPONENTS]
    rows, duels, runs = [], [], []
    for seed in arguments.seeds:
        for path in arguments.paths:
            run = arguments.results / run_name(path, seed)
            runs.append({"name": run.name, "trained": machine.origin(run)})
            for checkpoint in learning_curves.checkpoints(run, BEHAVIOR):
                player = load_player(str(checkpoint.path), spec)
                for opponent in opponents:
                    score = summarize(play_pairs(player, opponent, arguments.pairs, 0)).score
                    rows.append(
                        {
                            "path": path,
                            "seed": seed,
                            "steps": checkpoint.steps,
                            "opponent": opponent.name,
                            "score": score,
                        }
                    )
        exact, rounded = (load_player(str(arguments.results / run_name(path, seed)), spec) for path in arguments.paths)
        duels.append({"seed": seed, **vars(summarize(play_pairs(rounded, exact, 2 * arguments.pairs, 0)))})
    report = session.report(rows=rows, duels=duels, runs=runs, steps=arguments.steps)
    machine.save(report, arguments.output / "precision.json", markdown)


def markdown(report: Json) -> str:
    """Steps by path, a column per opponent; then the duels."""
    lines, paths = [], list(dict.fromkeys(row["path"] for row in report["rows"]))
    for path in paths:
        for quarter in range(1, CHECKPOINTS + 1):
            steps = report["steps"] * quarter / CHECKPOINTS
            cells = []
            for opponent in OPPONENTS:
                near = [r for r in report["rows"] if (r["path"], r["opponent"]) == (path, opponent)]
                found = [r["score"] for r in near if abs(r["steps"] - steps) < report["steps"] / CHECKPOINTS / 2]
                cells.append(f"{100 * mean(found):.1f} ({', '.join(f'{100 * s:.1f}' for s in found)})")
            lines.append([path, f"{steps / 1e6:.2f}M", *cells])
    duels = [
        f"- seed {d['seed']}: {paths[1]} takes {100 * d['score']:.1f} % of the points against fp32 "
        f"({100 * d['interval'][0]:.1f} to {100 * d['interval'][1]:.1f})"
        for d in report["duels"]
    ]
    parts = [
        f"# {'bfloat16' if paths[1] == 'bf16' else paths[1]} against fp32",
        "Made by `python benchmarks/precision.py table` from precision.json beside it.",
        machine.caption(report),
        "\n".join(f"- {run['name']}: {machine.trained_at(run['trained'])}" for run in report["runs"]),
        "Share of points in %, mean over seeds and (each seed); `highest` is exact fp32.",
        machine.table(["path", "trained steps", *(f"against {name}" for name in OPPONENTS)], lines),
        "## The final teams against each other",
        "\n".join(duels),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--results", type=Path, default=Path("results/precision"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--paths", nargs=2, default=["highest", "bf16"], help="fp32, and what it is compared with")
    parser.add_argument("--hidden", type=int, default=128, help="units of a layer; int16 is for 256 and more")
    parser.add_argument("--steps", type=int, default=4_000_000)
    parser.add_argument("--pairs", type=int, default=100)
    arguments = parser.parse_args()
    {"train": train, "table": table}[arguments.what](arguments)


if __name__ == "__main__":
    main()
