"""Frames per second of APPO training, side by side with Sample Factory 2.1.1 on the same machine.

    benchmarks/peer/setup_sample_factory.sh             once
    python benchmarks/doom_throughput.py                both, in turn, three rounds
    python benchmarks/doom_throughput.py --rounds 1 --seconds 60 --output FILE.json       a first look
    python benchmarks/doom_throughput.py --table FILE.json      the table of a stored result again

Cases: Doom's health_gathering_supreme (2 workers x 16 games, convnet_simple, FC 512, GRU 512, minibatches of 1024, one
epoch, rollouts of 32), and a vector game of 256 agents that costs next to nothing (MLP 512 512, minibatches of 8192).
Every run is a process tree of its own: frames come from the lines that it prints, CPU time and memory from /proc.
Writes benchmarks/results/doom-throughput.json and .md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import psutil
import torch

import machine
from machine import Json, caption, table
from palus.hub.training_curve import read_scalars
from palus.nn.int8 import largest_factor
from palus.nn.matmul import choose
from process_tree import Meter

HERE = Path(__file__).parent
PALUS_LINE = re.compile(r"Step: (\d+)\. Time Elapsed")
PEER_LINE = re.compile(r"Total num frames: (\d+)\. Throughput")
DOOM, SYNTHETIC = "health_gathering_supreme", "synthetic vector game"
FRAMESKIP = {DOOM: 4, SYNTHETIC: 1}
PEER = "Sample Factory 2.1.1"
PROFILED_FRAMES = {DOOM: 100_000, SYNTHETIC: 1_000_000}
LAST_WORDS_S = 45.0


@dataclass(frozen=True)
class Case:
    """One configuration of one program. who: as tables call it. cores: that its processes may use."""

    game: str
    who: str
    command: tuple[str, ...]
    cores: int


def cases(peer_python: Path | None) -> list[Case]:
    """Everything that is measured, the rivals of a game next to each other."""
    found = []
    for game in (DOOM, SYNTHETIC):
        for cores in (2, 1):
            for name, words in _palus_variants(game).items():
                found.append(Case(game, f"palus, {name}", _palus_command(game, words), cores))
            if peer_python is not None:
                found.append(Case(game, PEER, _peer_command(peer_python, game), cores))
    return found


def _palus_variants(game: str) -> dict[str, list[str]]:
    """Name -> overrides, of what this CPU has units for. By default rollouts of Doom are played while palus learns, as
    Sample Factory does."""
    fp32, in_turns, taken = ["palus.matmul=highest"], "palus.sampling.asynchronous=false", _taken()
    faster = {} if taken in ("highest", "medium") else {taken: [f"palus.matmul={taken}"]}
    if game != DOOM:
        return {"fp32": fp32} | faster
    acting = ", acting in int8" if largest_factor() else ""
    if taken == "int16":  # in place of fp32 by default
        faster = {f"int16{acting}": faster["int16"]}
    found = {"fp32": [*fp32, "palus.acting=exact"], f"fp32{acting}": fp32}
    for name, words in (faster or {f"fp32{acting}": fp32}).items():
        found |= {name: words, f"{name}, in turns": [*words, in_turns]}
    return found


@cache
def _taken() -> str:
    """The path of products that runs take here."""
    torch.set_num_threads(1)
    return choose("auto")[0].name


def _palus_command(game: str, words: list[str]) -> tuple[str, ...]:
    file = HERE / f"doom_throughput_{'doom' if game == DOOM else 'synthetic'}.yaml"
    return (sys.executable, "-m", "palus", "train", str(file), "--run-id", "run", "--force", *words)


def _peer_command(python: Path, game: str) -> tuple[str, ...]:
    common = ["--device=cpu", "--train_dir=.", "--experiment=run", "--restart_behavior=overwrite"]
    if game == DOOM:
        own = ["--env=doom_health_gathering_supreme", "--num_workers=2", "--num_envs_per_worker=16"]
    else:
        own = ["--env=synthetic", "--use_rnn=False", "--encoder_mlp_layers", "512", "512", "--nonlinearity=relu"]
        own += ["--batched_sampling=True", "--serial_mode=True", "--async_rl=False", "--num_workers=1"]
        own += ["--num_envs_per_worker=1", "--worker_num_splits=1", "--batch_size=8192"]
    return (str(python), str(HERE / "peer" / "sf_run.py"), *own, *common)


def measure(case: Case, seconds: float, warm_up: float) -> Json:
    """One run, ended after warm_up + seconds by Ctrl-C's signal. Exits when it prints too little to be measured."""
    folder = Path(tempfile.mkdtemp(prefix="palus-bench-"))
    before = os.getloadavg()[0]
    allowed = sorted(os.sched_getaffinity(0))[: case.cores]
    child = subprocess.Popen(
        case.command,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    meter = Meter(child.pid)
    meter.start()
    lines, said = _read_lines(child, seconds, warm_up)
    _end(child)
    inference, training = _palus_shares(folder) if case.who != PEER else (None, None)
    shutil.rmtree(folder, ignore_errors=True)
    if len(lines) < 2:
        sys.exit(f"{case.who}, {case.game}: no two lines with frames within {warm_up + seconds:.0f} s:\n{said[-3000:]}")
    (first, frames0), (last, frames1) = lines[0], lines[-1]
    samples = (frames1 - frames0) / FRAMESKIP[case.game]
    cpu = meter.cpu_between(first, last)
    return {
        "game": case.game,
        "who": case.who,
        "cores": case.cores,
        "frames_per_s": round((frames1 - frames0) / (last - first), 1),
        "cpu_us_per_sample": round(1e6 * cpu / samples, 1),
        "cores_used": round(cpu / (last - first), 2),
        "inference_share": inference,
        "training_share": training,
        "memory_mib": round(meter.memory / 2**20),
        "processes": meter.processes,
        "window_s": round(last - first, 1),
        "load": [before, os.getloadavg()[0]],
    }


def _read_lines(child: subprocess.Popen[str], seconds: float, warm_up: float) -> tuple[list[tuple[float, int]], str]:
    """(instant, frames) of every line after the warm-up, which begins with the first line; and all that was said."""
    found: list[tuple[float, int]] = []
    said: list[str] = []
    begun: float | None = None
    assert child.stdout is not None
    for line in child.stdout:
        said.append(line)
        match = PALUS_LINE.search(line) or PEER_LINE.search(line)
        if not match:
            continue
        now = time.monotonic()
        begun = begun if begun is not None or int(match[1]) == 0 else now
        if begun is None or now - begun < warm_up:
            continue
        found.append((now, int(match[1])))
        if now - begun > warm_up + seconds:
            break
    return found, "".join(said)


def _palus_shares(folder: Path) -> tuple[float | None, float | None]:
    """Inference and training as shares of a run's wall time, by its own summaries; None where it wrote none."""
    found: dict[str, float] = {}
    for path in sorted(folder.glob("results/run/*/events.out.tfevents.*")):
        found |= {tag: value for _, tag, value in read_scalars(path.read_bytes())}
    shares = [found.get(f"Performance/{name} Share") for name in ("Deciding", "Learning")]
    inference, training = (None if share is None else round(share, 3) for share in shares)
    return inference, training


def peer_shares(case: Case) -> tuple[float | None, float | None]:
    """The same of the peer, by the seconds that it prints at the end of a run: policy steps; batches and training."""
    words = (*case.command, f"--train_for_env_steps={PROFILED_FRAMES[case.game]}")
    allowed = sorted(os.sched_getaffinity(0))[: case.cores]
    with tempfile.TemporaryDirectory(prefix="palus-bench-") as folder:
        said = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        ).stdout

    def seconds(*names: str) -> float | None:
        found = [re.search(rf"\b{name}: ([0-9.]+)", said) for name in names]
        return sum(float(match[1]) for match in found if match) if all(found) else None

    total, inference, training = seconds("main_loop"), seconds("handle_policy_step"), seconds("prepare_batch", "train")
    if not total or inference is None or training is None:
        return None, None
    return round(inference / total, 3), round(training / total, 3)


