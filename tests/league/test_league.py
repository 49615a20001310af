"""Who sits where, the past that learners meet, ratings and payoffs, counted as ML-Agents counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.errors import ConfigError
from palus.league.league import League
from palus.league.members import Member
from palus.league.pools import Contender
from palus.rollout.rollout import FROZEN, MEMBERS, FinishedMatch, Seat
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

BASE = {"save_steps": 100, "team_change": 50, "swap_steps": 10, "window": 3}
SLOTS = 400
LATEST = -1


def game(teams: tuple[int, ...] = (0, 1)) -> GameSpec:
    return GameSpec.alike("duel", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)), len(teams), teams)


def league(teams: tuple[int, ...] = (0, 1), *, seed: int = 0, mirrors: bool = False, **settings: Any) -> League:
    return League(game(teams), [Contender(0, "", SelfPlay(**{**BASE, **settings}), mirrors)], seed)


def nothing(contender: Contender, snapshot: int) -> None:
    """A snapshot that nobody keeps."""


def at(made: League, step: int, ghost_steps: int = 0) -> list[int]:
    return made.advance({0: step}, {"": ghost_steps}, nothing)


def filled(snapshots: int = 4, **settings: Any) -> League:
    made = league(save_steps=1, **settings)
    assert [at(made, 2 * k) for k in range(snapshots)] == [[k] for k in range(snapshots)]
    return made


def pool(made: League) -> Any:
    return made.pools[0]


def ratings(made: League) -> dict[int, float]:
    return {k: snapshot.elo for k, snapshot in made.snapshots.items()}


def match(opponent: int, points: float, teams: int = 2) -> FinishedMatch:
    """The learner on side 0 against a snapshot, or against itself, on the others."""
    other = Seat(0 if opponent == LATEST else FROZEN + opponent, False)
    return FinishedMatch(0, (points, *[1 - points] * (teams - 1)), (Seat(0, True), *[other] * (teams - 1)))


def opponents(made: League, slots: int = SLOTS) -> list[int]:
    """Who sits opposite the learner in each slot."""
    found = []
    for slot in range(slots):
        (other,) = (seat.policy for seat in made.cast(slot) if not seat.learns)
        found.append(other - FROZEN if other else LATEST)
    return found


def test_a_snapshot_is_due_when_more_than_save_steps_have_passed() -> None:
    made = league()
    due = [(step, at(made, step) != []) for step in (0, 100, 101, 201, 202, 500)]
    assert due == [(0, True), (100, False), (101, True), (201, False), (202, True), (500, True)]


def test_a_run_that_begins_at_a_later_step_takes_its_second_snapshot_save_steps_after_that() -> None:
    made = league()
    assert [at(made, step) for step in (500, 600, 601)] == [[0], [], [1]]


def test_what_cannot_be_saved_is_not_in_the_league() -> None:
    def full(contender: Contender, snapshot: int) -> None:
        raise OSError("disk full")

    made = league()
    with pytest.raises(OSError, match="disk full"):
        made.advance({0: 0}, {}, full)
    assert (made.snapshot_count, pool(made).window) == (0, [])
    assert at(made, 0) == [0]


def test_the_window_holds_the_newest_snapshots_only() -> None:
    made = filled(6, play_against_latest_model_ratio=0)
    assert pool(made).window == [3, 4, 5]
    assert set(opponents(made)) == {3, 4, 5}


def test_the_teams_take_turns_when_more_than_team_change_steps_have_passed() -> None:
    made = league((0, 1, 2, 0))
    learning = []
    for step in (50, 51, 101, 102, 153, 204):
        at(made, step)
        learning.append([agent for agent, seat in enumerate(made.cast(0)) if seat.learns])
    assert learning == [[0, 3], [1], [1], [2], [0, 3], [1]]


def test_an_opponent_stays_with_its_slot_until_more_than_swap_steps_have_passed() -> None:
    made = filled(play_against_latest_model_ratio=0.5)
    first = opponents(made)
    assert opponents(made) == first  # the next match of every slot
    at(made, 7, 10)
    assert opponents(made) == first
    at(made, 7, 1)
    changed = np.array(opponents(made)) != first
    assert 0.4 < changed.mean() < 0.9  # 1 - (1/4 + 3/36) = 2/3 face somebody else
    assert set(opponents(made)) <= {LATEST, *pool(made).window}


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_the_latest_policy_plays_its_share_and_snapshots_share_the_rest_evenly(ratio: float) -> None:
    made = filled(play_against_latest_model_ratio=ratio)
    drawn = np.array(opponents(made, 6000))
    assert (drawn == LATEST).mean() == pytest.approx(ratio, abs=0.02 if 0 < ratio < 1 else 0)
    for snapshot in pool(made).window:
        assert (drawn == snapshot).mean() == pytest.approx((1 - ratio) / 3, abs=0.025 if ratio < 1 else 0)


def test_without_snapshots_the_opponent_is_the_latest_policy() -> None:
    assert set(opponents(league(play_against_latest_model_ratio=0))) == {LATEST}


def test_a_match_against_oneself_teaches_one_side_or_both() -> None:
    one, both = (league((0, 0, 1, 1), mirrors=mirrors, play_against_latest_model_ratio=1) for mirrors in (False, True))
    assert [seat.learns for seat in one.cast(0)] == [True, True, False, False]
    assert set(both.cast(0)) == {Seat(0, True)}
    contender = Contender(0, "", SelfPlay())
    assert one.rows_per_match(contender) == 2
    assert both.rows_per_match(Contender(0, "", SelfPlay(), True)) == 4
    assert one.rows_per_match(Contender(0, "")) == 4


def test_a_population_shares_the_agents_of_a_match() -> None:
    mixed, alike = (
        League(game((0, 1)), [Contender(k, "", mixes=mixes) for k in range(3)], 5) for mixes in (True, False)
    )
    casts = Counter(tuple(seat.policy for seat in mixed.cast(slot)) for slot in range(900))
    assert len(casts) == 9 and all(count == pytest.approx(100, abs=40) for count in casts.values())
    assert all(len(set(alike.cast(slot))) == 1 for slot in range(50))
    assert all(seat.learns for seat in mixed.cast(0))


def test_two_behaviors_have_a_learner_each() -> None:
    kinds = [BehaviorSpec.of_vectors(name, (3,), (2,)) for name in ("Striker", "Goalie")]
    agents = (AgentSpec("s", 0, 0, "Striker"), AgentSpec("s2", 0, 0, "Striker"), AgentSpec("g", 1, 1, "Goalie"))
    made = League(GameSpec("two", tuple(kinds), agents), [Contender(0, "Striker"), Contender(1, "Goalie")], 0)
    assert made.cast(3) == (Seat(0, True), Seat(0, True), Seat(1, True))
    settings = SelfPlay(**{**BASE, "play_against_latest_model_ratio": 0})
    both = [Contender(0, "Striker", settings), Contender(1, "Goalie", settings)]
    against = League(GameSpec("two", tuple(kinds), agents), both, 0)
    assert against.advance({0: 0, 1: 0}, {}, nothing) == [0, 1]
    assert against.cast(0) == (Seat(0, True), Seat(0, True), Seat(FROZEN + 1, False))
    against.advance({0: 60, 1: 0}, {}, nothing)
    assert against.cast(0) == (Seat(FROZEN, False), Seat(FROZEN, False), Seat(1, True))


@pytest.mark.parametrize(
    ("own", "other", "points", "change"),
    [
        (1200.0, 1200.0, 1.0, 0.5),
        (1200.0, 1200.0, 0.0, -0.5),
        (1200.0, 1200.0, 0.5, 0.0),
        (1600.0, 1200.0, 1.0, 1 / 11),  # expected score 10/11
        (1600.0, 1200.0, 0.5, 0.5 - 10 / 11),
        (1200.0, 1600.0, 1.0, 10 / 11),
    ],
)
def test_elo_moves_one_point_at_most_and_what_one_gains_the_other_loses(
    own: float, other: float, points: float, change: float
) -> None:
    made = filled()
    pool(made).elo, made.snapshots[2].elo = own, other
    made.rate([match(2, points)])
    assert made.elo == {0: pytest.approx(own + change)}
    assert made.snapshots[2].elo == pytest.approx(other - change)
    assert [made.snapshots[k].elo for k in (1, 3)] == [1200.0, 1200.0]


def test_a_match_counts_once_for_each_learning_agent() -> None:
    made = league((0, 0, 1, 1))
    at(made, 0)
    old = Seat(FROZEN, False)
    made.rate([FinishedMatch(0, (0.0, 1.0), (old, old, Seat(0, True), Seat(0, True)))])
    assert made.elo[0] == pytest.approx(1200.99856089, abs=1e-8)  # 0.5, then 1 - 0.50143911
    assert made.payoffs.cells == {(0, FROZEN): (1.0, 1), (FROZEN, 0): (0.0, 1)}


@pytest.mark.parametrize("untold", [FinishedMatch(0, (), match(2, 1).seats), match(LATEST, 1.0), match(LATEST, 0.0)])
def test_matches_without_a_verdict_and_matches_against_oneself_are_not_rated(untold: FinishedMatch) -> None:
    made = filled()
    before = ratings(made)
    made.rate([untold])
    assert (made.elo, ratings(made), made.payoffs.cells) == ({0: 1200.0}, before, {})


def test_a_match_of_three_teams_is_one_result_of_each_two_policies_from_their_points() -> None:
    made = league((0, 1, 2))
    assert [at(made, step) for step in (0, 101)] == [[0], [1]]
    seats = (Seat(0, True), Seat(FROZEN, False), Seat(FROZEN + 1, False))
    made.rate([FinishedMatch(0, (0.25, 1.0, 0.25), seats)])  # behind snapshot 0, level with snapshot 1
    assert made.elo == {0: 1200 + (0 - 0.5) / 2 + (0.5 - 0.5) / 2}
    assert ratings(made) == {0: 1200.25, 1: 1200.0}
    rows = [(FROZEN, 1.0), (FROZEN + 1, 0.5)]
    assert [(other, *made.payoffs.cells[0, other]) for other, _ in rows] == [(FROZEN, 0.0, 1), (FROZEN + 1, 0.5, 1)]
    assert made.payoffs.cells[FROZEN, FROZEN + 1] == (1.0, 1)


def test_a_policy_on_two_sides_of_a_match_has_one_result_with_the_mean_of_both() -> None:
    made = league((0, 1, 2))
    at(made, 0)
    made.rate([FinishedMatch(0, (0.5, 1.0, 0.0), (Seat(0, True), *[Seat(FROZEN, False)] * 2))])
    assert made.payoffs.cells == {(0, FROZEN): (0.5, 1), (FROZEN, 0): (0.5, 1)}
    assert made.elo == {0: 1200.0}


def test_a_snapshot_starts_with_the_rating_of_the_policy_it_froze() -> None:
    made = league(initial_elo=1000.0)
    at(made, 0)
    made.rate([match(0, 1.0)])
    at(made, 101)
    assert ratings(made) == {0: 999.5, 1: 1000.5}


def test_what_a_learner_did_before_a_snapshot_counts_half_from_then_on() -> None:
    made = filled(1)
    made.rate([match(0, 1.0)] * 3)
    assert made.payoffs.expected(0, FROZEN) == 3.5 / 4
    at(made, 2)
    assert made.payoffs.expected(0, FROZEN) == 2.0 / 2.5


def visitors(count: int) -> list[Member]:
    """The first snapshots of another run."""
    return [Member(MEMBERS + k, f"other/{k}", "", -1, k, "main") for k in range(count)]


def test_visitors_are_met_at_once_keep_their_rating_and_stay_known_until_their_last_match_is_over() -> None:
    made, (one, two, three) = filled(play_against_latest_model_ratio=0), visitors(3)
    opponents(made, 50)
    made.visit([one])
    assert MEMBERS in {seats[1].policy for seats in map(made.cast, range(50, 90))}
    made.rate([FinishedMatch(0, (1.0, 0.0), (Seat(0, True), Seat(MEMBERS, False)))])
    for here in ([one, two], [two], [three]):
        made.visit(here)
    assert made.members == [three, one, two]  # each of the last two may still play a match
    again = league(save_steps=1, play_against_latest_model_ratio=0)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    for each in (made, again):
        elo = dict(each.state_dict()["member_elo"])
        assert elo == {MEMBERS: 1199.5, MEMBERS + 1: 1200.0, MEMBERS + 2: 1200.0}
    assert again.members == made.members
    made.needed(set())
    assert made.members == [three, one]  # whom some slots keep for their next matches


def test_a_restored_league_draws_rates_and_counts_on_as_if_it_had_never_stopped() -> None:
    made = filled(play_against_latest_model_ratio=0.5)
    opponents(made, 50)
    made.rate([match(2, 1.0)])
    at(made, 55, 6)
    state = json.loads(json.dumps(made.state_dict()))
    other = league(save_steps=1, play_against_latest_model_ratio=0.5)
    other.load_state_dict(state)

    def go_on(made: League) -> list[Any]:
        told = []
        for step in (56, 57, 200, 202):
            saved = at(made, step, 2)
            made.rate([match(pool(made).window[-1], 0.0)])
            casts = [made.cast(slot) for slot in range(60)]
            told.append((casts, made.elo, ratings(made), list(pool(made).window), saved, made.payoffs.cells))
        return told

    assert go_on(other) == go_on(made)


def test_only_what_the_windows_and_running_matches_need_is_kept_and_ids_are_never_given_twice() -> None:
    made = filled(7)
    assert made.forgotten({FROZEN + 1, FROZEN + 6, 0}) == set()
    assert set(made.snapshots) == {1, 4, 5, 6}
    assert made.forgotten(set()) == {1}
    assert at(made, 1000) == [7]
    assert made.forgotten(set()) == {4}
    assert made.needed(set()) == {5, 6, 7}


def test_an_opponent_that_stays_with_its_slot_is_kept() -> None:
    made = filled(4, swap_steps=1000, play_against_latest_model_ratio=0)
    drawn = set(opponents(made, 50))
    for step in (100, 102, 104):
        at(made, step)
    assert made.needed(set()) == drawn | set(pool(made).window) and not drawn & set(pool(made).window)


def test_the_payoff_table_is_on_disk(tmp_path: Path) -> None:
    made = filled()
    made.rate([match(2, 1.0), match(2, 0.5), match(3, 0.0)])
    made.payoffs.write(tmp_path / "payoffs.json")
    table = json.loads((tmp_path / "payoffs.json").read_text())
    assert table["columns"] == ["policy", "opponent", "points", "matches"]
    assert table["rows"] == [
        [0, FROZEN + 2, 1.5, 2], [0, FROZEN + 3, 0.0, 1], [FROZEN + 2, 0, 0.5, 2], [FROZEN + 3, 0, 1.0, 1]
    ]  # fmt: skip


def test_a_game_with_one_side_is_refused() -> None:
    with pytest.raises(ConfigError, match="one side only"):
        league((0, 0))


def of_history(**keys: Any) -> League:
    contender = Contender(0, "", SelfPlay(**{**BASE, "save_steps": 1, "window": 10}))
    made = League(game(), [contender], 0, settings=LeagueSettings(**keys))
    for step in (0, 2, 4, 6):
        at(made, step)
    return made


def test_opponents_are_met_by_the_odds_of_what_was_scored() -> None:
    made = of_history(opponents="pfsp_hard")
    pool(made).settings = SelfPlay(swap_steps=0, play_against_latest_model_ratio=0.0)
    made.rate([match(k, points) for k, points in ((0, 1.0), (1, 1.0), (2, 0.0), (3, 1.0)) for _ in range(3)])
    at(made, 6, 1)
    assert Counter(opponents(made, 4000))[2] == pytest.approx(4000 * 49 / 52, abs=100)  # p: 1/8 of it, 7/8 of others
    assert made.odds(pool(made).contender, [pool(made)]).others == tuple(FROZEN + k for k in range(4))


def test_with_episodes_every_slot_changes_its_opponent_after_so_many_matches() -> None:
    made = of_history(change_unit="episode", change_every=3, opponents="history")
    drawn = np.array([opponents(made) for _ in range(7)])
    for k in range(1, 7):
        assert (drawn[k] != drawn[k - 1]).any() == (k in (3, 6))


def test_evaluation_matches_are_of_past_selves_and_nobody_learns_from_them() -> None:
    made = of_history(evaluation_share=0.25)
    casts = [made.cast(slot) for slot in range(4000)]
    examined = [seats for seats in casts if not any(seat.learns for seat in seats)]
    assert len(examined) == pytest.approx(1000, abs=120)
    pairs = Counter(frozenset(seat.policy - FROZEN for seat in seats) for seats in examined)
    assert {pair for pair in pairs if len(pair) == 2} == {frozenset((a, b)) for a in range(4) for b in range(a)}
    made.rate([FinishedMatch(0, (), seats) for seats in examined])
    at(made, 8)
    new = [{seat.policy for seat in seats} for seats in map(made.cast, range(400)) if not any(s.learns for s in seats)]
    assert np.mean([FROZEN + 4 in policies for policies in new]) > 0.8
    state = json.loads(json.dumps(made.state_dict()))
    other = of_history(evaluation_share=0.25)
    other.load_state_dict(state)
    assert [other.cast(slot) for slot in range(100)] == [made.cast(slot) for slot in range(100)]


def test_who_lacks_evaluation_matches_plays_them_on_either_side_visitors_too() -> None:
    made, new = of_history(evaluation_share=0.25), visitors(1)

    def examined() -> list[tuple[Seat, ...]]:
        return [seats for seats in map(made.cast, range(800)) if not any(seat.learns for seat in seats)]

    made.rate([FinishedMatch(0, (), seats) for seats in examined()])
    made.visit(new)
    casts = examined()
    for side in (0, 1):
        assert np.mean([seats[side].policy == MEMBERS for seats in casts]) > 0.3


def test_one_past_self_alone_plays_no_evaluation_matches() -> None:
    made = League(game(), [Contender(0, "", SelfPlay(**BASE))], 0, settings=LeagueSettings(evaluation_share=0.5))
    at(made, 0)
    assert all(made.cast(slot)[0] == Seat(0, True) for slot in range(40))


def test_who_meets_whom_in_a_slot_depends_on_no_other_slot() -> None:
    together, apart = filled(play_against_latest_model_ratio=0.5), filled(play_against_latest_model_ratio=0.5)
    casts = [together.cast(slot) for _ in range(3) for slot in range(8)]
    assert len({seat.policy for seats in casts for seat in seats}) > 2
    assert [apart.cast(slot) for _ in range(3) for slot in range(4, 8)] == [c for k, c in enumerate(casts) if k % 8 > 3]
