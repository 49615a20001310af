"""A part of the match log as columns, so that a page over many matches is a few array operations.

Parts are one player's matches, or those that the sums of the log do not include yet; nobody holds the log as a whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, Select, select

from palus.arena.referee import result
from palus.arena.referee.games import game_of
from palus.arena.referee.result import Verdict
from palus.store.tables import annulments, matches

VERDICTS = get_args(Verdict)
POINTS = np.array([result.POINTS.get(verdict, np.nan) for verdict in VERDICTS])
"""Of the blue side, by index into VERDICTS; NaN where nobody gets any."""
FORFEITS = np.array([verdict.startswith("forfeit") for verdict in VERDICTS])

MOST = 100_000
"""Rows that one page looks at, the newest: a house player may have more matches than a page can wait for."""
_READ = ("seq", "id", "unit_id", "leg", "env", "blue", "purple", "result", "rated", "finished_ms", "record")
_UNKNOWN_VERDICT = VERDICTS.index("void")
_DTYPES: dict[str, str] = {
    "seq": "i8",
    "id": "S32",
    "unit": "i8",
    "leg": "i1",
    "env": "i2",
    "blue": "i4",
    "purple": "i4",
    "blue_repo": "i4",
    "purple_repo": "i4",
    "verdict": "i1",
    "cause": "i2",
    "rated": "?",
    "struck": "?",
    "has_replay": "?",
    "finished_ms": "i8",
    "ticks": "i4",
    "blue_score": "i2",
    "purple_score": "i2",
}

Array = NDArray[Any]


class TextNumbers(dict[str, int]):
    """Text to small numbers, in order of appearance; a new text gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self.texts)
        self.texts.append(text)
        return number


@dataclass(frozen=True)
class LogColumns:
    """`n` matches in the order of the log. Columns are [n]; names give meaning to their numbers.

    blue, purple: index into `entities` (SHA-256). *_repo: index into `repos` (owner/name). env, cause: into theirs.
    unit: a number per mirrored pair. verdict: index into VERDICTS. ticks: of the game's clock.
    """

    n: int = 0
    arrays: dict[str, Array] = field(
        default_factory=lambda: {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}
    )
    entities: TextNumbers = field(default_factory=TextNumbers)
    repos: TextNumbers = field(default_factory=TextNumbers)
    envs: TextNumbers = field(default_factory=TextNumbers)
    causes: TextNumbers = field(default_factory=TextNumbers)

    def __getitem__(self, column: str) -> Array:
        return self.arrays[column][: self.n]

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """[n] matches with a result that nobody struck out."""
        return np.asarray((self["verdict"] != VERDICTS.index("void")) & ~self["struck"])

    @cached_property
    def counts(self) -> NDArray[np.bool_]:
        """[n] those of them that ratings use."""
        return np.asarray(self.valid & self["rated"])

    def points(self, rows: Array | slice = slice(None)) -> NDArray[np.float64]:
        """Points of the blue side in these rows, NaN for void."""
        return np.asarray(POINTS[self["verdict"][rows]], np.float64)

    def id_text(self, row: int) -> str:
        """Id of the match in this row."""
        return bytes(self["id"][row]).decode("ascii")


def read_columns(connection: Connection, *wanted: ColumnElement[bool], most: int = MOST) -> LogColumns:
    """The matches for which all of this holds, in the order of the log; the newest `most` of them."""
    reasons = annulments.c.reason.is_not(None).label("struck")
    columns: Select[Any] = select(*(matches.c[name] for name in _READ), reasons)
    of_all = columns.select_from(matches.outerjoin(annulments, annulments.c.match_id == matches.c.id))
    newest = select(matches.c.seq).where(*wanted).order_by(matches.c.seq.desc())
    since = connection.scalar(newest.offset(most - 1).limit(1)) or 0
    found = LogColumns()
    those = of_all.where(*wanted, matches.c.seq >= since).order_by(matches.c.seq).limit(most)
    rows = connection.execute(those, execution_options={"yield_per": 2000})
    values = [_values(found, row) for row in rows]
    if not values:
        return found
    table = zip(_DTYPES.items(), zip(*values, strict=True), strict=True)
    return replace(found, n=len(values), arrays={name: np.array(column, dtype) for (name, dtype), column in table})


def _values(columns: LogColumns, row: Row[Any]) -> tuple[Any, ...]:
    """One match, in the order of _DTYPES."""
    record = json.loads(row.record)
    blue, purple = record["sides"]
    score = record.get("score") or (0, 0)
    game = game_of(row.env)
    return (
        row.seq,
        row.id.encode("ascii"),
        _unit_number(row.unit_id),
        row.leg,
        columns.envs[row.env],
        columns.entities[row.blue],
        columns.entities[row.purple],
        columns.repos[blue["repo"]],
        columns.repos[purple["repo"]],
        VERDICTS.index(row.result) if row.result in VERDICTS else _UNKNOWN_VERDICT,
        columns.causes[record.get("cause") or "unknown"],
        row.rated,
        row.struck,
        bool(record.get("replay") or record.get("actions")),
        row.finished_ms,
        _within(record.get("duration_ticks") or 0, 0, game.max_ticks),
        _within(score[0], -game.max_score, game.max_score),
        _within(score[1], -game.max_score, game.max_score),
    )


def _within(number: int, low: int, high: int) -> int:
    """Old logs may hold numbers that no match has and no column."""
    return max(low, min(number, high))


def _unit_number(unit_id: str) -> int:
    """64 bits: among a million pairs, two share a number once in 10^7 logs."""
    return int.from_bytes(hashlib.blake2b(unit_id.encode(), digest_size=8).digest(), signed=True)
