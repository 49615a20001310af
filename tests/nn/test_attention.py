"""The critic that shares work between agents against one that evaluates every agent on its own, as the paper reads."""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from palus.config.network import NetworkSettings
from palus.nn.attention import AttentionCritic, action_features
from palus.nn.network import Network
from palus.nn.small_attention import HEADS, SelfAttention, embed, embed_formula
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete

SPEC, G, M = BehaviorSpec.of_vectors("Team", (4, 7), (3, 2)), 3, 9
ACTIONS = SPEC.actions


def critic(seed=0):
    generator = torch.Generator().manual_seed(seed)
    network = Network(SPEC, NetworkSettings(hidden_units=16), generator, critic=AttentionCritic)
    with torch.no_grad():
        network.weights.master.add_(0.3 * torch.randn(network.weights.master.shape, generator=generator))
    return network


def of_critic(network):
    """Its weights under the names of its parts."""
    return {k.removeprefix("critic."): v for k, v in network.named_parameters() if k.startswith("critic.")}


def evaluate(network, observations, actions, present):
    seen = observations.view(-1, SPEC.observation_size).numpy()
    inputs = network.inputs({"obs_0": seen[:, :4].copy(), "obs_1": seen[:, 4:].copy()})
    values, baselines = network.critic(inputs, actions, present)
    return values[..., 0], None if baselines is None else baselines[..., 0]


