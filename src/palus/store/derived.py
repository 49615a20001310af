"""The derived tables: functions of the log, the entries and the stored replays, computed again to the same bytes.

They follow their declaration without numbered steps. When a database is opened, those whose columns were declared
otherwise when they were made are dropped and made anew, empty; the arena's next refresh, or `palus recompute`, fills
them.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
)

from palus.store.tables import SHA256, derived_tables, metadata

ratings = Table(
    "ratings",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("sha256", SHA256, primary_key=True),
    Column("rank", Integer, nullable=False),
    Column("rank_best", Integer, nullable=False),
    Column("rank_worst", Integer, nullable=False),
    Column("rating", Float, nullable=False, comment="1200 + joint Bradley-Terry strength"),
    Column("half_width", Float, nullable=False, comment="of the 95 % interval"),
    Column("games", Integer, nullable=False),
    Column("wins", Integer, nullable=False),
    Column("draws", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("elo", Float, nullable=False, comment="the reference's formula over the same log"),
    Column("openskill_mu", Float, nullable=False),
    Column("openskill_sigma", Float, nullable=False),
    Column("upto_seq", BigInteger, nullable=False, comment="last match that went in"),
)

rating_points = Table(
    "rating_points",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("sha256", SHA256, primary_key=True),
    Column("seq", BigInteger, primary_key=True, comment="after this match of the log"),
    Column("at_ms", BigInteger, nullable=False, comment="when that match ended"),
    Column("rating", Float, nullable=False),
    Column("half_width", Float, nullable=False),
    Column("games", Integer, nullable=False),
)

fields = Table(
    "fields",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("upto_seq", BigInteger, nullable=False),
    Column("side_advantage", Float, nullable=False, comment="worth of the blue side, rating points"),
    Column("side_half_width", Float, nullable=False),
    Column("summary", Text, nullable=False, comment="JSON: Nash support, skill, unexplained share, cycles"),
    Column("covariance", LargeBinary, comment="of the ratings, by SHA-256: lower triangle by rows, float32"),
)

play_stats = Table(
    "play_stats",
    metadata,
    Column("match_id", String(32), primary_key=True),
    Column("stats", Text, nullable=False, comment="JSON per side, from the replay: possession, shots, distance, heat"),
)

_MADE_TOGETHER = ((ratings,), (rating_points, fields), (play_stats,))
"""`fields` tells which annulments the points left out, so one is not kept without the other."""

DERIVED = tuple(table for tables in _MADE_TOGETHER for table in tables)
"""Tables that `recompute` may empty."""


def digest(table: Table) -> str:
    """Of what a table must be made anew for; comments are free."""
    columns = [(column.name, str(column.type), column.nullable, column.primary_key) for column in table.columns]
    return hashlib.sha256(repr((columns, sorted(str(index.name) for index in table.indexes))).encode()).hexdigest()


def outdated(connection: Connection) -> list[Table]:
    """Tables that are missing, declared otherwise than when they were made, or declared no longer."""
    noted = {row.name: row.digest for row in connection.execute(select(derived_tables))}
    changed = [tables for tables in _MADE_TOGETHER if any(noted.get(t.name) != digest(t) for t in tables)]
    dropped = noted.keys() - {table.name for table in DERIVED}
    return [table for tables in changed for table in tables] + [Table(name, MetaData()) for name in sorted(dropped)]


def renew(connection: Connection) -> None:
    """Drop what is outdated and make what is declared."""
    for table in outdated(connection):
        table.drop(connection, checkfirst=True)
        connection.execute(delete(derived_tables).where(derived_tables.c.name == table.name))
        if table in DERIVED:
            table.create(connection)
            connection.execute(insert(derived_tables).values(name=table.name, digest=digest(table)))
