"""The joint fits from a history: order, clones, draws, an independent implementation, the size of the reference."""

from __future__ import annotations

import random

import numpy as np
import pytest
from draws import chances

from histories import add_history, arrange, information_gain
from palus.arena.ladder.derive import fit_games, rating_rows
from palus.ratings import bradley_terry
from palus.ratings.games import Played, add_up, units_of
from palus.ratings.interval import is_provisional
from palus.ratings.pairing import gain_of


def play(strength: dict[str, float], pairs: int, seed: int, nu: float = 0.4) -> list[Played]:
    """Mirrored pairs between random players of known Davidson strength."""
    rng = np.random.default_rng(seed)
    history = []
    for k in range(pairs):
        a, b = rng.choice(sorted(strength), 2, replace=False).tolist()
        for leg, (blue, purple) in enumerate(((a, b), (b, a))):
            win, draw, _ = chances(strength[blue] - strength[purple], nu)
            luck = rng.random()
            points = 1.0 if luck < win else 0.5 if luck < win + draw else 0.0
            history.append(Played(2 * k + leg, f"{k}-{leg}", f"u{k}", blue, purple, points))
    return history


STRENGTH = {f"p{k}": 60.0 * k for k in range(7)}


@pytest.fixture(scope="module")
def history() -> list[Played]:
    return play(STRENGTH, pairs=400, seed=0)


def test_shuffled_rows_change_no_bit(history: list[Played]) -> None:
    def everything(rows: list[Played]) -> tuple[object, ...]:
        field = arrange(rows)
        fit = bradley_terry.fit(field.games, len(field), side_term=True)
        return field.names, fit.strength.tobytes(), fit.joint.tobytes(), fit.side

    assert everything(random.Random(1).sample(history, len(history))) == everything(history)


def test_an_independent_implementation_finds_the_same_strengths() -> None:
    import choix  # which loads much that nothing else needs

    decided = [game for game in play(STRENGTH, pairs=150, seed=1) if game.points != 0.5]
    field = arrange(decided)
    cells, n = add_up(field.games, len(field)), len(field)
    strength = bradley_terry.mode(cells, n, n, bradley_terry.PRIOR_SD)
    names = list(field.names)
    wins = [
        (names.index(g.first), names.index(g.second)) if g.points else (names.index(g.second), names.index(g.first))
        for g in decided
    ]
    # choix penalises with alpha * theta^2 on the logistic scale.
    alpha = 0.5 / (bradley_terry.POINTS_TO_LOGIT * bradley_terry.PRIOR_SD) ** 2
    theirs = choix.opt_pairwise(len(names), wins, alpha=alpha, method="Newton-CG")
    np.testing.assert_allclose(
        (strength - strength.mean()) * bradley_terry.POINTS_TO_LOGIT, theirs - theirs.mean(), atol=1e-4
    )
    loose = bradley_terry.mode(cells, n, n, 1e5) * bradley_terry.POINTS_TO_LOGIT
    theirs = choix.ilsr_pairwise(len(names), wins)
    np.testing.assert_allclose(loose - loose.mean(), theirs - theirs.mean(), atol=1e-4)


def test_swapping_all_sides_flips_the_side_term_only(history: list[Played]) -> None:
    # One game of some pairs only, so that the sides are not balanced.
    uneven = [game for game in history if game.id.endswith("0") or game.points == 1.0]
    swapped = [game._replace(first=game.second, second=game.first, points=1.0 - game.points) for game in uneven]
    fits = [bradley_terry.fit(arrange(rows).games, 7, side_term=True) for rows in (uneven, swapped)]
    np.testing.assert_allclose(fits[0].strength, fits[1].strength, atol=1e-9)
    np.testing.assert_allclose(fits[0].covariance, fits[1].covariance, rtol=1e-9, atol=1e-9)
    assert fits[0].side is not None and fits[1].side is not None
    assert fits[0].side[0] == pytest.approx(-fits[1].side[0])
    assert abs(fits[0].side[0]) > 10


