"""What ML-Agents' old behaviour would cost: fixes of palus against it, on games that can tell them apart.

    python benchmarks/fixes.py              trains everything, writes results/fixes.json and .md

The old behaviour is put into palus's learners here, for the time of a run; there is no switch for it. A run is one
thread in fp32; both get the same seeds. What is reported is learning per step, which a busy machine does not change.
Value clipping has a recipe of its own, `value_clipping.py`.
"""

from __future__ import annotations

import argparse
import tempfile
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
from palus.learn.on_policy import OnPolicy
from palus.learn.poca import POCA, GroupBatch
from palus.learn.ppo import PPO
from palus.learn.returns import td_lambda, usable_decisions
from palus.learn.signals import gail
from palus.nn.graph import FORBIDDEN
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Rollout, Seat
from palus.types import (
    F32,
    I64,
    ActionSpec,
    AgentSpec,
    BehaviorSpec,
    Continuous,
    Discrete,
    GameSpec,
    ObservationSpec,
    Step,
)
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

LEVELS = 21
NOISE = 8
STAKE = 10.0


class AimToy(Toy):
    """A number in [-1, 1] is shown: say its sign and name it. Pays 1 for the sign, less the squared error."""

    seen: tuple[ObservationSpec, ...] = (ObservationSpec("obs_0", (1,)),)

    def __init__(self, num_matches: int) -> None:
        actions = ActionSpec((Discrete(2), Continuous(1, -1.0, 1.0)))
        behavior = BehaviorSpec("AimToy", self.seen, actions)
        super().__init__(GameSpec("AimToy", (behavior,), (AgentSpec("archer", 0, 0, "AimToy"),)), num_matches)

    def _number(self) -> F32:
        level: F32 = (draw(self._seeds, self._drawn, LEVELS) / (LEVELS // 2) - 1).astype(np.float32)
        return level

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        sign, named = actions[0][:, 0, 0], actions[0][:, 0, 1]
        step.reward[:, 0] = (sign == (self._number() > 0)) - (named - self._number()) ** 2

    def _view(self, behavior: str) -> View:
        return {"obs_0": self._number()[:, None, None]}


class BlurredAimToy(AimToy):
    """The number is the second observation; the first says nothing."""

    seen = (ObservationSpec("obs_0", (NOISE,)), ObservationSpec("obs_1", (1,)))

    def _view(self, behavior: str) -> View:
        counters = NOISE * self._drawn[:, None] + np.arange(NOISE) + 1
        noise = draw(self._seeds[:, None], counters, LEVELS) / (LEVELS // 2) - 1
        return {"obs_0": noise[:, None].astype(np.float32), "obs_1": self._number()[:, None, None]}


class StakeToy(Toy):
    """What the episode pays beside 1 for the last answer, STAKE or as much less, is shown at its first decision alone.

    So only a critic that remembers knows what is to come; the policy need not.
    """

    ROUNDS = 8

    def __init__(self, num_matches: int) -> None:
        behavior = BehaviorSpec("StakeToy", (ObservationSpec("obs_0", (3,)),), ActionSpec((Discrete(2),)))
        super().__init__(GameSpec("StakeToy", (behavior,), (AgentSpec("player", 0, 0, "StakeToy"),)), num_matches)

    def _signs(self) -> tuple[I64, I64]:
        """The stake's, and what is to be answered in the end: [N] each, of -1 and 1."""
        match = self._drawn // self.ROUNDS
        stake, asked = (2 * draw(self._seeds, 2 * match + k, 2) - 1 for k in range(2))
        half = self.num_matches // 2
        stake[half:] = -stake[:half]  # so that they do not blur the score
        return stake, asked

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        stake, asked = self._signs()
        step.reward[:, 0] = (STAKE * stake + ((asked > 0) == actions[0][:, 0, 0])) * step.match_over

    def _view(self, behavior: str) -> View:
        stake, asked = self._signs()
        last = self._round == self.ROUNDS - 1
        return {"obs_0": np.stack([stake * (self._round == 0), asked * last, last], -1)[:, None].astype(np.float32)}


def show(folder: Path) -> Path:
    """What an expert of BlurredAimToy did 256 times."""
    rng, nothing = np.random.default_rng(0), np.zeros(1, np.float32)
    numbers, noise = rng.uniform(-1, 1, (256, 1, 1)), rng.uniform(-1, 1, (256, 1, NOISE))
    episodes = [
        ExpertEpisode(
            {"obs_0": blur.astype(np.float32), "obs_1": number.astype(np.float32)},
            np.concatenate([number > 0, number], 1, dtype=np.float32), None, nothing, nothing, False,
        )
        for number, blur in zip(numbers, noise, strict=True)
    ]  # fmt: skip
    write_demonstrations(folder / "aim.demo", BlurredAimToy(1).spec.behaviors[0], "aim", episodes)
    return folder / "aim.demo"


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

    def entropy_slopes(acts: sac.Acts) -> torch.Tensor:
        found = plain(acts)
        for branch, log_p in enumerate(acts.log_p):
            allowed = (log_p > 0.5 * FORBIDDEN).sum(1).float()
            missing = sac.TARGET_SHARE * (torch.log(torch.tensor(float(log_p.shape[1]))) - allowed.log())
            found[branch] = found[branch] - missing / len(acts.log_p)
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


@contextmanager
def growing_epsilon() -> Iterator[None]:
    """A linear schedule ends at its floor, from wherever it begins."""

    def scheduled(learner: OnPolicy, key: str, step: int, minimum: float = 0.0) -> float:
        done, first = min(step / learner.behavior.max_steps, 1.0), getattr(learner.behavior.hyperparameters, key)
        return float(first + (minimum - first) * done)

    with mock.patch.object(OnPolicy, "scheduled", scheduled):
        yield


@contextmanager
def one_memory() -> Iterator[None]:
    """The critic begins each trajectory with what it remembers of the one before, whoever's that was; it forgets where
    an episode ends. Trajectories are whole columns of a rollout here: none ends before its last step."""

    def replay(learner: Learner, rollout: Rollout, length: int) -> tuple[F32, F32]:
        (T, B), size = rollout.active.shape, learner.network.state_size
        assert length == T and not rollout.terminated[:-1].any()
        values, states = np.zeros((T, B, 1), np.float32), rollout.states.copy()
        for b in range(B):
            states[b, size // 2 :] = left[0]
            with torch.no_grad():
                _, found, state = learner.forward(
                    rollout, np.arange(T)[:, None] * B + b, torch.from_numpy(states[[b]]), np.ones((T, B), np.float32)
                )
            assert found is not None
            values[:, b] = learner.network.denormalize(found).numpy().reshape(T, 1)
            left[0] = 0.0 if rollout.terminated[-1, b] else state[0, size // 2 :].numpy()
        return values, states[None]

    left: list[Any] = [0.0]
    with mock.patch.object(Learner, "replay", replay):
        yield


@contextmanager
def first_slopes() -> Iterator[None]:
    """The discriminator's slope is held to 1 by its first observation alone: by the first columns of its one input."""
    plain = gail.gradient_penalty
    with mock.patch.object(gail, "gradient_penalty", lambda slopes: plain([slopes[0][:, :NOISE]])):
        yield


@dataclass(frozen=True)
class Fix:
    """what: was changed; old: brings the old behaviour; best: score that a solved game has; behavior: settings, in
    which DEMO is the path of what `show` wrote; rollout_steps: decisions of each agent between two updates."""

    what: str
    old: Callable[[], AbstractContextManager[None]]
    make: Callable[[], Any]
    learner: type[Learner]
    steps: int
    best: float
    behavior: tuple[str, ...]
    rollout_steps: int = 8


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
SMALL = (
    "trainer_type=ppo", "hyperparameters.batch_size=256", "hyperparameters.buffer_size=1024",
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
    "epsilon-floor": Fix(
        "PPO: a linear epsilon of 0.05 stays there, and does not grow to 0.1", growing_epsilon,
        lambda: envs.make("MenuToy", 64), PPO, 40_000, 11 / 12, (*SMALL, "hyperparameters.epsilon=0.05"),
    ),
    "critic-memory": Fix(
        "PPO: the critic's memory is each agent's own", one_memory, lambda: StakeToy(256), PPO, 60_000, 1 / 8,
        (*SMALL, "network_settings.memory={memory_size: 16, sequence_length: 4}"), 4,
    ),
    "gail-slopes": Fix(
        "GAIL: the gradient penalty is on all that the discriminator reads", first_slopes, lambda: BlurredAimToy(256),
        PPO, 40_000, 1.0,
        (*SMALL, "reward_signals={gail: {demo_path: DEMO, use_actions: true, learning_rate: 0.003}}"),
    ),
}  # fmt: skip
RULES = ("palus", "ML-Agents")


def train(name: str, rule: str, seed: int, share: float, demo: Path) -> Json:
    """One run: the mean pay of a decision (of an episode, in groups) over each tenth of it."""
    fix = FIXES[name]
    env, steps = fix.make(), int(fix.steps * share)
    settings = (*fix.behavior, f"max_steps={fix.steps}")
    overrides = [f"behaviors.SoccerTwos.{s.replace('DEMO', str(demo))}" for s in settings]
    behavior, spec = load_run("debug", overrides).behaviors["SoccerTwos"], env.spec.behaviors[0]
    learner = fix.learner(behavior, spec, torch.float32, seed)
    seats, rows = [Seat(0, True)] * env.spec.num_agents, env.spec.num_agents
    learners = {0: (spec.name, learner.network)}
    collector = InProcessCollector(
        env, learners, lambda slot: seats, fix.rollout_steps, seed, {0: rows}, lambda policy: learner.network
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
    with tempfile.TemporaryDirectory() as folder:
        demo = show(Path(folder))
        for name, seed, rule in product(arguments.fixes, range(arguments.seeds), RULES):
            runs.append(train(name, rule, seed, arguments.share, demo))
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
