"""Policies that act as one product say what each says alone; what is captured says what it says uncaptured.

It computes where PALUS_TEST_DEVICE says (`places`), by default on the CPU by torch's operators.
"""

import threading
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from places import HERE
from toys import Forbidden, Remember, behavior_of

from palus.envs import make
from palus.envs.protocol import room_for
from palus.nn.captured import BUSY, KEPT, PAYS, Captured
from palus.nn.crowd import PARTS, ROW_OF, Crowd, act_in_step
from palus.nn.layers import Linear
from palus.nn.network import Network
from palus.nn.place import CPU, Placement
from palus.nn.running import RunningMoments
from palus.types import Continuous, Discrete

SETTINGS = behavior_of("ppo", "network_settings.hidden_units=24").network_settings
NUMBERS = Remember(Discrete(3), Continuous(2), Discrete(2)).spec


def network(seed, spec, critic="none", settings=SETTINGS, place=HERE):
    return Network(spec, settings, torch.Generator().manual_seed(seed), critic=critic, place=place)


def rows_of(spec, count, seed=0):
    random = np.random.default_rng(seed)
    seen = {o.name: random.normal(size=(count, *o.shape)).astype(np.float32) for o in spec.observations}
    if spec.actions.masked:
        seen["action_masks"] = random.random((count, sum(spec.actions.branches))) < 0.7
        seen["action_masks"][:, 0] = True
    return seen


def alone(own, seen):
    tensors = {name: torch.from_numpy(x) for name, x in seen.items()}
    masks = tensors.pop("action_masks", None)
    return own.act(tensors, torch.zeros(len(next(iter(seen.values()))), 0), masks)[0].cpu()


def same(crowd, networks, blocks, seen):
    found = crowd.act(networks, blocks, seen).cpu()
    for own, block in zip(networks, blocks, strict=True):
        expected = alone(own, {name: x[block] for name, x in seen.items()})
        torch.testing.assert_close(found[block], expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("spec", [Forbidden.spec, NUMBERS], ids=["masks", "numbers"])
def test_a_crowd_says_what_each_says_alone(spec):
    learner = network(0, spec, "separate")
    several = [learner, *(network(seed, spec) for seed in range(1, PARTS + 2))]
    assert len({own.kind for own in several}) == 1 and learner.kind is not None
    seen, crowd = rows_of(spec, 200), Crowd(learner)
    same(crowd, several[:3], [slice(0, 3), slice(3, 100), slice(120, 121)], seen)
    assert crowd._index[ROW_OF].shape == (4, 64)  # 101 rows: as many parts of 64 as a doubled number of them
    same(crowd, [several[2], several[5], learner], [slice(0, 17), slice(17, 18), slice(60, 200)], seen)
    with torch.no_grad():
        learner.weights.master.mul_(2.0)
    learner.weights.refresh()
    learner.version += 1
    same(crowd, [learner, several[1]], [slice(0, 50), slice(50, 100)], seen)
    blocks = [slice(5 * k, 5 * k + 5) for k in range(len(several))]
    same(crowd, several, blocks, seen)  # more than there were places for
    same(crowd, several[::-1], blocks, seen)


def test_a_crowd_reads_rays_in_compact_form():
    game = make("SoccerTwos", 4)
    (spec,) = game.spec.behaviors
    game.reset(np.arange(4))
    rows, count = np.arange(16, dtype=np.int32).reshape(4, 4), 16
    whole = {o.name: np.zeros((count, *o.shape), np.float32) for o in spec.observations}
    compact = room_for(spec, count, rays=True)
    game.observe(spec.name, rows, whole)
    game.observe(spec.name, rows, compact)
    several, blocks = [network(seed, spec) for seed in (1, 2)], [slice(0, 9), slice(9, 16)]
    found = Crowd(several[0]).act(several, blocks, compact).cpu()
    for own, block in zip(several, blocks, strict=True):
        torch.testing.assert_close(found[block], alone(own, {k: x[block] for k, x in whole.items()}), atol=2e-5, rtol=0)


@pytest.mark.parametrize("more", [(), ("network_settings.normalize=true",), ("network_settings.num_layers=3",)])
@pytest.mark.parametrize("name", ["masks", "numbers", "rays"])
def test_networks_in_step_say_what_each_says_alone(name, more):
    spec = {"masks": Forbidden.spec, "numbers": NUMBERS, "rays": make("SoccerTwos", 1).spec.behaviors[0]}[name]
    settings = behavior_of("ppo", "network_settings.hidden_units=64", *more).network_settings
    several = [network(seed, spec, "separate" if seed == 3 else "none", settings, CPU) for seed in range(5)]
    assert len({own.kind for own in several}) == 1
    seen, random = rows_of(spec, 300), np.random.default_rng(5)
    for own in several:
        own.inputs.observe(
            {o.name: 2.0 * seen[o.name] + own.version for o in spec.observations}, random.permutation(300)
        )
    blocks = [slice(0, 1), slice(1, 18), slice(18, 82), slice(82, 90), slice(120, 300)]
    found = act_in_step(several, blocks, seen)
    for own, block in zip(several, blocks, strict=True):
        expected = alone(own, {name: x[block] for name, x in seen.items()})
        torch.testing.assert_close(found[block], expected, atol=1e-6, rtol=1e-6)  # tests/test_bits.py asks for all bits


def test_networks_in_bfloat16_act_in_step_too():
    several = [
        Network(NUMBERS, SETTINGS, torch.Generator().manual_seed(seed), torch.bfloat16, critic="none")
        for seed in range(3)
    ]
    blocks, seen = [slice(0, 5), slice(5, 40), slice(40, 57)], rows_of(NUMBERS, 57)
    found = act_in_step(several, blocks, seen)
    assert found.dtype == torch.float32
    for own, block in zip(several, blocks, strict=True):
        expected = alone(own, {name: x[block] for name, x in seen.items()})
        torch.testing.assert_close(found[block], expected, atol=1e-2, rtol=1e-2)


def test_products_in_step_have_as_many_rows_as_round_alike_on_every_processor(monkeypatch):
    rows, forward = [], Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda layer, x: (rows.append(len(x)), forward(layer, x))[1])
    several = [network(seed, NUMBERS, place=CPU) for seed in range(2)]
    act_in_step(several, [slice(0, 5), slice(5, 40)], rows_of(NUMBERS, 40))
    assert set(rows) == {16, 48}


