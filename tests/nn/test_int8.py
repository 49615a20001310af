"""Pictures encoded in int8 while a policy acts: grids by hand, close to fp32, each row for itself, newest weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sampled import appo_behavior

from palus.config.appo import AppoNetworkSettings
from palus.learn.appo import APPO
from palus.learn.learner import Learner
from palus.nn import int8
from palus.nn.encoders import ResidualBlock
from palus.nn.int8 import CALIBRATED_ROWS, Grid, encode, int8_acting, largest_factor
from palus.nn.layers import Activate, Chain, Convolution
from palus.nn.network import Network
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec

PICTURE = ObservationSpec("obs", (3, 72, 128), "uint8")
SPEC = BehaviorSpec("Doom", (PICTURE,), ActionSpec((Discrete(5),)))
# As text: measured when a test runs, not by every process that collects.
needs_products = pytest.mark.skipif(
    "not largest_factor()", reason="this CPU, or this torch, has no exact products of int8"
)


def coarse() -> float:
    """So many times wider are steps of codes where products of int8 are exact up to 127 only."""
    return 255 / largest_factor()


def pictures(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    coarse = np.random.default_rng(seed).integers(0, 256, (rows, 3, 9, 16))
    return {"obs": torch.from_numpy(np.kron(coarse, np.ones((8, 8), int)).astype(np.uint8))}


def network(encoder: str, monkeypatch: Any, **changes: Any) -> Network:
    """Untrained, with moments of observations; it acts in int8 whatever the clock says of this machine."""
    monkeypatch.setattr(int8, "WORTH_IT", 0.0)
    settings = AppoNetworkSettings(vis_encode_type=encoder, **changes)
    made = Network(SPEC, settings, torch.Generator().manual_seed(3))
    made.scalers["obs"].update(pictures(64, 9)["obs"].numpy(), np.arange(64))
    assert made.act_in_int8()
    return made


def calibrate(policy: Network, seed: int = 1) -> None:
    assert policy.int8 is not None
    policy.int8.calibrate(policy.inputs({"obs": pictures(32, seed)["obs"].numpy()}))


def test_codes_are_those_of_the_grid() -> None:
    grid = Grid.over(-1.0, 1.55)  # 255 steps of 0.01
    assert grid.zero == 100 and grid.step == pytest.approx(0.01)
    x = torch.tensor([0.0, 0.004, 0.006, -0.5, 1.549, 7.0, -7.0])
    assert encode(x, grid).tolist() == [100, 100, 101, 50, 255, 255, 0]
    assert grid.values[[100, 50]] == pytest.approx([0.0, -0.5], abs=1e-6)
    coarse = Grid.over(-1.0, 1.54, 127)
    assert coarse.zero == 50 and encode(x, coarse).tolist() == [50, 50, 50, 25, 127, 127, 0]
    assert Grid.over(-0.996, 1.554).zero == 100  # the nearest one
    assert Grid.over(0.5, 1.0).zero == 0 and Grid.over(-1.0, -0.5).zero == 255  # 0 is always a number of the grid


def test_sums_of_codes_are_rounded_and_end_where_the_grid_does() -> None:
    x, y, out = np.array([0, 101, 255, 0], np.uint8), np.array([0, 50, 255, 40], np.uint8), np.empty(4, np.uint8)
    int8._add(x, y, 0.5, 0.25, 1.0, out)
    assert out.tolist() == [1, 64, 192, 11]  # 1, 64, 192.25, 11
    int8._add(x, y, 0.5, 0.25, 1.5, out)
    assert out.tolist() == [2, 65, 193, 12]  # 1.5, 64.5, 192.75, 11.5
    int8._add(x, y, 1.5, -1.0, 0.0, out)
    assert out.tolist() == [0, 102, 128, 0]  # 0, 101.5, 127.5, -40
    int8._add(x, y, 1.0, 1.0, 0.0, out)
    assert out.tolist() == [0, 151, 255, 40]


def test_grids_reach_over_what_each_layer_gave_in_the_order_of_the_layers() -> None:
    """A tenth further than it, and not below what the activation behind it tells apart."""
    double, block = Convolution(1, 1, 1), ResidualBlock(1, "relu")
    inner = [layer for layer in block.res_block_core if isinstance(layer, Convolution)]
    with torch.no_grad():
        for layer, weight, bias in zip((double, *inner), (2.0, 3.0, -1.0), (0.0, -1.0, 0.0), strict=True):
            layer.weight.zero_()
            layer.weight[0, 0, layer.kernel_size[0] // 2, layer.kernel_size[1] // 2] = weight
            layer.bias.fill_(bias)
        encoder: Any = SimpleNamespace(conv_head=Chain(double, Activate("elu"), block), mlp_layers=Chain())
        ranges, features = int8._ranges(encoder, torch.tensor([1.0, -8.0]).reshape(2, 1, 1, 1))
    given, doubled, tripled, negated, added = (-8.8, 1.1), (-4.0, 2.2), (0.0, 5.5), (-5.5, 0.0), (-3.3, -1.1)
    np.testing.assert_allclose(ranges, [given, doubled, tripled, negated, added], atol=1e-5)
    np.testing.assert_allclose(features, [[-3.0], [-1.0]], atol=1e-5)


def test_every_cpu_with_avx2_has_products_of_seven_bits() -> None:
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this CPU has no AVX2")
    assert largest_factor() >= int8.LARGEST


@needs_products
def test_products_are_whole_numbers_up_to_the_largest_factor() -> None:
    """A sum of two that is cut at 32,767 would spoil them."""
    generator = torch.Generator().manual_seed(0)
    most = largest_factor()
    codes = torch.randint(most - 5, most + 1, (32, 256), generator=generator, dtype=torch.uint8)
    weight = torch.randint(-127, 128, (64, 256), generator=generator).float()
    weight[:, 0], weight[0] = 127, 127
    found = int8._product(weight, torch.zeros(64), Grid(1.0, 0))(codes)
    assert torch.equal(found, (codes.double() @ weight.double().T).float())


@needs_products
@pytest.mark.parametrize("encoder", ["convnet_simple", "resnet_strided", "nature_cnn", "convnet_impala"])
def test_a_policy_decides_nearly_as_in_fp32(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = network(encoder, monkeypatch, image_layers=2)
    states = torch.zeros(16, policy.state_size)
    exact = policy.act(pictures(16), states)
    for part, before in zip(policy.act(pictures(16), states), exact, strict=True):
        assert part is not None and torch.equal(part, before)  # nothing was calibrated yet
    calibrate(policy)
    coded = policy.act(pictures(16), states)
    for part, before in zip(coded, exact, strict=True):
        error = float((part - before).norm() / before.norm())
        assert 1e-5 < error < 0.06 * coarse(), error


@needs_products
def test_a_row_does_not_depend_on_the_rows_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = network("resnet_strided", monkeypatch)
    calibrate(policy)
    assert policy.int8 is not None
    inputs = policy.inputs({"obs": pictures(48)["obs"].numpy()})
    alone = policy.inputs({"obs": pictures(48)["obs"].numpy()[16:32]})
    together, apart = (policy.int8.encoded(x, 0)[0]["obs"] for x in (inputs, alone))
    assert torch.equal(together[16:32], apart)


@needs_products
def test_the_newest_weights_act_and_foreign_ones_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, states = network("convnet_simple", monkeypatch), torch.zeros(16, 512)
    calibrate(policy)
    before = policy.act(pictures(16), states)[2]
    with torch.no_grad():
        policy.weights.master.mul_(0.5)
    policy.version += 1
    after = policy.act(pictures(16), states)[2]
    assert policy.int8 is not None
    ranges, policy.int8 = policy.int8.ranges, None
    exact = policy.act(pictures(16), states)[2]
    bound = 0.1 * coarse()
    assert float((after - exact).norm() / exact.norm()) < bound < float((before - exact).norm() / exact.norm())
    assert policy.act_in_int8()
    policy.int8.begin_with(ranges)
    assert torch.equal(policy.act(pictures(16), states)[2], after)
    policy.load_arrays(policy.arrays())  # whose ranges nobody knows
    assert torch.equal(policy.act(pictures(16), states)[2], exact)


@needs_products
def test_new_grids_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for weights that have acted on the former ones."""
    policy, states = network("convnet_simple", monkeypatch), torch.zeros(16, 512)
    told = [policy.act(pictures(16), states)[2]]
    for seed in (1, 5):
        calibrate(policy, seed)
        told.append(policy.act(pictures(16), states)[2])
    assert not any(torch.equal(told[k], told[k - 1]) for k in range(3))
    calibrate(policy, 1)
    assert torch.equal(policy.act(pictures(16), states)[2], told[1])


