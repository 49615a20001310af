"""Dot-product attention inside very small sets that share their members, as one compiled pass forward and backward.

In MA-POCA's critic a team of G agents forms 1 + G sets of G entities out of 2 G embeddings. Batched matrix products of
2 x 2 are slow, and elementwise tensor code writes hundreds of MB per minibatch; these loops touch every number once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from palus.types import F32, I64, Bool


@njit(cache=True, nogil=True, fastmath=True)
def _forward(q: F32, k: F32, v: F32, sets: I64, present: Bool, heads: int, weights: F32, out: F32) -> None:
    """weights = softmax_j(q_i k_j / sqrt(h)) over the present j of a set; out_i = sum_j w_ij v_j.

    q, k, v: [M, E, h]; sets: [S, G]; present: [M, G]; weights: [M, S, heads, G, G]; out: [M, S, G, h].
    """
    h = q.shape[2]
    size = h // heads
    S, G = sets.shape
    scale = np.float32(1.0 / math.sqrt(h))
    for m in range(q.shape[0]):
        for s in range(S):
            for head in range(heads):
                low = head * size
                for i in range(G):
                    a = sets[s, i]
                    top = np.float32(-1e30)
                    for j in range(G):
                        b = sets[s, j]
                        dot = np.float32(0.0)
                        for c in range(low, low + size):
                            dot += q[m, a, c] * k[m, b, c]
                        dot = dot * scale if present[m, j] else np.float32(-1e6)
                        weights[m, s, head, i, j] = dot
                        top = max(top, dot)
                    total = np.float32(0.0)
                    for j in range(G):
                        weights[m, s, head, i, j] = math.exp(weights[m, s, head, i, j] - top)
                        total += weights[m, s, head, i, j]
                    for c in range(low, low + size):
                        out[m, s, i, c] = 0.0
                    for j in range(G):
                        b = sets[s, j]
                        w = weights[m, s, head, i, j] / total
                        weights[m, s, head, i, j] = w
                        for c in range(low, low + size):
                            out[m, s, i, c] += w * v[m, b, c]


@njit(cache=True, nogil=True, fastmath=True)
def _backward(
    q: F32, k: F32, v: F32, sets: I64, heads: int,
    weights: F32, grad: F32, dq: F32, dk: F32, dv: F32,
) -> None:  # fmt: skip
    """The gradients. grad: [M, S, G, h]; dq, dk, dv: [M, E, h], zero on entry.

    dv_j += w_ij g_i;  dw_ij = g_i v_j;  ds_ij = w_ij (dw_ij - sum_l w_il dw_il);  dq_i += ds_ij k_j / sqrt(h).
    """
    h = q.shape[2]
    size = h // heads
    S, G = sets.shape
    scale = np.float32(1.0 / math.sqrt(h))
    dw = np.empty(G, np.float32)
    for m in range(q.shape[0]):
        for s in range(S):
            for head in range(heads):
                low = head * size
                for i in range(G):
                    a = sets[s, i]
                    mean = np.float32(0.0)
                    for j in range(G):
                        b = sets[s, j]
                        w = weights[m, s, head, i, j]
                        dot = np.float32(0.0)
                        for c in range(low, low + size):
                            dv[m, b, c] += w * grad[m, s, i, c]
                            dot += grad[m, s, i, c] * v[m, b, c]
                        dw[j] = dot
                        mean += w * dot
                    for j in range(G):
                        b = sets[s, j]
                        ds = weights[m, s, head, i, j] * (dw[j] - mean) * scale
                        for c in range(low, low + size):
                            dq[m, a, c] += ds * k[m, b, c]
                            dk[m, b, c] += ds * q[m, a, c]


class _SmallAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sets: Tensor, present: Tensor, heads: int) -> Tensor:
        M, _, h = q.shape
        S, G = sets.shape
        arrays = [x.detach().float().contiguous().numpy() for x in (q, k, v)]
        members = sets.numpy()
        weights = np.empty((M, S, heads, G, G), np.float32)
        out = np.empty((M, S, G, h), np.float32)
        _forward(arrays[0], arrays[1], arrays[2], members, present.numpy(), heads, weights, out)
        ctx.arrays, ctx.members, ctx.weights, ctx.heads, ctx.dtype = arrays, members, weights, heads, q.dtype
        return torch.from_numpy(out).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        gradients = [np.zeros_like(x) for x in ctx.arrays]
        g = grad.float().contiguous().numpy()
        dq, dk, dv = gradients
        q, k, v = ctx.arrays
        _backward(q, k, v, ctx.members, ctx.heads, ctx.weights, g, dq, dk, dv)
        return (*(torch.from_numpy(x).to(ctx.dtype) for x in gradients), None, None, None)


def attend(query: Tensor, key: Tensor, mix: Tensor, sets: Tensor, present: Tensor, heads: int) -> Tensor:
    """query, key, mix: [M, E, h]; sets: [S, G] indices into E; present: [M, G] bool. Returns [M, S, G, h].

    Scores are divided by sqrt(h), not sqrt(head size), and absent members get -1e6: both as in ML-Agents.
    """
    result: Tensor = _SmallAttention.apply(query, key, mix, sets, present, heads)  # type: ignore[no-untyped-call]
    return result
