"""Adam over one flat parameter vector, in one compiled pass, or by torch's operators where there are no such passes.

torch.optim would do, but making its first optimiser imports the compiler stack: 1.5 s before the first training step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from palus.nn.parameters import FlatParameters, Shard
from palus.nn.place import CPU, Placement
from palus.types import F32


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    parameters: F32, gradient: F32, mean: F32, square: F32, rate: float, root: float, decays: F32, epsilon: float
) -> None:
    """rate: learning rate / (1 - beta1^t); root: sqrt(1 - beta2^t); decays: both betas. Arrays [n] change in place."""
    one = np.float32(1.0)
    beta1, beta2, least = decays[0], decays[1], np.float32(epsilon)
    step, scale = np.float32(rate), np.float32(1.0 / root)
    for i in range(parameters.shape[0]):
        g = gradient[i]
        mean[i] = beta1 * mean[i] + (one - beta1) * g
        square[i] = beta2 * square[i] + (one - beta2) * g * g
        parameters[i] -= step * mean[i] / (np.sqrt(square[i]) * scale + least)


def step_formula(
    parameters: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    numbers: Tensor,
    decays: tuple[float, float],
) -> None:
    """`_step` by torch's operators, seven of them. numbers: [3], its rate, 1 / root and epsilon, where the tensors
    lie."""
    beta1, beta2 = decays
    rate, scale, least = numbers
    mean.lerp_(gradient, 1.0 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    parameters.addcdiv_(rate * mean, torch.addcmul(least, square.sqrt(), scale), value=-1.0)


class Adam:
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr m_hat / (sqrt(v_hat) + eps), bias-corrected.

    Source: Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1, with its default betas and epsilon.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        place: Placement = CPU,
    ) -> None:
        """place: where the parameters lie."""
        self.parameters, self.beta1, self.beta2, self.epsilon, self.place = parameters, beta1, beta2, epsilon, place
        self._decays = np.array([beta1, beta2], np.float32)
        self.steps = 0
        self._rate, self._root = 0.0, 1.0
        self._numbers = torch.zeros(3, device=place.device)
        self.mean, self.square = (torch.zeros_like(parameters.master) for _ in range(2))

    @property
    def moves(self) -> tuple[Tensor, ...]:
        """All that a step changes."""
        return self.parameters.master, self.parameters.work, self.mean, self.square

    def begin(self, learning_rate: float) -> None:
        """Start a step that `move` applies to one shard after the other, or to several at once."""
        self.steps += 1
        self._rate = learning_rate / (1.0 - self.beta1**self.steps)
        self._root = math.sqrt(1.0 - self.beta2**self.steps)
        if not self.place.compiled:
            self._numbers.copy_(torch.tensor([self._rate, 1.0 / self._root, self.epsilon]), non_blocking=True)

    def move(self, shard: Shard) -> None:
        """Apply the present step to a shard, and refresh its working copy."""
        part = slice(shard.start, shard.end)
        master, gradient = self.parameters.master[part], self.parameters.gradient[part]
        mean, square = self.mean[part], self.square[part]
        if self.place.compiled:
            _step(
                master.numpy(), gradient.numpy(), mean.numpy(), square.numpy(),
                self._rate, self._root, self._decays, self.epsilon,
            )  # fmt: skip
        else:
            step_formula(master, gradient, mean, square, self._numbers, (self.beta1, self.beta2))
        self.parameters.refresh(shard)

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps."""
        mean, square = (self.parameters.packed(moment).cpu().numpy() for moment in (self.mean, self.square))
        return {"steps": self.steps, "mean": mean, "square": square}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. ValueError when the sizes differ."""
        sizes = [np.shape(state[name]) for name in ("mean", "square")]
        expected = tuple(self.parameters.packed(self.mean).shape)
        if any(size != expected for size in sizes):
            raise ValueError(f"optimiser: moments of {sizes} numbers; expected {expected}")
        self.steps = int(state["steps"])
        for moment, name in ((self.mean, "mean"), (self.square, "square")):
            moment.copy_(self.parameters.unpacked(torch.from_numpy(np.asarray(state[name], np.float32))))
