"""The network: Sample Factory's names and sizes, acting equals learning, weights travel, forbidden is never taken."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from palus.config.appo import AppoNetworkSettings
from palus.config.network import NetworkSettings
from palus.errors import ConfigError, ModelError
from palus.nn import encoders
from palus.nn.action_head import units_of
from palus.nn.distributions import Distribution
from palus.nn.network import Network
from palus.nn.place import Placement
from palus.nn.running import RunningMoments
from palus.trust import Trust
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

DOOM = BehaviorSpec("doom", (ObservationSpec("obs", (3, 72, 128), "uint8"),), ActionSpec((Discrete(5),)))
SMALL = BehaviorSpec(
    "small",
    (ObservationSpec("obs", (3, 40, 44), "uint8"), ObservationSpec("measurements", (4,))),
    ActionSpec((Discrete(3), Continuous(2))),
)
TINY = {"hidden_units": 16, "image_units": 16, "memory": {"memory_size": 8}}


def network(
    spec: BehaviorSpec = SMALL, dtype: torch.dtype = torch.float32, seed: int = 0, critic: Any = "shared", **settings
) -> Network:
    generator, trust = torch.Generator().manual_seed(seed), Trust(frozenset({"palus.nn", __name__, "no_such_module"}))
    return Network(spec, AppoNetworkSettings(**settings), generator, dtype, critic=critic, trust=trust)


def observations(spec: BehaviorSpec, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        o.name: rng.integers(0, 256, (rows, *o.shape), np.uint8) if o.is_image else rng.normal(size=(rows, *o.shape))
        .astype(np.float32)
        for o in spec.observations
    }  # fmt: skip


def act(policy: Network, seen: dict[str, np.ndarray], states: torch.Tensor | None = None):
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
@pytest.mark.parametrize("critic", ["shared", "separate", "none"])
@pytest.mark.parametrize("encoding", ["apart", "joint"])
def test_steps_one_by_one_are_the_rollout_at_once(memory: dict[str, Any] | None, critic: str, encoding: str) -> None:
    policy = network(critic=critic, **TINY | {"memory": memory, "encoding": encoding})
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
        now, before = {name: x[rows] for name, x in seen.items()}, states * keep[t][:, None]
        step = act(policy, now, before)
        states = step[2]
        torch.testing.assert_close(step[0], parameters[rows])
        if critic == "none":
            assert step[1] is values is None
            continue
        # A separate critic without memory would cost a pass of its own, so acting leaves it out.
        assert (step[1] is None) == (critic == "separate" and memory is None)
        if step[1] is not None:
            torch.testing.assert_close(step[1], values[rows, 0])
        np.testing.assert_allclose(policy.values(now, before.numpy()), values[rows], atol=1e-6)
    torch.testing.assert_close(states, last)


@pytest.mark.parametrize("encoding", ["apart", "joint"])
def test_forbidden_choices_have_no_chance_at_all(encoding: str) -> None:
    policy = network(encoding=encoding, **TINY | {"memory": None})
    masks = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    parameters = policy.act(
        {k: torch.from_numpy(x) for k, x in observations(SMALL, 3).items()}, torch.zeros(3, 0), masks
    )[0]
    chances = parameters[:, :3].softmax(1)
    assert (chances[:2][~masks[:2]] == 0.0).all() and chances[1, 1] == 1.0
    assert torch.equal(chances[2], torch.full((3,), 1 / 3))  # nothing allowed: equally likely
    free = policy.act({k: torch.from_numpy(x) for k, x in observations(SMALL, 3).items()}, torch.zeros(3, 0))[0]
    assert torch.equal(parameters[:, 3:], free[:, 3:])
    now, old = Distribution(parameters, SMALL.actions), Distribution(free, SMALL.actions)
    assert torch.isfinite(now.entropies()).all() and torch.isfinite(now.kl(old)).all()
    inputs = policy.inputs(observations(SMALL, 3))
    taken, values, _ = policy(inputs, torch.empty(0, 0), torch.empty(0, 0), masks)
    slopes = policy.weights.backward([taken, values], [torch.ones_like(taken), torch.ones(3, 1)])
    assert all(torch.isfinite(slope).all() for slope in slopes)


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


def test_first_weights_as_ml_agents_draws_them() -> None:
    spec = BehaviorSpec.of_vectors("b", (264, 72), (3, 3, 3))
    generator = torch.Generator().manual_seed(3)
    policy = Network(spec, NetworkSettings(hidden_units=512), generator, critic="separate")
    weights = {name: w for name, w in policy.weights.masters.items() if name.endswith("weight")}
    again = torch.Generator().manual_seed(3)
    for name, deviation in (
        ("actor_encoder.layers.0", 336**-0.5), ("actor_encoder.layers.2", 512**-0.5),
        ("action_parameterization.distribution_linear", 0.1 * 512**-0.5),
        ("critic_encoder.layers.0", 336**-0.5), ("critic_encoder.layers.2", 512**-0.5),
    ):  # fmt: skip
        expected = torch.empty(weights[f"{name}.weight"].shape).normal_(0.0, deviation, generator=again)
        assert torch.equal(weights[f"{name}.weight"], expected), name
    bound = (6 / 513) ** 0.5
    assert torch.equal(weights["critic_linear.weight"], torch.empty(1, 512).uniform_(-bound, bound, generator=again))
    assert torch.equal(generator.get_state(), again.get_state())
    assert not any(v.any() for k, v in policy.weights.masters.items() if k.endswith("bias"))


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


def test_bfloat16_acts_nearly_like_float32() -> None:
    exact, rounded = network(DOOM), network(DOOM, torch.bfloat16)
    seen = observations(DOOM, 8)
    torch.testing.assert_close(act(rounded, seen)[0], act(exact, seen)[0], rtol=0, atol=0.05)


def test_what_is_decided_for_a_row_does_not_depend_on_how_many_others_there_are() -> None:
    spec = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
    policy = network(spec, hidden_units=128, num_layers=2, encoding="joint", memory=None)
    seen = observations(spec, 128)
    whole = act(policy, seen)
    for rows in range(1, 70):  # products of 8 rows came out otherwise than of 16, on a processor
        found = act(policy, {name: x[:rows] for name, x in seen.items()})
        assert all(torch.equal(own, all_rows[:rows]) for own, all_rows in zip(found[:2], whole, strict=False)), rows


def test_passes_that_act_have_as_many_rows_as_round_alike_on_every_processor(monkeypatch) -> None:
    policy, rows = network(BehaviorSpec.of_vectors("b", (3,), (2,)), memory=None), list[int]()

    def told(compute: Any) -> Any:
        return lambda x: (rows.append(len(x)), compute(x))[1]

    monkeypatch.setattr(policy.action_parameterization, "forward", told(policy.action_parameterization.forward))
    monkeypatch.setattr(policy.critic_linear, "in_float32", told(policy.critic_linear.in_float32))
    for count, passes in ((1, [16, 64]), (16, [16, 64]), (18, [20, 64]), (64, [64, 64]), (65, [68, 128])):
        rows.clear()
        assert len(act(policy, observations(policy.spec, count))[1]) == count and rows == passes


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


def test_numbers_begin_in_the_middle_of_a_finite_range_with_a_third_of_its_half_as_deviation() -> None:
    """As in ML-Agents, which clips what is drawn to +-3 and tells the game a third of it; weights are in its units."""
    numbers = ActionSpec((Continuous(1, -1.0, 5.0), Continuous(1), Continuous(1, -1.0, 1.0)))
    policy, own = (
        Network(
            BehaviorSpec("B", SMALL.observations, numbers),
            AppoNetworkSettings(range_end=end, adaptive_deviation=False, initial_deviation=2.0, **TINY),
            torch.Generator().manual_seed(0),
        )
        for end in (3.0, 0.0)
    )
    seen = observations(SMALL, 6)
    mean, log_std = (act(policy, seen)[0].reshape(6, 3, 2)[:, :, k] for k in range(2))
    theirs = act(own, seen)[0].reshape(6, 3, 2)[:, :, 0]
    torch.testing.assert_close(mean, torch.stack([2.0 + theirs[:, 0], theirs[:, 1], theirs[:, 2] / 3], 1))
    torch.testing.assert_close(log_std.exp(), torch.tensor([2.0, 2.0, 2 / 3]).expand(6, 3))
    for half in (1e-4, 1e5, 3e38):  # where a deviation of a third would stand at its limit, and never move
        assert units_of(Continuous(1, -half, half), policy.settings) == (0.0, 1.0)


def test_deviations_of_what_is_squashed_are_limited_from_above_as_in_ml_agents() -> None:
    policy = network(squash=True, **TINY)
    with torch.no_grad():
        bias = policy.weights.tensors["action_parameterization.distribution_linear.bias"]
        bias[5], bias[6] = 50.0, -50.0
    parameters = act(policy, observations(SMALL, 6))[0]
    assert (parameters[:, 5] == 2.0).all() and (parameters[:, 6] < -40.0).all()


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


@pytest.mark.parametrize("encoder", ["palus.nn.encoders:Missing", "no_such_module:Class"])
def test_an_unknown_encoder_is_an_error_of_the_run_file(encoder: str) -> None:
    with pytest.raises(ConfigError, match=r"network_settings\.vis_encode_type"):
        network(vis_encode_type=encoder)


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


def test_each_reward_has_a_value_and_the_first_one_s_is_told_while_acting() -> None:
    settings, generator = AppoNetworkSettings(**TINY), torch.Generator().manual_seed(0)
    policy, seen = Network(SMALL, settings, generator, streams=3), observations(SMALL, 5)
    policy.weights.masters["critic_linear.bias"].copy_(torch.tensor([1.0, 2.0, 3.0]))
    policy.weights.masters["critic_linear.weight"].zero_()
    policy.weights.refresh()
    for same in (policy, policy.twin(), Network.acting(SMALL, settings, policy.acting_arrays())):
        assert act(same, seen)[1].tolist() == [1.0] * 5
        states = np.zeros((5, same.state_size), np.float32)
        assert same.values(seen, states).tolist() == [[1.0, 2.0, 3.0]] * 5


def test_values_far_from_the_usual_are_clipped_before_they_are_denormalised() -> None:
    policy = network(**TINY)
    policy.returns = RunningMoments(1)
    policy.returns.mean, policy.returns.variance = np.array([10.0]), np.array([4.0 - 1e-5])
    found = policy.denormalize(torch.tensor([-7.0, -5.0, 0.5, 6.0]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, 11.0, 20.0]))


def test_values_of_more_rows_than_a_pass_has_are_those_of_each_row() -> None:
    spec = BehaviorSpec.of_vectors("b", (3,), (2,))
    policy = network(spec, hidden_units=8, encoding="joint", memory=None)
    policy.rows_at_once = 8
    seen, states = observations(spec, 20), np.zeros((20, 0), np.float32)
    expected = [policy.values({"obs_0": seen["obs_0"][k : k + 1]}, states[:1])[0] for k in range(20)]
    np.testing.assert_allclose(policy.values(seen, states), expected, rtol=1e-4, atol=1e-6)
    shuffled = [np.array([19, 0, 3]), np.setdiff1d(np.arange(20), [19, 0, 3])]
    np.testing.assert_allclose(policy.values(seen, states, pieces=shuffled), expected, rtol=1e-4, atol=1e-6)


def test_arrays_without_moments_of_returns_leave_none() -> None:
    policy = network(**TINY)
    arrays = policy.arrays()
    policy.returns = RunningMoments(1)
    policy.load_arrays(arrays)
    assert policy.returns is None


def test_an_encoder_of_ones_own_says_how_wide_it_is(monkeypatch) -> None:
    class Silent(OwnEncoder):
        def __init__(self, shape: tuple[int, int, int], settings: AppoNetworkSettings) -> None:
            super().__init__(shape, settings)
            del self.out_features

    monkeypatch.setattr("palus.nn.encoders.Silent", Silent, raising=False)
    with pytest.raises(ConfigError, match=r"vis_encode_type palus\.nn\.encoders:Silent: no attribute out_features"):
        network(vis_encode_type="palus.nn.encoders:Silent", **TINY)


@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_what_a_row_remembers_stays_while_it_is_paused(critic: str) -> None:
    policy, seen = network(critic=critic, **TINY), observations(SMALL, 6)
    paused = torch.tensor([[False, False], [True, False], [False, True]])  # 3 steps of 2 rows
    states = torch.rand(2, policy.state_size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, values, after = policy(policy.inputs(seen), states, torch.ones(3, 2), paused=paused)
        for b, rows in enumerate(([0, 4], [1, 3])):
            inputs, keep = policy.inputs(seen, np.array(rows)), torch.ones(2, 1)
            _, alone, remembered = policy(inputs, states[b : b + 1], keep)
            torch.testing.assert_close(after[b : b + 1], remembered)
            torch.testing.assert_close(values[rows], alone)


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


def test_passes_on_a_device_are_shorter_where_there_is_a_picture_among_others() -> None:
    settings, place = AppoNetworkSettings(**TINY), Placement(torch.device("cpu"), compiled=False)
    vectors = replace(SMALL, observations=SMALL.observations[1:])
    assert [Network(spec, settings, None, place=place).rows_at_once for spec in (SMALL, vectors)] == [8192, 65536]
