"""Adam over one flat parameter vector, in one compiled pass.

torch.optim would do, but making its first optimiser imports the compiler stack: 1.5 s before the first training step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from palus.nn.parameters import FlatParameters, Shard
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


class Adam:
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr m_hat / (sqrt(v_hat) + eps), bias-corrected.

    Source: Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1, with its default betas and epsilon.
    """

    def __init__(
        self, parameters: FlatParameters, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        self.parameters, self.beta1, self.beta2, self.epsilon = parameters, beta1, beta2, epsilon
        self._decays = np.array([beta1, beta2], np.float32)
        self.steps = 0
        self._rate, self._root = 0.0, 1.0
        self.mean = np.zeros(parameters.master.shape, np.float32)
        self.square = np.zeros(parameters.master.shape, np.float32)

    def begin(self, learning_rate: float) -> None:
        """Start a step that `move` applies to one shard after the other, or to several at once."""
        self.steps += 1
        self._rate = learning_rate / (1.0 - self.beta1**self.steps)
        self._root = math.sqrt(1.0 - self.beta2**self.steps)

    def move(self, shard: Shard) -> None:
        """Apply the present step to a shard, and refresh its working copy."""
        part = slice(shard.start, shard.end)
        master, gradient = self.parameters.master.numpy(), self.parameters.gradient.numpy()
        mean, square = self.mean[part], self.square[part]
        _step(master[part], gradient[part], mean, square, self._rate, self._root, self._decays, self.epsilon)
        self.parameters.refresh(shard)

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps."""
        return {"steps": self.steps, "mean": self.mean.copy(), "square": self.square.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. ValueError when the sizes differ."""
        self.steps = int(state["steps"])
        self.mean[:], self.square[:] = state["mean"], state["square"]
