"""Minutes of training until a team takes most points from the policy that Unity ships: the headline of self-play.

    python benchmarks/time_to_skill.py train                        one run per seed, on 2 threads in fp32
    python benchmarks/time_to_skill.py train --ways one ranks league
    python benchmarks/time_to_skill.py table --models FOLDER        find each run's crossing

`train` runs the preset to its end without bf16 units (`palus.matmul: highest`) and keeps a checkpoint every 2M steps,
well within a minute; it may be stopped and started again. Two cores are used in one of three ways: by one process on
two threads, by two ranks of one thread under torchrun, or by a league of two runs of one thread that meet each other's
past selves. One way follows the other for each seed, so that all meet the same weather.

`table` plays the checkpoints, oldest first, against unity-official-soccertwos from FOLDER (trained in Unity, not part
of this repository). A checkpoint crosses where it takes --target of the points over 200 mirrored pairs and again over
200 pairs of other seeds, so that luck in one of many evaluations does not count; the minutes are wall time of training
since the start of the process, its compilation and its own test matches included. A league crosses when the first of
its runs does. Checkpoints whose score over a quarter of the pairs is more than 10 points below it are not played
further. Result: benchmarks/results/time-to-skill.json and .md, or by another --name.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
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
from palus.config import load_run

HOPELESS = 0.1
"""Below the target by this much over a quarter of the pairs, a checkpoint has not crossed."""
CONFIRMING = 1_000_003
"""Added to the seed of the matches that confirm a crossing."""
CONDITIONS = ("palus.matmul=highest",)


@dataclass(frozen=True)
class Way:
    """A way to use two cores: what Python runs, before and after the preset. folders: of its runs, below the way's."""

    text: str
    module: tuple[str, ...]
    options: tuple[str, ...]
    threads: int
    folders: tuple[str, ...] = (".",)


