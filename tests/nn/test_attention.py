"""The critic that shares work between agents against one that evaluates every agent on its own, as the paper reads."""

import math

import torch
import torch.nn.functional as F  # noqa: N812

from palus.nn.attention import HEADS, poca_critic_layers, value, value_and_baselines
from palus.nn.mlp import MlpShape
from palus.nn.parameters import FlatParameters

SHAPE, ACTIONS, G, M = MlpShape(11, 16, 2), 5, 3, 9


def critic(seed=0):
    generator = torch.Generator().manual_seed(seed)
    parameters = FlatParameters(poca_critic_layers(SHAPE, ACTIONS), dtype=torch.float32, generator=generator)
    with torch.no_grad():
        parameters.master.add_(0.3 * torch.randn(parameters.master.shape, generator=generator))
    return parameters


def one_agent_at_a_time(p, entities, count):
    """Residual self-attention over a list of embeddings [h] of one group step; a scalar."""
    x = F.layer_norm(torch.stack(entities), (16,), eps=1e-5)
    n, h = x.shape
    projected = F.linear(x, p["critic_query_key_value_weight"], p["critic_query_key_value_bias"])
    split = [part.view(n, HEADS, h // HEADS).transpose(0, 1) for part in projected.split(h, 1)]
    weights = (split[0] @ split[1].transpose(1, 2) / math.sqrt(h)).softmax(-1)
    mixed = (weights @ split[2]).transpose(0, 1).reshape(n, h)
    out = F.layer_norm(F.linear(mixed, p["critic_out_weight"], p["critic_out_bias"]) + x, (16,), eps=1e-5).mean(0)
    for i in range(SHAPE.num_layers):
        out = F.silu(F.linear(out, p[f"critic_layer{i}_weight"], p[f"critic_layer{i}_bias"]))
    out = torch.cat([out, torch.tensor([2.0 * count / G - 1.0])])
    return F.linear(out, p["critic_head_weight"], p["critic_head_bias"])[0]


def reference(p, observations, actions, present):
    def seen(o):
        return F.silu(F.linear(o, p["critic_observation_weight"], p["critic_observation_bias"]))

    def acted(o, a):
        return F.silu(F.linear(torch.cat([o, a]), p["critic_action_weight"], p["critic_action_bias"]))

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
    observations = torch.randn(M, G, SHAPE.observation_size, generator=generator)
    actions = F.one_hot(torch.randint(ACTIONS, (M, G), generator=generator), ACTIONS).float()
    present = torch.rand(M, G, generator=generator) < 0.6
    present[:, 0] |= ~present.any(1)
    assert not present.all()
    return observations, actions, present


def test_values_baselines_and_gradients_equal_the_per_agent_reference():
    parameters = critic()
    observations, actions, present = example()
    values, baselines = value_and_baselines(parameters.tensors, 2, observations, actions, present)
    expected_values, expected_baselines = reference(parameters.tensors, observations, actions, present)
    torch.testing.assert_close(values, expected_values, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(baselines[present], expected_baselines[present], atol=1e-5, rtol=1e-4)
    tensors = list(parameters.tensors.values())
    got = torch.autograd.grad(values.sum() + (baselines * present).square().sum(), tensors)
    want = torch.autograd.grad(expected_values.sum() + expected_baselines.square().sum(), tensors)
    for name, g, w in zip(parameters.tensors, got, want, strict=True):
        torch.testing.assert_close(g, w, atol=1e-4, rtol=1e-3, msg=name)


def test_value_alone_is_the_same_value():
    parameters = critic()
    observations, actions, present = example()
    alone = value(parameters.tensors, 2, observations, present)
    together, _ = value_and_baselines(parameters.tensors, 2, observations, actions, present)
    torch.testing.assert_close(alone, together)


def test_a_baseline_ignores_its_own_action_and_sees_the_mates():
    parameters = critic()
    observations, actions, _ = example()
    present = torch.ones(M, G, dtype=torch.bool)
    changed = actions.clone()
    changed[:, 1] = actions[:, 1].roll(1, -1)
    before = value_and_baselines(parameters.tensors, 2, observations, actions, present)[1]
    after = value_and_baselines(parameters.tensors, 2, observations, changed, present)[1]
    torch.testing.assert_close(before[:, 1], after[:, 1])
    assert ((before[:, 0] - after[:, 0]).abs() > 1e-4).all()
