"""What a league writes down: one result per match, who came from whom, and that a restart changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_league import at, filled, game, league, match, pool

from palus.league.book import BASELINE, Book
from palus.league.league import League
from palus.league.members import Member
from palus.league.pools import Contender
from palus.rollout.rollout import FROZEN, MEMBERS, FinishedMatch, Seat

LEARNER = Seat(0, True)


def old(number: int) -> Seat:
    return Seat(FROZEN + number, False)


def opened(snapshots: int = 2, **settings: Any) -> Book:
    book = Book(filled(snapshots, **settings))
    book.follow()
    return book


def told(book: Book) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(book.to_json({0: 500}))
    return found


def test_a_match_is_one_result_by_the_verdict_alone() -> None:
    book = opened()
    # Won, drawn by time, lost; then one without a verdict, and one against oneself.
    book.rate([match(0, points) for points in (1.0, 0.5, 0.0)] + [match(1, 1.0)])
    book.rate([FinishedMatch(0, (), match(0, 1.0).seats), match(-1, 1.0)])
    assert book.training == {(0, FROZEN): (1.5, 3), (0, FROZEN + 1): (1.0, 1)}


def test_of_three_teams_each_two_have_a_result_and_a_policy_of_two_teams_is_one_player() -> None:
    made = league((0, 1, 2), save_steps=1)
    for step in (0, 2):
        at(made, step)
    book = Book(made)
    book.follow()
    book.rate([FinishedMatch(0, (0.0, 1.0, 0.5), (LEARNER, old(0), old(1)))])
    assert book.training == {(0, FROZEN): (0.0, 1), (0, FROZEN + 1): (0.0, 1), (FROZEN, FROZEN + 1): (1.0, 1)}
    book.rate([FinishedMatch(0, (0.4, 0.6, 0.0), (LEARNER, old(0), old(0)))])  # 0.4 beats the mean, 0.3
    assert book.training[0, FROZEN] == (1.0, 2)


def test_a_new_snapshot_takes_over_what_its_learner_played_and_believes() -> None:
    book = opened(1)
    book.rate([match(0, 1.0)] * 4)
    (believed,) = (row for row in book.state_dict()["skills"] if row[0] == 0)
    assert believed[1] > 25.0
    at(book.league, 10)
    book.follow()
    assert book.training == {(FROZEN, FROZEN + 1): (0.0, 4)}
    assert (FROZEN + 1, *believed[1:]) in book.state_dict()["skills"]
    book.assess()
    snapshots = told(book)["snapshots"]
    assert [(s["id"], s["parent"], s["step"], s["kept"]) for s in snapshots] == [
        (FROZEN, 0, 0, True), (FROZEN + 1, 0, 10, True)
    ]  # fmt: skip
    assert snapshots[0]["rating"]["mean"] == 1200.0 < snapshots[1]["rating"]["mean"]
    values = book.values(0)
    assert values["Self-play/Rating"] == snapshots[1]["rating"]["mean"] > values["Self-play/Rating Low"]
    assert values["Self-play/Win Rate/Window"] == 1.0 and "Self-play/Win Rate/Latest" not in values


def test_of_two_snapshots_at_once_both_believe_what_their_learner_does_and_it_goes_on_believing_it() -> None:
    book = opened(1)
    book.rate([match(0, 1.0)] * 4)
    (believed,) = (told for policy, *told in book.state_dict()["skills"] if policy == 0)
    for step in (10, 20):
        at(book.league, step)
    book.follow()
    skills = {policy: told for policy, *told in book.state_dict()["skills"]}
    assert [skills[policy] for policy in (0, FROZEN + 1, FROZEN + 2)] == [believed] * 3


def test_win_rates_are_of_late_and_against_the_snapshots_that_may_be_met() -> None:
    book = opened(5)  # a window of 3: snapshots 2, 3 and 4
    book.rate([match(1, 0.0), match(2, 1.0), match(4, 0.0), match(4, 0.5)])
    book.assess()
    values = book.values(0)
    assert values["Self-play/Win Rate/Latest"] == 0.25
    assert values["Self-play/Win Rate/Window"] == pytest.approx(1.5 / 3)


def test_evaluation_stands_apart_from_training() -> None:
    book = opened()
    book.evaluated(0, "goalkeeper", 7.5, 10)
    book.evaluated(0, "goalkeeper", 2.5, 10)
    book.rate([match(1, 1.0), FinishedMatch(0, (1.0, 0.0), (old(1), old(0)))])
    book.assess()
    page = told(book)
    assert [row for row in page["evaluation"] if row[0] == 0] == [[0, BASELINE, 10.0, 20]]
    assert [FROZEN + 1, FROZEN, 1.0, 1] in page["evaluation"]
    assert [row for row in page["training"] if row[0] == 0] == [[0, FROZEN + 1, 1.0, 1]]
    assert page["members"] == [{"id": BASELINE, "name": "goalkeeper", "behavior": ""}]


def test_opponents_of_evaluation_have_ids_of_their_own_and_a_new_snapshot_takes_over_what_was_scored() -> None:
    book = opened(1)
    for name, points in (("goalkeeper", 7.5), ("striker", 2.0), ("goalkeeper", 2.5)):
        book.evaluated(0, name, points, 10)
    at(book.league, 10)
    book.follow()
    assert book.evaluation == {(FROZEN + 1, BASELINE): (10.0, 20), (FROZEN + 1, BASELINE + 1): (2.0, 10)}


def test_a_policy_of_two_teams_that_differ_says_nothing_of_either() -> None:
    made = league((0, 0, 1, 1), save_steps=1)
    for step in (0, 2):
        at(made, step)
    book = Book(made)
    book.follow()
    book.rate([FinishedMatch(0, (1.0, 0.0), (LEARNER, old(0), LEARNER, old(1)))])
    assert not book.training and {(mu, sigma) for _, mu, sigma in book.state_dict()["skills"]} == {(25.0, 25.0 / 3)}
    book.rate([FinishedMatch(0, (1.0, 0.0), (LEARNER, LEARNER, old(0), old(1)))])
    believed = {policy: mu for policy, mu, _ in book.state_dict()["skills"]}
    assert not book.training and believed[0] > 25.0 > max(believed[FROZEN], believed[FROZEN + 1])


def test_snapshots_have_the_elo_that_the_league_knows_and_one_of_the_present_is_none() -> None:
    book = opened()
    book.league.snapshots[0].elo = 1250.0
    book.league.snapshots[2] = replace(book.league.snapshots[1], present=True)
    book.follow()
    assert [(s["id"], s["elo"]) for s in told(book)["snapshots"]] == [(FROZEN, 1250.0), (FROZEN + 1, 1200.0)]


def test_the_mix_is_who_was_met_since_the_last_summary() -> None:
    book = opened()
    book.rate([match(1, 1.0), match(1, 0.0), match(-1, 1.0), match(0, 1.0)])
    book.assess()
    assert told(book)["mix"] == {"": {str(FROZEN): 0.25, str(FROZEN + 1): 0.5, "latest": 0.25}}
    book.rate([match(0, 1.0)])
    book.assess()
    assert told(book)["mix"] == {"": {str(FROZEN): 1.0}}
    book.assess()  # after an interval in which no match ended
    assert told(book)["mix"] == {"": {str(FROZEN): 1.0}}


def test_landmarks_stay_beside_the_window_and_the_rest_may_go() -> None:
    made = league(save_steps=1)
    made.settings = made.settings.model_copy(update={"landmarks": 2})
    for number in range(12):
        at(made, 2 * number)
        made.forgotten(set())
    book = Book(made)
    book.follow()
    assert (pool(made).landmarks, pool(made).window) == ([0, 8], [9, 10, 11])
    assert made.needed({FROZEN + 11}) == {0, 8, 9, 10, 11}
    assert [s["id"] - FROZEN for s in told(book)["snapshots"] if s["landmark"]] == [0, 8]


def test_of_snapshots_that_are_gone_so_many_stay_in_the_book_and_none_in_the_payoffs() -> None:
    made = league(save_steps=1)
    book = Book(made)
    for number in range(700):
        at(made, 2 * number)
        book.follow()
        told_now = [match(pool(made).window[-1], 1.0)]
        made.rate(told_now)
        book.rate(told_now)
        made.forgotten(set())
    book.assess()
    page = told(book)
    gone = [s["step"] for s in page["snapshots"] if not s["kept"]]
    assert 128 <= len(gone) <= 256 and (gone[0], gone[-1]) == (0, 1392) and {*np.diff(gone)} == {8}
    known = {s["id"] for s in page["snapshots"]} | {0}
    assert {policy for row in page["training"] for policy in row[:2]} <= known and book.ratings.keys() <= known
    for table in (made.payoffs.cells, made.payoffs.form):
        assert {policy for pair in table for policy in pair} == {0, *(FROZEN + k for k in (697, 698, 699))}


def test_what_was_scored_in_evaluation_counts_in_ratings() -> None:
    book = opened(1)
    book.evaluated(0, "goalkeeper", 18.0, 20)
    book.assess()
    assert book.ratings[0].low > book.ratings[BASELINE].high


def test_who_has_no_past_any_more_has_no_values() -> None:
    """Goes on from a checkpoint without the self_play that its run file had."""
    book = opened()
    book.rate([match(1, 1.0)])
    book.assess()
    again = Book(League(game(), [Contender(0, "", None, False)], 0))
    again.load_state_dict(book.state_dict())
    assert 0 in again.ratings and again.values(0) == {}


def test_visitors_who_left_leave_no_results_behind() -> None:
    book, (here, gone) = opened(), (Member(MEMBERS + k, f"other/{k}", "", -1) for k in (7, 8))
    book.league.visit([here, gone])
    book.rate([FinishedMatch(0, (1.0, 0.0), (LEARNER, Seat(one.policy, False))) for one in (here, gone)])
    book.assess()
    assert {here.policy, gone.policy} <= book.ratings.keys()
    book.league.visit([here])
    book.league._leaving = []  # whose last match is over
    book.assess()
    assert book.training == {(0, here.policy): (1.0, 1)} and gone.policy not in book.ratings


def test_a_book_that_was_put_away_goes_on_as_if_it_had_not_been() -> None:
    book = opened(3)
    book.rate([match(1, 1.0), match(2, 0.5), match(-1, 1.0)])
    book.evaluated(0, "goalkeeper", 7.5, 10)
    book.assess()
    book.rate([match(0, 1.0)])
    again = Book(book.league)
    again.load_state_dict(json.loads(json.dumps(book.state_dict())))
    for each in (book, again):
        each.rate([match(2, 0.0)])
        each.assess()
    assert told(again) == told(book) and again.state_dict() == book.state_dict()