def one_agent_at_a_time(p, entities, count):
    """Residual self-attention over a list of embeddings [h] of one group step; a scalar."""
    x = F.layer_norm(torch.stack(entities), (16,), eps=1e-5)
    n, h = x.shape
    projected = F.linear(x, p["attention.query_key_value.weight"], p["attention.query_key_value.bias"])
    split = [part.view(n, HEADS, h // HEADS).transpose(0, 1) for part in projected.split(h, 1)]
    weights = (split[0] @ split[1].transpose(1, 2) / math.sqrt(h)).softmax(-1)
    mixed = (weights @ split[2]).transpose(0, 1).reshape(n, h)
    out = F.layer_norm(F.linear(mixed, p["attention.out.weight"], p["attention.out.bias"]) + x, (16,), eps=1e-5).mean(0)
    for i in (0, 2):
        out = F.silu(F.linear(out, p[f"layers.{i}.weight"], p[f"layers.{i}.bias"]))
    out = torch.cat([out, torch.tensor([2.0 * count / G - 1.0])])
    return F.linear(out, p["head.weight"], p["head.bias"])[0]


def reference(p, observations, actions, present):
    def seen(o):
        return F.silu(F.linear(o, p["observation.weight"], p["observation.bias"]))

    def acted(o, a):
        return F.silu(F.linear(torch.cat([o, a]), p["action.weight"], p["action.bias"]))

    values, baselines = [], []
    for o, a, there in zip(observations, actions, present, strict=True):
        members = [i for i in range(G) if there[i]]
        values.append(one_agent_at_a_time(p, [seen(o[i]) for i in members], len(members)))
        row = [torch.tensor(0.0)] * G
        for j in members:
            row[j] = one_agent_at_a_time(
                p, [seen(o[i]) if i == j else acted(o[i], a[i]) for i in members], len(members)
            )
        baselines.append(torch.stack(row))
    return torch.stack(values), torch.stack(baselines)


def example():
    generator = torch.Generator().manual_seed(1)
    observations = torch.randn(M, G, SPEC.observation_size, generator=generator)
    columns = [torch.randint(n, (M, G), generator=generator) for n in SPEC.branches]
    present = torch.rand(M, G, generator=generator) < 0.6
    present[:, 0] |= ~present.any(1)
    assert not present.all()
    return observations, torch.stack(columns, -1).float(), present


def test_values_baselines_and_gradients_equal_the_per_agent_reference():
    network = critic()
    observations, actions, present = example()
    values, baselines = evaluate(network, observations, actions, present)
    one_hot = action_features(actions, ACTIONS, torch.float32)
    tensors = of_critic(network)
    expected_values, expected_baselines = reference(tensors, observations, one_hot, present)
    torch.testing.assert_close(values, expected_values, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(baselines[present], expected_baselines[present], atol=1e-5, rtol=1e-4)
    got = torch.autograd.grad(values.sum() + (baselines * present).square().sum(), list(tensors.values()))
    want = torch.autograd.grad(expected_values.sum() + expected_baselines.square().sum(), list(tensors.values()))
    for name, g, w in zip(tensors, got, want, strict=True):
        torch.testing.assert_close(g, w, atol=1e-4, rtol=1e-3, msg=name)


def test_value_alone_is_the_same_value():
    network = critic()
    observations, actions, present = example()
    alone, nothing = evaluate(network, observations, None, present)
    together, _ = evaluate(network, observations, actions, present)
    assert nothing is None
    torch.testing.assert_close(alone, together)


def test_a_baseline_ignores_its_own_action_and_sees_the_mates():
    network = critic()
    observations, actions, _ = example()
    present = torch.ones(M, G, dtype=torch.bool)
    changed = actions.clone()
    changed[:, 1, 0] = (actions[:, 1, 0] + 1) % 3
    before = evaluate(network, observations, actions, present)[1]
    after = evaluate(network, observations, changed, present)[1]
    torch.testing.assert_close(before[:, 1], after[:, 1])
    assert ((before[:, 0] - after[:, 0]).abs() > 1e-4).all()


def test_actions_enter_as_indicators_and_numbers():
    spec = ActionSpec((Discrete(3), Continuous(2), Discrete(2)))
    row = action_features(torch.tensor([[2.0, 0.5, -4.0, 0.0]]), spec, torch.float32)
    assert row.tolist() == [[0, 0, 1, 0.5, -4.0, 1, 0]]


COMPUTED = """
import hashlib, torch
from palus.nn.small_attention import embed, pool
draw = torch.Generator().manual_seed(0)
mixed, x = torch.randn(64, 3, 2, 64, generator=draw), torch.randn(64, 4, 64, generator=draw)
pooled = pool(mixed, x, torch.tensor([[0, 1], [0, 3], [2, 1]]), torch.ones(64, 2, dtype=torch.bool))
embedded = embed(x.requires_grad_())
embedded.backward(mixed[:, :2].flatten(1, 2))
print(*(hashlib.sha256(found.detach().numpy().tobytes()).hexdigest() for found in (pooled, embedded, x.grad)))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_and_their_slopes_are_those_of_torchs_operators(dtype):
    draw = torch.Generator().manual_seed(0)
    parts = [(2.0 * torch.randn(5, n, 48, generator=draw)).to(dtype).requires_grad_() for n in (2, 1, 3)]
    slope = torch.randn(5, 6, 48, generator=draw)
    exact = [part.detach().double().requires_grad_() for part in parts]
    want = [embed_formula(*exact), *torch.autograd.grad(embed_formula(*exact), exact, slope.to(dtype).double())]
    got = [embed(*parts), *torch.autograd.grad(embed(*parts), parts, slope.to(dtype))]
    rounding = 2e-6 if dtype == torch.float32 else 3e-2
    for own, right in zip(got, want, strict=True):
        assert own.dtype == dtype
        torch.testing.assert_close(own.double(), right, atol=rounding, rtol=rounding)


def test_slopes_of_slopes_of_embeddings_are_those_of_torchs_operators():
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(3, n, 8, generator=draw, dtype=torch.float32).requires_grad_() for n in (1, 2)]

    def penalty(join):
        slopes = torch.autograd.grad(join(*parts).square().sum() + join(*parts)[..., 0].sum(), parts, create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), parts)

    for own, right in zip(penalty(embed), penalty(embed_formula), strict=True):
        torch.testing.assert_close(own, right, atol=1e-4, rtol=1e-4)


def test_slopes_of_slopes_through_attention_are_those_of_torchs_operators():
    """Two sets of three, of which one member is absent, and three of whom nobody is there."""
    torch.manual_seed(0)
    layer, parts = SelfAttention(8), [torch.randn(2, n, 8).requires_grad_() for n in (1, 3)]
    sets, present = torch.tensor([[0, 1, 2], [3, 1, 2]]), torch.tensor([[True, True, False], [False, False, False]])
    given = [*parts, *layer.parameters()]

    def penalty(compiled):
        layer.compiled = compiled
        slopes = torch.autograd.grad(layer(parts, sets, present)[..., 0].square().sum(), given, create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), given)

    for own, right in zip(penalty(True), penalty(False), strict=True):
        torch.testing.assert_close(own, right, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_process_that_compiles_rounds_like_those_that_load_from_the_cache(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-c", COMPUTED]
    compiled, loaded = (subprocess.check_output(words, env=environment, text=True) for _ in range(2))
    assert compiled == loaded
