"""The derived tables: functions of the log, the entries and the stored replays, computed again to the same bytes.

They follow their declaration without numbered steps. When a database is opened, those whose columns were declared
otherwise when they were made are dropped and made anew, empty; the arena's next refresh, or `palus recompute`, fills
them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
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


@dataclass(frozen=True)
class Measure:
    """Marks a number of the board that its page shows in a column of its own, the largest first when sorted by it.

    title: head of the column. explain: shown on it, one sentence. decimals: digits after the point.
    """

    title: str
    explain: str
    decimals: int

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """What the OpenAPI document says of the number."""
        return {**handler(schema), "description": self.explain}


class Standing(BaseModel):
    """What the rated games say of one player: a row of `ratings` and, with the player's names, of the board.

    A field is a column of the table, of the board's JSON and of its downloads, computed by
    `palus.arena.ladder.derive.rating_rows`; with a `Measure` it is a column of the board's page, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    rank: int = Field(description="0 for who is not on the board, such as replaced revisions")
    rank_best: int = Field(description="rank_best..rank_worst: ranks that the results leave open")
    rank_worst: int
    rating: float = Field(description="1200 + joint Bradley-Terry strength")
    half_width: float = Field(description="of the 95 % interval")
    games: int
    wins: int
    draws: int
    losses: int
    elo: Annotated[float, Measure("Elo", "Online Elo: start 1200, K 20, scale 500", decimals=1)]
    openskill_mu: float
    openskill_sigma: float


_SQL_TYPES: dict[object, type[Float[float]] | type[Integer]] = {int: Integer, float: Float}

ratings = Table(
    "ratings",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("sha256", SHA256, primary_key=True),
    *(
        Column(name, _SQL_TYPES[field.annotation], nullable=False, comment=field.description)
        for name, field in Standing.model_fields.items()
        if name != "sha256"
    ),
    Column("variance", Float, nullable=False, comment="of the strength, points squared, for matchmaking"),
    Column("upto_seq", BigInteger, nullable=False, comment="last match that went in"),
)

# What the log adds up to. `intake` says up to where; what was struck out is in none of it.
intake = Table(
    "intake",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("upto_seq", BigInteger, nullable=False, comment="newest match that was taken in"),
    Column("rated_seq", BigInteger, nullable=False, comment="newest of them that counts"),
    Column("rated_ms", BigInteger, nullable=False, comment="when that was logged"),
    Column("seen_seq", BigInteger, nullable=False, comment="newest match that was counted among `matches`"),
    Column("matches", BigInteger, nullable=False, comment="all of the env's, rated or not"),
)

left_out = Table(
    "left_out",
    metadata,
    Column("match_id", String(32), primary_key=True, comment="struck out, and not taken in"),
    Column("env", String(64), nullable=False),
)

pair_sums = Table(
    "pair_sums",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("season", Integer, primary_key=True),
    Column("low", SHA256, primary_key=True, comment="entity, the alphabetically lower of the two"),
    Column("high", SHA256, primary_key=True),
    Column("counts", LargeBinary, nullable=False, comment="`palus.ratings.sums.Sums.counts`: 16 int32, little-endian"),
)

census = Table(
    "census",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("what", String(8), primary_key=True, comment="day, team, cause, length, or all of them"),
    Column("name", String(200), primary_key=True, comment="day of 1970, owner/name, cause, tens of seconds, nothing"),
    Column("games", BigInteger, nullable=False, comment="that count"),
    Column("won", BigInteger, nullable=False, comment="by the team, or by blue"),
    Column("drawn", BigInteger, nullable=False),
    Column("lost", BigInteger, nullable=False),
    Column("ticks", BigInteger, nullable=False, comment="of the game's clock, that they took"),
    Column("first_ms", BigInteger, nullable=False, comment="when the first match was logged, counting or not"),
)

player_sums = Table(
    "player_sums",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("sha256", SHA256, primary_key=True),
    Column("elo", Float, nullable=False, comment="after all its rated games"),
    Column("openskill_mu", Float, nullable=False),
    Column("openskill_sigma", Float, nullable=False),
    Column("last_seq", BigInteger, nullable=False, comment="newest match, rated or not"),
    Column("last_ms", BigInteger, nullable=False, comment="when that was logged"),
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
    Column("elo", Float, nullable=False),
    Column("openskill_mu", Float, nullable=False),
    Column("openskill_sigma", Float, nullable=False),
)

fields = Table(
    "fields",
    metadata,
    Column("env", String(64), primary_key=True),
    Column("upto_seq", BigInteger, nullable=False),
    Column("side_advantage", Float, nullable=False, comment="worth of the blue side, rating points"),
    Column("side_half_width", Float, nullable=False),
    Column("summary", Text, nullable=False, comment="JSON: Nash support, skill, unexplained share, cycles"),
    Column("prior_sd", Float, nullable=False, comment="spread of strengths in the field, points"),
    Column("intervals_seq", BigInteger, nullable=False, comment="last match in half-widths, rank ranges and summary"),
    Column("intervals_ms", BigInteger, comment="when that was logged"),
    Column("covariance", LargeBinary, comment="of ratings, by SHA-256, where few: lower triangle by rows, float32"),
)

play_stats = Table(
    "play_stats",
    metadata,
    Column("match_id", String(32), primary_key=True),
    Column("stats", Text, nullable=False, comment="JSON per side, from the replay: possession, shots, distance, heat"),
)

_MADE_TOGETHER = (
    (ratings,),
    (fields,),
    (intake, left_out, pair_sums, player_sums, census, rating_points),
    (play_stats,),
)
"""Sums are taken back to the last point before a match that was struck out: one is not kept without the other."""

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
