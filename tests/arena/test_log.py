"""The match log: what is written is what is read, and nothing can be changed unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from arena_records import record
from sqlalchemy import delete, update
from sqlalchemy.exc import IntegrityError

from palus.arena.log import (
    GENESIS,
    LogRecord,
    append,
    check_chain,
    export_history,
    export_jsonl,
    link,
    read_log,
    read_match,
)
from palus.errors import ArenaError
from palus.store import Store, open_store
from palus.store.tables import matches


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    with store.write() as connection:
        append(connection, [record(0), record(1, result="draw")], finished_ms=1_700_000_000_500)
        append(connection, [record(2, result="void"), record(3, rated=False)], finished_ms=1_700_000_001_000)
    return store


def test_rows_are_read_as_they_were_written_each_chained_to_the_one_before(store: Store) -> None:
    with store.read() as connection:
        rows = list(read_log(connection))
        assert [row.record for row in rows] == [
            record(0),
            record(1, result="draw"),
            record(2, result="void"),
            record(3, rated=False),
        ]
        assert [row.seq for row in rows] == [1, 2, 3, 4]
        assert rows[0].prev_hash == GENESIS
        assert rows[1].hash == link(rows[0].hash, record(1, result="draw").to_json())
        assert [row.seq for row in read_log(connection, after_seq=2)] == [3, 4]
        assert read_match(connection, rows[2].record.id) == rows[2]
        assert read_match(connection, "unknown") is None
        assert check_chain(connection) == 4


def test_a_record_survives_its_json_and_a_newer_one_is_refused() -> None:
    assert LogRecord.from_json(record(5).to_json()) == record(5)
    with pytest.raises(ArenaError, match="schema 2; this palus reads 1"):
        LogRecord.from_json(replace(record(5), schema=2).to_json())
    with pytest.raises(ArenaError, match="not a log record"):
        LogRecord.from_json('{"schema": 1}')


def test_a_match_is_never_logged_twice_and_a_failed_transaction_leaves_nothing(store: Store) -> None:
    with pytest.raises(IntegrityError), store.write() as connection:
        append(connection, [record(9), record(1)], finished_ms=0)
    with store.read() as connection:
        assert check_chain(connection) == 4


@pytest.mark.parametrize("harm", ["change", "remove", "columns"])
def test_a_row_that_was_tampered_with_is_found(store: Store, harm: str) -> None:
    row = matches.c.seq == 2
    with store.write() as connection:
        if harm == "change":
            connection.execute(update(matches).where(row).values(record=record(1, result="win1").to_json()))
        elif harm == "remove":
            connection.execute(delete(matches).where(row))
        else:
            connection.execute(update(matches).where(row).values(result="win2"))
    with store.read() as connection, pytest.raises(ArenaError, match="row 2"):
        check_chain(connection)


def test_history_export_is_the_reference_file_of_rated_matches(store: Store) -> None:
    with store.read() as connection:
        assert "".join(export_history(read_log(connection))) == (
            "model1,model2,timestamp,result\n"
            "ann/striker,bob/keeper,1700000000.5,1.0\n"
            "ann/striker,bob/keeper,1700000000.5,0.5\n"
        )


def test_exported_lines_carry_the_chain(store: Store) -> None:
    with store.read() as connection:
        lines = [json.loads(line) for line in export_jsonl(connection)]
    assert [line["prev_hash"] for line in lines] == [GENESIS, *(line["hash"] for line in lines[:-1])]
    assert lines[1]["result"] == "draw"
