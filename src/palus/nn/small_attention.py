"""Attention inside very small sets that share their members: a module, and its compiled passes forward and backward.

In MA-POCA's critic a team of G agents forms 1 + G sets of G entities out of 2 G embeddings. Batched matrix products of
2 x 2 are slow, and elementwise tensor code writes hundreds of MB per minibatch; these loops read every number once and
keep what they work on in the first-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.errors import DivergenceError
from palus.kernels import KeptKernels
from palus.nn.bfloat16 import kernel_view, load_row, store_row
from palus.nn.graph import Graph
from palus.nn.layers import Linear
from palus.nn.parameters import normal
from palus.nn.swish import slope, swish_of
from palus.types import F32, I64, AnyArray, Bool

_kernel = partial(KeptKernels.beside(__file__, "bfloat16", "swish"), fastmath=True)
LAYER_NORM_EPSILON = 1e-5
HEADS = 4


@partial(_kernel, forceinline=True)
def _normalize(row: F32, total: np.float32) -> np.float32:
    """row = layer norm of row, [h], whose numbers add up to the total; returns 1 / standard deviation.

    Always inlined: a process that compiles would call it by itself, one that loads from Numba's cache the copy in the
    caller's file, and the two are optimised, and so rounded, differently.
    """
    h = row.shape[0]
    mean, variance = total / np.float32(h), np.float32(0.0)
    for c in range(h):
        row[c] -= mean
        variance += row[c] * row[c]
    inverse = np.float32(1.0 / math.sqrt(variance / h + LAYER_NORM_EPSILON))
    for c in range(h):
        row[c] *= inverse
    return inverse


@partial(_kernel, forceinline=True)
def _normalized(mixed: AnyArray, residual: F32, row: F32) -> np.float32:
    """row = layer norm of mixed + residual, all [h]; returns 1 / standard deviation."""
    total = np.float32(0.0)
    load_row(mixed, row)
    for c in range(row.shape[0]):
        row[c] += residual[c]
        total += row[c]
    inverse: np.float32 = _normalize(row, total)
    return inverse


@_kernel
def _embed(x: AnyArray, first: int, out: AnyArray, inverses: F32) -> None:
    """out[:, first + i] = layer norm of swish(x[:, i]); inverses: 1 / standard deviation. x: [M, n, h]; out: [M, E, h];
    inverses: [M, E]."""
    M, n, h = x.shape
    row, y = np.empty(h, np.float32), np.empty(h, np.float32)
    for m in range(M):
        for i in range(n):
            load_row(x[m, i], row)
            swish_of(row, y)
            total = np.float32(0.0)
            for c in range(h):
                total += y[c]
            inverses[m, first + i] = _normalize(y, total)
            store_row(y, out[m, first + i])


@_kernel
def _embed_backward(x: AnyArray, first: int, out: AnyArray, inverses: F32, grad: AnyArray, dx: AnyArray) -> None:
    """grad: [M, E, h]; dx: [M, n, h]. Through layer norm as in `_pool_backward`, then through swish."""
    M, n, h = x.shape
    row, y, g = np.empty(h, np.float32), np.empty(h, np.float32), np.empty(h, np.float32)
    for m in range(M):
        for i in range(n):
            load_row(out[m, first + i], y)
            load_row(grad[m, first + i], g)
            load_row(x[m, i], row)
            mean, along = np.float32(0.0), np.float32(0.0)
            for c in range(h):
                mean += g[c]
                along += g[c] * y[c]
            mean /= np.float32(h)
            along /= np.float32(h)
            inverse = inverses[m, first + i]
            for c in range(h):
                g[c] = inverse * (g[c] - mean - y[c] * along)
            slope(g, row, y)
            store_row(y, dx[m, i])


@_kernel
def _attend(qkv: AnyArray, sets: I64, present: Bool, heads: int, weights: F32, out: AnyArray) -> None:
    """weights = softmax_j(q_i k_j / sqrt(h)) over the present j of a set; out_i = sum_j w_ij v_j.

    qkv: [M, E, 3 h]; sets: [S, G]; present: [M, G]; weights: [M, S, heads, G, G]; out: [M, S, G, h].
    """
    M, E, _ = qkv.shape
    S, G = sets.shape
    h = out.shape[3]
    size = h // heads
    scale = np.float32(1.0 / math.sqrt(h))
    rows, mixed = np.empty((E, 3, heads, size), np.float32), np.empty((heads, size), np.float32)
    for m in range(M):
        for e in range(E):
            load_row(qkv[m, e], rows[e].reshape(3 * h))
        for s in range(S):
            for i in range(G):
                mixed[:] = 0.0
                for head in range(heads):
                    # Parts of rows, indexed from 0: an index that could be negative is checked and never vectorised.
                    q, part = rows[sets[s, i], 0, head], mixed[head]
                    w = weights[m, s, head, i]
                    top = np.float32(-1e30)
                    for j in range(G):
                        k = rows[sets[s, j], 1, head]
                        dot = np.float32(0.0)
                        for c in range(size):
                            dot += q[c] * k[c]
                        w[j] = dot * scale if present[m, j] else np.float32(-1e6)
                        top = max(top, w[j])
                    total = np.float32(0.0)
                    for j in range(G):
                        w[j] = math.exp(w[j] - top)
                        total += w[j]
                    for j in range(G):
                        w[j] /= total
                        share = w[j]
                        v = rows[sets[s, j], 2, head]
                        for c in range(size):
                            part[c] += share * v[c]
                store_row(mixed.reshape(h), out[m, s, i])


@_kernel
def _attend_backward(qkv: AnyArray, sets: I64, weights: F32, grad: AnyArray, dqkv: AnyArray) -> None:
    """The gradient dqkv [M, E, 3 h] from grad [M, S, G, h].

    dv_j += w_ij g_i;  dw_ij = g_i v_j;  ds_ij = w_ij (dw_ij - sum_l w_il dw_il);  dq_i += ds_ij k_j / sqrt(h).
    """
    M, E, _ = qkv.shape
    S, G = sets.shape
    h, heads = grad.shape[3], weights.shape[2]
    size = h // heads
    scale = np.float32(1.0 / math.sqrt(h))
    rows, drows = np.empty((E, 3, heads, size), np.float32), np.empty((E, 3, heads, size), np.float32)
    grads, dw = np.empty((heads, size), np.float32), np.empty(G, np.float32)
    for m in range(M):
        for e in range(E):
            load_row(qkv[m, e], rows[e].reshape(3 * h))
        drows[:] = 0.0
        for s in range(S):
            for i in range(G):
                load_row(grad[m, s, i], grads.reshape(h))
                for head in range(heads):
                    g, w = grads[head], weights[m, s, head, i]
                    q, dq = rows[sets[s, i], 0, head], drows[sets[s, i], 0, head]
                    mean = np.float32(0.0)
                    for j in range(G):
                        v, dv = rows[sets[s, j], 2, head], drows[sets[s, j], 2, head]
                        share = w[j]
                        dot = np.float32(0.0)
                        for c in range(size):
                            dot += g[c] * v[c]
                        for c in range(size):
                            dv[c] += share * g[c]
                        dw[j] = dot
                        mean += share * dot
                    for j in range(G):
                        k, dk = rows[sets[s, j], 1, head], drows[sets[s, j], 1, head]
                        ds = w[j] * (dw[j] - mean) * scale
                        for c in range(size):
                            dq[c] += ds * k[c]
                        for c in range(size):
                            dk[c] += ds * q[c]
        for e in range(E):
            store_row(drows[e].reshape(3 * h), dqkv[m, e])


@_kernel
def _pool(mixed: AnyArray, x: AnyArray, sets: I64, present: Bool, out: AnyArray) -> None:
    """out_s = mean over the present i of layer_norm(mixed_si + x_member). mixed: [M, S, G, h]; x: [M, E, h]."""
    M, E, h = x.shape
    S, G = sets.shape
    rows, row, pooled = np.empty((E, h), np.float32), np.empty(h, np.float32), np.empty(h, np.float32)
    for m in range(M):
        for e in range(E):
            load_row(x[m, e], rows[e])
        share = np.float32(1.0 / max(present[m].sum(), 1))  # an empty set pools to zeros
        for s in range(S):
            pooled[:] = 0.0
            for i in range(G):
                if present[m, i]:
                    _normalized(mixed[m, s, i], rows[sets[s, i]], row)
                    for c in range(h):
                        pooled[c] += share * row[c]
            store_row(pooled, out[m, s])


@_kernel
def _pool_backward(
    mixed: AnyArray, x: AnyArray, sets: I64, present: Bool, grad: AnyArray, dmixed: AnyArray, dx: AnyArray
) -> None:
    """grad: [M, S, h]. With n the normalised row and g its gradient: d = (g - mean(g) - n mean(g n)) / std."""
    M, E, h = x.shape
    S, G = sets.shape
    rows, drows = np.empty((E, h), np.float32), np.empty((E, h), np.float32)
    row, g, d = np.empty(h, np.float32), np.empty(h, np.float32), np.empty(h, np.float32)
    for m in range(M):
        for e in range(E):
            load_row(x[m, e], rows[e])
        drows[:] = 0.0
        share = np.float32(1.0 / max(present[m].sum(), 1))  # an empty set pools to zeros
        for s in range(S):
            load_row(grad[m, s], g)
            for i in range(G):
                if not present[m, i]:
                    d[:] = 0.0
                    store_row(d, dmixed[m, s, i])
                    continue
                inverse = _normalized(mixed[m, s, i], rows[sets[s, i]], row)
                mean, along = np.float32(0.0), np.float32(0.0)
                for c in range(h):
                    mean += g[c]
                    along += g[c] * row[c]
                mean /= np.float32(h)
                along /= np.float32(h)
                total = drows[sets[s, i]]
                for c in range(h):
                    d[c] = share * inverse * (g[c] - mean - row[c] * along)
                    total[c] += d[c]
                store_row(d, dmixed[m, s, i])
        for e in range(E):
            store_row(drows[e], dx[m, e])


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        M, _, h = parts[0].shape
        out = parts[0].new_empty(M, sum(part.shape[1] for part in parts), h)
        view, inverses = kernel_view(out), np.empty(out.shape[:2], np.float32)
        ctx.save_for_backward(*parts)
        ctx.arrays, first = (view, inverses), 0
        for part in parts:
            _embed(kernel_view(part), first, view, inverses)
            first += part.shape[1]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        parts = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.autograd.grad(embed_formula(*parts), parts, grad, create_graph=True)
        (out, inverses), above = ctx.arrays, kernel_view(grad.contiguous())
        first, found = 0, [torch.empty_like(part) for part in parts]
        for part, own in zip(parts, found, strict=True):
            _embed_backward(kernel_view(part), first, out, inverses, above, kernel_view(own))
            first += part.shape[1]
        return tuple(found)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, sets: Tensor, present: Tensor, heads: int) -> Tensor:
        (M, _, width), (S, G) = qkv.shape, sets.shape
        weights = np.empty((M, S, heads, G, G), np.float32)
        out = qkv.new_empty(M, S, G, width // 3)
        ctx.save_for_backward(qkv, sets, present)
        ctx.arrays, ctx.heads = (kernel_view(qkv), sets.numpy(), weights), heads
        _attend(ctx.arrays[0], ctx.arrays[1], present.numpy(), heads, weights, kernel_view(out))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():  # a gradient of the gradient is wanted, which the compiled pass does not have
            whole, members, present = ctx.saved_tensors
            out = attend_formula(whole, members, present, ctx.heads)
            (slope,) = torch.autograd.grad(out, whole, grad, create_graph=True)
            return slope, None, None, None
        qkv, sets, weights = ctx.arrays
        gradient = grad.new_empty(qkv.shape)
        _attend_backward(qkv, sets, weights, kernel_view(grad), kernel_view(gradient))
        return gradient, None, None, None


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mixed: Tensor, x: Tensor, sets: Tensor, present: Tensor) -> Tensor:
        out = mixed.new_empty(mixed.shape[0], mixed.shape[1], mixed.shape[3])
        mixed_view, x_view, members, there = kernel_view(mixed), kernel_view(x), sets.numpy(), present.numpy()
        ctx.save_for_backward(mixed, x, sets, present)
        ctx.arrays = mixed_view, x_view, members, there
        _pool(mixed_view, x_view, members, there, kernel_view(out))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            mixed, x, members, there = ctx.saved_tensors
            own = mixed.view_as(mixed), x.view_as(x)  # x itself is behind `mixed` too
            slopes = torch.autograd.grad(pool_formula(*own, members, there), own, grad, create_graph=True)
            return slopes[0], slopes[1], None, None
        mixed, x, sets, present = ctx.arrays
        dmixed, dx = grad.new_empty(mixed.shape), grad.new_empty(x.shape)
        _pool_backward(mixed, x, sets, present, kernel_view(grad), kernel_view(dmixed), kernel_view(dx))
        return dmixed, dx, None, None


def _members(x: Tensor, sets: Tensor) -> Tensor:
    """x[:, sets], [M, S, G, ...]; its gradient is added up directly, where that of indexing sorts the places first."""
    return x.index_select(1, sets.flatten()).view(len(x), *sets.shape, -1)


def embed_formula(*parts: Tensor) -> Tensor:
    """What `embed` computes, as torch does it."""
    return F.layer_norm(F.silu(torch.cat(parts, 1)), parts[0].shape[-1:], eps=LAYER_NORM_EPSILON)


def attend_formula(qkv: Tensor, sets: Tensor, present: Tensor, heads: int) -> Tensor:
    """What `attend` computes, as torch does it."""
    h = qkv.shape[2] // 3
    q, k, v = (p.reshape(*p.shape[:-1], heads, -1).transpose(2, 3) for p in torch.split(_members(qkv, sets), h, -1))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(h)).masked_fill(~present[:, None, None, None], -1e6)
    mixed: Tensor = (scores.softmax(-1) @ v).transpose(2, 3).flatten(3)
    return mixed


def pool_formula(mixed: Tensor, x: Tensor, sets: Tensor, present: Tensor) -> Tensor:
    """What `pool` computes, as torch does it."""
    rows = F.layer_norm(mixed + _members(x, sets), mixed.shape[-1:], eps=LAYER_NORM_EPSILON)
    there = present[:, None, :, None].to(rows.dtype)
    return (rows * there).sum(2) / there.sum(2).clamp(min=1.0)


embed: Callable[..., Tensor] = _Embedded.apply
"""Swish and layer norm without weights of parts [M, n, h], beside each other: [M, sum of n, h]."""
attend: Callable[[Tensor, Tensor, Tensor, int], Tensor] = _Attention.apply
"""(qkv [M, E, 3 h], query, key and value side by side; sets [S, G], indices into E; present [M, G] bool; heads) ->
[M, S, G, h]. Scores are divided by sqrt(h), not sqrt(head size), and absent members get -1e6: both as in ML-Agents."""
pool: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _Pool.apply
"""Residual connection, layer norm without weights, mean over the members present, zeros where nobody is:
(mixed [M, S, G, h], what attention adds to the members; x [M, E, h], the members; sets; present) -> [M, S, h]."""


def attention_gain(width: int) -> float:
    """ML-Agents' deviation of the first weights in and around attention."""
    return math.sqrt(0.125 / width)


