"""Downloads: the log and the boards as CSV, Parquet and JSON, and the two files of the reference competition.

    history.csv   model1,model2,timestamp,result     rated matches; model1 had the blue side; Unix seconds
    elo.csv       rank,author,model,elo,games_played the reference's Elo over the same matches

Files are written to the data folder once and given out again until the arena has moved on.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse
from sqlalchemy import select

from palus.arena.ladder.log import LogRecord
from palus.arena.referee.games import game_of
from palus.arena.referee.result import POINTS
from palus.errors import StorageError
from palus.store.tables import annulments, matches
from palus.web.api.leaderboard import LeaderboardRow, leaderboard
from palus.web.api.router import FAULTS, Env
from palus.web.api.view import View, Views
from palus.web.security import fault

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}

MATCH_COLUMNS = {
    "seq": "BIGINT",
    "id": "VARCHAR",
    "unit_id": "VARCHAR",
    "leg": "TINYINT",
    "season": "INTEGER",
    "seed": "VARCHAR",
    **{
        f"{side}_{name}": "VARCHAR"
        for side in ("blue", "purple")
        for name in ("repo", "revision", "file", "sha256", "owner", "mode")
    },
    "result": "VARCHAR",
    "cause": "VARCHAR",
    "blue_score": "INTEGER",
    "purple_score": "INTEGER",
    "duration_s": "DOUBLE",
    "rated": "BOOLEAN",
    "annulled": "BOOLEAN",
    "finished_ms": "BIGINT",
    "worker": "VARCHAR",
    "replay_sha256": "VARCHAR",
    "hash": "VARCHAR",
}
"""Columns of matches.* and their types in Parquet. seed is text, which every reader of JSON keeps whole. *_score:
what the game counts, as of `ArenaGame.score_word`."""

_FIRST = (
    *("rank", "rank_best", "rank_worst", "repo", "owner", "name", "revision", "sha256", "kind"),
    *("rating", "half_width", "provisional"),
)
_TYPES: dict[object, str] = {int: "INTEGER", float: "DOUBLE", bool: "BOOLEAN"}
RATING_COLUMNS = {
    name: "BIGINT" if name.endswith("_ms") else _TYPES.get(LeaderboardRow.model_fields[name].annotation, "VARCHAR")
    for name in dict.fromkeys((*_FIRST, *LeaderboardRow.model_fields))
}
"""Columns of ratings.* and their types in Parquet: all of the board, who and how strong first."""

Row = Iterable[Any]


def match_rows(view: View, env: str) -> Iterable[Row]:
    """The log of an env, one row per match in order; see MATCH_COLUMNS."""
    wanted, tick_s = select(matches).where(matches.c.env == env).order_by(matches.c.seq), game_of(env).tick_s
    with view.store.read() as connection:
        struck = set(connection.scalars(select(annulments.c.match_id)))
        for row in connection.execution_options(yield_per=2000).execute(wanted):
            record = LogRecord.from_json(row.record)
            sides = [
                value
                for side, who in ((side, side.entity) for side in record.sides)
                for value in (who.repo, who.revision, who.file, who.sha256, who.owner, side.mode)
            ]
            yield (
                *(row.seq, row.id, row.unit_id, row.leg, row.season, str(record.seed), *sides),
                *(row.result, record.cause, *record.score, round(record.duration_ticks * tick_s, 2)),
                *(row.rated, row.id in struck, row.finished_ms, row.worker),
                *(record.replay.sha256 if record.replay else None, row.hash),
            )


def rating_rows(view: View, env: str) -> Iterable[Row]:
    """The board of an env; see RATING_COLUMNS."""
    for line in leaderboard(view, env).rows:
        yield [getattr(line, name) for name in RATING_COLUMNS]


def history_rows(view: View, env: str) -> Iterable[Row]:
    """Rated matches that nobody struck out, in the order of the log."""
    columns = select(matches.c.record, matches.c.finished_ms, matches.c.result)
    kept = matches.c.id.not_in(select(annulments.c.match_id))
    wanted = columns.where(matches.c.env == env, matches.c.rated, kept).order_by(matches.c.seq)
    with view.store.read() as connection:
        for row in connection.execute(wanted, execution_options={"yield_per": 2000}):
            blue, purple = (side["repo"] for side in json.loads(row.record)["sides"])
            yield blue, purple, row.finished_ms / 1000, POINTS[row.result]


def elo_rows(view: View, env: str) -> Iterable[Row]:
    """The board in the order of the reference's Elo."""
    lines = sorted(leaderboard(view, env).rows, key=lambda line: (-line.elo, line.repo))
    for rank, line in enumerate(lines, start=1):
        yield rank, line.owner, line.name, line.elo, line.games


