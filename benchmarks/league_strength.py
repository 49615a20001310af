"""League against plain self-play on SoccerTwos, at equal wall time: does it matter whom one meets?

    python benchmarks/league_strength.py train                        per seed one run of each, side by side
    python benchmarks/league_strength.py table --models FOLDER        everybody against everybody

Per seed two runs of one preset train at the same time, each on one thread, and stop after the same minutes: `plain`
meets ML-Agents' window of past selves, `league` the whole past by prioritized fictitious self-play. Nothing else
differs. `table` plays each team of the one against each of the other, and all of them against the policies in FOLDER
(trained in Unity, not part of this repository), in mirrored pairs. Result: benchmarks/results/league-strength.*
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

import machine
import strength
from machine import Json
from palus import envs
from palus.arena.models.players import Player, load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize

KINDS = {"plain": "window", "league": "pfsp_hard"}
"""What is compared -> its `palus.league.opponents`."""


def folder_of(arguments: argparse.Namespace, kind: str, seed: int) -> Path:
    """Of the run of one kind and seed."""
    folder: Path = arguments.results / f"{kind}-seed{seed}"
    return folder


def train(arguments: argparse.Namespace) -> None:
    """Train both kinds of every seed that is not there yet, side by side. Exits when a training fails."""
    for seed in arguments.seeds:
        if all((folder_of(arguments, kind, seed) / "bundle.json").exists() for kind in KINDS):
            strength.say(f"seed {seed} is finished")
            continue
        strength.say(f"seed {seed}: {arguments.minutes} minutes")
        running = [_start(arguments, kind, seed) for kind in KINDS]
        failed = [process.args for process in running if process.wait()]
        if failed:
            sys.exit(f"seed {seed}: training failed; see above.")


def _start(arguments: argparse.Namespace, kind: str, seed: int) -> subprocess.Popen[bytes]:
    folder = folder_of(arguments, kind, seed)
    machine.note_origin(folder)
    command = [sys.executable, "-m", "palus", "train", arguments.preset, "--force", "--seed", str(seed)]
    command += ["--run-id", folder.name, "--results-dir", str(arguments.results), "palus.threads=1"]
    command += [f"palus.max_minutes={arguments.minutes}", f"palus.league.opponents={KINDS[kind]}"]
    return subprocess.Popen([*command, "palus.matmul=highest", "palus.baseline_interval=0", *arguments.set])


def table(arguments: argparse.Namespace) -> None:
    """Play everybody, write the result and its tables."""
    stored = arguments.output / "league-strength.json"
    if arguments.stored:
        machine.write_tables(stored, markdown)
        return
    session = machine.Session("league-strength", vars(arguments))
    spec = envs.make(strength.BEHAVIOR, 1).spec
    teams: dict[str, list[Player]] = {kind: [] for kind in KINDS}
    trained = []
    for seed in arguments.seeds:
        for kind in KINDS:
            folder = folder_of(arguments, kind, seed)
            card = json.loads((folder / "bundle.json").read_text())
            facts = {key: card[key] for key in ("steps", "wall_seconds")}
            trained.append({"kind": kind, "seed": seed, "trained": machine.origin(folder), **facts})
            teams[kind].append(load_player(str(folder), spec))
    others, skipped = strength.opponents_in(strength.models_folder(arguments), spec)
    meetings = [("league", a, b) for a in teams["league"] for b in teams["plain"]]
    meetings += [(kind, team, other) for kind in KINDS for team in teams[kind] for other in others]
    rows = []
    for kind, team, opponent in meetings:
        summary = summarize(play_pairs(team, opponent, arguments.pairs, arguments.seed))
        rows.append({"kind": kind, "team": team.name, "opponent": opponent.name, **vars(summary)})
        strength.say(f"{team.name} against {opponent.name}: {summary.score:.1%}")
    machine.save(session.report(teams=trained, skipped=skipped, matches=rows), stored, markdown)


def markdown(report: Json) -> str:
    """League against plain, team by team; then both against others, means over the seeds."""
    rows = report["matches"]
    plain = {f"plain-seed{team['seed']}" for team in report["teams"]}
    among = [row for row in rows if row["opponent"] in plain]
    duels = [[row["team"], row["opponent"], strength.share(row)] for row in among]
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["opponent"] not in plain:
            scores.setdefault(row["opponent"], {}).setdefault(row["kind"], []).append(100 * row["score"])
    met = [
        [opponent, *(f"{mean(by[kind]):.1f} ({min(by[kind]):.1f} to {max(by[kind]):.1f})" for kind in KINDS)]
        for opponent, by in sorted(scores.items(), key=lambda item: mean(item[1]["plain"]))
    ]
    teams = "\n".join(
        f"- {t['kind']}, seed {t['seed']}: {t['steps'] / 1e6:.1f}M steps in {t['wall_seconds'] / 60:.1f} minutes, "
        f"{machine.trained_at(t['trained'])}"
        for t in report["teams"]
    )
    kinds = ", ".join(f"{kind}: `palus.league.opponents: {opponents}`" for kind, opponents in KINDS.items())
    everything = mean(100 * row["score"] for row in among)
    parts = (
        "# League against plain self-play",
        "Made by `python benchmarks/league_strength.py table` from league-strength.json beside it.",
        machine.caption(report),
        f"Preset {report['arguments']['preset']}, one thread each, fp32, both of a seed at the same time; {kinds}.",
        teams,
        f"## Among each other\n\nShare of the league's points in %, with its 95 % interval, over "
        f"{report['arguments']['pairs']} mirrored pairs; **{everything:.1f} % over all**.",
        machine.table(["league", "plain", "share"], duels),
        "## Against others\n\nMean share of points in % over the seeds, and the range of the seeds.",
        machine.table(["opponent", *KINDS], met),
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="League against plain self-play; see the head of this file.")
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--preset", default="soccertwos-fast", help="preset of the runs")
    common.add_argument("--results", type=Path, default=Path("results/league-strength"), help="folder of the runs")
    common.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    training = commands.add_parser("train", parents=[common], help="train what is not there yet")
    training.add_argument("--minutes", type=float, default=15.0, help="wall time of each run")
    training.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="further changes to the preset")
    training.set_defaults(command=train)
    playing = commands.add_parser("table", parents=[common], help="play the matches")
    strength.add_playing(playing, pairs=100)
    playing.set_defaults(command=table)
    arguments = parser.parse_args()
    command = arguments.__dict__.pop("command")
    command(arguments)


if __name__ == "__main__":
    main()
