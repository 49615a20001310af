"""The layer that ends a policy: features to the numbers of an action distribution."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.nn.graph import LOG_STD_LIMIT, Graph
from palus.nn.layers import Linear
from palus.nn.parameters import Init, kaiming
from palus.types import ActionSpec, Continuous, Discrete

LOG_STD_SQUASHED = 2.0
"""The largest logarithm of a deviation before tanh, as in ML-Agents' SAC: beyond, all draws are at the range's ends."""


def units_of(part: Continuous, settings: NetworkSettings) -> tuple[float, float]:
    """Where the 0 of a network's means lies in the game's units, and what its 1 is worth there."""
    middle, half = part.squashed
    if settings.squash or not settings.range_end or not part.is_finite:
        return 0.0, 1.0
    if abs(math.log(half / settings.range_end)) >= LOG_STD_LIMIT:  # there no step moves a deviation
        return 0.0, 1.0
    return middle, half / settings.range_end


class ActionHead(nn.Module):
    """Linear layer to the distribution's parameters; deviations are its outputs too, or vectors of their own.

    Parameters are in the game's units, weights in those of `units_of`, in which a gradient step is as long as in
    ML-Agents. Source: ML-Agents 1.1.0, `ActionModel._sample_action`: what is drawn is clipped to +-3 and divided by 3.
    """

    def __init__(self, in_features: int, actions: ActionSpec, settings: NetworkSettings) -> None:
        super().__init__()
        self.actions, self.adaptive, self.tanh_scale = actions, settings.adaptive_deviation, settings.tanh_scale
        self.squash = settings.squash
        self.units = [units_of(part, settings) for part in actions.parts if isinstance(part, Continuous)]
        free = 0 if self.adaptive else sum(p.size for p in actions.parts if isinstance(p, Continuous))
        self.distribution_linear = Linear(in_features, actions.parameters - free, self._first_weights())
        if free:
            self.learned_stddev = nn.Parameter(torch.full((free,), float(np.log(settings.initial_deviation))))

    def _widths(self) -> list[int]:
        """Outputs of the linear layer for each part."""
        return [
            part.parameters if self.adaptive or isinstance(part, Discrete) else part.size for part in self.actions.parts
        ]

    def _first_weights(self) -> Init:
        """Kaiming, a tenth of it for logits and a fifth for means. Source: ML-Agents."""
        gains = [0.1 if isinstance(part, Discrete) else 0.2 for part in self.actions.parts]

        def init(weight: Tensor, generator: torch.Generator) -> None:
            kaiming()(weight, generator)
            weight.mul_(torch.repeat_interleave(torch.tensor(gains), torch.tensor(self._widths())).unsqueeze(1))

        return kaiming(0.1) if self.actions.is_discrete else init

    def forward(self, x: Tensor) -> Tensor:
        """[R, in] -> [R, L] float32."""
        out = self.distribution_linear.in_float32(x)
        if self.actions.is_discrete:
            return out
        pieces, free, units = [], 0, iter(self.units)
        for part, piece in zip(self.actions.parts, torch.split(out, self._widths(), 1), strict=True):
            if isinstance(part, Continuous):
                means, deviations = piece[:, : part.size], piece[:, part.size :]
                if self.tanh_scale:
                    means = torch.tanh(means / self.tanh_scale) * self.tanh_scale
                if not self.adaptive:
                    deviations = self.learned_stddev[free : free + part.size].float().expand(len(out), -1)
                    free += part.size
                if self.squash:
                    deviations = deviations.clamp(max=LOG_STD_SQUASHED)
                middle, unit = next(units)
                if (middle, unit) != (0.0, 1.0):
                    means, deviations = middle + unit * means, deviations + math.log(unit)
                piece = torch.cat([means, deviations], 1)
            pieces.append(piece)
        return torch.cat(pieces, 1)

    def onnx(self, g: Graph, x: str) -> tuple[str, ...]:
        """The numbers of each part, with a product for each, as ML-Agents' files have them."""
        weight, bias = (g.weight_array(p) for p in (self.distribution_linear.weight, self.distribution_linear.bias))
        first, free, parts, units = 0, 0, list[str](), iter(self.units)
        for k, (part, width) in enumerate(zip(self.actions.parts, self._widths(), strict=True)):
            rows, first = slice(first, first + width), first + width
            names = [g.constant(f"part{k}_weight", weight[rows]), g.constant(f"part{k}_bias", bias[rows])]
            own = g.add("Gemm", [x, *names], transB=1)
            if isinstance(part, Continuous):
                means, deviations = g.columns(own, 0, part.size), g.columns(own, part.size, 2 * part.size)
                if self.tanh_scale:
                    scale = g.number(self.tanh_scale)
                    means = g.add("Mul", [g.add("Tanh", [g.add("Div", [means, scale])]), scale])
                if not self.adaptive:
                    zeros = g.add("Sub", [means, means])  # gives the vector its rows
                    learned = g.weight_array(self.learned_stddev)[free : free + part.size]
                    deviations = g.add("Add", [zeros, g.number(learned.tolist())])
                    free += part.size
                if self.squash:
                    deviations = g.add("Clip", [deviations], max=LOG_STD_SQUASHED)
                middle, unit = next(units)
                if (middle, unit) != (0.0, 1.0):
                    means = g.add("Add", [g.add("Mul", [means, g.number(unit)]), g.number(middle)])
                    deviations = g.add("Add", [deviations, g.number(math.log(unit))])
                own = g.add("Concat", [means, deviations], axis=1)
            parts.append(own)
        return tuple(parts)
