"""The ratings that walk through a history: the reference leaderboard's Elo and openskill."""

from __future__ import annotations

import random

import pytest
from openskill.models import PlackettLuce

from palus.ratings import elo
from palus.ratings.games import Played
from palus.ratings.online import Online, follow


def round_of(number: int, *results: tuple[str, str, float]) -> list[Played]:
    return [Played(number, f"{number}-{k}", f"{number}-{k}", *result) for k, result in enumerate(results)]


def some_history(games: int = 300, players: int = 8) -> list[Played]:
    rng = random.Random(3)
    names = [f"p{k}" for k in range(players)]
    return [
        Played(k // 4, f"{k:04d}", f"{k // 2}", *rng.sample(names, 2), rng.choice([0.0, 0.5, 1.0]))
        for k in range(games)
    ]


def after(history: list[Played]) -> dict[str, Online]:
    players: dict[str, Online] = {}
    follow(players, history)
    return players


@pytest.mark.parametrize(
    ("gap", "published"),
    [
        (21.2256012512271, 9.51165123819),
        (-9.480866043401283, 10.21827033555),
        (-61.95425830620771, 11.41695067705),
    ],
)
def test_transfers_between_two_published_rating_files_come_out(gap: float, published: float) -> None:
    before = 1200.0 + gap
    after, _ = elo.update(before, 1200.0, 1.0, k=elo.REFERENCE_K, scale=elo.REFERENCE_SCALE)
    assert after - before == pytest.approx(published, abs=1e-9)
    # With chess's 400 points the second or third digit is another one.
    assert abs(elo.update(before, 1200.0, 1.0, k=elo.REFERENCE_K)[0] - before - published) > 0.04


def test_the_first_published_round_has_three_levels() -> None:
    # 18 models, 9 matches, 2 of them drawn: 7 at 1210, 4 at 1200, 7 at 1190.
    results = [(f"m{2 * k}", f"m{2 * k + 1}", 0.5 if k < 2 else 1.0) for k in range(9)]
    ratings = sorted(player.elo for player in after(round_of(0, *results)).values())
    assert ratings == [1190.0] * 7 + [1200.0] * 4 + [1210.0] * 7


def test_a_second_round_starts_from_the_first() -> None:
    history = round_of(0, ("a", "b", 1.0)) + round_of(1, ("b", "a", 1.0), ("c", "d", 0.5))
    ratings = {name: player.elo for name, player in after(history).items()}
    # 20 points apart: b gains 20 (1 - 1 / (1 + 10^(20/500))) = 20 * 0.523010
    assert ratings["b"] == pytest.approx(1190.0 + 10.460192, abs=1e-6)
    assert ratings["a"] + ratings["b"] == pytest.approx(2400.0)
    assert ratings["c"] == 1200.0


def test_a_game_against_oneself_changes_nothing() -> None:
    history = some_history()
    with_self = [*history, Played(999, "self", "self", "p1", "p1", 1.0)]
    assert after(with_self) == after(history)


def test_online_ratings_are_openskills_own() -> None:
    model = PlackettLuce()
    ours = after([Played(0, "1", "1", "a", "b", 1.0), Played(1, "2", "2", "b", "a", 0.5)])
    (a,), (b,) = model.rate([[model.rating()], [model.rating()]])
    (b,), (a,) = model.rate([[b], [a]], ranks=[1, 1])
    for name, theirs in (("a", a), ("b", b)):
        assert ours[name].skill == pytest.approx((theirs.mu, theirs.sigma), rel=1e-12)
    assert ours["a"].skill.mu > 25 > ours["b"].skill.mu
