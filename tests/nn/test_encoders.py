"""What enters the network: pictures, vectors and entities, how they are encoded, and what is normalised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import DOOM, SMALL, TINY, act, network, observations

from palus.config.network import NetworkSettings
from palus.errors import ConfigError
from palus.nn import encoders
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec


def test_entities_are_seen_in_any_order_and_absent_ones_not_at_all() -> None:
    spec = BehaviorSpec(
        "b", (ObservationSpec("own", (4,)), ObservationSpec("others", (5, 3))), ActionSpec((Discrete(2),))
    )
    policy = network(spec, encoding="joint", hidden_units=16, memory=None)
    seen = observations(spec, 6)
    seen["others"][:, 3:] = 0.0
    seen["others"][5] = 0.0  # nobody there
    first = act(policy, seen)[0]
    assert torch.isfinite(first).all()
    shuffled = seen | {"others": np.ascontiguousarray(seen["others"][:, [4, 2, 0, 3, 1]])}
    torch.testing.assert_close(act(policy, shuffled)[0], first)
    fewer = BehaviorSpec("b", (spec.observations[0], ObservationSpec("others", (3, 3))), spec.actions)
    small = network(fewer, encoding="joint", hidden_units=16, memory=None)
    cut = seen | {"others": np.ascontiguousarray(seen["others"][:, :3])}
    torch.testing.assert_close(act(small, cut)[0], first)


def test_vectors_enter_together_in_the_games_order() -> None:
    spec = BehaviorSpec.of_vectors("b", (3, 2), (4,))
    policy = network(spec, encoding="joint", hidden_units=8, num_layers=1, memory=None, normalize=False)
    seen = observations(spec, 9)
    index = np.array([4, 0, 8])
    joined = np.concatenate([seen["obs_0"], seen["obs_1"]], 1)[index]
    assert torch.equal(policy.inputs(seen, index)[""], torch.from_numpy(joined))
    rounded = network(spec, torch.bfloat16, encoding="joint", memory=None, normalize=False).inputs(seen, index)[""]
    assert torch.equal(rounded, torch.from_numpy(joined).bfloat16())


@pytest.mark.parametrize(
    ("encoder", "width"),
    [
        ("simple", 32 * 3 * 4),
        ("match3", 144 * 36 * 40),
        ("nature_cnn", 64 * 1 * 2),
        ("resnet", 32 * 4 * 4),
        ("fully_connected", 3 * 40 * 44),
        ("convnet_impala", 32 * 3 * 4),
        ("convnet_atari", 64 * 1 * 2),
        ("resnet_impala", 32 * 5 * 6),
        ("resnet_strided", 64 * 3 * 3),
    ],
)
def test_the_other_encoders(encoder: str, width: int) -> None:
    policy = network(vis_encode_type=encoder, image_layers=0, **TINY)
    assert policy.arrays()["core.core.weight_ih_l0"].shape == (24, width + 16)
    assert torch.isfinite(act(policy, observations(SMALL, 2))[0]).all()


def test_images_that_are_too_small_are_refused() -> None:
    spec = BehaviorSpec("tiny", (ObservationSpec("obs", (3, 20, 20), "uint8"),), ActionSpec((Discrete(2),)))
    with pytest.raises(ConfigError, match="20 x 20 are too small"):
        network(spec)


@pytest.mark.parametrize("encoder", ["convnet_simple", "resnet_strided"])
def test_pictures_are_learned_from_a_cache_full_at_a_time(encoder: str, monkeypatch) -> None:
    policy = network(DOOM, vis_encode_type=encoder, memory=None, image_units=16, hidden_units=16)
    inputs, sizes = policy.inputs(observations(DOOM, 10)), list[int]()
    (image,) = (module for module in policy.modules() if isinstance(module, encoders.ImageEncoder))
    image.conv_head.register_forward_hook(lambda module, given, found: sizes.append(len(found)))

    def found(most: int) -> tuple[torch.Tensor, ...]:
        sizes.clear()
        monkeypatch.setattr(encoders, "CACHED_BYTES", most * 3 * 72 * 128 * 4)
        parameters, values, _ = policy(inputs, torch.zeros(10, 0), torch.ones(1, 10))
        return parameters, *policy.weights.backward([parameters, values], [parameters.detach(), values.detach()])

    whole = found(10)
    assert sizes == [10]
    parts = found(4)
    assert sizes == [4, 3, 3]
    for part, reference in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, reference, rtol=1e-4, atol=1e-6)
    with torch.no_grad():  # who acts gets the same bits in any company
        found_alone = policy(inputs, torch.zeros(10, 0), torch.ones(1, 10))
    assert sizes == [4, 3, 3, 10] and torch.equal(found_alone[0], whole[0])


def test_what_is_normalised() -> None:
    seen, eye = ObservationSpec("seen", (3,)), ObservationSpec("eye", (3, 8, 8), "uint8")
    every, some = NetworkSettings(normalize=True), NetworkSettings(normalize=True, normalize_names=("eye",))
    assert [encoders.normalizes(o, every) for o in (seen, eye)] == [True, True]
    assert [encoders.normalizes(o, some) for o in (seen, eye)] == [False, True]
    assert not encoders.normalizes(seen, NetworkSettings(normalize=False))
    assert not encoders.normalizes(replace(seen, normalize=False), every)  # where the game has it
    assert not encoders.normalizes(ObservationSpec("others", (4, 5)), every)  # absent ones are zeros


def test_moments_are_those_of_the_rows_that_are_named() -> None:
    policy, seen = network(**TINY), observations(SMALL, 9)
    policy.inputs.observe(seen, np.array([2, 7, 8]))
    found = policy.arrays()
    prefix = "obs_normalizer.running_mean_std.running_mean_std.measurements"
    assert found[f"{prefix}.count"].tolist() == [4.0]  # with the virtual one
    np.testing.assert_allclose(found[f"{prefix}.running_mean"], seen["measurements"][[2, 7, 8]].sum(0) / 4, rtol=1e-6)


def test_pictures_of_fractions_are_not_divided_and_those_of_bytes_are() -> None:
    spec = BehaviorSpec(
        "b", (ObservationSpec("bytes", (1, 2, 2), "uint8"), ObservationSpec("fractions", (1, 2, 2))), SMALL.actions
    )
    policy = network(spec, vis_encode_type="fully_connected", memory=None, normalize=False, image_scale=51.0)
    seen = {"bytes": np.full((1, 1, 2, 2), 255, np.uint8), "fractions": np.full((1, 1, 2, 2), 0.5, np.float32)}
    inputs = policy.inputs(seen)
    assert inputs["bytes"].unique().tolist() == [5.0] and inputs["fractions"].unique().tolist() == [0.5]
