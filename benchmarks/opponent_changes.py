"""What it costs to exchange opponents in the middle of matches, as ML-Agents does, and not between them.

    python benchmarks/opponent_changes.py       trains three seeds by both rules, writes results/opponent-changes.md

Every run is the preset soccertwos-demo annealed over fewer steps, one thread, exact fp32. By ML-Agents' rule, which is
put into the collector here, every rollout begins with new opponents where those have been met for `swap_steps`; all
else is equal. No setting was chosen by these seeds. The teams of one seed play each other, and both the ball chaser.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import machine
from machine import Json
from palus import envs
from palus.arena.models.players import load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize
from palus.config import load_run
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Collected
from palus.train import train

PRESET, GAME, OPPONENT = "soccertwos-demo", "SoccerTwos", "ball-chaser"
RULES = ("between matches", "in the middle")


@contextmanager
def exchanged_in_the_middle() -> Iterator[None]:
    """Every rollout casts the matches that go on anew; the league keeps opponents that are not due to change."""

    def collect(collector: Any) -> Collected:
        if collector._started:
            collector._cast_anew(np.arange(collector.env.num_matches))
        return plain(collector)

    plain = InProcessCollector.collect
    with mock.patch.object(InProcessCollector, "collect", collect):
        yield


def learn(rule: str, seed: int, steps: int, folder: Path) -> Path:
    """The run folder of one training; a finished one is not trained again."""
    run = folder / f"{rule.replace(' ', '-')}-{seed}"
    card = run / "bundle.json"
    if not card.exists() or json.loads(card.read_text())["steps"] < steps:
        machine.note_origin(run)
        settings = {
            "checkpoint_settings.results_dir": json.dumps(str(folder)),
            "checkpoint_settings.run_id": run.name,
            "checkpoint_settings.force": "true",
            "env_settings.seed": seed,
            "palus.matmul": "highest",
            "palus.threads": 1,
            "palus.baseline_interval": 0,
            f"behaviors.{GAME}.max_steps": steps,
        }
        with nullcontext() if rule == RULES[0] else exchanged_in_the_middle():
            train(load_run(PRESET, [f"{key}={value}" for key, value in settings.items()]))
    return run


def measure(seed: int, steps: int, pairs: int, folder: Path) -> Json:
    """Train by both rules and play: points of the first rule's team, and of both against the ball chaser."""
    spec = envs.make(GAME, 1).spec
    runs = [learn(rule, seed, steps, folder) for rule in RULES]
    first, second = (load_player(str(run), spec) for run in runs)
    chaser = load_player(OPPONENT, spec)

    def found(played: PairingSummary) -> Json:
        return {"score": played.score, "interval": played.interval}

    return {
        "seed": seed,
        "trained": [machine.origin(run) for run in runs],
        "duel": found(summarize(play_pairs(first, second, 2 * pairs, 0))),
        OPPONENT: [found(summarize(play_pairs(player, chaser, pairs, 0))) for player in (first, second)],
    }


def markdown(report: Json) -> str:
    """A row for each seed."""

    def cell(found: Json) -> str:
        low, high = found["interval"]
        return f"{100 * found['score']:.1f} ({100 * low:.1f} to {100 * high:.1f})"

    rows = [[str(r["seed"]), cell(r["duel"]), *map(cell, r[OPPONENT])] for r in report["runs"]]
    head = ["seed", f"{RULES[0]}, against {RULES[1]}", *(f"{rule}, against {OPPONENT}" for rule in RULES)]
    origins = sorted({machine.trained_at(origin) for found in report["runs"] for origin in found["trained"]})
    return "\n\n".join([
        "# Opponents exchanged between matches, and in the middle of them",
        "Made by `python benchmarks/opponent_changes.py` from opponent-changes.json beside it.",
        machine.caption(report),
        f"{report['steps']:,} trained steps each, {'; '.join(origins)}.",
        "Share of points in %, with 95 % intervals over mirrored pairs.",
        machine.table(head, rows),
    ]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--results", type=Path, default=Path("results/opponent-changes"), help="folder of the runs")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    arguments = parser.parse_args()
    session = machine.Session("opponent-changes", vars(arguments))
    runs = [measure(seed, arguments.steps, arguments.pairs, arguments.results) for seed in arguments.seeds]
    machine.save(session.report(runs=runs, steps=arguments.steps), arguments.output / "opponent-changes.json", markdown)


if __name__ == "__main__":
    main()
