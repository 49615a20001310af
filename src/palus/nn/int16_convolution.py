"""Convolutions as products of codes of 13 bits: see `palus.nn.int16`.

A picture has one scale. Its codes are laid out as the kernel sees them for as many pictures at a time as a cache holds.
By their weights the gradient takes half of the time that oneDNN takes for it in fp32; the gradient by pictures of
convolutions that do not skip places stays oneDNN's, because what they see overlaps too often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from palus.kernels import KeptKernels
from palus.nn.int16 import (
    AVAILABLE,
    COLUMNS,
    MOST,
    PAIRS,
    ROWS,
    SPAN,
    Int16Weights,
    encode_columns,
    encode_rows,
    measure_columns,
    multiply,
    parts,
)
from palus.types import F32, AnyArray

_kernel = KeptKernels.beside(__file__, "int16")
PLACES = 1024
"""Places of results whose codes are laid out at a time."""
RUN = 8
"""Numbers that a row of a kernel is a multiple of."""


@_kernel
def _encode_pictures(x: F32, padding: int, codes: AnyArray, scales: F32) -> None:
    """Codes of pictures, each with one scale. x: [B, H, W C]; codes: [B, H + 2 padding, (W + 2 padding) C], zeros where
    x is not; scales: [B]."""
    half, most = np.float32(MOST + 0.5), np.float32(MOST)
    B, H, width = x.shape
    first = (codes.shape[2] - width) // 2
    for b in range(B):
        bits = np.int32(0)
        for h in range(H):
            row = x[b, h]
            for k in range(width):
                bits = max(bits, np.int32(np.float32(row[k]).view(np.int32) & np.int32(0x7FFFFFFF)))
        largest = np.int32(bits).view(np.float32)
        scales[b] = largest / most
        per = most / max(largest, np.float32(1e-30))
        for h in range(H):
            row, own = x[b, h], codes[b, h + padding, first : first + width]
            for k in range(width):
                own[k] = np.int16(np.int32(row[k] * per + half) - MOST)


def _of_runs(apart: int) -> Any:
    """RUN codes from p on and, where two are meant, as many from q on, one of each in turn, to o and on."""
    kind, wide = (ir.VectorType(ir.IntType(16), size) for size in (RUN, apart * RUN))
    order = [half + k for k in range(RUN) for half in (0, RUN)[:apart]]

    @intrinsic
    def move(context: Any, codes: Any, p: Any, q: Any, out: Any, o: Any) -> Any:
        n = types.int64
        signature = types.void(codes, n, n, out, n)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def at(k: int, place: Any, kind: Any) -> Any:
                array = context.make_array(signature.args[k])(context, builder, args[k]).data
                return builder.bitcast(builder.gep(array, [place]), kind.as_pointer())

            first, second = (builder.load(at(0, place, kind), align=2) for place in args[1:3])
            turns = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
            builder.store(builder.shuffle_vector(first, second, turns), at(3, args[4], wide), align=2)
            return context.get_dummy_value()

        return signature, generate

    return move


_move, _mix = _of_runs(1), _of_runs(2)


@_kernel
def _see(
    codes: AnyArray, places: int, high: int, wide: int, size: int, stride: int, channels: int, rows: AnyArray
) -> None:
    """What a convolution sees at each place of its results, as rows of a product. codes: [B, H, W channels]; places:
    high wide of each picture; rows: [spans, >= places, SPAN]."""
    line, area, all_rows = codes.shape[2], high * wide, rows.shape[1]
    picture, runs = codes.shape[1] * line, size * channels // RUN
    for place in range(places):
        b, at = place // area, place % area
        p = b * picture + at // wide * stride * line + at % wide * stride * channels
        n = 0
        for k in range(size):
            for run in range(runs):
                here, o = p + k * line + run * RUN, (n // SPAN * all_rows + place) * SPAN + n % SPAN
                _move(codes, here, here, rows, o)
                n += RUN


@_kernel
def _lay_out(
    codes: AnyArray, places: int, high: int, wide: int, size: int, stride: int, channels: int, columns: AnyArray
) -> None:
    """What a convolution sees at each place of its results, as columns of a product along them. codes: [B, H, W
    channels]; places: high wide of each, but of the last one, which is seen beside an odd place and multiplied by 0;
    columns: [spans, panels, PAIRS, COLUMNS, 2]."""
    line, panels, area = codes.shape[2], columns.shape[1], high * wide
    picture, runs = codes.shape[1] * line, size * channels // RUN
    for place in range(0, places, 2):
        b, at = place // area, place % area
        p = b * picture + at // wide * stride * line + at % wide * stride * channels
        b, at = (place + 1) // area, (place + 1) % area
        q = b * picture + at // wide * stride * line + at % wide * stride * channels
        start, n = (place // SPAN * panels * PAIRS + place % SPAN // 2) * COLUMNS * 2, 0
        for k in range(size):
            for run in range(runs):
                o = start + n // COLUMNS * (PAIRS * COLUMNS * 2) + n % COLUMNS * 2
                _mix(codes, p + k * line + run * RUN, q + k * line + run * RUN, columns, o)
                n += RUN


@_kernel
def _results(
    x: F32, high: int, wide: int, size: int, stride: int, padding: int, channels: int,
    weights: AnyArray, scales: F32, bias: F32, out: F32,
) -> None:  # fmt: skip
    """Of a convolution. x: [B, H, W channels]; weights: columns of a product along what it sees; scales, bias: [N];
    out: [B high wide + more, N], so many more as are computed at a time."""
    B, area, numbers = len(x), high * wide, size * size * channels
    at_once = min(max(PLACES // area, 1), B)
    height = (at_once * area + ROWS - 1) // ROWS * ROWS
    codes = np.zeros((at_once, x.shape[1] + 2 * padding, x.shape[2] + 2 * padding * channels), np.int16)
    rows = np.zeros((weights.shape[0], height, SPAN), np.int16)
    panels = rows.reshape(weights.shape[0], height // ROWS, ROWS * SPAN)
    along, of_pictures = np.zeros(height, np.float32), np.empty(at_once, np.float32)
    for b in range(0, B, at_once):
        count = min(at_once, B - b)
        _encode_pictures(x[b : b + count], padding, codes[:count], of_pictures)
        for r in range(count * area):
            along[r] = of_pictures[r // area]
        _see(codes, count * area, high, wide, size, stride, channels, rows)
        # What it writes too much are rows of the next pictures, or behind the last ones.
        multiply(panels, False, weights, along, scales, bias, out[b * area : b * area + height], numbers)


@_kernel
def _slopes_of_pictures(
    slope: F32, size: int, stride: int, padding: int, channels: int,
    weights: AnyArray, scales: F32, ones: F32, zeros: F32, out: F32,
) -> None:  # fmt: skip
    """Of what a convolution read. slope: [B, high, wide, N]; weights: columns of a product along N; scales: [N]; ones,
    zeros: [numbers]; out: [B, H, W channels]."""
    B, high, wide, N = slope.shape
    area, numbers, run = high * wide, len(ones), size * channels
    at_once = min(max(PLACES // area, 1), B)
    height = (at_once * area + ROWS - 1) // ROWS * ROWS
    codes = np.zeros((weights.shape[0], height, SPAN), np.int16)
    panels = codes.reshape(weights.shape[0], height // ROWS, ROWS * SPAN)
    along, part = np.empty(height, np.float32), np.empty((height, numbers), np.float32)
    whole = np.empty((out.shape[1] + 2 * padding, out.shape[2] + 2 * padding * channels), np.float32)
    for b in range(0, B, at_once):
        count = min(at_once, B - b)
        encode_rows(slope[b : b + count].reshape(count * area, N), scales, codes, along)
        multiply(panels, False, weights, along, ones, zeros, part, N)
        for picture in range(count):
            whole[:] = 0.0
            for at in range(area):
                r, h, w = np.uint64(picture * area + at), at // wide * stride, np.uint64(at % wide * stride * channels)
                for k in range(np.uint64(size)):
                    line, first = np.uint64(h) + k, k * np.uint64(run)
                    for n in range(np.uint64(run)):
                        whole[line, w + n] += part[r, first + n]
            for h in range(out.shape[1]):
                seen = whole[h + padding, padding * channels : padding * channels + out.shape[2]]
                for n in range(out.shape[2]):
                    out[b + picture, h, n] = seen[n]  # to assign all at once is a sentence to compile for 3 s


@_kernel
def _slopes_of_weights(
    x: F32, slope: F32, size: int, stride: int, padding: int, channels: int, total: F32, sums: F32
) -> None:
    """Of a convolution's weights and biases. x: [B, H, W channels]; slope: [B, high, wide, N]; total: [>= N, numbers],
    of which the first size size channels are the weights of an output; sums: [N]; both are written to."""
    B, high, wide, N = slope.shape
    area = high * wide
    at_once = max(PLACES // area, 1)
    spans, panels, numbers = (at_once * area + SPAN - 1) // SPAN, total.shape[0] // ROWS, total.shape[1]
    codes = np.zeros((at_once + 1, x.shape[1] + 2 * padding, x.shape[2] + 2 * padding * channels), np.int16)
    along, of_pictures = np.empty(at_once * area, np.float32), np.empty(at_once, np.float32)
    scales, own = np.zeros(total.shape[0], np.float32), np.empty(N, np.float32)
    rows = np.empty((spans, panels, PAIRS, ROWS), np.int32)
    columns = np.empty((spans, numbers // COLUMNS, PAIRS, COLUMNS, 2), np.int16)
    ones, nothing, part = np.ones(numbers, np.float32), np.zeros(numbers, np.float32), np.empty_like(total)
    total[:] = 0.0
    sums[:] = 0.0
    for b in range(0, B, at_once):
        count = min(at_once, B - b)
        R = count * area
        _encode_pictures(x[b : b + count], padding, codes[:count], of_pictures)
        for r in range(R):
            along[r] = of_pictures[r // area]
        slopes = slope[b : b + count].reshape(R, N)
        measure_columns(slopes, along, scales, own)
        for n in range(N):
            sums[n] += own[n]
        encode_columns(slopes, along, scales, rows)
        _lay_out(codes, R, high, wide, size, stride, channels, columns)
        used = (R + SPAN - 1) // SPAN
        multiply(
            rows[:used].view(np.int16).reshape(used, panels, 2 * PAIRS * ROWS),
            True,
            columns[:used].reshape(used, numbers // COLUMNS, PAIRS * COLUMNS * 2),
            scales, ones, nothing, part, R + R % 2,
        )  # fmt: skip
        for n in range(N):
            for k in range(numbers):
                total[n, k] += part[n, k]


def rows_of(weight: Tensor) -> Tensor:
    """The weights [N, C, size, size] of a convolution in the order in which it sees pictures, [N, size size C]."""
    return weight.permute(0, 2, 3, 1).flatten(1)


def fits(weight: Tensor) -> bool:
    """Whether a convolution of these weights can be computed so."""
    N, channels, _, size = weight.shape
    return AVAILABLE and not (channels * size % RUN or N % COLUMNS or channels * size * size % COLUMNS)


def _pictures(x: Tensor) -> F32:
    """[B, C, H, W] -> [B, H, W, C]."""
    array: F32 = x.permute(0, 2, 3, 1).contiguous().numpy()
    return array


def _computed(x: Tensor, weight: Tensor, bias: Tensor, weights: Int16Weights, stride: int, padding: int) -> Tensor:
    (B, channels, H, W), (N, *_, size) = x.shape, weight.shape
    high, wide = ((side + 2 * padding - size) // stride + 1 for side in (H, W))
    out = torch.empty(B * high * wide + max(PLACES, high * wide) + ROWS, N)
    _results(
        _pictures(x.detach()).reshape(B, H, W * channels), high, wide, size, stride, padding, channels,
        weights.forth, weights.scales, bias.detach().numpy(), out.numpy(),
    )  # fmt: skip
    # Of another shape, and no view, which could not be changed in place.
    return out.as_strided_((B, N, high, wide), (high * wide * N, 1, wide * N, N))


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, weights: Int16Weights, stride: int, padding: int
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.weights, ctx.stride, ctx.padding = weights, stride, padding
        return _computed(x, weight, bias, weights, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), weights, stride, padding = ctx.saved_tensors, ctx.weights, ctx.stride, ctx.padding
        (B, channels, H, W), (N, *_, size), of_x = x.shape, weight.shape, None
        slopes = _pictures(slope)
        if ctx.needs_input_grad[0] and stride == 1:  # oneDNN's is faster
            sides = [stride] * 2, [padding] * 2, [1] * 2
            of_x = torch.ops.aten.convolution_backward(
                slope, x, weight, None, *sides, False, [0, 0], 1, [True, False, False]
            )[0]
        elif ctx.needs_input_grad[0]:
            of_x = torch.empty_like(x, memory_format=torch.channels_last)
            _slopes_of_pictures(
                slopes, size, stride, padding, channels,
                weights.back, weights.scales, weights.ones, weights.zeros,
                of_x.permute(0, 2, 3, 1).numpy().reshape(B, H, W * channels),
            )  # fmt: skip
        numbers = size * size * channels
        total, sums = torch.empty(parts(N, ROWS) * ROWS, numbers), torch.empty(N)
        pictures = _pictures(x).reshape(B, H, W * channels)
        _slopes_of_weights(pictures, slopes, size, stride, padding, channels, total.numpy(), sums.numpy())
        of_weight = total[:N].view(N, size, size, channels).permute(0, 3, 1, 2)
        return of_x, of_weight, sums, None, None, None


_differentiable: Callable[[Tensor, Tensor, Tensor, Int16Weights, int, int], Tensor] = _Convolution.apply


def convolution(x: Tensor, weight: Tensor, bias: Tensor, weights: Int16Weights, stride: int, padding: int) -> Tensor:
    """`torch.nn.functional.conv2d` of square kernels by codes. x: [B, C, H, W], B > 0; weights: made of `rows_of` the
    weight."""
    if torch.is_grad_enabled():
        return _differentiable(x, weight, bias, weights, stride, padding)
    return _computed(x, weight, bias, weights, stride, padding)
