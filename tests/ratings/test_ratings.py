"""Elo, Bradley-Terry and score intervals against hand values and players of known strength."""

from __future__ import annotations

import numpy as np
import pytest

from histories import variance_of_gaps
from palus.ratings import bradley_terry, elo
from palus.ratings.bradley_terry import _Belief, _finished, _rounds, _spread_seen
from palus.ratings.games import Games, add_up, units_of
from palus.ratings.interval import score_interval, share_intervals, wilson
from palus.ratings.scatter import Scatter, fit_scatter


def play(strengths: list[float], pairs: int, seed: int, side: float = 0.0) -> Games:
    """A round robin of independent games between players of known strength, both sides in every pair."""
    rng = np.random.default_rng(seed)
    rows = []
    unit = 0
    for i in range(len(strengths)):
        for j in range(i):
            for _ in range(pairs):
                for first, second in ((i, j), (j, i)):
                    p = elo.expected_score(strengths[first] + side, strengths[second])
                    rows.append((first, second, float(rng.random() < p), unit))
                unit += 1
    first, second, points, units = zip(*rows, strict=True)
    return Games(np.array(first), np.array(second), np.array(points), np.array(units))


def two_players(wins: int, losses: int) -> Games:
    n = wins + losses
    points = np.array([1.0] * wins + [0.0] * losses)
    return Games(np.zeros(n, np.int64), np.ones(n, np.int64), points, np.arange(n))


def test_elo_of_ml_agents_moves_by_result_minus_expectation():
    assert elo.expected_score(1200, 1200) == 0.5
    assert elo.expected_score(1600, 1200) == pytest.approx(10 / 11)
    assert elo.update(1200, 1200, 1.0) == (1200.5, 1199.5)
    winner, loser = elo.update(1200.0, 1600.0, 1.0)
    assert winner == pytest.approx(1200 + 10 / 11)
    assert winner + loser == pytest.approx(2800)
    assert elo.expected_score(1e9, 0) == pytest.approx(1.0)
    assert elo.expected_score(0, 1e9) == pytest.approx(0.0)


def test_ten_to_one_odds_are_four_hundred_points_apart():
    strength = bradley_terry.mode(add_up(two_players(10_000, 1_000), 2), 2, 2, 1e6)
    assert strength[0] - strength[1] == pytest.approx(400.0, abs=1e-3)
    assert strength.sum() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("wins", "losses"), [(5, 5), (9, 1), (12, 0)])
def test_two_players_have_the_mean_and_the_deviation_of_their_posterior(wins: int, losses: int):
    games = two_players(wins, losses)
    cells, units = add_up(games, 2), units_of(games)
    start = _Belief(bradley_terry.mode(cells, 2, 2, 200.0), None, 200.0, Scatter(), 1.0)
    belief = _rounds(start, cells, units, 2, 10, False)
    fit = _finished(belief, 2, False, False)
    # By summation: the gap's prior is normal with 2 * 200^2, each game counts 1 / phi.
    gap = np.linspace(-4000.0, 4000.0, 80_001)
    p = 1 / (1 + np.exp(-np.log(10) / 400 * gap))
    share = bradley_terry.win_probability(fit.strength[:1] - fit.strength[1:])
    phi = float(belief.scatter.phi(np.zeros(1), share)[0])
    log = (wins * np.log(p) + losses * np.log1p(-p)) / phi - gap**2 / (4 * 200.0**2)
    weight = np.exp(log - log.max())
    mean = float(weight @ gap / weight.sum())
    deviation = float(np.sqrt(weight @ (gap - mean) ** 2 / weight.sum()))
    assert fit.strength[0] - fit.strength[1] == pytest.approx(mean, abs=0.1 * deviation)
    assert np.sqrt(variance_of_gaps(fit.joint)[0, 1]) == pytest.approx(deviation, rel=0.05)


def test_the_spread_of_the_field_is_found():
    rng = np.random.default_rng(0)
    for spread in (150.0, 450.0):
        strengths = (spread * rng.standard_normal(24)).tolist()
        fit = bradley_terry.fit(play(strengths, pairs=3, seed=0), 24)
        assert fit.prior_sd == pytest.approx(np.std(strengths), rel=0.3)


