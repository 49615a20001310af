"""Weights and moments as arrays: Sample Factory's names and sizes, how they travel, and which are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import DOOM, SMALL, TINY, act, network, observations

from palus.config.appo import AppoNetworkSettings
from palus.errors import ModelError
from palus.nn.network import Network
from palus.nn.running import RunningMoments
from palus.types import BehaviorSpec, ObservationSpec


def test_the_default_network_has_the_size_and_names_of_sample_factorys() -> None:
    arrays = network(DOOM).arrays()
    weights = {name: a for name, a in arrays.items() if "normalizer" not in name}
    # The flattened image is 2304 wide; 2.87 M numbers in all.
    assert arrays["encoder.encoders.obs.enc.mlp_layers.0.weight"].shape == (512, 2304)
    assert sum(a.size for a in weights.values()) == 2_872_038
    assert {
        "encoder.encoders.obs.enc.conv_head.4.bias", "core.core.weight_hh_l0", "critic_linear.weight",
        "action_parameterization.distribution_linear.bias",
        "obs_normalizer.running_mean_std.running_mean_std.obs.running_mean",
    } <= set(arrays)  # fmt: skip


def test_weights_and_moments_travel_as_arrays() -> None:
    one, two = network(seed=1, **TINY), network(seed=2, **TINY)
    one.returns = RunningMoments(1)
    one.returns.update(np.array([3.0]), np.array([4.0]), 99)
    seen = observations(SMALL, 5)
    one.scalers["obs"].update(seen["obs"], np.arange(5))
    assert not torch.equal(act(one, seen)[1], act(two, seen)[1])
    two.load_arrays(one.arrays())
    for a, b in zip(act(one, seen), act(two, seen), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_twin_acts_as_a_network_did_until_it_follows(critic: str, dtype: torch.dtype) -> None:
    policy, seen = network(dtype=dtype, critic=critic, **TINY), observations(SMALL, 16)

    def learn(seed: int) -> None:
        with torch.no_grad():
            policy.weights.master.add_(torch.randn(len(policy.weights.master), generator=generator), alpha=0.1)
            policy.weights.refresh()
            policy.inputs.observe(observations(SMALL, 16, seed), np.arange(16))
            policy.returns = policy.returns or RunningMoments(1)
            policy.returns.update(np.full(1, float(seed)), np.ones(1), 50)
            policy.version += 1

    def acts(network: Network) -> list[np.ndarray]:
        return [part.numpy().copy() for part in act(network, seen) if part is not None]

    generator = torch.Generator().manual_seed(1)
    learn(3)
    twin, before = policy.twin(), acts(policy)
    assert twin.version == 1
    learn(4)
    for _ in range(2):
        assert policy.version - twin.version == 1
        for own, then, now in zip(acts(twin), before, acts(policy), strict=True):
            np.testing.assert_array_equal(own, then)
            assert not np.array_equal(then, now)
        twin.follow(policy)
        assert policy.version == twin.version
        before = acts(policy)
        learn(5)


def test_arrays_of_another_network_are_refused_whole() -> None:
    policy = network(**TINY)
    before = policy.weights.master.clone()
    with pytest.raises(ModelError, match=r"core\.core\.weight_ih_l0: shape .*; expected shape \(24, 32\)"):
        policy.load_arrays(network(**TINY | {"memory": {"kind": "lstm", "memory_size": 16}}).arrays())
    plain = network(**TINY, normalize=False)
    with pytest.raises(ModelError, match=r"measurements\.count: not of this network; use the run file"):
        plain.load_arrays(policy.arrays())
    assert torch.equal(policy.weights.master, before)


def test_the_same_seed_gives_the_same_weights_and_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(5)
    first = network(initialization="torch", **TINY).arrays()
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    undrawn = Network(SMALL, AppoNetworkSettings(**TINY), None).arrays()
    assert not undrawn["action_parameterization.distribution_linear.weight"].any()
    for name, array in network(initialization="torch", **TINY).arrays().items():
        np.testing.assert_array_equal(array, first[name])
        assert array.any() or "running_mean" in name


def test_arrays_without_moments_of_returns_leave_none() -> None:
    policy = network(**TINY)
    arrays = policy.arrays()
    policy.returns = RunningMoments(1)
    policy.load_arrays(arrays)
    assert policy.returns is None


MOMENTS = "obs_normalizer.running_mean_std.running_mean_std.measurements."


@pytest.mark.parametrize(
    ("name", "array", "fault"),
    [
        (f"{MOMENTS}count", None, "missing; expected one number"),
        (f"{MOMENTS}running_var", None, r"missing; expected shape \(4,\)"),
        ("returns_normalizer.running_var", None, "missing; expected one number"),
        ("returns_normalizer.running_mean", np.zeros(2), r"shape \(2,\); expected one number"),
        ("critic_linear.bias", np.array(["one"]), r"no numbers \(<U3\); expected shape \(1,\)"),
    ],
)
def test_damaged_arrays_are_refused_whole(name: str, array: Any, fault: str) -> None:
    policy, other = network(**TINY), network(seed=1, **TINY)
    other.returns = RunningMoments(1)
    arrays, before = other.arrays(), policy.arrays()
    arrays |= {} if array is None else {name: array}
    if array is None:
        del arrays[name]
    with pytest.raises(ModelError, match=f"^weights {re.escape(name)}: {fault}; use the run file"):
        policy.load_arrays(arrays)
    for key, own in policy.arrays().items():
        np.testing.assert_array_equal(own, before[key])


def test_a_picture_of_one_number_has_moments_that_travel() -> None:
    spec = BehaviorSpec("b", (ObservationSpec("light", (1, 1, 1), "uint8"),), SMALL.actions)
    one, two = (network(spec, seed=k, vis_encode_type="fully_connected", memory=None) for k in range(2))
    one.inputs.observe({"light": np.full((3, 1, 1, 1), 51, np.uint8)}, np.arange(3))
    two.load_arrays(one.arrays())
    assert two.scalers["light"].moments.mean.tolist() == [pytest.approx(0.15)]  # 0.2 three times and a virtual 0


def test_what_acts_takes_nothing_of_a_critic_along() -> None:
    policy = network(critic="separate", **TINY)
    policy.returns = RunningMoments(1)
    assert policy.acting_arrays().keys() == network(critic="none", **TINY).arrays().keys()
    shared = network(**TINY)
    shared.returns = RunningMoments(1)
    assert shared.acting_arrays().keys() == shared.arrays().keys()  # its values are told while it acts
