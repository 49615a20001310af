"""A rating after every single game, for instant feedback: openskill's Plackett-Luce model (Weng and Lin, 2011).

Teams of several players with mixed partners and free-for-alls are rated as well. The numbers depend on the order of
the games, so they are never the published order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openskill.models import PlackettLuce, PlackettLuceRating

from palus.ratings.games import Played, in_order

MU = 25.0
SIGMA = MU / 3.0


class OnlineRatings:
    """Beliefs about everybody seen so far, normal with mean mu and standard deviation sigma, in openskill's own unit;
    strangers start at mu 25, sigma 25/3."""

    def __init__(self) -> None:
        self._model = PlackettLuce(mu=MU, sigma=SIGMA)
        self._skills: dict[str, PlackettLuceRating] = {}

    def __getitem__(self, name: str) -> PlackettLuceRating:
        return self._skills.get(name) or self._model.rating()

    def rate(self, teams: Sequence[Sequence[str]], places: Sequence[float]) -> None:
        """Take one game in. teams: two or more, each of one or more names. places: of each team, smaller is better,
        equal places are a draw."""
        after = self._model.rate([[self[name] for name in team] for team in teams], ranks=list(places))
        for team, ratings in zip(teams, after, strict=True):
            self._skills |= zip(team, ratings, strict=True)

    def skills(self) -> dict[str, PlackettLuceRating]:
        """Everybody who has played, by name."""
        return dict(sorted(self._skills.items()))


def replay(history: Iterable[Played]) -> dict[str, PlackettLuceRating]:
    """Everybody's belief after this history of games between two players, by name. Taken by (order, id)."""
    online = OnlineRatings()
    for game in in_order(history):
        online.rate([[game.first], [game.second]], [1.0 - game.points, game.points])
    return online.skills()
