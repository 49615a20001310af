"""A data folder with many models and a long log of simulated matches, for benchmarks of what reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, update

from palus.arena.ladder.derive import fit_games, intervals_of, rating_rows
from palus.arena.ladder.intake import Intake, read_on, save
from palus.arena.ladder.log import (
    GENESIS,
    LogRecord,
    RunnerInfo,
    StoredBytes,
    append,
    columns_of,
    link,
    set_head,
)
from palus.arena.models.entity import Entity
from palus.arena.referee.games import EnvBuild
from palus.arena.referee.result import Side, Verdict
from palus.ratings.games import Played
from palus.store import Store
from palus.store.derived import fields, rating_points, ratings
from palus.store.engine import now_ms
from palus.store.tables import entries, matches
from ratings_scale import simulate

ENV = "SoccerTwos"
MATCH_MS = 4000
"""Time between the ends of two matches: 240 000 of them span eleven days."""
POINTS = 100
"""Points in the rating history of a model."""
_RESULTS: dict[float, tuple[Verdict, tuple[int, int]]] = {
    1.0: ("win1", (1, 0)),
    0.0: ("win2", (0, 1)),
    0.5: ("draw", (0, 0)),
}
_BATCH = 5000


def fill(store: Store, models: int, count: int) -> None:
    """Entries, matches with an intact hash chain, ratings and their history."""
    history = sorted(simulate(models, count, seed=0), key=lambda game: game.order)
    start_ms = now_ms() - (count + 1) * MATCH_MS
    with store.write() as connection:
        connection.execute(insert(entries), [_entry(number, start_ms) for number in range(models)])
    for begin in range(0, count, _BATCH):
        with store.write() as connection:
            _append_fast(connection, history[begin : begin + _BATCH], begin, start_ms)
    rate(store, start_ms)


def rate(store: Store, start_ms: int) -> None:
    """The log added up, and the joint fit as published ratings; each rating's history is the final one with a bend."""
    known = Intake(ENV)
    with store.read() as connection:
        read_on(connection, known, lambda: None)
    fitted = fit_games(known.sums(), known.rated_seq, exact=True)
    board = frozenset(fitted.sums.names)
    rows = rating_rows(ENV, fitted, known.online, board, intervals_of(fitted, board))
    of_env = {
        "env": ENV,
        "upto_seq": known.rated_seq,
        "intervals_seq": known.rated_seq,
        "prior_sd": fitted.fit.prior_sd,
    }
    with store.write() as connection:
        save(connection, known)
        connection.execute(insert(ratings), rows)
        connection.execute(
            insert(fields).values(of_env | {"side_advantage": 0.0, "side_half_width": 2.0, "summary": json.dumps({})})
        )
        for row in rows:
            connection.execute(insert(rating_points), list(_points(row, known.rated_seq, start_ms)))


def play_on(store: Store, seq: int, models: int) -> None:
    """One more mirrored pair, as a worker would log it."""
    blue, purple = f"model-{seq % models:04d}", f"model-{(seq * 7 + 3) % models:04d}"
    unit = f"new {seq}"
    pair = [
        _record(Played(seq + 1, f"{unit}-0", unit, blue, purple, 1.0), 1),
        _record(Played(seq + 2, f"{unit}-1", unit, purple, blue, 0.5), 2),
    ]
    with store.write() as connection:
        append(connection, pair, now_ms())


def publish_fit(store: Store, seq: int) -> None:
    """What a refit changes for readers: every rating row is replaced."""
    with store.write() as connection:
        connection.execute(update(ratings).values(upto_seq=seq, rating=ratings.c.rating + 1e-6))
        connection.execute(update(fields).values(upto_seq=seq))


def sha_of(text: str) -> str:
    """A made-up SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()


def match_id(number: int) -> str:
    """Id of the match with this number in the log."""
    return sha_of(f"match {number}")[:16]


def repo_of(number: int) -> str:
    """Repository of a model: ten models per owner."""
    return f"student-{number // 10:03d}/model-{number:04d}"


def _entry(number: int, pushed_ms: int) -> dict[str, Any]:
    repo = repo_of(number)
    return {
        "source": "hub",
        "repo": repo,
        "owner": repo.partition("/")[0],
        "revision": sha_of(repo)[:40],
        "env": ENV,
        "files": json.dumps({"SoccerTwos": sha_of(f"model-{number:04d}")}),
        "sha256": sha_of(f"model-{number:04d}"),
        "state": "accepted",
        "details": json.dumps({"p99_ms": 0.21, "operators": ["Gemm", "Sigmoid", "Softmax"]}),
        "pushed_ms": pushed_ms + number,
        "checked_ms": pushed_ms + number,
    }


def _append_fast(connection: Connection, games: list[Played], begin: int, start_ms: int) -> None:
    """Like `palus.arena.ladder.log.append`, in one statement."""
    head = connection.execute(matches.select().order_by(matches.c.seq.desc()).limit(1)).first()
    head_hash = head.hash if head else GENESIS
    rows = []
    for i, game in enumerate(games, start=begin + 1):
        leg = 1 + int(game.id.endswith("-1"))
        record = replace(_record(game._replace(order=i), leg), finished_ms=start_ms + i * MATCH_MS)
        text = record.to_json()
        prev_hash, head_hash = head_hash, link(head_hash, text)
        rows.append(columns_of(record) | {"seq": i, "record": text, "prev_hash": prev_hash, "hash": head_hash})
    connection.execute(insert(matches), rows)
    set_head(connection, "matches", begin + len(rows), head_hash)


def _record(game: Played, leg: int) -> LogRecord:
    result, score = _RESULTS[game.points]
    return LogRecord(
        id=match_id(game.order),
        env=ENV,
        build=EnvBuild(ENV, "1", sha_of("build"), {}),
        seed=game.order * 2**40 + 12345,
        unit_id=sha_of(game.unit)[:16],
        leg=leg,
        season=1,
        round=None,
        rated=True,
        sides=(_side(game.first), _side(game.second)),
        runner=RunnerInfo("0.1.0", "Linux x86_64", {"onnxruntime": "1.31.1", "numpy": "2.4"}, "namespaces", "local-1"),
        result=result,
        cause="time_limit" if result == "draw" else "goal",
        score=score,
        duration_ticks=200 + game.order * 37 % 2800,
        events=(),
        started="2026-01-01T00:00:00Z",
        wall_ms=310.5,
        replay=StoredBytes(sha_of(f"replay {game.order}"), 4200),
        actions=StoredBytes(sha_of(f"actions {game.order}"), 800),
        final_state=sha_of(f"state {game.order}"),
    )


def _side(model: str) -> Side:
    repo = repo_of(int(model.partition("-")[2]))
    return Side(Entity(sha_of(model), repo, sha_of(repo)[:40], (("SoccerTwos", sha_of(model)),)), "stochastic")


def _points(row: dict[str, Any], last_seq: int, start_ms: int) -> Iterator[dict[str, Any]]:
    for i in range(1, POINTS + 1):
        seq = last_seq * i // POINTS
        yield {
            "env": ENV,
            "sha256": row["sha256"],
            "seq": seq,
            "at_ms": start_ms + seq * MATCH_MS,
            "rating": row["rating"] + 40.0 / i,
            "half_width": row["half_width"] * (POINTS / i) ** 0.5,
            "games": row["games"] * i // POINTS,
            **{name: row[name] for name in ("elo", "openskill_mu", "openskill_sigma")},
        }
