"""A game that counts, policies that count along, and a sampler of both: what does not belong together shows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch

from palus.config.appo import Sampling
from palus.envs.game import GameStep
from palus.rollout.messages import GameMaker
from palus.rollout.sampler import Sampler
from palus.spaces import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

CHOICES = 8
SEED, EPISODE, DECISION, AGENT = range(4)


class CountingGame:
    """Episodes of `length` decisions. Observation: parts of its seed, episode, decision, agent. Reward: the choice.

    leaves: agent -> decision after which it is out. alone: agents end one by one and go on by themselves.
    true_objective is the largest |continuous action| that arrived. log: a file that grows by one byte per decision.
    trap: a file; the game that finds it takes it away and hangs. slow: seconds of a decision. poison: the decision that
    brings NaN. fault: what making the game raises.
    """

    def __init__(
        self,
        agents=1,
        length=5,
        truncate=False,
        leaves=None,
        alone=False,
        log=None,
        trap=None,
        slow=0.0,
        poison=-1,
        fault="",
    ):
        if fault:
            raise RuntimeError(fault)
        self.spec = counting_spec(agents)
        self.active = np.ones(agents, np.bool_)
        self._length, self._truncate, self._leaves, self._alone = length, truncate, leaves or {}, alone
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if log else None
        self._trap, self._slow, self._poison = trap and Path(trap), slow, poison
        self._episode, self._closed = 0, False

    def reset(self, seed):
        self._seed, self._episode = seed % 65536, self._episode + 1
        self._decisions = np.zeros(len(self.active))
        self._largest = 0.0
        self.active[:] = True

    def observe(self, out):
        self._write(out["obs"], self.active)
        out["picture"][:] = np.uint8(self._seed % 256)

    def observe_final(self, out):
        self._write(out["obs"], np.ones_like(self.active))

    def _write(self, obs, rows):
        obs[rows, SEED], obs[rows, EPISODE] = self._seed, self._episode
        obs[rows, DECISION], obs[rows, AGENT] = self._decisions[rows], np.flatnonzero(rows)

    def step(self, actions):
        self._hesitate()
        self._decisions += self.active
        self._largest = max(self._largest, float(np.abs(actions[:, 1:]).max()))
        out = [int(a) for a, last in self._leaves.items() if self._decisions[int(a)] == last and self.active[int(a)]]
        reward = np.where(self.active, actions[:, 0], 0.0).astype(np.float32)
        if self._poison == self._decisions.max():
            reward[0] = np.nan
        ended = np.zeros_like(self.active)
        ended[out] = True
        over = bool((self._decisions[self.active] >= self._length).all()) and not self._alone
        timed_out = self.active & (self._decisions >= self._length)
        stats = {int(a): {"true_objective": self._largest} for a in np.flatnonzero(ended | timed_out)}
        step = GameStep(
            reward,
            ended if self._truncate else ended | timed_out,
            timed_out & self._truncate,
            over,
            stats,
        )
        self.active &= ~ended
        if self._alone:
            self._decisions[timed_out] = 0
        return step

    def _hesitate(self):
        if self._slow:
            time.sleep(self._slow)
        if self._log is not None:
            os.write(self._log, b".")
        if self._trap and self._trap.exists():
            self._trap.unlink(missing_ok=True)
            time.sleep(3600)

    def close(self):
        if self._log is not None and not self._closed:
            os.close(self._log)
        self._closed = True


def counting_spec(agents: int) -> GameSpec:
    return GameSpec(
        "sampled_games:CountingGame",
        (ObservationSpec("obs", (4,)), ObservationSpec("picture", (1, 2, 2), "uint8")),
        ActionSpec((Discrete(CHOICES), Continuous(1, -1.0, 1.0))),
        num_agents=agents,
        frameskip=4,
    )


class CountingPolicy:
    """Its state counts the decisions of an episode and is the mean of the continuous action; its value is the decision
    that the observation names. It chooses `version` modulo the choices, or evenly when `even`."""

    state_size = 1

    def __init__(self, version=0, even=False):
        self.version = version
        self._even = even

    def act(self, observations, states):
        obs = observations["obs"]
        parameters = torch.zeros(len(obs), CHOICES + 2)
        if not self._even:
            parameters[:, self.version % CHOICES] = 50.0
        parameters[:, CHOICES] = states[:, 0]
        parameters[:, CHOICES + 1] = -9.0
        return parameters, obs[:, DECISION].clone(), states + 1.0


def counting_sampler(rows, horizon=4, policies=None, assign=None, reward_scale=1.0, seed=1, sampling=None, **options):
    """A sampler of CountingGames with these options; sampling: keys of `palus.sampling`."""
    settings = Sampling(**{"workers": 2, "decorrelate": False, "timeout": 30.0, **(sampling or {})})
    agents = options.get("agents", 1)
    return Sampler(
        GameMaker("sampled_games:CountingGame", options),
        counting_spec(agents),
        settings,
        rows=rows,
        horizon=horizon,
        seed=seed,
        policies=policies or {0: CountingPolicy()},
        assign=assign or (lambda game: [0] * agents),
        reward_scale=reward_scale,
    )


def eventually(condition, timeout_s=30.0):
    """Wait until a condition holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {timeout_s} s"
        time.sleep(0.01)
    return found