@pytest.mark.parametrize(("players", "width"), [(2, 350.0), (4, 350.0), (9, 525.0), (16, 700.0)])
def test_where_opponents_were_chosen_otherwise_than_by_results_the_prior_grows_with_the_root_of_the_field(
    players, width
):
    played = np.zeros((players, players))
    played[0, 1] = 2.0  # the two are close, whatever the others are
    assert bradley_terry.fit_table(played / 2, played).prior_sd == pytest.approx(width)


def test_the_spread_that_estimates_show_is_the_field_s_whatever_the_prior():
    strengths = np.linspace(-200.0, 200.0, 12)
    seen = []
    for seed in range(60):
        games = play(strengths.tolist(), pairs=1, seed=seed)
        cells, units = add_up(games, 12), units_of(games)
        start = _Belief(bradley_terry.mode(cells, 12, 12, 100.0), None, 100.0, Scatter(), 1.0)
        seen.append(_spread_seen(_rounds(start, cells, units, 12, 4, False), 12))
    assert np.sqrt(np.mean(np.square(seen))) == pytest.approx(np.std(strengths, ddof=1), rel=0.05)


def test_a_ladder_of_which_only_neighbours_met_is_not_held_together():
    # Each takes 13 of 20 games from the next, 108 points of strength. Neighbours are close, by which the fitted spread
    # is a hundred points, and the twenty would be held within 300.
    won = [(1.0, 1.0)] * 4 + [(1.0, 0.0)] * 5 + [(0.0, 0.0)]
    rows = [
        (first, second, points if first < second else 1.0 - points, 10 * n + k)
        for n in range(19)
        for k, pair in enumerate(won)
        for first, second, points in ((n, n + 1, pair[0]), (n + 1, n, pair[1]))
    ]
    fit = bradley_terry.fit(Games(*map(np.array, zip(*rows, strict=True))), 20)
    assert 1500 < fit.strength[0] - fit.strength[-1] < 2500


def test_what_is_not_known_of_the_spread_widens_the_intervals_of_the_outermost():
    games = play([300.0, 0.0, -300.0], pairs=10, seed=3)
    cells, units = add_up(games, 3), units_of(games)
    start = _Belief(bradley_terry.mode(cells, 3, 3, 350.0), None, 350.0, Scatter(), 1.0)
    found = _rounds(start, cells, units, 3, 10, False, fit_spread=True)
    held = _rounds(found, cells, units, 3, 10, False)
    assert found.inverse is not None and held.inverse is not None
    best, middle, worst = found.inverse.variance / held.inverse.variance
    assert best > 1.005 < worst and middle < 1.002


@pytest.mark.parametrize(("alike", "expected"), [(False, 1.0), (True, 2.0)])
def test_points_that_strengths_were_fitted_to_scatter_no_less_than_they_did(alike: bool, expected: float):
    # Twelve even players with a pair for each pairing: without the correction the factor is 0.88. Or both games of a
    # pair end alike.
    phi = []
    for seed in range(60):
        games = play([0.0] * 12, pairs=1, seed=seed)
        if alike:
            games.points[1::2] = 1.0 - games.points[::2]
        phi.append(bradley_terry.fit(games, 12).phi)
    assert np.mean(phi) == pytest.approx(expected, rel=0.06)


def test_draws_count_as_half_wins():
    drawn = Games(np.zeros(4, np.int64), np.ones(4, np.int64), np.full(4, 0.5), np.arange(4))
    fit = bradley_terry.fit(drawn, 2)
    np.testing.assert_allclose(fit.strength, [0.0, 0.0], atol=1e-9)
    assert fit.phi == pytest.approx(1 / 2)  # no scatter where 4 / 4 was expected, and imaginary pairs of 1 and 1


def test_players_of_known_strength_come_out_in_order_and_in_scale():
    strengths = [300.0, 150.0, 0.0, -150.0, -300.0]
    fit = bradley_terry.fit(play(strengths, pairs=200, seed=1), 5)
    assert list(np.argsort(-fit.strength)) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(fit.strength, strengths, atol=50)
    ranks = bradley_terry.rank_ranges(fit.strength, fit.joint)
    assert ranks.tolist() == [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]]


