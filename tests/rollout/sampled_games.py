"""Policies that count along with `counting_game`, and a sampler of both: what does not belong together shows."""

from __future__ import annotations

import torch
from counting_game import CHOICES, DECISION, counting_spec

from palus.config.appo import Sampling
from palus.rollout.messages import GameMaker
from palus.rollout.sampler import Sampler
from palus.trust import Trust


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
        GameMaker("counting_game:CountingGame", options, Trust(frozenset({"counting_game"}))),
        counting_spec(agents, options.get("bonus", False)),
        settings,
        rows=rows,
        horizon=horizon,
        seed=seed,
        policies=policies or {0: CountingPolicy()},
        assign=assign or (lambda game: [0] * agents),
        reward_scale=reward_scale,
    )
