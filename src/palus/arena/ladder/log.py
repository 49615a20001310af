"""The match log: one record per match, only ever added to, each row chained to the one before by its hash.

Everything the arena publishes is a function of these records, of the entries and of the settings.
`check_chain` finds any row that was changed, removed or slipped in. Who can write to the database can write all of it
anew, hashes included. Against that helps a head that was noted elsewhere: every page shows it at its foot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from palus.arena.referee.games import EnvBuild
from palus.arena.referee.result import SCHEMA, MatchResult, parts_of
from palus.errors import ArenaError
from palus.store.tables import annulments, log_heads, matches

GENESIS = "0" * 64
"""`prev_hash` of the first row."""
NOTHING_ANNULLED = hashlib.sha256(b"[]").hexdigest()
_ROWS_PER_READ = 2000
_BEFORE_FINISHED_MS = 2
"""Schema of records before which `finished_ms` stood beside the record only."""
_WITH_ACTIONS = 4
"""Schema of records from which on their actions are in their row."""

_CHAIN_LOCK = 0x70616C7573  # any constant: names the advisory lock under which PostgreSQL appends


@dataclass(frozen=True)
class RunnerInfo:
    """Where the match was played. runtimes: package to version."""

    version: str
    platform: str
    runtimes: dict[str, str]
    isolation: str
    worker: str


@dataclass(frozen=True)
class StoredBytes:
    """Bytes that belong to the match: a blob, or in its row."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class LogRecord(MatchResult):
    """A result as it is logged, with where it was played and for what.

    id, unit_id: as the match was ordered. rated: what the scheduler decided; a void match does not rate whatever stands
    here. round: number of the round in `rounds` mode, None where the queue never pauses. replay: a blob, of a game that
    is filmed, or from before schema 4. actions: of a game that repeats. Both None when nothing was played. finished_ms:
    when it was logged; 0 in records of schema 1.
    """

    build: EnvBuild
    season: int
    round: int | None
    rated: bool
    runner: RunnerInfo
    replay: StoredBytes | None
    actions: StoredBytes | None
    finished_ms: int = 0

    @staticmethod
    def from_json(line: str) -> LogRecord:
        """Raises ArenaError when the line is no record, or one of a newer schema."""
        try:
            fields: dict[str, Any] = json.loads(line)
            if fields["schema"] not in range(1, SCHEMA + 1):
                raise ArenaError(
                    f"log record of schema {fields['schema']}; this palus reads 1 to {SCHEMA}: update palus"
                )
            if "build" not in fields:  # before schema 3
                build = fields["env"]
                fields |= {"env": build["id"], "build": build, "final_state": fields.pop("state")}
            fields |= parts_of(fields) | {
                "build": EnvBuild(**fields["build"]),
                "runner": RunnerInfo(**fields["runner"]),
                "replay": StoredBytes(**fields["replay"]) if fields["replay"] else None,
                "actions": StoredBytes(**fields["actions"]) if fields["actions"] else None,
            }
            return LogRecord(**fields)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ArenaError(f"not a log record ({error}): {line[:80]!r}") from error


def link(prev_hash: str, record: str) -> str:
    """Hash of a row: sha256(prev_hash, line feed, record)."""
    return hashlib.sha256(f"{prev_hash}\n{record}".encode()).hexdigest()


def columns_of(record: LogRecord) -> dict[str, Any]:
    """What the columns beside a record repeat of it, so that it can be searched and rated."""
    blue, purple = record.sides
    return {
        "id": record.id,
        "unit_id": record.unit_id,
        "leg": record.leg,
        "env": record.env,
        "season": record.season,
        "blue": blue.entity.sha256,
        "purple": purple.entity.sha256,
        "result": record.result,
        "rated": record.rated and record.points is not None,
        "worker": record.runner.worker,
        "finished_ms": record.finished_ms,
    }


def append(
    connection: Connection,
    records: Sequence[LogRecord],
    finished_ms: int,
    actions: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Add records to the end of the log, all in the caller's transaction.

    actions: of matches that repeat, by id. Blobs that the records name must be stored before. Raises
    sqlalchemy.exc.IntegrityError when a match with one of these ids is in the log already: nothing is ever logged
    twice. Raises ArenaError when the log does not end where it was last left.
    """
    lock_log(connection)
    seq, head = check_head(connection)
    rows = []
    for record in records:
        logged = replace(record, schema=SCHEMA, finished_ms=finished_ms)
        text = logged.to_json()
        prev_hash, head, seq = head, link(head, text), seq + 1
        links = {"seq": seq, "record": text, "prev_hash": prev_hash, "hash": head}
        rows.append(columns_of(logged) | links | {"actions": actions.get(record.id)})
    if rows:
        connection.execute(insert(matches), rows)
        set_head(connection, "matches", seq, head)


def lock_log(connection: Connection) -> None:
    """Let nobody else add to the log, or strike anything out, until this transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's write transactions already wait for each other
        connection.execute(select(func.pg_advisory_xact_lock(_CHAIN_LOCK)))


def check_head(connection: Connection) -> tuple[int, str]:
    """Number and hash of the newest row, (0, GENESIS) for an empty log.

    Raises ArenaError when that is not where palus last left the log.
    """
    newest = select(matches.c.seq, matches.c.hash).order_by(matches.c.seq.desc()).limit(1).subquery()
    noted_row = select(log_heads.c.seq, log_heads.c.hash).where(log_heads.c.name == "matches").subquery()
    both = [select(column).scalar_subquery() for side in (newest, noted_row) for column in side.c]
    row = connection.execute(select(*both)).one()  # in one statement, so that nothing is added in between
    found, noted = (row[0] or 0, row[1] or GENESIS), (row[2] or 0, row[3] or GENESIS)
    if found != noted:
        raise ArenaError(
            f"the match log ends with match {found[0]} ({found[1][:12]}), palus left it at {noted[0]} "
            f"({noted[1][:12]}): rows were cut off or put in from outside; restore the database from a backup"
        )
    return found


def noted_head(connection: Connection, name: str) -> tuple[int, str] | None:
    """Where palus left a table: "matches" or "annulments"."""
    row = connection.execute(select(log_heads.c.seq, log_heads.c.hash).where(log_heads.c.name == name)).first()
    return None if row is None else (row.seq, row.hash)


def set_head(connection: Connection, name: str, seq: int, head: str) -> None:
    """Note where a table ends now, in the transaction that adds to it."""
    values = {"seq": seq, "hash": head}
    if connection.execute(update(log_heads).where(log_heads.c.name == name).values(values)).rowcount == 0:
        connection.execute(insert(log_heads).values({"name": name} | values))


def read_match(connection: Connection, match_id: str) -> LogRecord | None:
    """The record of a match; None when the log has none of that id."""
    record = connection.scalar(select(matches.c.record).where(matches.c.id == match_id))
    return None if record is None else LogRecord.from_json(record)


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
    if record.actions is not None and (row.actions is not None or record.schema >= _WITH_ACTIONS):
        expected |= {"actions": record.actions.sha256}
    found = {**row._mapping, "actions": hashlib.sha256(row.actions or b"").hexdigest()}
    wrong = [name for name, value in expected.items() if found[name] != value]
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
