"""How fast palus trains on a device, beside what it is meant to reach on one H200 with 16 cores.

    python benchmarks/device.py --device cuda              stock PPO and MA-POCA, and Doom with workers on all cores
    python benchmarks/device.py --device cuda --only doom --layouts 16x24 15x24 --seconds 12     workers x games
    python benchmarks/device.py --device cuda --only ppo --matches 512 --seconds 10 --output FOLDER   a first look
    python benchmarks/device.py --table FILE.json          the table of a stored result again

The third bar, a team of `soccertwos-strong` within three minutes at its strength, is the recipe of strength:

    python benchmarks/strength.py train --results results/device --seeds 4 5 --minutes 3 --set torch_settings.device=cuda
    python benchmarks/strength.py table --results results/device --name strength-device --models FOLDER --pairs 200

Stock runs play against a full window of snapshots; whole cycles count, in wall time, but for those of the first
seconds, in which graphs are captured. Steps are CUDA graphs, and with the first number of matches also launched kernel by
kernel. Doom is played while the learner is at work, as it is by default; with one worker fewer than there are cores,
one is left to whoever decides. Writes benchmarks/results/device.json and .md.
"""  # noqa: E501 (commands)

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import machine
from cycles import collector_of, fill_league, stock_run, trainee_of
from doom_throughput import DOOM, HERE, Case, measure
from machine import Json, caption, table
from palus.errors import ConfigError
from palus.nn.place import place_of
from palus.train import Run

BARS = {"ppo": 400_000, DOOM: 100_000}
"""Trained agent-steps, or frames, per second."""
WARM_UP = 3.0
"""Seconds."""
GAMES, SPLITS = 24, 4
"""Of Doom, for each worker; groups of them, one of which is decided for while the others are stepped."""


def stock(device: str, trainer: str, matches: int, graph: bool, seconds: float) -> Json:
    """Whole cycles of a stock run for so long. graph: whether steps may be captured."""
    with tempfile.TemporaryDirectory() as folder:
        words = (f"torch_settings.device={device}", f"palus.num_matches={matches}", "palus.baseline_interval=0")
        parts = Run(stock_run(trainer, folder, "auto", machine.usable_cores(), *words))
        try:
            with parts.report:
                return _cycles(parts, trainer, graph, seconds)
        finally:
            parts.close()


def _cycles(parts: Run, trainer: str, graph: bool, seconds: float) -> Json:
    steps, collector = trainee_of(parts).learner.device_steps, collector_of(parts)
    steps.captures = steps.captures and graph
    fill_league(parts)
    begun = time.perf_counter()
    while time.perf_counter() - begun < WARM_UP:
        parts.iterate()
    collect, playing, trained = collector.collect, 0.0, 0

    def timed() -> Any:
        nonlocal playing, trained
        begun = time.perf_counter()
        collected = collect()
        playing += time.perf_counter() - begun
        trained += collected.rollouts[0].agent_steps
        return collected

    collector.collect = timed  # type: ignore[method-assign]
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        parts.iterate()
    wall = time.perf_counter() - begun
    return {
        "what": trainer,
        "matches": collector.env.num_matches,
        "step": "one graph" if steps.captures else "kernel by kernel",
        "matmul": parts.computing.matmul.name,
        "per_s": round(trained / wall),
        "playing_share": round(playing / wall, 3),
    }


def doom(device: str, workers: int, games: int, seconds: float) -> Json:
    """Doom with so many workers, and games for each of them."""
    rows, at = workers * games, f"behaviors.doom_{DOOM}.hyperparameters."
    sampling = f"{{workers: {workers}, games_per_worker: {games}, splits: {SPLITS}}}"
    words = [f"torch_settings.device={device}", f"palus.sampling={sampling}"]
    words += [f"{at}buffer_size={32 * rows}", f"{at}batch_size={16 * rows}"]
    words += [f"behaviors.doom_{DOOM}.summary_freq={2 * 4 * 32 * rows}"]
    file = str(HERE / "doom_throughput_doom.yaml")
    command = (sys.executable, "-m", "palus", "train", file, "--run-id", "run", "--force", *words)
    found = measure(Case(DOOM, "palus", command, machine.usable_cores()), seconds, seconds / 2)
    return {"what": DOOM, "matches": rows, "step": f"{workers} workers", "per_s": round(found["frames_per_s"]), **found}


def layout(text: str) -> tuple[int, int]:
    """Workers and games for each of them, as in 16x24."""
    workers, games = text.split("x")
    return int(workers), int(games)


def markdown(report: Json) -> str:
    """Rates beside their bars."""
    rows = []
    for run in report["runs"]:
        bar, share = BARS.get(run["what"]), run.get("playing_share")
        aim = f"{bar:,} ({'reached' if run['per_s'] >= bar else 'not reached'})" if bar else "-"
        playing = "-" if share is None else f"{share:.0%}"
        cells = [str(run["matches"]), run["step"], run.get("matmul", "-"), f"{run['per_s']:,}", aim, playing]
        rows.append([run["what"], *cells])
    head = ["", "matches", "step", "matmul", "steps or frames/s", "bar on an H200 with 16 cores", "collecting"]
    return f"# Training on {report['device']}\n\n{caption(report)}\n\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure training on a device; see the head of this file.")
    parser.add_argument("--device", default="cuda", help="as torch_settings.device")
    parser.add_argument("--only", nargs="+", choices=("ppo", "poca", "doom"), default=("ppo", "poca", "doom"))
    parser.add_argument(
        "--matches",
        nargs="+",
        type=int,
        default=(2048, 4096),
        help="matches side by side; kernel by kernel with the first number",
    )
    parser.add_argument("--layouts", nargs="+", type=layout, metavar="WxG", help="of Doom: workers x games of each")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--output", type=Path, default=machine.RESULTS, help="folder of the result")
    parser.add_argument("--table", type=Path, metavar="JSON", help="only rebuild the table beside this result")
    arguments = parser.parse_args()
    if arguments.table is not None:
        machine.write_tables(arguments.table, markdown)
        return
    try:
        place_of(arguments.device)
    except ConfigError as error:
        parser.error(str(error))
    session, cuda = machine.Session("device", vars(arguments)), arguments.device.startswith("cuda")
    runs = [
        stock(arguments.device, trainer, matches, graph, arguments.seconds)
        for trainer in ("ppo", "poca")
        if trainer in arguments.only
        for matches in arguments.matches
        for graph in ((True, False) if cuda and matches == arguments.matches[0] else (cuda,))
    ]
    if "doom" in arguments.only:
        layouts = arguments.layouts or [(machine.usable_cores() - left, GAMES) for left in (0, 1)]
        runs += [doom(arguments.device, workers, games, arguments.seconds) for workers, games in layouts]
    name = torch.cuda.get_device_name(arguments.device) if cuda else arguments.device
    machine.save(session.report(device=name, runs=runs), arguments.output / "device.json", markdown)


if __name__ == "__main__":
    main()
