"""Rollout in, numbers out: advantages, value targets and updates of PPO and MA-POCA, worked out by hand.

gamma 0.5, lambda 0.5, strength 2; what the critics answer stands in readable.py.
"""

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from paying import paying_poca
from readable import NUMBERS, SPEC, advantages_of, behavior_of, readable_poca, readable_ppo, rollout, two_matches

from palus.errors import DivergenceError
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.returns import usable_decisions
from palus.learn.signals import decisions_of

NO_MEMORY = torch.empty(0, 0), torch.empty(0, 0)

POCA_ADVANTAGES = (
    -5.75,
    -1.25,
    -5.25,
    -10.75,
    1,
    -8.5,
    -4,
    -9.5,
    -6,
    -5.5,
    -6,
)  # of two_matches, the absent row left out


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_ppo_ends_time_outs_rewards_and_the_last_row():
    learner = readable_ppo()
    values, _ = learner.replay(two_matches(), 1)
    advantages, targets = advantages_of(learner, two_matches())
    close(values[..., 0], [[1, 2, 3, 4], [5, 0, 6, 7], [8, 1, 2, 3]])
    # A = r + 0.5 V' - V + 0.25 A', r = 2 (own + group's). Row by row, from the last decision back:
    # row 0: 0.5 + 2 - 8 = -5.5 | 6 + 0 - 5 = 1, a goal | 2 + 2.5 - 1 + 0.25 = 3.75
    # row 1: 2.5 + 3 - 1 = 4.5 | absent | 1 + 0 - 2 = -1, left for good
    # row 2: 3 + 2.5 - 2 = 3.5 | 0.5 + 4 - 6 = -1.5, time-out before an 8 | -1 + 3 - 3 - 0.375 = -1.375
    # row 3: -2 + 3.5 - 3 = -1.5, time-out before a 7 | 2 + 1 - 7 = -4, before a 2 | 1 + 3.5 - 4 - 1 = -0.5
    close(advantages, [[3.75, -1, -1.375, -0.5], [1, 0, -1.5, -4], [-5.5, 4.5, 3.5, -1.5]])
    close(targets, [[4.75, 1, 1.625, 3.5], [6, 0, 4.5, 3], [2.5, 5.5, 5.5, 1.5]])


def test_poca_group_values_returns_and_counterfactual_baselines():
    batch = readable_poca().batch(two_matches())
    # mean of the numbers, + 1 for two: (1 + 2) / 2 + 1, (3 + 4) / 2 + 1 | 5 alone, (6 + 7) / 2 + 1 | ...
    close(batch.values[:, 0], [2.5, 4.5, 5, 7.5, 5.5, 3.5])
    # r = 2 (sum of the members' own + the group's, once); G = r + 0.5 (0.5 V' + 0.5 G'). From the last decision back:
    # match 0: 2.5 + 0.5 x 6 = 5.5 | 6 + 0 = 6, a goal | 3 + 0.5 (2.5 + 3) = 5.75: row 1's return runs on without it
    # match 1: -1 + 0.5 x 5 = 1.5, row 2 goes on alone | 2.5 + 0.5 x 6 = 5.5, time-out before (8 + 2) / 2 + 1 |
    #          -1 + 0.5 (3.75 + 2.75) = 2.25
    close(batch.returns[:, 0], [5.75, 2.25, 6, 5.5, 5.5, 1.5])
    # own number and the mate's action: (1 + 20) / 2 + 1, (2 + 10) / 2 + 1, ...; alone: the value
    baselines = np.array([[11.5, 7], [7.5, 13], [5, 0], [14, 9.5], [15, 11.5], [7, 7.5]])
    close(batch.baselines[batch.present][:, 0], baselines[batch.present])
    close(batch.advantages[batch.present], POCA_ADVANTAGES)
    assert batch.present.tolist() == [[True, True]] * 2 + [[True, False]] + [[True, True]] * 3


