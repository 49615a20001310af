"""Pictures encoded, and remembered, in int8 while a policy acts, on CPUs without a faster format; it learns otherwise.

Activations are codes 0..255, one grid for each layer's; weights -127..127, one scale for each output; sums are whole
numbers, so a row's result does not depend on the rows beside it. What products read are codes 0..127 on CPUs that cut
sums of two products at 32,767 (`largest_factor`). Grids come from the activations of some decisions of
the latest rollout (`Int8Acting.calibrate`), weights from the newest. What is recorded of a decision are the
probabilities that it was drawn with, so importance ratios know of the rounding.
Source: Jacob et al. 2018 (arXiv 1712.05877), sections 2.1 to 2.3; for actors of reinforcement learning Krishnan et al.
2022 (QuaRL, arXiv 1910.01055), section 4. Products are oneDNN's, which torch's own compiler uses too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from palus.nn.cores import Core
from palus.nn.encoders import Apart, ImageEncoder, Joint, ResidualBlock
from palus.nn.layers import Activate, Chain, Convolution, Linear, look_up
from palus.types import F32, AnyArray

LARGEST = 127
"""Of a weight's code."""
MARGIN = 1.1
"""Grids reach so much further than what was seen: the next rollout's decisions are others."""
CALIBRATED_ROWS = 16
CORE = ""
"""Stands among names of observations."""
FEWEST_PRODUCTS = 2_000_000
"""Multiplications of a row. Smaller encoders have little to gain."""
WORTH_IT = 1.3
"""So many times faster int8 has to be to be taken; where it wins, it wins by 1.6 (AVX2) to four."""
TIMED, TIMED_ROWS = 6, 16
SATURATION = {"elu": -4.0, "relu": 0.0}
"""What is below makes no difference that a code could tell."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Grid:
    """A code, 0 to `most`, stands for (code - zero) * step."""

    step: float
    zero: int
    most: int = 255

    @classmethod
    def over(cls, low: float, high: float, most: int = 255) -> Grid:
        """The finest one from low to high, 0 among its numbers."""
        low, high = min(low, 0.0), max(high, 0.0)
        step = max((high - low) / most, 1e-8)
        return cls(step, round(-low / step), most)

    @property
    def values(self) -> F32:
        """What codes of eight bits stand for, [256]."""
        values: F32 = ((np.arange(256) - self.zero) * self.step).astype(np.float32)
        return values


@njit(cache=True, nogil=True, fastmath=True)
def _encode(x: F32, per_step: float, zero: float, most: float, codes: AnyArray) -> None:
    """x: [n]; codes: [n] uint8."""
    a, b, low, high = np.float32(per_step), np.float32(zero + 0.5), np.float32(0.0), np.float32(most)
    for i in range(x.shape[0]):
        codes[i] = np.uint8(min(max(x[i] * a + b, low), high))


@njit(cache=True, nogil=True, fastmath=True)
def _encode_weights(weight: F32, scale: F32, codes: AnyArray) -> None:
    """weight: [n, m]; scale: [n], of a row what its largest weight's code stands for; codes: [n, m] int8."""
    for i in range(weight.shape[0]):
        row, most = weight[i], np.float32(1e-12)
        for j in range(row.shape[0]):
            most = max(most, abs(row[j]))
        scale[i] = most / np.float32(LARGEST)
        per_step, half = np.float32(LARGEST) / most, np.float32(LARGEST + 0.5)
        for j in range(row.shape[0]):
            codes[i, j] = np.int8(np.int32(row[j] * per_step + half) - LARGEST)  # what is cut is positive


@njit(cache=True, nogil=True, fastmath=True)
def _add(x: AnyArray, y: AnyArray, a: float, b: float, c: float, out: AnyArray) -> None:
    """out = a x + b y + c, rounded. x, y, out: [n] uint8."""
    of_x, of_y, constant = np.float32(a), np.float32(b), np.float32(c + 0.5)
    low, high = np.float32(0.0), np.float32(255.0)
    for i in range(x.shape[0]):
        out[i] = np.uint8(min(max(np.float32(x[i]) * of_x + np.float32(y[i]) * of_y + constant, low), high))


def _flat(x: Tensor) -> AnyArray:
    """All numbers as they lie in memory, [n], a view."""
    return x.as_strided((x.numel(),), (1,)).numpy()


def encode(x: Tensor, grid: Grid) -> Tensor:
    """The codes of x, laid out as x is."""
    codes = torch.empty_like(x, dtype=torch.uint8)
    _encode(_flat(x), 1.0 / grid.step, float(grid.zero), float(grid.most), _flat(codes))
    return codes


