"""Layers that skip zeros compute what dense ones do, and their tiles follow the weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.config.network import Memory, NetworkSettings
from palus.envs import make
from palus.envs.protocol import room_for
from palus.learn.adam import Adam
from palus.learn.learner import Learner
from palus.nn.attention import AttentionCritic
from palus.nn.crowd import act_in_step
from palus.nn.encoders import VECTORS, reader_of
from palus.nn.layers import Linear, Reader
from palus.nn.network import Network
from palus.nn.parameters import FlatParameters
from palus.nn.place import Placement
from palus.nn.sparse import BLOCK, TILE, SparseLinear, SparseRows
from palus.types import AnyArray, BehaviorSpec, ObservationSpec

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


def compact_and_whole(rows: int, rays: int, each: int, more: int) -> tuple[Tensor, Tensor, list[int]]:
    """Rows of rays, every fifth without a tag, and of more numbers behind them in both forms; where distances are."""
    random = np.random.default_rng(3)
    tags, distances = random.integers(0, each - 1, (rows, rays)), random.random((rows, rays), np.float32)
    whole, behind = np.zeros((rows, rays, each), np.float32), random.random((rows, more), np.float32)
    np.put_along_axis(whole, tags[..., None], 1.0, 2)
    places = (tags + each * np.arange(rays)).astype(np.float32)
    none = random.random((rows, rays)) < 0.2
    whole[none], places[none], distances[none] = 0.0, -1.0, 0.0
    whole[:, :, -1] = distances
    whole = np.concatenate([whole.reshape(rows, -1), behind], 1)
    compact = np.concatenate([places, distances, behind], 1)
    return torch.from_numpy(compact), torch.from_numpy(whole), [each * k + each - 1 for k in range(rays)]


@pytest.mark.parametrize("rows", [1, 2 * BLOCK + 3])
@pytest.mark.parametrize(("rays", "more"), [(4, 0), (3, 5)])
def test_rays_in_compact_form_give_what_their_whole_rows_give(rows: int, rays: int, more: int) -> None:
    compact, whole, distances = compact_and_whole(rows, rays, 5, more)
    torch.manual_seed(0)
    skips = SparseLinear(whole.shape[1], 2 * TILE, distances=distances)
    skips.pack()
    slope = torch.randn(rows, 2 * TILE, generator=torch.Generator().manual_seed(2))
    y, expected = skips(compact), F.linear(whole, skips.weight, skips.bias)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert torch.equal(skips(compact), y)
    found, wanted = (torch.autograd.grad(out, [skips.weight, skips.bias], slope) for out in (y, expected))
    for own, truth in zip(found, wanted, strict=True):
        torch.testing.assert_close(own, truth, rtol=1e-4, atol=1e-4)
    skips.weight.data += 1.0
    skips.pack()
    torch.testing.assert_close(skips(compact), skips(whole), rtol=1e-5, atol=1e-5)


def seen_by(count: int) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
    """What agents of SoccerTwos see when they remember one frame of two before: in compact form, and whole."""
    game = make("SoccerTwos", count // 4)
    game.reset(np.arange(count // 4))
    game.step([np.full((count // 4, 4, 3), 1.0, np.float32)])
    rows = np.arange(count, dtype=np.int32).reshape(-1, 4)
    rooms = room_for(SOCCER, count, rays=True), room_for(SOCCER, count)
    for room in rooms:
        game.observe("SoccerTwos", rows, room)
    assert np.mean(rooms[0]["obs_0 tags"] == 0) == 1 / 3
    return rooms


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({}, True),
        ({"memory": Memory()}, True),
        ({"num_layers": 0}, False),
        ({"hidden_units": TILE + 4}, False),
        ({"normalize": True}, False),
        ({"encoding": "apart"}, False),
    ],
)
@pytest.mark.parametrize("critic", ["separate", AttentionCritic])
def test_networks_say_the_same_of_rays_in_both_forms(changes: dict[str, object], takes: bool, critic: object) -> None:
    settings = NetworkSettings(hidden_units=2 * TILE).model_copy(update=changes)
    network = Network(SOCCER, settings, torch.Generator().manual_seed(1), critic=critic)  # type: ignore[arg-type]
    assert network.takes_rays is takes
    states, answers = torch.zeros(1, network.state_size).expand(40, -1), []
    for form in seen_by(48):
        inputs = network.inputs(form, np.arange(4, 44))
        if settings.encoding != "apart":
            assert inputs[VECTORS].shape[1] == (84 if takes and "obs_0" not in form else 336)
        answer = [network(inputs, states, torch.ones(1, 40))[0]]
        if critic is AttentionCritic:
            acted = torch.ones(20, 2, 3)
            answer += network.critic(inputs, acted, torch.ones(20, 2, dtype=torch.bool)) if not settings.memory else []
        else:
            answer.append(network(inputs, states, torch.ones(1, 40))[1])
        answers.append(answer)
    for compact, whole in zip(*answers, strict=True):
        torch.testing.assert_close(compact, whole, rtol=1e-5, atol=1e-5)


def test_rays_in_compact_form_beside_whole_ones_are_unfolded() -> None:
    network = Network(SOCCER, NetworkSettings(hidden_units=2 * TILE), torch.Generator().manual_seed(1))
    compact, whole = seen_by(8)
    mixed = {name: x for name, x in compact.items() if name.startswith("obs_0")} | {"obs_1": whole["obs_1"]}
    index = np.arange(2, 7)
    assert network.takes_rays
    assert torch.equal(network.inputs(mixed, index)[VECTORS], network.inputs(whole, index)[VECTORS])


@pytest.mark.parametrize(
    ("network_takes", "compiled", "normalizes", "signals", "takes"),
    [(True, True, False, {}, True), (False, True, False, {}, False), (False, False, False, {}, True),
     (True, False, True, {}, False), (True, True, False, {"rnd": None}, False)],
)  # fmt: skip
def test_rollouts_hold_rays_in_compact_form_where_neither_statistics_nor_signals_read_them(
    network_takes: bool, compiled: bool, normalizes: bool, signals: dict[str, None], takes: bool
) -> None:
    scalers = {"obs_0": SimpleNamespace(moments=None), "obs_1": SimpleNamespace(moments=normalizes or None)}
    network, place = SimpleNamespace(takes_rays=network_takes, scalers=scalers), SimpleNamespace(compiled=compiled)
    learner = SimpleNamespace(network=network, place=place, learned_signals=signals)
    assert Learner.takes_rays.fget(learner) == takes


def test_who_acts_beside_others_acts_on_rays_as_alone() -> None:
    settings, (rays, _) = NetworkSettings(hidden_units=2 * TILE), seen_by(300)
    networks = [Network(SOCCER, settings, torch.Generator().manual_seed(k), critic="separate") for k in range(3)]
    blocks = [slice(0, 5), slice(5, 90), slice(100, 300)]
    found = act_in_step(networks, blocks, rays)
    for network, block in zip(networks, blocks, strict=True):
        own = {name: torch.from_numpy(x[block]) for name, x in rays.items()}
        assert torch.equal(network.act(own, torch.zeros(block.stop - block.start, 0))[0], found[block])


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
    assert readers(Network(SOCCER, normalizing, generator, critic=AttentionCritic)) == [Reader] * 3
    elsewhere = Network(SOCCER, settings, generator, place=Placement(torch.device("cpu"), compiled=False))
    assert not elsewhere.takes_rays and not Network(SOCCER, settings, generator, torch.bfloat16).takes_rays
    assert [m.compiled for m in elsewhere.modules() if isinstance(m, SparseLinear)] == [False]


def test_sparse_vectors_have_to_be_two_thirds_of_what_a_layer_reads() -> None:
    rays, numbers = ObservationSpec("rays", (80,), sparse=True), ObservationSpec("numbers", (40,))
    more, picture = replace(numbers, name="more", shape=(1,)), ObservationSpec("picture", (3, 36, 36), "uint8")
    settings = NetworkSettings()
    assert reader_of([rays, numbers], settings) is SparseLinear
    assert reader_of([rays, numbers, more], settings) is Reader
    assert reader_of([rays, picture], settings) is Reader
    assert reader_of([replace(rays, shape=(63,))], settings) is Reader
    assert reader_of([rays], NetworkSettings(normalize=True)) is Reader
    assert reader_of([rays], NetworkSettings(normalize=True, normalize_names=("numbers",))) is SparseLinear
    apart = Network(
        BehaviorSpec("B", (rays, numbers), SOCCER.actions), NetworkSettings(encoding="apart"), torch.Generator()
    )
    assert [type(m) for m in apart.modules() if isinstance(m, Linear) and m.in_features in (40, 80)] == [
        SparseLinear, Reader,
    ]  # fmt: skip


def test_a_policy_fits_whether_its_rays_are_known_as_such_or_not() -> None:
    plain = replace(SOCCER, observations=tuple(replace(o, sparse=False) for o in SOCCER.observations))
    assert plain == SOCCER
