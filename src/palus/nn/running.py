"""Running mean and variance, of observations element by element and of returns; and what normalises with them.

Images stay uint8 until they enter the network: one compiled pass gathers rows, scales them and writes them in the
network's number format, so no float copy of a whole page exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from palus.kernels import KeptKernels
from palus.nn.bfloat16 import kernel_view, store_row
from palus.nn.graph import Graph
from palus.types import F32, F64, I64, AnyArray

_kernel = KeptKernels.beside(__file__, "bfloat16")
SUMMED_ROWS = 1024
"""Rows of pictures that a device adds up at a time: they take four times their memory, and four times that."""
EPSILON = 1e-5
CLIP = 5.0
"""Both are Sample Factory's: x -> clip((x - mean) / sqrt(variance + EPSILON), +-CLIP)."""


class RunningMoments:
    """Mean and variance of everything seen, in float64; starts with one virtual sample of mean 0 and variance 1.

    Source: Chan, Golub and LeVeque 1979, equation 1.5, the update with whole batches.
    """

    def __init__(self, size: int) -> None:
        self.mean, self.variance, self.count = np.zeros(size), np.ones(size), 1.0

    def copy(self) -> RunningMoments:
        """The same, which stays as it is."""
        found = RunningMoments(len(self.mean))
        found.mean, found.variance, found.count = self.mean, self.variance, self.count  # updates replace them
        return found

    def update(self, mean: F64, variance: F64, count: int) -> None:
        """Take in a batch by its own moments. mean, variance (of the population): [size]; count: samples, > 0."""
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count + delta * delta * (self.count * count / total)
        self.mean, self.variance, self.count = self.mean + delta * (count / total), squares / total, total

    @property
    def deviation(self) -> F64:
        """sqrt(variance + EPSILON)."""
        deviation: F64 = np.sqrt(self.variance + EPSILON)
        return deviation

    def arrays(self, prefix: str) -> dict[str, AnyArray]:
        """`<prefix>running_mean`, `running_var`, `count`, under Sample Factory's names."""
        values = {"running_mean": self.mean, "running_var": self.variance, "count": np.array([self.count])}
        return {prefix + name: value.copy() for name, value in values.items()}

    def load_arrays(self, arrays: Mapping[str, AnyArray], prefix: str) -> None:
        """Continue where `arrays` was taken. KeyError or ValueError when it does not fit."""
        mean, variance = arrays[prefix + "running_mean"], arrays[prefix + "running_var"]
        if mean.size != self.mean.size or variance.size != self.mean.size:
            raise ValueError(f"{prefix}running_mean: {mean.size} numbers; expected {self.mean.size}")
        self.mean, self.variance = (np.array(x, np.float64).ravel() for x in (mean, variance))
        self.count = float(np.ravel(arrays[prefix + "count"])[0])


@partial(_kernel, fastmath=True)
def _sums_uint8(rows: AnyArray, index: I64, total: AnyArray, squares: AnyArray) -> None:
    """Exact sums of whole numbers; uint32 holds 66051 squares of 255."""
    for r in index:
        row = rows[r]
        for j in range(row.shape[0]):
            x = np.uint32(row[j])
            total[j] += x
            squares[j] += x * x


def moments(rows: AnyArray, index: I64, divisor: float) -> tuple[F64, F64]:
    """Mean and population variance of rows[index] / divisor, element by element. rows: [N, size]; index not empty."""
    if rows.dtype != np.uint8:
        chosen = rows[index].astype(np.float64) / divisor
        return chosen.mean(0), chosen.var(0)
    mean, square = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for first in range(0, len(index), 65536):
        total, squares = np.zeros(rows.shape[1], np.uint32), np.zeros(rows.shape[1], np.uint32)
        _sums_uint8(rows, index[first : first + 65536], total, squares)
        mean += total
        square += squares
    return _of_sums(mean, square, len(index), divisor)