class SelfAttention(nn.Module):
    """Swish, layer norm, 4 heads, residual connection, layer norm, mean over the members that are present.

    compiled: by the passes of this module; else by torch's operators (`palus.nn.place.Placement`).
    """

    compiled = True

    def __init__(self, width: int) -> None:
        super().__init__()
        init = normal(attention_gain(width))
        self.width = width
        self.query_key_value = Linear(width, 3 * width, init)
        self.out = Linear(width, width, init)

    def forward(self, parts: Sequence[Tensor], sets: Tensor, present: Tensor) -> Tensor:
        """parts: what layers gave for the members, [M, n, h] each, E in all; sets: [S, G] indices into E; present: [M,
        G] bool. Returns [M, S, h]. Raises DivergenceError where the compiled passes meet a number that is not finite.
        """
        join, mix, mean = (embed, attend, pool) if self.compiled else (embed_formula, attend_formula, pool_formula)
        try:
            x = join(*parts)
            mixed = mix(self.query_key_value(x), sets, present, HEADS)
            return mean(self.out(mixed), x, sets, present)
        except ZeroDivisionError as error:  # their fast maths takes NaN for 0
            raise DivergenceError(
                "attention: weights or observations are not finite; lower learning_rate, or check that the game's "
                "observations and rewards are finite, then resume from the last checkpoint"
            ) from error

    def onnx(self, g: Graph, embeddings: str, present: str, count: int) -> str:
        """One set of all. embeddings: [M, E, h]; present: [M, E] floats, 1 where present; count: E. Returns [M, h]."""
        h, size = self.width, self.width // HEADS
        x = layer_norm_onnx(g, embeddings)
        flat = self.query_key_value.onnx(g, g.add("Reshape", [x, g.shape(-1, h)]))
        heads = []
        for k in range(3):
            part = g.columns(flat, k * h, (k + 1) * h)
            part = g.add("Reshape", [part, g.shape(-1, count, HEADS, size)])
            heads.append(g.add("Transpose", [part], perm=[0, 2, 3, 1] if k == 1 else [0, 2, 1, 3]))
        scores = g.add("Div", [g.add("MatMul", [heads[0], heads[1]]), g.number(math.sqrt(h))])
        there = g.add("Unsqueeze", [present], axes=[1, 2])
        lowered = g.add("Mul", [g.add("Sub", [there, g.number(1.0)]), g.number(1e6)])
        shares = g.add("Softmax", [g.add("Add", [g.add("Mul", [scores, there]), lowered])], axis=3)
        mixed = g.add("Transpose", [g.add("MatMul", [shares, heads[2]])], perm=[0, 2, 1, 3])
        rows = self.out.onnx(g, g.add("Reshape", [mixed, g.shape(-1, h)]))
        y = layer_norm_onnx(g, g.add("Add", [g.add("Reshape", [rows, g.shape(-1, count, h)]), x]))
        kept = g.add("Mul", [y, g.add("Unsqueeze", [present], axes=[2])])
        number = g.add("Clip", [g.add("ReduceSum", [present], axes=[1], keepdims=1)], min=1.0)
        return g.add("Div", [g.add("ReduceSum", [kept], axes=[1], keepdims=0), number])


def layer_norm_onnx(g: Graph, x: str, axis: int = 2) -> str:
    """Layer norm without weights over the last axis, whose number is given."""
    centred = g.add("Sub", [x, g.add("ReduceMean", [x], axes=[axis], keepdims=1)])
    variance = g.add("ReduceMean", [g.add("Mul", [centred, centred])], axes=[axis], keepdims=1)
    return g.add("Div", [centred, g.add("Sqrt", [g.add("Add", [variance, g.number(LAYER_NORM_EPSILON)])])])
