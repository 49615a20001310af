"""Curiosity: pay for what a model of the game did not foresee.

Source: Pathak et al. 2017 (arXiv 1705.05363), the intrinsic curiosity module, with ML-Agents' sizes and weights. phi
encodes what is seen; the forward model guesses phi(s') from phi(s) and the action, the inverse model the action from
phi(s) and phi(s'). The gradients of both reach phi: what no action can change need not be in it.

r = min(1/2 |phi(s') - guess|^2, 1 / strength);   L_F = mean 1/2 |phi(s') - guess|^2;
L_I = mean over decisions of -log p(a) of each branch and of the squared errors of numbers;
L = 10 (0.2 L_F + 0.8 L_I).

Deviations from ML-Agents 1.1.0, with reasons in docs/differences.md: a decision after which an episode ended by the
rules is neither paid nor learned from, `normalize` moves its statistics, and numbers are read as the game was told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.config.trainer import Curiosity as Settings
from palus.learn.signals.signal import Experience, Trained, features, made, network_of, view_of, width_of
from palus.nn.encoders import Joint
from palus.nn.layers import Linear, fully_connected
from palus.nn.parameters import xavier_uniform
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, ActionSpec, AnyArray, BehaviorSpec, Discrete

HIDDEN = 256
"""Units of the forward and of the inverse model."""
FORWARD_SHARE, LOSS_FACTOR = 0.2, 10.0


class Models(nn.Module):
    """phi, the forward model and the inverse model."""

    def __init__(self, spec: BehaviorSpec, settings: Settings, trust: Trust) -> None:
        super().__init__()
        acted = width_of(spec.actions)
        self.phi = Joint(spec.observations, network_of(settings.network_settings), trust)
        width = self.phi.out_features
        self.foresee = fully_connected(width + acted, [HIDDEN], "swish")
        self.foreseen = Linear(HIDDEN, width, xavier_uniform)
        self.infer = fully_connected(2 * width, [HIDDEN], "swish")
        self.inferred = Linear(HIDDEN, acted, xavier_uniform)

    def forward(
        self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], acted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The forward model's errors [R], and the inverse model's guess of the action [R, width_of]."""
        phi, following = self.phi.forward(before), self.phi.forward(after)
        guess = self.foreseen(self.foresee.forward(torch.cat([phi, acted], 1)))
        action = self.inferred(self.infer.forward(torch.cat([phi, following], 1)))
        return forward_errors(following, guess), action


def forward_errors(following: Tensor, guess: Tensor) -> Tensor:
    """1/2 |phi(s') - guess|^2, [R]."""
    return 0.5 * (following - guess).square().sum(1)


def inverse_errors(guess: Tensor, actions: Tensor, spec: ActionSpec) -> Tensor:
    """[R]: the sum over branches of -log p(chosen), and over numbers of the squared error.

    guess: [R, width_of], logits of every branch and numbers, in the order of the parts; actions: [R, A].
    """
    total, first = guess.new_zeros(len(guess)), 0
    for part, columns in zip(spec.parts, spec.column_slices, strict=True):
        width = part.choices if isinstance(part, Discrete) else part.size
        own, taken = guess[:, first : first + width], actions[:, columns]
        if isinstance(part, Discrete):
            total = total + F.cross_entropy(own, taken[:, 0].long(), reduction="none")
        else:
            total = total + (own - taken).square().sum(1)
        first += width
    return total


class CuriositySignal:
    """See the module. It pays nothing before it has learned once."""

    goes_on: ClassVar[bool] = True

    def __init__(
        self, settings: Settings, spec: BehaviorSpec, generator: torch.Generator, trust: Trust = NOBODY
    ) -> None:
        self.spec, self.learned = spec, False
        self.most = 1.0 / settings.strength if settings.strength > 0 else math.inf
        self.view = view_of(spec, network_of(settings.network_settings))
        self.models = made(lambda: Models(spec, settings, trust), generator)
        self.trained = Trained(self.models, settings.learning_rate)

    def observe(self, observations: Mapping[str, AnyArray], rows: I64) -> None:
        """See `LearnedReward.observe`."""
        self.view.observe(observations, rows)

    def _errors(self, decisions: Experience) -> tuple[Tensor, Tensor]:
        acted = features(decisions.actions, self.spec.actions)
        before, after = self.view(decisions.observations), self.view(decisions.following)
        surprise, guess = self.models.forward(before, after, acted)
        return surprise, inverse_errors(guess, torch.from_numpy(decisions.actions), self.spec.actions)

    def rewards(self, decisions: Experience) -> F32:
        """See `LearnedReward.rewards`."""
        paid = np.zeros(len(decisions), np.float32)
        if self.learned and decisions.known.any():
            with torch.no_grad():
                surprise = self._errors(decisions.chosen(decisions.known))[0].numpy()
            paid[decisions.known] = np.minimum(surprise, self.most)
        return paid

    def learn(self, decisions: Experience) -> dict[str, float]:
        """See `LearnedReward.learn`."""
        if not decisions.known.any():
            return {}
        surprise, mistakes = (errors.mean() for errors in self._errors(decisions.chosen(decisions.known)))
        self.trained.descend(LOSS_FACTOR * (FORWARD_SHARE * surprise + (1.0 - FORWARD_SHARE) * mistakes))
        self.learned = True
        found = {"Losses/Curiosity Forward Loss": surprise, "Losses/Curiosity Inverse Loss": mistakes}
        return {tag: float(number.detach()) for tag, number in found.items()}

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedReward.state_dict`."""
        return {"learned": self.learned, "trained": self.trained.state_dict(), "view": self.view.arrays()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `LearnedReward.load_state_dict`."""
        self.trained.load_state_dict(state["trained"])
        self.view.load_arrays(state["view"])
        self.learned = bool(state["learned"])