def moments_there(rows: Tensor, index: Tensor, divisor: float) -> tuple[F64, F64]:
    """`moments` of uint8 on a device, to the bit: the sums are whole numbers."""
    total, squares = torch.zeros(2, rows.shape[1], dtype=torch.int64, device=rows.device)
    for part in torch.split(index, SUMMED_ROWS):
        chosen = rows[part].int()
        total += chosen.sum(0)
        squares += chosen.square().sum(0)
    return _of_sums(total.cpu().numpy(), squares.cpu().numpy(), len(index), divisor)


def _of_sums(total: AnyArray, squares: AnyArray, count: int, divisor: float) -> tuple[F64, F64]:
    mean, square = total / count, squares / count  # exactly the same value and its square where all are the same
    return mean / divisor, (square - mean * mean) / divisor**2


@partial(_kernel, fastmath=True)
def _scale_images(rows: AnyArray, index: I64, scale: F32, shift: F32, limit: float, out: AnyArray) -> None:
    """out[i, p, c] = clip(rows[index[i], c, p] * scale[c, p] + shift[c, p], +-limit), rounded to the type of out.

    rows: [N, channels, pixels]; a channel is scaled in one go, then laid between the others.
    """
    low, high, pixels = np.float32(-limit), np.float32(limit), rows.shape[2]
    scaled = np.empty(pixels, np.float32)
    for i in range(index.shape[0]):
        for c in range(rows.shape[1]):
            row = rows[index[i], c]
            for p in range(pixels):
                scaled[p] = min(max(np.float32(row[p]) * scale[c, p] + shift[c, p], low), high)
            store_row(scaled, out[i, :, c])


@_kernel
def _copy_rows(rows: AnyArray, index: I64, out: AnyArray, first: int) -> None:
    """out[i, first : first + size] = rows[index[i]], rounded to the type of out. rows: [N, size] float32."""
    for i in range(index.shape[0]):
        store_row(rows[index[i]], out[i, first : first + rows.shape[1]])


@partial(_kernel, fastmath=True)
def _scale_vectors(rows: AnyArray, index: I64, scale: F32, shift: F32, limit: float, out: AnyArray, first: int) -> None:
    """The same of clip(rows * scale + shift, +-limit)."""
    low, high, size = np.float32(-limit), np.float32(limit), rows.shape[1]
    scaled = np.empty(size, np.float32)
    for i in range(index.shape[0]):
        row = rows[index[i]]
        for j in range(size):
            scaled[j] = min(max(np.float32(row[j]) * scale[j] + shift[j], low), high)
        store_row(scaled, out[i, first : first + size])


