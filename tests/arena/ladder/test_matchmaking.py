"""Who is paired with whom: information first, within the rules of fairness."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from palus.arena.ladder.field_picture import Ledger, take_picture
from palus.arena.ladder.matchmaking import NEIGHBOURS, Meetings, Picture, choose, entry_pairings, ladder_pairings
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.models.entity import Entity

GREEDY = ArenaSettings(uniform_share=0.0)


def picture(strength: list[float], sd: float | list[float] = 100.0, **changes: object) -> Picture:
    n = len(strength)
    sds = np.broadcast_to(np.array(sd, float), n)
    made = Picture(
        strength=np.array(strength, float),
        variance=sds**2,
        covariance=np.diag(sds**2),
        idle=np.arange(n, dtype=float),
        owner=np.arange(n),
        meetings=Meetings(n, np.empty(0, np.int64), np.empty(0, np.int64)),
        queued=np.zeros(n, np.int64),
        entry_left=np.zeros(n, np.int64),
        over=np.zeros(n, np.bool_),
    )
    return replace(made, **changes)


def ladder(seen: Picture, count: int, settings: ArenaSettings = GREEDY, seed: int = 0) -> list[set[int]]:
    return [set(pair) for pair in ladder_pairings(seen, count, settings, np.random.default_rng(seed))]


def test_unsure_players_of_like_strength_teach_most_and_nobody_plays_twice_in_a_batch() -> None:
    seen = picture([0, 10, 1000, 1010], sd=[200, 200, 100, 100])
    assert ladder(seen, 2) == [{0, 1}, {2, 3}]


def test_more_hands_than_players_let_them_play_several_units_at_once() -> None:
    assert len(ladder(picture([0, 0, 0]), 3)) == 3
    assert len({frozenset(pair) for pair in ladder(picture([0, 0, 0]), 3)}) == 3


def test_models_of_one_owner_never_meet() -> None:
    seen = picture([0, 0, 300], owner=np.array([0, 0, 1]))
    for seed in range(20):
        assert all({0, 1} != pair for pair in ladder(seen, 3, ArenaSettings(uniform_share=0.5), seed))


def test_players_that_are_known_well_enough_are_left_alone_until_a_newcomer_arrives() -> None:
    known = picture([0, 50, 100], sd=10.0)
    assert ladder(known, 5) == []
    newcomer = picture([0, 50, 100, 50], sd=[10, 10, 10, 300])
    assert all(3 in pair for pair in ladder(newcomer, 3))


def test_a_pairing_at_the_seasons_limit_waits_until_every_open_pairing_had_a_meeting() -> None:
    seen = picture([0, 0, 2000], meetings=Meetings(3, np.array([1]), np.array([20])))
    assert ladder(seen, 1) != [{0, 1}]
    met = Meetings(3, np.array([1, 2, 5]), np.array([21, 1, 1]))
    assert ladder(replace(seen, meetings=met), 1) == [{0, 1}]


def test_among_equals_the_one_idle_longest_goes_first() -> None:
    assert 4 in ladder(picture([0] * 5), 1)[0]


def test_a_tenth_of_the_pairs_is_drawn_uniformly() -> None:
    seen = picture([0, 0, 3000, 6000])
    distant = sum(ladder(seen, 1, ArenaSettings(), seed) != [{0, 1}] for seed in range(600))
    assert distant / 600 == pytest.approx(0.1 * 5 / 6, abs=0.035)


def test_among_many_the_near_meet_and_a_share_is_drawn_from_all() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    seen = replace(picture(rng.permutation(np.arange(float(n))).tolist()), covariance=None, owner=np.arange(n) // 3)
    pairs = ladder_pairings(seen, 1000, ArenaSettings(), rng)
    gaps = np.abs([seen.strength[i] - seen.strength[j] for i, j in pairs])
    assert len({player for pair in pairs for player in pair}) == 2000, "nobody twice"
    assert all(i // 3 != j // 3 for i, j in pairs)
    assert 60 < (gaps > NEIGHBOURS).sum() < 140 and gaps.max() > 1500
    all_of_them = ladder_pairings(seen, 4000, GREEDY, rng)
    assert len({frozenset(pair) for pair in all_of_them}) == 4000


def test_a_newcomer_meets_ten_anchors_from_the_top_to_the_bottom() -> None:
    strengths = [100.0 * i for i in range(20)] + [0.0]
    left = np.zeros(21, np.int64)
    left[20] = 10
    pairs = entry_pairings(picture(strengths, entry_left=left), 50)
    assert [first for first, _ in pairs] == [20] * 10
    assert sorted(anchor for _, anchor in pairs) == [0, 2, 4, 6, 8, 11, 13, 15, 17, 19]


def test_the_owners_own_are_no_anchors_and_few_settled_players_are_no_reason_to_meet_the_same_ones() -> None:
    seen = picture([0, 10, 20, 0], owner=np.array([0, 1, 2, 2]), entry_left=np.array([0, 0, 0, 10]))
    assert Counter(anchor for _, anchor in entry_pairings(seen, 50)) == {0: 5, 1: 5}
    young = picture([0, 0, 0, 0], entry_left=np.array([0, 6, 6, 6]))
    met = Counter(frozenset(pair) for pair in entry_pairings(young, 50))
    assert len(met) == 6 and max(met.values()) <= 3


def test_newcomers_go_before_the_ladder_and_play_each_other_where_nobody_is_settled() -> None:
    seen = picture([0, 10, 20, 0], entry_left=np.array([0, 0, 0, 1]))
    first, *rest = choose(seen, 2, GREEDY, np.random.default_rng(0))
    assert first[0] == 3 and first[2]
    assert [is_entry for _, _, is_entry in rest] == [False]
    everybody = choose(picture([0, 0], entry_left=np.array([3, 3])), 10, GREEDY, np.random.default_rng(0))
    assert [is_entry for _, _, is_entry in everybody] == [True, True, True, False]


def test_owners_beyond_their_share_wait_while_others_have_something_to_learn() -> None:
    over = np.array([True, False, False, False])
    seen = picture([0, 0, 0, 0], sd=[300, 100, 100, 100], over=over)
    assert all(0 not in pair for pair in ladder(seen, 6, ArenaSettings(uniform_share=0.5)))
    alone = picture([0, 0, 0, 0], sd=[300, 10, 10, 10], over=over)
    assert all(0 in pair for pair in ladder(alone, 3)), "nobody else wants to play"
    newcomers = picture([0, 0, 0, 0], entry_left=np.array([9, 0, 0, 2]), over=over)
    assert {first for first, _ in entry_pairings(newcomers, 50)} == {3}


def play_on(models: list[Entity], units: int) -> tuple[Ledger, dict[str, int]]:
    """Let the scheduler's choice play on among models that stay unsure. Units of each owner."""
    known, ledger = {model.sha256: model for model in models}, Ledger("SoccerTwos", 1)
    settings, rng, played = ArenaSettings(entry_pairs=3), np.random.default_rng(0), Counter[str]()
    for _ in range(units // 4):
        seen = take_picture(models, known, ledger, [], [], None, settings)
        for first, second, _ in choose(seen, 4, settings, rng):
            sides = (models[first].sha256, models[second].sha256)
            ledger.recent.append(sides)
            ledger.units.update(sides)
            played.update(known[side].owner for side in sides)
    return ledger, played


def entrant(owner: str, number: int = 0, p99_ms: float = 0.1) -> Entity:
    return Entity(f"{owner} {number}", f"{owner}/{number}", "", (("SoccerTwos", ""),), p99_ms)


def test_a_slow_model_takes_its_owners_time_and_not_that_of_the_others() -> None:
    """Eleven times the time of the others' units: with an even say it would take two thirds of all."""
    _, played = play_on([entrant("mal", p99_ms=2.0), *(entrant(f"student {i}") for i in range(6))], 2000)
    time = {owner: units * (11.0 if owner == "mal" else 1.5) for owner, units in played.items()}
    assert 0.1 < time["mal"] / sum(time.values()) < 0.35


def test_what_replaced_models_took_is_charged_to_their_owner() -> None:
    models = [entrant("mal"), *(entrant(f"student {i}") for i in range(6))]
    ledger = Ledger("SoccerTwos", 1)
    old = {e.sha256: e for e in (entrant("mal", number) for number in range(1, 50))}
    ledger.recent.extend((sha256, "palus/random") for sha256 in old)
    settings = ArenaSettings()
    known = old | {model.sha256: model for model in models}
    assert take_picture(models, known, ledger, [], [], None, settings).over.tolist() == [True] + [False] * 6
    few = Ledger("SoccerTwos", 1)
    few.recent.extend((sha256, "palus/random") for sha256 in list(old)[:10])
    assert not take_picture(models, known, few, [], [], None, settings).over.any(), "as much as one newcomer takes"


def test_the_same_is_chosen_whether_all_candidates_are_put_in_order_or_first_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strength = np.random.default_rng(3).normal(0, 200, 60).tolist()
    met = Meetings(60, np.array([5, 7]), np.array([3, 1]), before=Meetings(60, np.array([7, 8]), np.array([2, 4])))
    assert met.of(np.array([0, 7, 0]), np.array([5, 0, 9])).tolist() == [3, 3, 0]
    whole = ladder_pairings(picture(strength, meetings=met), 90, GREEDY, np.random.default_rng(0))
    monkeypatch.setattr("palus.arena.ladder.matchmaking.HEAD", 4)
    monkeypatch.setattr("palus.arena.ladder.matchmaking.HEAD_TIMES", 0)
    assert ladder_pairings(picture(strength, meetings=met), 90, GREEDY, np.random.default_rng(0)) == whole
