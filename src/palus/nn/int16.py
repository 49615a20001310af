"""Products of a learner as whole numbers of 13 bits, on CPUs without units for bfloat16: faster by a quarter to a half.

Every row of a factor, along the sum, is codes -4095..4095 times one scale, so what is lost is an 8190th of the row's
largest number at most; bfloat16 loses up to a 512th of each number. One instruction multiplies twice as many such
numbers as of float32, and their sums are exact: 128 products fit into 32 bits, spans of these are added up in float32.
So a row's result depends on no other row. Gradients use the codes of the forward pass, and only what comes from behind
is coded anew; a scale along the sum goes into the other factor before that is coded.

The weights stay float32, and so does all else: activations, sums, what acts. Source of dynamic fixed point in training:
Courbariaux et al. 2015 (arXiv 1412.7024), section 5; of 16-bit numbers with a shared scale and 32-bit sums: Das et al.
2018 (arXiv 1802.00930), section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from palus.types import F32, AnyArray

MOST = 4095
"""The largest code: so many that SPAN products of two add up within 32 bits."""
SPAN = 128
"""Products that are added up as whole numbers."""


def _features() -> set[str]:
    """Of this CPU, as far as Numba compiles for it."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:  # type: ignore[attr-defined]
        return set()
    return {name for name, there in llvm.get_host_cpu_features().items() if there}


AVAILABLE = "avx2" in _features()
LANES = 16 if "avx512bw" in _features() else 8
"""Sums in a register."""
ROWS, COLUMNS = (12, 2 * LANES) if LANES == 16 else (6, 2 * LANES)
"""Of a result's tile, whose sums are kept in registers."""
AT_ONCE = 4 if LANES == 16 else 12
"""Panels of rows that are multiplied by all columns before the next ones: their codes stay in the nearest cache, their
results in the next one."""
FEWEST, EVEN = 256, 32
"""Numbers on each side of a layer that is worth it, and what they are a multiple of."""

PAIRS = SPAN // 2


