"""Two players against each other: ratings, meetings, and the sequential test "is the second one better"."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from palus.arena.ladder.derive import variance_of_gap
from palus.ratings.elo import expected_score
from palus.ratings.interval import Z_95
from palus.ratings.sequential import Hypotheses
from palus.ratings.sequential import SequentialTest as Test
from palus.web.api.roster import Player
from palus.web.api.summaries import F64, EntityMatches, HeadToHead, MatchLine, Rows, meetings_of
from palus.web.api.view import View
from palus.web.shapes import Shape

MATCHES = 200
LEADS = (Hypotheses(), Hypotheses(elo1=200.0, alpha=0.01, beta=0.01))
"""Each is asked about, of both players. However a pair ends, it says little about a small lead: 30 pairs that were all
won would leave the first one open. So a large one is asked about, too, at error rates that add little."""
State = Literal["better", "not better", "worse", "undecided"]


class SequentialTest(Shape):
    """Sequential test "is the second player better", on mirrored pairs; stops at either bound. state: worse where the
    first one is better by the same rule."""

    elo0: float
    elo1: float
    alpha: float
    beta: float
    pairs: int
    llr: float
    lower: float
    upper: float
    state: State
    sentence: str


class RevisionComparison(Shape):
    """A revision against the one before it. difference: newer minus older, points."""

    newer: str
    older: str
    difference: float | None
    half_width: float | None
    test: SequentialTest


class Comparison(Shape):
    """Two repositories by their current revisions; the same one twice compares its last two revisions.

    difference: rating of b minus a, half_width of its own 95 % interval. expected: share of b that the ratings predict.
    games seen from b.
    """

    env: str
    a: Player
    b: Player
    difference: float | None
    half_width: float | None
    expected: float | None
    head_to_head: HeadToHead = Field(description="of b against a")
    test: SequentialTest
    verdict: str = Field(description="what the games between the two and the ratings say together")
    caution: str | None = Field(description="why the difference is not to be trusted; null where it is")
    matches: list[MatchLine] = Field(description="of b, newest first")


def compare(view: View, env: str, repo_a: str, repo_b: str) -> Comparison | None:
    """Everything about b against a in a game. None where it does not have both.

    The same repository twice: its last two accepted revisions, the older one first. Same-owner games count here,
    although they are not rated.
    """
    found = _players(view, env, repo_a, repo_b)
    if found is None:
        return None
    a, b = found
    games = meetings_of(view, env, b.sha256, a.sha256)
    difference, half_width = _rating_difference(view, env, a, b)
    test = _sequential_test(games, a, b)
    met = games.head_to_head(games.valid)
    return Comparison(
        env=env,
        a=a,
        b=b,
        difference=difference,
        half_width=half_width,
        expected=None if a.rating is None or b.rating is None else expected_score(b.rating, a.rating),
        head_to_head=met[0] if met else HeadToHead(opponent=a),
        test=test,
        verdict=verdict(test, difference, half_width, *_short_names(a, b)),
        caution=_caution(view, env, a, b),
        matches=games.lines(games.valid[::-1][:MATCHES]),
    )


def _players(view: View, env: str, a: str, b: str) -> tuple[Player, Player] | None:
    roster = view.roster
    if a == b:
        revisions = roster.accepted(env, a)
        return (revisions[1], revisions[0]) if len(revisions) >= 2 else None
    first, second = roster.current_of(env, a), roster.current_of(env, b)
    return None if first is None or second is None else (roster.player(first), roster.player(second))


def _rating_difference(view: View, env: str, a: Player, b: Player) -> tuple[float | None, float | None]:
    """b minus a and its half-width, from the joint covariance; None where one is not rated. In large fields, which
    publish none, from the two half-widths as if they were independent."""
    if a.sha256 == b.sha256:
        return (0.0, 0.0) if a.rating is not None else (None, None)
    field, board = view.roster.fields.get(env), view.roster.ratings.get(env, {})
    if field is None or a.sha256 not in board or b.sha256 not in board:
        return None, None
    if field.covariance is None:
        widths = board[a.sha256].half_width, board[b.sha256].half_width
        return board[b.sha256].rating - board[a.sha256].rating, float(np.hypot(*widths))
    order = sorted(board)
    variance = variance_of_gap(field.covariance, order.index(a.sha256), order.index(b.sha256))
    return board[b.sha256].rating - board[a.sha256].rating, Z_95 * float(np.sqrt(variance))


_VERDICTS = {
    "unrated": {
        "better": "{b} is better than {a}, by the games between them.",
        "not better": "{b} is not {sure} better than {a}, by the games between them.",
        "worse": "{a} is better than {b}, by the games between them.",
        "undecided": "Nobody knows yet whether {b} is better than {a}.",
    },
    "close": {
        "better": "{b} is better than {a} in the games between them. Against everybody the two are too close to tell "
        "apart.",
        "not better": "{b} and {a} are too close to tell apart; if {b} is ahead at all, their games say, then by less "
        "than {sure}.",
        "worse": "{a} is better than {b} in the games between them. Against everybody the two are too close to tell "
        "apart.",
        "undecided": "{b} and {a} are too close to tell apart so far.",
    },
    "ahead": {
        "better": "{b} is better than {a}: the games between them and the ratings ({lead}) agree.",
        "not better": "{b} is better than {a} by the ratings ({lead}). It does not show in the games between them, "
        "which fit no lead of {sure}: {a} may be the opponent that does not suit it.",
        "worse": "{a} beats {b} in the games between them, although {b} is better against everybody ({lead}).",
        "undecided": "{b} is better than {a} by the ratings ({lead}). The games between them alone do not decide.",
    },
    "behind": {
        "better": "{b} beats {a} in the games between them, although {a} is better against everybody ({lead}).",
        "not better": "{a} is better than {b}: the ratings ({lead}) say so, and the games between them agree.",
        "worse": "{a} is better than {b}: the games between them and the ratings ({lead}) agree.",
        "undecided": "{a} is better than {b} by the ratings ({lead}). The games between them alone do not decide.",
    },
}
"""By where b stands by the ratings, and by what the test says."""
_VERDICTS["perhaps ahead"] = _VERDICTS["ahead"] | {
    "not better": "{b} is better than {a} by the ratings ({lead}), but by less than {sure}, their games say."
}


def verdict(test: SequentialTest, difference: float | None, half_width: float | None, a: str, b: str) -> str:
    """What the games between the two and the ratings say together, in one or two sentences.

    The two answer different questions: the test asks for a lead of elo1 in the games between the two, the ratings who
    does better against everybody. test: of "b is better than a". difference: b minus a, None where not rated.
    """
    sure, lead, place = f"{test.elo1:.0f} points", "", "unrated"
    if difference is not None and half_width is not None:
        lead = f"{abs(difference):.0f} ± {half_width:.0f} points"
        if abs(difference) <= half_width:
            place = "close"
        elif difference < 0:
            place = "behind"
        else:
            place = "perhaps ahead" if difference - half_width < test.elo1 else "ahead"
    return _VERDICTS[place][test.state].format(a=a, b=b, sure=sure, lead=lead)


def _caution(view: View, env: str, a: Player, b: Player) -> str | None:
    """Why the difference is not to be trusted, where few matches tie the two together."""
    for group in view.roster.summary(env).get("loose", ()):
        if (a.sha256 in group["players"]) != (b.sha256 in group["players"]):
            pairs = "1 mirrored pair ties" if group["pairs"] == 1 else f"{group['pairs']} mirrored pairs tie"
            return (
                f"Only {pairs} a group of {len(group['players'])} models, one of these two "
                "among them, to all others. The difference of the ratings rests on little more than that both groups "
                "are taken for equally strong, whatever its interval says."
            )
    return None


def compare_revisions(view: View, env: str, newer: Player, older: Player) -> RevisionComparison:
    """A revision against the one before it."""
    games = meetings_of(view, env, newer.sha256, older.sha256)
    difference, half_width = _rating_difference(view, env, older, newer)
    return RevisionComparison(
        newer=newer.revision,
        older=older.revision,
        difference=difference,
        half_width=half_width,
        test=_sequential_test(games, older, newer),
    )


def _sequential_test(games: EntityMatches, a: Player, b: Player) -> SequentialTest:
    """The test of "b is better than a" on the complete mirrored pairs among b's games against a."""
    rows = games.valid
    test, state = _decided(_pair_scores(games.points(rows), games.log["unit"][rows]).tolist())
    return SequentialTest.like(test, test.hypotheses, state=state, sentence=_sentence(test, state, a, b))