def test_equal_players_share_their_ranks():
    fit = bradley_terry.fit(play([200.0, 0.0, 0.0, 0.0], pairs=50, seed=2), 4)
    assert bradley_terry.rank_ranges(fit.strength, fit.joint).tolist() == [[1, 1], [2, 4], [2, 4], [2, 4]]


@pytest.mark.parametrize(("shared", "ranges"), [(2000.0, [[1, 1], [2, 2]]), (0.0, [[1, 2], [1, 2]])])
def test_what_two_strengths_have_in_common_leaves_their_order_sure(shared: float, ranges: list[list[int]]):
    # The gap of 100 has the variance 2 (3000 - shared): 2.24 deviations, or 1.29.
    covariance = np.array([[3000.0, shared], [shared, 3000.0]])
    assert bradley_terry.rank_ranges(np.array([50.0, -50.0]), covariance).tolist() == ranges


def test_side_term_finds_the_advantage_and_leaves_strengths_alone():
    games = play([100.0, 0.0, -100.0], pairs=300, seed=4, side=80.0)
    fit = bradley_terry.fit(games, 3, side_term=True)
    assert fit.side is not None
    value, error = fit.side
    assert abs(value - 80.0) < 3 * error < 60
    np.testing.assert_allclose(fit.strength, [100, 0, -100], atol=40)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    strengths = np.array([200.0, 50.0, -50.0, -200.0])
    covered = []
    for seed in range(150):
        fit = bradley_terry.fit(play(list(strengths), pairs=20, seed=seed), 4)
        covered.append(np.abs(fit.strength - strengths) <= fit.half_width)
    assert 0.92 <= np.mean(covered) <= 0.99


def test_pairs_whose_games_go_together_widen_the_interval():
    rng = np.random.default_rng(0)
    twice = np.repeat((rng.random(200) < 0.5).astype(float), 2)
    together = Games(np.zeros(400, np.int64), np.ones(400, np.int64), twice, np.repeat(np.arange(200), 2))
    apart = Games(together.first, together.second, together.points, np.arange(400))
    ratio = bradley_terry.fit(together, 2).half_width / bradley_terry.fit(apart, 2).half_width
    np.testing.assert_allclose(ratio, np.sqrt(2), rtol=0.05)


def test_the_factor_of_a_field_of_equals_is_its_squares_over_their_variance_with_four_imaginary_pairs():
    squares, half = np.array([0.0, 2.0, 0.5, 1.5]), np.full(4, 0.5)
    found = fit_scatter(squares, half, np.zeros(4), half)
    assert np.exp(found.level) == pytest.approx((1 + 4) / (1 + 2))  # the imaginary ones scatter by 1, as they should
    assert (found.by_strength, found.by_gap) == (0.0, 0.0)
    assert fit_scatter(squares, half, np.zeros(4), half, Scatter(-1.0, 0.5, 0.5)).level == pytest.approx(found.level)


def test_slopes_of_the_scatter_are_held_by_eight_pairs_worth_of_zero():
    """Where the derivative of the likelihood, the imaginary pairs and the prior vanishes, by the formulas."""
    strength, p = np.array([1.0, 1.0, -1.0, -1.0, 0.0]), np.array([0.5, 0.9, 0.5, 0.2, 0.5])
    squares, variance = np.array([2.0, 1.0, 0.1, 0.2, 0.5]), 2 * p * (1 - p)
    found = fit_scatter(squares, variance, strength, p)
    excess = squares - variance * found.phi(strength, p)
    gap = 1 - 4 * p * (1 - p)
    assert excess.sum() + 1 - np.exp(found.level) == pytest.approx(0.0, abs=1e-9)
    assert strength @ excess == pytest.approx(4 * found.by_strength)
    assert gap @ excess == pytest.approx(4 * found.by_gap)
    assert found.by_strength > 0.2


def test_the_factor_of_a_pairing_by_hand_and_its_limits():
    scatter = Scatter(np.log(0.5), 0.3, -2.0)
    assert scatter.phi(np.array(1.0), np.array(0.5)) == pytest.approx(0.5 * np.exp(0.3)), "equals are not lopsided"
    assert scatter.phi(np.array(0.0), np.array(0.9)) == pytest.approx(0.5 * np.exp(-2.0 * 0.64))
    assert scatter.phi(np.array([-50.0, 50.0]), np.full(2, 0.5)) == pytest.approx([0.02, 8.0])


