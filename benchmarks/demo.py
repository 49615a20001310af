"""The demo as a newcomer runs it, several seeds: minutes to the ranked team, and what the team reaches.

    python benchmarks/demo.py                    seeds 1, 2 and 3, one after the other with all cores; 7 minutes each
    python benchmarks/demo.py --seeds 7          another one; the table holds what was measured last

Each seed is `palus demo --json` in a folder of its own; installing is not measured. Writes results/demo.json and .md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
from machine import Json


def measure(seed: int) -> Json:
    """One demo; what it prints as JSON. Exits when it fails."""
    with tempfile.TemporaryDirectory(prefix="palus-demo-") as folder, tempfile.TemporaryDirectory() as empty:
        words = ("demo", "--json", "--no-browser", "--leave", "--seed", str(seed), "--results-dir", folder)
        alone = ("--models", empty)  # no strangers' models: they differ from machine to machine
        done = subprocess.run([sys.executable, "-m", "palus", *words, *alone], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"palus {' '.join(words)}: exit code {done.returncode}")
        found: Json = json.loads(done.stdout)
        trained = json.loads(Path(folder, "demo", "bundle.json").read_text())
    chosen = {key: found[key] for key in ("minutes", "scores", "board")}
    return {"seed": seed, "steps": trained["steps"], "training_s": trained["wall_seconds"], **chosen}


def markdown(report: Json) -> str:
    """A row per seed."""
    opponents = list(report["runs"][0]["scores"])
    rows = [
        [
            str(run["seed"]),
            f"{run['minutes']:.1f}",
            f"{run['training_s'] / 60:.1f}",
            f"{run['steps'] / 1e6:.1f}M",
            *(f"{run['scores'][name]:.1%}" for name in opponents),
        ]
        for run in report["runs"]
    ]
    header = ["seed", "minutes in all", "of them training", "steps", *(f"against {name}" for name in opponents)]
    parts = [
        "# The demo",
        "Made by `python benchmarks/demo.py` from demo.json beside it: `palus demo` from random weights to the ranked "
        "team, caches warm after the first seed. Share of points over 100 mirrored pairs.",
        machine.caption(report),
        machine.table(header, rows),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def main() -> None:
    """Measure, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    session = machine.Session("demo", vars(arguments))
    report = session.report(runs=[measure(seed) for seed in arguments.seeds])
    machine.save(report, machine.RESULTS / "demo.json", markdown)


if __name__ == "__main__":
    main()
