"""What the arena is doing now: queue, workers, why a model is not ranked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, func, select

from palus.arena.chain import NOTHING_ANNULLED
from palus.arena.log import GENESIS, noted_head
from palus.arena.workers import ALIVE_MS, untended
from palus.store.engine import now_ms
from palus.store.tables import jobs, workers
from palus.web.api.unranked import unranked
from palus.web.api.view import View
from palus.web.shapes import Head, HourCount, JobCounts, RunningJob, Status, WorkerLine

HOUR_MS = 3_600_000
UNRANKED = 200
WORKERS = 100
_STATES = ("ready", "leased", "done", "failed")


def log_head(connection: Connection) -> Head:
    """Where the match log ends now."""
    seq, digest = noted_head(connection, "matches") or (0, GENESIS)
    annulled, annulled_hash = noted_head(connection, "annulments") or (0, NOTHING_ANNULLED)
    return Head(seq=seq, hash=digest, annulled=annulled, annulled_hash=annulled_hash)


def status(view: View, connection: Connection, mode: str) -> Status:
    """The state of the arena. mode: continuous or rounds."""
    now = now_ms()
    hours = _hours(view, now)
    head = log_head(connection)
    running = connection.execute(select(jobs).where(jobs.c.state == "leased").order_by(jobs.c.id).limit(WORKERS))
    seen = connection.execute(select(workers).order_by(workers.c.last_seen_ms.desc()).limit(WORKERS))
    left_out = unranked(view, view.envs())
    return Status(
        now_ms=now,
        mode=mode,
        matches=view.log.n,
        matches_last_hour=int((view.log["finished_ms"] > now - HOUR_MS).sum()),
        hours=hours,
        ratings_behind=_behind(view),
        jobs=_job_counts(connection),
        running=[_running(row) for row in running],
        untended=untended(connection, now),
        workers=[_worker(row, now) for row in seen],
        unranked=left_out[:UNRANKED],
        unranked_of=len(left_out),
        head_seq=head.seq,
        head_hash=head.hash,
    )


def _hours(view: View, now: int) -> list[HourCount]:
    first = (now // HOUR_MS - 23) * HOUR_MS
    ended = view.log["finished_ms"]
    counts = np.bincount((ended[(ended >= first) & (ended <= now)] - first) // HOUR_MS, minlength=24)
    return [HourCount(start_ms=first + hour * HOUR_MS, matches=int(counts[hour])) for hour in range(24)]


def _behind(view: View) -> int:
    """Counted matches after the last one that a fit included."""
    fitted = np.array([_fitted(view, env) for env in view.log.envs.texts] or [0], np.int64)
    return int((view.counts & (view.log["seq"] > fitted[view.log["env"]])).sum())


def _fitted(view: View, env: str) -> int:
    field = view.roster.fields.get(env)
    return field.upto_seq if field else 0


def _job_counts(connection: Connection) -> list[JobCounts]:
    counted: dict[str, dict[str, int]] = {}
    wanted = select(jobs.c.kind, jobs.c.state, func.count()).group_by(jobs.c.kind, jobs.c.state)
    for kind, state, count in connection.execute(wanted):
        counted.setdefault(kind, dict.fromkeys(_STATES, 0))[state] = count
    return [JobCounts(kind=kind, **counted[kind]) for kind in sorted(counted)]


def _running(row: Row[Any]) -> RunningJob:
    return RunningJob(
        id=row.id,
        kind=row.kind,
        what=_phrase(json.loads(row.payload)) or row.key,
        worker=row.worker or "",
        attempts=row.attempts,
        lease_until_ms=row.lease_until_ms,
    )


def _phrase(payload: dict[str, Any]) -> str:
    """Who plays whom, or whose model is checked."""
    if "contenders" in payload:
        return " against ".join(contender["repo"] for contender in payload["contenders"])
    return str(payload["contender"]["repo"]) if "contender" in payload else ""


def _worker(row: Row[Any], now: int) -> WorkerLine:
    return WorkerLine(
        name=row.name,
        isolation=row.isolation,
        platform=json.loads(row.platform),
        first_seen_ms=row.first_seen_ms,
        last_seen_ms=row.last_seen_ms,
        alive=now - row.last_seen_ms < ALIVE_MS,
        trusted=row.trusted,
        matches=row.matches,
        suspended=row.suspended,
    )
