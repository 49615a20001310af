"""Transactions on both databases: all or nothing, and what a block read is still true when it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError, InternalError

from palus.store import Store, open_store
from palus.store.tables import accounts, annulments, matches, tokens


def account(name: str) -> dict[str, object]:
    return {"name": name, "key": name.lower(), "kind": "user", "created_ms": 1}


def names(store: Store) -> list[str]:
    with store.read() as connection:
        return list(connection.execute(select(accounts.c.name).order_by(accounts.c.name)).scalars())


def test_a_block_that_raises_stores_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError, match="half way"), store.write() as connection:
        connection.execute(insert(accounts).values(account("Ada")))
        raise RuntimeError("half way")
    assert names(store) == []
    with store.write() as connection:
        connection.execute(insert(accounts).values(account("Ada")))
    assert names(store) == ["Ada"]


def test_rows_are_numbered_and_names_unique_ignoring_case(store: Store) -> None:
    with store.write() as connection:
        first = connection.execute(insert(accounts).values(account("Ada"))).inserted_primary_key
        second = connection.execute(insert(accounts).values(account("Bob"))).inserted_primary_key
    assert (first[0], second[0]) == (1, 2)
    with pytest.raises(IntegrityError), store.write() as connection:
        connection.execute(insert(accounts).values(account("ADA")))


def test_what_belongs_to_a_deleted_account_goes_with_it(store: Store) -> None:
    with store.write() as connection:
        connection.execute(insert(accounts).values(account("Ada")))
        token = {"account_id": 1, "label": "t", "sha256": "0" * 64, "scopes": "read", "created_ms": 1}
        connection.execute(insert(tokens).values(token))
    with pytest.raises(IntegrityError), store.write() as connection:
        connection.execute(insert(tokens).values({**token, "account_id": 7, "sha256": "1" * 64}))
    with store.write() as connection:
        connection.execute(accounts.delete())
        assert connection.execute(select(func.count()).select_from(tokens)).scalar() == 0


def test_a_reader_is_not_held_up_by_a_writer_and_sees_the_state_before(store: Store) -> None:
    with store.write() as writer:
        writer.execute(insert(accounts).values(account("Ada")))
        assert names(store) == []
    assert names(store) == ["Ada"]


def test_a_reader_sees_one_state_while_others_write_and_changes_nothing(store: Store, url: str | None) -> None:
    query = select(accounts.c.name)
    with store.read() as reader:
        assert reader.scalars(query).all() == []
        with store.write() as writer:
            writer.execute(insert(accounts).values(account("Ada")))
        assert reader.scalars(query).all() == [] and names(store) == ["Ada"]
    if url is not None:
        with store.read() as reader, pytest.raises(InternalError, match="read-only transaction"):
            reader.execute(insert(accounts).values(account("Bob")))
    with store.write() as writer:  # by the connection that the reader had
        writer.execute(insert(accounts).values(account("Bob")))


def test_what_is_stored_on_sqlite_is_on_the_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL: no commit is lost with the power
    store.close()


def test_numbers_and_text_come_back_as_they_were(store: Store) -> None:
    row = {
        "seq": 2**53 - 1, "id": "m", "unit_id": "u", "leg": 1, "env": "SoccerTwos", "season": 1, "blue": "a" * 64,
        "purple": "b" * 64, "result": "draw", "rated": False, "worker": "Jürgen ⚽", "finished_ms": 4_102_444_800_000,
        "record": '{"é":0.1}', "prev_hash": "0" * 64, "hash": "1" * 64, "actions": b"\x00\xff",
    }  # fmt: skip
    with store.write() as connection:
        connection.execute(insert(matches).values(row))
    with store.read() as connection:
        assert dict(connection.execute(select(matches)).mappings().one()) == row


COUNT_UP = """
import sys
from pathlib import Path
from sqlalchemy import select, update
from palus.store import open_store
from palus.store.tables import annulments
store = open_store(Path(sys.argv[1]))
print("ready", flush=True)
input()
for _ in range(int(sys.argv[2])):
    with store.write() as connection:
        seen = connection.execute(select(annulments.c.created_ms)).scalar_one()
        connection.execute(update(annulments).values(created_ms=seen + 1))
"""


def test_two_processes_that_read_and_write_lose_no_update_on_sqlite(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.write() as connection:
        connection.execute(insert(annulments).values(match_id="m", reason="counter", created_ms=0))
    command = [sys.executable, "-c", COUNT_UP, str(tmp_path), "60"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    with store.write() as connection:  # this process counts too
        seen = connection.execute(select(annulments.c.created_ms)).scalar_one()
        connection.execute(update(annulments).values(created_ms=seen + 1))
    faults = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], faults
    with store.read() as connection:
        assert connection.execute(select(annulments.c.created_ms)).scalar_one() == 121
    store.close()