def test_a_learner_reads_its_grids_from_the_decisions_that_were_taken() -> None:
    """Of 3 x 2 decisions those numbered 1 to 4, the last picture of all left out."""
    seen, told = np.arange(8).reshape(4, 2, 1), list[Any]()
    network = SimpleNamespace(int8=SimpleNamespace(calibrate=told.append), inputs=lambda x, rows: x["obs"][rows, 0])
    active = np.array([[False, True], [True, True], [True, False]])
    rollout: Any = SimpleNamespace(observations={"obs": seen}, active=active)
    Learner.calibrate(SimpleNamespace(network=network), rollout)
    assert len(told[0]) == CALIBRATED_ROWS and np.unique(told[0]).tolist() == [1, 2, 3, 4]
    rollout.active = np.zeros((3, 2), np.bool_)
    Learner.calibrate(SimpleNamespace(network=network), rollout)
    assert len(told) == 1, "nobody acted"


@needs_products
def test_a_learner_that_goes_on_acts_on_the_grids_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "WORTH_IT", 0.0)
    behavior = appo_behavior("network_settings.vis_encode_type=convnet_simple", "network_settings.memory=null")
    one, two = (APPO(behavior, SPEC, torch.float32, seed) for seed in (0, 1))
    assert one.network.act_in_int8() and two.network.act_in_int8()
    calibrate(one.network)
    two.load_state_dict(one.state_dict())
    told = [learner.network.act(pictures(16), torch.zeros(16, 0))[0] for learner in (one, two)]
    assert one.network.int8 is not None and one.network.int8.ranges
    assert torch.equal(*told)