def _weights(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of the weights, and scale and zero of each output."""
    codes, scale = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    _encode_weights(weight.contiguous().flatten(1).numpy(), scale.numpy(), codes.flatten(1).numpy())
    return codes, scale, torch.zeros(len(weight), dtype=torch.int64)


def _shape_after(layer: Convolution, shape: Sequence[int]) -> tuple[int, int, int]:
    """[channels, height, width] of what a convolution makes of such a picture."""
    (kernel, _), (stride, _), padding = layer.kernel_size, layer.stride, int(layer.padding[0])
    height, width = ((size + 2 * padding - kernel) // stride + 1 for size in shape[1:])
    return layer.out_channels, height, width


Step = Callable[[Tensor], Tensor]


def _convolution(layer: Convolution, shape: Sequence[int], given: Grid, found: Grid) -> Step:
    """Codes on one grid -> codes on another. shape: of what is given."""
    assert given.most <= largest_factor()
    codes, scale, zero = _weights(layer.weight.detach())
    options = list(layer.stride), list(layer.padding), [1, 1], 1
    packed = torch.ops.onednn.qconv_prepack(codes, scale, given.step, given.zero, *options, list(shape))
    bias = layer.bias.detach().clone() if layer.bias is not None else None

    def step(x: Tensor) -> Tensor:
        return torch.ops.onednn.qconv2d_pointwise(  # type: ignore[no-any-return]
            x, given.step, given.zero, packed, scale, zero, bias, *options,
            found.step, found.zero, torch.uint8, "none", [], "",
        )  # fmt: skip

    return step


def _product(weight: Tensor, bias: Tensor, given: Grid) -> Step:
    """Codes [R, in] -> [R, out] float32."""
    codes, scale, zero = _weights(weight.detach())
    packed, bias = torch.ops.onednn.qlinear_prepack(codes, None), bias.detach().clone()

    def step(x: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise(  # type: ignore[no-any-return]
            x, given.step, given.zero, packed, scale, zero, bias, 1.0, 0, torch.float32, "none", [], ""
        )

    return step


def _dense(layer: Linear, channels: int, given: Grid) -> Step:
    """Codes of pictures -> [R, out] float32. channels: of the pictures, whose memory has them last."""
    assert given.most <= largest_factor()
    weight = layer.weight.view(layer.out_features, channels, -1).transpose(1, 2).flatten(1)
    product = _product(weight, layer.bias, given)
    return lambda x: product(x.permute(0, 2, 3, 1).reshape(len(x), -1))


def _coded(weight: Tensor, bias: Tensor, given: Grid) -> Step:
    """[R, in] float32 -> [R, out] float32."""
    assert given.most <= largest_factor()
    product = _product(weight, bias, given)
    return lambda x: product(encode(x.contiguous(), given))


def _activation(layer: Activate, given: Grid) -> tuple[Step, Grid]:
    """Codes -> codes on the grid of what the activation can give."""
    values = torch.from_numpy(given.values)
    active = Activate(layer.kind, inplace=False)(values)
    found = Grid.over(float(active.min()), float(active.max()), largest_factor())
    table, inplace = encode(active, found).numpy(), layer.inplace

    def step(x: Tensor) -> Tensor:
        out = x if inplace else x.clone()
        look_up(_flat(out), table)
        return out

    return step, found


class _Packed:
    """The passes of one encoder by its present weights. ranges: as `_ranges` gave them, in the same order."""

    def __init__(self, encoder: ImageEncoder, shape: Sequence[int], ranges: Sequence[Range]) -> None:
        """shape: [R, channels, height, width] of what is encoded."""
        self._ranges, self._shape = iter(ranges), tuple(shape)
        self._given = Grid.over(*next(self._ranges), largest_factor())
        steps, grid = self._chain(encoder.conv_head, self._given)
        first, *self._rest = encoder.mlp_layers
        assert isinstance(first, Linear)
        self._steps = [*steps, _dense(first, self._shape[1], grid)]

    def __call__(self, x: Tensor) -> Tensor:
        """[R, channels, height, width] float32, channels last in memory -> [R, out_features] float32."""
        x = encode(x, self._given)
        for step in self._steps:
            x = step(x)
        for layer in self._rest:
            x = layer(x)
        return x

    def _chain(self, chain: Chain, grid: Grid) -> tuple[list[Step], Grid]:
        steps: list[Step] = []
        for layer in chain:
            if isinstance(layer, Activate):
                step, grid = _activation(layer, grid)
            elif isinstance(layer, Convolution):
                found = Grid.over(*next(self._ranges))
                step, grid = _convolution(layer, self._shape, grid, found), found
                self._shape = (self._shape[0], *_shape_after(layer, self._shape[1:]))
            else:
                assert isinstance(layer, ResidualBlock)
                inner, within = self._chain(layer.res_block_core, grid)
                found = Grid.over(*next(self._ranges))
                step, grid = partial(_residual, inner, grid, within, found), found
            steps.append(step)
        return steps, grid


def _residual(inner: Sequence[Step], of_x: Grid, of_y: Grid, found: Grid, x: Tensor) -> Tensor:
    y = x
    for step in inner:
        y = step(y)
    a, b = of_x.step / found.step, of_y.step / found.step
    out = torch.empty_like(x)
    _add(_flat(x), _flat(y), a, b, found.zero - a * of_x.zero - b * of_y.zero, _flat(out))
    return out


def _ranges(encoder: ImageEncoder, x: Tensor) -> tuple[list[Range], Tensor]:
    """The least and the greatest number of the input, then of what each convolution and each residual block gives; and
    the features."""
    found: list[Range] = []

    def chain(layers: Chain, x: Tensor) -> Tensor:
        for layer, after in zip(layers, [*list(layers)[1:], None], strict=True):
            if isinstance(layer, ResidualBlock):
                x = x + chain(layer.res_block_core, x)
                found.append(_range(x))
            else:
                x = layer(x)
            if isinstance(layer, Convolution):
                found.append(_range(x, SATURATION.get(after.kind) if isinstance(after, Activate) else None))
        return x

    found.append(_range(x))
    features: Tensor = encoder.mlp_layers(chain(encoder.conv_head, x).flatten(1))
    return found, features


def _range(x: Tensor, floor: float | None = None) -> Range:
    """How far a grid for such numbers reaches. floor: what is below makes no difference."""
    low, high = (MARGIN * float(end) for end in x.aminmax())
    return low if floor is None else max(low, floor), high


def _core(core: Core, given: Grid) -> Remember:
    """One decision's pass by the present weights. given: of what the core is given; its states lie within +-1."""
    weights, unit = [layer[:4] for layer in core.core.all_weights], Grid.over(-1.0, 1.0, largest_factor())
    products = [
        (_coded(w_ih, b_ih, unit if k else given), _coded(w_hh, b_hh, unit))
        for k, (w_ih, w_hh, b_ih, b_hh) in enumerate(weights)
    ]
    return lambda x, states, keep: core.act(x, states, products)


def _fits(encoder: nn.Module, shape: Sequence[int]) -> bool:
    """Whether all of an encoder's layers are known here, and it multiplies enough."""
    if not isinstance(encoder, ImageEncoder) or not len(encoder.mlp_layers) or not len(encoder.conv_head):
        return False
    known = (Activate, Convolution, Linear, ResidualBlock, Chain, ImageEncoder)
    return all(isinstance(m, known) for m in encoder.modules()) and _products(encoder, shape) >= FEWEST_PRODUCTS


def _products(encoder: ImageEncoder, shape: Sequence[int]) -> int:
    """Multiplications of one row."""
    total = sum(layer.weight.numel() for layer in encoder.mlp_layers if isinstance(layer, Linear))
    for layer in encoder.conv_head.modules():
        if isinstance(layer, Convolution):
            shape = _shape_after(layer, shape)
            total += layer.weight.numel() * shape[1] * shape[2]
    return total


@cache
def largest_factor() -> int:
    """Of codes that are multiplied by weights: the largest with which this CPU adds such products up as whole numbers.

    127 on CPUs that cut sums of two at 32,767 (AVX2, AVX-512 without VNNI), 0 where other builds of torch have no such
    products. Known by answers, so always the same on one machine.
    """
    try:
        product = _product(torch.full((32, 64), float(LARGEST)), torch.zeros(32), Grid(1.0, 0))
        sums = {most: product(torch.full((16, 64), most, dtype=torch.uint8)) for most in (255, LARGEST)}
    except (AttributeError, NotImplementedError, RuntimeError):  # of which one depends on the build
        return 0
    return next((most for most, found in sums.items() if (found == 64.0 * most * LARGEST).all()), 0)


Remember = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""As `Core.forward` of one decision of rows that all go on."""


class Int8Acting:
    """The image encoders of a network, and the core behind them, as it acts: exact before the first `calibrate`.

    ranges: of the encoders by observation, under CORE of what all encoders give; for checkpoints.
    """

    def __init__(self, images: Mapping[str, ImageEncoder], encoder: nn.Module, core: Core) -> None:
        """images: those to be encoded so; encoder: of all observations."""
        self._images, self._encoder, self._core, self._mutex = dict(images), encoder, core, threading.Lock()
        self._packed: dict[str, _Packed] = {}
        self._remember: Remember | None = None
        self._version = -1
        self.ranges: dict[str, list[Range]] = {}

    def twin(self, encoder: Apart | Joint, core: Core) -> Int8Acting:
        """The same of a network of the same kind. encoder, core: its."""
        named = _inner(encoder).items()
        images = {name: own for name, own in named if name in self._images and isinstance(own, ImageEncoder)}
        return Int8Acting(images, encoder, core)

    def calibrate(self, inputs: Mapping[str, Tensor]) -> None:
        """Take grids from some rows. inputs: as `Network.forward` takes them, whose weights do not change meanwhile."""
        with torch.inference_mode():
            told = {name: _ranges(encoder, inputs[name]) for name, encoder in self._images.items()}
            found = {name: ranges for name, (ranges, _) in told.items()}
            if self._core.layers:
                features = {name: features for name, (_, features) in told.items()}
                found[CORE] = [_range(self._encoder.forward({**inputs, **features}))]
        self.begin_with(found)

    def begin_with(self, ranges: Mapping[str, Sequence[Range]]) -> None:
        """Take grids that `ranges` had; with none, act as exactly as before the first ones."""
        with self._mutex:
            self.ranges = {name: [(float(low), float(high)) for low, high in own] for name, own in ranges.items()}
            self._packed, self._remember, self._version = {}, None, -1

    def encoded(self, inputs: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Remember | None]:
        """Features of pictures, which pass through their encoders as they are: [R, out_features] float32; and what
        stands in for the core, None where it computes itself.

        version: of the weights, which do not change meanwhile; packed anew where it is another one.
        """
        with self._mutex:
            if self._version != version and self.ranges:
                self._packed = {
                    name: _Packed(encoder, inputs[name].shape, self.ranges[name])
                    for name, encoder in self._images.items()
                }
                if self._core.layers:
                    self._remember = _core(self._core, Grid.over(*self.ranges[CORE][0], largest_factor()))
                self._version = version
            packed, remember = self._packed, self._remember
        return {name: encode(inputs[name]) for name, encode in packed.items()}, remember

    def gain(self, shapes: Mapping[str, Sequence[int]]) -> float:
        """How many times faster pictures are encoded than in fp32, on this thread; the best of some tries of each."""
        noise = torch.Generator().manual_seed(0)
        times: dict[str, float] = {"int8": 0.0, "fp32": 0.0}
        for name, encoder in self._images.items():
            x = torch.randn(TIMED_ROWS, *shapes[name], generator=noise).contiguous(memory_format=torch.channels_last)
            with torch.inference_mode():
                packed = _Packed(encoder, x.shape, _ranges(encoder, x)[0])
                tries = [(_seconds(packed, x), _seconds(encoder, x)) for _ in range(TIMED)]
            for kind, own in zip(times, zip(*tries, strict=True), strict=True):
                times[kind] += min(own)
        return times["fp32"] / times["int8"]


def _inner(encoder: Apart | Joint) -> dict[str, nn.Module]:
    """The encoders by observation, without what is around one alone."""
    named = encoder.encoders.items()
    return {name: own[0] if isinstance(own, Chain) and len(own) == 1 else own for name, own in named}


def _seconds(encode: Step, x: Tensor) -> float:
    start = time.perf_counter()
    encode(x)
    return time.perf_counter() - start


def int8_acting(encoder: Apart | Joint, core: Core, shapes: Mapping[str, Sequence[int]]) -> Int8Acting | None:
    """For a network with large image encoders; None where there are none, or where the CPU is not faster so, or has no
    exact products of int8. shapes: [channels, height, width] of pictures, by observation."""
    named = _inner(encoder).items()
    chosen = {name: own for name, own in named if name in shapes and _fits(own, shapes[name])}
    if not chosen or not largest_factor():
        return None
    found = Int8Acting(chosen, encoder, core)  # type: ignore[arg-type]
    return found if found.gain(shapes) > WORTH_IT else None
