"""The one vector that holds all weights of a module."""

import inspect

import numpy as np
import pytest
import torch

from palus.errors import ModelError
from palus.nn.parameters import FlatParameters, Packing, tree_sum
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


def test_shards_are_whole_tensors_of_about_equal_length():
    p = FlatParameters(module(), torch.float32)  # tensors of 6, 2, 2 and 1 numbers

    def cut(count):
        return [(shard.first_tensor, shard.end_tensor, shard.start, shard.end) for shard in p.shards(count)]

    assert cut(1) == [(0, 4, 0, 11)]
    assert cut(2) == [(0, 1, 0, 6), (1, 4, 6, 11)]
    assert cut(3) == [(0, 1, 0, 6), (1, 2, 6, 8), (2, 4, 8, 11)]
    assert cut(50) == [(0, 1, 0, 6), (1, 2, 6, 8), (2, 3, 8, 10), (3, 4, 10, 11)]


def test_a_shard_of_the_gradient_is_overwritten_by_the_sum_of_its_parts():
    p = FlatParameters(module(), torch.float32)
    first, second = p.shards(2)
    parts = [tuple(torch.full(shape, value) for shape in p.shapes.values()) for value in (1.0, 2.0, 4.0)]
    p.gradient.fill_(9.0)
    p.set_gradient(parts, second)
    assert p.gradient.tolist() == [9.0] * 6 + [7.0] * 5
    p.set_gradient(parts[:2], first)
    assert p.gradient.tolist() == [3.0] * 6 + [7.0] * 5
    p.set_gradient([], second)
    assert p.gradient.tolist() == [3.0] * 6 + [0.0] * 5
    p.set_gradient(parts)
    assert p.gradient.tolist() == [7.0] * 11


def test_gradients_are_added_up_as_a_tree():
    small = 2.0**-24  # half of a rounding of 1: one after the other they would be lost
    parts = [torch.tensor([x]) for x in (1.0, small, small, small)]
    assert tree_sum(parts).item() == 1.0 + 2.0**-23
    assert tree_sum([*parts, torch.tensor([-1.0])]).item() == 2.0**-23
    assert tree_sum(parts[:1]) is parts[0]


def test_tied_weights_begin_as_the_first_of_each_pair_and_move_alike():
    network = torch.nn.Linear(3, 1)
    p = FlatParameters(network, torch.float32)
    p.load(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    p.tie({"weight": torch.tensor([2, 1, 0])})
    assert network.weight.tolist() == [[1.0, 2.0, 1.0]] and network.bias.tolist() == [4.0]
    p.gradient.copy_(torch.tensor([3.0, 5.0, 7.0, 11.0]))
    p.fold_gradient()
    assert p.gradient.tolist() == [5.0, 5.0, 5.0, 11.0]
    p.load(torch.tensor([6.0, 7.0, 6.0, 8.0]))
    with pytest.raises(ModelError, match="not their own mirror image"):
        p.load(torch.tensor([6.0, 7.0, 8.0, 9.0]))
    assert p.master.tolist() == [6.0, 7.0, 6.0, 8.0]


def test_what_was_taken_as_arrays_stays_as_it_was():
    p = FlatParameters(module(), torch.float32)
    arrays = p.arrays()
    p.load(torch.zeros(11))
    assert arrays["b.weight"].tolist() == [[2.0, 2.125]]


def test_what_has_no_part_in_the_outputs_has_no_gradient_where_that_is_said():
    network = module()
    p = FlatParameters(network, torch.float32)
    out = network["b"](torch.tensor([[1.0, 2.0]]))
    found = p.backward([out], [torch.ones(1, 1)], partial=True)
    assert [x.flatten().tolist() for x in found] == [[0.0] * 6, [0.0] * 2, [1.0, 2.0], [1.0]]
    with pytest.raises(RuntimeError, match="not have been used"):
        p.backward([network["b"](torch.ones(1, 2))], [torch.ones(1, 1)])


def test_a_shard_of_the_working_copy_follows_alone():
    network = module()
    p = FlatParameters(network, torch.bfloat16)
    with torch.no_grad():
        p.master.fill_(5.0)
    p.refresh(p.shards(2)[1])
    assert network["b"].bias.tolist() == [5.0] and network["a"].weight[0].tolist() == [0.0, 0.125, 0.25]
