"""Derived tables: functions of the log, whatever the order of its rows and however they were filled."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arena_records import dump, published, record, season, sha, side
from sqlalchemy import event, insert, text, update

from histories import add_history, arrange, variance_of_gaps
from palus.arena.ladder import refresh
from palus.arena.ladder.derive import field_row, fit_games, variance_of_gap
from palus.arena.ladder.discovery import Entry, Sweep
from palus.arena.ladder.entries import decide, take_in
from palus.arena.ladder.field_picture import Ledger, take_picture
from palus.arena.ladder.log import LogRecord, StoredBytes, append
from palus.arena.ladder.refresh import INTERVALS_EVERY_S, Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.replay import encode_replay
from palus.arena.referee.result import POINTS
from palus.envs.recording import RecordedEvent, Recording
from palus.errors import ArenaError
from palus.ratings import bradley_terry
from palus.ratings.games import Played
from palus.store import Store, open_store
from palus.store.derived import DERIVED, fields, play_stats, rating_points
from palus.store.tables import annulments, derived_tables, matches

ENV = "SoccerTwos"
SETTINGS = ArenaSettings()
FOUR = {"ann/a": 200.0, "bob/b": 50.0, "cy/c": 0.0, "dee/d": -250.0}


def make_store(folder: Path, repos: list[str], records: list[LogRecord]) -> Store:
    """A store with accepted entries and a log."""
    store = open_store(folder)
    found = tuple(Entry(side(repo).entity, 1) for repo in repos)
    with store.write() as connection:
        take_in(connection, Sweep("hub", ENV, found, frozenset(repos)), {}, now_ms=1)
        for repo in repos:
            decide(connection, ENV, sha(repo), None, {}, now_ms=2)
    add(store, records)
    return store


def add(store: Store, records: list[LogRecord]) -> None:
    with store.write() as connection:
        append(connection, records, finished_ms=1_700_000_000_000)


def by_repo(store: Store) -> dict[str, dict[str, Any]]:
    rows = {row["sha256"]: row for row in published(store)}
    return {repo: rows[sha(repo)] for repo in FOUR if sha(repo) in rows}


def summary(store: Store) -> dict[str, Any]:
    (row,) = published(store, fields)
    return dict(json.loads(row["summary"]))


ORDER_DEPENDENT = ("elo", "openskill_mu", "openskill_sigma", "upto_seq")


def test_shuffling_the_log_changes_no_bit_of_the_published_ratings(tmp_path: Path) -> None:
    records = season(FOUR, units=12, seed=1)
    shuffled = list(records)
    random.Random(0).shuffle(shuffled)
    stores = [make_store(tmp_path / str(i), list(FOUR), rows) for i, rows in enumerate((records, shuffled))]
    for store in stores:
        Refresher(store, SETTINGS).refresh()
    straight, mixed = (published(store, without=ORDER_DEPENDENT) for store in stores)
    assert straight == mixed
    assert published(stores[0], fields, without=("upto_seq",)) == published(stores[1], fields, without=("upto_seq",))
    assert [row["rank"] for row in by_repo(stores[0]).values()] == [1, 2, 3, 4]


def test_refreshing_as_the_log_grows_and_recomputing_end_in_the_same_bytes(tmp_path: Path) -> None:
    records = with_replays(season(FOUR, units=15, seed=2), tmp_path / "a")
    store = make_store(tmp_path / "a", list(FOUR), [])
    refresher = Refresher(store, SETTINGS)
    for start in range(0, len(records), 34):
        add(store, [*records[start : start + 34], record(900 + start, result="void")])
        if start == 68:  # a whole pair, one leg of another, a match that never counted, one in the newest reports
            struck = (records[44], records[45], records[59], record(934, result="void"), records[70])
            with store.write() as connection:
                rows = [{"match_id": r.id, "reason": "audit", "created_ms": 1} for r in struck]
                connection.execute(insert(annulments), rows)
        assert refresher.refresh() == [ENV]
    assert refresher.refresh() == []
    grown = dump(store)
    assert all(grown), "every derived table has rows"
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown
    restarted = Refresher(store, SETTINGS)
    restarted.refresh()
    assert dump(store) == grown


def test_ratings_that_cannot_be_computed_again_cost_no_play_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, list(FOUR), with_replays(season(FOUR, units=2, seed=2), tmp_path))
    Refresher(store, SETTINGS).refresh()
    grown = dump(store)
    monkeypatch.setattr(refresh, "fit_games", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Refresher(store, SETTINGS).recompute()
    assert len(published(store, play_stats)) == 5
    monkeypatch.undo()
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown


def test_a_field_that_defeats_the_solver_is_published_without_an_equilibrium(caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("ann/a", "bob/b"), ("cy/c", "dee/d")]
    fitted = fit_games(add_history(Played(k, f"{k}", f"{k // 2}", *pairs[k % 2], 1.0) for k in range(8)), 8)
    known = json.loads(field_row(ENV, fitted, FOUR, 0)["summary"])
    apart = replace(fitted, fit=replace(fitted.fit, strength=np.array([1e20, 1e20, -1e20, -1e20])))
    lost = json.loads(field_row(ENV, apart, FOUR, 0)["summary"])
    assert known["support"] and known["skill"]
    assert lost == known | {"support": [], "skill": {}}
    assert "published without an equilibrium" in caplog.text


def test_recomputing_fills_the_tables_of_games_that_are_not_played_any_more(tmp_path: Path) -> None:
    records = season(FOUR, units=5, seed=2)
    store = make_store(tmp_path, list(FOUR), [replace(r, env="StrikersVsGoalie") for r in records[:24]] + records[24:])
    Refresher(store, replace(SETTINGS, envs=(ENV, "StrikersVsGoalie"))).refresh()
    grown = dump(store)
    assert {row["env"] for row in published(store)} == {ENV, "StrikersVsGoalie"}
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown


@pytest.mark.parametrize("change", [{"result": "void"}, {"rated": False}])
def test_a_pair_without_a_verdict_that_is_struck_out_leaves_the_same_bytes(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    records = season(FOUR, units=15, seed=2)
    pair = [record(900, unit=800, **change), record(901, blue="bob/b", purple="ann/a", unit=800, leg=2, **change)]
    store = make_store(tmp_path, list(FOUR), [*records[:40], *pair])
    refresher = Refresher(store, SETTINGS)
    refresher.refresh()
    with store.write() as connection:
        connection.execute(insert(annulments).values(match_id=pair[0].id, reason="audit", created_ms=1))
        connection.execute(insert(annulments).values(match_id=pair[1].id, reason="audit", created_ms=1))
    add(store, records[40:])
    refresher.refresh()
    grown = dump(store)
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown


def test_tables_of_a_palus_that_declared_them_otherwise_are_filled_with_the_same_bytes(tmp_path: Path) -> None:
    store = make_store(tmp_path, list(FOUR), with_replays(season(FOUR, units=15, seed=2), tmp_path))
    Refresher(store, SETTINGS).refresh()
    before = dump(store)
    with store.write() as connection:
        for table in DERIVED:
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN now_gone INTEGER"))
        connection.execute(update(derived_tables).values(digest="of other columns"))
    store.close()
    opened = open_store(tmp_path)
    assert not any(dump(opened))
    Refresher(opened, SETTINGS).refresh()
    assert dump(opened) == before


def with_replays(records: list[LogRecord], folder: Path) -> list[LogRecord]:
    """The first five get a replay, the sixth one that is gone."""
    frames = np.zeros((51, 14), np.float32)
    frames[:, 12] = np.linspace(0, 3, 51)
    kick = (RecordedEvent(10, "kick", 0, 0),)
    recording = Recording(ENV, 1, ("a", "b"), frames, np.zeros((10, 4, 3), np.int8), None, kick, (0, 0), "draw")
    blob = open_store(folder).blobs.put(encode_replay([recording]))
    stored = [replace(r, replay=StoredBytes(blob.sha256, blob.size)) for r in records[:5]]
    return [*stored, replace(records[5], replay=StoredBytes(sha("gone"), 1)), *records[6:]]


def test_history_points_are_the_ratings_that_were_published_then(tmp_path: Path) -> None:
    records = season(FOUR, units=10, seed=3)
    store = make_store(tmp_path / "all", list(FOUR), records)
    Refresher(store, SETTINGS).refresh()
    points = [row for row in published(store, rating_points) if row["seq"] == 60]
    then = make_store(tmp_path / "then", list(FOUR), records[:60])
    Refresher(then, SETTINGS).refresh()
    now = {row["sha256"]: (row["rating"], row["half_width"], row["games"]) for row in published(then)}
    recent = {s.entity.sha256 for r in records[40:60] for s in r.sides}
    assert {row["sha256"] for row in points} == recent
    assert all((row["rating"], row["half_width"], row["games"]) == now[row["sha256"]] for row in points)


def test_swapping_all_sides_flips_the_side_term_and_nothing_else(tmp_path: Path) -> None:
    records = season(FOUR, units=40, seed=4, side=120.0)
    flip = {"win1": "win2", "win2": "win1", "draw": "draw"}
    swapped = [replace(r, sides=r.sides[::-1], result=flip[r.result]) for r in records]
    stores = [make_store(tmp_path / str(i), list(FOUR), rows) for i, rows in enumerate((records, swapped))]
    for store in stores:
        Refresher(store, SETTINGS).refresh()
    side, side_swapped = (published(store, fields)[0]["side_advantage"] for store in stores)
    assert side == pytest.approx(120.0, abs=50.0)
    assert side_swapped == pytest.approx(-side, abs=1e-4)
    for name in ("rating", "half_width", "rank"):
        mine, theirs = ([row[name] for row in by_repo(store).values()] for store in stores)
        assert mine == pytest.approx(theirs, abs=1e-4)


def test_camps_that_hardly_met_are_named_and_gaps_have_the_joint_variance(tmp_path: Path) -> None:
    camp = {"ann/a": 0, "bob/b": 0, "cy/c": 1, "dee/d": 1}
    whole = season(FOUR, units=12, seed=1)
    apart = [match for match in whole if camp[match.sides[0].entity.repo] == camp[match.sides[1].entity.repo]]
    store = make_store(tmp_path, list(FOUR), apart)
    Refresher(store, SETTINGS).refresh()
    (group,) = summary(store)["loose"]
    assert group["pairs"] == 0
    assert set(group["players"]) in ({sha("ann/a"), sha("bob/b")}, {sha("cy/c"), sha("dee/d")})
    (row,) = published(store, fields)
    history = [Played(0, r.id, r.unit_id, *(s.entity.sha256 for s in r.sides), POINTS[r.result]) for r in apart]
    gaps = variance_of_gaps(bradley_terry.fit(arrange(history).games, 4).joint)
    for i, j in ((0, 1), (3, 1), (2, 2)):
        assert variance_of_gap(row["covariance"], i, j) == pytest.approx(gaps[i, j], rel=1e-4, abs=1e-2)


def test_two_files_that_play_alike_get_overlapping_intervals_and_share_a_rank(tmp_path: Path) -> None:
    strength = {**FOUR, "cy/c": 50.0}
    store = make_store(tmp_path, list(FOUR), season(strength, units=40, seed=5))
    Refresher(store, SETTINGS).refresh()
    first, second = by_repo(store)["bob/b"], by_repo(store)["cy/c"]
    assert abs(first["rating"] - second["rating"]) < first["half_width"] + second["half_width"]
    assert (first["rank_best"], first["rank_worst"]) == (second["rank_best"], second["rank_worst"]) == (2, 3)


def test_rock_paper_scissors_are_rated_equal_and_shown_as_a_cycle(tmp_path: Path) -> None:
    rock, paper, scissors = "ann/a", "bob/b", "cy/c"
    beats = {(paper, rock): 0.9, (scissors, paper): 0.9, (rock, scissors): 0.9}
    store = make_store(tmp_path, list(FOUR), season(FOUR, units=40, seed=6, beats=beats))
    Refresher(store, SETTINGS).refresh()
    three = [by_repo(store)[repo] for repo in (rock, paper, scissors)]
    assert max(r["rating"] - r["half_width"] for r in three) < min(r["rating"] + r["half_width"] for r in three)
    seen = summary(store)
    (cycle,) = seen["cycles"]
    names = {sha(repo): repo for repo in FOUR}
    order = [names[player] for player in cycle["players"]]
    assert (order[0], order[1]) in beats and (order[1], order[2]) in beats and (order[2], order[0]) in beats
    assert {names[line["sha256"]] for line in seen["support"]} == {rock, paper, scissors}
    assert seen["unexplained_share"] > 5 * seen["unexplained_by_chance"]


def test_struck_out_matches_count_as_if_they_had_not_been_played(tmp_path: Path) -> None:
    records = season(FOUR, units=12, seed=7)
    store = make_store(tmp_path / "struck", list(FOUR), records)
    refresher = Refresher(store, SETTINGS)
    refresher.refresh()
    with store.write() as connection:
        connection.execute(
            insert(annulments), [{"match_id": r.id, "reason": "audit", "created_ms": 1} for r in records[20:50]]
        )
    assert refresher.refresh() == [ENV]
    without = make_store(tmp_path / "never", list(FOUR), records[:20] + records[50:])
    Refresher(without, SETTINGS).refresh()
    assert published(store, without=("upto_seq",)) == published(without, without=("upto_seq",))
    points = [{**row, "seq": 0} for row in published(store, rating_points)]
    assert points == [{**row, "seq": 0} for row in published(without, rating_points)]


def test_an_annulment_reads_no_match_before_its_point_again_and_keeps_the_points_there(tmp_path: Path) -> None:
    records = season(FOUR, units=12, seed=7)
    store = make_store(tmp_path, list(FOUR), records)
    refresher = Refresher(store, SETTINGS)
    refresher.refresh()
    with store.write() as connection:
        connection.execute(insert(annulments).values(match_id=records[50].id, reason="audit", created_ms=1))
        connection.execute(update(rating_points).where(rating_points.c.seq == 40).values(rating=7.0))
        connection.execute(update(matches).where(matches.c.seq <= 40).values(result="no"))  # who reads these stumbles
    assert refresher.refresh() == [ENV]
    assert sum(row["games"] for row in published(store)) == 2 * len(records) - 2
    points = published(store, rating_points)
    assert {row["seq"] for row in points} == {20, 40, *range(61, 142, 20)}
    assert {row["rating"] for row in points if row["seq"] == 40} == {7.0}


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_struck_out_before_is_not_written_again_with_every_match(tmp_path: Path, restarted: bool) -> None:
    records = season({"ann/a": 0.0, "bob/b": 0.0}, units=6, seed=7)
    store = make_store(tmp_path, ["ann/a", "bob/b"], records[:-2])
    struck = [{"match_id": r.id, "reason": "audit", "created_ms": 1} for r in records[:8]]
    refresher, written = Refresher(store, SETTINGS), list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("INSERT INTO left_out"):
            written.extend(name for name, _ in (parameters if isinstance(parameters, list) else [parameters]))

    event.listen(store.engine, "before_cursor_execute", note)
    for some, more in ((struck[:6], []), ([], records[-2:-1]), (struck[6:], records[-1:])):
        with store.write() as connection:
            if some:
                connection.execute(insert(annulments), some)
        add(store, more)
        refresher = Refresher(store, SETTINGS) if restarted else refresher
        refresher.refresh()
    assert sorted(written) == sorted(line["match_id"] for line in struck)
    grown = dump(store)
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown


def test_unrated_and_void_matches_change_nothing_and_a_replaced_revision_keeps_a_rating_without_rank(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path, ["ann/a", "bob/b"], season(FOUR, units=4, seed=8))
    refresher = Refresher(store, SETTINGS)
    refresher.refresh()
    before = published(store)
    assert {repo: row["rank"] for repo, row in by_repo(store).items()} == {
        "ann/a": 1,
        "bob/b": 2,
        "cy/c": 0,
        "dee/d": 0,
    }
    add(store, [record(900, rated=False), record(901, result="void")])
    assert refresher.refresh() == []
    assert published(store) == before


def test_a_replay_that_nobody_foresaw_costs_its_own_statistics_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_recording: Recording) -> dict[str, Any]:
        raise IndexError("no such frame")

    store = make_store(tmp_path, [], season(FOUR, 2, seed=1))
    still = Recording(
        ENV, 1, ("a", "b"), np.zeros((2, 14), np.float32), np.zeros((1, 4, 3), np.int8), None, (), (0, 0), "draw"
    )
    blob = store.blobs.put(encode_replay([still]))
    add(store, [replace(record(999), replay=StoredBytes(blob.sha256, blob.size))])
    monkeypatch.setattr("palus.envs.soccer.play_stats.play_statistics", fail)
    Refresher(store, SETTINGS).refresh()
    assert len(published(store)) == 6 and published(store, play_stats) == []
    assert "no play statistics of match" in caplog.text


def test_a_large_field_is_rated_without_its_intervals_which_follow_hourly_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.ratings.bradley_terry.SPARSE_FROM", 4)
    records = season(FOUR, units=25, seed=4)
    store = make_store(tmp_path, list(FOUR), records[:200])
    refresher = Refresher(store, SETTINGS)
    refresher.refresh()
    (row,), first = published(store, fields), by_repo(store)
    assert (row["intervals_seq"], row["covariance"]) == (200, None)
    add(store, records[200:])
    assert refresher.refresh() == [ENV]
    (row,), second = published(store, fields), by_repo(store)
    assert (row["upto_seq"], row["intervals_seq"]) == (300, 200)
    for repo in FOUR:
        assert second[repo]["rating"] != first[repo]["rating"]
        assert second[repo]["half_width"] == first[repo]["half_width"], "not due"
    an_hour_later = time.monotonic() + INTERVALS_EVERY_S
    monkeypatch.setattr(time, "monotonic", lambda: an_hour_later)
    assert refresher.refresh() == [ENV]
    third, caught_up = by_repo(store), dump(store)
    assert all(third[repo]["half_width"] < first[repo]["half_width"] for repo in FOUR)
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == caught_up
    monkeypatch.undo()
    Refresher(store, SETTINGS).recompute()
    for repo, dense in by_repo(store).items():
        assert third[repo]["rating"] == pytest.approx(dense["rating"], abs=1.0)
        assert third[repo]["half_width"] == pytest.approx(dense["half_width"], rel=0.1)


def test_a_ledger_that_begins_with_the_sums_knows_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.arena.ladder.field_picture.ROWS_AT_ONCE", 4)  # of six
    records = season(FOUR, units=5, seed=1)
    store = make_store(tmp_path, list(FOUR), records[:40])
    from_log, from_sums = Ledger(ENV, 1), Ledger(ENV, 1)
    with store.read() as connection:
        from_log.read(connection)
    Refresher(store, SETTINGS).refresh()
    add(store, records[40:])
    entrants = [side(repo).entity for repo in FOUR]
    pictures = []
    for ledger in (from_log, from_sums):
        with store.read() as connection:
            ledger.read(connection)
        pictures.append(take_picture(entrants, {}, ledger, [], [], None, SETTINGS))
    assert (from_log.units, from_log.last_seq, from_log.recent) == (
        from_sums.units,
        from_sums.last_seq,
        from_sums.recent,
    )
    first, second = np.triu_indices(4, 1)
    assert pictures[1].meetings.of(first, second).tolist() == [5] * 6
    assert pictures[0].meetings.of(first, second).tolist() == [5] * 6


def test_of_two_who_rate_one_store_the_one_left_over_is_told_and_begins_anew(tmp_path: Path) -> None:
    records = season(FOUR, units=5, seed=1)
    store = make_store(tmp_path, list(FOUR), records[:20])
    left_over = Refresher(store, SETTINGS)
    left_over.refresh()
    add(store, records[20:40])
    Refresher(store, SETTINGS).refresh()
    add(store, records[40:])
    with pytest.raises(ArenaError, match="another process rates"):
        left_over.refresh()
    left_over.refresh()
    grown = dump(store)
    Refresher(store, SETTINGS).recompute()
    assert dump(store) == grown
