"""What Doom's presets reach: trained from nothing, several seeds, every checkpoint evaluated over 100 episodes.

    python benchmarks/doom_curves.py train --out FOLDER                                    everything, hours
    python benchmarks/doom_curves.py train --out FOLDER --rows doom-basic --seeds 11       one run, others later
    python benchmarks/doom_curves.py peer --out FOLDER                                     Sample Factory, same frames
    python benchmarks/doom_curves.py table --out FOLDER                                    result, table, picture

`train` and `peer` skip runs that FOLDER has already; `peer` wants benchmarks/peer/setup_sample_factory.sh once. A run
is one training, then `palus enjoy` of the policy at each of its checkpoints, Sample Factory's too, actions drawn.
`table` writes results/doom-curves.json and .md, and docs/images/doom-curves.png.

No setting was ever chosen by these seeds, neither of training nor of evaluation: settings were tried on seeds 1 to 4
and episodes from 0 and from 1,000,003. Whoever changes a preset by what this prints takes new ones for the table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import machine
from doom_curves_table import draw, markdown
from machine import Json
from palus.export.policy_file import read_policy
from palus.files import write_text
from palus.hub.training_curve import read_scalars
from process_tree import Meter

HERE = Path(__file__).parent
HEALTH = "doom-health-gathering-supreme"
PEER = "sample-factory-health-gathering-supreme"
SEEDS = (11, 12, 13)
EPISODES = 100
EVALUATION_SEED = 20_000_003
TAGS = ("Environment/True Objective", "Environment/Cumulative Reward", "policy_stats/avg_true_objective")
"""What a curve shows: the score where the game has one of its own, else the reward; Sample Factory's name for it."""
PEER_FRAMES = 4_000_000
PEER_SAVES_S = 30
"""Seconds between Sample Factory's checkpoints: it counts time there, not frames."""
EVALUATED_FRAMES = 500_000
"""Frames between two policies that are evaluated."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a preset, and what else is said to `palus train`."""

    preset: str
    words: tuple[str, ...] = ()


ROWS = {
    HEALTH: Row(HEALTH),
    f"{HEALTH}-beside": Row(HEALTH, ("palus.sampling.asynchronous=true",)),
    f"{HEALTH}-fp32": Row(HEALTH, ("palus.matmul=highest",)),
    f"{HEALTH}-hour": Row(HEALTH, ("--minutes", "58")),
    f"{HEALTH}-int16": Row(HEALTH, ("palus.matmul=int16",)),
    f"{HEALTH}-pictures": Row(HEALTH, ("palus.env_options.measurements=false",)),
    "doom-basic": Row("doom-basic"),
    "doom-defend-the-center": Row("doom-defend-the-center"),
    "doom-my-way-home": Row("doom-my-way-home"),
}


@dataclass(frozen=True)
class Saved:
    """A policy of a run in progress. clock: (wall, CPU) seconds of the process tree when it was there."""

    folder: Path
    frames: int
    clock: tuple[float, float]


def train(out: Path, rows: Sequence[str], seeds: Sequence[int]) -> None:
    """Train and evaluate what is missing; every run leaves FOLDER/<row>-<seed>.json."""
    for name in rows:
        row = ROWS[name]
        for seed in seeds:
            place = ("--run-id", f"{name}-{seed}", "--results-dir", str(out), "--seed", str(seed), "--force")
            words = (sys.executable, "-m", "palus", "train", row.preset, *row.words, *place)
            _run(out, name, seed, words, _copy_newest)


def train_peer(out: Path, seeds: Sequence[int], python: Path) -> None:
    """The same with Sample Factory's own configuration of the game; its checkpoints stay where it writes them."""
    for seed in seeds:
        words = (
            *(str(python), str(HERE / "peer" / "sf_run.py"), "--env=doom_health_gathering_supreme", "--device=cpu"),
            *("--num_workers=2", "--num_envs_per_worker=16", f"--train_for_env_steps={PEER_FRAMES}", f"--seed={seed}"),
            *(f"--train_dir={out}", f"--experiment={PEER}-{seed}", "--restart_behavior=overwrite"),
            *(f"--save_every_sec={PEER_SAVES_S}", "--keep_checkpoints=1000"),
        )
        _run(out, PEER, seed, words, _find_peers)


