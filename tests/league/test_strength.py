"""Thinning of the history, the table of results, and ratings whose intervals hold."""

from __future__ import annotations

import numpy as np

from palus.league.strength import add, credited, kept, scored, strengths
from palus.ratings.elo import expected_score


def thinned(snapshots: int, window: int, landmarks: int) -> list[int]:
    """Which of so many snapshots are left when one came after the other, 100 steps apart."""
    there: list[int] = []
    for step in range(0, 100 * snapshots, 100):
        there.append(step)
        there = [there[k] for k in kept(there, window, landmarks)]
    return [step // 100 for step in there]


def test_without_landmarks_the_window_slides() -> None:
    assert thinned(12, 3, 0) == [9, 10, 11] and thinned(2, 3, 0) == [0, 1]


def test_landmarks_begin_at_the_first_snapshot_and_spread_over_the_whole_run() -> None:
    assert thinned(12, 3, 1) == [0, 9, 10, 11] and thinned(12, 3, 2) == [0, 6, 9, 10, 11]
    assert thinned(12, 3, 4) == [0, 3, 6, 8, 9, 10, 11]
    for snapshots in (50, 100, 333, 1000):
        there = thinned(snapshots, 5, 8)
        assert there == kept(range(0, 100 * snapshots, 100), 5, 8)  # as if none had ever gone
        assert there[-5:] == list(range(snapshots - 5, snapshots)) and there[0] == 0 and 10 <= len(there) <= 13
        assert max(np.diff(there)) <= snapshots / 3


def test_matches_of_a_learner_become_those_of_its_new_snapshot() -> None:
    cells: dict[tuple[int, int], tuple[float, int]] = {}
    add(cells, 0, 70, 1.0)
    add(cells, 70, 0, 0.5)
    add(cells, 1, 0, 0.0)
    add(cells, 5, 5, 1.0)
    assert cells == {(0, 70): (1.5, 2), (0, 1): (1.0, 1)}
    after = credited(cells, 0, 71)
    assert after == {(70, 71): (0.5, 2), (1, 71): (0.0, 1)}
    assert scored(after, 71, 70) == (1.5, 2) and scored(after, 71, 0) == (0.0, 0)
    add(after, 0, 70, 1.0)
    assert credited(after, 0, 71)[70, 71] == (0.5, 3)


def simulated(
    truth: list[float], matches: int, reach: int, draw: np.random.Generator
) -> dict[tuple[int, int], tuple[float, int]]:
    """A league in which everybody met the `reach` before."""
    cells: dict[tuple[int, int], tuple[float, int]] = {}
    for later in range(1, len(truth)):
        for earlier in range(max(0, later - reach), later):
            share = expected_score(truth[later], truth[earlier])
            add(cells, later, earlier, float(draw.binomial(matches, share)), matches)
    return cells


def test_planted_strengths_lie_within_their_intervals_in_about_95_percent() -> None:
    draw, held = np.random.default_rng(5), []
    for league in range(200):
        steps = draw.normal(25.0, 20.0, 12) if league % 2 else draw.normal(0.0, 120.0, 12)
        truth = list(np.cumsum(steps)) if league % 2 else list(steps)
        found = strengths(simulated(truth, 100, 5, draw), range(12), {}, {}, 0.0)
        means = np.array([found[k].mean for k in range(12)])
        error = means - means.mean() - (truth - np.mean(truth))
        held += [abs(error[k]) <= found[k].high - found[k].mean for k in range(12)]
    assert 0.92 <= np.mean(held) <= 0.97


def test_intervals_hold_where_progress_is_slow_and_only_neighbours_in_age_met() -> None:
    """Who is close in age is close in strength: a spread that is fitted to such games would be far too narrow."""
    draw, held, found_of_true = np.random.default_rng(5), [], []
    for _ in range(30):
        truth = 20.0 * np.arange(40) + draw.normal(0.0, 10.0, 40)
        found = strengths(simulated(list(truth), 40, 5, draw), range(40), {}, {}, 0.0)
        means, real = np.array([found[k].mean for k in range(40)]), truth - truth.mean()
        held += [abs(means[k] - means.mean() - real[k]) <= found[k].high - found[k].mean for k in range(40)]
        found_of_true.append(means @ real / (real @ real))
    assert 0.92 <= np.mean(held) <= 0.98 and 0.97 < np.mean(found_of_true) < 1.03


def test_equal_players_overlap_and_unequal_ones_do_not() -> None:
    draw = np.random.default_rng(1)
    alike = strengths(simulated([0.0] * 8, 100, 3, draw), range(8), {}, {}, 1200.0)
    assert max(r.low for r in alike.values()) < min(r.high for r in alike.values())
    apart = strengths(simulated([0.0, 200.0, 400.0], 400, 2, draw), range(3), {}, {}, 1200.0)
    assert apart[0].high < apart[1].low and apart[1].high < apart[2].low
    assert apart[0].mean == 1200.0


def test_a_learner_is_one_player_with_its_newest_snapshot() -> None:
    cells = {(0, 70): (8.0, 10), (70, 71): (3.0, 10), (0, 71): (5.0, 10)}
    found = strengths(cells, [0, 70, 71], {0: 71}, {}, 1200.0)
    assert found[0] == found[71] and found[0].mean > 1200.0 == found[70].mean
    assert strengths({}, [0, 70], {0: 70}, {}, 1200.0)[0] == (1200.0, 1200.0, 1200.0)


def test_the_scale_goes_on_when_the_field_has_moved_on() -> None:
    cells = simulated([100.0 * k for k in range(9)], 10000, 3, np.random.default_rng(3))
    first = strengths(cells, range(6), {}, {}, 1200.0)
    before = {k: first[k].mean for k in range(3, 6)}
    later = strengths(cells, range(3, 9), {}, before, 1200.0)
    assert abs(np.mean([later[k].mean for k in before]) - np.mean(list(before.values()))) < 1e-9
    assert abs(later[8].mean - 2000.0) < 30.0
