"""A rating after every single game, for instant feedback: openskill's Plackett-Luce model (Weng and Lin, 2011).

Teams of several players with mixed partners and free-for-alls are rated as well. The numbers depend on the order of
the games, so they are never the published order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openskill.models import PlackettLuce, PlackettLuceRating

from palus.ratings.games import Played, in_order

MU = 25.0
SIGMA = MU / 3.0


@dataclass(frozen=True)
class Skill:
    """A belief about a player: normal with mean mu and standard deviation sigma, in openskill's own unit."""

    mu: float = MU
    sigma: float = SIGMA


class OnlineRatings:
    """Beliefs about everybody seen so far; strangers start at mu 25, sigma 25/3."""

    def __init__(self) -> None:
        self._model = PlackettLuce(mu=MU, sigma=SIGMA)
        self._skills: dict[str, Skill] = {}

    def __getitem__(self, name: str) -> Skill:
        return self._skills.get(name, Skill())

    def rate(self, teams: Sequence[Sequence[str]], places: Sequence[float]) -> None:
        """Take one game in. teams: two or more, each of one or more names. places: of each team, smaller is better,
        equal places are a draw."""
        before = [[self._rating(name) for name in team] for team in teams]
        after = self._model.rate(before, ranks=list(places))
        for team, ratings in zip(teams, after, strict=True):
            for name, rating in zip(team, ratings, strict=True):
                self._skills[name] = Skill(rating.mu, rating.sigma)

    def skills(self) -> dict[str, Skill]:
        """Everybody who has played, by name."""
        return dict(sorted(self._skills.items()))

    def _rating(self, name: str) -> PlackettLuceRating:
        skill = self[name]
        return self._model.rating(mu=skill.mu, sigma=skill.sigma)


def replay(history: Iterable[Played]) -> dict[str, Skill]:
    """Everybody's belief after this history of games between two players, by name. Taken by (order, id)."""
    online = OnlineRatings()
    for game in in_order(history):
        online.rate([[game.first], [game.second]], [1.0 - game.points, game.points])
    return online.skills()
