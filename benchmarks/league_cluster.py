"""What a league on a cluster costs: steps per CPU second of four runs on two nodes of Ray, beside four plain runs.

    python benchmarks/league_cluster.py                3 times 3 minutes of each, in turn; takes palus[cluster]

Both nodes are this machine, on loopback. Measured is what comes after the start: CPU time of the processes that train
and of the actors that keep them, and the steps of their progress files. What Ray's own processes take stands beside it.
Writes benchmarks/results/league-cluster.json, and league-cluster.md made from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

import machine
from machine import Json
from palus.cluster.plan import LeaguePlan, make_plan
from palus.launch.apart import training
from palus.league.records import LeagueRecord
from palus.progress import PROGRESS, ProgressReader
from palus.store.depot import Depot
from palus.trust import NOBODY

RUNS = 4
START_S = 300.0
"""So long all runs may take until they train."""
OPTIONS = ["palus.threads=1", "palus.baseline_interval=0", "env_settings.seed=1", "behaviors.SoccerTwos.max_steps=1e8",
           "behaviors.SoccerTwos.summary_freq=4000"]  # fmt: skip


def plan_in(folder: Path, preset: str) -> LeaguePlan:
    """The league; its runs are the plain ones, too."""
    where = [f"checkpoint_settings.results_dir={json.dumps(str(folder))}", "checkpoint_settings.run_id=cup"]
    options = [*where, *OPTIONS]
    storage = str(folder / "storage")
    return make_plan(preset, options, number=RUNS, storage=storage, only=(), cores=RUNS, trust=NOBODY)


def steps_in(folder: Path) -> int:
    """Of the last summary in a run's folder."""
    _, lines = ProgressReader(folder / PROGRESS).news()
    return max((int(line["step"]) for line in lines if line["kind"] == "summary"), default=0)


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return float(sum(own.user + own.system for own in times))


def rate(folders: list[Path], pids: list[int], seconds: float) -> float:
    """Steps per CPU second of all runs together, once each has told twice. Exits where that takes too long."""
    until = time.monotonic() + START_S
    while min(map(steps_in, folders)) < 8000:
        if time.monotonic() > until:
            sys.exit(f"{', '.join(map(str, folders))}: not all train after {START_S:.0f} s")
        time.sleep(1)
    steps, cpu = sum(map(steps_in, folders)), cpu_s(pids)
    time.sleep(seconds)
    return (sum(map(steps_in, folders)) - steps) / (cpu_s(pids) - cpu)


def plain(folder: Path, preset: str, seconds: float) -> float:
    """Four runs that know nothing of each other, each in a folder of its own: `training` keeps others out of one."""
    plan = plan_in(folder, preset)
    with ExitStack() as beside:
        runs, folders = [], []
        for name, run in plan.runs.items():
            results = plan.folder(name)
            results.mkdir(parents=True)
            run = run.changed(checkpoint_settings={"results_dir": str(results)})
            runs.append(beside.enter_context(training(run, plan.log(name), resume=False, trust=NOBODY)))
            folders.append(results / run.checkpoint_settings.run_id)
        return rate(folders, [run.pid for run in runs], seconds)


def on_cluster(folder: Path, preset: str, seconds: float, address: str) -> tuple[float, float]:
    """The same as a league on Ray; also the CPU time of Ray's own processes meanwhile, over that of the runs."""
    plan = plan_in(folder, preset)
    command = [sys.executable, "-m", "palus", "league", preset, *OPTIONS, "--runs", str(RUNS), "--name", "cup",
               "--results-dir", str(folder), "--storage", plan.storage, "--cluster", address]  # fmt: skip
    with (folder / "out").open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as driver:
        try:
            while len(pids := [run.seen.pid for run in LeagueRecord(Depot(plan.storage)).read().runs.values()
                               if run.seen]) < RUNS:  # fmt: skip
                time.sleep(1)
            names = {p.pid: " ".join(p.cmdline()) for p in psutil.process_iter() if p.pid not in pids}
            actors = [pid for pid, name in names.items() if "RunActor" in name]
            own = [pid for pid, name in names.items() if "/ray/" in name and pid not in actors]
            before = cpu_s(own), cpu_s(pids + actors)
            found = rate([plan.folder(name) for name in plan.runs], pids + actors, seconds)
            return found, (cpu_s(own) - before[0]) / (cpu_s(pids + actors) - before[1])
        finally:
            driver.terminate()


def measure(preset: str, seconds: float, times: int) -> list[Json]:
    """Both in turn."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": RUNS // 2})
    cluster.add_node(num_cpus=RUNS // 2)
    measured = []
    try:
        for _ in range(times):
            with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as together:
                one = plain(Path(alone), preset, seconds)
                league, ray_share = on_cluster(Path(together), preset, seconds, cluster.address)
            measured.append({"plain": one, "league": league, "ray_share": ray_share})
            print(json.dumps(measured[-1]), file=sys.stderr)
    finally:
        cluster.shutdown()
    return measured


def markdown(report: Json) -> str:
    """The table of a stored result."""
    rows = [[f"{m['plain']:,.0f}", f"{m['league']:,.0f}", f"{m['league'] / m['plain']:.1%}", f"{m['ray_share']:.1%}"]
            for m in report["measured"]]  # fmt: skip
    kept = statistics.median(m["league"] / m["plain"] for m in report["measured"])
    head = ["plain, steps per CPU s", "league on Ray", "kept", "Ray's own processes, of the runs' CPU time"]
    return f"{machine.caption(report)}\n\nThe median keeps {kept:.1%}.\n\n{machine.table(head, rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="soccertwos-ppo")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--output", type=Path, default=machine.RESULTS / "league-cluster.json")
    arguments = parser.parse_args()
    session = machine.Session("league-cluster", vars(arguments))
    measured = measure(arguments.preset, arguments.seconds, arguments.times)
    machine.save(session.report(measured=measured), arguments.output, markdown)


if __name__ == "__main__":
    main()
