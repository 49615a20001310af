"""Is SoccerTwos here the game of Unity? Stores what `palus fidelity --conventions` says.

python benchmarks/fidelity.py --models FOLDER        writes benchmarks/results/fidelity.json and fidelity.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import machine
from machine import Json


def policy_table(rows: list[Json]) -> str:
    """A row per policy: what it does here beside Unity's log."""
    header = ["policy", "points against random", "entropy", "in Unity", "decisions per episode", "in Unity", "faithful"]
    cells = []
    for row in rows:
        unity = row["unity"] or {"entropy": None, "episode_length": ()}
        lengths = " to ".join(f"{length:g}" for length in dict.fromkeys(unity["episode_length"]))
        cells.append(
            [
                row["name"],
                f"{row['against_random']['score']:.1%}",
                f"{row['entropy']:.3f}",
                "" if unity["entropy"] is None else f"{unity['entropy']:.3f}",
                f"{row['episode_length']:.1f}",
                lengths,
                {True: "yes", False: "no", None: ""}[row["faithful"]],
            ]
        )
    return machine.table(header, cells)


def convention_table(rows: list[Json]) -> str:
    """A row per convention that was broken on purpose: won/lost/drawn, here and as published."""
    header = ["convention", "blue", "published", "purple", "published"]
    columns = ("blue", "published_blue", "purple", "published_purple")
    return machine.table(header, [[row["name"], *("/".join(map(str, row[c])) for c in columns)] for row in rows])


def markdown(report: Json) -> str:
    """Both tables."""
    found, arguments = report["fidelity"], report["arguments"]
    parts = [
        "# Fidelity",
        "Made by `python benchmarks/fidelity.py` from fidelity.json beside it: policies trained in Unity play here. "
        "Faithful: entropy within 0.04 nats of Unity's training log, episode length within 0.75 to 1.4 times.",
        "One rule was chosen on the policies of this very table: where a kick's contact point lies (`kick_point: "
        "agent`), which Unity leaves open, because the episode lengths came out nearer to Unity's. So the lengths are "
        "no independent test of that rule; entropies agree with either choice.",
        machine.caption(report),
        f"{arguments['pairs']} mirrored pairs against random, {arguments['episodes']} episodes against itself.",
        policy_table(found["policies"]),
        "What breaks when one convention is wrong: `unity-official-soccertwos` against random, won/lost/drawn.",
        convention_table(found["conventions"]),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the fidelity of SoccerTwos to Unity.")
    parser.add_argument("--models", type=Path, required=True, help="folder of policies trained in Unity")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--output", type=Path, default=machine.RESULTS, help="folder of the result")
    arguments = parser.parse_args()
    session = machine.Session("fidelity", vars(arguments))
    options = ["--pairs", str(arguments.pairs), "--episodes", str(arguments.episodes), "--conventions", "--json"]
    command = [sys.executable, "-m", "palus", "fidelity", str(arguments.models), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    found = json.loads(done.stdout)
    found.pop("skipped")  # paths of files that play other games
    machine.save(session.report(fidelity=found), arguments.output / "fidelity.json", markdown)


if __name__ == "__main__":
    main()
