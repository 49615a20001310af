"""One policy on two machines: what `palus train --check` predicts, and what training brings then.

    python benchmarks/two_machines.py                    as root on Linux with two cores

A machine is a core with a network, a name and a hosts file of its own, in the kernel's namespaces. Between the two lies
a wire of so many bits a second (tc's token bucket), which has the rate of an Ethernet, but less than its latency.
`soccertwos-ppo` trains on both under torchrun. One machine is a run of its own on each core at the same time, so that
cores that share their units or memory do so either way. Medians of rounds in which all ways follow each other.
Result: benchmarks/results/two-machines.json and .md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import learning_curves
import machine
from machine import Json

PRESET, BEHAVIOR = "soccertwos-ppo", "SoccerTwos"
NAMES, PORT = ("m1", "m2"), 29400
RATES = ("1gbit", "10gbit")
WAYS = {"as it is": 1, "twice the batch": 2}
"""How many times the preset's batch_size and buffer_size."""
FORETOLD = re.compile(r"2 ranks make ([\d.]+) times .* with this run file, and ([\d.]+) times with 2 times")


@contextmanager
def two_machines(folder: Path, rate: str | None = None) -> Iterator[list[list[str]]]:
    """For each machine the words that put a command there; all paths stay what they are. Takes root.

    As on Debian and Ubuntu a machine's own name leads to 127.0.1.1 there, and to the wire on the other one.
    rate: of the wire, in tc's words; None leaves it as quick as it is. Raises CalledProcessError, OSError.
    """
    with ExitStack() as stack:
        keep = ["unshare", "--net", "--uts", "--mount", "sleep", "infinity"]
        holders = [stack.enter_context(subprocess.Popen(keep)) for _ in NAMES]
        for holder in holders:
            stack.callback(holder.kill)
        there = [["nsenter", "-t", str(holder.pid), "--net", "--uts", "--mount"] for holder in holders]
        own = os.readlink("/proc/self/ns/mnt")
        while any(os.readlink(f"/proc/{holder.pid}/ns/mnt") == own for holder in holders):
            if any(holder.poll() is not None for holder in holders):
                raise OSError("no namespaces of one's own here; this takes root on Linux")
            time.sleep(0.01)
        first, second = (str(holder.pid) for holder in holders)
        ends = ["netns", first, "type", "veth", "peer", "name", "wire", "netns", second]
        _do(["ip", "link", "add", "wire", *ends])
        for number, (enter, name) in enumerate(zip(there, NAMES, strict=True), 1):
            other = 3 - number
            hosts = folder / f"hosts-{name}"
            hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n10.77.0.{other} {NAMES[other - 1]}\n")
            _do([*enter, "hostname", name])
            _do([*enter, "mount", "--bind", str(hosts), "/etc/hosts"])
            _do([*enter, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "wire"])
            for link in ("lo", "wire"):
                _do([*enter, "ip", "link", "set", link, "up"])
            if rate:
                bucket = ["rate", rate, "burst", "128kb", "latency", "50ms"]
                _do([*enter, "tc", "qdisc", "add", "dev", "wire", "root", "tbf", *bucket])
        yield there


