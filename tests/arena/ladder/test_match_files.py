"""Action logs lie in the rows of their matches, and replays are made from them: they show what was played."""

from __future__ import annotations

import threading
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arena_records import read_log
from helpers import LAYOUT
from sqlalchemy import select, update
from units import house

from palus.arena.jobs.worker import describe_here, play_order, work
from palus.arena.ladder import queue
from palus.arena.ladder.inbox import link
from palus.arena.ladder.log import LogRecord, StoredBytes, check_chain
from palus.arena.ladder.match_files import read_actions, read_replay
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.unit import Unit
from palus.arena.models.players import built_in
from palus.arena.referee.actions import decode_actions
from palus.arena.referee.games import source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import decode_replay, encode_replay
from palus.errors import ReplayError, StorageError
from palus.store import Store, open_store
from palus.store.tables import matches

ORDER = Unit("SoccerTwos", 3, (house("ball-chaser"), house("goalie-striker")), season=1, rated=True)


@pytest.fixture
def source(tmp_path: Path) -> StoreSource:
    store = open_store(tmp_path)
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"pair:1": (0, ORDER.to_payload())}, now_ms=1)
    return StoreSource(store, "w", ArenaSettings(), describe_here())


def logged(store: Store) -> list[LogRecord]:
    assert link(store, now_ms=1) == 1
    with store.read() as connection:
        assert check_chain(connection) == 2
        return read_log(connection)


def test_a_replay_made_from_the_actions_shows_the_match_that_was_played(source: StoreSource) -> None:
    assert work(source, threading.Event(), max_jobs=1) == 1
    spec, recorder = source_of("SoccerTwos").spec, Recorder()
    players = [built_in(e.house or "", spec, e.repo, e.sha256) for e in ORDER.contenders]
    play_pairs(players[0], players[1], 1, ORDER.seed, recorder=recorder)
    records = logged(source.store)
    assert not list(source.store.blobs.folder.glob("??/*")), "nothing but rows"
    for number, record in enumerate(records):
        played = recorder.recordings[number]
        shown = decode_replay(read_replay(source.store, record)).recordings[0]
        kept = decode_replay(encode_replay([played])).recordings[0]
        np.testing.assert_array_equal(shown.frames, kept.frames)
        np.testing.assert_array_equal(shown.actions, kept.actions)
        told = [
            {name: value for name, value in vars(one).items() if name not in ("frames", "actions")}
            for one in (shown, kept)
        ]
        assert told[0] == told[1]
        assert {event.kind for event in shown.events} >= {"kick"} and shown.names == tuple(
            side.entity.repo for side in record.sides
        )


def test_an_action_log_is_stored_as_palus_writes_it_whatever_was_padded(source: StoreSource) -> None:
    (lease,) = source.take()
    report = play_order(source, ORDER)
    padded = []
    for match in report.matches:
        deflate = zlib.compressobj(level=0, wbits=-15)
        raw = LAYOUT.encode_actions(decode_actions(match.actions, LAYOUT, 1000))
        padding = b"".join(deflate.compress(b"") + deflate.flush(zlib.Z_FULL_FLUSH) for _ in range(10_000))
        padded.append(replace(match, actions=padding + deflate.compress(raw) + deflate.flush()))
    assert len(padded[0].actions) > 10_000
    assert source.finish([(lease, replace(report, matches=tuple(padded)))]) == set()
    for record, match in zip(logged(source.store), report.matches, strict=True):
        assert read_actions(source.store, record) == match.actions


def test_what_comes_out_otherwise_is_not_shown_and_what_was_changed_is_not_read(source: StoreSource) -> None:
    assert work(source, threading.Event(), max_jobs=1) == 1
    store, (first, second) = source.store, logged(source.store)
    with pytest.raises(ReplayError, match="comes out otherwise here"):
        read_replay(store, replace(first, final_state="0" * 64))
    with store.write() as connection:
        other = select(matches.c.actions).where(matches.c.id == second.id).scalar_subquery()
        connection.execute(update(matches).where(matches.c.id == first.id).values(actions=other))
    with pytest.raises(StorageError, match="not those of its record"):
        read_replay(store, first)


def test_files_of_an_older_palus_are_still_shown(source: StoreSource) -> None:
    assert work(source, threading.Event(), max_jobs=1) == 1
    store, (first, _) = source.store, logged(source.store)
    replay, actions = read_replay(store, first), read_actions(store, first)
    blobs = [store.blobs.put(data) for data in (replay, actions)]
    old = replace(first, id="old", replay=StoredBytes(blobs[0].sha256, blobs[0].size))
    assert (read_replay(store, old), read_actions(store, old)) == (replay, actions)