def _end(child: subprocess.Popen[str]) -> None:
    """Ask politely, then kill what is left of the tree."""
    tree = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
    child.send_signal(signal.SIGINT)
    drain = threading.Thread(target=lambda: child.stdout and child.stdout.read(), daemon=True)
    drain.start()
    try:
        child.wait(LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        child.kill()
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()


def markdown(report: Json) -> str:
    """The tables of a result."""
    parts = [
        "# Throughput of APPO",
        "Made by `python benchmarks/doom_throughput.py` from the JSON file beside it. Medians over the rounds; the "
        "CPU time per sample is the steadier figure where other work shares the cores. Inference and training: shares "
        "of a run's wall time, its start included, by the programs' own clocks; in Sample Factory, and in palus where "
        "they do not take turns, both go on at once.",
        caption(report),
    ]
    for game in (DOOM, SYNTHETIC):
        runs = [run for run in report["runs"] if run["game"] == game]
        parts += [f"## {game}", _table(runs)] if runs else []
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(runs: list[Json]) -> str:
    header = ["", "cores", "frames/s", "to Sample Factory", "one to two cores", "CPU us/sample", "cores used"]
    header += ["inference", "training", "memory, MiB", "processes", "load average"]
    rows = []
    for who, cores in dict.fromkeys((run["who"], run["cores"]) for run in runs):
        own = _pick(runs, who, cores)
        rate, peer = _rate(own), _rate(_pick(runs, PEER, cores))
        single = _rate(_pick(runs, who, 1))
        loads = [load for run in own for load in run["load"]]
        rows.append(
            [
                who,
                str(cores),
                f"{rate:,.0f}",
                f"{rate / peer:.1f} x" if peer else "",
                f"{rate / single:.2f}" if cores == 2 and single else "",
                f"{median(run['cpu_us_per_sample'] for run in own):,.0f}",
                f"{median(run['cores_used'] for run in own):.2f}",
                _share(own, "inference_share"),
                _share(own, "training_share"),
                f"{max(run['memory_mib'] for run in own):,}",
                str(max(run["processes"] for run in own)),
                f"{min(loads):.1f} to {max(loads):.1f}",
            ]
        )
    return table(header, rows)


def _share(runs: list[Json], name: str) -> str:
    known = [run[name] for run in runs if run[name] is not None]
    return f"{median(known):.0%}" if known else ""


def _pick(runs: list[Json], who: str, cores: int) -> list[Json]:
    return [run for run in runs if run["who"] == who and run["cores"] == cores]


def _rate(runs: list[Json]) -> float:
    return median(run["frames_per_s"] for run in runs) if runs else 0.0


def main() -> None:
    """Measure, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds after a run's first line")
    parser.add_argument("--peer", type=Path, default=HERE / "peer" / "sf" / ".venv", help="its environment")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only", choices=("doom", "synthetic"))
    parser.add_argument("--who", default="", help="only those whose name holds this text")
    parser.add_argument("--cores", type=int, choices=(1, 2))
    parser.add_argument("--output", type=Path, default=machine.RESULTS / "doom-throughput.json")
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table is not None:
        machine.write_tables(arguments.table, markdown)
        return
    python = arguments.peer / "bin" / "python"
    if not arguments.no_peer and not python.exists():
        sys.exit(f"{python} is missing: run benchmarks/peer/setup_sample_factory.sh once, or give --no-peer.")
    session = machine.Session("doom-throughput", vars(arguments))
    wanted = [
        case
        for case in cases(None if arguments.no_peer else python)
        if arguments.cores in (None, case.cores)
        and arguments.who in case.who
        and arguments.only in (None, "doom" if case.game == DOOM else "synthetic")
    ]
    runs = []
    for number in range(arguments.rounds):
        for case in wanted:
            print(f"{number + 1}/{arguments.rounds} {case.game}: {case.who}, {case.cores} cores", file=sys.stderr)
            runs.append({"round": number, **measure(case, arguments.seconds, arguments.warm_up)})
            print(runs[-1], file=sys.stderr)
    for case in (case for case in wanted if case.who == PEER):
        inference, training = peer_shares(case)
        for run in _pick([run for run in runs if run["game"] == case.game], PEER, case.cores):
            run |= {"inference_share": inference, "training_share": training}
    machine.save(session.report(runs=runs), arguments.output, markdown)


if __name__ == "__main__":
    main()