def test_a_crowd_answers_as_many_rows_as_there_are():
    several, blocks = [network(seed, NUMBERS) for seed in range(2)], [slice(0, 3), slice(3, 9)]
    crowd = Crowd(several[0])
    for count in (9, 20, 12):
        seen = rows_of(NUMBERS, count, count)
        same(crowd, several, blocks, seen)
        assert len(crowd.act(several, blocks, seen)) == count


def test_acting_there_is_acting_on_the_cpu():
    here, there = (
        Network(Forbidden.spec, SETTINGS, torch.Generator().manual_seed(3), streams=2, place=place)
        for place in (CPU, HERE)
    )
    for own in (here, there):
        own.returns = RunningMoments(1)
        own.returns.mean, own.returns.variance = np.array([10.0]), np.array([4.0])
    seen = {name: torch.from_numpy(x) for name, x in rows_of(Forbidden.spec, 5).items()}
    masks = seen.pop("action_masks")
    for found, expected in zip(*(own.act(seen, torch.zeros(5, 0), masks) for own in (there, here)), strict=True):
        torch.testing.assert_close(found.cpu(), expected, atol=2e-5, rtol=2e-5)
    of_both = here.values({name: x.numpy() for name, x in seen.items()}, np.zeros((5, 0), np.float32))
    np.testing.assert_allclose(here.act(seen, torch.zeros(5, 0), masks)[1], of_both[:, 0], atol=2e-5)


def test_what_cannot_act_together():
    (soccer,) = make("SoccerTwos", 1).spec.behaviors
    wide = behavior_of("ppo", "network_settings.hidden_units=32").network_settings
    normal = behavior_of("ppo", "network_settings.normalize=true").network_settings
    memory = behavior_of("ppo", "network_settings.memory={memory_size: 8, sequence_length: 4}").network_settings
    assert network(0, soccer).kind != network(0, soccer, settings=wide).kind
    assert network(0, soccer).kind != network(0, soccer, "shared").kind  # it has another layer
    for other in (normal, memory):
        assert network(0, soccer, settings=other).kind is None
    assert network(0, soccer, settings=memory, place=CPU).kind is None
    plain = replace(soccer, observations=tuple(replace(o, rays=0) for o in soccer.observations))
    of_whole, of_rays = (network(0, spec, settings=wide, place=CPU) for spec in (plain, soccer))
    assert not of_whole.takes_rays and of_rays.takes_rays and of_whole.kind != of_rays.kind
    assert network(0, soccer, settings=normal, place=CPU).kind != network(0, soccer, place=CPU).kind is not None


def test_what_is_often_asked_for_is_captured_once_for_each_shape(monkeypatch):
    made = []

    def capture(work, changed, device):
        assert device == HERE.device and not changed
        made.append(work)
        return work

    monkeypatch.setattr("palus.nn.captured.captured", capture)
    twice = Captured(
        lambda held: (held["x"] * 2, held["x"].sum(1)), types.SimpleNamespace(device=HERE.device, captures=True)
    )
    for k in range(PAYS + 5):
        x = torch.full((3, 2), float(k))
        doubled, total = twice({"x": x}, rows=4)
        assert doubled.shape == (4, 2) and torch.equal(doubled[:3].cpu(), 2 * x)
        assert total[:3].tolist() == [2.0 * k] * 3
        assert len(made) == (k >= PAYS)
    for _ in range(PAYS + 5):
        twice({"x": torch.ones(7, 2)})
    assert len(made) == 2
    for rows in range(10, 10 + KEPT):  # others take the place of shapes that nobody asks for
        twice({"x": torch.ones(rows, 2)})
    for _ in range(PAYS + 5):
        twice({"x": torch.ones(7, 2)})
    assert len(made) == 3


