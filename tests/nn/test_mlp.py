"""Bodies, heads and the normaliser against hand values, and the one vector that holds all weights."""

import math

import pytest
import torch

from palus.nn.mlp import MlpShape, Normalizer, actor_layers, actor_logits, critic_layers, critic_value
from palus.nn.parameters import FlatParameters, kaiming

SHAPE = MlpShape(3, 4, 2)


def parameters(layers, dtype=torch.float32, seed=0):
    return FlatParameters(layers, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def silu(x):
    return x / (1 + math.exp(-x))


def test_a_forward_pass_by_hand():
    p = parameters(actor_layers(MlpShape(2, 1, 2), (2,)) | critic_layers(MlpShape(2, 1, 2)))
    p.load(torch.tensor([
        1.0, 2.0, 0.5,   -1.0, 0.25,   3.0, -2.0, 0.1, 0.2,   # actor: layer 0, layer 1, two heads
        0.5, 0.5, 0.0,    2.0, -1.0,   4.0, 1.0,              # critic: layer 0, layer 1, value
    ]))  # fmt: skip
    x = torch.tensor([[1.0, -0.5]])
    hidden = silu(-silu(1 - 1 + 0.5) + 0.25)
    torch.testing.assert_close(
        actor_logits(p.tensors, 2, x), torch.tensor([[3 * hidden + 0.1, -2 * hidden + 0.2]]), atol=1e-6, rtol=1e-6
    )
    value = 4 * silu(2 * silu(0.25) - 1) + 1
    torch.testing.assert_close(critic_value(p.tensors, 2, x), torch.tensor([value]), atol=1e-6, rtol=1e-6)


def test_layers_have_the_reference_shapes_and_spread():
    p = parameters(actor_layers(MlpShape(336, 512, 2), (3, 3, 3)) | critic_layers(MlpShape(336, 512, 2)))
    assert {k: v for k, v in p.shapes.items() if k.endswith("weight")} == {
        "actor_layer0_weight": (512, 336),
        "actor_layer1_weight": (512, 512),
        "actor_heads_weight": (9, 512),
        "critic_layer0_weight": (512, 336),
        "critic_layer1_weight": (512, 512),
        "critic_value_weight": (1, 512),
    }
    # Kaiming with linear gain: std 1 / sqrt(fan_in); heads a tenth of it; the value head uniform, Xavier
    assert p.tensors["actor_layer0_weight"].std().item() == pytest.approx(1 / math.sqrt(336), rel=0.02)
    assert p.tensors["actor_heads_weight"].std().item() == pytest.approx(0.1 / math.sqrt(512), rel=0.05)
    bound = math.sqrt(6 / 513)
    assert 0.95 * bound < p.tensors["critic_value_weight"].abs().max().item() <= bound
    assert not any(v.any() for k, v in p.tensors.items() if k.endswith("bias"))


def test_the_same_seed_gives_the_same_weights():
    layers = actor_layers(SHAPE, (2, 3))
    assert torch.equal(parameters(layers).master, parameters(layers).master)
    assert not torch.equal(parameters(layers).master, parameters(layers, seed=1).master)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_master_moves_and_the_working_copy_follows(dtype):
    p = parameters({"a": (2, 3, kaiming()), "b": (1, 2, kaiming())}, dtype)
    assert {k: tuple(v.shape) for k, v in p.tensors.items()} == {
        "a_weight": (2, 3), "a_bias": (2,), "b_weight": (1, 2), "b_bias": (1,),
    }  # fmt: skip
    with torch.no_grad():
        p.master.copy_(torch.arange(11.0) / 8)
    p.refresh()
    assert p.tensors["a_weight"].tolist() == [[0, 0.125, 0.25], [0.375, 0.5, 0.625]]
    assert p.tensors["b_bias"].tolist() == [1.25]
    assert p.dtype == p.tensors["a_bias"].dtype == dtype
    assert {k: v.dtype for k, v in p.masters("a_").items()} == {"weight": torch.float32, "bias": torch.float32}


def test_backward_fills_the_gradient_of_every_layer_in_order():
    p = parameters({"a": (1, 2, kaiming()), "b": (1, 1, kaiming())})
    p.load(torch.tensor([1.0, -1.0, 0.5, 3.0, 0.0]))
    a = torch.nn.functional.linear(torch.tensor([[2.0, 5.0]]), p.tensors["a_weight"], p.tensors["a_bias"])
    b = torch.nn.functional.linear(a, p.tensors["b_weight"], p.tensors["b_bias"])
    p.set_gradient([p.backward([b], [torch.tensor([[10.0]])])])
    # a = -2.5; d b / d (a_weight, a_bias, b_weight, b_bias) = 3 * (2, 5), 3, -2.5, 1
    assert p.gradient.tolist() == [60.0, 150.0, 30.0, -25.0, 10.0]


def test_the_normaliser_starts_with_one_virtual_sample_and_clips_at_five():
    normalizer = Normalizer(2)
    x = torch.tensor([[3.0, -7.0]])
    assert normalizer(x).tolist() == [[3.0, -5.0]]
    # Welford over (2, 4): count 3, mean 0 + (2 + 4) / 3 = 2, sum of squares 1 + (0 * 2 + 2 * 4) = 9, variance 3
    normalizer.update(torch.tensor([[2.0, 0.0], [4.0, 0.0]]))
    assert normalizer.count == 3
    assert normalizer.mean.tolist() == [2.0, 0.0]
    assert normalizer.std32[0].item() == pytest.approx(math.sqrt(3))
    assert normalizer(x)[0, 0].item() == pytest.approx(1 / math.sqrt(3))


def test_a_restored_normaliser_goes_on_as_the_original():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 50, 4, generator=generator) * 3 + 1
    original, restored = Normalizer(4), Normalizer(4)
    original.update(first)
    restored.load_state_dict(original.state_dict())
    for normalizer in (original, restored):
        normalizer.update(second)
    assert torch.equal(original(first), restored(first))


def test_the_normaliser_converges_to_the_moments_of_the_data():
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(20_000, 1, generator=generator) * 4 + 10
    normalizer = Normalizer(1)
    for part in data.split(100):
        normalizer.update(part)
    assert normalizer.mean32.item() == pytest.approx(data.mean().item(), rel=1e-3)
    assert normalizer.std32.item() == pytest.approx(data.std().item(), rel=0.05)
