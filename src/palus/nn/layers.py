"""Layers that compute with torch and write themselves to ONNX: `forward` and `onnx` stand side by side."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numba import njit
from torch import Tensor, nn

from palus.errors import ModelError
from palus.nn.bfloat16 import kernel_view
from palus.nn.graph import Graph
from palus.nn.int16 import Int16Weights, product
from palus.nn.int16_convolution import convolution, rows_of
from palus.nn.parameters import Init, kaiming
from palus.nn.swish import swish, takes
from palus.types import F32, AnyArray

LEAKY_SLOPE = 0.01
"""Of ML-Agents' image encoders."""
SATURATED = -17.5
"""Below it e^x - 1 is -1 in float32."""


@cache
def _table() -> AnyArray:
    """Bits of x -> bits of ELU(x), [65536] int16; the index is the bits as an unsigned number.

    There are only 65536 bfloat16, and exp costs six times as much as to look them up: activations took a third of a
    forward pass of Doom's network before.
    """
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    return kernel_view(F.elu(bits.view(torch.bfloat16)))


@njit(cache=True, nogil=True)
def look_up(codes: AnyArray, table: AnyArray) -> None:
    """codes: [n] unsigned, changed in place; table: of every code."""
    for i in range(codes.shape[0]):
        codes[i] = table[codes[i]]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _elu_float(x: F32) -> None:
    """x: [n], changed in place; within 5e-7 of the truth, relatively, for all x.

    e^x - 1 by Taylor's series at x / 64, then e^2y - 1 = (e^y - 1) (e^y - 1 + 2), six times: products and sums alone,
    which the compiler puts into vectors; a third of the time of a call of exp for each number.
    """
    one, two, zero, least = np.float32(1.0), np.float32(2.0), np.float32(0.0), np.float32(SATURATED)
    a, b, c, d = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24), np.float32(1 / 120)
    for i in range(x.shape[0]):
        y = max(min(x[i], zero), least) * np.float32(1 / 64)
        e = y * (one + y * (a + y * (b + y * (c + y * d))))
        for _ in range(6):
            e = e * (e + two)
        x[i] = e if x[i] <= zero else x[i]