@needs_products
def test_a_twin_acts_in_int8_too_and_on_the_same_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, states = network("convnet_simple", monkeypatch), torch.zeros(16, 512)
    calibrate(policy)
    monkeypatch.setattr(int8, "WORTH_IT", 100.0)  # what the network was found to gain holds for its twin
    twin, before = policy.twin(), policy.act(pictures(16), states)[2]
    assert torch.equal(twin.act(pictures(16), states)[2], before)
    with torch.no_grad():
        policy.weights.master.mul_(0.5)
    policy.version += 1
    calibrate(policy, 5)
    assert torch.equal(twin.act(pictures(16), states)[2], before)
    twin.follow(policy)
    after = twin.act(pictures(16), states)[2]
    assert not torch.equal(after, before) and torch.equal(after, policy.act(pictures(16), states)[2])


def test_what_gains_nothing_acts_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ObservationSpec("obs", (1, 20, 20), "uint8")
    spec = BehaviorSpec("Small", (small,), ActionSpec((Discrete(2),)))
    assert not Network(spec, AppoNetworkSettings(vis_encode_type="simple"), None).act_in_int8()
    settings = AppoNetworkSettings(vis_encode_type="convnet_simple", memory=None)
    assert not Network(SPEC, settings, None, torch.bfloat16).act_in_int8()
    monkeypatch.setattr(int8, "WORTH_IT", 100.0)
    assert not Network(SPEC, settings, None).act_in_int8()
    monkeypatch.setattr(int8, "WORTH_IT", 0.0)
    pooling = Network(SPEC, AppoNetworkSettings(vis_encode_type="resnet_impala", memory=None), None)
    assert int8_acting(*pooling._parts[""][:2], {"obs": PICTURE.shape}) is None
    monkeypatch.setattr(int8, "largest_factor", lambda: 0)
    assert not Network(SPEC, settings, None).act_in_int8()


@needs_products
def test_a_critic_that_remembers_by_its_own_pictures_keeps_its_policy_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "WORTH_IT", 0.0)
    for critic, memory, acts in (("separate", {}, False), ("separate", None, True), ("shared", {}, True)):
        settings = AppoNetworkSettings(memory=memory)
        assert Network(SPEC, settings, None, critic=critic).act_in_int8() is acts


@pytest.mark.parametrize(("exact", "largest"), [(255, 255), (127, 127), (126, 0)])
def test_the_largest_factor_is_the_largest_with_which_sums_are_exact(
    exact: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(weight: torch.Tensor, bias: torch.Tensor, given: Grid) -> Any:
        return lambda codes: codes.clamp(max=exact).float() @ weight.T

    monkeypatch.setattr(int8, "_product", product)
    assert largest_factor.__wrapped__() == largest


@needs_products
def test_the_gain_is_by_the_best_of_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of int8 2 seconds, of fp32 3."""
    policy = network("convnet_simple", monkeypatch)
    monkeypatch.setattr(int8, "TIMED", 3)
    seconds = {True: iter([9.0, 2.0, 4.0]), False: iter([5.0, 7.0, 3.0])}
    monkeypatch.setattr(int8, "_seconds", lambda encode, x: next(seconds[isinstance(encode, int8._Packed)]))
    assert policy.int8 is not None
    assert policy.int8.gain({"obs": PICTURE.shape}) == 1.5
