"""The one vector that holds all weights of a module."""

import inspect

import numpy as np
import pytest
import torch

from palus.nn.parameters import FlatParameters, Packing
from palus.nn.sparse import TILE, SparseLinear


def module():
    """Layers a (2 x 3) and b (1 x 2), the weights 0, 1/8, 2/8, ... in their order."""
    layers = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 2), "b": torch.nn.Linear(2, 1)})
    for i, parameter in enumerate(layers.parameters()):
        parameter.data = torch.arange(float(parameter.numel())).view(parameter.shape) / 8 + i
    return layers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_master_moves_and_the_working_copy_follows(dtype):
    network = module()
    p = FlatParameters(network, dtype)
    assert p.shapes == {"a.weight": (2, 3), "a.bias": (2,), "b.weight": (1, 2), "b.bias": (1,)}
    assert p.masters["b.weight"].tolist() == [[2.0, 2.125]]
    with torch.no_grad():
        p.master.copy_(torch.arange(11.0) / 8)
    p.refresh()
    assert network["a"].weight.tolist() == [[0, 0.125, 0.25], [0.375, 0.5, 0.625]]
    assert network["b"].bias.tolist() == [1.25]
    assert p.work.dtype == network["a"].bias.dtype == dtype
    assert {v.dtype for v in p.masters.values()} == {torch.float32}


def test_modules_may_lie_in_another_order():
    network = module()
    p = FlatParameters(network, torch.float32, [network["b"], network["a"]])
    assert list(p.shapes) == ["b.weight", "b.bias", "a.weight", "a.bias"]
    assert p.master[:3].tolist() == [2.0, 2.125, 3.0]
    assert network["a"].weight.data_ptr() == p.master[3:].data_ptr()


def test_backward_fills_the_gradient_of_every_layer_in_order():
    network = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1))
    p = FlatParameters(network, torch.float32)
    p.load(torch.tensor([1.0, -1.0, 0.5, 3.0, 0.0]))
    p.set_gradient([p.backward([network(torch.tensor([[2.0, 5.0]]))], [torch.tensor([[10.0]])])])
    # the first layer gives -2.5; derivatives: 3 * (2, 5), 3, -2.5, 1
    assert p.gradient.tolist() == [60.0, 150.0, 30.0, -25.0, 10.0]


def test_weights_may_begin_at_multiples_of_a_grain():
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
    before = [p.detach().clone() for p in network.parameters()]
    p = FlatParameters(network, torch.bfloat16, grain=8)
    assert all(tensor.storage_offset() % 8 == 0 for tensor in p.tensors.values())
    for name, expected in zip(p.shapes, before, strict=True):
        assert torch.equal(p.masters[name], expected) and np.array_equal(p.arrays()[name], expected)
    packed = p.packed(p.master)
    assert torch.equal(packed, torch.cat([x.flatten() for x in before]))
    assert torch.equal(p.unpacked(packed), p.master) and len(p.master) == 16 + 8 + 8 + 8
    assert torch.equal(p.views(torch.stack([p.master, 2 * p.master]))["1.weight"][1], 2 * before[2])
    p.set_gradient([tuple(torch.ones(shape) for shape in p.shapes.values())])
    assert p.gradient.sum() == len(packed)
    assert [shard.start for shard in p.shards(2)] == [0, 24]


def test_layers_that_pack_their_weights_are_found_by_every_python():
    layer = SparseLinear(64, TILE)
    for member in [*inspect.get_annotations(Packing), "pack"]:
        inspect.getattr_static(layer, member)  # what isinstance asks from 3.12 on; before it asked hasattr
    FlatParameters(torch.nn.Sequential(layer), torch.float32)
    assert layer._tiles is not None
