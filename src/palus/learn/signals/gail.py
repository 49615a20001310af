"""Generative adversarial imitation: pay for looking like the demonstrations.

Source: Ho and Ermon 2016 (arXiv 1606.03476); gradient penalty: Gulrajani et al. 2017 (arXiv 1704.00028); bottleneck
(`use_vail`): Peng et al. 2018 (arXiv 1810.00821); sizes and weights are ML-Agents'. A discriminator D tells experts'
decisions (1) from the policy's (0).

r = -log(1 - (1 - 1e-7) D);   L = -mean log D(expert) - mean log(1 - D(policy)) + 10 mean (|dD/dx| - 1)^2, x
on the lines between pairs of both. With the bottleneck, z = mu + sigma noise lies between encoder and D, and
beta (KL - 0.5) is added, KL = -mean sum (1 + log sigma^2 - 1/2 mu_expert^2 - 1/2 mu_policy^2 - sigma^2); beta, 0 at
first, moves by 0.0005 (KL - 0.5) and is never negative.

Deviations from ML-Agents 1.1.0, with reasons in docs/differences.md: the gradient penalty takes the gradient with
respect to all that D reads, and with `use_actions` D reads the actions that the game was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.config.trainer import Gail as Settings
from palus.learn.signals.signal import Experience, Trained, features, made, network_of, view_of, width_of
from palus.nn.encoders import VECTORS, Joint
from palus.nn.layers import Linear
from palus.nn.parameters import kaiming, xavier_uniform
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, AnyArray, BehaviorSpec, ObservationSpec
from palus.unity.demonstrations import read_demonstrations

CODE = 128
"""Numbers of the bottleneck."""
PENALTY = 10.0
INFORMATION, BETA_STEP = 0.5, 0.0005
"""The KL that the bottleneck is held to, and how fast its weight moves."""
ROOT = 1e-7
"""Inside of the norm's root, whose slope at 0 is infinite."""
ACTED = "action and end"


def _head(weight: Tensor, generator: torch.Generator) -> None:
    xavier_uniform(weight, generator)
    weight.mul_(0.2)