def test_two_copies_of_one_file_get_overlapping_intervals() -> None:
    overlap = 0
    for seed in range(40):
        field = arrange(play({**STRENGTH, "copy of p3": STRENGTH["p3"]}, pairs=200, seed=seed))
        fit = bradley_terry.fit(field.games, len(field))
        one, other = field.names.index("p3"), field.names.index("copy of p3")
        overlap += abs(fit.strength[one] - fit.strength[other]) <= fit.half_width[one] + fit.half_width[other]
        best, worst = bradley_terry.rank_ranges(fit.strength, fit.joint)[one]
        assert best <= 1 + (fit.strength > fit.strength[one]).sum() <= worst
    assert overlap >= 39


def test_rock_paper_scissors_share_one_rating_and_all_ranks() -> None:
    beats = [("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")]
    history = [Played(k, f"{a}{b}{k}", f"{a}{b}{k}", a, b, 1.0 if k % 10 else 0.0) for a, b in beats for k in range(60)]
    field = arrange(history)
    fit = bradley_terry.fit(field.games, 3)
    assert fit.strength == pytest.approx(np.zeros(3))
    assert bradley_terry.rank_ranges(fit.strength, fit.joint).tolist() == [[1, 3]] * 3
    assert field.names == ("paper", "rock", "scissors")
    assert add_history(history).outcomes().tolist() == [[60, 0, 60]] * 3
    assert not any(is_provisional(120, half_width) for half_width in fit.half_width)


def test_young_ratings_are_provisional() -> None:
    assert is_provisional(19, 50.0)
    assert is_provisional(20, 100.1)
    assert not is_provisional(20, 100.0)


def test_pairs_are_found_whatever_their_sides() -> None:
    history = [
        Played(0, "1", "u", "a", "b", 1.0),
        Played(1, "2", "u", "b", "a", 0.5),
        Played(2, "3", "v", "b", "a", 1.0),
        Played(3, "4", "w", "a", "a", 1.0),
    ]
    field = arrange(history)
    units = units_of(field.games)
    assert field.names == ("a", "b")
    assert units.share.tolist() == [0.0, 0.75]
    assert (units.low.tolist(), units.high.tolist(), units.starts.tolist()) == ([0, 0], [1, 1], [0])
    assert add_history(history).outcomes().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_nothing_played_is_an_empty_board() -> None:
    assert rating_rows("SoccerTwos", fit_games(add_history([]), 0), {}, (), {}) == []


def test_information_gain_prefers_open_and_unsure_pairings() -> None:
    covariance = np.diag([100.0, 100.0, 2500.0])
    gain = information_gain(np.array([0.0, 400.0, 0.0]), covariance)
    # By hand: p = 1/2, variance 2600, two games.
    assert gain[0, 2] == pytest.approx(0.5 * np.log(1 + 2 * (np.log(10) / 400) ** 2 * 0.25 * 2600.0))
    assert gain_of(np.zeros(1), np.full(1, 2600.0))[0] == gain[0, 2], "a mirrored pair, where nobody says how many"
    assert gain[0, 2] > gain[1, 2] > gain[0, 1] > 0
    assert np.array_equal(gain, gain.T) and not gain.diagonal().any()


@pytest.mark.slow
def test_a_refit_at_the_size_of_the_reference_finds_the_strengths() -> None:
    rng = np.random.default_rng(0)
    strength = rng.normal(0.0, 200.0, 911)
    history = []
    for k in range(120_000):
        a = int(rng.integers(911))
        b = (a + int(rng.integers(1, 911))) % 911
        for leg, (blue, purple) in enumerate(((a, b), (b, a))):
            p = bradley_terry.win_probability(strength[blue] - strength[purple])
            history.append(Played(k, f"{k}-{leg}", str(k), f"m{blue:03d}", f"m{purple:03d}", float(rng.random() < p)))
    field = arrange(history)
    fit = bradley_terry.fit(field.games, len(field))
    ranges = bradley_terry.rank_ranges(fit.strength, fit.joint)
    assert np.all(ranges[:, 0] <= ranges[:, 1])
    assert np.mean(np.abs(fit.strength - (strength - strength.mean())) <= fit.half_width) > 0.9
