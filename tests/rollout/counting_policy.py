"""Policies that count along with `counting_game`, and a collector of both: what does not belong together shows."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from counting_game import CHOICES, DECISION, counting_spec

from palus.config.appo import Sampling
from palus.envs import GameSource
from palus.nn.place import CPU
from palus.rollout.plan import Share
from palus.rollout.rollout import Seat
from palus.rollout.workers import WorkerCollector
from palus.trust import Trust

MODES = [
    pytest.param({"workers": 0}, id="alone"),
    pytest.param({"workers": 2}, id="workers"),
    pytest.param({"workers": 0, "asynchronous": True}, id="alone, beside the learner"),
    pytest.param({"workers": 2, "asynchronous": True}, id="workers, beside the learner"),
]
"""Of `palus.sampling`: who steps the games, and whether while somebody learns."""


class CountingPolicy:
    """Its state counts the decisions of an episode and is the mean of the continuous action; its value is the decision
    that the observation names. It chooses `version` modulo the choices, or evenly when `even`."""

    state_size, squash = 1, False

    def __init__(self, version=0, even=False):
        self.version = version
        self._even = even

    def act(self, observations, states, masks=None):
        obs = observations["obs"]
        parameters = torch.zeros(len(obs), CHOICES + 2)
        if not self._even:
            parameters[:, self.version % CHOICES] = 50.0
        parameters[:, CHOICES] = states[:, 0]
        parameters[:, CHOICES + 1] = -9.0
        return parameters, obs[:, DECISION].clone(), states + 1.0


def counting_collector(
    rows,
    horizon=4,
    policies=None,
    cast=None,
    load=None,
    seed=1,
    sampling=None,
    share=None,
    threads=1,
    place=CPU,
    **options,
):
    """A collector over CountingGames with these options, to be used in a with statement. sampling: keys of
    `palus.sampling`.

    policies: of the learners; all agents learn under policy 0 unless `cast` says otherwise.
    """
    settings = Sampling(**{"workers": 2, "decorrelate": False, "timeout": 30.0, **(sampling or {})})
    agents = options.get("agents", 1)
    collector = WorkerCollector(
        GameSource("counting_game:CountingGame", options, Trust(frozenset({"counting_game"}))).single,
        counting_spec(agents, options.get("bonus", False), options.get("teams", ())),
        settings,
        rows=rows,
        horizon=horizon,
        seed=seed,
        learners={k: ("", policy) for k, policy in (policies or {0: CountingPolicy()}).items()},
        cast=cast or (lambda game: [Seat(0, True)] * agents),
        load=load or missing,
        share=share or Share(),
        threads=threads,
        beside=settings.asynchronous is True,
        place=place,
    )
    return closing(collector)


def played(collector):
    """A rollout, the next one played while somebody might learn from it where the collector does that."""
    found = collector.collect()
    with collector.beside():
        pass
    return found


def missing(policy):
    raise AssertionError(f"policy {policy} was not published")


def own(collected, policy=0):
    """One policy's rollout and its episodes."""
    return collected.rollouts[policy], [e for e in collected.episodes if e.policy == policy and e.learned]


def lost(collector):
    """Workers that crashed, and that hung."""
    performance = collector.performance()
    return performance["Sampling/Crashed"], performance["Sampling/Hung"]
