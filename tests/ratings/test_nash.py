"""The win matrix as a game: equilibria with known answers, clones, cycles that are real and cycles that are not."""

from __future__ import annotations

import numpy as np
import pytest

from histories import Field, arrange
from palus.ratings import bradley_terry, nash
from palus.ratings.cycles import cycles, sure_edges
from palus.ratings.games import Played, Units, add_up, units_of

ROCK_PAPER_SCISSORS = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])


def duel(first: str, second: str, scores: list[float]) -> list[Played]:
    """Mirrored pairs; scores: share of the first player in each, a multiple of 1/2."""
    games = []
    for k, share in enumerate(scores):
        unit = f"{first}-{second}-{k}"
        points = {0.0: (0.0, 0.0), 0.5: (1.0, 0.0), 1.0: (1.0, 1.0)}[share]
        games.append(Played(k, f"{unit}-1", unit, first, second, points[0]))
        games.append(Played(k, f"{unit}-2", unit, second, first, 1.0 - points[1]))
    return games


def rock_paper_scissors(pairs: int, extra: list[Played] | None = None) -> Field:
    beats = [("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")]
    wins = [1.0 if k % 8 else 0.5 for k in range(pairs)]
    return arrange([game for a, b in beats for game in duel(a, b, wins)] + (extra or []))


def test_rock_paper_scissors_is_played_evenly() -> None:
    found = nash.equilibrium(ROCK_PAPER_SCISSORS)
    np.testing.assert_allclose(found.weights, [1 / 3] * 3, atol=1e-9)
    np.testing.assert_allclose(found.skill, 0.0, atol=1e-9)


def test_uneven_cycle_has_the_known_mixture() -> None:
    # A p = 0 by hand: the weight of each is the edge between the other two.
    a = np.array([[0.0, 1.0, -2.0], [-1.0, 0.0, 3.0], [2.0, -3.0, 0.0]])
    np.testing.assert_allclose(nash.equilibrium(a).weights, [3 / 6, 2 / 6, 1 / 6], atol=1e-9)


def test_copies_share_the_weight_of_the_one_and_gain_nothing() -> None:
    of = [0, 0, 0, 1, 2]
    found = nash.equilibrium(ROCK_PAPER_SCISSORS[np.ix_(of, of)])
    np.testing.assert_allclose(found.weights, [1 / 9, 1 / 9, 1 / 9, 1 / 3, 1 / 3], atol=1e-6)
    np.testing.assert_allclose(found.skill, 0.0, atol=1e-9)


def test_the_best_of_an_order_takes_all() -> None:
    strength = np.array([3.0, 2.0, 1.0])
    found = nash.equilibrium(strength[:, None] - strength)
    assert found.weights.tolist() == [1.0, 0.0, 0.0]
    assert found.skill.tolist() == [0.0, -1.0, -2.0]
    assert found.points[2] == pytest.approx(-2.0 / np.log(10) * 400)
    assert nash.equilibrium(np.zeros((4, 4))).weights.tolist() == [0.25] * 4


