"""The APPO learner: losses by hand, memory, lag, threads, and that it continues where it was saved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sampled import RECALL, RecallSampler, appo_behavior

from palus.config.appo import AppoHyperparameters
from palus.errors import DivergenceError
from palus.learn.appo import APPO, usable_decisions
from palus.learn.appo_loss import Minibatch, clipped_policy_loss, clipped_value_loss, loss
from palus.spaces import ActionSpec, Discrete

VTRACE = ("hyperparameters.advantages=vtrace", "hyperparameters.normalize_returns=false")


def learner(*more: str, threads: int = 1) -> tuple[APPO, RecallSampler]:
    appo = APPO(appo_behavior(*more), RECALL, torch.float32, 0, threads)
    return appo, RecallSampler(appo.policy)


def curve(appo: APPO, sampler: RecallSampler, updates: int) -> list[float]:
    scores = []
    for _ in range(updates):
        page, score = sampler.collect()
        appo.update(page, 0)
        scores.append(score)
    return scores


def test_the_policy_loss_clips_towards_one() -> None:
    # epsilon 0.25: [0.8, 1.25]. min(2 x 1, 1.25) = 1.25; min(0.5 x -2, 0.8 x -2) = -1.6; -mean = 0.175
    found = clipped_policy_loss(torch.tensor([2.0, 0.5]), torch.tensor([1.0, -2.0]), 0.25)
    assert found.item() == pytest.approx(0.175)


def test_the_value_loss_takes_the_worse_of_moved_and_limited() -> None:
    # V 3, old 1, clip 1 -> 2, target 4: max(1, 4) = 4. V 0, old 0, target 1: 1. Mean 2.5.
    found = clipped_value_loss(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([4.0, 1.0]), 1.0)
    assert found.item() == pytest.approx(2.5)


def test_the_whole_loss_by_hand() -> None:
    # Two decisions with p = (1/2, 1/2) now and before; advantages 3 and 1 become 1 and -1; the third is not usable.
    h = AppoHyperparameters(kl_coefficient=1.0, value_coefficient=0.5)
    batch = Minibatch(
        actions=torch.tensor([[0.0], [1.0]]), parameters=torch.zeros(2, 2), log_probs=torch.full((2,), -math.log(4)),
        old_values=torch.tensor([1.0, 1.0]), advantages=torch.tensor([3.0, 1.0]), targets=torch.tensor([2.0, 1.0]),
        usable=torch.tensor([[True, False, True]]),
    )  # fmt: skip
    total, found = loss(
        torch.zeros(1, 3, 2), torch.tensor([[1.0, 99.0, 1.0]]), batch, ActionSpec((Discrete(2),)), h, 0.01
    )
    # ratio = 2 for both: -(min(2, 1.1) + min(-2, -1.1)) / 2 = 0.45; values: 0.5 (1 + 0) / 2; entropy ln 2
    assert found["policy_loss"] == pytest.approx(0.45)
    assert found["value_loss"] == pytest.approx(0.25)
    assert found["exploration_loss"] == pytest.approx(-0.01 * math.log(2))
    assert found["kl"] == pytest.approx(0.0)
    assert found["clipped"] == 1.0
    assert total.item() == pytest.approx(0.45 + 0.25 - 0.01 * math.log(2))


@pytest.mark.parametrize("more", [("network_settings.core=gru",), ("network_settings.core=lstm", *VTRACE)])
def test_a_recurrent_policy_learns_to_remember(more: tuple[str, ...]) -> None:
    scores = curve(*learner(*more), 18)
    assert scores[0] < 0.65
    assert np.mean(scores[-4:]) > 0.95


def test_a_feed_forward_policy_cannot_remember() -> None:
    scores = curve(*learner("network_settings.core=none"), 18)
    assert 0.4 < np.mean(scores[-8:]) < 0.6


def test_without_lag_vtrace_takes_the_step_of_gae_with_lambda_one() -> None:
    # Without normalisation of observations: its statistics move between acting and learning.
    common = [
        f"hyperparameters.{x}" for x in ("normalize_returns=false", "lambd=1.0", "num_epoch=1", "batch_size=1024")
    ]
    common += ["network_settings.normalize=false"]
    one, sampler = learner(*common)
    two, _ = learner(*common, "hyperparameters.advantages=vtrace")
    page, _ = sampler.collect()
    one.update(page, 0)
    two.update(page, 0)
    np.testing.assert_allclose(one.policy.weights.gradient, two.policy.weights.gradient, atol=2e-6)
    assert one.policy.weights.gradient.abs().max() > 1e-3


def test_vtrace_learns_from_a_lagging_policys_pages() -> None:
    appo, sampler = learner(*VTRACE)
    behind: list = [sampler.collect()[0] for _ in range(3)]
    scores = []
    for _ in range(32):
        appo.update(behind.pop(0), 0)
        page, score = sampler.collect()
        behind.append(page)
        scores.append(score)
    assert np.mean(scores[-4:]) > 0.95


def test_two_threads_take_the_same_step() -> None:
    (one, sampler), (two, _) = learner(), learner(threads=2)
    page, _ = sampler.collect()
    a, b = one.update(page, 0), two.update(page, 0)
    np.testing.assert_allclose(one.policy.weights.master, two.policy.weights.master, atol=1e-4)
    assert a.losses["policy_loss"] == pytest.approx(b.losses["policy_loss"], abs=1e-4)


def test_a_saved_learner_continues_bit_for_bit() -> None:
    shuffled = ("hyperparameters.shuffle=true", "hyperparameters.adaptive_learning_rate=minibatch")
    one, sampler = learner(*shuffled)
    pages = [sampler.collect()[0] for _ in range(4)]
    for page in pages[:2]:
        one.update(page, 0)
    two, _ = learner(*shuffled)
    two.load_state_dict(one.state_dict())
    for page in pages[2:]:
        assert one.update(page, 0) == two.update(page, 0)
    assert torch.equal(one.policy.weights.master, two.policy.weights.master)


def test_bfloat16_takes_nearly_the_same_step() -> None:
    one, sampler = learner("hyperparameters.num_epoch=1", "hyperparameters.batch_size=1024")
    two = APPO(one.behavior, RECALL, torch.bfloat16, 0)
    page, _ = sampler.collect()
    one.update(page, 0)
    two.update(page, 0)
    a, b = one.policy.weights.gradient, two.policy.weights.gradient
    assert torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.99


def test_decisions_that_are_invalid_old_or_without_successor_are_left_out() -> None:
    appo, sampler = learner()
    page, _ = sampler.collect()
    valid, versions = page.valid.copy(), page.versions.copy()
    terminated = np.zeros_like(page.terminated)
    valid[3:, 0] = False  # lost with its worker: decision 2 has no successor
    valid[3, 1], terminated[2, 1] = False, True  # inactive after an end
    versions[0, 2] = -1000
    found = usable_decisions(replace(page, valid=valid, versions=versions, terminated=terminated), 0, 1000)
    assert found[:, 0].tolist() == [True, True] + [False] * 6
    assert found[:, 1].tolist() == [True, True, True, False] + [True] * 4
    assert found[:, 2].tolist() == [False] + [True] * 7
    stats = appo.update(replace(page, valid=np.zeros_like(valid)), 0)
    assert (stats.samples, stats.gradient_steps, appo.version) == (0, 0, 0)


@pytest.mark.parametrize(("kl", "factor"), [(0.017, 1 / 1.5), (0.01, 1.0), (0.003, 1.5)])
def test_the_learning_rate_follows_the_kl(kl: float, factor: float) -> None:
    appo, _ = learner("hyperparameters.adaptive_learning_rate=epoch", "hyperparameters.target_kl=0.008")
    appo._adapt(kl)
    assert appo.learning_rate(0) == pytest.approx(min(0.01 * factor, 0.01))


def test_linear_schedules_reach_zero_at_max_steps() -> None:
    linear = [f"hyperparameters.{name}_schedule=linear" for name in ("learning_rate", "beta")]
    appo, _ = learner(*linear, "hyperparameters.beta=0.04", "max_steps=1000")
    assert [appo.learning_rate(frames) for frames in (0, 250, 1000)] == pytest.approx([0.01, 0.0075, 0.0])
    assert [appo.beta(frames) for frames in (0, 250, 1000)] == pytest.approx([0.04, 0.03, 0.0])


def test_a_gradient_that_is_not_finite_stops_before_it_spoils_the_weights() -> None:
    appo, sampler = learner()
    page, _ = sampler.collect()
    log_probs = page.log_probs.copy()
    log_probs[0, 0] = -np.inf
    with pytest.raises(DivergenceError, match="not finite"):
        appo.update(replace(page, log_probs=log_probs), 0)
    assert torch.isfinite(appo.policy.weights.master).all()
