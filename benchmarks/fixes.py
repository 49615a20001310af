"""What ML-Agents' old behaviour would cost: fixes of palus against it, on games that can tell them apart.

    python benchmarks/fixes.py              trains everything, writes results/fixes.json and .md

The old behaviour is put into palus's learners here, for the time of a run; there is no switch for it. A run is one
thread in fp32; both get the same seeds. What is reported is learning per step, which a busy machine does not change.
Value clipping has a recipe of its own, `value_clipping.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import numpy as np
import torch

import machine
from machine import Json
from palus import envs
from palus.config import load_run
from palus.envs.toy import Toy, View, draw
from palus.learn import sac
from palus.learn.learner import Learner, flat
from palus.learn.poca import POCA, GroupBatch
from palus.learn.returns import td_lambda, usable_decisions
from palus.nn.graph import FORBIDDEN
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Rollout, Seat
from palus.types import F32, ActionSpec, AgentSpec, BehaviorSpec, Continuous, Discrete, GameSpec, ObservationSpec, Step

LEVELS = 21


class AimToy(Toy):
    """A number in [-1, 1] is shown: say its sign and name it. Pays 1 for the sign, less the squared error."""

    def __init__(self, num_matches: int) -> None:
        actions = ActionSpec((Discrete(2), Continuous(1, -1.0, 1.0)))
        behavior = BehaviorSpec("AimToy", (ObservationSpec("obs_0", (1,)),), actions)
        super().__init__(GameSpec("AimToy", (behavior,), (AgentSpec("archer", 0, 0, "AimToy"),)), num_matches)

    def _number(self) -> F32:
        level: F32 = (draw(self._seeds, self._drawn, LEVELS) / (LEVELS // 2) - 1).astype(np.float32)
        return level

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        sign, named = actions[0][:, 0, 0], actions[0][:, 0, 1]
        step.reward[:, 0] = (sign == (self._number() > 0)) - (named - self._number()) ** 2

    def _view(self, behavior: str, played: Any) -> View:
        return {"obs_0": self._number()[:, None, None]}


@contextmanager
def added_entropy() -> Iterator[None]:
    """With choices beside numbers, the numbers' log probability is added to the value's target."""

    def soft_values(acts: sac.Acts, q1: torch.Tensor, q2: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        found = plain(acts, q1, q2, alpha)
        both = bool(acts.log_p) and acts.numbers is not None
        return found + 2.0 * alpha[-1] * acts.log_density if both else found

    plain = sac.soft_values
    with mock.patch.object(sac, "soft_values", soft_values):
        yield


@contextmanager
def blind_targets() -> Iterator[None]:
    """A branch's entropy target counts the forbidden choices, too."""

    def entropy_slopes(acts: sac.Acts, alpha: torch.Tensor) -> torch.Tensor:
        found = plain(acts, alpha)
        for branch, log_p in enumerate(acts.log_p):
            allowed = (log_p > 0.5 * FORBIDDEN).sum(1).float()
            missing = sac.TARGET_SHARE * (torch.log(torch.tensor(float(log_p.shape[1]))) - allowed.log())
            found[branch] = found[branch] - alpha[branch] * missing / len(acts.log_p)
        return found

    plain = sac.entropy_slopes
    with mock.patch.object(sac, "entropy_slopes", entropy_slopes):
        yield


