"""Recurrent cores over rollouts: GRU, LSTM, or none, cut where episodes end.

A rollout of T decisions in B rows runs as T steps on whole rows; a row's state is set to zero after an end, and stays
where others decide (`paused`): there gates are set to what keeps it, and no gradient arises. The passes
are written out, forward and backward, because the gradient of the recurrent weights is then one matrix product over
all T B decisions where autograd adds up T small ones. Equations, weight layout and first weights are torch's
(`torch.nn.GRU`, `torch.nn.LSTM`). Gates are computed in float32, products in the network's number format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.config.network import Memory
from palus.nn.graph import Graph
from palus.nn.parameters import xavier_uniform
from palus.types import F32


def _gru_gates(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """r and z side by side [B, 2 H], n [B, H]. x, g: [B, 3 H], products of input and state with their weights."""
    H = x.shape[1] // 3
    rz = torch.sigmoid(x[:, : 2 * H] + g[:, : 2 * H])
    return rz, torch.tanh(torch.addcmul(x[:, 2 * H :], rz[:, :H], g[:, 2 * H :]))


def _lstm_gates(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """i, f, g, o side by side [B, 4 H], c' [B, H]. a: [B, 4 H], both products together; c: [B, H]."""
    H = c.shape[1]
    s = torch.cat([a[:, : 2 * H].sigmoid(), a[:, 2 * H : 3 * H].tanh(), a[:, 3 * H :].sigmoid()], 1)
    return s, torch.addcmul(s[:, H : 2 * H] * c, s[:, :H], s[:, 2 * H : 3 * H])


class GruSteps(torch.autograd.Function):
    """GRU steps on inputs whose products with the input weights are given.

    r, z = sigmoid(x_r + h W_r), sigmoid(x_z + h W_z);  n = tanh(x_n + r (h W_n));  h' = (1 - z) n + z h.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, keep: Tensor, weight: Tensor, bias: Tensor, paused: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x: [T, B, 3 H]; h: [B, H] float32; keep: [T, B, 1], 0 where the row starts anew; paused: [T, B, 1] bool.

        Returns outputs [T, B, H] and the last state [B, H], both float32; no gradient flows into h or keep.
        """
        T, H = len(x), h.shape[1]
        x, bias32 = x.float(), bias.float()
        before, gates, hidden, out = [], [], [], x.new_empty(T, *h.shape)
        for t in range(T):
            h = h * keep[t]
            g = F.linear(h.to(weight.dtype), weight).float().add_(bias32)
            rz, n = _gru_gates(x[t], g)
            if paused is not None:
                rz[:, H:].masked_fill_(paused[t], 1.0)
            before.append(h)
            gates.append(torch.cat([rz, n], 1))
            hidden.append(g[:, 2 * H :])
            h = torch.lerp(n, h, rz[:, H:], out=out[t])
        ctx.save_for_backward(torch.stack(before), torch.stack(gates), torch.stack(hidden), keep, weight)
        return out, h.clone()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
        before, gates, hidden, keep, weight = ctx.saved_tensors
        T, B, H = before.shape
        r, z, n = gates.split(H, 2)
        # d h'/d(pre-activation), without the arriving gradient
        dn_dh, dz_dh, dr_dn = (1 - z) * (1 - n * n), (before - n) * z * (1 - z), hidden * r * (1 - r)
        dx, dg = before.new_empty(T, B, 3 * H), before.new_empty(T, B, 3 * H)
        carry = d_last
        for t in range(T - 1, -1, -1):
            d = d_out[t] + carry
            dn = d * dn_dh[t]
            torch.mul(dn, dr_dn[t], out=dx[t, :, :H])
            torch.mul(d, dz_dh[t], out=dx[t, :, H : 2 * H])
            dx[t, :, 2 * H :] = dn
            dg[t, :, : 2 * H] = dx[t, :, : 2 * H]
            torch.mul(dn, r[t], out=dg[t, :, 2 * H :])
            carry = (d * z[t] + (dg[t].to(weight.dtype) @ weight).float()) * keep[t]
        flat = dg.view(T * B, 3 * H).to(weight.dtype)
        d_weight = flat.T @ before.view(T * B, H).to(weight.dtype)
        return dx.to(weight.dtype), None, None, d_weight, dg.sum((0, 1)).to(weight.dtype), None