def test_pairs_of_the_strong_widen_their_own_intervals_only():
    # Among the strong (0 to 5) games of a pair end alike, among the weak (6 to 11) every pair is split.
    rng = np.random.default_rng(2)
    first, second, points = [], [], []
    for group, alike in ((range(6), True), (range(6, 12), False)):
        for i in group:
            for j in range(group[0], i):
                for _ in range(20):
                    luck = float(rng.random() < 0.5)
                    first += [i, j]
                    second += [j, i]
                    points += [luck, 1.0 - luck if alike else luck]
    bridge = [(i, j) for i in range(6) for j in range(6, 12) for _ in range(4)]
    for i, j in bridge:
        won = rng.random(2) < 0.9
        first += [i, j]
        second += [j, i]
        points += [float(won[0]), 1.0 - won[1]]
    unit = np.arange(len(first)) // 2
    fit = bradley_terry.fit(Games(np.array(first), np.array(second), np.array(points), unit), 12)
    assert fit.half_width[:6].mean() > 1.5 * fit.half_width[6:].mean()


def test_twins_count_as_one_game_and_independent_games_as_two():
    rng = np.random.default_rng(1)
    independent = rng.integers(0, 2, (4000, 2)).mean(axis=1)
    twins = rng.integers(0, 2, 4000).astype(float)
    assert width(score_interval(independent)) == pytest.approx(width(wilson(independent.mean(), 8000)), rel=0.03)
    assert width(score_interval(twins)) == pytest.approx(width(wilson(twins.mean(), 4000)), rel=0.03)


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_units_are_told_apart_by_their_players_and_gathered_from_wherever_they_stand():
    first, second = np.array([0, 0, 0, 0, 0]), np.array([1, 1, 1, 1, 2])
    found = units_of(Games(first, second, np.array([1.0, 0.0, 1.0, 0.5, 1.0]), np.array([3, 7, 3, 7, 7])))
    assert (found.high.tolist(), found.share.tolist(), found.games.tolist()) == ([1, 1, 2], [0.25, 1, 1], [2, 2, 1])


def test_the_scatter_of_few_pairs_by_hand():
    # 1 and 1/2: mean 3/4, variance 1/8, expected 2 x 3/16 + 1/8 = 1/2: 4 games x 1.5 / 1.5. One pair has none: 2 games.
    assert score_interval(np.array([1.0, 0.5])) == pytest.approx(wilson(0.75, 4))
    assert score_interval(np.array([0.5])) == pytest.approx(wilson(0.5, 2))


def test_score_interval_is_wilson_for_one_sided_results():
    # Wilson for 20 wins in 20 games: lower end n / (n + z^2).
    assert score_interval(np.ones(10)) == pytest.approx((20 / (20 + 1.959964**2), 1.0))
    assert score_interval(np.zeros(10)) == pytest.approx((0.0, 1 - 20 / (20 + 1.959964**2)))
    assert score_interval(np.array([])) == (0.0, 1.0)


@pytest.mark.parametrize(("p", "pairs"), [(0.5, 10), (0.9, 20), (0.97, 100)])
def test_score_interval_covers_the_true_share(p: float, pairs: int):
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(600):
        low, high = score_interval((rng.random((pairs, 2)) < p).mean(axis=1))
        hits += low <= p <= high
    assert 0.91 <= hits / 600 <= 0.99


def test_intervals_of_many_are_the_intervals_of_each() -> None:
    rng = np.random.default_rng(5)
    of = np.repeat(np.arange(6), [2, 4, 8, 20, 40, 60])
    units = np.arange(len(of)) // 2
    points = rng.choice([0.0, 0.5, 1.0], len(of))
    points[of == 2] = 1.0
    low, high = share_intervals(points, units, of, 6)
    for group in range(6):
        pairs = points[of == group].reshape(-1, 2).mean(axis=1)
        assert (low[group], high[group]) == pytest.approx(score_interval(pairs))