def _tile(of_rows: bool) -> Any:
    """Of a panel of ROWS rows and one of COLUMNS columns, some pairs of numbers: their products added up, times the
    scales, plus what was there before.

    (rows: int16, as `of_rows` says, one row of SPAN after the other or pairs of ROWS rows side by side; columns:
    [PAIRS, COLUMNS, 2] int16; pairs; scales of rows and of columns; before, its numbers from row to row; out, the
    same). Every array is followed by the place where what is meant begins in it: cutting arrays takes time.
    """
    of_row, of_pair = (PAIRS, 1) if of_rows else (1, ROWS)

    @intrinsic
    def tile(
        context: Any, rows: Any, p: Any, columns: Any, q: Any, pairs: Any, of_rows: Any, r: Any, of_columns: Any,
        c: Any, before: Any, b: Any, skip: Any, out: Any, o: Any, width: Any,
    ) -> Any:  # fmt: skip
        n = types.int64
        signature = types.void(rows, n, columns, n, n, of_rows, n, of_columns, n, before, n, n, out, n, n)
        word, index, number = ir.IntType(32), ir.IntType(64), ir.FloatType()
        halves, sums = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(word, LANES)
        floats = ir.VectorType(number, LANES)
        everywhere = ir.Constant(ir.VectorType(word, LANES), [0] * LANES)
        name = "llvm.x86.avx512.pmaddw.d.512" if LANES == 16 else "llvm.x86.avx2.pmadd.wd"

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(k: int) -> Any:
                array = context.make_array(signature.args[k])(context, builder, args[k]).data
                return builder.gep(array, [args[k + 1]])

            def spread(value: Any, kind: Any) -> Any:
                one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, word(0))
                return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), everywhere)

            def at(pointer: Any, places: Any, kind: Any) -> Any:
                return builder.bitcast(builder.gep(pointer, [places]), kind.as_pointer())

            place = ir.IntType(8).as_pointer()
            multiply = builder.module.declare_intrinsic(name, (), ir.FunctionType(sums, (halves, halves)))
            kind = ir.FunctionType(ir.VoidType(), (place, word, word, word))
            fetch = builder.module.declare_intrinsic("llvm.prefetch", (place,), kind)
            left, right = builder.bitcast(data(0), word.as_pointer()), builder.bitcast(data(2), word.as_pointer())
            begin, loop, behind = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.branch(loop)
            builder.position_at_end(loop)
            k = builder.phi(index)
            k.add_incoming(index(0), begin)
            totals = [[builder.phi(sums) for _ in range(2)] for _ in range(ROWS)]
            first = builder.mul(k, index(COLUMNS))
            two = [builder.load(at(right, builder.add(first, index(j * LANES)), halves), align=4) for j in range(2)]
            for j in range(2):  # of the next panel: to read, into the nearest cache, which is one for data
                ahead = builder.gep(right, [builder.add(first, index(PAIRS * COLUMNS + j * LANES))])
                builder.call(fetch, [builder.bitcast(ahead, place), word(0), word(3), word(1)])
            own = builder.mul(k, index(of_pair))
            added = list[Any]()
            for i, row in enumerate(totals):
                value = builder.load(builder.gep(left, [builder.add(own, index(i * of_row))]), align=4)
                value = builder.bitcast(spread(value, sums), halves)
                for total, column in zip(row, two, strict=True):
                    total.add_incoming(ir.Constant(sums, [0] * LANES), begin)
                    added.append(builder.add(total, builder.call(multiply, [value, column])))
            following = builder.add(k, index(1))
            k.add_incoming(following, builder.block)
            for total, new in zip((total for row in totals for total in row), added, strict=True):
                total.add_incoming(new, builder.block)
            builder.cbranch(builder.icmp_signed("<", following, args[4]), loop, behind)
            builder.position_at_end(behind)
            of_rows, of_columns, before, out = (data(k) for k in (5, 7, 9, 12))
            scales = [builder.load(at(of_columns, index(j * LANES), floats), align=4) for j in range(2)]
            for i in range(ROWS):
                scale = spread(builder.load(builder.gep(of_rows, [index(i)])), floats)
                for j in range(2):
                    total = builder.sitofp(added[2 * i + j], floats)
                    total = builder.fmul(total, builder.fmul(scale, scales[j]))
                    there = builder.add(builder.mul(args[11], index(i)), index(j * LANES))
                    total = builder.fadd(total, builder.load(at(before, there, floats), align=4))
                    place = builder.add(builder.mul(args[14], index(i)), index(j * LANES))
                    builder.store(total, at(out, place, floats), align=4)
            return context.get_dummy_value()

        return signature, generate

    return tile


_tile_of_rows, _tile_of_pairs = _tile(True), _tile(False)
# Indices are unsigned below: signed ones may count from the end, and to look costs time.


@njit(cache=True, nogil=True)
def multiply(
    rows: AnyArray, in_pairs: bool, columns: AnyArray, of_rows: F32, of_columns: F32, before: F32, out: F32, count: int
) -> None:
    """out = before + rows @ columns, with the scales of both.

    rows: [spans, panels, ROWS SPAN], of each panel one row after the other or, `in_pairs`, as `encode_columns`
    lays them out; columns: [spans, panels, COLUMNS SPAN]; of_rows: [R], R a multiple of ROWS; of_columns: [C];
    before: [C]; out: [R, C]; count: numbers along the sum, even.
    """
    spans, down, across, width = rows.shape[0], rows.shape[1], columns.shape[1], out.shape[1]
    first = before.reshape(1, width)
    for start in range(0, down, AT_ONCE):
        for span in range(spans):
            pairs = min(count - span * SPAN, SPAN) // 2
            there, skip = (out, width) if span else (first, 0)
            for j in range(across):
                c, q = j * COLUMNS, (span * across + j) * COLUMNS * SPAN
                for i in range(start, min(start + AT_ONCE, down)):
                    r, p = i * ROWS, (span * down + i) * ROWS * SPAN
                    b, o = r * skip + c, r * width + c
                    if in_pairs:
                        _tile_of_pairs(
                            rows, p, columns, q, pairs, of_rows, r, of_columns, c, there, b, skip, out, o, width
                        )
                    else:
                        _tile_of_rows(
                            rows, p, columns, q, pairs, of_rows, r, of_columns, c, there, b, skip, out, o, width
                        )


