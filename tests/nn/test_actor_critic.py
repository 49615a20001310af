"""The network of APPO: names and sizes of Sample Factory's, acting equals learning, weights travel, bad ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from palus.config.appo import AppoNetworkSettings
from palus.errors import ConfigError, ModelError
from palus.nn.actor_critic import ActorCritic
from palus.nn.running import RunningMoments
from palus.trust import Trust
from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

DOOM = GameSpec.alike("doom", (ObservationSpec("obs", (3, 72, 128), "uint8"),), ActionSpec((Discrete(5),)), frameskip=4)
SMALL = GameSpec.alike(
    "small",
    (ObservationSpec("obs", (3, 40, 44), "uint8"), ObservationSpec("measurements", (4,))),
    ActionSpec((Discrete(3), Continuous(2))),
)
TINY = {"hidden_units": 16, "image_units": 16, "memory": {"memory_size": 8}}


def network(
    spec: GameSpec = SMALL, dtype: torch.dtype = torch.float32, seed: int = 0, shared_critic: bool = True, **settings
) -> ActorCritic:
    generator, trust = torch.Generator().manual_seed(seed), Trust(frozenset({"palus.nn", __name__, "no_such_module"}))
    return ActorCritic(
        spec, AppoNetworkSettings(**settings), generator, dtype, shared_critic=shared_critic, trust=trust
    )


def observations(spec: GameSpec, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        o.name: rng.integers(0, 256, (rows, *o.shape), np.uint8) if o.is_image else rng.normal(size=(rows, *o.shape))
        .astype(np.float32)
        for o in spec.observations
    }  # fmt: skip


def act(policy: ActorCritic, seen: dict[str, np.ndarray], states: torch.Tensor | None = None):
    rows = len(next(iter(seen.values())))
    states = torch.zeros(rows, policy.state_size) if states is None else states
    return policy.act({name: torch.from_numpy(x) for name, x in seen.items()}, states)


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


@pytest.mark.parametrize("memory", [{"memory_size": 8}, {"kind": "lstm", "memory_size": 16}, None])
@pytest.mark.parametrize("shared", [True, False])
def test_steps_one_by_one_are_the_rollout_at_once(memory: dict[str, Any] | None, shared: bool) -> None:
    policy = network(shared_critic=shared, **TINY | {"memory": memory})
    T, B = 4, 3
    seen = observations(SMALL, T * B)
    keep = torch.ones(T, B)
    keep[2, 0] = 0.0
    inputs = policy.inputs(seen, np.arange(T * B))
    with torch.no_grad():
        parameters, values, last = policy(inputs, torch.zeros(B, policy.state_size), keep)
    states = torch.zeros(B, policy.state_size)
    for t in range(T):
        rows = slice(t * B, (t + 1) * B)
        step = act(policy, {name: x[rows] for name, x in seen.items()}, states * keep[t][:, None])
        states = step[2]
        torch.testing.assert_close(step[0], parameters[rows])
        torch.testing.assert_close(step[1], values[rows])
    torch.testing.assert_close(states, last)


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


def test_arrays_of_another_network_are_refused_whole() -> None:
    policy = network(**TINY)
    before = policy.weights.master.clone()
    with pytest.raises(ModelError, match=r"core\.core\.weight_ih_l0: shape .*; expected shape \(24, 32\)"):
        policy.load_arrays(network(**TINY | {"memory": {"kind": "lstm", "memory_size": 16}}).arrays())
    assert torch.equal(policy.weights.master, before)


def test_bfloat16_acts_nearly_like_float32() -> None:
    exact, rounded = network(DOOM), network(DOOM, torch.bfloat16)
    seen = observations(DOOM, 8)
    torch.testing.assert_close(act(rounded, seen)[0], act(exact, seen)[0], rtol=0, atol=0.05)


def test_values_are_denormalised() -> None:
    policy = network(**TINY)
    seen = observations(SMALL, 4)
    raw = act(policy, seen)[1]
    policy.returns = RunningMoments(1)
    policy.returns.mean, policy.returns.variance = np.array([10.0]), np.array([4.0 - 1e-5])
    torch.testing.assert_close(act(policy, seen)[1], 2.0 * raw + 10.0)


def test_a_learned_deviation_is_a_weight_of_its_own() -> None:
    policy = network(adaptive_deviation=False, initial_deviation=2.0, tanh_scale=0.5, **TINY)
    parameters = act(policy, observations(SMALL, 6))[0]
    assert policy.arrays()["action_parameterization.learned_stddev"].shape == (2,)
    torch.testing.assert_close(parameters[:, 5:], torch.full((6, 2), float(np.log(2.0))))
    assert parameters[:, 3:5].abs().max() <= 0.5


def test_the_same_seed_gives_the_same_weights_and_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(5)
    first = network(initialization="torch", **TINY).arrays()
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    for name, array in network(initialization="torch", **TINY).arrays().items():
        np.testing.assert_array_equal(array, first[name])


@pytest.mark.parametrize(
    ("encoder", "width"),
    [
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


class OwnEncoder(torch.nn.Module):
    def __init__(self, shape: tuple[int, int, int], settings: AppoNetworkSettings) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(shape[0], settings.hidden_units)
        self.out_features = settings.hidden_units

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mean((2, 3)))


def test_an_encoder_of_ones_own_is_named_by_its_path(monkeypatch) -> None:
    monkeypatch.setattr("palus.nn.encoders.OwnEncoder", OwnEncoder, raising=False)
    arrays = network(vis_encode_type="palus.nn.encoders:OwnEncoder", **TINY).arrays()
    assert arrays["encoder.encoders.obs.layer.weight"].shape == (16, 3)


@pytest.mark.parametrize("encoder", ["nature_cnn", "palus.nn.encoders:Missing", "no_such_module:Class"])
def test_an_unknown_encoder_is_an_error_of_the_run_file(encoder: str) -> None:
    with pytest.raises(ConfigError, match=r"network_settings\.vis_encode_type"):
        network(vis_encode_type=encoder)


def test_images_that_are_too_small_are_refused() -> None:
    spec = GameSpec.alike("tiny", (ObservationSpec("obs", (3, 20, 20), "uint8"),), ActionSpec((Discrete(2),)))
    with pytest.raises(ConfigError, match="20 x 20 are too small"):
        network(spec)
