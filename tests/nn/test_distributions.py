"""Distributions: draws against their probabilities, formulas against torch's own distributions and numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from palus.nn.distributions import Distribution, likeliest, mode, sample, sample_side_by_side, told
from palus.nn.graph import FORBIDDEN
from palus.types import ActionSpec, Continuous, Discrete

MIXED = ActionSpec((Discrete(3), Continuous(2), Discrete(2)))
ROW = np.array([0.0, 1.0, -1.0, 0.5, -2.0, 0.0, math.log(0.5), 2.0, 0.0], np.float32)


def torch_parts(parameters: torch.Tensor):
    return (
        torch.distributions.Categorical(logits=parameters[:, :3]),
        torch.distributions.Independent(torch.distributions.Normal(parameters[:, 3:5], parameters[:, 5:7].exp()), 1),
        torch.distributions.Categorical(logits=parameters[:, 7:]),
    )


def test_draws_follow_the_probabilities() -> None:
    rows = np.arange(20000)
    actions, _, _ = sample(np.tile(ROW, (20000, 1)), MIXED, 1, 7, rows)
    p = np.exp(ROW[:3]) / np.exp(ROW[:3]).sum()
    np.testing.assert_allclose([(actions[:, 0] == k).mean() for k in range(3)], p, atol=0.015)
    np.testing.assert_allclose(actions[:, 1:3].mean(0), [0.5, -2.0], atol=0.03)
    np.testing.assert_allclose(actions[:, 1:3].std(0), [1.0, 0.5], rtol=0.03)
    assert abs(np.corrcoef(actions[:, 1], actions[:, 2])[0, 1]) < 0.03


def test_log_probabilities_and_entropies_of_draws_are_those_of_the_learner() -> None:
    parameters = np.random.default_rng(0).normal(size=(50, 9)).astype(np.float32)
    actions, log_probs, entropies = sample(parameters, MIXED, 3, 4, np.arange(50))
    learned = Distribution(torch.from_numpy(parameters), MIXED)
    np.testing.assert_allclose(log_probs, learned.log_probs(torch.from_numpy(actions)), atol=1e-5)
    np.testing.assert_allclose(log_probs.sum(1), learned.log_prob(torch.from_numpy(actions)), atol=1e-5)
    np.testing.assert_allclose(entropies, learned.entropy(), atol=1e-5)
    a, g, b = torch_parts(torch.from_numpy(parameters))
    acts = torch.from_numpy(actions)
    np.testing.assert_allclose(
        log_probs.sum(1), a.log_prob(acts[:, 0]) + g.log_prob(acts[:, 1:3]) + b.log_prob(acts[:, 3]), atol=1e-5
    )


def test_a_draw_depends_on_its_own_key_alone() -> None:
    parameters = np.tile(ROW, (8, 1))
    together = sample(parameters, MIXED, 1, 2, np.arange(8))[0]
    alone = sample(parameters[5:6], MIXED, 1, 2, np.array([5]))[0]
    np.testing.assert_array_equal(together[5:6], alone)
    assert not np.array_equal(together, sample(parameters, MIXED, 1, 3, np.arange(8))[0])


@pytest.mark.parametrize("rows", [0, 1, 3, 100])
def test_threads_that_share_the_rows_draw_the_same(rows: int) -> None:
    parameters = np.random.default_rng(rows).normal(size=(rows, len(ROW))).astype(np.float32)
    keys = np.arange(rows)[::-1].copy()
    for found, expected in zip(
        sample_side_by_side(parameters, MIXED, 1, 2, keys), sample(parameters, MIXED, 1, 2, keys), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_kl_is_torchs() -> None:
    p, q = torch.randn(2, 20, 9, generator=torch.Generator().manual_seed(0))
    expected = sum(torch.distributions.kl_divergence(x, y) for x, y in zip(torch_parts(p), torch_parts(q), strict=True))
    found = Distribution(p, MIXED).kl(Distribution(q, MIXED))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_symmetric_kl_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.75, 0.25]]))
    # 1/2 [0.75 ln 1.5 + 0.25 ln 0.5 + 0.5 ln(2/3) + 0.5 ln 2] = 1/4 ln 3 / 2
    found = Distribution(logits, ActionSpec((Discrete(2),))).symmetric_kl()
    assert found.item() == pytest.approx(math.log(3) / 8)
    with pytest.raises(ValueError, match="discrete"):
        Distribution(torch.zeros(1, 9), MIXED).symmetric_kl()


def test_the_mode_is_the_likeliest_choice_and_the_mean() -> None:
    np.testing.assert_array_equal(mode(ROW[None], MIXED), [[1.0, 0.5, -2.0, 0.0]])


def test_numbers_of_different_parts_are_drawn_apart() -> None:
    spec = ActionSpec((Continuous(1), Discrete(2), Continuous(1)))
    actions, _, _ = sample(np.zeros((20000, 6), np.float32), spec, 1, 7, np.arange(20000))
    assert abs(np.corrcoef(actions[:, 0], actions[:, 2])[0, 1]) < 0.03


def test_deviations_are_limited_where_draws_are_made_as_where_they_are_learned_from() -> None:
    """To 10,000 and to 1 / 10,000."""
    spec, parameters = ActionSpec((Continuous(2),)), np.tile(np.float32([0, 0, 50, -50]), (5000, 1))
    actions, log_probs, entropies = sample(parameters, spec, 1, 7, np.arange(5000))
    np.testing.assert_allclose(actions.std(0), [1e4, 1e-4], rtol=0.05)
    learned = Distribution(torch.from_numpy(parameters), spec)
    np.testing.assert_allclose(log_probs, learned.log_probs(torch.from_numpy(actions)), atol=1e-4)
    np.testing.assert_allclose(entropies, learned.entropy(), atol=1e-5)


def test_the_likeliest_action_comes_with_its_own_probability() -> None:
    actions, log_probs, entropies = likeliest(ROW[None], MIXED, 0, 0, np.arange(1))
    np.testing.assert_array_equal(actions, mode(ROW[None], MIXED))
    c = 0.5 * math.log(2 * math.pi)  # densities of deviations 1 and 1/2 at their means
    of_choices = 1 - math.log(1 + math.e + 1 / math.e), -math.log(1 + math.exp(-2))
    np.testing.assert_allclose(log_probs, [[of_choices[0], -c, math.log(2) - c, of_choices[1]]], rtol=1e-5)
    np.testing.assert_allclose(entropies, sample(ROW[None], MIXED, 0, 0, np.arange(1))[2], rtol=1e-5)


def test_a_forbidden_choice_has_no_part_in_what_is_uniform() -> None:
    logits = torch.tensor([[math.log(0.75), FORBIDDEN, math.log(0.25)]])
    found = Distribution(logits, ActionSpec((Discrete(3),))).symmetric_kl()
    assert found.item() == pytest.approx(math.log(3) / 8)  # as of the two choices alone, above


def test_games_are_told_numbers_of_their_range_and_what_was_drawn_stays() -> None:
    spec = ActionSpec((Discrete(3), Continuous(2, -1.0, 3.0)))
    drawn = np.float32([[2.0, 5.0, -0.5]])
    assert told(drawn, spec, squash=False).tolist() == [[2.0, 3.0, -0.5]]
    wide = [2.0, 1 + 2 * math.tanh(5.0), 1 - 2 * math.tanh(0.5)]  # -1 to 3 lies 2 around 1
    np.testing.assert_allclose(told(drawn, spec, squash=True), [wide], atol=1e-6)
    assert drawn.tolist() == [[2.0, 5.0, -0.5]]