def test_equals_are_not_spread_further_than_an_outsider_allows() -> None:
    # 0 and 1 are even; 2 beats 0 by 3 and loses to 1 by 1, so that 0 may have a quarter at most.
    a = np.array([[0.0, 0.0, -3.0], [0.0, 0.0, 1.0], [3.0, -1.0, 0.0]])
    np.testing.assert_allclose(nash.equilibrium(a).weights, [1 / 4, 3 / 4, 0], atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_beats_the_equilibrium(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(int(rng.integers(2, 70)),) * 2)
    if seed % 3 == 0:
        a = np.kron(np.round(a), np.ones((2, 2)))  # ties and copies: many equilibria
    found = nash.equilibrium(a - a.T)
    assert found.skill.max() <= 1e-8
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.weights.min() >= 0.0


def test_win_matrix_counts_both_sides_and_is_pulled_to_even() -> None:
    field = arrange(duel("a", "b", [1.0, 1.0, 0.5]))
    matrix = nash.win_matrix(add_up(field.games, 2), 2)
    assert matrix.played.tolist() == [[0.0, 6.0], [6.0, 0.0]]
    assert matrix.points.tolist() == [[0.0, 5.0], [1.0, 0.0]]
    assert matrix.advantage[0, 1] == pytest.approx(np.log(3.0)) == -matrix.advantage[1, 0]


def test_one_lucky_pair_does_not_lift_the_eighteenth_of_nineteen() -> None:
    rng = np.random.default_rng(0)
    history = []
    for i in range(19):
        for j in range(i):
            p = bradley_terry.win_probability(np.array(60.0 * (j - i)))
            if (i, j) != (17, 0):
                history += duel(f"{i:02d}", f"{j:02d}", (rng.random((4, 2)) < p).mean(axis=1).tolist())
    field = arrange([*history, *duel("17", "00", [1.0])])
    fit = bradley_terry.fit(field.games, 19)
    matrix = nash.win_matrix(add_up(field.games, 19), 19)
    assert nash.equilibrium(matrix.advantage).weights[17] > 0.02  # what the cells alone say
    belief = nash.believed(matrix, fit.strength, fit.phi)
    found, span = nash.equilibrium(belief.advantage), nash.plausible(belief, fit.joint)
    assert found.weights[17] == 0.0 and span[17, 1] < 0.02
    assert found.weights.argmax() == fit.strength.argmax()
    assert np.all(span[:, 0] <= found.weights) and np.all(found.weights <= span[:, 1])


def test_a_cycle_of_many_games_keeps_its_equilibrium() -> None:
    field = rock_paper_scissors(60)
    fit = bradley_terry.fit(field.games, 3)
    belief = nash.believed(nash.win_matrix(add_up(field.games, 3), 3), fit.strength, fit.phi)
    assert belief.cyclic > 1.0
    np.testing.assert_allclose(nash.equilibrium(belief.advantage).weights, [1 / 3] * 3, atol=0.02)
    span = nash.plausible(belief, fit.joint)
    assert np.all((span[:, 0] > 0.1) & (span[:, 1] < 0.7))
    assert nash.plausible(belief, fit.joint).tolist() == span.tolist()
    nothing = nash.believed(nash.win_matrix(add_up(arrange([]).games, 0), 0), np.zeros(0))
    assert nash.plausible(nothing, np.zeros((0, 0))).shape == (0, 2)


def test_a_cell_is_believed_as_far_as_its_games_leave_room() -> None:
    """By hand: 0, 1 and 2 beat one another in a circle, 4 to 1 with the imaginary game; 3 met 2 alone, evenly."""
    played = np.array([[0.0, 19, 19, 0], [19, 0, 19, 0], [19, 19, 0, 19], [0, 0, 19, 0]])
    points = np.array([[0, 15.5, 3.5, 0], [3.5, 0, 15.5, 0], [15.5, 3.5, 0, 9.5], [0, 0, 9.5, 0]])
    for phi in (1.0, 2.0):
        field = nash.believed(nash.WinMatrix(played, points), np.zeros(4), phi)
        seen, even = phi * (1 / 16 + 1 / 4), phi * (1 / 10 + 1 / 10)  # variances
        # Four pairings less three strengths leave one degree of freedom to chance.
        excess = 3 * np.log(4.0) ** 2 / seen - 1.0
        square = excess / (3 / seen + 1 / even - (3 / seen**2 + 1 / even**2) / (3 / seen + 1 / even))
        assert field.cyclic == pytest.approx(np.sqrt(square))
        kept = np.log(4.0) * square / (square + seen)
        expected = kept * np.array([[0, 1, -1, 0], [-1, 0, 1, 0], [1, -1, 0, 0], [0, 0, 0, 0]])
        np.testing.assert_allclose(field.advantage, expected, atol=1e-12)
        np.testing.assert_allclose([field.sd[0, 1], field.sd[1, 0]], np.sqrt(square * seen / (square + seen)))
        assert field.sd[2, 3] == pytest.approx(np.sqrt(square * even / (square + even)))
        assert field.sd[0, 3] == pytest.approx(field.cyclic), "of those who never met nothing is known beside it"


def test_strengths_so_far_apart_that_a_share_rounds_to_all_leave_every_cell_finite() -> None:
    """7,000 points: the weaker one's share of the imaginary game is 3e-18, and what is seen is what was expected."""
    matrix = nash.WinMatrix(np.array([[0.0, 6], [6, 0]]), np.array([[0.0, 6], [0, 0]]))
    field = nash.believed(matrix, np.array([3500.0, -3500.0]))
    expected = np.log(10) / 400 * 7000
    np.testing.assert_allclose(field.advantage, [[0, expected], [-expected, 0]])
    assert np.isfinite(field.sd).all()
    assert nash.equilibrium(field.advantage).weights.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("gap", [1e20, np.inf, np.nan])
def test_a_matrix_that_no_solver_takes_raises_one_error(gap: float) -> None:
    with pytest.raises(np.linalg.LinAlgError, match="no equilibrium of 2 players"):
        nash.any_equilibrium(np.array([[0.0, gap], [-gap, 0.0]]))


@pytest.mark.parametrize(("sd", "span"), [(60.0, [[0, 1], [0, 1]]), (20.0, [[1, 1], [0, 0]])])
def test_how_unsure_strengths_are_is_how_unsure_the_equilibrium_is(sd: float, span: list[list[float]]) -> None:
    """A gap of 100 points, with a deviation of 85 or of 28."""
    gap = np.log(10) / 400 * 100
    field = nash.Believed(np.array([[0, gap], [-gap, 0]]), np.zeros((2, 2)), 0.0)
    assert nash.plausible(field, np.diag([sd**2, sd**2])).tolist() == span


def test_a_cycle_is_what_no_order_explains() -> None:
    matrix = nash.win_matrix(add_up(rock_paper_scissors(40).games, 3), 3)
    cyclic = nash.unexplained(matrix)
    assert cyclic.share == pytest.approx(1.0)
    assert cyclic.by_chance < 0.05
    rng = np.random.default_rng(0)
    ladder = []
    for i in range(6):
        for j in range(i):
            p = bradley_terry.win_probability(np.array(100.0 * (i - j)))
            ladder += duel(f"{i}", f"{j}", (rng.random((40, 2)) < p).mean(axis=1).tolist())
    ordered = nash.unexplained(nash.win_matrix(add_up(arrange(ladder).games, 6), 6))
    assert ordered.share < 0.1
    assert ordered.share < 3 * ordered.by_chance
    assert nash.unexplained(nash.win_matrix(add_up(arrange([]).games, 0), 0)) == nash.Unexplained(0.0, 0.0)


def test_what_chance_leaves_unexplained_is_counted_by_pairings_and_grows_with_the_scatter_of_pairs() -> None:
    """By hand: a circle of 15 to 3, and one who met the last of it evenly. Four pairings, three gaps of an order."""
    played = np.array([[0.0, 18, 18, 0], [18, 0, 18, 0], [18, 18, 0, 18], [0, 0, 18, 0]])
    points = np.array([[0.0, 15, 3, 0], [3, 0, 15, 0], [15, 3, 0, 9], [0, 0, 9, 0]])
    total = 3 * np.log(4.0) ** 2 / (1 / 16 + 1 / 4)
    for phi in (1.0, 2.0):
        found = nash.unexplained(nash.WinMatrix(played, points), phi)
        assert found == nash.Unexplained(pytest.approx(1.0), pytest.approx(phi / total))


def test_a_real_cycle_is_listed() -> None:
    field = rock_paper_scissors(24, extra=duel("rock", "weak", [1.0] * 20))
    (cycle,) = cycles(units_of(field.games))
    assert [field.names[i] for i in cycle.players] == ["paper", "rock", "scissors"]
    assert cycle.strength == pytest.approx(22.5 / 24)
    assert all(edge.p_value < 1e-4 for edge in cycle.edges)
    assert len(sure_edges(units_of(field.games))) == 4


def test_a_cycle_of_few_games_is_not_listed() -> None:
    assert cycles(units_of(rock_paper_scissors(5).games)) == ()


def test_equal_players_show_no_cycles_however_many_they_are() -> None:
    rng = np.random.default_rng(1)
    history = []
    for i in range(16):
        for j in range(i):
            history += duel(f"{i:02d}", f"{j:02d}", rng.choice([0.0, 0.5, 1.0], 20).tolist())
    assert cycles(units_of(arrange(history).games)) == ()


def test_the_clearest_cycle_stands_first():
    beats = [("r", "s"), ("s", "p"), ("p", "r"), ("x", "y"), ("y", "z"), ("z", "x")]
    games = [g for a, b in beats for g in duel(a, b, [1.0 if k % 4 or a > "u" else 0.5 for k in range(24)])]
    assert [cycle.strength for cycle in cycles(units_of(arrange(games).games))] == [1.0, 0.875]


def test_pairings_are_looked_at_from_the_surest_on():
    """Holm's steps: 2 / 2^7 times two, then 2 / 2^6 alone. Of three with 2 / 2^6 the first is not sure, so none is."""
    two = duel("a", "b", [1.0] * 7) + duel("c", "d", [1.0] * 6)
    assert [edge.p_value for edge in sure_edges(units_of(arrange(two).games))] == [2 / 2**6, 2 / 2**6]
    three = [game for pair in ("ab", "cd", "ef") for game in duel(*pair, [1.0] * 6)]
    assert sure_edges(units_of(arrange(three).games)) == ()


def test_an_edge_s_share_counts_units_that_are_alike_as_often_as_they_were_played():
    low, high = np.zeros(2, np.int64), np.ones(2, np.int64)
    (edge,) = sure_edges(Units(low, high, np.array([0.75, 1.0]), np.full(2, 2), np.array([1, 9])))
    assert edge.share == pytest.approx((0.75 + 9) / 10)


def test_edges_are_corrected_for_how_many_are_looked_at() -> None:
    alone = duel("a", "b", [1.0] * 7)
    crowd = [g for k in range(20) for g in duel(f"x{k:02d}", f"y{k:02d}", [1.0, 0.0])]
    # Sign test by hand: 7 of 7 is 2 / 2^7, times 21 pairings.
    assert sure_edges(units_of(arrange(alone).games))[0].p_value == pytest.approx(2 / 2**7)
    assert sure_edges(units_of(arrange(alone + crowd).games)) == ()
