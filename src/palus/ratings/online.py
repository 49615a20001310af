"""A belief about each player after every single match: openskill's Plackett-Luce model (Weng and Lin, 2011).

Teams of several players with mixed partners and free-for-alls are rated as well. A match of two players has a closed
form, which costs 8 us where the library takes 91: training plays thousands a second. The numbers depend on the order of
the matches, so they are never the published order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from openskill.models import PlackettLuce

from palus.ratings import elo
from palus.ratings.games import Played

_MODEL = PlackettLuce()


class Skill(NamedTuple):
    """Normal with mean mu and standard deviation sigma, in openskill's own unit; as a stranger starts."""

    mu: float = _MODEL.mu
    sigma: float = _MODEL.sigma


def rated(teams: Sequence[Sequence[Skill]], points: Sequence[float]) -> list[list[Skill]]:
    """Everybody after one match. teams: two or more, each of one or more players. points: of each team."""
    if [len(team) for team in teams] == [1, 1]:
        (a,), (b,) = teams
        share = 0.5 if points[0] == points[1] else float(points[0] > points[1])
        # With two players the sums of the model collapse: omega = share - p, and p (1 - p) is the same for both.
        of_a, of_b = a.sigma**2 + _MODEL.tau**2, b.sigma**2 + _MODEL.tau**2
        c = math.sqrt(of_a + of_b + 2.0 * _MODEL.beta**2)
        p = 1.0 / (1.0 + math.exp(min((b.mu - a.mu) / c, 700.0)))
        return [[_after(a, of_a, c, share - p, p)], [_after(b, of_b, c, p - share, p)]]
    before = [[_MODEL.rating(mu=skill.mu, sigma=skill.sigma) for skill in team] for team in teams]
    places = [float(sum(more > of_team for more in points)) for of_team in points]  # openskill cuts fractions off
    after = _MODEL.rate(before, ranks=places)
    return [[Skill(rating.mu, rating.sigma) for rating in team] for team in after]


class Online(NamedTuple):
    """A player after every single game: Elo of the reference leaderboard, and the belief."""

    elo: float = elo.START
    skill: Skill = Skill()


def follow(players: dict[str, Online], games: Iterable[Played]) -> None:
    """Bring players by name up to date with games in their order; those of a player against itself do not count."""
    stranger = Online()
    for game in games:
        if game.first != game.second:
            a, b = players.get(game.first, stranger), players.get(game.second, stranger)
            (of_a,), (of_b,) = rated([[a.skill], [b.skill]], [game.points, 1.0 - game.points])
            elo_a, elo_b = elo.update(a.elo, b.elo, game.points, elo.REFERENCE_K, elo.REFERENCE_SCALE)
            players[game.first], players[game.second] = Online(elo_a, of_a), Online(elo_b, of_b)


def _after(skill: Skill, variance: float, c: float, omega: float, p: float) -> Skill:
    shrink = variance**1.5 / c**3 * p * (1.0 - p)
    return Skill(skill.mu + variance / c * omega, math.sqrt(variance * max(1.0 - shrink, _MODEL.kappa)))
