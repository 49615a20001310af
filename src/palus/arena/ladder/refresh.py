"""Brings the derived tables up to date with the log: a little at a time while matches go on, or all of it anew.

Both ways end in the same bytes. What a refresh remembers between calls only saves time.
"""

from __future__ import annotations

import itertools
import json
import logging
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, func, insert, select

from palus.arena.ladder.derive import Fitted, field_row, fit_games, point_counts, point_rows, rating_rows
from palus.arena.ladder.entries import board
from palus.arena.ladder.log import LogRecord
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.games import game_of
from palus.arena.referee.replay import decode_replay
from palus.arena.referee.result import POINTS
from palus.errors import ArenaError, ReplayError, StorageError
from palus.ratings.games import Played
from palus.ratings.online import Skill, replay, taken_in
from palus.store import Store
from palus.store.derived import DERIVED, fields, play_stats, rating_points, ratings
from palus.store.tables import annulments, matches

logger = logging.getLogger(__name__)

_STATS_PER_TRANSACTION = 50
_STATS_PER_REFRESH = 500
"""Replays that one refresh reads: a log that was restored without them must not stop the arena for minutes."""


@dataclass
class _Memory:
    """What is known of one env's games so far. upto_seq: newest match that was looked at; at_ms: by log number.
    skills: after the history. seen: what the last refresh was made from."""

    history: list[Played] = field(default_factory=list)
    upto_seq: int = 0
    at_ms: dict[int, int] = field(default_factory=dict)
    skills: dict[str, Skill] = field(default_factory=dict)
    annulled: int = 0
    fitted: Fitted | None = None
    seen: object = None


class Refresher:
    """Keeps the derived tables of one store. One at a time; other processes may read and append meanwhile."""

    def __init__(self, store: Store, settings: ArenaSettings) -> None:
        self._store = store
        self._settings = settings
        self._memory: dict[str, _Memory] = {}
        self._stats_seq = 0

    def fitted(self, env: str) -> Fitted | None:
        """The joint fit of the last refresh."""
        memory = self._memory.get(env)
        return memory.fitted if memory else None

    def refresh(self) -> list[str]:
        """Take in what is new. Returns the envs whose published ratings changed."""
        changed = [env for env in self._settings.envs if self._refresh_env(env)]
        for _ in range(_STATS_PER_REFRESH // _STATS_PER_TRANSACTION):
            if not self._read_some_replays():
                break
        return changed

    def recompute(self) -> None:
        """Empty every derived table and fill it again."""
        with self._store.write() as connection:
            for table in DERIVED:
                connection.execute(delete(table))
        self._memory.clear()
        self._stats_seq = 0
        self.refresh()
        while self._read_some_replays():
            pass

    def _refresh_env(self, env: str) -> bool:
        with self._store.read() as connection:
            memory = self._load(connection, env)
            ranked = frozenset(board(connection, env, repos_per_owner=self._settings.repos_per_owner))
        state = (len(memory.history), memory.annulled, ranked)
        if state == memory.seen:
            return False
        fitted = memory.fitted = fit_games(memory.history)
        rating = rating_rows(env, memory.history, fitted, memory.skills, ranked)
        summary = field_row(env, fitted, ranked, memory.annulled)
        self._refresh_points(env, memory)
        with self._store.write() as connection:
            connection.execute(delete(ratings).where(ratings.c.env == env))
            connection.execute(delete(fields).where(fields.c.env == env))
            if rating:
                connection.execute(insert(ratings), rating)
                connection.execute(insert(fields).values(summary))
        memory.seen = state
        return True

    def _load(self, connection: Connection, env: str) -> _Memory:
        """The env's memory with the rated games of the log, without those that were struck out since."""
        memory = self._memory.setdefault(env, _Memory())
        annulled = connection.execute(
            select(func.count()).select_from(annulments.join(matches, matches.c.id == annulments.c.match_id))
        ).scalar_one()
        struck = select(annulments.c.match_id)
        if annulled != memory.annulled:
            memory.annulled, gone = annulled, set(connection.scalars(struck))
            kept = [game for game in memory.history if game.id not in gone]
            if len(kept) < len(memory.history):
                memory.history, memory.skills = kept, replay(kept)
        wanted = (matches.c.env == env) & matches.c.rated & (matches.c.seq > memory.upto_seq)
        wanted &= matches.c.id.not_in(struck)
        columns = [matches.c[name] for name in ("seq", "id", "unit_id", "blue", "purple", "result", "finished_ms")]
        new = []
        for row in connection.execute(select(*columns).where(wanted).order_by(matches.c.seq)):
            new.append(Played(row.seq, row.id, row.unit_id, row.blue, row.purple, POINTS[row.result]))
            memory.upto_seq, memory.at_ms[row.seq] = row.seq, row.finished_ms
        memory.history += new
        memory.skills = taken_in(memory.skills, new)
        return memory

    def _refresh_points(self, env: str, memory: _Memory) -> None:
        """Append the points that are missing, each in a transaction of its own: a restart goes on where it stopped.

        Those after the first game that was struck out stand after other games now, and are made again.
        """
        ends = list(point_counts(len(memory.history)))
        seqs = [memory.history[end - 1].order for end in ends]
        own = rating_points.c.env == env
        with self._store.read() as connection:
            stored = connection.scalars(select(rating_points.c.seq).where(own).distinct().order_by(rating_points.c.seq))
            found = list(stored)
        sound = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(found, seqs, strict=False)))
        if sound < len(found):
            with self._store.write() as connection:
                connection.execute(delete(rating_points).where(own, rating_points.c.seq >= found[sound]))
        for start, end in list(itertools.pairwise((0, *ends)))[sound:]:
            rows = point_rows(env, memory.history, start, end, memory.at_ms)
            with self._store.write() as connection:
                connection.execute(insert(rating_points), rows)

    def _read_some_replays(self) -> bool:
        """Statistics of the next replays that have none yet; False when there is none left.

        A replay that is missing or damaged is passed over, and told of once.
        """
        with self._store.read() as connection:
            wanted = select(matches.c.seq, matches.c.id, matches.c.record).where(matches.c.seq > self._stats_seq)
            todo = wanted.where(matches.c.id.not_in(select(play_stats.c.match_id))).order_by(matches.c.seq)
            batch = connection.execute(todo.limit(_STATS_PER_TRANSACTION)).all()
        found = [(row.id, self._statistics(row.id, row.record)) for row in batch]
        rows = [{"match_id": match_id, "stats": stats} for match_id, stats in found if stats is not None]
        if rows:
            with self._store.write() as connection:
                connection.execute(insert(play_stats), rows)
        self._stats_seq = batch[-1].seq if batch else self._stats_seq
        return bool(batch)

    def _statistics(self, match_id: str, line: str) -> str | None:
        try:
            record = LogRecord.from_json(line)
            game = game_of(record.env)
            if record.replay is None or game.filmed:
                return None
            replay = decode_replay(self._store.blobs.read(record.replay.sha256), source=f"match {record.id}")
            statistics = game.play_statistics(replay.recordings[0])
        except (StorageError, ReplayError, ArenaError) as error:
            logger.warning("no play statistics of match %s: %s", match_id, error)
            return None
        except Exception:  # a file that nobody foresaw costs its own statistics, not everybody's ratings
            logger.exception("no play statistics of match %s", match_id)
            return None
        return None if statistics is None else json.dumps(statistics, sort_keys=True, separators=(",", ":"))
