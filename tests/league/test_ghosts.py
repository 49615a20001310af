"""The pool, the draws and the ratings of self-play, counted as ML-Agents counts."""

import numpy as np
import pytest

from palus.config import SelfPlay
from palus.errors import CheckpointError
from palus.league.ghosts import GhostLeague
from palus.rollout.rollout import LATEST, Episode

BASE = {"save_steps": 100, "team_change": 50, "swap_steps": 10, "window": 3}
SLOTS = 400


def league(folder, *, teams=2, seed=0, **settings):
    return GhostLeague(SelfPlay(**{**BASE, **settings}), "Game", teams, folder, seed)


def weights(value):
    return {"layer0_weight": np.full((2, 3), value, np.float32), "layer0_bias": np.zeros(2, np.float32)}


def filled(folder, *, snapshots=4, **settings):
    """A league with that many snapshots; snapshot k holds the value k."""
    pool = league(folder, save_steps=1, **settings)
    for k in range(snapshots):
        assert pool.advance(2 * k, 0, weights(k)).id == k
    return pool


def episode(opponent, result, team=0):
    return Episode(team, opponent, result, length=5, reward=0.0, group_reward=0.0)


def opponents(pool, slots=SLOTS):
    return [pool.draw(slot).opponent for slot in range(slots)]


def test_a_snapshot_is_due_when_more_than_save_steps_have_passed(tmp_path):
    pool = league(tmp_path)
    due = [(step, pool.advance(step, 0, weights(0)) is not None) for step in (0, 100, 101, 201, 202, 500)]
    assert due == [(0, True), (100, False), (101, True), (201, False), (202, True), (500, True)]


def test_a_snapshot_knows_its_steps_its_parent_and_its_weights(tmp_path):
    pool = league(tmp_path)
    pool.advance(0, 0, weights(1))
    second = pool.advance(150, 0, weights(2))
    assert (second.id, second.parent, second.behavior, second.steps) == (1, 0, "Game", 150)
    assert pool.arrays(0)["layer0_weight"][0, 0] == 1
    assert pool.arrays(1)["layer0_weight"][0, 0] == 2


def test_the_window_holds_the_newest_snapshots_only(tmp_path):
    pool = filled(tmp_path, snapshots=6, play_against_latest_model_ratio=0)
    assert pool.window == [3, 4, 5]
    assert set(opponents(pool)) == {3, 4, 5}


def test_the_teams_take_turns_when_more_than_team_change_steps_have_passed(tmp_path):
    pool = league(tmp_path, teams=3)
    learning = []
    for step in (50, 51, 101, 102, 153, 204):
        pool.advance(step, 0, weights(0))
        learning.append(pool.draw(0).learning_team)
    assert learning == [0, 1, 1, 2, 0, 1]


def test_an_opponent_stays_with_its_slot_until_more_than_swap_steps_have_passed(tmp_path):
    pool = filled(tmp_path, play_against_latest_model_ratio=0.5)
    first = opponents(pool)
    assert opponents(pool) == first  # the next match of every slot
    pool.advance(7, 10, weights(0))
    assert opponents(pool) == first
    pool.advance(7, 1, weights(0))
    changed = np.array(opponents(pool)) != first
    assert 0.4 < changed.mean() < 0.9  # 1 - (1/4 + 3/36) = 2/3 face somebody else
    assert set(opponents(pool)) <= {LATEST, *pool.window}


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_the_latest_policy_plays_its_share_and_snapshots_share_the_rest_evenly(tmp_path, ratio):
    pool = filled(tmp_path, play_against_latest_model_ratio=ratio)
    drawn = np.array(opponents(pool, 6000))
    assert (drawn == LATEST).mean() == pytest.approx(ratio, abs=0.02 if 0 < ratio < 1 else 0)
    for snapshot in pool.window:
        assert (drawn == snapshot).mean() == pytest.approx((1 - ratio) / 3, abs=0.025 if ratio < 1 else 0)


def test_without_snapshots_the_opponent_is_the_latest_policy(tmp_path):
    assert set(opponents(league(tmp_path, play_against_latest_model_ratio=0))) == {LATEST}


