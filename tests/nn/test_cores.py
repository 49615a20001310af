"""Recurrent cores against torch's own modules, forward and backward, and against themselves cut in two."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from palus.config.network import Memory
from palus.nn.cores import Core

T, B, IN, H = 5, 4, 6, 7


def pair(kind: str, layers: int) -> tuple[Core, torch.nn.Module]:
    """Our core and torch's, with the same weights."""
    torch.manual_seed(0)
    memory = Memory(kind=kind, memory_size=2 * H if kind == "lstm" else H, num_layers=layers)
    core = Core(IN, memory)
    reference = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](IN, H, layers)
    reference.load_state_dict(core.core.state_dict())
    return core, reference


def torch_state(kind: str, layers: int, states: torch.Tensor):
    parts = torch.stack(states.split(H, 1))
    return (parts[:layers], parts[layers:]) if kind == "lstm" else parts


@pytest.mark.parametrize(("kind", "layers"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)])
def test_outputs_states_and_gradients_are_torchs(kind: str, layers: int) -> None:
    core, reference = pair(kind, layers)
    x, states = torch.randn(T, B, IN), torch.randn(B, core.state_size)
    out, after = core(x.view(T * B, IN), states, torch.ones(T, B))
    expected, state = reference(x, torch_state(kind, layers, states))
    torch.testing.assert_close(out.view(T, B, H), expected)
    found = torch.cat([*(state[0] if kind == "lstm" else state), *(state[1] if kind == "lstm" else [])], 1)
    torch.testing.assert_close(after, found)
    weights = torch.randn(T * B, H)
    (out * weights).sum().backward()
    (expected.view(T * B, H) * weights).sum().backward()
    gradients = dict(core.core.named_parameters())
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradients[name].grad, parameter.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_row_that_starts_anew_forgets_and_no_gradient_crosses_the_cut(kind: str) -> None:
    core, _ = pair(kind, 1)
    x = torch.randn(T, B, IN, requires_grad=True)
    states, keep = torch.randn(B, core.state_size), torch.ones(T, B)
    keep[2, 1] = 0.0
    out, _ = core(x.reshape(T * B, IN), states, keep)
    fresh, _ = core(x[2:].reshape(3 * B, IN), torch.zeros(B, core.state_size), torch.ones(3, B))
    torch.testing.assert_close(out.view(T, B, H)[2:, 1], fresh.view(3, B, H)[:, 1])
    (gradient,) = torch.autograd.grad(out.view(T, B, H)[2:, 1].sum(), x)
    assert gradient[:2].abs().sum() == 0
    assert gradient[2:, 1].abs().sum() > 0


@pytest.mark.parametrize(("kind", "layers"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)])
def test_a_pause_is_as_if_its_steps_were_not_there(kind: str, layers: int) -> None:
    core, _ = pair(kind, layers)
    x, states = torch.randn(T, B, IN, requires_grad=True), torch.randn(B, core.state_size)
    keep, paused = torch.ones(T, B), torch.rand(T, B) < 0.4
    keep[3, 2] = 0.0  # it begins anew when it decides
    paused[:4, 0], paused[2, 1:], paused[3, 2] = True, True, False
    paused[1, 1:], paused[4, 0] = False, False
    out, after = core(x.view(T * B, IN), states, keep, paused)
    weights, found = torch.randn(T, B, H), torch.tensor(0.0)
    for b in range(B):
        there = ~paused[:, b]
        alone, end = core(x[there, b], states[b : b + 1], keep[there, b : b + 1])
        torch.testing.assert_close(out.view(T, B, H)[there, b], alone)
        torch.testing.assert_close(after[b : b + 1], end)
        found = found + (alone * weights[there, b]).sum() + end.sum()
    whole = (out.view(T, B, H) * weights)[~paused].sum() + after.sum()
    parameters = [x, *core.parameters()]
    for own, expected in zip(*(torch.autograd.grad(loss, parameters) for loss in (whole, found)), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_bfloat16_stays_close(kind: str) -> None:
    core, _ = pair(kind, 1)
    x, states = torch.randn(T * B, IN), torch.randn(B, core.state_size)
    exact, _ = core(x, states, torch.ones(T, B))
    rounded, after = core.bfloat16()(x.bfloat16(), states, torch.ones(T, B))
    assert after.dtype == torch.float32
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=0.02)


@pytest.mark.parametrize(("kind", "layers"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)])
def test_one_decision_after_the_other_is_as_all_in_one_pass(kind: str, layers: int) -> None:
    core, _ = pair(kind, layers)
    x, keep, paused = torch.randn(T, B, IN), torch.ones(T, B), torch.zeros(T, B, dtype=torch.bool)
    out, after = core(x.view(T * B, IN), torch.zeros(B, core.state_size), keep)
    products = [
        (partial(F.linear, weight=w_ih, bias=b_ih), partial(F.linear, weight=w_hh, bias=b_hh))
        for w_ih, w_hh, b_ih, b_hh in core.core.all_weights
    ]
    state, found = torch.zeros(B, core.state_size), []
    with torch.no_grad():
        for t in range(T):
            acted, state = core.act(x[t], state, products)
            found.append(acted)
    torch.testing.assert_close(torch.stack(found), out.view(T, B, H))
    torch.testing.assert_close(state, after)
    keep[2, 1], paused[1, 2], paused[3] = 0.0, True, True
    before = core.states(x.view(T * B, IN), keep, paused)
    assert not before[0].any() and torch.equal(before[2, 2], before[1, 2]) and torch.equal(before[4], before[3])
    for t in range(1, T + 1):
        _, state = core(x[:t].reshape(t * B, IN), torch.zeros(B, core.state_size), keep[:t], paused[:t])
        torch.testing.assert_close(before[t], state)