@njit(cache=True, nogil=True, forceinline=True)
def _encode_row(row: F32, along: F32, r: int, codes: AnyArray, scales: F32) -> None:
    half, most, bits = np.float32(MOST + 0.5), np.float32(MOST), np.int32(0)
    for k in range(row.shape[0]):
        bits = max(bits, np.int32(np.float32(row[k] * along[k]).view(np.int32) & np.int32(0x7FFFFFFF)))
    largest = np.int32(bits).view(np.float32)
    scales[r] = largest / most
    per = most / max(largest, np.float32(1e-30))
    for s in range(codes.shape[0]):
        own, first = codes[s, r], s * SPAN
        known = min(row.shape[0] - first, SPAN)
        part, factors = row[first : first + known], along[first : first + known]
        for k in range(known):
            own[k] = np.int16(np.int32(part[k] * factors[k] * per + half) - MOST)  # what is cut is positive


@njit(cache=True, nogil=True, forceinline=True)
def _measure_row(row: F32, factor: np.float32, bits: AnyArray, sums: F32) -> None:
    """bits: of the largest number of every column so far, times its factor, without its sign."""
    for n in range(row.shape[0]):
        sums[n] += row[n]
        bits[n] = max(bits[n], np.int32(np.float32(row[n] * factor).view(np.int32) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True, forceinline=True)
def _scales_of(bits: AnyArray, scales: F32) -> None:
    for n in range(bits.shape[0]):
        scales[n] = np.int32(bits[n]).view(np.float32) / np.float32(MOST)


@njit(cache=True, nogil=True)
def encode_rows(x: F32, along: F32, codes: AnyArray, scales: F32) -> None:
    """Codes of x * along, row by row. x: [R, K]; along: [K]; codes: [spans, >= R, SPAN]; scales: [>= R]. What x has
    not stays as it is."""
    for r in range(x.shape[0]):
        _encode_row(x[r], along, r, codes, scales)


@njit(cache=True, nogil=True)
def measure_columns(x: F32, along: F32, scales: F32, sums: F32) -> None:
    """scales: of x * along, column by column; sums: of x. x: [R, N]; along: [>= R]; scales: [>= N], sums: [N]."""
    bits = np.zeros(x.shape[1], np.int32)
    sums[:] = 0.0
    for r in range(x.shape[0]):
        _measure_row(x[r], along[r], bits, sums)
    _scales_of(bits, scales)


@njit(cache=True, nogil=True)
def encode_and_measure(x: F32, along: F32, codes: AnyArray, scales: F32, of_rows: F32, down: F32, sums: F32) -> None:
    """`encode_rows` by along and scales, and `measure_columns` by of_rows, with scales `down`: x is read once."""
    bits = np.zeros(x.shape[1], np.int32)
    sums[:] = 0.0
    for r in range(x.shape[0]):
        _encode_row(x[r], along, r, codes, scales)
        _measure_row(x[r], of_rows[r], bits, sums)
    _scales_of(bits, down)


@njit(cache=True, nogil=True)
def encode_columns(x: F32, along: F32, scales: F32, codes: AnyArray) -> None:
    """Codes of x * along, column by column, two rows side by side. codes: [spans, panels, PAIRS, ROWS] int32."""
    R, N = x.shape
    per, none = np.empty(N, np.float32), np.zeros(N, np.float32)
    both = np.zeros((codes.shape[1], ROWS), np.int32)
    pairs = both.reshape(both.size)
    half = np.float32(MOST + 0.5)
    for n in range(N):
        per[n] = np.float32(1.0) / max(scales[n], np.float32(1e-34))
    for pair in range((R + 1) // 2):
        r = 2 * pair
        first, of_first = x[r], along[r]
        second, of_second = (x[r + 1], along[r + 1]) if r + 1 < R else (none, np.float32(0.0))
        for n in range(N):
            a = np.int32(first[n] * of_first * per[n] + half) - MOST
            b = np.int32(second[n] * of_second * per[n] + half) - MOST
            pairs[n] = np.int32((a & np.int32(0xFFFF)) | np.int32(b << np.int32(16)))
        here, place = codes[pair // PAIRS], pair % PAIRS
        for p in range(codes.shape[1]):
            for i in range(ROWS):
                here[p, place, i] = both[p, i]


@njit(cache=True, nogil=True)
def _interleave(codes: AnyArray, rows: int, pairs: AnyArray) -> None:
    """Codes by rows as columns of a product along the rows. codes: [spans, R, SPAN], R even; pairs: [spans
    of rows, panels, PAIRS, COLUMNS, 2] int16."""
    across = SPAN // COLUMNS
    for pair in range((rows + 1) // 2):
        here, place = pairs[pair // PAIRS], pair % PAIRS
        for s in range(codes.shape[0]):
            first, second = codes[s, 2 * pair], codes[s, 2 * pair + 1]
            for p in range(min(across, pairs.shape[1] - s * across)):
                out, c = here[s * across + p, place], p * COLUMNS
                for n in range(COLUMNS):
                    out[n, 0] = first[c + n]
                    out[n, 1] = second[c + n]


@njit(cache=True, nogil=True)
def _turn(codes: AnyArray, pairs: AnyArray) -> None:
    """Codes by rows as columns of a product along them. codes: [spans, R, PAIRS] int32, R a multiple of COLUMNS;
    pairs: [spans, panels, PAIRS, COLUMNS] int32."""
    for s in range(codes.shape[0]):
        for p in range(pairs.shape[1]):
            part, out = codes[s, p * COLUMNS : (p + 1) * COLUMNS], pairs[s, p]
            for k in range(PAIRS):
                for n in range(COLUMNS):
                    out[k, n] = part[n, k]


def parts(number: int, size: int) -> int:
    return -(-number // size)


def _ones(count: int) -> F32:
    return np.ones(count, np.float32)


def _room(*shape: int) -> AnyArray:
    """For codes, int16. torch's memory begins with a line of the cache, which loads would straddle else."""
    room: AnyArray = torch.empty(shape, dtype=torch.int16).numpy()
    return room


@dataclass(frozen=True)
class CodedRows:
    """A matrix [count, K], row by row. codes: [spans, rows, SPAN] int16, rows a multiple of ROWS; scales:
    [rows]; both mean nothing beyond `count`."""

    codes: AnyArray
    scales: F32
    count: int

    @classmethod
    def room(cls, x: Tensor, grain: int = ROWS) -> CodedRows:
        """For the codes of x, [R, K]. grain: rows are filled up to a multiple."""
        R, K = x.shape
        rows = parts(R, grain) * grain
        return cls(_room(parts(K, SPAN), rows, SPAN), np.empty(rows, np.float32), R)

    @classmethod
    def of(cls, x: Tensor, grain: int = ROWS) -> CodedRows:
        found = cls.room(x, grain)
        found.fill(x)
        return found

    def fill(self, x: Tensor) -> None:
        """Another matrix of the same shape takes its place."""
        array = x.detach().contiguous().numpy()
        encode_rows(array, _ones(array.shape[1]), self.codes, self.scales)

    def beside(self, columns: int, out: AnyArray | None = None) -> AnyArray:
        """Its first columns as those of a product along its rows: [spans, panels, COLUMNS SPAN]."""
        shape = parts(self.count, SPAN), columns // COLUMNS, PAIRS, COLUMNS, 2
        out = _room(*shape) if out is None else out.reshape(shape)
        _interleave(self.codes, self.count, out)
        return out.reshape(*shape[:2], -1)

    def times(self, columns: AnyArray, scales: F32, before: F32, count: int) -> Tensor:
        """before + itself @ columns, [rows, C]. columns: as `beside` and `Int16Weights` give them; scales, before: [C];
        count: numbers along the sum."""
        out = torch.empty(len(self.scales), len(before))
        rows = self.codes.reshape(len(self.codes), -1, ROWS * SPAN)
        multiply(rows, False, columns, self.scales, scales, before, out.numpy(), count)
        return out.resize_(self.count, len(before))  # no view, which could not be changed in place


class Int16Weights:
    """The weights of a layer of N outputs, [N, K], as both products read them; a row's codes are the same in both.

    scales: [N], of the rows; forth: columns of a product along K; back: along N. N and K: multiples of COLUMNS.
    """

    def __init__(self, weight: Tensor) -> None:
        N, K = weight.shape
        self._rows = CodedRows.of(weight, grain=COLUMNS)
        self._turned = _room(parts(K, SPAN), N // COLUMNS, PAIRS, 2 * COLUMNS).view(np.int32)
        self.scales, self.back = self._rows.scales, self._rows.beside(K)
        self.forth = self._turned.view(np.int16).reshape(*self._turned.shape[:2], -1)
        self.ones, self.zeros = _ones(K), np.zeros(K, np.float32)
        _turn(self._rows.codes.view(np.int32), self._turned)

    @staticmethod
    def fit(weight: Tensor) -> bool:
        """Whether a layer of such weights gains from it."""
        return AVAILABLE and min(weight.shape) >= FEWEST and not any(size % EVEN for size in weight.shape)

    def load(self, weight: Tensor) -> None:
        """The weights have changed."""
        self._rows.fill(weight)
        self._rows.beside(weight.shape[1], self.back)
        _turn(self._rows.codes.view(np.int32), self._turned)

    def multiply(self, x: CodedRows, bias: F32) -> Tensor:
        """x @ weights^T + bias: [R, N]."""
        return x.times(self.forth, self.scales, bias, len(self.ones))


def _slopes(slope: Tensor, x: CodedRows, weights: Int16Weights, of_x: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """slope @ weights, [R, K], where it is wanted; slope^T @ x, [N, K]; the sum of the slope's rows, [N]. slope: [R,
    N]."""
    array, (R, N), K = slope.numpy(), slope.shape, len(weights.ones)
    panels, spans, before = parts(N, ROWS), parts(R, SPAN), None
    scales, sums = np.zeros(panels * ROWS, np.float32), np.empty(N, np.float32)
    if of_x:
        rows = CodedRows.room(slope)
        encode_and_measure(array, weights.scales, rows.codes, rows.scales, x.scales, scales, sums)
        before = rows.times(weights.back, weights.ones, weights.zeros, N)
    else:
        measure_columns(array, x.scales, scales, sums)
    codes = _room(spans, panels, PAIRS, 2 * ROWS).view(np.int32)
    encode_columns(array, x.scales, scales, codes)
    out = torch.empty(len(scales), K)
    turned = codes.view(np.int16).reshape(spans, panels, -1)
    multiply(turned, True, x.beside(K), scales, weights.ones, weights.zeros, out.numpy(), R + R % 2)
    return before, out[:N], torch.from_numpy(sums)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, weights: Int16Weights) -> Tensor:
        ctx.x, ctx.weights = CodedRows.of(x), weights
        return weights.multiply(ctx.x, bias.detach().numpy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return *_slopes(slope.contiguous(), ctx.x, ctx.weights, ctx.needs_input_grad[0]), None


_differentiable: Callable[[Tensor, Tensor, Tensor, Int16Weights], Tensor] = _Product.apply


def product(x: Tensor, weight: Tensor, bias: Tensor, weights: Int16Weights) -> Tensor:
    """`torch.nn.functional.linear` by codes. x: [R, K], R > 0; weights: made of `weight`, [N, K]."""
    if torch.is_grad_enabled():
        return _differentiable(x, weight, bias, weights)
    return weights.multiply(CodedRows.of(x), bias.numpy())
