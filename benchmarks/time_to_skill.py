"""Minutes of training until a team takes most points from the policy that Unity ships: the headline of self-play.

    python benchmarks/time_to_skill.py train                        one run per seed, on 2 threads in fp32
    python benchmarks/time_to_skill.py table --models FOLDER        find each run's crossing

`train` runs the preset to its end without bf16 units (`palus.matmul: highest`) and keeps a checkpoint every 2M
steps, well within a minute; it may be stopped and started again. `table` plays the checkpoints, oldest first, against
unity-official-soccertwos from FOLDER (trained in Unity, not part of this repository). A checkpoint crosses where it
takes TARGET of the points over 200 mirrored pairs and again over 200 pairs of other seeds, so that luck in one of many
evaluations does not count; the minutes are wall time of training since the start of the process, its compilation and
its own test matches included. Checkpoints whose score over a quarter of the pairs is more than 10 points below TARGET
are not played further. Result: benchmarks/results/time-to-skill.json and .md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import learning_curves
import machine
import strength
from machine import Json
from palus import envs
from palus.arena.models.players import Player, load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize

TARGET = 0.6
HOPELESS = 0.1
"""Below the target by this much over a quarter of the pairs, a checkpoint has not crossed."""
CONFIRMING = 1_000_003
"""Added to the seed of the matches that confirm a crossing."""
CONDITIONS = ("palus.matmul=highest", "palus.threads=2")


def train(arguments: argparse.Namespace) -> None:
    """Train every seed to the end of its preset."""
    every = f"behaviors.{strength.BEHAVIOR}.checkpoint_interval={arguments.every}"
    arguments.set = [*CONDITIONS, every, *arguments.set]
    strength.train(arguments)


def table(arguments: argparse.Namespace) -> None:
    """Find the crossing of every seed; write the result and its table."""
    stored = arguments.output / "time-to-skill.json"
    if arguments.stored:
        machine.write_tables(stored, markdown)
        return
    session = machine.Session("time-to-skill", vars(arguments))
    spec = envs.make(strength.BEHAVIOR, 1).spec
    official = load_player(str(strength.models_folder(arguments) / f"{learning_curves.OFFICIAL}.onnx"), spec)
    runs = []
    for seed, folder in strength.trained_runs(arguments).items():
        points: list[Json] = []
        for checkpoint in learning_curves.checkpoints(folder, strength.BEHAVIOR):
            policy = load_player(str(checkpoint.path), spec)
            found = evaluate(policy, official, arguments.pairs, arguments.seed)
            scores = [summary.score for summary in found]
            points.append({"steps": checkpoint.steps, "wall_s": checkpoint.wall_s, "scores": scores,
                           "pairs": [summary.pairs for summary in found]})  # fmt: skip
            strength.say(f"seed {seed}, {checkpoint.wall_s / 60:.1f} min: {', '.join(f'{s:.1%}' for s in scores)}")
            if crossed(points[-1]):
                break
        runs.append({"seed": seed, "trained": machine.origin(folder), "points": points})
    machine.save(session.report(runs=runs), stored, markdown)


def evaluate(policy: Player, official: Player, pairs: int, seed: int) -> list[PairingSummary]:
    """Over a quarter of the pairs; then, where there is hope, over all; then, where it crosses, over as many others."""
    found = [summarize(play_pairs(policy, official, pairs // 4, seed + 2 * CONFIRMING))]
    if found[0].score >= TARGET - HOPELESS:
        found.append(summarize(play_pairs(policy, official, pairs, seed)))
        if found[1].score >= TARGET:
            found.append(summarize(play_pairs(policy, official, pairs, seed + CONFIRMING)))
    return found


def crossed(point: Json) -> bool:
    """Whether the evaluation and the one that confirms it reach the target."""
    return len(point["scores"]) == 3 and min(point["scores"][1:]) >= TARGET


def markdown(report: Json) -> str:
    """Each seed's crossing, and the scores on the way."""
    rows, curve, minutes = [], [], []
    for run in report["runs"]:
        last = run["points"][-1]
        took = last["wall_s"] / 60 if crossed(last) else float("inf")
        minutes.append(took)
        scores = ([f"{score:.1%}" for score in last["scores"][1:]] + ["", ""])[:2]
        when = _minutes(took)
        rows.append([f"{run['seed']}", when, f"{last['steps'] / 1e6:.1f}M", *scores])
        curve += [
            [
                f"{run['seed']}",
                f"{p['wall_s'] / 60:.1f}",
                f"{p['steps'] / 1e6:.1f}M",
                *(f"{s:.1%}" for s in p["scores"]),
            ]
            + [""] * (3 - len(p["scores"]))
            for p in run["points"]
        ]
    arguments = report["arguments"]
    pairs = arguments["pairs"]
    return "\n\n".join(
        part.rstrip("\n")
        for part in (
            "# Time to skill",
            "Made by `python benchmarks/time_to_skill.py table` from time-to-skill.json beside it.",
            machine.caption(report),
            f"Preset {arguments['preset']} with {' '.join(CONDITIONS)}; until {TARGET:.0%} of the points against "
            f"{learning_curves.OFFICIAL} over {pairs} mirrored pairs and over {pairs} others. "
            f"**Median {_minutes(median(minutes))}**; "
            + "; ".join(f"seed {r['seed']} {machine.trained_at(r['trained'])}" for r in report["runs"]) + ".",
            machine.table(["seed", "crossing", "steps", "points", "confirmed"], rows),
            machine.table(["seed", "minutes", "steps", *(f"{n} pairs" for n in (pairs // 4, pairs, pairs))], curve),
        )
    ) + "\n"  # fmt: skip


def _minutes(took: float) -> str:
    return f"{took:.1f} minutes" if took < float("inf") else "not reached"


def main() -> None:
    parser = argparse.ArgumentParser(description="Minutes to a strong team; see the head of this file.")
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--preset", default="soccertwos-strong", help="preset of the runs")
    common.add_argument("--results", type=Path, default=Path("results/time-to-skill"), help="folder of the runs")
    training = commands.add_parser("train", parents=[common], help="train the seeds that are not finished")
    training.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    training.add_argument("--minutes", type=float, default=60.0, help="at most so much wall time per seed")
    training.add_argument("--every", type=int, default=2_000_000, help="steps between checkpoints")
    training.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="further changes to the preset")
    training.set_defaults(command=train)
    playing = commands.add_parser("table", parents=[common], help="find the crossings")
    strength.add_playing(playing)
    playing.set_defaults(command=table)
    arguments = parser.parse_args()
    command = arguments.__dict__.pop("command")
    command(arguments)


if __name__ == "__main__":
    main()
