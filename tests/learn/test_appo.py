"""The APPO learner: memory, lag, threads, and that it continues where it was saved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sampled import appo_behavior
from toys import Play, Recall, curve

from palus.errors import DivergenceError
from palus.learn.appo import APPO
from palus.learn.returns import usable_decisions
from palus.rollout.rollout import Rollout

VTRACE = ("hyperparameters.advantages=vtrace", "hyperparameters.normalize_returns=false")


def learner(*more: str, threads: int = 1) -> tuple[APPO, Play]:
    appo = APPO(appo_behavior(*more), Recall.spec, torch.float32, 0, threads)
    return appo, Play(appo, Recall())


def test_of_a_whole_minibatch_are_the_mean_and_deviation_of_advantages_and_the_mean_symmetric_kl() -> None:
    # Two parts, of one decision and of three: p = (1/2, 1/2), 0, and p = (3/4, 1/4), ln(3) / 8.
    appo, rollout = by_hand("hyperparameters.exploration_loss=symmetric_kl")
    batch = appo.prepare(rollout, rollout.active)
    parts = []
    for logit, advantages in ((0.0, [5.0]), (math.log(3.0), [1.0, 1.0, 1.0])):
        parameters = torch.tensor([[[logit, 0.0]] * len(advantages)])
        compared = appo._minibatch(np.arange(2), batch, torch.zeros(3, 2, 2), torch.zeros(3, 2))
        usable = torch.ones(1, len(advantages), dtype=torch.bool)
        parts.append((parameters, replace(compared, advantages=torch.tensor(advantages), usable=usable)))
    whole = appo._whole(parts)
    assert (whole.count, whole.mean, whole.deviation) == (4, 2.0, pytest.approx(math.sqrt(3.0)))
    assert whole.symmetric_kl == pytest.approx(math.log(3.0) / 8 * 3 / 4)


LSTM = "network_settings.memory={kind: lstm, memory_size: 32}"


@pytest.mark.parametrize("more", [(), (LSTM, *VTRACE)])
def test_a_recurrent_policy_learns_to_remember(more: tuple[str, ...]) -> None:
    scores = curve(*learner(*more), 18)
    assert scores[0] < 0.65
    assert np.mean(scores[-4:]) > 0.95


def test_a_feed_forward_policy_cannot_remember() -> None:
    scores = curve(*learner("network_settings.memory=null"), 18)
    assert 0.4 < np.mean(scores[-8:]) < 0.6


def test_without_lag_vtrace_takes_the_step_of_gae_with_lambda_one() -> None:
    # Without normalisation of observations: its statistics move between acting and learning.
    common = [
        f"hyperparameters.{x}" for x in ("normalize_returns=false", "lambd=1.0", "num_epoch=1", "batch_size=1024")
    ]
    common += ["network_settings.normalize=false"]
    one, play = learner(*common)
    two, _ = learner(*common, "hyperparameters.advantages=vtrace")
    rollout = play.collect()
    one.update(rollout, 0)
    two.update(rollout, 0)
    np.testing.assert_allclose(one.network.weights.gradient, two.network.weights.gradient, atol=2e-6)
    assert one.network.weights.gradient.abs().max() > 1e-3


def test_vtrace_takes_states_between_decisions_for_what_the_present_critic_says_of_them() -> None:
    # Present values 10, 20, 30 of row 0, gamma 0.5, ratios 1; from the last decision back, by the acting critic's 7:
    # 0 + 3.5 - 30 = -26.5 | 2 + 4 - 20 = -14, time-out before an 8 | 1 + 10 - 10 - 7 = -6
    appo, rollout = by_hand("hyperparameters.advantages=vtrace")
    batch, values = appo.prepare(rollout, rollout.active), np.float32([[10, 0], [20, 0], [30, 0]])
    advantages, _ = appo._vtrace(np.arange(2), batch, np.ones((3, 2), np.float32), values)
    np.testing.assert_allclose(advantages[:, 0], [-6, -14, -26.5], atol=1e-4)


def test_vtrace_learns_from_a_lagging_policys_rollouts() -> None:
    appo, play = learner(*VTRACE)
    behind = [play.collect() for _ in range(3)]
    scores = []
    for _ in range(32):
        appo.update(behind.pop(0), 0)
        behind.append(play.collect())
        scores.append(play.score)
    assert np.mean(scores[-4:]) > 0.95


@pytest.mark.parametrize("rows", [128, 100])
def test_two_threads_take_the_same_step(rows: int) -> None:
    """Also where they have 64 and 36 rows."""
    whole = ("hyperparameters.batch_size=1024",)
    (one, play), (two, _) = learner(*whole), learner(*whole, threads=2)
    rollout = play.collect()
    rollout = replace(rollout, active=rollout.active & (np.arange(128) < rows))
    a, b = one.update(rollout, 0), two.update(rollout, 0)
    np.testing.assert_allclose(one.network.weights.master, two.network.weights.master, atol=1e-4)
    assert a["Losses/Policy Loss"] == pytest.approx(b["Losses/Policy Loss"], abs=1e-4)
    assert a["Policy/Gradient Norm"] == pytest.approx(b["Policy/Gradient Norm"], rel=1e-3)


def test_a_saved_learner_continues_bit_for_bit() -> None:
    shuffled = ("hyperparameters.shuffle=true", "hyperparameters.adaptive_learning_rate=minibatch")
    one, play = learner(*shuffled)
    rollouts = [play.collect() for _ in range(4)]
    for rollout in rollouts[:2]:
        one.update(rollout, 0)
    two, _ = learner(*shuffled)
    two.load_state_dict(one.state_dict())
    for rollout in rollouts[2:]:
        assert one.update(rollout, 0) == two.update(rollout, 0)
    assert torch.equal(one.network.weights.master, two.network.weights.master)


@pytest.mark.parametrize(("before", "now"), [(True, False), (False, True)])
def test_weights_whose_critic_learned_returns_in_other_units_are_refused(before: bool, now: bool) -> None:
    (one, play), (two, _) = (learner(f"hyperparameters.normalize_returns={own}".lower()) for own in (before, now))
    one.update(play.collect(), 0)
    kinds = ("plain", "normalised")
    for load in (two.load_state_dict, two.begin_from):
        with pytest.raises(ValueError, match=f"learned {kinds[before]} returns .* learns {kinds[now]} ones here"):
            load(one.state_dict())


def test_bfloat16_takes_nearly_the_same_step() -> None:
    one, play = learner("hyperparameters.num_epoch=1", "hyperparameters.batch_size=1024")
    two = APPO(one.behavior, Recall.spec, torch.bfloat16, 0)
    rollout = play.collect()
    one.update(rollout, 0)
    two.update(rollout, 0)
    a, b = one.network.weights.gradient, two.network.weights.gradient
    assert torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.99


def test_decisions_that_are_absent_or_without_successor_are_left_out() -> None:
    _, play = learner()
    rollout = play.collect()
    active, terminated = rollout.active.copy(), np.zeros_like(rollout.terminated)
    active[3:, 0] = False  # lost with its worker: decision 2 has no successor
    active[3, 1], terminated[2, 1] = False, True  # inactive after an end
    found = usable_decisions(replace(rollout, active=active, terminated=terminated))
    assert found[:, 0].tolist() == [True, True] + [False] * 6
    assert found[:, 1].tolist() == [True, True, True, False] + [True] * 4


def test_decisions_that_are_too_old_are_left_out() -> None:
    appo, play = learner("hyperparameters.max_policy_lag=1000", "hyperparameters.num_epoch=1")
    rollout = play.collect()
    versions = rollout.versions.copy()
    versions[0, 2], versions[1] = -1000, -10
    found = appo.update(replace(rollout, versions=versions), 0)
    assert found["Policy/Valid Share"] == pytest.approx(1 - 1 / rollout.active.size)
    assert found["Policy/Lag Max"] == 10
    assert found["Policy/Lag"] == pytest.approx(10 * 128 / (rollout.active.size - 1))


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_stay_in_their_order_unless_they_are_shuffled(shuffle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ("hyperparameters.batch_size=512", "hyperparameters.num_epoch=2")  # of 128 rows of 8 decisions
    appo, play = learner(*sizes, f"hyperparameters.shuffle={shuffle}".lower())
    taken: list[list[int]] = []

    def step(pieces: list[np.ndarray], *_: object) -> dict[str, float]:
        taken.append(pieces[0].tolist())
        return {}

    monkeypatch.setattr(appo, "_step", step)
    appo.update(play.collect(), 0)
    assert [len(rows) for rows in taken] == [64] * 4
    epochs = [taken[0] + taken[1], taken[2] + taken[3]]
    assert all(sorted(rows) == list(range(128)) for rows in epochs)
    assert all((rows == list(range(128))) != shuffle for rows in epochs)


@pytest.mark.parametrize(("rows", "steps"), [(100, 2), (90, 1)])
def test_there_are_as_many_minibatches_as_come_nearest_to_the_batch_size(rows: int, steps: int) -> None:
    """Of 800 and of 720 decisions by 512."""
    appo, play = learner("hyperparameters.batch_size=512", "hyperparameters.num_epoch=1")
    rollout = play.collect()
    appo.update(replace(rollout, active=rollout.active & (np.arange(128) < rows)), 0)
    assert appo.network.version == steps


def test_a_minibatch_of_one_decision_has_no_better_and_no_worse_ones() -> None:
    appo, rollout = by_hand()
    active = np.zeros_like(rollout.active)
    active[2, 0] = True
    assert appo.update(replace(rollout, active=active), 0)["Losses/Policy Loss"] == pytest.approx(0.0, abs=1e-6)


def test_nobody_active_nothing_learned() -> None:
    appo, play = learner()
    rollout = play.collect()
    before = appo.network.weights.master.clone()
    assert appo.update(replace(rollout, active=np.zeros_like(rollout.active)), 0) == {}
    assert appo.network.version == 0
    assert torch.equal(appo.network.weights.master, before)


def test_steps_are_engine_frames() -> None:
    appo, rollout = by_hand()
    assert appo.steps_in(rollout.agent_steps, 4) == 24


def test_taking_over_goes_on_from_the_donor_and_makes_what_was_played_too_old() -> None:
    (one, play), (two, _) = learner(), learner()
    two.update(play.collect(), 0)
    played, draws = play.collect(), one.generator.get_state()
    two.generator.manual_seed(8)
    one.take_over(two)
    assert torch.equal(one.network.weights.master, two.network.weights.master)
    assert torch.equal(one.generator.get_state(), draws)  # or both would draw alike from now on
    assert one.optimizer.steps == two.optimizer.steps
    assert one.network.version == 1 + one.behavior.hyperparameters.max_policy_lag
    assert one.update(played, 0) == {}


@pytest.mark.parametrize(("kl", "factor"), [(0.017, 1 / 1.5), (0.01, 1.0), (0.005, 1.0), (0.003, 1.5)])
def test_the_learning_rate_follows_the_kl(kl: float, factor: float) -> None:
    settings = ("adaptive_learning_rate=epoch", "target_kl=0.008", "learning_rate=1e-3")
    appo, _ = learner(*(f"hyperparameters.{setting}" for setting in settings))
    appo._adapt(kl)
    assert appo.learning_rate(0) == pytest.approx(1e-3 * factor)


@pytest.mark.parametrize(("kind", "factor"), [("minibatch", 1.5**2), ("epoch", 1.5), ("off", 1.0)])
def test_the_learning_rate_moves_after_every_minibatch_or_by_the_mean_of_every_epoch(
    kind: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two epochs of two minibatches. One by one: down, up, up, up. By the means of the epochs, 0.01 and 0: stay, up.
    settings = ("learning_rate=1e-3", "target_kl=0.008", "batch_size=512", "num_epoch=2")
    adaptive = f"adaptive_learning_rate={kind}"
    appo, play = learner(*(f"hyperparameters.{setting}" for setting in (*settings, adaptive)))
    kl = iter((0.02, 0.0, 0.0, 0.0))
    monkeypatch.setattr(appo, "_step", lambda *_: {"Policy/KL": next(kl)})
    appo.update(play.collect(), 0)
    assert appo.learning_rate(0) == pytest.approx(1e-3 * factor)


def test_an_adaptive_rate_stays_within_its_limits() -> None:
    limits = ("hyperparameters.min_learning_rate=1e-4", "hyperparameters.max_learning_rate=1e-3")
    appo, _ = learner("hyperparameters.adaptive_learning_rate=epoch", "hyperparameters.target_kl=0.008", *limits)
    for rate, kl, expected in ((1.2e-4, 0.017, 1e-4), (9e-4, 0.003, 1e-3)):
        appo.adapted_rate = rate
        appo._adapt(kl)
        assert appo.learning_rate(0) == expected


def test_an_adaptive_rate_goes_on_where_it_was_saved_and_begins_with_the_settings_elsewhere() -> None:
    adaptive = "hyperparameters.adaptive_learning_rate=epoch"
    one, two = (learner(adaptive, f"hyperparameters.learning_rate={rate}")[0] for rate in ("1e-4", "1e-3"))
    one.adapted_rate = 0.01
    two.begin_from(one.state_dict())
    assert two.learning_rate(0) == 1e-3
    two.load_state_dict(one.state_dict())
    assert two.learning_rate(0) == 0.01


def test_other_numbers_begin_an_adaptive_rate_anew() -> None:
    adaptive = "hyperparameters.adaptive_learning_rate=epoch"
    one, two = (learner(adaptive, f"hyperparameters.learning_rate={rate}")[0] for rate in ("1e-4", "1e-3"))
    one.adapted_rate = 5e-5
    one.tune(two.behavior)
    assert one.learning_rate(0) == 1e-3


def test_linear_schedules_reach_zero_at_max_steps() -> None:
    linear = [f"hyperparameters.{name}_schedule=linear" for name in ("learning_rate", "beta")]
    appo, _ = learner(*linear, "hyperparameters.beta=0.04", "max_steps=1000")
    assert [appo.learning_rate(frames) for frames in (0, 250, 1000)] == pytest.approx([0.01, 0.0075, 0.0])
    assert [appo.scheduled("beta", frames) for frames in (0, 250, 1000)] == pytest.approx([0.04, 0.03, 0.0])


def test_a_gradient_that_is_not_finite_stops_before_it_spoils_the_weights() -> None:
    appo, play = learner()
    rollout = play.collect()
    log_probs = rollout.log_probs.copy()
    log_probs[0, 0] = -np.inf
    with pytest.raises(DivergenceError, match="not finite"):
        appo.update(replace(rollout, log_probs=log_probs), 0)
    assert torch.isfinite(appo.network.weights.master).all()


BY_HAND = [f"hyperparameters.{x}" for x in ("normalize_returns=false", "lambd=0.5", "num_epoch=1", "batch_size=6")]
BY_HAND += [
    "time_horizon=3",
    "hyperparameters.buffer_size=6",
    "reward_signals.extrinsic.gamma=0.5",
    "network_settings.memory=null",
    "network_settings.normalize=false",
]


def by_hand(*more: str) -> tuple[APPO, Rollout]:
    """A learner whose critic answers 7, and 8 where the first number is 1, and three decisions of two rows.

    Row 0 is cut off at decision 1, before a state worth 8; row 1 ends there by the rules.
    """
    appo = APPO(appo_behavior(*BY_HAND, *more), Recall.spec, torch.float32, 0)
    tensors = appo.network.weights.tensors
    tensors["encoder.encoders.obs.mlp_head.0.weight"].data[0] = torch.tensor([1.0, 0.0, 0.0])
    tensors["critic_linear.weight"].data.zero_()[0, 0] = 1.0
    tensors["critic_linear.bias"].data.fill_(7.0)
    rng, nothing = np.random.default_rng(0), np.zeros((3, 2), np.bool_)
    terminated, truncated = nothing.copy(), nothing.copy()
    truncated[1, 0] = terminated[1, 1] = True
    observations = rng.random((4, 2, 3), np.float32)
    observations[:, :, 0] = 0.0
    return appo, Rollout(
        observations={"obs": observations},
        masks=None,
        states=np.zeros((2, 0), np.float32),
        last_states=np.zeros((2, 0), np.float32),
        actions=np.float32([[0, 1], [1, 0], [0, 0]])[:, :, None],
        log_probs=np.full((3, 2, 1), -math.log(2), np.float32),
        parameters=np.zeros((3, 2, 2), np.float32),
        values=np.float32([[1, 2], [3, 4], [5, 6]]),
        rewards=np.float32([[0, -1], [2, 1], [-1, 0]]),
        group_rewards=np.float32([[1, 1], [0, 0], [1, 2]]),
        terminated=terminated,
        truncated=truncated,
        active=~nothing,
        last_active=np.ones(2, np.bool_),
        final_observations={"obs": np.float32([[1, 0, 0]])},
        final_states=np.zeros((1, 0), np.float32),
        group_size=1,
        versions=np.zeros((3, 2), np.int32),
    )


def test_advantages_and_targets_by_hand() -> None:
    # A = r + 0.5 V' - V + 0.25 A', from the last decision back
    # row 0: 0 + 3.5 - 5 = -1.5 | 2 + 4 - 3 = 3, time-out before an 8 | 1 + 1.5 - 1 + 0.75 = 2.25
    # row 1: 2 + 3.5 - 6 = -0.5 | 1 + 0 - 4 = -3, the end | 0 + 2 - 2 - 0.75 = -0.75
    appo, rollout = by_hand()
    batch = appo.prepare(rollout, rollout.active)
    np.testing.assert_allclose(batch.advantages, [[2.25, -0.75], [3, -3], [-1.5, -0.5]], atol=1e-5)
    np.testing.assert_allclose(batch.targets, [[3.25, 1.25], [6, 1], [3.5, 5.5]], atol=1e-5)


def test_what_an_episode_that_was_cut_off_saw_last_is_read_by_the_statistics_that_acted() -> None:
    # The state after the time-out is worth 8 as before; what was seen, all 0, would make more of its 1.
    appo, rollout = by_hand("network_settings.normalize=true")
    batch = appo.prepare(rollout, rollout.active)
    assert appo.network.scalers["obs"].moments.deviation[0] < 0.5
    np.testing.assert_allclose(batch.advantages[:, 0], [2.25, 3, -1.5], atol=1e-4)


def test_without_bootstrap_truncated_a_time_out_is_an_end() -> None:
    # row 0: -1.5 | 2 + 0 - 3 = -1 | 1 + 1.5 - 1 - 0.25 = 1.25
    appo, rollout = by_hand("hyperparameters.bootstrap_truncated=false")
    batch = appo.prepare(rollout, rollout.active)
    np.testing.assert_allclose(batch.advantages[:, 0], [1.25, -1, -1.5], atol=1e-5)


def test_targets_are_in_units_of_the_returns_seen_so_far_and_old_values_of_those_before() -> None:
    # Returns so far: 1 +- 2, one of them. The critic's 7 and 8 are cut to 5 deviations: the states after the rollout
    # and after the time-out are worth 11, and the targets are 3.625, 7.5 and 5.5; 1 and 7.5. Row 1's first decision is
    # left out, so the mean of the six is 1 + 4.025 x 5 / 6 = 4.35417, the variance
    # (4 + 5 x 6.1275 + 4.025^2 x 5 / 6) / 6 = 8.02300.
    appo, rollout = by_hand("hyperparameters.normalize_returns=true")
    assert appo.network.returns is not None
    appo.network.returns.mean[:], appo.network.returns.variance[:] = 1.0, 4.0
    usable = rollout.active.copy()
    usable[0, 1] = False
    batch = appo.prepare(rollout, usable)
    np.testing.assert_allclose(batch.old_values, (rollout.values - 1) / 2, atol=1e-4)
    assert batch.targets[0, 0] == pytest.approx((3.625 - 4.35417) / 2.83249, abs=1e-4)
    assert batch.targets[2, 1] == pytest.approx((7.5 - 4.35417) / 2.83249, abs=1e-4)


def test_targets_are_cut_to_five_deviations() -> None:
    # A million returns so far, 1 +- 0.01; the next ones, about 0.5 to 2.5, hardly move that.
    appo, rollout = by_hand("hyperparameters.normalize_returns=true")
    returns = appo.network.returns
    assert returns is not None
    returns.mean[:], returns.variance[:], returns.count = 1.0, 0.0001, 1_000_000
    targets = appo.prepare(rollout, rollout.active).targets
    assert (targets.min(), targets.max()) == (-5.0, 5.0)


def test_rewards_are_scaled_then_clipped() -> None:
    appo, rollout = by_hand("reward_signals.extrinsic.strength=3", "hyperparameters.reward_clip=4")
    assert appo.rewards(rollout, rollout.active)[..., 0].tolist() == [[3, 0], [4, 3], [0, 4]]
    less = replace(rollout, group_rewards=rollout.group_rewards - 2)
    assert appo.rewards(less, rollout.active)[..., 0].tolist() == [[-3, -4], [0, -3], [-4, 0]]


def test_the_gradients_norm_is_limited() -> None:
    norms = []
    for limit in (0.0, 0.001, 1000.0):
        appo, rollout = by_hand(f"hyperparameters.max_grad_norm={limit}")
        found = appo.update(rollout, 0)["Policy/Gradient Norm"]
        norms.append((found, float(appo.network.weights.gradient.norm())))
    (free, unlimited), (before, after), within = norms
    assert unlimited == pytest.approx(free, rel=1e-5)
    assert free > 0.1
    assert (before, after) == (pytest.approx(free, rel=1e-5), pytest.approx(0.001, rel=1e-4))
    assert within == (pytest.approx(free, rel=1e-5), pytest.approx(free, rel=1e-5))


def test_the_step_shrinks_with_the_share_of_valid_decisions() -> None:
    moves, shares = [], []
    for lost in ([], [(0, 0), (0, 1)]):  # the first decisions of both rows are another policy's
        appo, rollout = by_hand("hyperparameters.max_grad_norm=0")
        active = rollout.active.copy()
        for place in lost:
            active[place] = False
        before = appo.network.weights.master.clone()
        shares.append(appo.update(replace(rollout, active=active), 0)["Policy/Valid Share"])
        moves.append(float((appo.network.weights.master - before).abs().max()))
    assert shares == pytest.approx([1.0, 2 / 3])
    # Adam's first step is the learning rate, whatever the gradient's size
    assert moves == pytest.approx([0.01, 0.01 * 2 / 3], rel=1e-3)


def test_decisions_left_out_change_nothing() -> None:
    after = []
    for garbage in (0.0, 50.0):
        appo, rollout = by_hand()
        active, rewards = rollout.active.copy(), rollout.rewards.copy()
        active[0, 1], rewards[0, 1] = False, garbage
        appo.update(replace(rollout, active=active, rewards=rewards), 0)
        after.append(appo.network.weights.master)
    assert torch.equal(*after)


def test_weights_that_are_not_finite_end_the_update() -> None:
    appo, rollout = by_hand()
    appo.optimizer.square[0] = np.inf
    with pytest.raises(DivergenceError, match="weights or gradients are not finite"):
        appo.update(rollout, 0)