class LstmSteps(torch.autograd.Function):
    """LSTM steps on inputs whose products with the input weights are given.

    i, f, o = sigmoid(x + h W);  g = tanh(x_g + h W_g);  c' = f c + i g;  h' = o tanh(c').
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, keep: Tensor, weight: Tensor, bias: Tensor, paused: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x: [T, B, 4 H]; h, c: [B, H] float32; keep, paused: [T, B, 1]. Returns outputs [T, B, H], last h and c."""
        T, H = len(x), h.shape[1]
        x, bias32 = x.float(), bias.float()
        before_h, before_c, gates, cells, out = [], [], [], [], x.new_empty(T, *h.shape)
        for t in range(T):
            h, c = h * keep[t], c * keep[t]
            a = F.linear(h.to(weight.dtype), weight).float().add_(bias32).add_(x[t])
            before_h.append(h)
            before_c.append(c)
            s, c = _lstm_gates(a, c)
            if paused is not None:
                c = torch.where(paused[t], before_c[t], c)
                for gate, value in ((0, 0.0), (1, 1.0), (3, 0.0)):
                    s[:, gate * H : (gate + 1) * H].masked_fill_(paused[t], value)
            squashed = c.tanh()
            h = torch.mul(s[:, 3 * H :], squashed, out=out[t])
            if paused is not None:
                h = out[t].copy_(torch.where(paused[t], before_h[t], h))
            gates.append(s)
            cells.append(squashed)
        ctx.save_for_backward(*(torch.stack(rows) for rows in (before_h, before_c, gates, cells)), keep, weight, paused)
        return out, h.clone(), c

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_h: Tensor, d_c: Tensor) -> tuple[Tensor | None, ...]:
        before_h, before_c, gates, cells, keep, weight, paused = ctx.saved_tensors
        T, B, H = before_h.shape
        i, f, g, o = gates.split(H, 2)
        da = before_h.new_empty(T, B, 4 * H)
        for t in range(T - 1, -1, -1):
            d = d_out[t] + d_h
            d_c = d_c + d * o[t] * (1 - cells[t] * cells[t])
            da[t, :, :H] = d_c * g[t] * i[t] * (1 - i[t])
            da[t, :, H : 2 * H] = d_c * before_c[t] * f[t] * (1 - f[t])
            da[t, :, 2 * H : 3 * H] = d_c * i[t] * (1 - g[t] * g[t])
            da[t, :, 3 * H :] = d * cells[t] * o[t] * (1 - o[t])
            d_h = (da[t].to(weight.dtype) @ weight).float()
            d_h = (d_h if paused is None else torch.where(paused[t], d, d_h)) * keep[t]
            d_c = d_c * f[t] * keep[t]
        flat = da.view(T * B, 4 * H).to(weight.dtype)
        d_weight = flat.T @ before_h.view(T * B, H).to(weight.dtype)
        return da.to(weight.dtype), None, None, None, d_weight, da.sum((0, 1)).to(weight.dtype), None


_gru: Callable[..., tuple[Tensor, Tensor]] = GruSteps.apply
_lstm: Callable[..., tuple[Tensor, Tensor, Tensor]] = LstmSteps.apply


Product = Callable[[Tensor], Tensor]