def test_work_waits_for_a_capture_and_threads_capture_nothing(monkeypatch):
    monkeypatch.setattr("palus.nn.captured.PAYS", 0)
    monkeypatch.setattr("palus.nn.captured.captured", lambda *_: pytest.fail("captured in a thread"))
    place = types.SimpleNamespace(device=HERE.device, captures=True)
    doubled, done = Captured(lambda held: (held["x"] * 2,), place), threading.Event()

    def work():
        assert doubled({"x": torch.ones(2)})[0].tolist() == [2.0, 2.0]
        done.set()

    with BUSY:
        other = threading.Thread(target=work)
        other.start()
        assert not done.wait(0.2)
    assert done.wait(10.0)
    other.join()


def test_other_threads_replay_what_the_main_thread_captured(monkeypatch):
    monkeypatch.setattr("palus.nn.captured.PAYS", 1)
    monkeypatch.setattr("palus.nn.captured.captured", lambda work, *_: lambda: (replayed.append(1), work()))
    replayed, place = [], types.SimpleNamespace(device=HERE.device, captures=True)
    twice = Captured(lambda held: (held["x"] * 2,), place)
    found = [twice({"x": torch.full((2,), float(k))})[0].tolist() for k in range(3)]
    other = threading.Thread(target=lambda: found.append(twice({"x": torch.full((2,), 3.0)})[0].tolist()))
    other.start()
    other.join()
    assert found == [[2.0 * k] * 2 for k in range(4)] and len(replayed) == 3


def test_what_is_asked_for_between_others_stays_captured(monkeypatch):
    replayed, place = [], types.SimpleNamespace(device=HERE.device, captures=True)
    monkeypatch.setattr("palus.nn.captured.PAYS", 1)
    monkeypatch.setattr("palus.nn.captured.captured", lambda work, *_: lambda: (replayed.append(1), work()))
    twice = Captured(lambda held: (held["x"] * 2,), place)
    for _ in range(2):
        twice({"x": torch.ones(7, 2)})
    for rows in range(10, 10 + KEPT):
        twice({"x": torch.ones(rows, 2)})
        twice({"x": torch.ones(7, 2)})
    assert len(replayed) == 1 + KEPT
    for rows in range(100, 100 + KEPT - 1):  # so many are kept beside it
        twice({"x": torch.ones(rows, 2)})
    twice({"x": torch.ones(7, 2)})
    assert len(replayed) == 2 + KEPT


def test_numbers_of_another_kind_have_memory_of_their_own():
    twice = Captured(lambda held: (held["x"] * 2,), HERE)
    exact = 2**24 + 1  # which fp32 does not hold
    assert twice({"x": torch.tensor([1.5])})[0].tolist() == [3.0]
    assert twice({"x": torch.tensor([exact])})[0].tolist() == [2 * exact]


def test_a_crowd_that_grows_is_captured_anew(monkeypatch):
    made = []
    monkeypatch.setattr("palus.nn.captured.PAYS", 0)
    monkeypatch.setattr("palus.nn.captured.captured", lambda work, *_: (made.append(1), work)[1])
    monkeypatch.setattr(Placement, "captures", property(lambda place: True))
    several, seen = [network(seed, NUMBERS) for seed in range(PARTS + 1)], rows_of(NUMBERS, 10)
    crowd = Crowd(several[0])
    for count, expected in ((1, 1), (1, 1), (PARTS + 1, 2), (1, 3)):  # the first graph reads memory that was given up
        crowd.act(several[:count], [slice(2 * k, 2 * k + 2) for k in range(count)], seen)
        assert len(made) == expected


@pytest.mark.skipif(not HERE.captures, reason="graphs are CUDA's")
def test_a_graph_says_what_its_work_says():
    several, blocks = [network(seed, NUMBERS) for seed in range(3)], [slice(0, 9), slice(9, 33), slice(33, 40)]
    crowd, lone = Crowd(several[0]), network(7, NUMBERS, "shared")
    for k in range(PAYS + 4):
        seen = rows_of(NUMBERS, 40, k)
        same(crowd, several, blocks, seen)
        here = Network.acting(NUMBERS, SETTINGS, lone.acting_arrays())
        torch.testing.assert_close(alone(lone, seen), alone(here, seen), atol=2e-5, rtol=2e-5)
        with torch.no_grad():
            lone.weights.master.mul_(1.01)
        lone.weights.refresh()
