"""The reference competition's round."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arena_records import sha

from palus.arena.ladder import queue as orders
from palus.arena.ladder import scheduler
from palus.arena.ladder.discovery import Entry, Sweep
from palus.arena.ladder.entries import decide, take_in
from palus.arena.ladder.matchmaking import draw_round
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.models.entity import Entity
from palus.store import open_store
from palus.store.engine import DATABASE_FILE


def test_everybody_plays_once_and_an_odd_model_sits_out() -> None:
    queue = [(f"m{i}", 1200.0 + i, f"owner-{i}") for i in range(7)]
    pairs = draw_round(queue, 3, np.random.default_rng(0))
    played = [name for pair in pairs for name in pair]
    assert len(pairs) == 3
    assert len(set(played)) == 6
    assert pairs[0][0] == "m0"


def test_the_first_of_the_queue_meets_one_of_its_n_nearest_with_equal_chance() -> None:
    ratings = {"a": 1000.0, "far": 2000.0, "x": 1010.0, "y": 990.0, "z": 1030.0, "w": 970.0}
    queue = [(name, rating, f"owner of {name}") for name, rating in ratings.items()]
    draws = Counter(draw_round(queue, 3, np.random.default_rng(seed))[0][1] for seed in range(600))
    # z and w are equally near; the one that comes first in the queue is kept.
    assert set(draws) == {"x", "y", "z"}
    assert min(draws.values()) > 150


def test_two_meet_and_one_or_none_do_not() -> None:
    rng = np.random.default_rng(0)
    assert draw_round([("a", 1.0, "ann"), ("b", 9.0, "bob")], 10, rng) == [("a", "b")]
    assert draw_round([("a", 1.0, "ann")], 10, rng) == draw_round([], 10, rng) == []


def test_models_of_one_owner_do_not_meet_and_the_house_s_do() -> None:
    rng = np.random.default_rng(0)
    queue = [("a1", 3.0, "ann"), ("a2", 3.0, "ann"), ("a3", 3.0, "ann"), ("b", 900.0, "bob"), ("c", 800.0, "cid")]
    assert draw_round(queue, 1, rng) == [("a1", "c"), ("a2", "b")]
    assert draw_round(queue[:3], 10, rng) == []
    assert draw_round([("random", 1.0, None), ("chaser", 2.0, None)], 10, rng) == [("random", "chaser")]


def test_a_round_orders_no_match_between_models_of_one_owner_and_keeps_nobody_from_writing_while_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*served: Any) -> list[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "arena" / DATABASE_FILE, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
        return draw_round(*served)

    monkeypatch.setattr(scheduler, "draw_round", drawn)
    store, env, repos = open_store(tmp_path / "arena"), "SoccerTwos", ("ann/a", "ann/b", "ann/c", "ann/d", "bob/e")
    entities = [Entity(sha(repo), repo, sha(repo)[:40], ((env, sha(repo)),)) for repo in repos]
    sweep = Sweep("hub", env, tuple(Entry(entity, 5) for entity in entities), frozenset(repos))
    with store.write() as connection:
        take_in(connection, sweep, {}, now_ms=1)
        for entity in entities:
            decide(connection, env, entity.sha256, None, {"computation": entity.sha256, "p99_ms": 0.1}, now_ms=2)
    scheduler.Scheduler(store, ArenaSettings(mode="rounds"), [], seed=0).tick()
    with store.read() as connection:
        (payload,) = map(json.loads, orders.open_payloads(connection, "pair", env))
    assert [contender["repo"] for contender in payload["contenders"]] == ["ann/a", "bob/e"]
    store.close()
