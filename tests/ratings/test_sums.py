"""Games added up: exact, in any order, and enough for every fit; and fits of many players beside the dense route."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from histories import add_history, arrange
from palus.ratings import bradley_terry
from palus.ratings.games import Cells, Played, add_up, units_of
from palus.ratings.information import Sparse, dense, whole


def played(players: int, pairs: int, seed: int, near: int = 100) -> list[Played]:
    """Mirrored pairs, among them units of one game, of players 60 points apart on average."""
    rng = np.random.default_rng(seed)
    strength = np.sort(rng.normal(0.0, 200.0, players))
    history = []
    for k in range(pairs):
        a = int(rng.integers(players))
        b = (a + int(rng.integers(1, near))) % players
        for leg, (blue, purple) in enumerate(((a, b), (b, a))):
            if a == b or (leg and k % 5 == 0):
                continue
            share = bradley_terry.win_probability(strength[blue] - strength[purple] + 30.0)
            points = 0.5 if rng.random() < 0.2 else float(rng.random() < share)
            names = (f"{(7 * i) % 101:03d}-{i}" for i in (blue, purple))  # sorted otherwise than by strength
            history.append(Played(2 * k + leg, f"{k}-{leg}", f"u{k}", *names, points))
    return history


def test_sums_hold_what_the_games_held() -> None:
    history = played(12, 400, seed=0, near=12)
    field, sums = arrange(history), add_history(history)
    cells, units, n = add_up(field.games, 12), units_of(field.games), 12
    ours, own = sums.cells(), sums.units()
    assert (sums.names, sums.games) == (field.names, len(history))
    assert all(np.array_equal(getattr(ours, name), getattr(cells, name)) for name in vars(cells))
    for name in ("low", "high", "share", "games"):
        assert np.array_equal(np.repeat(getattr(own, name), own.count), getattr(units, name)), name
    ended = Counter(
        (name, points) for g in history for name, points in ((g.first, g.points), (g.second, 1.0 - g.points))
    )
    assert sums.outcomes().tolist() == [[ended[name, points] for points in (1.0, 0.5, 0.0)] for name in field.names]
    kept = set(field.names[:5])
    among = add_history(game for game in history if {game.first, game.second} <= kept)
    assert np.array_equal(sums.among(kept).counts, among.counts)
    dense, of_games = bradley_terry.fit_sums(ours, own, n), bradley_terry.fit(field.games, n)
    np.testing.assert_allclose(dense.strength, of_games.strength, atol=1e-8)
    np.testing.assert_allclose(dense.joint, of_games.joint, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("players", "pairs"), [(120, 6000), (60, 300)])
def test_the_sparse_fit_agrees_with_the_dense_one(players: int, pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = add_history(played(players, pairs, seed=players))
    cells, units, n = sums.cells(), sums.units(), len(sums)
    dense = bradley_terry.fit_sums(cells, units, n, side_term=True)
    monkeypatch.setattr(bradley_terry, "SPARSE_FROM", 0)
    sparse = bradley_terry.fit_sums(cells, units, n, side_term=True, exact=True)
    assert sparse.covariance is not None and dense.side is not None and sparse.side is not None
    assert np.abs(sparse.strength - dense.strength).max() < 0.1 * dense.half_width.min()
    np.testing.assert_allclose(sparse.half_width, dense.half_width, rtol=0.04)
    assert sparse.side == pytest.approx(dense.side, rel=0.05)
    held = bradley_terry.fit_sums(cells, units, n)
    assert held.covariance is None
    assert 0.6 < np.median(held.half_width / dense.half_width) <= 1.01


@pytest.mark.parametrize("more", [0, 1])
def test_the_information_by_parts_is_that_of_the_whole_matrix(more: int) -> None:
    """more: the side's worth beside the strengths."""
    rng, n = np.random.default_rng(0), 9
    first, second = np.nonzero(rng.random((n, n)) < 0.4)
    own = first != second
    cells = Cells(first[own], second[own], np.ones(own.sum()), np.ones(own.sum()))
    weight, precision, moves = rng.random(own.sum()), np.full(n + more, 0.1), rng.random(n + more)
    sparse = Sparse(weight, cells, n, precision)
    matrix = dense(weight, cells, n, precision)
    np.testing.assert_allclose(sparse.solve(moves), np.linalg.solve(matrix, moves), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sparse.variance, 1 / np.diag(matrix))
    np.testing.assert_allclose(sparse.widened(moves, 2.0).variance, 1 / np.diag(matrix) + 2 * moves**2)
    trace, squares = sparse.moments(n)
    held = 1 / np.diag(matrix)[:n] * (1 - 1 / n)
    assert (trace, squares) == pytest.approx((held.sum(), np.square(held).sum()))
    wider = np.linalg.inv(matrix[:n, :n]) + 2 * np.outer(moves[:n], moves[:n])
    np.testing.assert_allclose(whole(sparse.widened(moves, 2.0)), wider, atol=1e-9)
