"""What it costs that the matches of one batch meet different opponents: CPU time beside plain self-play.

    python benchmarks/league_opponents.py            8 opponents, both stock trainers, 10 cycles each in turn

Two runs of the stock configuration take turns, cycle by cycle, on one thread. In one every match is played against the
policy in training; in the other the matches are dealt out evenly among as many distinct snapshots. All else is equal:
matches, rows, network, game. Writes benchmarks/results/league-opponents.json, and league-opponents.md made from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
from machine import Json
from palus.config import load_run
from palus.nn.network import Network
from palus.rollout.rollout import FROZEN, Seat
from palus.train import Run

PRESETS = {"ppo": "soccertwos-ppo", "poca": "soccertwos"}


class Cycles:
    """A run that is always in the middle of self-play. opponents: distinct snapshots met, 0 for the policy itself."""

    def __init__(self, trainer: str, opponents: int, folder: str) -> None:
        fixed = ("palus.threads=1", "env_settings.seed=1", "palus.baseline_interval=0")
        place = f"checkpoint_settings.results_dir={json.dumps(f'{folder}/{opponents}')}"
        self.parts = Run(load_run(PRESETS[trainer], [*fixed, place]))
        network = self.parts.trainees[0].learner.network
        for k in range(opponents):
            arrays = {name: array * (1 + 0.01 * k) for name, array in network.acting_arrays().items()}
            own = Network.acting(network.spec, network.settings, arrays, network.weights.work.dtype)
            self.parts.collector.policies.publish(FROZEN + k, own)

        def cast(slot: int) -> list[Seat]:
            other = Seat(FROZEN + slot % opponents if opponents else 0, False)
            return [Seat(0, True) if agent.team == 0 else other for agent in self.parts.spec.agents]

        collector: Any = self.parts.collector
        collector.cast = cast

    def measure(self) -> tuple[float, float]:
        """CPU seconds of a rollout, and of the update that follows."""
        started = time.process_time()
        rollout = self.parts.collector.collect().rollouts[0]
        collected = time.process_time()
        self.parts.trainees[0].learner.update(rollout, 0)
        self.parts.collector.release()
        return collected - started, time.process_time() - collected


def measure(trainer: str, opponents: int, cycles: int) -> Json:
    """Both runs in turn, after a cycle of each that compiles and allocates."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Cycles(trainer, 0, folder), Cycles(trainer, opponents, folder)]
        try:
            found = [[run.measure() for run in runs] for _ in range(cycles + 1)][1:]
            path = runs[0].parts.computing.matmul.name
        finally:
            for run in runs:
                run.parts.close()
    return {"trainer": trainer, "opponents": opponents, "path": path, "cycles": found}


def cost(pairs: list[tuple[float, float]]) -> float:
    """Median of the ratios of neighbours, minus one: what else runs on the machine slows both."""
    return statistics.median(many / plain for plain, many in pairs) - 1


def markdown(report: Json) -> str:
    """The table."""
    rows = []
    for found in report["measured"]:
        cycles = found["cycles"]
        collect = [(plain[0], many[0]) for plain, many in cycles]
        whole = [(sum(plain), sum(many)) for plain, many in cycles]
        plain_s = statistics.median(plain for plain, _ in whole)
        rows.append([found["trainer"], found["path"], str(found["opponents"]), f"{plain_s:.2f} s",
                     f"{100 * cost(collect):+.0f} %", f"{100 * cost(whole):+.0f} %"])  # fmt: skip
    head = ["trainer", "products", "opponents", "plain cycle", "rollout", "whole cycle"]
    return (
        "# What distinct opponents cost\n\nCPU time beside self-play against the policy in training, stock "
        "configuration of SoccerTwos, one thread, cycles in turn (`benchmarks/league_opponents.py`).\n\n"
        f"{machine.table(head, rows)}\n{machine.caption(report)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--opponents", nargs="+", type=int, default=[8])
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--output", type=Path, default=machine.RESULTS / "league-opponents.json")
    arguments = parser.parse_args()
    session = machine.Session("league-opponents", vars(arguments))
    measured = [measure(t, n, arguments.cycles) for t in arguments.trainers for n in arguments.opponents]
    machine.save(session.report(measured=measured), arguments.output, markdown)


if __name__ == "__main__":
    main()