TABLES: dict[str, tuple[Mapping[str, str], Callable[[View, str], Iterable[Row]]]] = {
    "history.csv": (dict.fromkeys(("model1", "model2", "timestamp", "result"), ""), history_rows),
    "elo.csv": (dict.fromkeys(("rank", "author", "model", "elo", "games_played"), ""), elo_rows),
    **{f"matches.{suffix}": (MATCH_COLUMNS, match_rows) for suffix in MEDIA_TYPES},
    **{f"ratings.{suffix}": (RATING_COLUMNS, rating_rows) for suffix in MEDIA_TYPES},
}
"""Every download of an env by its name: columns with their types where they are needed, and rows."""


def write_table(view: View, env: str, name: str, path: Path) -> None:
    """Write one of `TABLES`: csv, json (an array of objects) or parquet, as the path ends."""
    columns, rows = TABLES[name]
    if path.suffix == ".csv":
        _write_csv(path, columns, rows(view, env))
        return
    import duckdb  # slow to import, needed by few

    source = path.with_suffix(".part.csv")
    try:
        _write_csv(source, columns, rows(view, env))
        target = str(path).replace("'", "''")
        form = "FORMAT json, ARRAY true" if path.suffix == ".json" else "FORMAT parquet, COMPRESSION zstd"
        with duckdb.connect(config={"threads": 1, "memory_limit": "256MB"}) as database:
            database.execute(
                f"COPY (SELECT * FROM read_csv(?, header = true, auto_detect = false, delim = ',', quote = '\"', "
                f"escape = '\"', columns = {columns!r})) TO '{target}' ({form})",
                [str(source)],
            )
    finally:
        source.unlink(missing_ok=True)


def _write_csv(path: Path, header: Iterable[str], rows: Iterable[Row]) -> None:
    """Booleans as true and false, and nothing for what is unknown."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([str(v).lower() if isinstance(v, bool) else v for v in row] for row in rows)


class Exports:
    """Writes and keeps the files. One is written at a time, in a thread of its own: they are large, and who waits for
    one takes no thread from other requests.

    keep_s: a file this young is given out again even when matches were added.
    """

    def __init__(self, views: Views, keep_s: float) -> None:
        self._views, self._keep_s = views, keep_s
        self._folder = views.store.folder / "exports"
        self._thread = ThreadPoolExecutor(1, "palus-downloads")
        self._made: dict[tuple[str, str], tuple[float, View, Path]] = {}

    async def file(self, env: str, name: str) -> Path | None:
        """The file of this name, at most keep_s behind the arena; None for a name or a game that is none of ours."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._find, env, name)

    def close(self) -> None:
        """End the thread, after what it is at: it must not outlive the store."""
        self._thread.shutdown(cancel_futures=True)

    def _find(self, env: str, name: str) -> Path | None:
        view = self._views.current()
        if name not in TABLES or not view.knows(env):
            return None
        made_s, of, path = self._made.get((env, name), (0.0, None, self._folder))
        is_stale = of is None or (of.version != view.version and time.monotonic() - made_s >= self._keep_s)
        if is_stale or not path.is_file():
            with contextlib.suppress(OSError):  # whoever reads the file that is replaced now has time to finish
                os.utime(path)
            path = self._write(view, env, name)
            self._made[env, name] = (time.monotonic(), view, path)
        return path

    def _write(self, view: View, env: str, name: str) -> Path:
        """A new file beside those that are still being sent; files nobody can be reading any more are removed."""
        given_out = {path for _, _, path in self._made.values()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in set(self._folder.iterdir()) - given_out:
                with contextlib.suppress(OSError):  # other web processes write and remove here, too
                    if time.time() - old.stat().st_mtime > 10 * max(self._keep_s, 60.0):
                        old.unlink()
            path = self._folder / f"{env}-{time.time_ns()}-{name}"
            write_table(view, env, name, path)
        except OSError as error:
            raise StorageError(f"{self._folder}: cannot be written ({error.strerror}); free space") from error
        return path


def make_downloads_router(exports: Exports) -> APIRouter:
    """`/api/arena/downloads/{env}/{file}`."""
    router = APIRouter(prefix="/api/arena/downloads", tags=["downloads"], responses=FAULTS)

    @router.get("/{env}/{file}", response_class=FileResponse)
    async def get_download(env: Env, file: str) -> FileResponse:
        """matches or ratings as .csv, .json, .parquet; history.csv and elo.csv as the reference competition's."""
        path = await exports.file(env, file)
        if path is None:
            raise fault(404, "unknown_file", f"There is no download {file[:40]!r}; there are {', '.join(TABLES)}.")
        media_type = MEDIA_TYPES[path.suffix[1:]]
        return FileResponse(path, media_type=media_type, filename=file, headers={"Cache-Control": "no-cache"})

    return router