def test_poca_bootstraps_from_those_who_were_cut_off_when_the_others_ended():
    # Row 0 ends by the rules while row 1 is cut off before a 6: V' = 6 (one agent). r = 2 (1 + 3 + 0.5).
    batch = readable_poca().batch(
        rollout(
            [[1, 2], [3, 4]], [5, 5], [6], [[1, 3], [0, 0]], group_rewards=[[0.5, 0.5], [0, 0]], terminated=[(0, 0)],
            truncated=[(0, 1)], absent=[], actions=[[0, 0], [0, 0]],
        )
    )  # fmt: skip
    close(batch.returns[:, 0], [9 + 3, 0.5 * (5 + 1)])


def test_a_member_cut_off_alone_leaves_the_group_like_any_other():
    # Row 1 is cut off before an 8, row 0 plays on and sees a 3: G_0 = 0.5 (0.5 x 3 + 0.5 x 2), G_1 = 0.5 x 4.
    batch = readable_poca().batch(
        rollout(
            [[1, 2], [3, 0]], [4, 0], [8], [[0, 0], [0, 0]], group_rewards=[[0, 0], [0, 0]], terminated=[],
            truncated=[(0, 1)], absent=[(1, 1)], actions=[[0, 0], [0, 0]], last_absent=(1,),
        )
    )  # fmt: skip
    close(batch.returns[:, 0], [1.25, 2])


def taking_turns(**ends):
    """Of a group of two, row 0 takes decisions 0 and 2, row 1 decision 1."""
    paused = np.zeros((3, 2), np.bool_)
    paused[1, 0] = paused[2, 1] = True
    data = rollout(
        [[1, 0], [0, 2], [3, 0]], [0, 0], ends.pop("final", []), [[0, 0], [0, 1], [4, 0]], group_rewards=[[0, 0]] * 3,
        absent=[(0, 1), (1, 0), (2, 1)], actions=[[0, 0]] * 3, last_absent=(0, 1), **ends,
    )  # fmt: skip
    return replace(data, paused=paused)


def test_a_group_goes_on_as_long_as_a_member_does_that_waits():
    # Row 1 ends, row 0 decides again: G_2 = 8, G_1 = 2 + 0.5 (0.5 x 3 + 0.5 x 8), G_0 = 0.5 (0.5 x 2 + 0.5 x 4.75)
    returns = readable_poca().batch(taking_turns(terminated=[(2, 0), (2, 1)], truncated=[])).returns
    close(returns[:, 0], [1.6875, 4.75, 8])


def test_a_group_that_is_cut_off_is_worth_what_those_see_who_wait_too():
    # Before a 5 of row 0 and a 7 of row 1: V' = (5 + 7) / 2 + 1
    returns = readable_poca().batch(taking_turns(terminated=[], truncated=[(2, 0), (2, 1)], final=[5, 7])).returns
    close(returns[2, 0], 8 + 0.5 * 7)


def test_who_waits_since_before_the_rollout_has_no_share_of_what_its_group_is_paid():
    # r = 2 (own + the group's over those who decide or wait since a decision here): 2 x 10, 2 (1 + 2), 2 (4 + 3)
    data = taking_turns(terminated=[(2, 0), (2, 1)], truncated=[])
    paused = data.paused.copy()
    paused[0, 1] = True
    data = replace(data, paused=paused, group_rewards=np.float32([[10, 0], [0, 4], [6, 0]]))
    close(readable_poca().rewards(data, data.active)[:, 0, 0], [20, 6, 14])


def test_signals_pay_a_decision_after_which_its_agent_waited_by_what_it_saw_in_the_end():
    # Three times what is seen: 1 and 3 of row 0, 2 of row 1, which waits until it ends
    data = taking_turns(terminated=[(2, 0), (2, 1)], truncated=[])
    assert usable_decisions(data).tolist() == [[True, False], [False, True], [True, False]]
    close(paying_poca(False).rewards(data, usable_decisions(data))[:, 0, 1], [3, 6, 9])
    found = decisions_of(data, np.array([0, 3, 4]), SPEC.actions, False)  # t B + b
    assert found.ended.tolist() == [False, True, True] and found.known.tolist() == [True, False, False]
    assert found.following["obs_0"][0] @ np.arange(1, NUMBERS + 1) == 3


