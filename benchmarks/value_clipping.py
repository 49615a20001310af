"""Should the value loss be clipped, and in which units? Four rules in games of small and large returns.

    python benchmarks/value_clipping.py              trains everything, writes results/value-clipping.json and .md

A run is one thread in fp32, two run side by side; all rules get the same seeds. What is
reported is learning per step, which a busy machine does not change. The rules that palus does not have are put into its
learners here, for the time of a run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numba import njit

import machine
from cart_pole import CartPole
from machine import Json
from palus import envs
from palus.arena.models.players import load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize
from palus.config import load_run
from palus.envs.protocol import MultiAgentEnv
from palus.learn import poca, ppo
from palus.learn.losses import value_loss
from palus.learn.on_policy import OnPolicy
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Episode, Rollout, Seat
from palus.run.baselines import ActingPolicy
from palus.types import F32, I64

RULES = {
    "absolute": "clipped within epsilon of the old value",
    "deviation": "clipped within epsilon deviations of the value targets",
    "none": "not clipped",
    "reference": "ML-Agents 1.1.0: the value not clipped, MA-POCA's baseline within epsilon",
}
TRAINERS = {"ppo": ppo.PPO, "poca": poca.POCA}
OPPONENTS = ("random", "ball-chaser")


@dataclass(frozen=True)
class Game:
    """A game, how long to train in it and how to judge. score: name and best value; settings: of the behavior."""

    make: Callable[[], MultiAgentEnv]
    steps: int
    score: str
    settings: tuple[str, ...]
    self_play: bool = False


SMALL = (
    "hyperparameters.batch_size=256", "hyperparameters.buffer_size=2048", "hyperparameters.learning_rate=0.001",
    "hyperparameters.beta=0.002", "hyperparameters.epsilon=0.2", "network_settings.hidden_units=64",
    "network_settings.num_layers=2",
)  # fmt: skip
LARGE = (
    "hyperparameters.batch_size=1024", "hyperparameters.buffer_size=8192", "hyperparameters.learning_rate=0.001",
    "hyperparameters.beta=0.01", "hyperparameters.epsilon=0.2", "network_settings.hidden_units=128",
    "network_settings.num_layers=2",
)  # fmt: skip
GAMES = {
    "cart-pole": Game(
        lambda: CartPole(16), 120_000, "decisions of 500", (*SMALL, "hyperparameters.buffer_size=8192")
    ),
    "cues for 100": Game(
        lambda: envs.make("DuelToy", 64, cooperative=True), 40_000, "share of cues",
        (*SMALL, "reward_signals.extrinsic.strength=100"),
    ),
    "rescue for 100": Game(
        lambda: envs.make("RescueToy", 64), 40_000, "share rescued",
        (*SMALL, "reward_signals.extrinsic.strength=100"),
    ),
    "SoccerTwos": Game(
        lambda: envs.make("SoccerTwos", 128, ball_touch=0.5), 600_000, "share of points", LARGE, True
    ),
}  # fmt: skip


@njit(cache=True)
def clipped(values: F32, old: F32, targets: F32, limit: float, scale: float, gradient: F32) -> float:
    """Mean of max((R - V)^2, (R - V_clip)^2), V_clip within `limit` of the old value; writes `scale` x its gradient."""
    R = len(values)
    loss = 0.0
    for r in range(R):
        error, moved = values[r] - targets[r], values[r] - old[r]
        near = old[r] + min(max(moved, -limit), limit) - targets[r]
        free = abs(moved) <= limit or error * error >= near * near
        loss += error * error if free else near * near
        gradient[r] = scale * 2.0 * error / R if free else 0.0
    return loss / R


@contextmanager
def value_rule(learner: OnPolicy, rule: str) -> Iterator[None]:
    """Let a learner, on one thread, use another value loss. Old values are those that its update starts from."""
    module: Any = poca if isinstance(learner, poca.POCA) else ppo
    epsilon = learner.behavior.hyperparameters.epsilon
    name = "batch" if isinstance(learner, poca.POCA) else "advantages"
    estimate, split = getattr(learner, name), learner.parallel.split
    old: dict[float, F32] = {}  # by the loss' weight, which tells value from baseline: [rows] or [rows, G]
    now: dict[str, np.ndarray] = {}

    def estimated(rollout: Rollout, *values: F32) -> object:
        found = estimate(rollout, *values)
        if isinstance(found, poca.GroupBatch):
            there = found.present.any(1)
            old.update({0.5: found.values[:, 0], 0.25: found.baselines[..., 0]})
            now.update(present=found.present, deviation=found.returns[there].std())
        else:
            old[0.5] = values[-1].ravel()
            now["deviation"] = found[1][rollout.active].std()
        return found

    def noted(minibatch: I64) -> list[I64]:
        now["index"] = minibatch
        return split(minibatch)

    def loss(values: torch.Tensor, targets: F32, scale: float) -> tuple[float, torch.Tensor]:
        if rule == "none" or (rule == "reference" and scale == 0.5):
            return value_loss(values, targets, scale)
        before = old[scale][now["index"]]
        if before.ndim == 2:
            before = before[now["present"][now["index"]]]
        gradient = np.empty_like(targets)
        limit = epsilon * float(now["deviation"]) if rule == "deviation" else epsilon
        found = clipped(values.detach().numpy()[:, 0], before, targets[:, 0], limit, scale, gradient[:, 0])
        return found, torch.from_numpy(gradient)

    setattr(learner, name, estimated)
    learner.parallel.split = noted  # type: ignore[method-assign, assignment]
    module.value_loss = loss
    try:
        yield
    finally:
        module.value_loss = value_loss


def train(name: str, trainer: str, rule: str, seed: int, share: float) -> Json:
    """One run: its score at the end and along the way."""
    game, began = GAMES[name], time.process_time()
    env = game.make()
    settings = (f"trainer_type={trainer}", f"max_steps={game.steps}", *game.settings)
    overrides = [f"behaviors.SoccerTwos.{s}" for s in settings]
    behavior = load_run("debug", overrides).behaviors["SoccerTwos"]
    spec = env.spec.behaviors[0]
    learner = TRAINERS[trainer](behavior, spec, torch.float32, seed)

    def cast(slot: int) -> list[Seat]:
        """Team `slot` modulo the teams learns from the latest policy, or all agents learn."""
        side = env.spec.sides[slot % len(env.spec.sides)]
        return [Seat(0, not game.self_play or agent.team == side) for agent in env.spec.agents]

    rows = sum(seat.learns for seat in cast(0))
    steps = -(-behavior.hyperparameters.buffer_size // (env.num_matches * rows))
    learners = {0: (spec.name, learner.network)}
    collector = InProcessCollector(env, learners, cast, steps, seed, {0: rows}, lambda policy: learner.network)
    target, step, latest = game.steps * share, 0, list[Episode]()
    curve: list[float] = []
    with value_rule(learner, rule):
        while step < target:
            collected = collector.collect()
            learner.update(collected.rollouts[0], step)
            step += collected.rollouts[0].agent_steps
            latest += [episode for episode in collected.episodes if episode.learned]
            if step >= target * (len(curve) + 1) / 10:
                curve.append(_score(name, latest))
                latest = []
    found = {"game": name, "trainer": trainer, "rule": rule, "seed": seed, "steps": step, "curve": curve}
    if name == "SoccerTwos":
        player = ActingPolicy(learner.network)
        found["score"] = {
            who: summarize(play_pairs(player, load_player(who, env.spec), 100, seed)).score for who in OPPONENTS
        }
    else:
        found["score"] = {game.score: curve[-1]}
    return found | {"cpu_s": round(time.process_time() - began, 1)}


def _score(name: str, episodes: list[Episode]) -> float:
    """Mean over episodes of what the game is about; NaN without any."""
    if not episodes:
        return math.nan
    if name == "cart-pole":
        return mean(e.length for e in episodes)
    return mean(e.reward + e.group_reward for e in episodes)


def measure(arguments: argparse.Namespace) -> None:
    """Every game, trainer, rule and seed."""
    session = machine.Session("value-clipping", vars(arguments))
    wanted = [
        (name, trainer, rule, seed, arguments.share)
        for name, trainer, rule, seed in product(arguments.games, TRAINERS, RULES, arguments.seeds)
        if not (rule == "reference" and (trainer == "ppo" or name == "SoccerTwos"))  # PPO's is "none"
        and not (trainer == "ppo" and name == "rescue for 100")  # it asks for credit after leaving, which PPO lacks
    ]
    runs = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for run in pool.map(train, *zip(*wanted, strict=True)):
            runs.append(run)
            print({key: run[key] for key in ("game", "trainer", "rule", "seed", "score", "cpu_s")}, flush=True)
    machine.save(session.report(runs=runs), arguments.output / "value-clipping.json", markdown)


def markdown(report: Json) -> str:
    """A row per game and trainer, a column per rule."""
    lines = []
    runs = report["runs"]
    for game, trainer, score in dict.fromkeys((r["game"], r["trainer"], s) for r in runs for s in r["score"]):
        cells = []
        for rule in RULES:
            mine = [r for r in runs if (r["game"], r["trainer"], r["rule"]) == (game, trainer, rule)]
            found = [r["score"][score] for r in mine]
            digits = 0 if max(found, default=0) > 2 else 2
            cells.append(f"{mean(found):.{digits}f} ({', '.join(f'{s:.{digits}f}' for s in found)})" if found else "")
        title = f"against {score}" if score in OPPONENTS else score
        lines.append([f"{game}, {trainer}, {title}", *cells])
    parts = [
        "# Clipping the value loss",
        "Made by `python benchmarks/value_clipping.py` from value-clipping.json beside it.",
        machine.caption(report),
        "Mean over seeds and (each seed) at the end. " + "; ".join(f"`{k}`: {v}" for k, v in RULES.items()) + ".",
        machine.table(["game, trainer, score", *RULES], lines),
    ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--share", type=float, default=1.0, help="of each game's steps, for a look")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