@contextmanager
def own_returns() -> Iterator[None]:
    """The return of a member that leaves stops there, and is bootstrapped from what its group is worth."""

    def batch(learner: POCA, rollout: Rollout) -> GroupBatch:
        found, (T, B), G = plain(learner, rollout), rollout.active.shape, rollout.group_size
        following, ended = learner._next_values(rollout, found.values.reshape(T, B // G, -1), found.memory)
        rewards = learner.rewards(rollout, usable_decisions(rollout))[..., 0]
        gone = (rollout.terminated | rollout.truncated).reshape(T, B // G, G)
        lambd, gamma = learner.behavior.hyperparameters.lambd, learner.gamma("extrinsic")
        own = [td_lambda(rewards, following[..., 0], ended | gone[..., j], gamma, lambd) for j in range(G)]
        return replace(found, advantages=flat(np.stack(own, -1)) - found.baselines[..., 0])

    plain = POCA.batch
    with mock.patch.object(POCA, "batch", batch):
        yield


@dataclass(frozen=True)
class Fix:
    """what: was changed; old: brings the old behaviour; best: score that a solved game has; behavior: settings."""

    what: str
    old: Callable[[], AbstractContextManager[None]]
    make: Callable[[], Any]
    learner: type[Learner]
    steps: int
    best: float
    behavior: tuple[str, ...]


SAC = (
    "trainer_type=sac", "hyperparameters=null", "hyperparameters.batch_size=128", "hyperparameters.learning_rate=0.003",
    "hyperparameters.steps_per_update=20", "hyperparameters.tau=0.02",
    "network_settings=null", "network_settings.hidden_units=32",
)  # fmt: skip
GROUPS = (
    "trainer_type=poca", "hyperparameters.batch_size=256", "hyperparameters.buffer_size=1024",
    "hyperparameters.learning_rate=0.003", "hyperparameters.beta=0.002",
    "network_settings.hidden_units=16", "network_settings.num_layers=1",
)  # fmt: skip
FIXES = {
    "sac-sign": Fix(
        "SAC, choices and numbers: entropy of the numbers in the value's target", added_entropy, lambda: AimToy(64),
        sac.SAC, 8_000, 1.0, SAC,
    ),
    "sac-masks": Fix(
        "SAC, forbidden choices: entropy target of what is allowed", blind_targets,
        lambda: envs.make("MenuToy", 64), sac.SAC, 8_000, 11 / 12, (*SAC, "hyperparameters.init_entcoef=0.1"),
    ),
    "poca-return": Fix(
        "MA-POCA: the return runs on after a member has left", own_returns, lambda: envs.make("RescueToy", 64), POCA,
        20_000, 1.0, GROUPS,
    ),
}  # fmt: skip
RULES = ("palus", "ML-Agents")


def train(name: str, rule: str, seed: int, share: float) -> Json:
    """One run: the mean pay of a decision (of an episode, in groups) over each tenth of it."""
    fix = FIXES[name]
    env, steps = fix.make(), int(fix.steps * share)
    overrides = [f"behaviors.SoccerTwos.{s}" for s in (*fix.behavior, f"max_steps={fix.steps}")]
    behavior, spec = load_run("debug", overrides).behaviors["SoccerTwos"], env.spec.behaviors[0]
    learner = fix.learner(behavior, spec, torch.float32, seed)
    seats, rows = [Seat(0, True)] * env.spec.num_agents, env.spec.num_agents
    learners = {0: (spec.name, learner.network)}
    collector = InProcessCollector(
        env, learners, lambda slot: seats, 8, seed, {0: rows}, lambda policy: learner.network
    )
    curve, latest, step = list[float](), list[float](), 0
    with fix.old() if rule == "ML-Agents" else nullcontext():
        while step < steps:
            collected = collector.collect()
            learner.update(collected.rollouts[0], step)
            step += collected.rollouts[0].agent_steps
            for episode in collected.episodes:
                if not episode.left_early:
                    length = 1 if learner.splits_rewards else episode.length
                    latest.append((episode.reward + episode.group_reward) / length)
            if step >= steps * (len(curve) + 1) / 10:
                curve.append(mean(latest))
                latest = []
    return {"fix": name, "rule": rule, "seed": seed, "steps": step, "curve": curve, "end": curve[-1]}


def main() -> None:
    """Train all, store, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixes", nargs="+", choices=FIXES, default=list(FIXES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the steps, for a look")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    arguments = parser.parse_args()
    session = machine.Session("fixes", vars(arguments))
    torch.set_num_threads(1)
    runs = []
    for name, seed, rule in product(arguments.fixes, range(arguments.seeds), RULES):
        runs.append(train(name, rule, seed, arguments.share))
        print(name, rule, seed, [round(score, 3) for score in runs[-1]["curve"]], flush=True)
    machine.save(session.report(runs=runs), arguments.output / "fixes.json", markdown)


def markdown(report: Json) -> str:
    """The table of a result."""

    def cell(name: str, rule: str) -> str:
        own = [run for run in report["runs"] if (run["fix"], run["rule"]) == (name, rule)]
        whole, ends = mean(mean(run["curve"]) for run in own), [run["end"] for run in own]
        return f"{whole:.2f}; {mean(ends):.2f} ({', '.join(f'{end:.2f}' for end in ends)})"

    names = [name for name in FIXES if any(run["fix"] == name for run in report["runs"])]
    lines = [[FIXES[name].what, f"{FIXES[name].best:.2f}", *(cell(name, rule) for rule in RULES)] for name in names]
    return "\n".join([
        "# Fixes against the old behaviour", "",
        "Made by `python benchmarks/fixes.py` from fixes.json beside it.", "",
        machine.caption(report), "",
        "Pay over the whole run; at its end, mean over seeds and (each seed).", "",
        machine.table(["fix", "at best", *RULES], lines), "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
