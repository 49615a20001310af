"""The sequential test: its statistic against the closed forms, its error rates by simulation."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from draws import chances

from palus.ratings.sequential import PAIR_SCORES, Hypotheses, SequentialTest, constrained, log_likelihood_ratio


def expected_score(lead: float) -> float:
    return 1.0 / (1.0 + 10.0 ** (-lead / 400.0))


def test_bounds_are_those_of_wald() -> None:
    assert Hypotheses().upper == pytest.approx(2.944, abs=1e-3)
    assert Hypotheses().lower == pytest.approx(-2.944, abs=1e-3)
    assert Hypotheses(alpha=0.01, beta=0.1).upper == pytest.approx(math.log(90.0))
    assert Hypotheses(alpha=0.01, beta=0.1).lower == pytest.approx(math.log(0.1 / 0.99))


@pytest.mark.parametrize("wrong", [{"elo0": 35.0}, {"alpha": 0.0}, {"beta": 0.5}])
def test_hypotheses_that_decide_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Hypotheses(**wrong)


def test_constrained_distribution_has_the_mean_and_leaves_a_fitting_one_alone() -> None:
    share = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    for mean in (0.2, 0.5, 0.55, 0.9):
        p = constrained(share, mean)
        assert p.sum() == pytest.approx(1.0)
        assert p @ PAIR_SCORES == pytest.approx(mean)
    np.testing.assert_allclose(constrained(share, float(share @ PAIR_SCORES)), share)


def test_ratio_of_wins_and_losses_only_is_the_binomial_one() -> None:
    # Only 0 and 1: the constrained distribution is (1 - s, s), up to the thousandth that is added to each count.
    s0, s1 = expected_score(0.0), expected_score(100.0)
    by_hand = 400 * math.log(s1 / s0) + 300 * math.log((1 - s1) / (1 - s0))
    assert log_likelihood_ratio([300, 0, 0, 0, 400], 0.0, 100.0) == pytest.approx(by_hand, abs=0.05)


def test_ratio_agrees_with_the_normal_approximation_where_that_holds() -> None:
    counts = np.array([60, 20, 120, 20, 80])
    mean = float(counts @ PAIR_SCORES) / 300
    variance = float(counts @ (PAIR_SCORES - mean) ** 2) / 300
    s0, s1 = expected_score(0.0), expected_score(35.0)
    quick = 300 * (s1 - s0) * (2 * mean - s0 - s1) / (2 * variance)
    assert log_likelihood_ratio(counts.tolist(), 0.0, 35.0) == pytest.approx(quick, rel=0.05)


def test_a_few_wins_in_a_row_decide_nothing() -> None:
    # Their variance is zero: a normal approximation would be certain at once.
    test = SequentialTest(Hypotheses(0.0, 35.0)).after([1.0] * 10)
    assert test.decision is None
    assert test.llr == pytest.approx(10 * math.log(expected_score(35.0) / 0.5), abs=0.02)
    assert test.after([1.0] * 22).decision == "better"
    assert SequentialTest().llr == 0.0
    assert SequentialTest().decision is None


def test_adding_pairs_one_by_one_or_at_once_is_the_same() -> None:
    scores = [0.0, 0.25, 1.0, 0.5, 0.75, 1.0]
    one_by_one = SequentialTest()
    for score in scores:
        one_by_one = one_by_one.after([score])
    assert one_by_one == SequentialTest().after(scores)
    assert one_by_one.counts == (1, 1, 1, 1, 2)
    assert one_by_one.pairs == 6
    with pytest.raises(ValueError, match=r"1/4.*0\.3"):
        one_by_one.after([0.3])


def simulated(true_elo: float, hypotheses: Hypotheses, runs: int, seed: int, nu: float = 0.4) -> tuple[float, float]:
    """Share of runs that end in "better", and mean pairs. Davidson draws (nu 0: none) at this *score* Elo."""
    gap = true_elo
    for _ in range(20):
        win, draw, loss = chances(gap, nu)
        gap *= true_elo / (400.0 * math.log10((win + draw / 2) / (loss + draw / 2))) if true_elo else 1.0
    outcome = chances(gap, nu)
    rng = np.random.default_rng(seed)
    better, pairs = 0, 0
    for _ in range(runs):
        test = SequentialTest(hypotheses)
        while test.decision is None:
            points = rng.choice([1.0, 0.5, 0.0], 2, p=outcome)
            test = test.after([float(points.mean())])
        better += test.decision == "better"
        pairs += test.pairs
    return better / runs, pairs / runs


def test_clear_differences_are_decided_in_tens_of_pairs() -> None:
    false_accepts, pairs_h0 = simulated(0.0, Hypotheses(0.0, 100.0), 60, seed=0)
    power, pairs_h1 = simulated(100.0, Hypotheses(0.0, 100.0), 60, seed=1)
    assert false_accepts <= 0.15
    assert power >= 0.85
    assert 18 < pairs_h0 < 45
    assert 18 < pairs_h1 < 45


def test_without_draws_the_documented_number_of_pairs_is_needed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ratings.md").read_text()
    none, some = re.search(r"\| 100 points \| about (\d+) \| about (\d+) \|", text).groups()  # type: ignore[union-attr]
    _, without = simulated(100.0, Hypotheses(0.0, 100.0), 100, seed=1, nu=0.0)
    assert without == pytest.approx(float(none), rel=0.15)
    # Chance has 1 / (1 - 1/6) times the variance without draws.
    assert float(none) / float(some) == pytest.approx(1.2, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("elo1", "nu", "pairs_h0", "pairs_h1"),
    [
        (35.0, 0.4, 219, 214),
        (50.0, 0.4, 108, 114),
        (100.0, 0.4, 29, 32),
        (35.0, 0.0, 270, 270),
        (50.0, 0.0, 135, 135),
        (100.0, 0.0, 35, 35),
    ],
)
def test_error_rates_and_lengths_are_those_that_are_documented(
    elo1: float, nu: float, pairs_h0: float, pairs_h1: float
) -> None:
    false_accepts, length_h0 = simulated(0.0, Hypotheses(0.0, elo1), 300, seed=2, nu=nu)
    power, length_h1 = simulated(elo1, Hypotheses(0.0, elo1), 300, seed=3, nu=nu)
    # Binomial noise of 300 runs at 5 % is 1.3 % (one standard deviation).
    assert false_accepts <= 0.09
    assert power >= 0.91
    assert length_h0 == pytest.approx(pairs_h0, rel=0.25)
    assert length_h1 == pytest.approx(pairs_h1, rel=0.25)