@pytest.mark.parametrize(
    ("own", "other", "result", "change"),
    [
        (1200.0, 1200.0, 1, 0.5),
        (1200.0, 1200.0, -1, -0.5),
        (1200.0, 1200.0, 0, 0.0),
        (1600.0, 1200.0, 1, 1 / 11),  # expected score 10/11
        (1600.0, 1200.0, 0, 0.5 - 10 / 11),
        (1200.0, 1600.0, 1, 10 / 11),
    ],
)
def test_elo_moves_one_point_at_most_and_what_one_gains_the_other_loses(tmp_path, own, other, result, change):
    pool = filled(tmp_path)
    pool.elo, pool.ratings[2] = own, other
    pool.rate(episode(2, result))
    assert pool.elo == pytest.approx(own + change)
    assert pool.ratings[2] == pytest.approx(other - change)
    assert [pool.ratings[k] for k in (1, 3)] == [1200.0, 1200.0]


@pytest.mark.parametrize("untold", [episode(2, None), episode(LATEST, 1), episode(LATEST, -1)])
def test_cut_off_matches_and_matches_against_oneself_are_not_rated(tmp_path, untold):
    pool = filled(tmp_path)
    before = dict(pool.ratings)
    pool.rate(untold)
    assert (pool.elo, pool.ratings) == (1200.0, before)


def test_a_snapshot_starts_with_the_rating_of_the_policy_it_froze(tmp_path):
    pool = league(tmp_path, initial_elo=1000.0)
    pool.advance(0, 0, weights(0))
    pool.rate(episode(0, 1))
    pool.advance(101, 0, weights(1))
    assert pool.ratings == {0: 999.5, 1: 1000.5}


def test_a_restored_league_draws_rates_and_counts_on_as_if_it_had_never_stopped(tmp_path):
    pool = filled(tmp_path, play_against_latest_model_ratio=0.5)
    opponents(pool, 50)
    pool.rate(episode(2, 1))
    pool.advance(55, 6, weights(9))
    state = pool.state_dict()
    other = league(tmp_path, save_steps=1, play_against_latest_model_ratio=0.5, seed=99)
    other.load_state_dict(state)

    def go_on(pool):
        told = []
        for step in (56, 57, 200, 202):
            snapshot = pool.advance(step, 2, weights(step))
            pool.rate(episode(pool.window[-1], -1))
            draws = [pool.draw(slot) for slot in range(60)]
            told.append((draws, pool.elo, dict(pool.ratings), list(pool.window), snapshot and snapshot.id))
        return told

    assert go_on(other) == go_on(pool)


def test_snapshots_are_read_back_from_disk_after_a_restart(tmp_path):
    state = filled(tmp_path, snapshots=5).state_dict()
    other = league(tmp_path)
    other.load_state_dict(state)
    assert [other.arrays(k)["layer0_weight"][1, 2] for k in (2, 3, 4)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "no such snapshot; was the run folder copied without `snapshots/`"),
        (lambda path: path.write_bytes(b""), "not a readable snapshot"),
        (lambda path: np.savez(path, layer0_weight=np.zeros(3)), "not a readable snapshot"),
    ],
)
def test_a_lost_or_damaged_snapshot_of_the_window_stops_the_resume(tmp_path, harm, message):
    state = filled(tmp_path).state_dict()
    harm(tmp_path / "snapshot-00002.npz")
    with pytest.raises(CheckpointError, match=message) as error:
        league(tmp_path).load_state_dict(state)
    assert "snapshot-00002.npz" in str(error.value)


def test_prune_deletes_only_what_neither_the_window_nor_a_running_match_needs(tmp_path):
    pool = filled(tmp_path, snapshots=7)
    for name in ("notes.txt", "snapshot-old.npz", "snapshot-00900.npz"):
        (tmp_path / name).write_text("mine")
    pool.prune({1})
    kept = {p.name for p in tmp_path.iterdir()}
    assert kept == {
        "notes.txt",
        "snapshot-old.npz",
        "snapshot-00900.npz",
        *(f"snapshot-0000{k}.npz" for k in (1, 4, 5, 6)),
    }


def test_forgetting_frees_memory_but_not_what_is_still_played_against(tmp_path):
    pool = filled(tmp_path, snapshots=7)
    pool.forget({1})
    assert set(pool.ratings) == {1, 4, 5, 6}
    (tmp_path / "snapshot-00001.npz").unlink()
    (tmp_path / "snapshot-00000.npz").unlink()
    assert pool.arrays(1)["layer0_weight"][0, 0] == 1  # still in memory
    with pytest.raises(CheckpointError, match="snapshot-00000"):
        pool.arrays(0)
