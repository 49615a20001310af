"""ML-Agents' own trainer and palus's, in turn on one served game: what they write, and how fast each trains.

    benchmarks/peer/setup.sh                             once: ML-Agents 1.1.0 in an environment of its own
    python benchmarks/wire.py                            PPO and SAC, three rounds
    python benchmarks/wire.py --trainers ppo --rounds 1 --output first.json

Both `mlagents-learn` commands get the same run file and the same `palus unity-serve SoccerTwos` with eight fields, and
play until the same step. Counted is the CPU time of a trainer's processes on one thread, without the game's, between
two summaries that are whole updates apart. Then their folders are compared: tags, steps of summaries, files. ML-Agents'
main process polls in a busy loop, so on a busy machine its waiting counts as work: measure on an idle one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml
from tensorboardX.proto.event_pb2 import Event

import machine
from machine import Json

HERE = Path(__file__).parent
RESULT = machine.RESULTS / "wire.json"
NAME, FIELDS = "SoccerTwos", 8
WINDOWS = {"ppo": (20_000, 40_000), "poca": (20_000, 40_000), "sac": (1_000, 3_000)}
"""Summaries between which CPU time is taken: an update of PPO or MA-POCA, 200 gradient steps of SAC."""
STEP = re.compile(r"Step: (\d+)\.")


def run_file(trainer: str, folder: Path, **palus: object) -> Path:
    """The stock file, ending at the second summary of the window. palus: its section, which ML-Agents does not have."""
    tree = yaml.safe_load((HERE / "peer" / ("sac.yaml" if trainer == "sac" else "stock.yaml")).read_text())
    tree["behaviors"][NAME] |= {"trainer_type": trainer, "max_steps": WINDOWS[trainer][1]}
    path = folder / f"{trainer}{'-palus' if palus else ''}.yaml"
    path.write_text(yaml.safe_dump(tree | ({"palus": palus} if palus else {}), sort_keys=False))
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(root: psutil.Process) -> float:
    """CPU seconds of a trainer's processes by now; the game is known by its command line."""
    found = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            if "unity-serve" not in process.cmdline():
                times = process.cpu_times()
                found += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def train(command: list[str], folder: Path, window: tuple[int, int]) -> Json:
    """One run to its end; its rates between the summaries of the window, and what is in its folder. Exits when it
    fails."""
    words = [
        *command,
        f"--env={folder / NAME}",
        "--run-id=run",
        f"--results-dir={folder}",
        f"--base-port={free_port()}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = psutil.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    marks: dict[int, tuple[float, float]] = {}
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        found = STEP.search(line)
        if found and int(found[1]) in window:
            marks[int(found[1])] = (cpu_s(process), time.perf_counter())
    if process.wait() or len(marks) < len(window):
        sys.exit("\n".join([" ".join(words), *lines[-20:]]))
    (cpu, wall), (cpu_end, wall_end) = (marks[step] for step in window)
    steps = window[1] - window[0]
    rates = {"steps_per_cpu_s": steps / (cpu_end - cpu), "steps_per_s": steps / (wall_end - wall)}
    return rates | {"cpu_s_in_all": cpu_end, **written(folder / "run")}


def written(run: Path) -> Json:
    """Tags and steps of a run's event files; its files, with * for what differs between any two runs."""
    steps: dict[str, list[int]] = {}
    for path in (run / NAME).glob("events.out.tfevents.*"):
        for event in events(path.read_bytes()):
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    files = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
    names = {re.sub(r"tfevents\..*", "tfevents.*", re.sub(r"-\d+\.", "-*.", name)) for name in files}
    status = json.loads((run / "run_logs" / "training_status.json").read_text())[NAME]
    kept = [checkpoint["steps"] for checkpoint in status["checkpoints"]]
    return {"tags": sorted(steps), "summaries": steps["Policy/Entropy"], "checkpoints": kept, "files": sorted(names)}


def events(data: bytes) -> Iterator[Event]:
    """The records of an event file: length, its checksum, an Event, its checksum."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def measure(trainers: list[str], rounds: int, python: Path) -> Json:
    """trainer -> program -> its runs, in turn."""
    bin_ = Path(sys.executable).parent
    theirs, ours = [str(python), "-W", "ignore", str(HERE / "peer" / "learn.py")], [str(bin_ / "mlagents-learn")]
    found: dict[str, dict[str, list[Json]]] = {name: {"ML-Agents 1.1.0": [], "palus": []} for name in trainers}
    for _ in range(rounds):
        for trainer in trainers:
            for program, command, palus in (("ML-Agents 1.1.0", theirs, {}), ("palus", ours, {"matmul": "highest"})):
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    serve = [
                        "unity-serve",
                        NAME,
                        "--num-matches",
                        str(FIELDS),
                        "--write-executable",
                        str(folder / NAME),
                    ]
                    subprocess.run([sys.executable, "-m", "palus", *serve], check=True, capture_output=True)
                    result = train([*command, str(run_file(trainer, folder, **palus))], folder, WINDOWS[trainer])
                found[trainer][program].append(result)
                print(f"{trainer}, {program}: {result['steps_per_cpu_s']:.0f} per CPU second", file=sys.stderr)
    return found


def markdown(report: Json) -> str:
    """The tables."""
    rates, same = [], []
    for trainer, programs in report["runs"].items():
        theirs, ours = programs["ML-Agents 1.1.0"], programs["palus"]
        middle = [statistics.median(run["steps_per_cpu_s"] for run in runs) for runs in (theirs, ours)]
        spread = [
            f"{min(run['steps_per_cpu_s'] for run in runs):.0f} to {max(run['steps_per_cpu_s'] for run in runs):.0f}"
            for runs in (theirs, ours)
        ]
        cells = [f"{rate:.0f} ({text})" for rate, text in zip(middle, spread, strict=True)]
        rates.append([trainer, *cells, f"**{middle[1] / middle[0]:.1f}**"])
        a, b = theirs[0], ours[0]
        same += [
            [
                f"{trainer}: summaries",
                f"{len(a['summaries'])}, to step {a['summaries'][-1]}",
                _equal(a, b, "summaries"),
            ],
            [f"{trainer}: tags", str(len(a["tags"])), _lacking(a["tags"], b["tags"])],
            [f"{trainer}: files", str(len(a["files"])), _lacking(a["files"], b["files"])],
            [f"{trainer}: policies kept, at steps", str(a["checkpoints"]), str(b["checkpoints"])],
        ]
    first = ["trainer", "ML-Agents 1.1.0", "palus", "ratio"]
    return (
        "# The original over the wire\n\n"
        "Made by `python benchmarks/wire.py` from wire.json beside it. Trained agent-steps per CPU second of a "
        "trainer's\nprocesses, median of the rounds (least to most), fp32, one thread, both on `palus unity-serve "
        f"SoccerTwos` with\n{FIELDS} fields: 32 agents, of which half learn.\n\n{machine.caption(report)}\n\n"
        f"{machine.table(first, rates)}\nWhat each run wrote:\n\n"
        f"{machine.table(['what', 'ML-Agents 1.1.0', 'palus'], same)}"
    )


def _equal(a: Json, b: Json, key: str) -> str:
    return "the same" if a[key] == b[key] else f"{len(b[key])}, to step {b[key][-1]}"


def _lacking(theirs: list[str], ours: list[str]) -> str:
    missing = [name for name in theirs if name not in ours]
    return f"all of them, and {len(ours) - len(theirs) + len(missing)} more" + (
        f", but {', '.join(missing)}" if missing else ""
    )


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="+", choices=WINDOWS, default=["ppo", "sac"])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--peer", type=Path, default=HERE / "peer" / ".venv" / "bin" / "python", help="its Python")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--table", action="store_true", help="only make the tables of the stored result")
    arguments = parser.parse_args()
    if arguments.table:
        machine.write_tables(arguments.output, markdown)
        return
    if not arguments.peer.exists():
        sys.exit(f"{arguments.peer} is missing: run benchmarks/peer/setup.sh once, or name it by --peer.")
    session = machine.Session("wire", {"trainers": arguments.trainers, "rounds": arguments.rounds})
    runs = measure(arguments.trainers, arguments.rounds, arguments.peer.absolute())
    machine.save(session.report(runs=runs), arguments.output, markdown)


if __name__ == "__main__":
    main()