def elu_(x: Tensor) -> Tensor:
    """ELU in place, without gradient. Source: Clevert et al. 2016 (arXiv 1511.07289), alpha = 1."""
    dense = x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))
    if x.dtype not in (torch.float32, torch.bfloat16) or not dense or not x.is_cpu:
        return F.elu(x, inplace=True)
    flat = x.detach().as_strided((x.numel(),), (1,))
    if x.dtype == torch.float32:
        _elu_float(flat.numpy())
    else:
        look_up(flat.view(torch.uint16).numpy(), _table().view("uint16"))
    return x


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        elu_(x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        slope: Tensor = torch.ops.aten.elu_backward(gradient, 1.0, 1.0, 1.0, True, y)  # True: from the result
        return slope


_elu: Callable[[Tensor], Tensor] = _Elu.apply


def elu(x: Tensor) -> Tensor:
    """`torch.nn.functional.elu(x, inplace=True)`, faster; nothing else may read what it overwrites."""
    return _elu(x) if torch.is_grad_enabled() and x.requires_grad else elu_(x)


def write_onnx(module: nn.Module, g: Graph, x: str) -> str:
    """The nodes of a module on the value x. Raises ModelError for one that does not say what they are."""
    write = getattr(module, "onnx", None)
    if write is None:
        raise ModelError(
            f"{type(module).__name__} does not say how it looks in ONNX; give it a method onnx(graph, x) that adds its "
            "nodes and returns the name of its result, or export it with torch.onnx"
        )
    written: str = write(g, x)
    return written


_draws = ContextVar("draws", default=True)


@contextmanager
def undrawn() -> Iterator[None]:
    """Layers that are made in it hold zeros at first: others replace them, and draws take longer than all else that a
    network of a league's past is made of."""
    before = _draws.set(False)
    try:
        yield
    finally:
        _draws.reset(before)


class _Drawn(nn.Module):
    """A layer of torch's whose first weights are not drawn where nobody wants them."""

    def reset_parameters(self) -> None:
        if _draws.get():
            super().reset_parameters()  # type: ignore[misc]
            return
        for parameter in self.parameters(recurse=False):
            nn.init.zeros_(parameter)


class Linear(_Drawn, nn.Linear):
    """A fully connected layer. init: its first weights where a network is initialised as ML-Agents does. coded: its
    weights as codes, where it learns by such products (`palus.nn.int16`); what acts does so in inference mode, and in
    fp32."""

    def __init__(self, in_features: int, out_features: int, init: Init | None = None) -> None:
        super().__init__(in_features, out_features)
        self.init = init or kaiming()
        self.coded: Int16Weights | None = None

    def pack(self) -> None:
        """See `palus.nn.parameters.Packing`."""
        if self.coded is not None:
            self.coded.load(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        if self.coded is None or torch.is_inference_mode_enabled() or not x.numel():
            return F.linear(x, self.weight, self.bias)
        found = product(x.reshape(-1, x.shape[-1]), self.weight, self.bias, self.coded)
        return found if x.ndim == 2 else found.view(*x.shape[:-1], -1)

    def in_float32(self, x: Tensor) -> Tensor:
        """`forward` in float32, whatever the weights are kept in."""
        return F.linear(x, self.weight.float(), self.bias.float())

    def onnx(self, g: Graph, x: str) -> str:
        """x: [batch, in]."""
        return g.add("Gemm", [x, g.weight(self.weight), g.weight(self.bias)], transB=1)


class Reader(Linear):
    """A layer that reads observations. Beside a large number of a row codes would lose small ones, which may say more:
    it always computes in the number format of its weights."""


class Convolution(_Drawn, nn.Conv2d):
    """A square kernel. coded: as of `Linear`."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(channels, out, kernel, stride, padding)
        self.coded: Int16Weights | None = None

    def pack(self) -> None:
        """See `palus.nn.parameters.Packing`."""
        if self.coded is not None:
            self.coded.load(rows_of(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        if self.coded is None or self.bias is None or torch.is_inference_mode_enabled() or not x.numel():
            return super().forward(x)
        return convolution(x, self.weight, self.bias, self.coded, self.stride[0], int(self.padding[0]))

    def onnx(self, g: Graph, x: str) -> str:
        pads, strides = [int(self.padding[0])] * 4, [self.stride[0]] * 2
        return g.add("Conv", [x, g.weight(self.weight), g.weight(self.bias)], pads=pads, strides=strides)


class MaxPool(nn.MaxPool2d):
    """3 x 3, stride 2."""

    def __init__(self, padding: int) -> None:
        super().__init__(3, stride=2, padding=padding)
        self.pads = [padding] * 4

    def onnx(self, g: Graph, x: str) -> str:
        return g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=self.pads)


class Activate(nn.Module):
    """swish (x * sigmoid(x)), elu, relu, leaky_relu or tanh.

    In place it spares a pass over memory, where what it overwrites is read by nothing else. compiled: by kernels of
    Numba's where there is one (`palus.nn.place.Placement`).
    """

    compiled = True

    def __init__(self, kind: str, inplace: bool = True) -> None:
        super().__init__()
        self.kind, self.inplace = kind, inplace

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "swish":
            if self.compiled and takes(x):
                return swish(x)
            return F.silu(x, self.inplace and not torch.is_grad_enabled())  # its gradient reads the input
        if self.kind == "elu":
            return elu(x) if self.inplace else F.elu(x)
        if self.kind == "leaky_relu":
            return F.leaky_relu(x, LEAKY_SLOPE, self.inplace)
        return torch.tanh(x) if self.kind == "tanh" else F.relu(x, self.inplace)

    def onnx(self, g: Graph, x: str) -> str:
        if self.kind == "swish":
            return g.add("Mul", [x, g.add("Sigmoid", [x])])
        if self.kind == "leaky_relu":
            return g.add("LeakyRelu", [x], alpha=LEAKY_SLOPE)
        return g.add({"elu": "Elu", "relu": "Relu", "tanh": "Tanh"}[self.kind], [x])


class Chain(nn.Sequential):
    """One after the other. They are called without torch's hooks, which cost as much as a layer of ten rows."""

    out_features: int
    """Width of the result, where whoever makes the chain says so."""

    def forward(self, x: Tensor) -> Tensor:
        for module in self._modules.values():
            x = module.forward(x)
        return x

    def onnx(self, g: Graph, x: str) -> str:
        for module in self:
            x = write_onnx(module, g, x)
        return x


def named(name: str, module: nn.Module, out_features: int) -> Chain:
    """The module alone, its weights under that name: where Sample Factory keeps them."""
    chain = Chain(OrderedDict({name: module}))
    chain.out_features = out_features
    return chain


def fully_connected(
    in_features: int,
    widths: Sequence[int],
    activation: str,
    init: Init | None = None,
    name: str = "",
    first: Callable[..., Linear] = Linear,
) -> Chain:
    """Linear layers of those widths, each followed by the activation; empty for no widths. name: see `named`. first:
    makes the first one."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [(Linear if layers else first)(in_features, width, init), Activate(activation)]
        in_features = width
    chain = Chain(*layers)
    chain.out_features = in_features
    return named(name, chain, in_features) if name else chain
