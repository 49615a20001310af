"""Whether the match log is what palus wrote: every row follows from the one before, every column from its record, and
log and annulments end where palus left them.

Who can write to the database can write all of it anew, hashes included. Against that helps a head that was noted
elsewhere: every page shows it at its foot, and `check_chain` compares.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Row, select

from palus.arena.ladder.log import GENESIS, LogRecord, check_head, columns_of, link, lock_log, noted_head, set_head
from palus.errors import ArenaError
from palus.store.tables import annulments, matches

_ROWS_PER_READ = 2000
_BEFORE_FINISHED_MS = 2
"""Schema of records before which `finished_ms` stood beside the record only."""
NOTHING_ANNULLED = hashlib.sha256(b"[]").hexdigest()


def check_chain(connection: Connection, known: tuple[int, str] | None = None) -> int:
    """Compare every row of the log, and the annulments, with what they must be. Returns how many rows that were.

    known: number and hash of a match, as somebody noted them. Raises ArenaError at the first fault.
    """
    head, count = GENESIS, 0
    while rows := connection.execute(
        select(matches).where(matches.c.seq > count).order_by(matches.c.seq).limit(_ROWS_PER_READ)
    ).all():
        for row in rows:
            count += 1
            found = fault(row, count, head)
            if found is not None:
                raise ArenaError(
                    f"match log, row {count} (match {row.id}): {found}; restore the database from a backup"
                )
            head = row.hash
            if known is not None and known[0] == count and known[1] != head:
                raise ArenaError(
                    f"match {count} of the log has the hash {head}, not {known[1]}: the log was written anew since "
                    "that was noted; restore the database from a backup of before"
                )
    check_head(connection)
    if known is not None and known[0] > count:
        raise ArenaError(f"the log ends with match {count}, and had {known[0]} once: its end was cut off")
    _check_annulments(connection)
    return count


def fault(row: Row[Any], seq: int, prev_hash: str) -> str | None:
    """What is wrong with a row of the table, given its place and the hash before it; None when nothing is."""
    if (row.seq, row.prev_hash, row.hash) != (seq, prev_hash, link(prev_hash, row.record)):
        return "the hash chain is broken, a row was changed or removed"
    try:
        record = LogRecord.from_json(row.record)
    except ArenaError as error:
        return f"its record cannot be read ({error})"
    expected = columns_of(record)
    if record.schema < _BEFORE_FINISHED_MS:
        del expected["finished_ms"]
    wrong = [name for name, value in expected.items() if row._mapping[name] != value]
    return f"its columns contradict its record: {', '.join(wrong)}" if wrong else None


def note_annulments(connection: Connection) -> None:
    """Note what is struck out now, in the transaction that adds to it."""
    set_head(connection, "annulments", *_annulments(connection))


def _check_annulments(connection: Connection) -> None:
    lock_log(connection)
    found, noted = _annulments(connection), noted_head(connection, "annulments") or (0, NOTHING_ANNULLED)
    if found != noted:
        raise ArenaError(
            f"{found[0]} matches are struck out, and palus struck out {noted[0]}: the list was changed from outside; "
            "restore the database from a backup"
        )


def _annulments(connection: Connection) -> tuple[int, str]:
    """How many, and the hash of all: sha256 of the JSON of [[match, reason, time], ...] in the order of the matches."""
    rows = connection.execute(select(annulments.c.match_id, annulments.c.reason, annulments.c.created_ms)).all()
    text = json.dumps(sorted(map(list, rows)), separators=(",", ":"))
    return len(rows), hashlib.sha256(text.encode()).hexdigest()
