"""StrikersVsGoalie: do both sides learn, and do they beat those that Unity ships?

    python benchmarks/strikers.py train                        strikers and a goalie, both at once
    python benchmarks/strikers.py table --models FOLDER        checkpoints against fixed ones, the last against Unity's

`table` plays the strikers of every checkpoint against one early goalie, the goalies against early strikers of the same
age, and the final team, both files of it, against unity-official-striker and unity-official-goalie from FOLDER (trained
in Unity, not part of this repository) in mirrored pairs: every seed once as strikers, once as the goalie. A match that
ends by time is the goalie's. Result: benchmarks/results/strikers.json and strikers.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import machine
import strength
from machine import Json
from palus import envs
from palus.arena.models.players import team_of
from palus.arena.models.policies import OnnxPlayer, played_behaviors
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize
from palus.types import GameSpec

GAME = "StrikersVsGoalie"
OFFICIAL = {"Striker": "unity-official-striker", "Goalie": "unity-official-goalie"}
EARLY = 0.1
"""Age of the checkpoints that all others meet, as a share of the run."""
AS_STRIKERS, AS_GOALIE = (1,), (2,)


def table(arguments: argparse.Namespace) -> None:
    """Play the matches, write the result and its tables."""
    stored = arguments.output / "strikers.json"
    if arguments.stored:
        machine.write_tables(stored, markdown)
        return
    session = machine.Session("strikers", vars(arguments))
    spec = envs.make(GAME, 1).spec
    official = {name: strength.models_folder(arguments) / f"{file}.onnx" for name, file in OFFICIAL.items()}
    curves, finals = [], []
    for seed, folder in strength.trained_runs(arguments).items():
        card = json.loads((folder / "bundle.json").read_text())
        trained = {"trained": machine.origin(folder), "wall_s": card["wall_seconds"]}
        ages = {name: checkpoints(folder / name, name) for name in OFFICIAL}
        shares = sorted(ages["Striker"])
        early = {name: ages[name][nearest(ages[name], EARLY)] for name in OFFICIAL}
        for share in shares:
            now = {name: ages[name][nearest(ages[name], share)] for name in OFFICIAL}
            strikers = play({**now, "Goalie": early["Goalie"]}, early, spec, arguments, AS_STRIKERS)
            goalie = play({**now, "Striker": early["Striker"]}, early, spec, arguments, AS_GOALIE)
            curves.append({"seed": seed, "share": share, "strikers": vars(strikers), "goalie": vars(goalie)})
            strength.say(f"seed {seed}, {share:.0%}: strikers {strikers.score:.1%}, goalie {goalie.score:.1%}")
        final = {name: folder / f"{name}.onnx" for name in OFFICIAL}
        found = {
            what: play(final, official, spec, arguments, legs)
            for what, legs in (("both", (1, 2)), ("strikers", AS_STRIKERS), ("goalie", AS_GOALIE))
        }
        finals.append({"seed": seed, **trained, **{what: vars(summary) for what, summary in found.items()}})
        strength.say(f"seed {seed}, against Unity's: {', '.join(f'{k} {v.score:.1%}' for k, v in found.items())}")
    machine.save(session.report(curves=curves, finals=finals), stored, markdown)


def checkpoints(folder: Path, name: str) -> dict[float, Path]:
    """Age as a share of the run -> file."""
    files = {int(path.stem.rpartition("-")[2]): path for path in folder.glob(f"{name}-*.onnx")}
    return {steps / max(files): path for steps, path in sorted(files.items())}


def nearest(ages: dict[float, Path], wanted: float) -> float:
    """The age of a checkpoint nearest to the wanted one."""
    return min(ages, key=lambda age: abs(age - wanted))


def play(
    ours: dict[str, Path], theirs: dict[str, Path], spec: GameSpec, arguments: argparse.Namespace, legs: tuple[int, ...]
) -> PairingSummary:
    """Ours against theirs, in the legs of every pair in which ours have that side."""
    a, b = (
        team_of({own.name: OnnxPlayer(files[own.name], own) for own in played_behaviors(spec)}, label, None)
        for label, files in (("ours", ours), ("theirs", theirs))
    )
    return summarize(play_pairs(a, b, arguments.pairs, arguments.seed, env_id=GAME, legs=legs))


def markdown(report: Json) -> str:
    """The final team against Unity's, then each side over the run."""
    finals = [
        [
            f"{f['seed']}",
            f"{f['wall_s'] / 60:.1f}",
            *(strength.share(f[what]) for what in ("both", "strikers", "goalie")),
        ]
        for f in report["finals"]
    ]
    curves = [
        [f"{c['seed']}", f"{c['share']:.0%}", strength.share(c["strikers"]), strength.share(c["goalie"])]
        for c in report["curves"]
    ]
    trained = "; ".join(f"seed {f['seed']} {machine.trained_at(f['trained'])}" for f in report["finals"])
    pairs = report["arguments"]["pairs"]
    parts = (
        "# StrikersVsGoalie",
        "Made by `python benchmarks/strikers.py table` from strikers.json beside it.",
        machine.caption(report),
        f"Preset {report['arguments']['preset']}; {trained}. Share of points in %, with 95 % interval, over {pairs} "
        "seeds, each played once by a side and twice by a team; a match that ends by time is the goalie's.",
        "## Against the two that Unity ships",
        machine.table(["seed", "minutes", "team", "its strikers", "its goalie"], finals),
        f"## Over the run, against the other side's checkpoint of the age of {EARLY:.0%}",
        machine.table(["seed", "age", "strikers", "goalie"], curves),
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Do strikers and goalie learn; see the head of this file.")
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--preset", default="strikers-vs-goalie-fast", help="preset of the runs")
    common.add_argument("--results", type=Path, default=Path("results/strikers"), help="folder of the runs")
    training = commands.add_parser("train", parents=[common], help="train the seeds that are not finished")
    training.add_argument("--seeds", type=int, nargs="+", default=[1])
    training.add_argument("--minutes", type=float, default=60.0, help="at most so much wall time per seed")
    training.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the preset")
    training.set_defaults(command=strength.train)
    playing = commands.add_parser("table", parents=[common], help="play the matches")
    strength.add_playing(playing, pairs=100)
    playing.set_defaults(command=table)
    arguments = parser.parse_args()
    command = arguments.__dict__.pop("command")
    command(arguments)


if __name__ == "__main__":
    main()
