"""Layers that skip zeros compute what dense ones do, and their tiles follow the weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.config.network import Memory, NetworkSettings
from palus.envs import make
from palus.learn.adam import Adam
from palus.nn.attention import AttentionCritic
from palus.nn.encoders import reader_of
from palus.nn.layers import Linear
from palus.nn.network import Network
from palus.nn.parameters import FlatParameters
from palus.nn.place import Placement
from palus.nn.sparse import BLOCK, TILE, SparseLinear, SparseRows
from palus.types import BehaviorSpec, ObservationSpec

SOCCER = make("SoccerTwos", 1).spec.behaviors[0]


def layer(inputs: int, outputs: int, seed: int = 0) -> SparseLinear:
    torch.manual_seed(seed)
    made = SparseLinear(inputs, outputs)
    made.pack()
    return made


def rows_of(rows: int, inputs: int, density: float, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator)
    return x * (torch.rand(rows, inputs, generator=generator) < density)


@pytest.mark.parametrize("rows", [1, 7, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.25, 1.0])
def test_values_and_gradients_are_those_of_a_dense_layer(rows: int, density: float) -> None:
    skips, x = layer(75, 3 * TILE), rows_of(rows, 75, density)
    slope = torch.randn(rows, 3 * TILE, generator=torch.Generator().manual_seed(2))
    dense = Linear(75, 3 * TILE).double()
    dense.load_state_dict(skips.state_dict())
    y, expected = skips(x), dense(x.double())
    assert y.grad_fn is not None and type(y.grad_fn.next_functions[0][0]).__name__ == "_ProductBackward"
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(y, [skips.weight, skips.bias], slope)
    wanted = torch.autograd.grad(expected, [dense.weight, dense.bias], slope.double())
    for own, truth in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.double(), truth, rtol=1e-4, atol=1e-4)


def test_only_what_is_not_zero_is_multiplied() -> None:
    x = torch.tensor([[0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 5.0, 7.0]])
    rows = SparseRows.of(x.numpy())
    assert rows.starts.tolist() == [0, 2, 2, 6]  # three numbers and one that fills up
    assert rows.places[:6].tolist() == [1, 3, 0, 2, 3, 0]
    assert rows.values[:6].tolist() == [2.0, -1.0, 3.0, 5.0, 7.0, 0.0]
    columns = rows.turned(1, 3, 4)
    assert columns.starts.tolist() == [0, 2, 2, 4, 6]
    assert columns.places[:6].tolist() == [1, 1, 1, 0, 1, 0]  # the second one is what filled up the row
    assert columns.values[:6].tolist() == [3.0, 0.0, 5.0, 0.0, 7.0, 0.0]


def test_a_row_gives_the_same_bits_wherever_it_stands() -> None:
    skips, x = layer(336, 2 * TILE), rows_of(50, 336, 0.25)
    before, whole = skips.bias.clone(), skips(x)
    assert torch.equal(torch.cat([skips(row) for row in x.split(1)]), whole)
    assert torch.equal(skips(x.view(5, 10, 336)), whole.view(5, 10, -1))
    assert torch.equal(skips.bias, before)


def test_a_fault_is_seen() -> None:
    x = torch.zeros(2, 8)
    x[1, 3] = torch.nan
    assert layer(8, TILE)(x).isnan().all(1).tolist() == [False, True]


def test_tiles_follow_the_weights_through_steps_of_shards_and_loading() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(SparseLinear(20, TILE), SparseLinear(TILE, 2 * TILE))
    weights = FlatParameters(network, torch.float32)
    optimizer, x = Adam(weights), rows_of(9, 20, 0.3)

    def differs() -> float:
        first, second = network
        expected = F.linear(F.linear(x, first.weight, first.bias), second.weight, second.bias)
        return float((network(x) - expected).detach().abs().max())

    assert differs() < 1e-5
    weights.gradient.fill_(1.0)
    optimizer.begin(0.1)
    shards = weights.shards(2)
    assert len(shards) == 2
    for shard in shards:
        optimizer.move(shard)
    assert differs() < 1e-5
    weights.load(torch.randn(len(weights.master)))
    assert differs() < 1e-5


def test_what_the_kernel_is_not_for_is_computed_densely() -> None:
    x, odd = rows_of(4, 10, 0.2), layer(10, TILE + 1)
    assert torch.equal(odd(x), F.linear(x, odd.weight, odd.bias))
    even = layer(10, TILE)
    wanted = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(even(wanted).sum(), wanted)
    torch.testing.assert_close(slope, even.weight.sum(0).expand(4, -1))
    low = SparseLinear(10, TILE).bfloat16()
    low.pack()
    assert torch.equal(low(x.bfloat16()), F.linear(x.bfloat16(), low.weight, low.bias))


def readers(network: Network) -> list[type]:
    """The kinds of all layers that read observations."""
    sizes = {SOCCER.observation_size, SOCCER.observation_size + 9}
    return [type(m) for m in network.modules() if isinstance(m, Linear) and m.in_features in sizes]


def test_what_reads_the_rays_of_soccer_skips_their_zeros() -> None:
    generator, settings = torch.Generator(), NetworkSettings(hidden_units=TILE)
    assert readers(Network(SOCCER, settings, generator, critic="separate")) == [SparseLinear] * 2
    assert readers(Network(SOCCER, settings, generator, critic=AttentionCritic)) == [SparseLinear] * 3
    memory = settings.model_copy(update={"memory": Memory()})
    assert readers(Network(SOCCER, memory, generator)) == [SparseLinear]
    normalizing = settings.model_copy(update={"normalize": True})
    assert readers(Network(SOCCER, normalizing, generator, critic=AttentionCritic)) == [Linear] * 3
    elsewhere = Network(SOCCER, settings, generator, place=Placement(torch.device("cpu"), compiled=False))
    assert [m.compiled for m in elsewhere.modules() if isinstance(m, SparseLinear)] == [False]


def test_sparse_vectors_have_to_be_two_thirds_of_what_a_layer_reads() -> None:
    rays, numbers = ObservationSpec("rays", (80,), sparse=True), ObservationSpec("numbers", (40,))
    more, picture = replace(numbers, name="more", shape=(1,)), ObservationSpec("picture", (3, 36, 36), "uint8")
    settings = NetworkSettings()
    assert reader_of([rays, numbers], settings) is SparseLinear
    assert reader_of([rays, numbers, more], settings) is Linear
    assert reader_of([rays, picture], settings) is Linear
    assert reader_of([replace(rays, shape=(63,))], settings) is Linear
    assert reader_of([rays], NetworkSettings(normalize=True)) is Linear
    assert reader_of([rays], NetworkSettings(normalize=True, normalize_names=("numbers",))) is SparseLinear
    apart = Network(
        BehaviorSpec("B", (rays, numbers), SOCCER.actions), NetworkSettings(encoding="apart"), torch.Generator()
    )
    assert [type(m) for m in apart.modules() if isinstance(m, Linear) and m.in_features in (40, 80)] == [
        SparseLinear, Linear,
    ]  # fmt: skip


def test_a_policy_fits_whether_its_rays_are_known_as_such_or_not() -> None:
    plain = replace(SOCCER, observations=tuple(replace(o, sparse=False) for o in SOCCER.observations))
    assert plain == SOCCER
