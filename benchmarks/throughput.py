"""How fast palus trains on this machine, and how that compares with ML-Agents 1.1.0.

    python benchmarks/throughput.py                      palus alone
    python benchmarks/throughput.py --peer               and ML-Agents in turn with it (benchmarks/peer/setup.sh first)
    python benchmarks/throughput.py --only ppo --quick   a first look; nothing is stored unless --output is given
    python benchmarks/throughput.py --table FILE.json    the table of a stored result again

Measures the stock configuration (presets soccertwos and soccertwos-ppo), game included: whole collect + learn cycles in
CPU time on one thread and in wall time on one and two, the start of a process with warm and with cold caches, and from
these how long a whole run takes. Each measurement is a process of its own (`cycles.py`, `peer/measure.py`).
Writes benchmarks/results/throughput-<date>.json with every cycle, and throughput.md made from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import machine
from machine import Json
from throughput_table import markdown

HERE = Path(__file__).parent
PEER = HERE / "peer"
TRAINERS = ("ppo", "poca")
CYCLES = 2
SLOWEST_PATH = 0.5
"""A path whose products are slower than this, relative to plain fp32, is listed but not run: it would take minutes."""
LIMIT_S = 1800


def call(command: list[str], threads: int, **environment: str) -> Json:
    """Run one measurement; its last line of output, with the load average before and after. Exits when it fails."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), **environment}
    before = os.getloadavg()[0]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    result: Json = json.loads(done.stdout.splitlines()[-1])
    return {**result, "load": [before, os.getloadavg()[0]]}


def palus(what: str, threads: int, **options: object) -> Json:
    """One measurement of palus."""
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return call([sys.executable, str(HERE / "cycles.py"), what, "--threads", str(threads), *flags], threads)


def ml_agents(trainer: str, cycles: int) -> Json:
    """One measurement of the peer, on one thread."""
    python = PEER / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{python} is missing: run benchmarks/peer/setup.sh once, or leave out --peer.")
    command = [str(python), str(PEER / "measure.py"), "--trainer", trainer, "--cycles", str(cycles), "--threads", "1"]
    return call(command, 1)


def one_thread(
    trainers: list[str], paths: list[str], repeats: int, cycles: int, peer: bool
) -> tuple[list[Json], list[Json]]:
    """Every trainer on every path, in turn with the peer, `repeats` times. Returns (palus, peer) measurements."""
    ours, theirs = list[Json](), list[Json]()
    for repeat in range(repeats):
        for trainer in trainers:
            for path in paths:
                say(f"{repeat + 1}/{repeats} {trainer} {path}, one thread")
                ours.append({"repeat": repeat, **palus("cycles", 1, trainer=trainer, path=path, cycles=cycles)})
            if peer:
                say(f"{repeat + 1}/{repeats} {trainer} ML-Agents, one thread")
                theirs.append({"repeat": repeat, **ml_agents(trainer, cycles)})
    return ours, theirs


def two_cores(trainers: list[str], path: str, repeats: int, cycles: int) -> list[Json]:
    """The same cycles on one and on two threads, in turn; their wall time counts."""
    found = []
    for repeat in range(repeats):
        for trainer in trainers:
            for threads in (1, 2):
                say(f"{repeat + 1}/{repeats} {trainer} {path}, {threads} thread(s), wall time")
                found.append({"repeat": repeat, **palus("cycles", threads, trainer=trainer, path=path, cycles=cycles)})
    return found


def start(trainer: str, threads: int, *, cold: bool) -> Json:
    """From the launch of a process to its first training step.

    cold: with a copy of the package that was never run, so that Python and Numba compile all of it. The libraries'
    own caches stay.
    """
    say(f"{trainer}: start with {'cold' if cold else 'warm'} caches")
    command = [sys.executable, str(HERE / "cycles.py"), "start", "--trainer", trainer, "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {}
        if cold:
            copy, unused = Path(folder) / "palus", shutil.ignore_patterns("__pycache__")
            shutil.copytree(machine.ROOT / "src" / "palus", copy, ignore=unused)
            environment = {"PYTHONPATH": folder, "NUMBA_CACHE_DIR": str(Path(folder) / "numba")}
        found = call([*command, "--started", repr(time.time())], threads, **environment)
        package = found.pop("package")
        if cold and not package.startswith(folder):
            sys.exit(f"the cold start ran {package}, not the fresh copy; is PYTHONPATH ignored?")
    return {"caches": "cold" if cold else "warm", **found}


def starts(trainers: list[str], threads: int, repeats: int) -> list[Json]:
    """Warm and cold starts of every trainer. The measurements before have filled the caches that a warm start finds."""
    found = []
    for trainer in trainers:
        for _ in range(repeats):
            found += [start(trainer, threads, cold=False), start(trainer, threads, cold=True)]
    return found


def run(arguments: argparse.Namespace) -> Json:
    """All measurements; the content of the result file."""
    session = machine.Session("throughput", vars(arguments))
    trainers = list(arguments.only)
    repeats, cycles = (1, 1) if arguments.quick else (arguments.repeats, CYCLES)
    cores = machine.usable_cores()
    say("matrix paths")
    rates = palus("paths", 1)
    slowest = SLOWEST_PATH * rates["paths"][0]["gflops"]
    paths = [path["name"] for path in rates["paths"] if path["gflops"] >= slowest]
    ours, theirs = one_thread(trainers, paths, repeats, cycles, arguments.peer)
    wall = two_cores(trainers, rates["auto"], repeats, cycles) if cores > 1 else []
    say("checkpoints and evaluations of a whole run")
    extras = [palus("extras", min(cores, 2), trainer=trainer) for trainer in trainers]
    return session.report(
        paths=rates["paths"],
        auto=rates["auto"],
        one_thread=ours,
        ml_agents=theirs,
        two_cores=wall,
        starts=starts(trainers, min(cores, 2), repeats),
        extras=extras,
    )


def say(text: str) -> None:
    """What is being measured, for whoever waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast palus trains; see the head of this file.")
    parser.add_argument("--peer", action="store_true", help="also ML-Agents 1.1.0, in turn with palus")
    parser.add_argument("--repeats", type=int, default=3, help="processes per measurement (default 3)")
    parser.add_argument("--only", nargs="+", choices=TRAINERS, default=TRAINERS, help="trainers to measure")
    parser.add_argument("--quick", action="store_true", help="one process of one cycle each; stores nothing by itself")
    parser.add_argument("--output", type=Path, help="folder of the result (default benchmarks/results)")
    parser.add_argument("--table", type=Path, metavar="JSON", help="only rebuild throughput.md beside this result")
    arguments = parser.parse_args()
    if arguments.table is not None:
        machine.write_tables(arguments.table, markdown)
        return
    report = run(arguments)
    folder = arguments.output or (None if arguments.quick else machine.RESULTS)
    if folder is None:
        print(markdown(report))
        return
    machine.save(report, folder / f"throughput-{date.today().isoformat()}.json", markdown)


if __name__ == "__main__":
    main()
