"""A game that counts; apart from its policies because workers, which import it, have no use for torch."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from palus.envs.game import GameStep
from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

CHOICES = 8
MAX_DECISIONS = 0
"""Of a game, as its specification says: 0, it does not."""
SEED, EPISODE, DECISION, AGENT = range(4)


class CountingGame:
    """Episodes of `length` decisions. Observation: parts of its seed, episode, decision, agent. Reward: the choice.

    leaves: agent -> decision after which it is out. alone: agents end one by one and go on by themselves.
    true_objective is the largest |continuous action| that arrived. log: a file that grows by one byte per decision.
    trap: a file; the game that finds it takes it away and hangs. slow: seconds that a decision takes at most.
    poison: the decision that brings NaN. fault: what making the game raises. bonus: its reward has a tunable summand.
    teams: sides of the agents, whose groups get 1 for every decision; the first side wins.
    side: of its picture, in pixels.
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
        bonus=False,
        teams=(),
        side=2,
    ):
        if fault:
            raise RuntimeError(fault)
        self.spec = counting_spec(agents, bonus, teams, side)
        self.shaping = np.zeros((agents, int(bonus)))
        self.active = np.ones(agents, np.bool_)
        self._length, self._truncate, self._leaves, self._alone = length, truncate, leaves or {}, alone
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if log else None
        self._trap, self._slow, self._poison = trap and Path(trap), slow, poison
        self._episode, self._closed, self._teams = 0, False, teams

    def reset(self, seed):
        self._seed, self._episode = seed % 65536, self._episode + 1
        self._decisions = np.zeros(len(self.active))
        self._largest = 0.0
        self.active[:] = True

    def observe(self, out):
        self._write(out, self.active, self._decisions)

    def observe_final(self, out):
        self._write(out, np.ones_like(self.active), self._last)

    def _write(self, out, rows, decisions):
        obs = out["obs"]
        out["picture"][:] = np.uint8(self._seed % 256)
        obs[rows, SEED], obs[rows, EPISODE] = self._seed, self._episode
        obs[rows, DECISION], obs[rows, AGENT] = decisions[rows], np.flatnonzero(rows)

    def step(self, actions):
        self._hesitate()
        self._decisions += self.active
        self._largest = max(self._largest, float(np.abs(actions[:, 1:]).max()))
        out = [int(a) for a, last in self._leaves.items() if self._decisions[int(a)] == last and self.active[int(a)]]
        reward = np.where(self.active, actions[:, 0] + self.shaping.sum(1), 0.0).astype(np.float32)
        if self._poison == self._decisions.max():
            reward[0] = np.nan
        ended = np.zeros_like(self.active)
        ended[out] = True
        over = bool((self._decisions[self.active] >= self._length).all()) and not self._alone
        timed_out = self.active & (self._decisions >= self._length)
        stats = {int(a): {"true_objective": self._largest} for a in np.flatnonzero(ended | timed_out)}
        points = (1.0, *[0.0] * (len(self.spec.sides) - 1)) if over and self._teams else ()
        step = GameStep(
            reward,
            ended if self._truncate else ended | timed_out,
            timed_out & self._truncate,
            over,
            stats,
            points,
            self.active.astype(np.float32) if self._teams else None,
        )
        self.active &= ~ended
        self._last = self._decisions.copy()
        if self._alone:
            self._decisions[timed_out] = 0
        return step

    def _hesitate(self):
        if self._slow:
            time.sleep(random.random() * self._slow)
        if self._log is not None:
            os.write(self._log, b".")
        if self._trap and self._trap.exists():
            with suppress(FileNotFoundError):  # another one was faster: one hangs, not two
                self._trap.unlink()
                time.sleep(3600)

    def close(self):
        if self._log is not None and not self._closed:
            os.close(self._log)
        self._closed = True


def counting_spec(agents: int, bonus: bool = False, teams: tuple[int, ...] = (), side: int = 2) -> GameSpec:
    return GameSpec.alike(
        "counting_game:CountingGame",
        (ObservationSpec("obs", (4,)), ObservationSpec("picture", (1, side, side), "uint8")),
        ActionSpec((Discrete(CHOICES), Continuous(1, -1.0, 1.0))),
        num_agents=agents,
        teams=tuple(teams),
        max_decisions=MAX_DECISIONS,
        frameskip=4,
        shaping=(("bonus", 0.0),) if bonus else (),
    )


class PayingGame(CountingGame):
    """Every decision is paid by the environment parameter `wage`, whatever it is. What it was when the episode began is
    told as `agreed`."""

    def set_parameters(self, parameters):
        self._wage = parameters["wage"]

    def reset(self, seed):
        super().reset(seed)
        self._agreed = self._wage

    def step(self, actions):
        step = super().step(actions)
        step.reward[:] = self._wage
        return replace(step, stats={agent: {"agreed": self._agreed} for agent in step.stats})