class Discriminator(nn.Module):
    """acted: numbers that it sees beside observations."""

    def __init__(self, spec: BehaviorSpec, settings: Settings, acted: int, trust: Trust) -> None:
        super().__init__()
        seen = [*spec.observations, *([ObservationSpec(ACTED, (acted,))] if acted else [])]
        self.encoder = Joint(seen, network_of(settings.network_settings), trust)
        width = self.encoder.out_features
        self.code: Linear | None = None
        if settings.use_vail:
            self.code, width = Linear(width, CODE, kaiming(0.1)), CODE
            self.sigma = nn.Parameter(torch.ones(CODE))
        self.head = Linear(width, 1, _head)

    def forward(self, inputs: Mapping[str, Tensor], noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits of D [R], and mu [R, CODE], [R, 0] without a bottleneck. noise: [R, CODE] standard normal; None
        for z = mu."""
        x = self.encoder.forward(inputs)
        mu = x[:, :0] if self.code is None else self.code(x)
        if self.code is not None:
            x = mu if noise is None else mu + self.sigma * noise
        return self.head(x)[:, 0], mu


def rewards_of(logits: Tensor) -> Tensor:
    """-log(1 - (1 - 1e-7) D), at most 16.1."""
    return -torch.log1p((1e-7 - 1.0) * logits.sigmoid())


def discriminator_loss(expert: Tensor, policy: Tensor) -> Tensor:
    """-mean log D(expert) - mean log(1 - D(policy)). Both: logits [R]."""
    return -(F.logsigmoid(expert).mean() + F.logsigmoid(-policy).mean())


def gradient_penalty(slopes: list[Tensor]) -> Tensor:
    """mean over rows of (|slope| - 1)^2. slopes: dD/dx of every part of x, [R, ...], of one point together."""
    squares = torch.stack([slope.flatten(1).square().sum(1) for slope in slopes]).sum(0)
    return ((squares + ROOT).sqrt() - 1.0).square().mean()


def bottleneck_kl(expert: Tensor, policy: Tensor, sigma: Tensor) -> Tensor:
    """KL of the module's formulas. expert, policy: their mu, [R, CODE]; sigma: [CODE]."""
    variance = sigma.square()
    inside = 1.0 + variance.log() - 0.5 * expert.square() - 0.5 * policy.square() - variance
    return -inside.sum(1).mean()


class GailSignal:
    """See the module. Raises DemonstrationError where `demo_path` holds nothing to learn from."""

    goes_on: ClassVar[bool] = False

    def __init__(
        self, settings: Settings, spec: BehaviorSpec, generator: torch.Generator, trust: Trust = NOBODY
    ) -> None:
        self.spec, self.use_vail, self.use_actions, self.beta = spec, settings.use_vail, settings.use_actions, 0.0
        self.generator, self.experts = generator, read_demonstrations(Path(settings.demo_path), spec)
        self.view = view_of(spec, network_of(settings.network_settings))
        self.view.observe(self.experts.observations, np.arange(len(self.experts)))
        acted = width_of(spec.actions) + 1 if settings.use_actions else 0
        self.discriminator = made(lambda: Discriminator(spec, settings, acted, trust), generator)
        self.trained = Trained(self.discriminator, settings.learning_rate)

    def observe(self, observations: Mapping[str, AnyArray], rows: I64) -> None:
        """What is normalised, is so by the demonstrations."""

    def _inputs(self, observations: Mapping[str, AnyArray], actions: F32, ended: AnyArray) -> dict[str, Tensor]:
        inputs = self.view(observations)
        if self.use_actions:
            seen = [inputs[VECTORS]] if VECTORS in inputs else []
            end = torch.from_numpy(ended.astype(np.float32))[:, None]
            inputs[VECTORS] = torch.cat([*seen, features(actions, self.spec.actions), end], 1)
        return inputs

    def rewards(self, decisions: Experience) -> F32:
        """See `LearnedReward.rewards`."""
        inputs = self._inputs(decisions.observations, decisions.actions, decisions.ended)
        with torch.no_grad():
            paid: F32 = rewards_of(self.discriminator.forward(inputs)[0]).numpy()
        return paid

    def learn(self, decisions: Experience) -> dict[str, float]:
        """See `LearnedReward.learn`."""
        rows = torch.randint(len(self.experts), (len(decisions),), generator=self.generator).numpy()
        shown = {name: seen[rows] for name, seen in self.experts.observations.items()}
        expert = self._inputs(shown, self.experts.actions[rows], self.experts.ended[rows])
        policy = self._inputs(decisions.observations, decisions.actions, decisions.ended)
        expert_logits, expert_mu = self.discriminator.forward(expert, self._noise(len(rows)))
        policy_logits, policy_mu = self.discriminator.forward(policy, self._noise(len(rows)))
        loss = discriminator_loss(expert_logits, policy_logits)
        penalty = PENALTY * self._penalty(expert, policy)
        found = {
            "Losses/GAIL Loss": loss,
            "Policy/GAIL Policy Estimate": policy_logits.sigmoid().mean(),
            "Policy/GAIL Expert Estimate": expert_logits.sigmoid().mean(),
            "Policy/GAIL Grad Mag Loss": penalty,
        }
        total, beta = loss + penalty, self.beta
        if self.use_vail:
            kl = bottleneck_kl(expert_mu, policy_mu, self.discriminator.sigma)
            total = total + beta * (kl - INFORMATION)
            self.beta = max(0.0, beta + BETA_STEP * (float(kl.detach()) - INFORMATION))
            found |= {"Losses/GAIL KL Loss": kl, "Policy/GAIL Beta": torch.tensor(self.beta)}
        self.trained.descend(total)
        return {tag: float(number.detach()) for tag, number in found.items()}

    def _noise(self, rows: int) -> Tensor | None:
        return torch.randn((rows, CODE), generator=self.generator) if self.use_vail else None

    def _penalty(self, expert: Mapping[str, Tensor], policy: Mapping[str, Tensor]) -> Tensor:
        """The gradient penalty at random points between decisions of both."""
        rows = len(next(iter(expert.values())))
        share = torch.rand(rows, generator=self.generator)
        points = {}
        for name, own in expert.items():
            along = share.view(-1, *[1] * (own.ndim - 1))
            points[name] = (along * policy[name] + (1.0 - along) * own).requires_grad_()
        chances = self.discriminator.forward(points, self._noise(rows))[0].sigmoid().sum()
        return gradient_penalty(list(torch.autograd.grad(chances, list(points.values()), create_graph=True)))

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedReward.state_dict`."""
        return {"beta": self.beta, "trained": self.trained.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `LearnedReward.load_state_dict`."""
        self.trained.load_state_dict(state["trained"])
        self.generator.set_state(state["generator"])
        self.beta = float(state["beta"])