def all_out():
    """Both of a group leave at the first decision; others of the match, not in this rollout, play on."""
    return rollout(
        [[1, 2], [0, 0], [0, 0]], [0, 0], [], [[1, 0], [0, 0], [0, 0]], group_rewards=[[0, 0]] * 3,
        terminated=[(0, 0), (0, 1)], truncated=[], absent=[(1, 0), (1, 1), (2, 0), (2, 1)], actions=[[0, 0]] * 3,
        last_absent=(0, 1),
    )  # fmt: skip


def test_a_group_that_is_out_while_others_play_on_learns_from_what_it_did():
    learner = readable_poca()
    close(learner.batch(all_out()).returns[:, 0], [2, 0, 0])
    found = learner.update(all_out(), 0)
    # V = 2.5 against 2; b = (1 + 10) / 2 + 1 and (2 + 10) / 2 + 1 against 2
    assert found["Losses/Value Loss"] == pytest.approx(0.25, abs=1e-3)
    assert found["Losses/Baseline Loss"] == pytest.approx((4.5**2 + 5**2) / 2, abs=1e-2)
    assert torch.isfinite(learner.network.weights.master).all()


def lost_on_the_way():
    """A group that is there for two decisions and then, without an end, for none: its worker was lost."""
    return rollout(
        [[1, 2], [3, 4], [0, 0]], [0, 0], [], [[1, 0], [9, 9], [0, 0]], group_rewards=[[0, 0]] * 3, terminated=[],
        truncated=[], absent=[(2, 0), (2, 1)], actions=[[0, 0]] * 3, last_absent=(0, 1),
    )  # fmt: skip


def test_a_decision_that_nothing_known_follows_is_left_out():
    # V = 3 and 4, of both 4.5, stand for what follows decision 0; decision 1 and its rewards teach nothing.
    ppo, poca = readable_ppo(), readable_poca()
    advantages, _ = advantages_of(ppo, lost_on_the_way())
    close(advantages, [[2 + 1.5 - 1, 2 - 2], [0, 0], [0, 0]])
    batch = poca.batch(lost_on_the_way())
    assert batch.present.tolist() == [[True, True], [False, False], [False, False]]
    close(batch.returns[0], 2 + 0.5 * 4.5)


def test_a_decision_that_was_cut_off_is_learned_from_though_its_agent_stays_away():
    # Row 1 is cut off at decision 0 before a 6: A = 2 x 1 + 0.5 x 6 - 2 = 3.
    data = rollout(
        [[1, 2], [3, 0]], [5, 0], [6], [[0, 1], [0, 0]], group_rewards=[[0, 0], [0, 0]], terminated=[],
        truncated=[(0, 1)], absent=[(1, 1)], actions=[[0, 0], [0, 0]],
    )  # fmt: skip
    assert usable_decisions(data).tolist() == [[True, True], [True, False]]
    close(advantages_of(readable_ppo(), data)[0][:, 1], [3, 0])


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_nobody_active_nothing_learned(make, trainer):
    learner = make(behavior_of(trainer, "network_settings.normalize=true"), SPEC, torch.float32, 0)
    empty = rollout(
        [[0, 0]], [1, 2], [], [[0, 0]], group_rewards=[[0, 0]], terminated=[], truncated=[],
        absent=[(0, 0), (0, 1)], actions=[[0, 0]],
    )  # fmt: skip
    before = learner.network.weights.master.clone()
    assert learner.update(empty, 0) == {}
    assert torch.equal(learner.network.weights.master, before)
    assert learner.updates == 0


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_an_update_takes_what_was_seen_into_the_statistics(make, trainer):
    learner, data = make(behavior_of(trainer, "network_settings.normalize=true"), SPEC, torch.float32, 0), two_matches()
    learner.update(data, 0)
    seen, found = data.observations["obs_0"][:-1][data.active], learner.network.scalers["obs_0"].moments
    close(found.mean, seen.sum(0) / 12)  # eleven decisions, and the virtual sample of mean 0
    assert found.count == 12


def seen_by(learner, data):
    """What the agents saw, [T B] of them, as the network reads it."""
    return learner.network.inputs({"obs_0": data.observations["obs_0"][:-1].reshape(-1, 8)})


