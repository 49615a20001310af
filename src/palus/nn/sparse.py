"""A linear layer of rows that are mostly zeros, such as rays: what is zero is not multiplied. float32, on the CPU.

Three quarters of what an agent of SoccerTwos sees are zeros, and the layers that read it are a third of the products
of PPO's stock networks. What a row gives depends on no other row.

A row of nothing but rays may come in compact form: of each of n rays the place of its tag in the whole row, -1 where it
has none, then n distances. Tags are ones that need not be looked for, distances are seldom 0: they are multiplied
densely, and so is what stands behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from palus.nn.layers import Linear
from palus.nn.parameters import Init
from palus.types import F32, I32, I64

TILE = 32
"""Outputs that are computed at a time, in registers; their weights fit into the nearest cache."""
CHAINS = 2
"""Sums that run beside each other; rows are filled up with zeros to a multiple of it."""
BLOCK = 256
"""Rows whose gradient is computed at a time, so that a tile of it fits there, too."""
FEWEST_ZEROS, FEWEST_NUMBERS = 2 / 3, 64
"""Share of zeros among the numbers of a row, and numbers: with fewer, to find them costs as much as it saves."""


@dataclass(frozen=True)
class SparseRows:
    """What is not zero in some rows. Those of row r are values[starts[r] : starts[r + 1]], in these places of it."""

    starts: I64
    places: I32
    values: F32

    @classmethod
    def of(cls, x: F32) -> SparseRows:
        """x: [R, D]."""
        rows = cls._room(len(x), x.size)
        _find(x, rows.starts, rows.places, rows.values)
        return rows

    @classmethod
    def _room(cls, rows: int, numbers: int) -> SparseRows:
        room = numbers + rows * (CHAINS - 1)
        return cls(np.empty(rows + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32))

    @classmethod
    def of_tags(cls, x: F32, n: int) -> SparseRows:
        """Rows of ones in these places, nowhere where they are -1. x: [R, .], of which the first n are the places."""
        each = -(-n // CHAINS) * CHAINS
        places: I32 = np.zeros((len(x), each), np.int32)
        values: F32 = np.zeros((len(x), each), np.float32)
        _place(x, n, places, values)
        return cls(np.arange(len(x) + 1) * each, places.ravel(), values.ravel())

    def turned(self, first: int, end: int, width: int) -> SparseRows:
        """The columns of some of the rows. width: how many columns there are."""
        columns = self._room(width, int(self.starts[end] - self.starts[first]))
        _turn(self.starts[first : end + 1], self.places, self.values, columns.starts, columns.places, columns.values)
        return columns

    def add_product(self, tiles: Tensor, out: Tensor) -> None:
        """out += rows @ matrix. tiles: `tiles_of` the matrix [D, N]; out: [R, N]."""
        _multiply(self.starts, self.places, self.values, tiles.numpy(), out.numpy())


def tiles_of(matrix: Tensor, tiles: Tensor | None = None) -> Tensor:
    """[D, N] -> [N / TILE, D, TILE], into memory that is there or new one. N: a multiple of TILE."""
    rows, columns = matrix.stride()
    shape, strides = (matrix.shape[1] // TILE, len(matrix), TILE), (TILE * columns, rows, columns)
    cut = matrix.as_strided(shape, strides)
    return cut.contiguous() if tiles is None else tiles.copy_(cut)


# Indices are unsigned below: signed ones may count from the end, and to look costs a third of the time.


@njit(cache=True, nogil=True)
def _find(x: F32, starts: I64, places: I32, values: F32) -> None:
    n, one, none = np.uint64(0), np.uint64(1), np.uint64(0)
    for r in range(x.shape[0]):
        row, first = x[r], n
        starts[r] = n
        for i in range(row.shape[0]):
            places[n] = i
            n += one if row[i] != np.float32(0.0) else none  # what is zero is written over
        for k in range(first, n):
            values[k] = row[np.uint64(places[k])]
        while n % np.uint64(CHAINS):
            places[n], values[n] = 0, np.float32(0.0)
            n += one
    starts[x.shape[0]] = n


@njit(cache=True, nogil=True)
def _place(x: F32, n: int, places: I32, values: F32) -> None:
    nothing, one = np.float32(0.0), np.float32(1.0)
    for r in range(x.shape[0]):
        row, place, value = x[r], places[r], values[r]
        for k in range(n):
            place[k] = np.int32(max(row[k], nothing))
            value[k] = one if row[k] >= nothing else nothing


@njit(cache=True, nogil=True)
def _turn(starts: I64, places: I32, values: F32, firsts: I64, numbers: I32, turned: F32) -> None:
    D = firsts.shape[0] - 1
    ends = np.zeros(D, np.uint64)
    for k in range(starts[0], starts[-1]):
        ends[np.uint64(places[k])] += np.uint64(1)
    n, chains = np.uint64(0), np.uint64(CHAINS)
    for d in range(D):
        firsts[d], last = n, n + ends[d]
        ends[d] = n
        n = (last + chains - np.uint64(1)) // chains * chains
        for k in range(last, n):
            numbers[k], turned[k] = 0, np.float32(0.0)
    firsts[D] = n
    for r in range(starts.shape[0] - 1):
        for k in range(starts[r], starts[r + 1]):
            column = np.uint64(places[k])
            numbers[ends[column]], turned[ends[column]] = r, values[k]
            ends[column] += np.uint64(1)


@njit(cache=True, nogil=True)
def _multiply(starts: I64, places: I32, values: F32, tiles: F32, out: F32) -> None:
    for j in range(tiles.shape[0]):
        tile = tiles[j]
        for r in range(starts.shape[0] - 1):
            row = out[r, j * TILE : (j + 1) * TILE]
            # The context is Numba's to give, and mypy counts it.
            _add_rows(places, values, starts[r], starts[r + 1], tile, row)  # type: ignore[call-arg]


@intrinsic
def _add_rows(context: Any, places: Any, values: Any, first: Any, end: Any, tile: Any, out: Any) -> Any:
    """out += sum over k in first..end of values[k] tile[places[k]]. tile: [D, TILE]; out: [TILE], both contiguous.

    Written in the compiler's own words because it keeps no array in registers: CHAINS vectors of TILE numbers.
    """
    signature = types.void(places, values, types.int64, types.int64, tile, out)
    vector, index = ir.VectorType(ir.FloatType(), TILE), ir.IntType(64)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), TILE), [0] * TILE)
    nothing, fused = ir.Constant(vector, ir.Undefined), ("contract",)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places, values, tile, out = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1, 4, 5)
        )
        first, end = args[2:4]
        before, loop, behind = builder.block, builder.append_basic_block(), builder.append_basic_block()
        out = builder.bitcast(out, vector.as_pointer())
        builder.cbranch(builder.icmp_signed("<", first, end), loop, behind)
        builder.position_at_end(loop)
        k, sums = builder.phi(index), [builder.phi(vector) for _ in range(CHAINS)]
        k.add_incoming(first, before)
        added = []
        for chain, total in enumerate(sums):
            total.add_incoming(ir.Constant(vector, [0.0] * TILE), before)
            here = builder.add(k, index(chain))
            row = builder.mul(builder.sext(builder.load(builder.gep(places, [here])), index), index(TILE))
            weights = builder.load(builder.bitcast(builder.gep(tile, [row]), vector.as_pointer()), align=4)
            value = builder.insert_element(nothing, builder.load(builder.gep(values, [here])), ir.IntType(32)(0))
            value = builder.shuffle_vector(value, nothing, everywhere)
            added.append(builder.fadd(builder.fmul(value, weights, flags=fused), total, flags=fused))
        following = builder.add(k, index(CHAINS))
        k.add_incoming(following, builder.block)
        for total, own in zip(sums, added, strict=True):
            total.add_incoming(own, builder.block)
        whole = added[0]
        for own in added[1:]:
            whole = builder.fadd(whole, own)
        last = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, end), loop, last)
        builder.position_at_end(last)
        builder.store(builder.fadd(builder.load(out, align=4), whole), out, align=4)
        builder.branch(behind)
        builder.position_at_end(behind)
        return context.get_dummy_value()

    return signature, generate


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, layer: SparseLinear) -> Tensor:
        ctx.rows, ctx.numbers, out = layer.multiplied(x)
        ctx.layer = layer
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        of_weight = slope.new_zeros(ctx.layer.in_features, slope.shape[1])
        for first in range(0, len(slope), BLOCK):
            part = slope[first : first + BLOCK]
            rows = ctx.rows.turned(first, first + len(part), len(of_weight))
            rows.add_product(tiles_of(part), of_weight)
        if ctx.numbers is not None:
            of_weight[ctx.layer.dense] = ctx.numbers.T @ slope
        return None, of_weight.T, slope.sum(0), None


_product: Callable[[Tensor, Tensor, Tensor, SparseLinear], Tensor] = _Product.apply


class SparseLinear(Linear):
    """The same function as `Linear` where `in_features` are mostly zeros. Dense where that is not for this kernel:
    weights in another format or of an odd number of outputs, and an input whose gradient is wanted.

    distances: places of the distances of rays, where rows begin with rays alone; rows may be in compact form then, and
    all numbers behind the last distance follow in them. compiled: by the passes of this module
    (`palus.nn.place.Placement`).
    """

    compiled = True

    def __init__(
        self, in_features: int, out_features: int, init: Init | None = None, distances: Sequence[int] = ()
    ) -> None:
        super().__init__(in_features, out_features, init)
        self.rays = len(distances)
        behind = range(distances[-1] + 1, in_features) if distances else ()
        self.dense = torch.tensor([*distances, *behind], dtype=torch.int64)
        self._tiles: Tensor | None = None
        self._of_dense: Tensor | None = None

    @property
    def reads_rays(self) -> bool:
        """Whether rows may be in compact form, beside weights in fp32."""
        return self.compiled and self.rays > 0 and not self.out_features % TILE

    def pack(self) -> None:
        """Have the present weights at hand as the kernel reads them; to be called whenever they have changed."""
        weight = self.weight.detach()
        if weight.dtype == torch.float32 and weight.is_cpu and not self.out_features % TILE:
            self._tiles = tiles_of(weight.T, self._tiles)
            if self.rays:
                self._of_dense = weight.T[self.dense]

    def multiplied(self, x: Tensor) -> tuple[SparseRows, Tensor | None, Tensor]:
        """Of rows, whole or in compact form [R, .], what is not zero in them, beside it numbers that are multiplied
        densely, and the result [R, out_features]."""
        assert self._tiles is not None
        bias = self.bias.detach()
        if x.shape[1] == self.in_features:
            rows, numbers, out = SparseRows.of(x.numpy()), None, torch.empty(len(x), self.out_features)
            out.copy_(bias)
        else:
            assert self._of_dense is not None
            rows, numbers = SparseRows.of_tags(x.numpy(), self.rays), x[:, self.rays :]
            out = torch.addmm(bias, numbers, self._of_dense)
        rows.add_product(self._tiles, out)
        return rows, numbers, out

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features], or in compact form, -> [..., out_features]."""
        if self._tiles is None or not self.compiled or x.requires_grad:
            return super().forward(x)
        flat = x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled():
            return _product(flat, self.weight, self.bias, self).view(*x.shape[:-1], -1)
        return self.multiplied(flat)[2].view(*x.shape[:-1], -1)  # without what autograd costs