def _do(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def torchrun(identity: str) -> list[str]:
    """As docs/machines.md has it."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NAMES[0]}:{PORT}", "--rdzv-id", identity]
    return ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *meeting, "-m", "palus", "train"]


def together(starts: Sequence[Sequence[str]], modules: Sequence[Sequence[str]], log: Path) -> str:
    """Run Python modules on one core each until both end, and what the first one says. Exits when one fails."""
    with ExitStack() as stack:
        running = []
        for core, (start, module) in enumerate(zip(starts, modules, strict=True)):
            told = stack.enter_context(log.with_suffix(f".{core}").open("w"))
            words = [*start, "taskset", "-c", str(core), sys.executable, "-m", *module]
            running.append(subprocess.Popen(words, stdout=told, stderr=told))
        codes = [process.wait() for process in running]
        if any(codes):
            sys.exit(f"a run failed; it said:\n{log.with_suffix('.0').read_text()[-2000:]}")
    return log.with_suffix(".0").read_text()


def speed(run: Path) -> float:
    """Steps a second between a run's first checkpoint and the last one before its end, where it plays baselines."""
    found = [(each.steps, each.wall_s) for each in learning_curves.checkpoints(run, BEHAVIOR)][:-1]
    return (found[-1][0] - found[0][0]) / (found[-1][1] - found[0][1])


def measure(folder: Path, rounds: int, steps: int) -> list[Json]:
    """Every way over every wire. What comes of twice the batch is foretold with the run file as it is."""
    found: list[Json] = []
    place = ["--results-dir", str(folder), "--run-id"]
    for number in range(rounds):
        one, both = {}, {}
        for way, times in WAYS.items():
            options = _options(steps, times)
            names = [f"one-{times}-{number}-{core}" for core in range(2)]
            together([[], []], [["palus", "train", *options, *place, name] for name in names], folder / names[0])
            one[way] = median(speed(folder / name) for name in names)
        for rate in RATES:
            with two_machines(folder, rate) as there:
                start, name = torchrun(f"{rate}-{number}"), f"{rate}-check-{number}"
                told = together(there, [[*start, *_options(steps, 1), "--check"]] * 2, folder / name)
                predicted = dict(zip(WAYS, map(float, FORETOLD.findall(told)[0]), strict=True))
                for way, times in WAYS.items():
                    name = f"{rate}-{times}-{number}"
                    together(there, [[*start, *_options(steps, times), *place, name]] * 2, folder / name)
                    both[way] = speed(folder / name)
            for way in WAYS:
                gain = both[way] / one[way]
                row = {"round": number, "wire": rate, "way": way, "one": one[way], "both": both[way]}
                found.append(row | {"predicted": predicted[way], "measured": gain})
                print(found[-1], file=sys.stderr, flush=True)
    return found


def _options(steps: int, times: int) -> list[str]:
    own = f"behaviors.{BEHAVIOR}."
    return [
        PRESET, "palus.threads=1", "palus.matmul=highest", f"{own}max_steps={steps}",
        f"{own}checkpoint_interval={steps // 4}", f"{own}keep_checkpoints=100",
        f"{own}hyperparameters.batch_size={2048 * times}", f"{own}hyperparameters.buffer_size={20480 * times}",
    ]  # fmt: skip


def markdown(report: Json) -> str:
    """Predicted and measured speed-ups by way and wire."""
    rows = []
    for way in WAYS:
        for rate in RATES:
            own = [row for row in report["rows"] if (row["way"], row["wire"]) == (way, rate)]
            cells = [_spread([row[what] for row in own]) for what in ("predicted", "measured")]
            one = f"{median(row['one'] for row in own):,.0f}"
            rows.append([f"{way}, {rate.replace('gbit', ' Gbit/s')}", one, *cells])
    return (
        "# One policy on two machines\n\n"
        "Made by `python benchmarks/two_machines.py` from the JSON file beside it.\n\n"
        f"{machine.caption(report)}\n\n"
        f"`{PRESET}` in fp32, a core each. Steps per second of two machines over those of one, median of "
        f"{report['arguments']['rounds']} rounds (least to most).\n\n"
        + machine.table(["batch, wire", "steps/s of one", "`--check` predicts", "training brings"], rows)
    )


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=320_000, help="of each run")
    parser.add_argument("--out", type=Path, default=machine.RESULTS / "two-machines.json")
    arguments = parser.parse_args()
    session = machine.Session("two-machines", vars(arguments))
    with tempfile.TemporaryDirectory(prefix="palus-machines-") as folder:
        rows = measure(Path(folder), arguments.rounds, arguments.steps)
    machine.save(session.report(rows=rows), arguments.out, markdown)


if __name__ == "__main__":
    main()