def printed_ppo(learner, epsilon, beta):
    """L_pi + 0.5 L_V - beta H as a tensor, and its parts."""
    data, active = two_matches(), torch.from_numpy(two_matches().active.ravel())
    advantages, targets = advantages_of(learner, data)
    logits, values, _ = learner.network(seen_by(learner, data), *NO_MEMORY)
    policy, entropy = printed_policy(logits[active], data, advantages[data.active], epsilon)
    critic = (torch.from_numpy(targets[data.active]) - values[active, 0]).square().mean()
    return policy + 0.5 * critic - beta * entropy, policy, critic


def printed_poca(learner, epsilon, beta):
    """L_pi + 0.5 (L_V + 0.5 L_b) - beta H as a tensor, and its parts."""
    data, batch = two_matches(), learner.batch(two_matches())
    present, x = torch.from_numpy(batch.present), seen_by(learner, data)
    logits = learner.network(x, *NO_MEMORY)[0][present.flatten()]
    policy, entropy = printed_policy(logits, data, batch.advantages[batch.present], epsilon)
    values, baselines = learner.network.critic(x, torch.from_numpy(batch.actions), present)
    returns = torch.from_numpy(batch.returns)
    critic = (returns - values).square().mean()
    baseline = (returns[:, None] - baselines)[present].square().mean()
    return policy + 0.5 * (critic + 0.5 * baseline) - beta * entropy, policy, critic


def printed_policy(logits, data, advantages, epsilon):
    """-mean min(rho A, clip(rho) A) over the active rows, and their mean entropy. advantages: before normalisation."""
    log_p = torch.log_softmax(logits, 1)
    chosen = log_p.gather(1, torch.from_numpy(data.actions[data.active]).long())
    ratio = (chosen - torch.from_numpy(data.log_probs[data.active])).exp()[:, 0]
    wanted = torch.from_numpy((advantages - advantages.mean()) / advantages.std())
    surrogate = torch.minimum(ratio * wanted, ratio.clip(1 - epsilon, 1 + epsilon) * wanted)
    return -surrogate.mean(), -(log_p.exp() * log_p).sum(1).mean()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_an_update_follows_the_gradient_of_the_loss_as_printed(make, trainer, threads):
    more = ("hyperparameters.beta=0.1", "hyperparameters.epsilon=0.3")
    learner = make(behavior_of(trainer, *more), SPEC, torch.float32, 5, threads)
    loss, policy, critic = (printed_ppo if trainer == "ppo" else printed_poca)(learner, 0.3, 0.1)
    weights = learner.network.weights
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(weights.tensors.values()))])
    before = weights.master.clone()
    found = learner.update(two_matches(), 0)
    torch.testing.assert_close(weights.gradient, expected, atol=2e-6, rtol=1e-4)
    assert found["Losses/Policy Loss"] == pytest.approx(abs(policy.item()), abs=1e-5)
    assert found["Losses/Value Loss"] == pytest.approx(critic.item(), rel=1e-4)
    # Adam's first step: the learning rate, against the gradient
    moved = (weights.master - before)[expected.abs() > 1e-3]
    torch.testing.assert_close(moved, -0.01 * expected[expected.abs() > 1e-3].sign(), atol=1e-5, rtol=1e-3)


def test_the_policy_loss_is_reported_by_its_size():
    # Advantages 1 and -3 become 1 and -1, ratios are 1.25 and 1: -(min(1.25, 1.2) - 1) / 2 = -0.1
    data = rollout(
        [[1, 1]], [0, 0], [], [[1, -1]], group_rewards=[[0, 0]], terminated=[(0, 0), (0, 1)], truncated=[], absent=[],
        actions=[[0, 0]], ratios=[[1.25, 1.0]], last_absent=(0, 1),
    )  # fmt: skip
    found = readable_ppo("hyperparameters.epsilon=0.2").update(data, 0)
    assert found["Losses/Policy Loss"] == pytest.approx(0.1, abs=1e-4)