class ObservationScaler:
    """One observation's way into the network: x / divisor, then normalised where `normalize`."""

    def __init__(self, shape: tuple[int, ...], divisor: float, normalize: bool) -> None:
        self.shape, self.divisor, self.size = shape, divisor, int(np.prod(shape))
        self.moments = RunningMoments(self.size) if normalize else None
        self._there: tuple[Tensor, Tensor] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Fold the present moments into one factor and one summand per element."""
        mean, deviation = np.zeros(self.size), np.ones(self.size)
        if self.moments is not None:
            mean, deviation = self.moments.mean, self.moments.deviation
        scale: F32 = (1.0 / (self.divisor * deviation)).astype(np.float32)
        shift: F32 = (-mean / deviation).astype(np.float32)
        self._scale, self._shift = scale, shift
        if self._there is not None:  # into the same memory, which captured work reads
            for tensor, array in zip(self._there, (scale, shift), strict=True):
                tensor.copy_(torch.from_numpy(array.reshape(self.shape)))
        self._limit = CLIP if self.moments else float(np.finfo(np.float32).max)

    def update(self, rows: AnyArray, index: I64) -> None:
        """Take rows[index] into the moments. rows: [N, *shape]."""
        self.take([self.moments_of(rows, index)])

    def follow(self, other: ObservationScaler) -> None:
        """Scale as another one of the same observation does now."""
        if other.moments is not None:
            self.moments = other.moments.copy()
            self.refresh()

    def moments_of(self, rows: AnyArray | Tensor, index: I64) -> tuple[F64, F64, int] | None:
        """Of rows[index] what `take` takes, None where there are none or nothing is normalised. rows: [N, *shape], a
        tensor only of uint8."""
        if self.moments is None or not len(index):
            return None
        if isinstance(rows, Tensor):
            there = torch.from_numpy(index).to(rows.device)
            return *moments_there(rows.flatten(1), there, self.divisor), len(index)
        return *moments(rows.reshape(len(rows), -1), index, self.divisor), len(index)

    def take(self, batches: Sequence[tuple[F64, F64, int] | None]) -> None:
        """Take batches into the moments, one after the other."""
        for batch in batches:
            if self.moments is not None and batch is not None:
                self.moments.update(*batch)
        if any(batch is not None for batch in batches):
            self.refresh()

    def write(self, rows: AnyArray, index: I64, out: AnyArray, first: int = 0) -> None:
        """Write rows[index], of a vector or of entities, into the columns of `out` from `first` on.

        rows: [N, *shape]; out: [len(index), columns], a `kernel_view`.
        """
        flat = rows.reshape(len(rows), -1)
        if self.moments is None and self.divisor == 1.0 and flat.dtype == np.float32:
            _copy_rows(flat, index, out, first)
        else:
            _scale_vectors(flat, index, self._scale, self._shift, self._limit, out, first)

    def __call__(self, rows: AnyArray, index: I64, dtype: torch.dtype) -> Tensor:
        """rows[index] as the network reads them: [len(index), *shape] in `dtype`, images in channels-last memory."""
        out = torch.empty((len(index), self.size), dtype=dtype)
        if len(self.shape) != 3:
            self.write(rows, index, kernel_view(out))
            return out.view(len(index), *self.shape)
        channels, height, width = self.shape
        planes = (-1, channels, height * width)
        scale, shift = self._scale.reshape(planes[1:]), self._shift.reshape(planes[1:])
        there = kernel_view(out).reshape(-1, height * width, channels)
        _scale_images(rows.reshape(planes), index, scale, shift, self._limit, there)
        return out.view(-1, height, width, channels).permute(0, 3, 1, 2)

    def move(self, device: torch.device) -> None:
        """Have at hand there what `scaled` reads."""
        self._there = tuple(torch.zeros(self.shape, device=device) for _ in range(2))  # type: ignore[assignment]
        self.refresh()

    def scaled(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """What `__call__` computes, by torch's operators where the rows lie: [R, *shape] -> the same in `dtype`."""
        if self.moments is not None or self.divisor != 1.0 or rows.dtype != torch.float32:
            assert self._there is not None, "moved there"
            rows = torch.addcmul(self._there[1], rows.float(), self._there[0])
        if self.moments is not None:
            rows = rows.clamp(-CLIP, CLIP)
        if len(self.shape) != 3:
            return rows.to(dtype)
        return rows.to(dtype, memory_format=torch.channels_last)

    def onnx(self, g: Graph, x: str, dtype: str) -> str:
        """The same on the value x of that type, clip((x / divisor - mean) / deviation, +-CLIP)."""
        x = g.add("Cast", [x], to=1) if dtype == "uint8" else x
        if self.moments is None:
            return x if self.divisor == 1.0 else g.add("Div", [x, g.number(self.divisor)])
        mean, deviation = (v.reshape(1, *self.shape) for v in (self.moments.mean, self.moments.deviation))
        factor = g.constant(f"{x}_factor", (1.0 / (self.divisor * deviation)).astype(np.float32))
        summand = g.constant(f"{x}_summand", (-mean / deviation).astype(np.float32))
        centred = g.add("Add", [g.add("Mul", [x, factor]), summand])
        return g.add("Clip", [centred], min=-CLIP, max=CLIP)
