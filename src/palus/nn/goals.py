"""Layers that a goal conditions: the weights of the last one are themselves what a network makes of the goal.

Source: Ha et al. 2017 (HyperNetworks, arXiv 1609.09106), with ML-Agents' sizes and initialisation. Of R rows every one
has a matrix of its own, in x out numbers: the passes are written out, in pieces, so that they never lie in memory
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.nn.graph import Graph
from palus.nn.layers import Activate, Linear, fully_connected
from palus.nn.parameters import Init
from palus.nn.small_attention import LAYER_NORM_EPSILON, layer_norm_onnx

PIECE = 1 << 22
"""Numbers of the matrices that are in memory at a time."""


def _pieces(rows: int, numbers: int) -> Iterator[slice]:
    size = max(1, PIECE // numbers)
    return (slice(first, first + size) for first in range(0, rows, size))


class _Conditioned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, z, weight, bias)
        R, I = x.shape  # noqa: E741
        out = x.new_empty(R, len(bias) // I)
        for own in _pieces(R, len(bias)):
            matrices = F.linear(z[own], weight, bias).view(-1, I, out.shape[1])
            out[own] = torch.bmm(x[own].unsqueeze(1), matrices)[:, 0]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, z, weight, bias = ctx.saved_tensors
        R, I = x.shape  # noqa: E741
        dx, dz, dweight = torch.empty_like(x), torch.empty_like(z), torch.zeros_like(weight)
        for own in _pieces(R, len(bias)):
            matrices = F.linear(z[own], weight, bias).view(-1, I, grad.shape[1])
            dx[own] = torch.bmm(matrices, grad[own].unsqueeze(2))[:, :, 0]
            dmatrices = (x[own].unsqueeze(2) * grad[own].unsqueeze(1)).flatten(1)
            dz[own] = dmatrices @ weight
            dweight += dmatrices.T @ z[own]
        return dx, dz, dweight, (x.T @ grad).flatten()


conditioned: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _Conditioned.apply
"""(x [R, I], z [R, K], weight [I O, K], bias [I O]) -> [R, O]: x_r times (weight z_r + bias) as a matrix [I, O]."""


def _uniform(bound: float) -> Init:
    def init(weight: Tensor, generator: torch.Generator) -> None:
        weight.uniform_(-bound, bound, generator=generator)

    return init


class GoalLayers(nn.Module):
    """`num_layers` layers of `units`, each followed by the activation; the matrix of the last comes from the goal.

    goal: the columns of the input that are the goal; it stays a part of the input.
    """

    goal: Tensor

    def __init__(self, in_features: int, goal: Sequence[int], units: int, num_layers: int, activation: str) -> None:
        super().__init__()
        self.out_features = units
        self.register_buffer("goal", torch.tensor(goal), persistent=False)  # it moves with the weights
        self.layers = fully_connected(in_features, [units] * (num_layers - 1), activation)
        inside = self.layers.out_features
        self.embed = fully_connected(len(goal), [units] * 2, "swish")
        bound = math.sqrt(1.0 / (units * inside))
        self.matrix = Linear(units, inside * units, _uniform(bound))
        self.bias = nn.Parameter(torch.zeros(units))
        self.activate = Activate(activation)

    def forward(self, x: Tensor) -> Tensor:
        """[R, in] -> [R, units]."""
        z = self.embed.forward(x[:, self.goal])
        z = F.layer_norm(z, (self.out_features,), eps=LAYER_NORM_EPSILON)
        inside = self.layers.forward(x)
        return self.activate.forward(conditioned(inside, z, self.matrix.weight, self.matrix.bias) + self.bias)

    def onnx(self, g: Graph, x: str) -> str:
        """As `forward`, on names."""
        goal = self.goal.tolist()
        cuts = [k for k in range(1, len(goal)) if goal[k] != goal[k - 1] + 1]
        runs = [goal[a:b] for a, b in zip([0, *cuts], [*cuts, len(goal)], strict=True)]
        z = self.embed.onnx(g, g.beside([g.columns(x, run[0], run[-1] + 1) for run in runs]))
        matrices = self.matrix.onnx(g, layer_norm_onnx(g, z, axis=1))
        matrices = g.add("Reshape", [matrices, g.shape(-1, self.layers.out_features, self.out_features)])
        inside = g.add("Unsqueeze", [self.layers.onnx(g, x)], axes=[1])
        out = g.add("Squeeze", [g.add("MatMul", [inside, matrices])], axes=[1])
        return self.activate.onnx(g, g.add("Add", [out, g.weight(self.bias)]))
