"""The network: acting equals learning, in any company; forbidden is never taken; what its values and deviations are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import DOOM, SMALL, TINY, act, network, observations

from palus.config.appo import AppoNetworkSettings
from palus.nn.action_head import units_of
from palus.nn.distributions import Distribution
from palus.nn.network import Network
from palus.nn.place import Placement
from palus.nn.running import RunningMoments
from palus.types import ActionSpec, BehaviorSpec, Continuous


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


def test_passes_on_a_device_are_shorter_where_there_is_a_picture_among_others() -> None:
    settings, place = AppoNetworkSettings(**TINY), Placement(torch.device("cpu"), compiled=False)
    vectors = replace(SMALL, observations=SMALL.observations[1:])
    assert [Network(spec, settings, None, place=place).rows_at_once for spec in (SMALL, vectors)] == [8192, 65536]
