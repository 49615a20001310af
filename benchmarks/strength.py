"""How strong a team palus trains, and how fast: the recipe behind the tables and curves of the README.

    python benchmarks/strength.py train --preset soccertwos-strong --seeds 1 2 3 --minutes 20
    python benchmarks/strength.py table --models FOLDER --pairs 200
    python benchmarks/strength.py curves --models FOLDER --pairs 100

An hour's team, its result by a name of its own:

    python benchmarks/strength.py train --results results/hour --seeds 7 --minutes 59.5 --set palus.matmul=highest
        palus.threads=2 behaviors.SoccerTwos.max_steps=9.5e7 behaviors.SoccerTwos.self_play.save_steps=900000
    python benchmarks/strength.py table --results results/hour --name strength-hour --models FOLDER --pairs 600

`train` trains one seed after the other with all cores and skips what is finished, so that it may be stopped and started
again. `table` plays the final team of every seed against every policy in FOLDER (trained in Unity, not part of this
repository), the random policy and both house bots. `curves` does so with checkpoints, against two opponents, over wall
time. Results: benchmarks/results/strength.json and curves.json, with tables (.md) and docs/images/learning-curves.png.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import learning_curves
import machine
from machine import Json
from palus import envs
from palus.arena.models.players import Player, find_players, load_player
from palus.arena.referee.games import GAMES
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize
from palus.config import load_run
from palus.types import GameSpec

BEHAVIOR = "SoccerTwos"
KEEP_CHECKPOINTS = 10000
"""All of them: the curves need each."""


def run_name(preset: str, seed: int) -> str:
    """The run id of one seed."""
    return f"{preset}-seed{seed}"


def minutes_left(folder: Path, minutes: float) -> float:
    """Minutes of training that a run still has; 0 when it is finished."""
    card = folder / "bundle.json"
    if not card.exists():
        return minutes
    done = json.loads(card.read_text())
    first = next(iter(load_run(folder / "configuration.yaml").behaviors.values()))
    return 0.0 if done["steps"] >= first.max_steps else max(0.0, minutes - done["wall_seconds"] / 60)


def train(arguments: argparse.Namespace) -> None:
    """Train every seed for its minutes of wall time. Exits when a training fails."""
    for seed in arguments.seeds:
        name = run_name(arguments.preset, seed)
        command = ("palus", "train", arguments.preset, "--resume-if-there", "--run-id", name)
        train_run(arguments, name, command, [f"env_settings.seed={seed}", *arguments.set])


def train_run(
    arguments: argparse.Namespace,
    name: str,
    command: Sequence[str],
    changes: Sequence[str],
    folders: Sequence[str] = (".",),
) -> None:
    """Train a run for its minutes of wall time, or what is left of them, and keep all its checkpoints.

    command: what Python runs, without what it is told here. folders: of runs that one command trains, below the name's.
    Exits when the training fails.
    """
    folder: Path = arguments.results / name
    left = max(minutes_left(folder / own, arguments.minutes) for own in folders)
    if left == 0.0:
        say(f"{name} is finished")
        return
    say(f"{name}: {left:.1f} minutes")
    machine.note_origin(folder)
    kept = [
        f"behaviors.{behavior}.keep_checkpoints={KEEP_CHECKPOINTS}" for behavior in load_run(arguments.preset).behaviors
    ]
    told = ["--results-dir", str(arguments.results), f"palus.max_minutes={left:.3f}", *kept, *changes]
    if subprocess.run([sys.executable, "-m", *command, *told]).returncode != 0:
        sys.exit(f"{name}: training failed; see above.")


def trained_runs(arguments: argparse.Namespace) -> dict[int, Path]:
    """Seed -> folder of each run of the preset. Exits when there is none."""
    prefix = run_name(arguments.preset, 0).removesuffix("0")
    folders = [path.parent for path in arguments.results.glob(f"{prefix}*/bundle.json")]
    runs = {int(folder.name.removeprefix(prefix)): folder for folder in folders}
    if not runs:
        sys.exit(f"{arguments.results}: no trained run {prefix}*; run `strength.py train` first.")
    return dict(sorted(runs.items()))


def models_folder(arguments: argparse.Namespace) -> Path:
    """The folder of Unity-trained policies. Exits when none was given."""
    if arguments.models is None:
        sys.exit("give --models FOLDER, where the policies trained in Unity are, or --stored.")
    return Path(arguments.models)


def opponents_in(models: Path, spec: GameSpec) -> tuple[list[Player], list[str]]:
    """Every playable policy of a folder and the house players; and the files that play another game."""
    found, _ = find_players(models, spec)
    names = {player.name for player in found}
    skipped = sorted(path.stem for path in models.glob("*.onnx") if path.stem not in names)
    return [*found, *(load_player(name, spec) for name in GAMES["SoccerTwos"].house)], skipped


def table(arguments: argparse.Namespace) -> None:
    """Play everybody and write strength.json and strength.md, or by another name."""
    stored = arguments.output / f"{arguments.name}.json"
    if arguments.stored:
        machine.write_tables(stored, strength_markdown)
        return
    session = machine.Session(arguments.name, vars(arguments))
    spec = envs.make(BEHAVIOR, 1).spec
    opponents, skipped = opponents_in(models_folder(arguments), spec)
    teams, rows = [], []
    for seed, folder in trained_runs(arguments).items():
        card = json.loads((folder / "bundle.json").read_text())
        chosen = ("steps", "wall_seconds", "sha256", "trainer_type")
        trained = {"trained": machine.origin(folder), **{key: card[key] for key in chosen}}
        teams.append({"seed": seed, "name": folder.name, **trained})
        team = load_player(str(folder), spec)
        for opponent in opponents:
            summary = summarize(play_pairs(team, opponent, arguments.pairs, arguments.seed))
            say(f"{folder.name} against {opponent.name}: {summary.score:.1%}")
            rows.append({"seed": seed, "opponent": opponent.name, **vars(summary)})
    identities = [{"name": player.name, "sha256": player.sha256} for player in opponents]
    report = session.report(teams=teams, opponents=identities, skipped=skipped, matches=rows)
    machine.save(report, stored, strength_markdown)


def strength_markdown(report: Json) -> str:
    """Opponents by seeds, the hardest opponent first."""
    seeds = [team["seed"] for team in report["teams"]]
    cells = {(row["opponent"], row["seed"]): row for row in report["matches"]}
    means = {o["name"]: mean(cells[o["name"], s]["score"] for s in seeds) for o in report["opponents"]}
    rows = [
        [name, *(share(cells[name, seed]) for seed in seeds), f"**{100 * means[name]:.1f}**"]
        for name in sorted(means, key=lambda name: means[name])
    ]
    teams = "\n".join(
        f"- {t['name']}: {t['trainer_type']}, {t['steps'] / 1e6:.1f}M steps in {t['wall_seconds'] / 60:.1f} minutes, "
        f"{machine.trained_at(t['trained'])}"
        for t in report["teams"]
    )
    pairs = max(row["pairs"] for row in report["matches"])
    parts = [
        "# Strength",
        f"Made by `python benchmarks/strength.py table` from {report['recipe']}.json beside it.",
        machine.caption(report),
        teams,
        f"Share of points in %, with its 95 % interval, over {pairs} mirrored pairs; a draw is half a point.",
        machine.table(["opponent", *(f"seed {seed}" for seed in seeds), "mean"], rows),
    ]
    if report["skipped"]:
        parts.append(f"Not met, because they do not play {BEHAVIOR}: {', '.join(report['skipped'])}.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def share(row: Json) -> str:
    """Share of points and its interval in %."""
    low, high = row["interval"]
    return f"{100 * row['score']:.1f} ({100 * low:.0f} to {100 * high:.0f})"


def curves(arguments: argparse.Namespace) -> None:
    """Play checkpoints, write curves.json and curves.md, draw the picture."""
    stored = arguments.output / "curves.json"
    if arguments.stored:
        machine.write_tables(stored, learning_curves.markdown)
    else:
        session = machine.Session("curves", vars(arguments))
        spec = envs.make(BEHAVIOR, 1).spec
        official = load_player(str(models_folder(arguments) / f"{learning_curves.OFFICIAL}.onnx"), spec)
        opponents = [official, load_player("ball-chaser", spec)]
        points = []
        for seed, folder in trained_runs(arguments).items():
            machine.origin(folder)
            for checkpoint in learning_curves.thinned(learning_curves.checkpoints(folder, BEHAVIOR), arguments.points):
                policy = load_player(str(checkpoint.path), spec)
                for opponent in opponents:
                    summary = summarize(play_pairs(policy, opponent, arguments.pairs, arguments.seed))
                    where = {"seed": seed, "steps": checkpoint.steps, "wall_s": checkpoint.wall_s}
                    points.append({**where, "opponent": opponent.name, **vars(summary)})
                    say(f"{folder.name}, {checkpoint.steps} steps, {opponent.name}: {summary.score:.1%}")
        report = session.report(points=points)
        machine.save(report, stored, learning_curves.markdown)
    learning_curves.draw(json.loads(stored.read_text()), arguments.picture)
    say(f"Written: {arguments.picture}")


def say(text: str) -> None:
    """What is going on, for whoever waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def add_playing(parser: argparse.ArgumentParser, pairs: int = 200) -> None:
    """The options of what plays matches and stores their result."""
    parser.add_argument("--models", type=Path, help="folder of policies trained in Unity")
    parser.add_argument("--stored", action="store_true", help="only remake tables and picture of the stored result")
    parser.add_argument("--pairs", type=int, default=pairs, help="mirrored pairs per opponent")
    parser.add_argument("--seed", type=int, default=0, help="seed of the matches")
    parser.add_argument("--output", type=Path, default=machine.RESULTS, help="folder of the result")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train teams and measure their strength; see the head of this file.")
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--preset", default="soccertwos-strong", help="preset of the runs")
    common.add_argument("--results", type=Path, default=Path("results/strength"), help="folder of the runs")
    playing = argparse.ArgumentParser(add_help=False)
    add_playing(playing)

    training = commands.add_parser("train", parents=[common], help="train the seeds that are not finished")
    training.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    training.add_argument("--minutes", type=float, default=20.0, help="wall time per seed")
    training.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the preset")
    training.set_defaults(command=train)
    final = commands.add_parser("table", parents=[common, playing], help="final teams against everybody")
    final.add_argument("--name", default="strength", help="of the result; another one for other runs")
    final.set_defaults(command=table)
    drawing = commands.add_parser("curves", parents=[common, playing], help="checkpoints over wall time")
    drawing.add_argument("--points", type=int, default=12, help="checkpoints per run, evenly spaced, the last included")
    picture = machine.ROOT / "docs" / "images" / "learning-curves.png"
    drawing.add_argument("--picture", type=Path, default=picture)
    drawing.set_defaults(command=curves)
    arguments = parser.parse_args()
    command = arguments.__dict__.pop("command")
    command(arguments)


if __name__ == "__main__":
    main()