_TORCHRUN = ("torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "-m")
_RUN = ("--resume-if-there", "--run-id")
WAYS = {
    "one": Way("one process on two threads", ("palus", "train"), _RUN, 2),
    "ranks": Way("two ranks of one thread", (*_TORCHRUN, "palus", "train"), _RUN, 1),
    "league": Way(
        "a league of two runs of one thread", ("palus", "league"), ("--runs", "2", "--name"), 1, ("run-1", "run-2")
    ),
}


def train(arguments: argparse.Namespace) -> None:
    """Train every seed in every way to the end of its preset. Exits when a training fails."""
    every = f"behaviors.{strength.BEHAVIOR}.checkpoint_interval={arguments.every}"
    for seed in arguments.seeds:
        for way in arguments.ways:
            how = WAYS[way]
            name = strength.run_name(arguments.preset, seed) + (f"-{way}" if way != "one" else "")
            command = (*how.module, arguments.preset, *how.options, name)
            changes = [*CONDITIONS, every, f"palus.threads={how.threads}", f"env_settings.seed={seed}", *arguments.set]
            strength.train_run(arguments, name, command, changes, how.folders)


def trained_runs(arguments: argparse.Namespace) -> list[tuple[int, str, Path]]:
    """Seed, way and folder of each training of the preset, by way and seed. Exits when there is none."""
    named = re.compile(rf"{re.escape(arguments.preset)}-seed(\d+)(?:-({'|'.join(WAYS)}))?")
    found = []
    for folder in arguments.results.iterdir() if arguments.results.exists() else []:
        match = named.fullmatch(folder.name)
        if match and all((folder / own / "bundle.json").exists() for own in WAYS[match[2] or "one"].folders):
            found.append((int(match[1]), match[2] or "one", folder))
    if not found:
        sys.exit(f"{arguments.results}: no trained run of {arguments.preset}; run `time_to_skill.py train` first.")
    return sorted(found, key=lambda own: (list(WAYS).index(own[1]), own[0]))


def table(arguments: argparse.Namespace) -> None:
    """Find the crossing of every seed and way; write the result and its table."""
    stored = arguments.output / f"{arguments.name}.json"
    if arguments.stored:
        machine.write_tables(stored, markdown)
        return
    session = machine.Session(arguments.name, vars(arguments))
    spec = envs.make(strength.BEHAVIOR, 1).spec
    official = load_player(str(strength.models_folder(arguments) / f"{learning_curves.OFFICIAL}.onnx"), spec)
    runs = []
    for seed, way, folder in trained_runs(arguments):
        points: list[Json] = []
        folders = WAYS[way].folders
        kept = [(own, each) for own in folders for each in learning_curves.checkpoints(folder / own, strength.BEHAVIOR)]
        for own, checkpoint in sorted(kept, key=lambda pair: pair[1].wall_s):
            policy = load_player(str(checkpoint.path), spec)
            found = evaluate(policy, official, arguments.pairs, arguments.seed, arguments.target)
            scores = [summary.score for summary in found]
            points.append({"run": own, "steps": checkpoint.steps, "wall_s": checkpoint.wall_s, "scores": scores,
                           "pairs": [summary.pairs for summary in found]})  # fmt: skip
            strength.say(
                f"{folder.name}, {checkpoint.wall_s / 60:.1f} min: {', '.join(f'{score:.1%}' for score in scores)}"
            )
            if crossed(points[-1], arguments.target):
                break
        run = load_run(folder / folders[0] / "configuration.yaml")
        told = {"max_steps": run.behaviors[strength.BEHAVIOR].max_steps, "matmul": run.palus.matmul}
        runs.append({"seed": seed, "way": way, **told, "trained": machine.origin(folder), "points": points})
    machine.save(session.report(runs=runs), stored, markdown)


def evaluate(policy: Player, official: Player, pairs: int, seed: int, target: float) -> list[PairingSummary]:
    """Over a quarter of the pairs; then, where there is hope, over all; then, where it crosses, over as many others."""
    found = [summarize(play_pairs(policy, official, pairs // 4, seed + 2 * CONFIRMING))]
    if found[0].score >= target - HOPELESS:
        found.append(summarize(play_pairs(policy, official, pairs, seed)))
        if found[1].score >= target:
            found.append(summarize(play_pairs(policy, official, pairs, seed + CONFIRMING)))
    return found


def crossed(point: Json, target: float) -> bool:
    """Whether the evaluation and the one that confirms it reach the target."""
    return len(point["scores"]) == 3 and min(point["scores"][1:]) >= target


def markdown(report: Json) -> str:
    """Each training's crossing, and the scores on the way."""
    rows, curve, target = [], [], report["arguments"]["target"]
    minutes: dict[str, list[float]] = {}
    for run in report["runs"]:
        last, way = run["points"][-1], run["way"]
        took = last["wall_s"] / 60 if crossed(last, target) else float("inf")
        minutes.setdefault(way, []).append(took)
        scores = ([f"{score:.1%}" for score in last["scores"][1:]] + ["", ""])[:2]
        rows.append([way, f"{run['seed']}", _minutes(took), f"{last['steps'] / 1e6:.1f}M", *scores])
        for point in run["points"]:
            shown = [f"{score:.1%}" for score in point["scores"]]
            seed = f"{run['seed']}" + (f", {point['run']}" if point["run"] != "." else "")
            when = [f"{point['wall_s'] / 60:.1f}", f"{point['steps'] / 1e6:.1f}M"]
            curve.append([way, seed, *when, *shown, *[""] * (3 - len(shown))])
    arguments = report["arguments"]
    pairs = arguments["pairs"]
    told = " and ".join(
        dict.fromkeys(f"{run['max_steps'] / 1e6:g}M steps with matmul `{run['matmul']}`" for run in report["runs"])
    )
    sittings = [sitting for run in report["runs"] for sitting in run["trained"]]
    return "\n\n".join(
        part.rstrip("\n")
        for part in (
            "# Time to skill",
            f"Made by `python benchmarks/time_to_skill.py table` from {report['recipe']}.json beside it.",
            machine.caption(report),
            f"Preset {arguments['preset']}, runs of {told}, two cores; until {target:.0%} of the points against "
            f"{learning_curves.OFFICIAL} over {pairs} mirrored pairs and over {pairs} others. All were "
            f"{machine.trained_at(sittings)}.",
            machine.table(
                ["two cores as", "seeds", "median"],
                [[WAYS[way].text, f"{len(took)}", f"**{_minutes(median(took))}**"] for way, took in minutes.items()],
            ),
            machine.table(["way", "seed", "crossing", "steps", "points", "confirmed"], rows),
            machine.table(
                ["way", "seed", "minutes", "steps", *(f"{n} pairs" for n in (pairs // 4, pairs, pairs))], curve
            ),
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
    training.add_argument("--ways", nargs="+", choices=WAYS, default=["one"], help="how two cores are used")
    training.add_argument("--minutes", type=float, default=60.0, help="at most so much wall time per seed and way")
    training.add_argument("--every", type=int, default=2_000_000, help="steps between checkpoints")
    training.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="further changes to the preset")
    training.set_defaults(command=train)
    playing = commands.add_parser("table", parents=[common], help="find the crossings")
    strength.add_playing(playing)
    playing.add_argument("--target", type=float, default=0.6, help="share of the points that is the skill")
    playing.add_argument("--name", default="time-to-skill", help="of the result's files")
    playing.set_defaults(command=table)
    arguments = parser.parse_args()
    command = arguments.__dict__.pop("command")
    command(arguments)


if __name__ == "__main__":
    main()
