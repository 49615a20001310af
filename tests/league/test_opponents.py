"""Whom a learner meets: odds by hand for each way of choosing, from a table of payoffs and the options alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.league.opponents import PayoffTable, is_change_due, opponent_odds
from palus.league.roles import Candidate
from palus.ratings.nash import mixtures
from palus.rollout.rollout import FROZEN, MEMBERS

ME = Candidate(0, 0, 4)
PAST = [Candidate(FROZEN + k, 0, k) for k in range(4)]


def table(shares: dict[tuple[int, int], float]) -> PayoffTable:
    """Everybody has met so often that the shares are sure."""
    made = PayoffTable()
    for (policy, opponent), share in shares.items():
        made.add(policy, opponent, share)
        made.form = {pair: (points * 1e9, 1e9) for pair, (points, _) in made.cells.items() if min(pair) < FROZEN}
    return made


def against(*shares: float) -> PayoffTable:
    """What the learner takes from its snapshots."""
    return table({(0, FROZEN + k): share for k, share in enumerate(shares)})


def met(
    payoffs: PayoffTable,
    field: list[Candidate],
    *,
    me: Candidate = ME,
    own: Any = None,
    ratio: float = 0.0,
    **keys: Any,
) -> dict[int, float]:
    """Policy, 100 + n for snapshot n, -> chance."""
    ghosts = SelfPlay(play_against_latest_model_ratio=ratio, window=2)
    odds = opponent_odds(payoffs, LeagueSettings(**keys), ghosts, me, field, own)
    weights = odds.weights or [1 / max(len(odds.others), 1)] * len(odds.others)
    mains = [c.policy for c in field if c.learns and c.role == "main"]
    latest = me.policy if me in field else mains[0]
    found = Counter({latest: odds.latest})
    for policy, weight in zip(odds.others, weights, strict=True):
        found[policy - FROZEN + 100 if policy >= FROZEN else policy] += (1 - odds.latest) * weight
    return {policy: pytest.approx(chance, abs=1e-6) for policy, chance in sorted(found.items()) if chance > 1e-7}


def test_ghosts_are_the_newest_of_the_window_all_alike() -> None:
    assert met(against(), [*PAST, ME], ratio=0.5) == {0: 0.5, 102: 0.25, 103: 0.25}
    assert met(against(), [ME], ratio=0.0) == {0: 1.0}
    scripted = Candidate(FROZEN + 9, FROZEN + 9, role="member")
    assert met(against(), [scripted, *PAST, ME]) == {102: 1 / 3, 103: 1 / 3, 109: 1 / 3}


@pytest.mark.parametrize(
    ("delta", "chances"),
    [
        (0.0, {0: 0.2, 100: 0.2, 101: 0.2, 102: 0.2, 103: 0.2}),
        (0.5, {0: 1 / 3, 102: 1 / 3, 103: 1 / 3}),
        (0.74, {0: 1 / 3, 102: 1 / 3, 103: 1 / 3}),
        (0.75, {0: 0.5, 103: 0.5}),
        (1.0, {0: 1.0}),
    ],
)
def test_history_is_even_among_the_versions_from_delta_on(delta: float, chances: dict[int, float]) -> None:
    assert met(against(), [*PAST, ME], opponents="history", delta=delta) == chances


def test_a_thinned_history_stands_for_all_of_it() -> None:
    """Of versions 0 to 99, four are left: each is met for those that it is nearest to."""
    kept = [Candidate(FROZEN + k, 0, k) for k in (0, 50, 90, 99)]
    chances = met(against(), [*kept, Candidate(0, 0, 100)], me=Candidate(0, 0, 100), opponents="history")
    assert chances == {0: 1 / 101, 100: 26 / 101, 150: 45 / 101, 190: 24 / 101, 199: 5 / 101}


@pytest.mark.parametrize("versions", [2, 4, 40])
def test_the_history_of_another_run_is_its_own_however_fast_that_is(versions: int) -> None:
    theirs = [Candidate(MEMBERS + k, -1, k) for k in range(versions)]
    found = met(against(), [*theirs, *PAST, ME], opponents="history")
    assert {policy: found.pop(policy) for policy in (0, 100, 101, 102, 103)} == dict.fromkeys(
        (0, 100, 101, 102, 103), pytest.approx(0.1)
    )
    assert [*found.values()] == [pytest.approx(0.5 / versions)] * versions
    newest = met(against(), [*theirs, *PAST, ME], opponents="history", delta=1.0)
    assert newest == {0: 0.5, MEMBERS - FROZEN + 100 + versions - 1: 0.5}


def test_prioritized_self_play_prefers_who_wins_or_who_is_as_strong() -> None:
    payoffs = against(1.0, 0.8, 0.5, 0.0)
    hard = {101: 0.04 / 1.29, 102: 0.25 / 1.29, 103: 1 / 1.29}
    assert met(payoffs, [*PAST, ME], opponents="pfsp_hard") == hard
    assert met(payoffs, [*PAST, ME], opponents="pfsp_even") == {101: 0.16 / 0.41, 102: 0.25 / 0.41}
    assert met(against(1.0, 1.0), [*PAST[:2], ME], opponents="pfsp_even", ratio=0.5) == {0: 0.5, 100: 0.25, 101: 0.25}
    assert met(against(1.0), [*PAST[:2], ME], opponents="pfsp_hard") == {101: 1.0}  # never met counts as even


def test_what_a_learner_did_long_ago_fades_into_what_nobody_knows() -> None:
    payoffs, ids = PayoffTable(), (0, FROZEN)
    assert payoffs.expected(*ids) == 0.5
    for _ in range(3):
        payoffs.add(*ids, 1.0)
    assert payoffs.expected(*ids) == 3.5 / 4
    payoffs.fade(0)
    assert payoffs.expected(*ids) == 2.0 / 2.5
    payoffs.add(*ids, 0.0)
    assert payoffs.expected(*ids) == 2.0 / 3.5
    assert payoffs.expected(*ids[::-1]) == 1.5 / 3.5
    assert payoffs.cells[ids] == (3.0, 4)
    payoffs.add(FROZEN, FROZEN + 1, 1.0)
    assert payoffs.expected(FROZEN, FROZEN + 1) == 1.0  # who never changes is what all its matches say
    again = PayoffTable()
    again.load_state_dict(payoffs.state_dict())
    assert again == payoffs


def test_the_meta_solver_plays_what_nobody_beats() -> None:
    """Rock beats the other two less and less: weights are the edge between the other two; a fourth loses to all."""
    ids = [c.policy for c in PAST]
    cells = {(ids[0], ids[1]): 0.6, (ids[0], ids[2]): 0.3, (ids[1], ids[2]): 0.8}
    payoffs = table(cells | {(k, ids[3]): 0.9 for k in ids[:3]})
    for mode in ("psro_nash", "psro_entropy"):
        assert met(payoffs, [*PAST, ME], opponents=mode) == {100: 3 / 6, 101: 2 / 6, 102: 1 / 6}
    copies = table({(a, b): 0.5 for a in ids for b in ids if a < b})
    assert met(copies, [*PAST, ME], opponents="psro_entropy") == dict.fromkeys((100, 101, 102, 103), 0.25)


def test_sides_with_different_policies_have_an_equilibrium_of_their_own() -> None:
    rows, columns = mixtures(np.array([[2.0, -1.0, 2.0], [-1.0, 1.0, -1.0]]))
    np.testing.assert_allclose(rows, [0.4, 0.6], atol=1e-6)
    np.testing.assert_allclose(columns, [0.2, 0.6, 0.2], atol=1e-6)
    losing = mixtures(np.array([[-2.0, -1.0], [-1.0, -3.0]]))  # by hand: both sides 2 to 1
    np.testing.assert_allclose(losing, [[2 / 3, 1 / 3]] * 2, atol=1e-6)
    theirs = [Candidate(FROZEN + 10 + k, 1, k) for k in range(2)]
    payoffs = table({(FROZEN + a, FROZEN + 10 + b): [[1.0, 0.0], [0.0, 0.5]][a][b] for a in (0, 1) for b in (0, 1)})
    field = [*theirs, Candidate(1, 1, 2)]
    # The strikers' payoff [[1, 0], [0, 1/2]]: keepers are indifferent at 1/3 to 2/3.
    assert met(payoffs, field, own=[*PAST[:2], ME], opponents="psro_nash") == {110: 1 / 3, 111: 2 / 3}
    assert met(payoffs, field, own=[*PAST[:2], ME], ratio=1.0) == {1: 1.0}
    strong = table({(FROZEN + a, FROZEN + 10 + b): [[0.9, 0.2], [0.8, 0.3]][a][b] for a in (0, 1) for b in (0, 1)})
    assert met(strong, field, own=[*PAST[:2], ME], opponents="psro_nash") == {111: 1.0}  # nobody beats this one


def test_where_rounding_defeats_the_solver_all_are_met_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def defeated(*_: object) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr("palus.league.solvers.any_equilibrium", defeated)
    assert met(against(), [*PAST, ME], opponents="psro_nash") == dict.fromkeys((100, 101, 102, 103), 0.25)


def test_only_strong_ghosts_are_met() -> None:
    field = [*PAST, ME]
    assert met(against(0.9, 0.7, 0.6, 0.95), field, strong_only=0.3) == {101: 0.5, 102: 0.5}
    assert met(against(0.9, 0.8), field, strong_only=0.3) == {102: 0.5, 103: 0.5}  # nobody knows of these
    assert met(against(0.9, 0.9, 0.9, 0.9), field, strong_only=0.3) == {102: 0.5, 103: 0.5}


def test_members_alone_are_met_where_there_are_any() -> None:
    members = [Candidate(FROZEN + 50 + k, FROZEN + 50 + k, role="member") for k in range(2)]
    lost = table({(0, FROZEN + 50): 1.0, (0, FROZEN + 51): 0.0})
    for more in ({}, {"strong_only": 0.5}):
        assert met(lost, [*members, *PAST, ME], ratio=1.0, opponents="members", **more) == {150: 0.5, 151: 0.5}
    assert met(lost, [*PAST, ME], opponents="members") == {0: 1.0}


def test_roles_meet_whom_they_are_after() -> None:
    main, hunter, league = ME, Candidate(1, 1, 1, "main_exploiter"), Candidate(2, 2, 1, "league_exploiter")
    theirs = [Candidate(FROZEN + 10, 1, 0, "main_exploiter"), Candidate(FROZEN + 20, 2, 0, "league_exploiter")]
    field = [*PAST[:2], *theirs, main, hunter, league]
    keys = {"opponents": "pfsp_hard"}
    payoffs = table({(0, FROZEN): 1.0, (0, FROZEN + 1): 0.5, (0, FROZEN + 10): 0.5, (0, FROZEN + 20): 0.5})
    third = 0.5 / 3
    # Nobody to lose to: the 15 % are self-play as well.
    assert met(payoffs, field, me=main, **keys) == {0: 0.5, 101: third, 110: third, 120: third}
    payoffs = table({(0, FROZEN): 1.0, (0, FROZEN + 1): 1.0, (0, FROZEN + 10): 0.0, (0, FROZEN + 20): 0.0})
    assert met(payoffs, field, me=main, **keys) == {0: 0.35, 110: 0.25 + 0.15, 120: 0.25}
    assert met(table({(1, 0): 0.2}), field, me=hunter, **keys) == {0: 1.0}
    weak = table({(1, 0): 0.19, (1, FROZEN): 0.5, (1, FROZEN + 1): 0.8})
    assert met(weak, field, me=hunter, **keys) == {0: 0.5, 100: 0.5 * 25 / 41, 101: 0.5 * 16 / 41}
    known = table({(2, FROZEN): 1.0, (2, FROZEN + 1): 0.5, (2, FROZEN + 10): 1.0, (2, FROZEN + 20): 0.0})
    assert met(known, field, me=league, **keys) == {101: 0.2, 120: 0.8}


def test_opponents_change_after_steps_or_after_matches() -> None:
    ghosts = SelfPlay(swap_steps=10)

    def due(steps: int, matches: int, **keys: Any) -> bool:
        return is_change_due(LeagueSettings(**keys), ghosts, steps, matches)

    assert [due(steps, 9) for steps in (10, 11)] == [False, True]
    assert [due(steps, 9, change_every=20) for steps in (20, 21)] == [False, True]
    assert [due(99, matches, change_every=3, change_unit="episode") for matches in (2, 3)] == [False, True]