def _run(out: Path, name: str, seed: int, words: Sequence[str], find: Callable[[Path, Path], dict[int, Path]]) -> None:
    """Train in a process of its own, keep its policies as they come, evaluate them, write the record."""
    record, run, kept = out / f"{name}-{seed}.json", out / f"{name}-{seed}", out / f"{name}-{seed}-policies"
    if record.exists():
        return
    shutil.rmtree(kept, ignore_errors=True)
    session = machine.Session("doom-curves", {"row": name, "seed": seed})
    begun = time.monotonic()
    path = os.pathsep.join(part for part in (str(HERE), os.environ.get("PYTHONPATH")) if part)
    with (out / f"{name}-{seed}.log").open("w") as log:
        child = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
        meter = Meter(child.pid)
        meter.start()
        saved: dict[int, Saved] = {}
        ended = False
        while not ended:
            time.sleep(1.0)
            ended = child.poll() is not None
            for frames, folder in find(run, kept).items():
                saved.setdefault(frames, Saved(folder, frames, (time.monotonic() - begun, meter.cpu_s)))
    if child.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {child.returncode}; see {log.name}")
    figures = {"row": name, "seed": seed, "wall": time.monotonic() - begun, "cpu": meter.cpu_s, "curve": _curve(run)}
    trained = session.report(**figures)
    scores = [_score(policy) for policy in _thinned(list(saved.values()))]
    evaluated = {"commit": machine.describe()["commit"], "seed": EVALUATION_SEED, "episodes": EPISODES}
    write_text(record, json.dumps(trained | {"evaluated": evaluated, "policies": scores}, indent=1) + "\n")
    print(f"{name}-{seed}: {scores[-1]}", file=sys.stderr)


def _copy_newest(run: Path, kept: Path) -> dict[int, Path]:
    """palus overwrites its newest policy: a copy of each, with the configuration that plays it."""
    for newest in run.glob("*/policy.npz"):
        frames = read_policy(newest).steps
        copy = kept / str(frames)
        if not copy.exists():
            (copy / newest.parent.name).mkdir(parents=True)
            shutil.copy(newest, copy / newest.parent.name)
            shutil.copy(run / "configuration.yaml", copy)
    return {int(folder.name): folder for folder in kept.glob("*")}


def _find_peers(run: Path, kept: Path) -> dict[int, Path]:
    """Each checkpoint of Sample Factory in an experiment's folder of its own."""
    for checkpoint in run.glob("checkpoint_p0/checkpoint_*.pth"):
        frames = re.fullmatch(r"checkpoint_\d+_(\d+)", checkpoint.stem)
        copy = kept / frames[1] if frames else None
        if copy is not None and not copy.exists():
            (copy / checkpoint.parent.name).mkdir(parents=True)
            shutil.copy(checkpoint, copy / checkpoint.parent.name)
            shutil.copy(run / "config.json", copy)
    return {int(folder.name): folder for folder in kept.glob("*")}


def _thinned(saved: list[Saved]) -> list[Saved]:
    """The first policy of every EVALUATED_FRAMES, and the last."""
    kept: list[Saved] = []
    for policy in sorted(saved, key=lambda policy: policy.frames):
        if policy.frames // EVALUATED_FRAMES > (kept[-1].frames // EVALUATED_FRAMES if kept else 0):
            kept.append(policy)
    last = max(saved, key=lambda policy: policy.frames)
    return kept if kept and kept[-1] is last else [*kept, last]


def _score(policy: Saved) -> Json:
    """Frames, clocks and the score of one policy. Exits when it cannot be played."""
    evaluation = ("--max-num-episodes", str(EPISODES), "--seed", str(EVALUATION_SEED), "--no-render", "--json")
    words = (sys.executable, "-m", "palus", "enjoy", str(policy.folder), *evaluation)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}")
    found: Json = json.loads(done.stdout.splitlines()[-1])
    wall, cpu = (round(seconds, 1) for seconds in policy.clock)
    return {"frames": policy.frames, "wall": wall, "cpu": cpu, **{k: found[k] for k in ("mean", "std", "episodes")}}


def _curve(run: Path) -> list[tuple[int, float]]:
    """(frames, score in training) of every summary."""
    found: dict[str, list[tuple[int, float]]] = {tag: [] for tag in TAGS}
    for path in sorted(run.rglob("events.out.tfevents.*")):
        for step, tag, value in read_scalars(path.read_bytes()):
            if tag in found:
                found[tag].append((step, round(value, 4)))
    return next((points for points in found.values() if points), [])


def collect(out: Path, stored: Path) -> Json:
    """The stored result with the runs of a folder, which replace those of their row and seed.

    Every run keeps its own machine, commits and load. Exits where a tree had changes.
    """
    runs = json.loads(stored.read_text())["runs"] if stored.exists() else []
    runs += [json.loads(path.read_text()) for path in sorted(out.glob("*-*.json"))]
    newest = {(run["row"], run["seed"]): run for run in runs}
    for run in newest.values():
        machine.refuse_changed_tree(run)
    return {"recipe": "doom-curves", "runs": list(newest.values())}


def main() -> None:
    """Parse and call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "peer", "table"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--rows", nargs="+", default=tuple(ROWS), choices=tuple(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--peer", type=Path, default=HERE / "peer" / "sf" / ".venv", help="Sample Factory's environment"
    )
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "train":
        train(out, arguments.rows, arguments.seeds)
    elif arguments.what == "peer":
        train_peer(out, arguments.seeds, arguments.peer / "bin" / "python")
    else:
        result = machine.RESULTS / "doom-curves.json"
        report = collect(out, result)
        draw(report)
        machine.save(report, result, markdown)


if __name__ == "__main__":
    main()
