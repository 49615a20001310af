"""Two players against each other: ratings, meetings, and the sequential test "is the second one better"."""

from __future__ import annotations

import numpy as np

from palus.ratings.sequential import SequentialTest as Test
from palus.web.api.performance import Games, games_of
from palus.web.api.summaries import F64, Rows, expected_share, head_to_head
from palus.web.api.view import View
from palus.web.shapes import Comparison, HeadToHead, Player, RevisionComparison, SequentialTest

MATCHES = 200


def compare(view: View, env: str, a: Player, b: Player) -> Comparison:
    """Everything about b against a in an env. Same-owner games count here, although they are not rated."""
    games = games_of(view, env, b.sha256)
    rows = _meetings(games, a.sha256)
    difference, half_width = rating_difference(a, b)
    met = head_to_head(view, b, games.opponents(rows), games.points(rows), view.log["unit"][rows])
    known = a.rating is not None and b.rating is not None
    return Comparison(
        env=env,
        a=a,
        b=b,
        difference=difference,
        half_width=half_width,
        expected=expected_share(b.rating or 0.0, a.rating or 0.0) if known else None,
        head_to_head=met[0] if met else _never_met(a),
        test=sequential_test(games, rows, a, b),
        matches=games.lines(rows[::-1][:MATCHES]),
    )


def rating_difference(a: Player, b: Player) -> tuple[float | None, float | None]:
    """b minus a and its half-width, as if the two ratings were independent; None where one is not rated."""
    if a.rating is None or b.rating is None or a.half_width is None or b.half_width is None:
        return None, None
    if a.sha256 == b.sha256:
        return 0.0, 0.0
    return b.rating - a.rating, float(np.hypot(a.half_width, b.half_width))


def compare_revisions(view: View, env: str, newer: Player, older: Player) -> RevisionComparison:
    """A revision against the one before it."""
    games = games_of(view, env, newer.sha256)
    difference, half_width = rating_difference(older, newer)
    return RevisionComparison(
        newer=newer.revision,
        older=older.revision,
        difference=difference,
        half_width=half_width,
        test=sequential_test(games, _meetings(games, older.sha256), older, newer),
    )


def sequential_test(games: Games, rows: Rows, a: Player, b: Player) -> SequentialTest:
    """The test of "b is better than a" on the complete mirrored pairs among b's games in these rows."""
    test = Test().after(_pair_scores(games.points(rows), games.view.log["unit"][rows]).tolist())
    bounds = test.hypotheses
    state = test.decision or "undecided"
    return SequentialTest(
        elo0=bounds.elo0,
        elo1=bounds.elo1,
        alpha=bounds.alpha,
        beta=bounds.beta,
        pairs=test.pairs,
        llr=test.llr,
        lower=bounds.lower,
        upper=bounds.upper,
        state=state,
        sentence=_sentence(test, a, b),
    )


def _sentence(test: Test, a: Player, b: Player) -> str:
    newer, older = (b.repo, a.repo) if a.repo != b.repo else (b.revision[:7], a.revision[:7])
    bounds = test.hypotheses
    if test.pairs == 0:
        return f"{newer} and {older} have not met in a mirrored pair yet; palus compare lets them play."
    if test.decision == "better":
        return f"After {test.pairs} pairs {newer} is better than {older} (error rate {bounds.alpha:.0%})."
    if test.decision == "not better":
        return (
            f"After {test.pairs} pairs {newer} is not {bounds.elo1:.0f} Elo better than {older} "
            f"(error rate {bounds.beta:.0%})."
        )
    return f"{test.pairs} pairs leave open whether {newer} is better than {older}."


def _pair_scores(points: F64, units: Rows) -> F64:
    """Share of the points in each pair of which both games have a result."""
    _, of, games = np.unique(units, return_inverse=True, return_counts=True)
    shares: F64 = np.bincount(of, points, len(games)) / np.maximum(games, 1)
    return np.asarray(shares[games == 2])


def _meetings(games: Games, opponent: str) -> Rows:
    rows = games.valid
    return np.asarray(rows[games.opponents(rows) == games.view.log.entities.find(opponent)])


def _never_met(opponent: Player) -> HeadToHead:
    return HeadToHead(
        opponent=opponent, games=0, wins=0, draws=0, losses=0, share=0.0, low=0.0, high=1.0, expected=None
    )