def _decided(scores: list[float]) -> tuple[Test, State]:
    """The test that says most about some pairs, and what it says. scores: of the second player."""
    for lead in LEADS:
        ahead = Test(lead).after(scores)
        if ahead.decision == "better":
            return ahead, "better"
        behind = Test(Hypotheses(-lead.elo1, -lead.elo0, lead.beta, lead.alpha)).after(scores)
        if behind.decision == "not better":
            return behind, "worse"
    usual = Test(LEADS[0]).after(scores)
    return usual, usual.decision or "undecided"


def _sentence(test: Test, state: State, a: Player, b: Player) -> str:
    older, newer = _short_names(a, b)
    bounds = test.hypotheses
    if test.pairs == 0:
        return f"{newer} and {older} have not met in a mirrored pair yet; palus compare lets them play."
    if state == "better":
        return f"After {test.pairs} pairs {newer} is better than {older} (error rate {bounds.alpha:.0%})."
    if state == "worse":
        return f"After {test.pairs} pairs {older} is better than {newer} (error rate {bounds.beta:.0%})."
    if state == "not better":
        return (
            f"After {test.pairs} pairs {newer} is not {bounds.elo1:.0f} Elo better than {older} "
            f"(error rate {bounds.beta:.0%})."
        )
    return f"{test.pairs} pairs leave open whether {newer} is better than {older}."


def _short_names(a: Player, b: Player) -> tuple[str, str]:
    """Repositories, or revisions where that is the same."""
    return (a.repo, b.repo) if a.repo != b.repo else (a.revision[:7], b.revision[:7])


def _pair_scores(points: F64, units: Rows) -> F64:
    """Share of the points in each pair of which both games have a result."""
    _, of, games = np.unique(units, return_inverse=True, return_counts=True)
    shares: F64 = np.bincount(of, points, len(games)) / np.maximum(games, 1)
    return np.asarray(shares[games == 2])
