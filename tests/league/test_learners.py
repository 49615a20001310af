"""Several learners of a behavior: when exploiters are frozen and begin anew, who goes on from whom, who is how good."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.league.book import Book
from palus.league.league import League
from palus.league.pools import Contender
from palus.league.roles import RESET
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

DUEL = GameSpec.alike("duel", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)), 2, (0, 1))
PLAY = SelfPlay(save_steps=100, team_change=10**9, swap_steps=0, window=10, play_against_latest_model_ratio=0.5)
MAIN, HUNTER, SEEKER = 0, 1, 2
ROLES = ("main", "main_exploiter", "league_exploiter")


def league(*roles: Any, seed: int = 0) -> League:
    learners = [Contender(k, "", PLAY, role=role) for k, role in enumerate(roles)]
    return League(DUEL, learners, seed, settings=LeagueSettings(opponents="pfsp_hard"))


def at(made: League, *steps: int) -> list[tuple[int, int]]:
    """Learner and step of the snapshots that are taken when the learners have made so many steps."""
    saved = made.advance(dict(enumerate(steps)), {"": 1}, nothing)
    return [(made.snapshots[k].parent, made.snapshots[k].step) for k in saved]


def nothing(contender: Contender, snapshot: int) -> None:
    """A snapshot that nobody keeps."""


def play(made: League, learner: int, opponent: int, points: float, matches: int = 99) -> list[FinishedMatch]:
    seats = Seat(learner, True), Seat(opponent, False)
    told = [FinishedMatch(0, (points, 1.0 - points), seats)] * matches
    made.rate(told)
    return told


def test_a_main_exploiter_is_frozen_when_it_has_beaten_all_main_learners_or_has_tried_for_long() -> None:
    made = league("main", "main", "main_exploiter")
    assert at(made, 0, 0, 0) == [(0, 0), (1, 0), (2, 0)]
    play(made, 2, 0, 1.0)
    assert at(made, 0, 0, 150) == []  # the other main learner still holds out
    assert at(made, 101, 0, 200) == [(0, 101)] and made.resets == []
    assert at(made, 101, 0, 201) == [(2, 201)] and made.resets == [2]
    play(made, 2, 0, 1.0)
    play(made, 2, 1, 1.0)
    assert at(made, 101, 0, 301) == [] and made.resets == []
    assert at(made, 101, 0, 302) == [(2, 302)] and made.resets == [2]
    assert at(made, 101, 0, 303) == [] and made.resets == []


def test_a_league_exploiter_has_to_beat_the_whole_past_and_begins_anew_a_quarter_of_the_time() -> None:
    made = league("main", "league_exploiter")
    at(made, 0, 0)
    play(made, 1, MAIN, 1.0)
    play(made, 1, FROZEN, 1.0)
    assert at(made, 0, 101) == []  # it has not met its own first self
    play(made, 1, FROZEN + 1, 1.0)
    assert at(made, 0, 102) == [(1, 102)]
    taken = [(steps, made.resets) for steps in range(303, 303 + 400 * 201, 201) if at(made, 0, steps)]
    assert len(taken) == 400  # at the latest after two save_steps
    assert sum(resets == [1] for _, resets in taken) == pytest.approx(100, abs=30)


def test_who_begins_anew_has_neither_rating_nor_form_and_no_line_and_its_past_is_met() -> None:
    made = league(*ROLES)
    at(made, 0, 0, 0)
    book = Book(made)
    book.follow()
    book.rate(play(made, HUNTER, MAIN, 1.0))
    book.rate(play(made, MAIN, FROZEN + 1, 0.0))
    book.assess()
    before = [book.ratings[FROZEN + k].mean for k in (MAIN, HUNTER, SEEKER)]
    assert made.elo[HUNTER] > 1200
    assert at(made, 0, 101, 0) == [(HUNTER, 101)]
    book.follow()
    frozen, main = FROZEN + 3, made.pools[MAIN]
    assert made.elo[HUNTER] == 1200 < made.snapshots[3].elo
    assert made.payoffs.expected(HUNTER, MAIN) == 0.5
    assert made.odds(main.contender, [*made.pools.values()]).others.count(frozen) == 1
    book.assess()
    assert np.mean([book.ratings[FROZEN + k].mean for k in (MAIN, HUNTER, SEEKER)]) == pytest.approx(np.mean(before))
    page = json.loads(book.to_json({0: 0, 1: 101, 2: 0}))
    assert [(row["role"], row["origin"]) for row in page["learners"]] == [
        ("main", FROZEN), ("main_exploiter", None), ("league_exploiter", FROZEN + 2)
    ]  # fmt: skip
    assert [(row["parent"], row["role"], row["origin"]) for row in page["snapshots"]] == [
        (0, "main", None), (1, "main_exploiter", None), (2, "league_exploiter", None),
        (1, "main_exploiter", FROZEN + 1),
    ]  # fmt: skip
    anew, old = page["learners"][HUNTER]["rating"], page["snapshots"][3]["rating"]
    assert old["mean"] > anew["mean"] + 100 and anew["high"] - anew["low"] > old["high"] - old["low"]
    assert (page["learners"][HUNTER]["skill"]["mean"], page["training"][0][:2]) == (25.0, [0, frozen - 2])


def test_an_exploiter_meets_the_main_learner_which_does_not_learn_from_it() -> None:
    learners = [Contender(k, "", PLAY, mirrors=True, role=role) for k, role in enumerate(ROLES)]
    made = League(DUEL, learners, 0)
    at(made, 0, 0, 0)
    casts = [made.cast(slot) for slot in range(300)]
    assert {cast[0].policy for cast in casts} == {MAIN, HUNTER, SEEKER}
    assert {cast[1] for cast in casts if cast[0].policy == HUNTER} == {Seat(MAIN, False)}
    assert Seat(MAIN, True) in {cast[1] for cast in casts if cast[0].policy == MAIN}


def test_policies_of_a_population_are_compared_by_what_they_take_from_the_whole_league() -> None:
    made = league("main", "main")
    at(made, 0, 0)
    assert made.points(0) is None
    play(made, 0, 1, 1.0, 3)  # of an opponent it takes (3 + 1/2) / 4; one imaginary draw with each
    play(made, 0, FROZEN, 0.0, 1)
    assert made.points(0) == pytest.approx((0.875 + 0.25 + 0.5) / 3)
    assert made.points(1) == pytest.approx((0.125 + 0.5 + 0.5) / 3)


def test_who_takes_over_another_has_its_form_and_rating_and_what_it_was_joins_its_past() -> None:
    made = league("main", "main", "main")
    at(made, 0, 0, 0)
    play(made, 0, FROZEN + 2, 1.0)
    play(made, 0, 1, 1.0)
    assert at(made, 101, 40, 0) == [(0, 101)]
    field, third = [*made.pools.values()], made.pools[2].contender
    assert FROZEN + 4 not in made.odds(third, field).others
    told: list[int] = []
    assert made.take_over(1, 0, lambda contender, snapshot: told.append(contender.policy)) == [4]
    assert told == [1] and made.pools[1].past == [1, 4] and made.snapshots[4].origin == FROZEN + 1
    assert FROZEN + 4 in made.odds(third, field).others  # and is met at once
    assert made.elo[1] == made.elo[0] > 1200 > made.snapshots[4].elo
    assert made.payoffs.expected(1, FROZEN + 2) == made.payoffs.expected(0, FROZEN + 2) > 0.9
    assert made.payoffs.expected(1, 0) == 0.5
    assert made.pools[1].origin == FROZEN + 3  # the donor's newest
    assert at(made, 101, 140, 0) == [] and at(made, 101, 141, 0) == [(1, 141)]
    assert made.take_over(1, 0, nothing) == []  # what it was is there already


def test_who_took_over_another_has_no_points_that_what_it_was_has_scored_against_the_other() -> None:
    made = league("main", "main")
    at(made, 0, 0)
    book = Book(made)
    book.follow()
    book.rate(play(made, 1, FROZEN, 0.0, 3))
    assert at(made, 0, 40) == [] and made.take_over(1, 0, nothing) == [2]
    book.follow()
    assert book.training == {(FROZEN, FROZEN + 2): (3.0, 3)}
    book.rate(play(made, 1, FROZEN + 2, 0.5, 1))
    book.assess()
    assert book.values(1)["Self-play/Win Rate/Latest"] == 0.5  # not 3.5 of 4: it was another who lost to its weights


def test_a_restored_league_with_roles_goes_on_as_if_it_had_never_stopped() -> None:
    one, two = league(*ROLES), league(*ROLES)
    at(one, 0, 0, 0)
    play(one, HUNTER, MAIN, 1.0)
    at(one, 50, 120, 210)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for made in (one, two):
        for step in range(1, 40):
            play(made, HUNTER, MAIN, 1.0, 3)
            made.cast(step)
            at(made, 50 + 90 * step, 120 + 90 * step, 210 + 90 * step)
    assert one.state_dict() == two.state_dict()
    parents = [snapshot.parent for snapshot in one.snapshots.values()]
    assert min(map(parents.count, (MAIN, HUNTER, SEEKER))) > 5 and RESET.keys() == {*ROLES[1:]}
