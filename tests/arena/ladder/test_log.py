"""The match log: what is written is what is read, and nothing can be changed unseen."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import old_log
import pytest
from arena_records import read_log, record
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from palus.arena.ladder.audit import annul_unit
from palus.arena.ladder.log import LogRecord, StoredBytes, append, check_chain, check_head, read_match
from palus.arena.ladder.scheduler import Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.result import SCHEMA
from palus.errors import ArenaError
from palus.store import Store, open_store
from palus.store.tables import annulments, log_heads, matches

_LOG = StoredBytes(hashlib.sha256(b"log").hexdigest(), 3)
SECOND = replace(record(1, result="draw"), actions=_LOG)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    with store.write() as connection:
        append(connection, [record(0), SECOND], finished_ms=1_700_000_000_500, actions={SECOND.id: b"log"})
        append(connection, [record(2, result="void"), record(3, rated=False)], finished_ms=1_700_000_001_000)
    return store


GOLDEN = (
    "d0d428e9d697aa7dd468c1887776f5b7fb99f42f546238f21ac36eb797eaea61",
    "de40f848f1faa93dea78929e84bf934f996f696345f670b60a7fa37424dc4f80",
)
"""Hashes of the first two rows below, computed by `sha256sum` from the hash before, a line feed and the record."""


def test_the_hashes_of_the_first_rows_are_known(store: Store) -> None:
    with store.read() as connection:
        hashes = connection.scalars(select(matches.c.hash).order_by(matches.c.seq)).all()
    assert tuple(hashes[:2]) == GOLDEN


def chained(texts: list[str]) -> list[str]:
    """The hashes of a log with these records, by the words of docs/arena.md."""
    hashes = ["0" * 64]
    for text in texts:
        hashes.append(hashlib.sha256(hashes[-1].encode() + b"\n" + text.encode()).hexdigest())
    return hashes[1:]


def test_rows_are_read_as_they_were_written_each_chained_to_the_one_before(store: Store) -> None:
    with store.read() as connection:
        records = read_log(connection)
        assert [replace(logged, finished_ms=0) for logged in records] == [
            record(0),
            SECOND,
            record(2, result="void"),
            record(3, rated=False),
        ]
        rows = connection.execute(select(matches).order_by(matches.c.seq)).all()
        assert [logged.finished_ms for logged in records] == [row.finished_ms for row in rows]
        assert [row.seq for row in rows] == [1, 2, 3, 4]
        texts = [row.record for row in rows]
        assert [row.hash for row in rows] == chained(texts)
        assert [row.prev_hash for row in rows] == ["0" * 64, *chained(texts)[:-1]]
        assert read_match(connection, records[2].id) == records[2]
        assert read_match(connection, "unknown") is None
        assert check_chain(connection) == 4


def test_a_record_survives_its_json_and_a_newer_one_is_refused() -> None:
    assert LogRecord.from_json(record(5).to_json()) == record(5)
    with pytest.raises(ArenaError, match=f"schema {SCHEMA + 1}; this palus reads 1 to {SCHEMA}"):
        LogRecord.from_json(replace(record(5), schema=SCHEMA + 1).to_json())
    with pytest.raises(ArenaError, match="not a log record"):
        LogRecord.from_json('{"schema": 1}')


def test_a_match_is_never_logged_twice_and_a_failed_transaction_leaves_nothing(store: Store) -> None:
    with pytest.raises(IntegrityError), store.write() as connection:
        append(connection, [record(9), record(1)], finished_ms=0)
    with store.read() as connection:
        assert check_chain(connection) == 4


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", "another"),
        ("unit_id", "another"),
        ("leg", 2),
        ("env", "doom_duel"),
        ("season", 7),
        ("blue", "0" * 64),
        ("purple", "0" * 64),
        ("result", "win2"),
        ("rated", False),
        ("worker", "another"),
        ("finished_ms", 5),
        ("record", record(1, result="win1").to_json()),
        ("prev_hash", "0" * 64),
        ("hash", "0" * 64),
        ("seq", 20),
        ("actions", b"another"),
        ("actions", None),
    ],
)
def test_no_column_of_a_row_can_be_changed_unseen(store: Store, column: str, value: object) -> None:
    assert column in matches.c and len(matches.c) == 16
    with store.write() as connection:
        connection.execute(update(matches).where(matches.c.seq == 2).values({column: value}))
    with store.read() as connection, pytest.raises(ArenaError, match=r"row [23]"):
        check_chain(connection)


def test_a_loser_s_rated_column_raises_nobody_unseen(store: Store) -> None:
    """The columns are what ratings are computed from; the record alone being whole is not enough."""
    with store.write() as connection:
        connection.execute(update(matches).where(matches.c.result == "win1").values(rated=False))
    with store.read() as connection, pytest.raises(ArenaError, match=r"row 1 .*contradict its record: rated"):
        check_chain(connection)


@pytest.mark.parametrize("last", [2, 4])
def test_a_row_that_is_missing_is_missed_at_the_end_too(store: Store, last: int) -> None:
    with store.write() as connection:
        connection.execute(delete(matches).where(matches.c.seq == last))
    with store.read() as connection, pytest.raises(ArenaError, match=r"row 2|ends with match 3"):
        check_chain(connection)
    if last == 4:
        with pytest.raises(ArenaError, match="palus left it at 4"), store.write() as connection:
            append(connection, [record(9)], finished_ms=1)
        with pytest.raises(ArenaError, match="cut off"):
            Scheduler(store, ArenaSettings(), []).tick()


def test_a_log_that_was_written_anew_with_all_its_hashes_contradicts_a_head_that_was_noted(store: Store) -> None:
    with store.read() as connection:
        number, noted = check_head(connection)
        assert check_chain(connection, (number, noted)) == 4
        assert check_chain(connection, (2, GOLDEN[1])) == 4
        with pytest.raises(ArenaError, match="ends with match 4, and had 5"):
            check_chain(connection, (5, noted))
    with store.write() as connection:
        connection.execute(delete(matches))
        connection.execute(delete(log_heads))
        append(connection, [record(0), record(1, result="win1"), record(2), record(3)], finished_ms=1_700_000_000_500)
    with store.read() as connection:
        assert check_chain(connection) == 4
        with pytest.raises(ArenaError, match="written anew"):
            check_chain(connection, (number, noted))


def test_matches_are_struck_out_by_palus_alone(store: Store) -> None:
    with store.write() as connection:
        assert annul_unit(connection, record(0).id, "forged", now_ms=5) == 1
    with store.read() as connection:
        check_chain(connection)
    for change in (
        insert(annulments).values(match_id=record(1).id, reason="", created_ms=1),
        update(annulments).values(reason="another"),
        delete(annulments),
    ):
        with store.engine.connect() as connection, connection.begin() as transaction:
            connection.execute(change)
            with pytest.raises(ArenaError, match="palus struck out 1"):
                check_chain(connection)
            transaction.rollback()


def test_records_of_the_first_schema_are_read_and_checked_as_they_are(store: Store) -> None:
    text = json.dumps({k: v for k, v in json.loads(record(0).to_json()).items() if k != "finished_ms"} | {"schema": 1})
    with store.write() as connection:
        connection.execute(delete(matches).where(matches.c.seq > 1))
        connection.execute(update(matches).values(record=text, hash=chained([text])[0]))
        connection.execute(update(log_heads).values(seq=1, hash=chained([text])[0]))
    with store.read() as connection:
        assert check_chain(connection) == 1
        assert connection.scalar(select(matches.c.finished_ms)) == 1_700_000_000_500


def test_the_log_of_a_palus_whose_entities_were_single_files_is_read_checked_and_added_to(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    columns = ("id", "unit_id", "leg", "season", "result", "rated", "finished_ms")
    with store.write() as connection:
        for seq, (text, hashed) in enumerate(zip(old_log.TEXTS, old_log.HASHES, strict=True), start=1):
            told = json.loads(text)
            row = {name: told[name] for name in columns} | {"seq": seq, "record": text, "hash": hashed}
            row |= {"prev_hash": old_log.HASHES[seq - 2] if seq > 1 else "0" * 64, "env": "SoccerTwos", "worker": "w1"}
            row |= {side: told["sides"][place]["sha256"] for place, side in enumerate(("blue", "purple"))}
            connection.execute(insert(matches).values(row))
        connection.execute(insert(log_heads).values(name="matches", seq=2, hash=old_log.HASHES[1]))
        append(connection, [record(2)], finished_ms=1_700_000_001_000)
    with store.read() as connection:
        assert check_chain(connection, (2, old_log.HASHES[1])) == 3
        records = read_log(connection)
        rows = connection.execute(select(matches).order_by(matches.c.seq)).all()
    assert records[0].sides == record(0).sides  # the same entities as today, under the same names
    assert [row.hash for row in rows[:2]] == list(old_log.HASHES)
    assert [row.record for row in rows[:2]] == list(old_log.TEXTS)
