"""Work that waits to be done, handed out on leases.

A job goes to one worker for a limited time. A worker that vanishes lets its lease run out and the job goes to another;
what the first one sends afterwards is refused, because its lease is void. A job is closed in the transaction that
stores its result, so it is done exactly when the result is there: never twice, never half.

Jobs whose outcome nobody could check later go to trusted workers alone: those that the arena starts itself, and those
whose token says so. So do jobs that workers gave back too often: whether it cannot be done, a trusted one says.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, or_, select, update

from palus.arena.jobs.worker import JobKind, Lease
from palus.arena.referee.games import GAMES
from palus.errors import LeaseError
from palus.store.tables import jobs

PRIORITY_VALIDATE = 20
PRIORITY_ENTRY = 10
PRIORITY_LADDER = 0
PRIORITY_IDLE = -1


def needs_trust(kind: JobKind, env: str) -> bool:
    """Whether what a worker reports of such a job cannot be checked by doing it again.

    A validation measures a machine, and its refusal leaves nothing to play; matches of some games do not repeat.
    """
    game = GAMES.get(env)
    return kind == "validate" or game is None or game.filmed


def enqueue(
    connection: Connection, kind: JobKind, key: str, payload: dict[str, Any], *, priority: int, now_ms: int
) -> bool:
    """Add a job unless there is, or ever was, one of this key. Returns whether it was added.

    payload: `env` in it says which game a worker must be able to play.
    """
    if connection.execute(select(jobs.c.id).where(jobs.c.key == key)).first() is not None:
        return False
    row = {
        "kind": kind,
        "key": key,
        "env": payload["env"],
        "payload": json.dumps(payload, sort_keys=True, separators=(",", ":")),
        "state": "ready",
        "priority": priority,
        "trusted_only": needs_trust(kind, payload["env"]),
        "attempts": 0,
        "created_ms": now_ms,
    }
    connection.execute(insert(jobs).values(row))
    return True


def take(
    connection: Connection, worker: str, games: Collection[str], *, trusted: bool, lease_s: float, now_ms: int
) -> Lease | None:
    """Lease the most urgent job that waits for such a worker, the oldest among equals. None when nothing does."""
    query = select(jobs).where(_ready(games, trusted)).order_by(jobs.c.priority.desc(), jobs.c.id).limit(1)
    row = connection.execute(query.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    lease = Lease(row.id, row.kind, json.loads(row.payload), secrets.token_hex(16), row.attempts + 1)
    change = {
        "state": "leased",
        "worker": worker,
        "lease": lease.secret,
        "lease_until_ms": now_ms + round(1000 * lease_s),
        "attempts": lease.attempts,
    }
    connection.execute(update(jobs).where(jobs.c.id == row.id).values(change))
    return lease


def has_ready(connection: Connection, games: Collection[str], *, trusted: bool) -> bool:
    """Whether a job waits for a worker that can play these games."""
    return connection.execute(select(jobs.c.id).where(_ready(games, trusted)).limit(1)).first() is not None


def void(job_id: int) -> LeaseError:
    """What is raised where a lease does not hold its job any more."""
    return LeaseError(f"job {job_id}: this lease is void, the job went to another worker; drop the result")


def renew(connection: Connection, job_id: int, secret: str, *, lease_s: float, now_ms: int) -> None:
    """Prolong a lease from now on. Raises LeaseError when it is void."""
    change = update(jobs).where(held_by(job_id, secret)).values(lease_until_ms=now_ms + round(1000 * lease_s))
    if connection.execute(change).rowcount == 0:
        raise void(job_id)


def close(connection: Connection, job_id: int, secret: str, *, now_ms: int) -> bool:
    """Mark a leased job as done. Call it in the transaction that stores the result, before storing.

    True: store the result. False: this very lease has closed the job already, its result is stored: the sender did not
    hear our answer. Raises LeaseError when the lease is void.
    """
    change = update(jobs).where(held_by(job_id, secret)).values(state="done", done_ms=now_ms, fault=None)
    if connection.execute(change).rowcount == 1:
        return True
    if connection.scalar(select(jobs.c.id).where(held_by(job_id, secret, "done"))) is None:
        raise void(job_id)
    return False


def give_back(connection: Connection, job_id: int, secret: str, fault: str, *, max_attempts: int, now_ms: int) -> None:
    """A worker could not do its job: put it back. Raises LeaseError when its lease is void.

    After `max_attempts` it waits for trusted workers alone; after as many of theirs it has failed.
    """
    row = connection.execute(select(jobs).where(held_by(job_id, secret))).first()
    if row is None:
        raise void(job_id)
    _put_back(connection, row, fault, max_attempts, now_ms)


def reap(
    connection: Connection, *, max_attempts: int, now_ms: int, dead_workers: tuple[str, ...] = ()
) -> list[Row[Any]]:
    """Take back the jobs whose lease ran out, and all that dead workers hold. Returns rows of those that failed now."""
    overdue = or_(jobs.c.lease_until_ms < now_ms, jobs.c.worker.in_(dead_workers))
    rows = connection.execute(select(jobs).where(jobs.c.state == "leased", overdue).with_for_update()).all()
    fault = "the worker vanished"
    return [row for row in rows if _put_back(connection, row, fault, max_attempts, now_ms)]


def open_jobs(connection: Connection, kind: JobKind, env: str) -> list[dict[str, Any]]:
    """Payloads of a game's jobs that are ready or leased, oldest first."""
    waiting = (jobs.c.kind == kind) & (jobs.c.env == env) & jobs.c.state.in_(("ready", "leased"))
    rows = connection.execute(select(jobs.c.payload).where(waiting).order_by(jobs.c.id))
    return [json.loads(row.payload) for row in rows]


def failed_jobs(connection: Connection, kind: JobKind) -> list[tuple[dict[str, Any], str]]:
    """Payloads of the jobs that were given up, with the reason, oldest first."""
    given_up = (jobs.c.kind == kind) & (jobs.c.state == "failed")
    rows = connection.execute(select(jobs.c.payload, jobs.c.fault).where(given_up).order_by(jobs.c.id))
    return [(json.loads(row.payload), row.fault) for row in rows]


def held_by(job_id: int, secret: str, state: str = "leased") -> ColumnElement[bool]:
    """The job, while this lease is the one that holds it (or closed it, by another state)."""
    return and_(jobs.c.id == job_id, jobs.c.lease == secret, jobs.c.state == state)


def _ready(games: Collection[str], trusted: bool) -> ColumnElement[bool]:
    """Jobs that a worker may take now."""
    ready = (jobs.c.state == "ready") & jobs.c.env.in_(games)
    return ready if trusted else ready & jobs.c.trusted_only.is_(False)


def _put_back(connection: Connection, row: Row[Any], fault: str, max_attempts: int, now_ms: int) -> bool:
    """Whether the job failed for good."""
    exhausted = row.attempts >= max_attempts
    failed = bool(exhausted and row.trusted_only)
    change: dict[str, Any] = {"state": "ready", "lease": None, "lease_until_ms": None, "fault": fault}
    if failed:
        change |= {"state": "failed", "done_ms": now_ms, "fault": f"{fault}; given up after {row.attempts} attempts"}
    elif exhausted:
        change |= {"trusted_only": True, "attempts": 0}
    connection.execute(update(jobs).where(jobs.c.id == row.id).values(change))
    return failed
