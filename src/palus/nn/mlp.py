"""Actor and critic bodies: linear layers with x * sigmoid(x) between them, as ML-Agents builds them.

Source: ML-Agents 1.1.0 network definitions (linear encoder, discrete action heads, value heads).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.nn.parameters import Init, kaiming, xavier_uniform


@dataclass(frozen=True)
class MlpShape:
    """Sizes of an MLP: `observation_size` floats in, `num_layers` hidden layers of `hidden_units`."""

    observation_size: int
    hidden_units: int
    num_layers: int


def body_layers(prefix: str, shape: MlpShape, gain: float = 1.0) -> dict[str, tuple[int, int, Init]]:
    """The hidden layers `<prefix>layer<i>`."""
    sizes = [shape.observation_size] + [shape.hidden_units] * shape.num_layers
    return {f"{prefix}layer{i}": (sizes[i + 1], sizes[i], kaiming(gain)) for i in range(shape.num_layers)}


def actor_layers(shape: MlpShape, branches: tuple[int, ...]) -> dict[str, tuple[int, int, Init]]:
    """Body plus one product that holds the heads of all action branches, gain 0.1."""
    return body_layers("actor_", shape) | {"actor_heads": (sum(branches), shape.hidden_units, kaiming(0.1))}


def critic_layers(shape: MlpShape) -> dict[str, tuple[int, int, Init]]:
    """A critic of its own: body plus a value head."""
    return body_layers("critic_", shape) | {"critic_value": (1, shape.hidden_units, xavier_uniform)}


def body(tensors: Mapping[str, Tensor], prefix: str, num_layers: int, x: Tensor) -> Tensor:
    """x: [R, D] -> [R, hidden_units]."""
    for i in range(num_layers):
        x = F.silu(F.linear(x, tensors[f"{prefix}layer{i}_weight"], tensors[f"{prefix}layer{i}_bias"]))
    return x


def actor_logits(tensors: Mapping[str, Tensor], num_layers: int, x: Tensor) -> Tensor:
    """x: [R, D] -> logits [R, sum of branches], the branches side by side."""
    return F.linear(body(tensors, "actor_", num_layers, x), tensors["actor_heads_weight"], tensors["actor_heads_bias"])


def critic_value(tensors: Mapping[str, Tensor], num_layers: int, x: Tensor) -> Tensor:
    """x: [R, D] -> values [R]."""
    hidden = body(tensors, "critic_", num_layers, x)
    return F.linear(hidden, tensors["critic_value_weight"], tensors["critic_value_bias"]).squeeze(-1)


class Normalizer:
    """Running mean and variance of observations, frozen between updates.

    Source: ML-Agents' vector normaliser: starts with one virtual sample of mean 0 and variance 1; clips to +-5.
    """

    def __init__(self, observation_size: int) -> None:
        self.count = 1.0
        self.mean = torch.zeros(observation_size, dtype=torch.float64)
        self.sum_squares = torch.ones(observation_size, dtype=torch.float64)
        self._cache()

    def _cache(self) -> None:
        self.mean32 = self.mean.float()
        self.std32 = (self.sum_squares / self.count).sqrt().float()

    def update(self, observations: Tensor) -> None:
        """observations: [R, D]; Welford's update with the whole batch."""
        x = observations.double()
        self.count += x.shape[0]
        new_mean = self.mean + (x - self.mean).sum(0) / self.count
        self.sum_squares += ((x - new_mean) * (x - self.mean)).sum(0)
        self.mean = new_mean
        self._cache()

    def __call__(self, x: Tensor) -> Tensor:
        return ((x - self.mean32) / self.std32).clamp_(-5.0, 5.0)

    def state_dict(self) -> dict[str, Tensor | float]:
        return {"count": self.count, "mean": self.mean, "sum_squares": self.sum_squares}

    def load_state_dict(self, state: Mapping[str, Tensor | float]) -> None:
        self.count = float(state["count"])
        self.mean = torch.as_tensor(state["mean"]).clone()
        self.sum_squares = torch.as_tensor(state["sum_squares"]).clone()
        self._cache()
