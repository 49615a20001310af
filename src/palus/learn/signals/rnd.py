"""Random network distillation: pay for what is new.

Source: Burda et al. 2018 (arXiv 1810.12894). A network learns to answer as another one does, whose weights are random
and stay; it fails where it has seen little. r = |answer(s) - target(s)|^2;   L = mean r.

Deviation from the paper, as in ML-Agents, whose strengths are made for it: r is not divided by its running deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from palus.config.trainer import Rnd as Settings
from palus.learn.signals.signal import Experience, Trained, made, network_of, view_of
from palus.nn.encoders import Joint
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, AnyArray, BehaviorSpec


def novelty(answer: Tensor, target: Tensor) -> Tensor:
    """|answer - target|^2, [R]."""
    return (answer - target).square().sum(1)


class RndSignal:
    """See the module."""

    goes_on: ClassVar[bool] = True

    def __init__(
        self, settings: Settings, spec: BehaviorSpec, generator: torch.Generator, trust: Trust = NOBODY
    ) -> None:
        network = network_of(settings.network_settings)
        self.view = view_of(spec, network)
        self.answer, self.target = (made(lambda: Joint(spec.observations, network, trust), generator) for _ in "ab")
        self.trained, self.fixed = Trained(self.answer, settings.learning_rate), Trained(self.target)

    def observe(self, observations: Mapping[str, AnyArray], rows: I64) -> None:
        """See `LearnedReward.observe`."""
        self.view.observe(observations, rows)

    def _novelty(self, decisions: Experience) -> Tensor:
        seen = self.view(decisions.observations)
        with torch.no_grad():
            target = self.target.forward(seen)
        return novelty(self.answer.forward(seen), target)

    def rewards(self, decisions: Experience) -> F32:
        """See `LearnedReward.rewards`."""
        with torch.no_grad():
            paid: F32 = self._novelty(decisions).numpy()
        return paid

    def learn(self, decisions: Experience) -> dict[str, float]:
        """See `LearnedReward.learn`."""
        loss = self._novelty(decisions).mean()
        self.trained.descend(loss)
        return {"Losses/RND Loss": float(loss.detach())}

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedReward.state_dict`."""
        return {"trained": self.trained.state_dict(), "fixed": self.fixed.state_dict(), "view": self.view.arrays()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `LearnedReward.load_state_dict`."""
        self.trained.load_state_dict(state["trained"])
        self.fixed.load_state_dict(state["fixed"])
        self.view.load_arrays(state["view"])
