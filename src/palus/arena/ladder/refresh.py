"""Brings the derived tables up to date with the log: a little at a time while matches go on, or all of it anew.

Both ways end in the same bytes. What a refresh remembers between calls only saves time.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, delete, insert, select, update

from palus.arena.ladder.audit import look_again, strike_out
from palus.arena.ladder.charge import Charge
from palus.arena.ladder.derive import (
    Interval,
    field_row,
    fit_games,
    intervals_of,
    point_rows,
    published,
    rating_rows,
)
from palus.arena.ladder.entries import read_lineup
from palus.arena.ladder.intake import Intake, go_back, load, read_on, save, struck_out
from palus.arena.ladder.log import LogRecord
from palus.arena.ladder.match_files import read_actions, recording_of
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.games import env_build, game_of
from palus.arena.referee.replay import decode_replay
from palus.errors import ArenaError, ReplayError, StorageError
from palus.ratings import bradley_terry
from palus.store import Store
from palus.store.derived import DERIVED, fields, play_stats, rating_points, ratings
from palus.store.engine import now_ms
from palus.store.tables import annulments, matches

logger = logging.getLogger(__name__)

INTERVALS_EVERY_S = 3600.0
"""Intervals of a large field take minutes: they, and what else needs the joint covariance, are published so often."""
_STATS_PER_TRANSACTION = 50
_STATS_PER_REFRESH = 500
"""Replays that one refresh reads: a log that was restored without them must not stop the arena for minutes."""


@dataclass
class _Memory:
    """What is known of one env so far. seen: what the last refresh was made from. exact: what the published intervals
    were made from, and when that is due again."""

    intake: Intake
    seen: object = None
    exact: object = None
    exact_due_s: float = field(default=-float("inf"))


class Refresher:
    """Keeps the derived tables of one store. One at a time; other processes may read and append meanwhile."""

    def __init__(self, store: Store, settings: ArenaSettings) -> None:
        self._store = store
        self._settings = settings
        self._memory: dict[str, _Memory] = {}
        self._stats_seq: int | None = None

    def refresh(self) -> list[str]:
        """Take in what is new. Returns the envs whose published ratings changed."""
        changed = [env for env in self._settings.envs if self._refresh_env(env)]
        for _ in range(_STATS_PER_REFRESH // _STATS_PER_TRANSACTION):
            if not self._read_some_replays():
                break
        return changed

    def recompute(self) -> None:
        """Empty every derived table and fill it again, with the games of the log that are not played any more too.

        Raises ArenaError, and changes nothing, when an arena is in charge of the store. None can be until this ends.
        """
        charge = Charge(self._store)
        if not charge.take():
            raise ArenaError(
                f"{self._store.folder}: an arena runs on this data folder, or on its database, or another recompute "
                "does; stop it first"
            )
        try:
            self._fill_anew()
        finally:
            charge.release()

    def _fill_anew(self) -> None:
        """Statistics are emptied last, just before they are filled: ratings that cannot be made cost none of them."""
        with self._store.read() as connection:
            logged = set(connection.scalars(select(matches.c.env).distinct()))
        envs = (*self._settings.envs, *sorted(logged.difference(self._settings.envs)))
        self._empty(*(table for table in DERIVED if table is not play_stats))
        self._memory.clear()
        for env in envs:
            self._refresh_env(env)
        self._empty(play_stats)
        self._stats_seq = 0
        while self._read_some_replays():
            pass
        for env in envs:  # without what these showed to be false
            self._refresh_env(env)

    def _empty(self, *tables: Table) -> None:
        with self._store.write() as connection:
            for table in tables:
                connection.execute(delete(table))

    def _refresh_env(self, env: str) -> bool:
        """What is known is put back at the end: where something stops half-way it is read again, the store did not."""
        with self._store.read() as connection:
            memory = self._memory.pop(env, None) or _Memory(load(connection, env))
            self._take_in(connection, memory.intake)
            lineup = read_lineup(connection, env, repos_per_owner=self._settings.repos_per_owner)
            ranked = frozenset(lineup.ranked)
            known = memory.intake
            state = (known.games, known.rated_seq, frozenset(known.struck), ranked)
            is_due = state != memory.exact and time.monotonic() >= memory.exact_due_s
            if state == memory.seen and not is_due:
                self._memory[env] = memory
                return False
            columns = (ratings.c.sha256, ratings.c.half_width, ratings.c.rank_best, ratings.c.rank_worst)
            told = connection.execute(select(*columns).where(ratings.c.env == env))
            intervals = {row.sha256: Interval(row.half_width, row.rank_best, row.rank_worst) for row in told}
        sums = known.sums()
        exact = is_due or len(sums) < bradley_terry.SPARSE_FROM
        fitted = fit_games(sums, known.rated_seq, exact=exact)
        summary = None
        if exact:
            intervals = intervals_of(fitted, ranked)
            summary = field_row(env, fitted, ranked, len(known.struck)) | {"intervals_ms": known.rated_ms}
            memory.exact, memory.exact_due_s = state, time.monotonic() + INTERVALS_EVERY_S
        rating = rating_rows(env, fitted, known.online, ranked, intervals)
        with self._store.write() as connection:
            connection.execute(delete(ratings).where(ratings.c.env == env))
            if summary is not None:
                connection.execute(delete(fields).where(fields.c.env == env))
            if rating:
                connection.execute(insert(ratings), rating)
                if summary is not None:
                    connection.execute(insert(fields).values(summary))
                else:
                    fresh = {"upto_seq": fitted.upto_seq, "prior_sd": published(fitted.fit.prior_sd)}
                    connection.execute(update(fields).where(fields.c.env == env).values(fresh))
        memory.seen = state
        self._memory[env] = memory
        return True

    def _take_in(self, connection: Connection, known: Intake) -> None:
        """Bring the sums and the history of ratings up to date."""
        struck = struck_out(connection, known.env)
        before = (known.upto_seq, known.seen_seq, known.struck)
        if struck != known.struck:
            go_back(connection, known, struck)
        later = (rating_points.c.env == known.env) & (rating_points.c.seq > known.upto_seq)
        if connection.execute(select(rating_points.c.seq).where(later).limit(1)).first() is not None:
            with self._store.write() as writing:  # after what was struck out, or saved just before a crash
                writing.execute(delete(rating_points).where(later))

        def at_point() -> None:
            fitted = fit_games(known.sums(), known.rated_seq)
            rows = point_rows(known.env, fitted, known.online, known.pointed, known.rated_ms)
            known.pointed |= {row["sha256"]: row["games"] for row in rows}
            with self._store.write() as writing:
                writing.execute(insert(rating_points), rows)

        read_on(connection, known, at_point)
        if (known.upto_seq, known.seen_seq, known.struck) != before:
            with self._store.write() as writing:
                save(writing, known)

    def _read_some_replays(self) -> bool:
        """Statistics of the next replays that have none yet; False when there is none left.

        A replay that is missing or damaged is passed over, and told of once. A match that its own actions contradict is
        looked at again at once, and costs who sent it its trust.
        """
        with self._store.read() as connection:
            if self._stats_seq is None:  # not the whole log again at every start
                measured = matches.c.id.in_(select(play_stats.c.match_id))
                newest = select(matches.c.seq).where(measured).order_by(matches.c.seq.desc()).limit(1)
                self._stats_seq = connection.scalar(newest) or 0
            wanted = select(matches.c.seq, matches.c.id, matches.c.record).where(matches.c.seq > self._stats_seq)
            batch = connection.execute(wanted.order_by(matches.c.seq).limit(_STATS_PER_TRANSACTION)).all()
            there = play_stats.c.match_id.in_([row.id for row in batch])
            done = set(connection.scalars(select(play_stats.c.match_id).where(there)))
        doubtful: list[LogRecord] = []
        found = [(row.id, self._statistics(row.id, row.record, doubtful)) for row in batch if row.id not in done]
        rows = [{"match_id": match_id, "stats": stats} for match_id, stats in found if stats is not None]
        for record in doubtful:  # first: the batch is not read again once its statistics are there
            self._look_again(record)
        if rows:
            with self._store.write() as connection:
                connection.execute(insert(play_stats), rows)
        self._stats_seq = batch[-1].seq if batch else self._stats_seq
        return bool(batch)

    def _look_again(self, record: LogRecord) -> None:
        with self._store.read() as connection:
            if connection.scalar(select(annulments.c.match_id).where(annulments.c.match_id == record.id)) is not None:
                return
        found = look_again(self._store, record.id)
        with self._store.write() as connection:
            for sentence in strike_out(connection, [found], {record.id: record.runner.worker}, now_ms()):
                logger.error("audit: %s", sentence)

    def _statistics(self, match_id: str, line: str, doubtful: list[LogRecord]) -> str | None:
        """doubtful: where a record goes that its own actions contradict in the build that is here."""
        try:
            record = LogRecord.from_json(line)
            game = game_of(record.env)
            if game.filmed or (record.replay is None and record.actions is None):
                return None
            if record.replay is None:
                recording = recording_of(record, read_actions(self._store, record))
            else:  # of an older palus
                replay = self._store.blobs.read(record.replay.sha256)
                recording = decode_replay(replay, source=f"match {record.id}").recordings[0]
            statistics = game.play_statistics(recording)
        except ReplayError as error:  # a stranger may have sent it, and fills no log
            logger.debug("no play statistics of match %s: %s", match_id, error)
            if record.replay is None and env_build(record.env).build_hash == record.build.build_hash:
                doubtful.append(record)
            return None
        except (StorageError, ArenaError) as error:
            logger.warning("no play statistics of match %s: %s", match_id, error)
            return None
        except Exception:  # a file that nobody foresaw costs its own statistics, not everybody's ratings
            logger.exception("no play statistics of match %s", match_id)
            return None
        return None if statistics is None else json.dumps(statistics, sort_keys=True, separators=(",", ":"))