def test_estimates_reported_are_means_over_the_active():
    ppo, poca = readable_ppo().update(two_matches(), 0), readable_poca().update(two_matches(), 0)
    assert ppo["Policy/Extrinsic Value Estimate"] == pytest.approx(42 / 11, abs=1e-4)
    assert poca["Policy/Extrinsic Value Estimate"] == pytest.approx(28.5 / 6, abs=1e-3)
    assert poca["Policy/Extrinsic Baseline Estimate"] == pytest.approx(108.5 / 11, abs=1e-3)
    assert poca["Losses/Baseline Loss"] == pytest.approx(sum(a * a for a in POCA_ADVANTAGES) / 11, rel=1e-3)
    lost = readable_poca().update(lost_on_the_way(), 0)  # of decision 0 alone
    assert lost["Policy/Extrinsic Value Estimate"] == pytest.approx(2.5, abs=1e-3)


def test_minibatches_cover_an_epoch_and_drop_the_remainder():
    seen = []
    learner = readable_ppo("hyperparameters.batch_size=4", "hyperparameters.num_epoch=2")
    split = learner.parallel.split
    learner.parallel.split = lambda items: (seen.append(items.tolist()), split(items))[1]
    learner.update(two_matches(), 0)
    assert [len(rows) for rows in seen] == [4] * 4  # 11 active rows: two minibatches of 4 in each epoch
    for epoch in (seen[:2], seen[2:]):
        rows = {row for minibatch in epoch for row in minibatch}
        assert len(rows) == 8
        assert 5 not in rows  # the absent one
    assert seen[:2] != seen[2:]


def test_the_clip_range_follows_its_schedule():
    # Ratios 1.25 everywhere: outside of 0.2 at the start, inside of 0.3 never; at max_steps epsilon is 0.1.
    data = two_matches()
    data = replace(data, log_probs=np.full_like(data.log_probs, np.log(0.4)))
    schedule = ("hyperparameters.epsilon_schedule=linear", "hyperparameters.epsilon=0.4", "max_steps=1000")
    clipped = [readable_ppo(*schedule).update(data, step)["Policy/Clipped"] for step in (0, 400, 600, 1000)]
    assert clipped == [0.0, 0.0, 1.0, 1.0]  # epsilon 0.4, 0.28, 0.22, 0.1


def test_schedules_end_at_their_floors():
    linear = [f"hyperparameters.{name}_schedule=linear" for name in ("learning_rate", "beta", "epsilon")]
    values = ("hyperparameters.learning_rate=0.01", "hyperparameters.beta=0.1", "hyperparameters.epsilon=0.3")
    falling = readable_ppo(*linear, *values, "max_steps=1000")
    assert astuple(falling.schedules(0)) == pytest.approx((0.01, 0.3, 0.1))
    assert astuple(falling.schedules(500)) == pytest.approx((0.005, 0.2, 0.050005))
    for step in (1000, 2000):
        assert astuple(falling.schedules(step)) == pytest.approx((1e-10, 0.1, 1e-5), rel=1e-6)
    constant = [setting.replace("linear", "constant") for setting in linear]
    assert astuple(readable_ppo(*constant, *values, "max_steps=1000").schedules(900)) == (0.01, 0.3, 0.1)


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
@pytest.mark.parametrize("fault", ["gradient", "moment", "weight", "step", "steps"])
def test_numbers_that_are_not_finite_end_an_update(make, trainer, fault):
    rate = "hyperparameters.learning_rate=" + ("1e39" if "step" in fault else "0.01")  # more than a float32 holds
    more = (rate, "hyperparameters.batch_size=4") if fault == "steps" else (rate,)
    learner, data = make(behavior_of(trainer, *more), SPEC, torch.float32, 0), two_matches()
    if fault == "gradient":
        data = replace(data, log_probs=np.full_like(data.log_probs, -np.inf))
    if fault == "moment":  # finite, but its square is not, and Adam would never move again
        data = replace(data, rewards=np.full_like(data.rewards, 1e25))
    if fault == "weight":
        learner.network.weights.tensors["action_parameterization.distribution_linear.weight"].data[0, 0] = np.inf
    with pytest.raises(DivergenceError, match=r"weights or .* are not finite; lower learning_rate"):
        learner.update(data, 0)
