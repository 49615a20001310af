"""Which team learns, what the others play meanwhile, and the steps at which that changes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.league.league import League
from palus.league.pools import Contender, next_start, swaps
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

STOCK = {
    "save_steps": 50000,
    "team_change": 200000,
    "swap_steps": 2000,
    "window": 10,
    "play_against_latest_model_ratio": 0.5,
}
ROLLOUT = 20480
KINDS = tuple(BehaviorSpec.of_vectors(name, (3,), (2,)) for name in ("Striker", "Goalie"))
TWO_ON_ONE = GameSpec(
    "two on one",
    KINDS,
    (AgentSpec("s", 0, 0, "Striker"), AgentSpec("s2", 0, 0, "Striker"), AgentSpec("g", 1, 1, "Goalie")),
)
GHOSTS = {"save_steps": 100, "team_change": 50, "swap_steps": 10, "window": 3, "play_against_latest_model_ratio": 0.0}


def alike(*teams: int) -> GameSpec:
    return GameSpec.alike("duel", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)), len(teams), teams)


DUEL = alike(0, 1)


def league(game: GameSpec = DUEL, learners: int = 1, **more: Any) -> League:
    """more: settings of `self_play`, and those of the league by the names that only it has."""
    options = {key: more.pop(key) for key in LeagueSettings.model_fields if key in more}
    settings, kinds = SelfPlay(**{**GHOSTS, **more}), [b.name for b in game.behaviors for _ in range(learners)]
    contenders = [Contender(k, kind, settings, max_steps=10**9) for k, kind in enumerate(kinds)]
    return League(game, contenders, 0, settings=LeagueSettings(**options))


class Drive:
    """Feeds a league rollouts; writes down the steps at which it acted. saved: id -> learner, step."""

    def __init__(self, made: League) -> None:
        self.league, self.steps, self.saved = made, dict.fromkeys(made.pools, 0), dict[int, tuple[int, int]]()
        self.advance({}, {})

    def advance(self, steps: dict[int, int], ghost_steps: dict[str, int]) -> list[int]:
        for policy, count in steps.items():
            self.steps[policy] += count
        return self.league.advance(
            self.steps, ghost_steps, lambda c, k: self.saved.update({k: (c.policy, self.steps[c.policy])})
        )


def test_counters_compare_strictly_and_keep_the_step_at_which_they_were_due() -> None:
    assert [next_start(0, now, 100, literal=True) for now in (0, 100, 101, 128)] == [None, None, 101, 101]
    assert [next_start(101, now, 100, literal=True) for now in (201, 202)] == [None, 202]
    assert next_start(0, 128, 100, literal=False) == 128


def test_opponents_change_at_literal_ghost_steps_and_with_every_team_change() -> None:
    assert swaps(0, 2000, 2000, []) == (0, 0)
    assert swaps(0, 20480, 2000, []) == (10, 20010)
    assert swaps(0, 200001, 2000, [200001]) == (100, 200001)  # 99 times after 2001 steps, and with the change
    assert swaps(0, 2500, 2000, [2001]) == (1, 2001)  # both at once are one change
    assert swaps(0, 900, 2000, [500, 500]) == (2, 500)


def test_stock_settings_save_99_snapshots_in_5000000_steps_beside_the_first() -> None:
    drive = Drive(league(**STOCK, counting="reference"))
    at, turns, swapped, team = [], [], 0, 0
    while (step := drive.steps[0]) < 5_000_000:
        count = min(ROLLOUT, 5_000_000 - step)
        last = drive.league.pools[0].last_swap
        new = [k for k in drive.advance({0: count}, {"": count}) if not drive.league.snapshots[k].present]
        at += [drive.steps[0]] * len(new)
        if drive.league.turns.learning_side != team:
            team = drive.league.turns.learning_side
            turns.append(drive.steps[0])
        swapped += drive.league.pools[0].last_swap != last
    assert len(at) == 99
    assert at[:4] == [61440, 102400, 163840, 204800]  # due at 50001, 100002, 150003, 200004
    assert drive.league.pools[0].last_save == 99 * 50001
    assert turns[:3] == [204800, 409600, 614400] and len(turns) == 24  # due at 200001, 400002, 600003
    assert drive.league.pools[0].last_swap == 24 * 200001 + 99 * 2001
    assert swapped == 245  # in every rollout


def test_several_snapshots_of_one_rollout_hold_the_weights_that_played_it() -> None:
    drive = Drive(league(save_steps=100, team_change=10**6, counting="reference"))
    assert [drive.advance({0: 250}, {}) for _ in range(3)] == [
        [1, 2],
        [3, 4],
        [5, 6, 7],
    ]  # 101 202, 303 404, 505 606 707
    assert drive.league.pools[0].window == [5, 6, 7]


def test_until_the_first_swap_all_others_play_the_first_snapshot_and_then_one_for_all_matches() -> None:
    drive = Drive(league(play_against_latest_model_ratio=1.0, team_change=10**6, counting="reference"))
    seen = [{drive.league.cast(slot)[1] for slot in range(20)}]
    for _ in range(3):
        drive.advance({0: 6}, {"": 6})
        seen.append({drive.league.cast(slot)[1] for slot in range(20)})
    # 12 ghost steps are more than 10: what plays from then on is the policy of that step, not the one that learns on.
    assert seen == [{Seat(FROZEN, False)}, {Seat(FROZEN, False)}, {Seat(FROZEN + 1, False)}, {Seat(FROZEN + 1, False)}]
    assert drive.saved == {0: (0, 0), 1: (0, 12)} and drive.league.pools[0].window == [0]
    assert drive.league.needed(set()) == {0, 1}
    drive.league.rate([FinishedMatch(0, (1.0, 0.0), (Seat(0, True), Seat(FROZEN + 1, False)))])
    assert drive.league.elo == {0: 1200.0}  # against what stands for the policy itself


def test_a_behavior_stands_still_while_another_learns_and_swaps_in_its_own_past_by_its_own_ghost_steps() -> None:
    drive = Drive(league(TWO_ON_ONE, team_change=100, save_steps=60, swap_steps=30, counting="reference"))
    made, pools = drive.league, drive.league.pools
    assert made.cast(0) == (Seat(0, True), Seat(0, True), Seat(FROZEN + 1, False))
    drive.advance({0: 80}, {"Goalie": 40})  # snapshot 2 of the strikers at 61; goalies swap at 31
    assert (pools[0].window, pools[1].window, pools[1].last_swap) == ([0, 2], [1], 31)
    drive.advance({0: 80}, {"Goalie": 40})  # strikers: 122, and the change at 101, when goalies had 50
    assert (pools[0].window, pools[0].last_save) == ([0, 2, 3], 122)
    assert (made.turns.learning_side, pools[1].last_swap) == (1, 50)
    seats = made.cast(0)
    assert seats[2] == Seat(1, True) and seats[0].policy - FROZEN in {0, 2, 3} and not seats[0].learns
    drive.advance({1: 101}, {"Striker": 90})  # the goalie's own counter: 101 of 100
    assert (made.turns.learning_side, drive.steps) == (0, {0: 160, 1: 101})


@pytest.mark.parametrize("counting", ["matches", "reference"])
def test_a_team_that_has_done_its_steps_waits_only_where_the_reference_does(counting: str) -> None:
    settings = SelfPlay(**GHOSTS)
    contenders = [Contender(0, "Striker", settings, max_steps=60), Contender(1, "Goalie", settings, max_steps=500)]
    drive = Drive(League(TWO_ON_ONE, contenders, 0, settings=LeagueSettings(counting=counting)))
    learning = []
    for _ in range(4):
        drive.advance({drive.league.turns.learning_side: 60}, {})
        learning.append(drive.league.turns.learning_side)
    assert learning == ([1, 1, 1, 1] if counting == "matches" else [1, 0, 1, 0])


def test_all_teams_learn_at_once_each_match_has_its_own_turn() -> None:
    made = Drive(league(TWO_ON_ONE, learn="all_teams", play_against_latest_model_ratio=0.5)).league
    casts = [made.cast(slot) for slot in range(400)]
    learning = Counter((seats[0].learns, seats[2].learns) for seats in casts)
    assert learning[True, True] == pytest.approx(200, abs=40)  # against each other as they are now
    assert learning[True, False] == pytest.approx(100, abs=30) == learning[False, True]
    assert (False, False) not in learning
    frozen = [seats for seats in casts if not seats[0].learns]
    assert all(seats[0] == seats[1] and seats[0].policy == FROZEN for seats in frozen)
    past = Drive(league(TWO_ON_ONE, learn="all_teams")).league
    assert [past.cast(slot)[0].learns for slot in (0, 0, 0, 1, 1)] == [True, False, True, False, True]
    assert [made.rows_per_match(pool.contender) for pool in made.pools.values()] == [2, 1]


def test_who_is_done_plays_on_and_leaves_every_turn_to_those_who_are_not() -> None:
    settings = SelfPlay(**GHOSTS | {"play_against_latest_model_ratio": 0.5})
    contenders = [Contender(0, "Striker", settings, max_steps=50), Contender(1, "Goalie", settings, max_steps=100)]
    drive = Drive(League(TWO_ON_ONE, contenders, 0, settings=LeagueSettings(learn="all_teams")))
    drive.advance({0: 60, 1: 40}, {})
    seats = [drive.league.cast(slot) for slot in range(200)]
    assert {(s[0].learns, s[2]) for s in seats} == {(False, Seat(1, True))}
    met = Counter(s[0].policy for s in seats)
    assert met.keys() == {0, FROZEN} and met[0] == pytest.approx(100, abs=30)
    drive.advance({1: 60}, {})
    assert any(drive.league.cast(slot)[0].learns for slot in range(20))  # all are done: nothing is left to save


def test_three_teams_meet_opponents_of_their_own() -> None:
    drive = Drive(league(alike(0, 1, 2), save_steps=1, team_change=10**6, window=30))
    drive.advance({0: 2}, {})
    drive.advance({0: 2}, {})
    seats = [drive.league.cast(slot) for slot in range(300)]
    assert all(s[0] == Seat(0, True) for s in seats)
    met = Counter((a.policy - FROZEN, b.policy - FROZEN) for _, a, b in seats)
    assert len(met) == 9 and all(count == pytest.approx(33, abs=25) for count in met.values())


def test_learners_of_one_behavior_share_the_matches_and_meet_each_others_past() -> None:
    drive = Drive(league(alike(0, 0, 1, 1), learners=2, play_against_latest_model_ratio=0.5))
    made = drive.league
    assert {k: (s.parent, s.behavior) for k, s in made.snapshots.items()} == {0: (0, ""), 1: (1, "")}
    casts = [made.cast(slot) for slot in range(800)]
    assert all(s[0] == s[1] and s[2] == s[3] and s[0].learns and not s[2].learns for s in casts)
    met = Counter((s[0].policy, s[2].policy) for s in casts)
    assert met.keys() == {(p, other) for p in (0, 1) for other in (0, 1, FROZEN, FROZEN + 1)}
    assert all(met[p, q] == pytest.approx(100, abs=50) for p in (0, 1) for q in (0, 1))
    assert drive.advance({0: 101, 1: 50}, {}) == [2] and made.snapshots[2].parent == 0
    made.rate([FinishedMatch(0, (1.0, 0.0), (*[Seat(0, True)] * 2, *[Seat(FROZEN + 1, False)] * 2))])
    assert made.elo[0] > 1200 == made.elo[1] > made.snapshots[1].elo


def test_policies_in_training_of_two_behaviors_rate_each_other() -> None:
    made = Drive(league(TWO_ON_ONE, play_against_latest_model_ratio=1.0)).league
    seats = made.cast(0)
    assert seats == (Seat(0, True), Seat(0, True), Seat(1, False))
    made.rate([FinishedMatch(0, (1.0, 0.0), seats)])
    assert made.elo[0] - 1200 == pytest.approx(1200 - made.elo[1]) and made.elo[0] > 1200.9
    assert made.payoffs.cells[0, 1] == (1.0, 1)


@pytest.mark.parametrize("options", [{"counting": "reference"}, {"learn": "all_teams"}])
def test_a_restored_league_goes_on_as_if_it_had_never_stopped(options: dict[str, str]) -> None:
    def go_on(drive: Drive) -> list[Any]:
        told = []
        for _ in range(6):
            casts = [drive.league.cast(slot) for slot in range(10)]
            learners = {seat.policy for seats in casts for seat in seats if seat.learns}
            new = drive.advance(dict.fromkeys(learners, 70), {"Striker": 33, "Goalie": 15})
            told += [casts, new, drive.league.turns.learning_side]
        return told

    settings = {"team_change": 120, "play_against_latest_model_ratio": 0.5, **options}
    one, two = Drive(league(TWO_ON_ONE, **settings)), Drive(league(TWO_ON_ONE, **settings))
    go_on(one)
    two.league.load_state_dict(json.loads(json.dumps(one.league.state_dict())))
    two.steps = dict(one.steps)
    assert go_on(one) == go_on(two)


def test_a_league_that_counts_otherwise_from_now_on_meets_its_newest_snapshots_until_the_next_swap() -> None:
    settings = {"save_steps": 60, "team_change": 10**6}
    one, two = (Drive(league(TWO_ON_ONE, **settings, counting=c)) for c in ("matches", "reference"))
    one.advance({0: 70}, {"Goalie": 35})
    two.league.load_state_dict(json.loads(json.dumps(one.league.state_dict())))
    assert [pool.window for pool in two.league.pools.values()] == [[0, 2], [1]]
    assert two.league.cast(0) == (Seat(0, True), Seat(0, True), Seat(FROZEN + 1, False))
    assert [set(pool.ghosts.values()) for pool in two.league.pools.values()] == [{2}, {1}]
    two.steps = dict(one.steps)
    assert two.advance({0: 61}, {"Goalie": 35}) == [3]  # at 131


@pytest.mark.parametrize("learn", ["one_team", "all_teams"])
def test_who_has_no_steps_to_do_never_learns(learn: Any) -> None:
    settings = SelfPlay(**GHOSTS)
    made = League(
        TWO_ON_ONE,
        [Contender(0, "Striker", settings, max_steps=0), Contender(1, "Goalie", settings, max_steps=10**9)],
        0,
        settings=LeagueSettings(learn=learn),
    )
    assert made.turns.learning_side == 1
    drive = Drive(made)
    assert made.cast(0)[2].learns and not made.cast(1)[0].learns  # from the first match on
    for _ in range(5):
        drive.advance({1: 60}, {"Striker": 120})
        assert {seat.policy for slot in range(20) for seat in made.cast(slot) if seat.learns} == {1}