class Core(nn.Module):
    """Recurrent layers, none without `memory`. The state [B, S] is the layers' h side by side, then their c."""

    def __init__(self, in_features: int, memory: Memory | None) -> None:
        super().__init__()
        self.layers, self.out_features, self.state_size = 0, in_features, 0
        if memory is not None:
            self.is_lstm, self.layers, self.out_features = memory.kind == "lstm", memory.num_layers, memory.width
            # torch's module keeps the weights, under its names; its passes are not used.
            self.core = (nn.LSTM if self.is_lstm else nn.GRU)(in_features, memory.width, memory.num_layers)
            self.state_size = memory.memory_size * memory.num_layers

    def initialize(self, generator: torch.Generator) -> None:
        """An LSTM's first weights as ML-Agents has them: each gate's Xavier uniform; biases 0, those of the forget
        gate, which are added up, 1 each. A GRU, which ML-Agents has not, keeps torch's."""
        for weights in self.core.all_weights if self.layers and self.is_lstm else ():
            for weight in weights[:2]:
                for gate in weight.chunk(4):
                    xavier_uniform(gate, generator)
            for bias in weights[2:]:
                bias.zero_()
                bias[self.out_features : 2 * self.out_features] = 1.0

    def forward(self, x: Tensor, states: Tensor, keep: Tensor, paused: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x: [T B, in], time first; states: [B, S] float32; keep: [T, B] float32, 0 where a row starts anew at t;
        paused: [T, B] bool, where its state stays as it is and the output means nothing.

        Returns [T B, H] in the network's number format and the states [B, S] after the last step.
        """
        if not self.layers:
            return x, states
        T, B = keep.shape
        dtype, keep, paused = x.dtype, keep.unsqueeze(-1), None if paused is None else paused.unsqueeze(-1)
        parts = torch.split(states, self.out_features, 1)
        hidden, cells = [], []
        for layer in range(self.layers):
            w_ih, w_hh, b_ih, b_hh = self.core.all_weights[layer]
            projected = F.linear(x, w_ih, b_ih).view(T, B, len(b_ih))
            if self.is_lstm:
                out, h, c = _lstm(projected, parts[layer], parts[self.layers + layer], keep, w_hh, b_hh, paused)
                cells.append(c)
            else:
                out, h = _gru(projected, parts[layer], keep, w_hh, b_hh, paused)
            hidden.append(h)
            x = out.flatten(0, 1).to(dtype)
        return x, torch.cat([*hidden, *cells], 1)

    def act(self, x: Tensor, states: Tensor, products: Sequence[tuple[Product, Product]]) -> tuple[Tensor, Tensor]:
        """`forward` of one decision of rows that all go on, without gradient.

        products: of every layer, what gives x W + b [B, gates] of its input and of its state.
        """
        parts = torch.split(states, self.out_features, 1)
        hidden, cells = [], []
        for layer, (of_input, of_state) in enumerate(products):
            h, given = parts[layer], of_input(x)
            if self.is_lstm:
                s, c = _lstm_gates(of_state(h).add_(given), parts[self.layers + layer])
                h = s[:, 3 * self.out_features :] * c.tanh()
                cells.append(c)
            else:
                rz, n = _gru_gates(given, of_state(h))
                h = torch.lerp(n, h, rz[:, self.out_features :])
            hidden.append(h)
            x = h
        return x, torch.cat([*hidden, *cells], 1)

    @torch.no_grad()
    def states(self, x: Tensor, keep: Tensor, paused: Tensor | None = None) -> Tensor:
        """What is remembered before each of T decisions and after the last, [T + 1, B, S], from an empty memory on.

        x, keep, paused: as in `forward`, with layers. An ended episode is still in the memory before the next one's
        first decision, whose `keep` clears it.
        """
        T, B = keep.shape
        found, rows = [x.new_zeros((B, self.state_size), dtype=torch.float32)], x.view(T, B, -1)
        for t in range(T):
            there = None if paused is None else paused[t : t + 1]
            found.append(self.forward(rows[t], found[-1], keep[t : t + 1], there)[1])
        return torch.stack(found)

    def onnx(self, g: Graph, x: str, state: str) -> tuple[str, str]:
        """The same for one decision. state: [batch, S]; returns the output and the next state.

        ONNX operators, version 9: GRU with linear_before_reset and LSTM compute what torch's do.
        """
        if not self.layers:
            return x, state
        after: list[list[str]] = []
        for layer in range(self.layers):
            places = [layer, self.layers + layer] if self.is_lstm else [layer]
            given = [g.columns(state, k * self.out_features, (k + 1) * self.out_features) for k in places]
            after.append(self._layer_onnx(g, x, layer, [g.add("Unsqueeze", [own], axes=[0]) for own in given]))
            x = after[-1][0]
        return x, g.beside([name for kind in zip(*after, strict=True) for name in kind])

    def _layer_onnx(self, g: Graph, x: str, layer: int, given: list[str]) -> list[str]:
        """The h, and of an LSTM the c, after one layer."""
        order = (0, 3, 1, 2) if self.is_lstm else (1, 0, 2)
        w_ih, w_hh, b_ih, b_hh = (g.weight_array(w) for w in self.core.all_weights[layer])

        def gates(weight: F32) -> F32:
            """ONNX's order of gates: input, output, forget, cell; update, reset, new."""
            return np.concatenate([weight.reshape(len(order), self.out_features, -1)[k] for k in order])[None]

        bias = np.concatenate([gates(b_ih), gates(b_hh)], axis=1)[..., 0]
        arrays = {"input_weight": gates(w_ih), "state_weight": gates(w_hh), "bias": bias}
        constants = [g.constant(f"core{layer}_{name}", array) for name, array in arrays.items()]
        step = g.add("Unsqueeze", [x], axes=[0])
        ends = [f"core{layer}_end{k}" for k in range(len(given))]
        extra = {} if self.is_lstm else {"linear_before_reset": 1}
        kind = "LSTM" if self.is_lstm else "GRU"
        g.add_all(kind, [step, *constants, "", *given], ["", *ends], hidden_size=self.out_features, **extra)
        return [g.add("Squeeze", [end], axes=[0]) for end in ends]
