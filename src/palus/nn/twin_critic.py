"""SAC's critics: a value of states, and two of states and actions, each a network of its own.

Source: Haarnoja et al. 2018 (arXiv 1801.01290), section 4.2, with ML-Agents' shapes: continuous actions enter beside
what is seen, discrete ones are outputs, a number for every choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.nn.cores import Core
from palus.nn.encoders import VECTORS, Apart, Joint
from palus.nn.layers import Linear, fully_connected
from palus.nn.parameters import xavier_uniform
from palus.trust import NOBODY, Trust
from palus.types import BehaviorSpec, Continuous, ObservationSpec

ACTED = "continuous actions"
"""The name under which actions enter among observations."""


class Estimate(nn.Module):
    """Numbers about a state: encoder, memory, layers, one linear layer. acted: numbers of the continuous actions it
    sees. T steps of B rows go in, time first, as into `Network.forward`."""

    def __init__(
        self, observations: Sequence[ObservationSpec], acted: int, outputs: int, settings: NetworkSettings, trust: Trust
    ) -> None:
        super().__init__()
        seen = [*observations, ObservationSpec(ACTED, (acted,))] if acted else list(observations)
        self.encoder = (Apart if settings.encoding == "apart" else Joint)(seen, settings, trust)
        self.core = Core(self.encoder.out_features, settings.memory)
        self.layers = fully_connected(self.core.out_features, settings.decoder_layers, settings.activation)
        self.head = Linear(self.layers.out_features, outputs, xavier_uniform)

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        acted: Tensor | None = None,
        states: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> Tensor:
        """[T B, outputs] float32. inputs: as `Network.inputs` makes them; acted: [T B, numbers], where there are any;
        states: [B, S] and keep: [T, B], where there is memory."""
        x = self._encoded(inputs, acted)
        if states is not None and keep is not None:
            x, _ = self.core.forward(x, states, keep)
        return self.head.in_float32(self.layers.forward(x).float())

    @torch.no_grad()
    def states(self, inputs: Mapping[str, Tensor], acted: Tensor | None, keep: Tensor) -> Tensor:
        """`Core.states`: what is remembered before each step and after the last, [T + 1, B, S]."""
        return self.core.states(self._encoded(inputs, acted), keep)

    def _encoded(self, inputs: Mapping[str, Tensor], acted: Tensor | None) -> Tensor:
        if acted is not None:
            acted = acted.to(next(iter(inputs.values())).dtype)
            if self.encoder.joined:
                acted = torch.cat([inputs[VECTORS], acted], 1) if VECTORS in inputs else acted
                inputs = {**inputs, VECTORS: acted}
            else:
                inputs = {**inputs, ACTED: acted}
        return self.encoder.forward(inputs)


class TwinCritic(nn.Module):
    """V, Q1 and Q2, and the logarithms of the entropy coefficients: one for each branch, then one for all numbers.

    V gives [R, S], S rewards that have a value each; Q gives [R, S x all choices], one reward's after the other's,
    [R, S] where nothing is discrete. coefficient: of all entropies, at the start.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        trust: Trust = NOBODY,
        *,
        coefficient: float,
        streams: int = 1,
    ) -> None:
        super().__init__()
        numbers = sum(part.size for part in spec.actions.parts if isinstance(part, Continuous))
        choices = max(sum(spec.branches), 1) * streams
        self.value = Estimate(spec.observations, 0, streams, settings, trust)
        self.q1 = Estimate(spec.observations, numbers, choices, settings, trust)
        self.q2 = Estimate(spec.observations, numbers, choices, settings, trust)
        coefficients = len(spec.branches) + (numbers > 0)
        self.log_coefficients = nn.Parameter(torch.full((coefficients,), math.log(coefficient)))
