"""Work that waits to be done, handed out on leases.

A job goes to one worker for a limited time. A worker that vanishes lets its lease run out and the job goes to another;
what the first one sends afterwards is refused, because its lease is void. A report waits beside its job until it is
linked into the log; the job is closed in that transaction, so it is done exactly when the result is there: never twice,
never half (`ladder.inbox`).

Jobs whose outcome nobody could check later go to trusted workers alone: those that the arena starts itself, and those
whose token says so. So do jobs that workers gave back too often: whether it cannot be done, a trusted one says; and
audits, which look like the pairs that they are of, and go to other accounts than those (`ladder.audit_jobs`).
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, exists, func, insert, select, update

from palus.arena.jobs.worker import JobKind, Lease
from palus.arena.referee.games import GAMES
from palus.errors import LeaseError
from palus.store.tables import jobs, workers

PRIORITY_VALIDATE = 20
PRIORITY_ENTRY = PRIORITY_AUDIT = 10
PRIORITY_LADDER = 0
PRIORITY_IDLE = -1

PAIR_KEY = "pair:"
"""Keys of pairs that are ordered one by one begin like this; the others are of rounds."""
PRUNED_AT_ONCE = 5000

ACCOUNT_JOBS = 1000
"""That the workers of one account, unless they are trusted, hold at once, with what they gave back."""
GIVEN_BACK_MS = 24 * 3_600_000
"""Pairs that were ordered within so long count as held, too, while they wait for trusted workers because the account
gave them back: it could else take and give back all that is ordered, for as long as it likes."""
HELD_S = 300.0
"""For so long one of them holds a job, however often it renews: ten times what it takes at once."""

_ACCOUNT_LOCK = 0x70616C75
"""Any constant: names, with an account, the advisory lock of PostgreSQL under which that takes jobs."""

Kind = JobKind | Literal["audit"]
"""Of a job as the arena knows it: to workers an audit is a pair like others."""


def needs_trust(kind: Kind, env: str) -> bool:
    """Whether what a worker reports of such a job is not checked by doing it again.

    A validation measures a machine, and its refusal leaves nothing to play; matches of some games do not repeat; and an
    audit is the check itself, which two accounts of one person would otherwise do for each other.
    """
    game = GAMES.get(env)
    return kind != "pair" or game is None or game.filmed


def account_of(worker: str) -> str:
    """Who answers for a worker: the account of one from elsewhere, of the arena's own each for itself."""
    return worker.partition("/")[0]


def enqueue(
    connection: Connection,
    kind: Kind,
    payloads: Mapping[str, tuple[int, dict[str, Any]]],
    *,
    now_ms: int,
    not_for: str | None = None,
) -> None:
    """Add jobs, all that there never were. payloads: priority and payload by key; `env` in a payload says which game a
    worker must be able to play. not_for: account that they do not go to."""
    known = set(connection.scalars(select(jobs.c.key).where(jobs.c.key.in_(payloads))))
    rows = [
        {
            "kind": kind,
            "key": key,
            "env": payload["env"],
            "payload": json.dumps(payload, sort_keys=True, separators=(",", ":")),
            "state": "ready",
            "priority": priority,
            "trusted_only": needs_trust(kind, payload["env"]),
            "not_for": not_for,
            "attempts": 0,
            "created_ms": now_ms,
        }
        for key, (priority, payload) in payloads.items()
        if key not in known
    ]
    if rows:
        connection.execute(insert(jobs), rows)


def take(
    connection: Connection,
    worker: str,
    games: Collection[str],
    *,
    trusted: bool,
    lease_s: float,
    now_ms: int,
    count: int = 1,
) -> list[Lease]:
    """Lease the most urgent jobs that wait for such a worker, the oldest among equals: at most `count`.

    They share a secret and an end, and are closed one by one. Who is not trusted gets no more than `ACCOUNT_JOBS` for
    all workers of its account, with what they gave back (`GIVEN_BACK_MS`), and can renew them for `HELD_S`: what it
    took would else be played by nobody.
    """
    if not trusted:
        if connection.dialect.name == "postgresql":  # where two of an account could count at the same time
            own = zlib.crc32(account_of(worker).encode()) - 2**31
            connection.execute(select(func.pg_advisory_xact_lock(_ACCOUNT_LOCK, own)))
        count = min(count, ACCOUNT_JOBS - _count_held(connection, worker, now_ms))
    query = select(jobs).where(_ready(worker, games, trusted)).order_by(jobs.c.priority.desc(), jobs.c.id)
    rows = connection.execute(query.limit(max(count, 0)).with_for_update(skip_locked=True)).all()
    secret = secrets.token_hex(16)
    change = {
        "state": "leased",
        "worker": worker,
        "lease": secret,
        "leased_ms": now_ms,
        "lease_until_ms": now_ms + round(1000 * lease_s),
    }
    taken = update(jobs).where(jobs.c.id.in_([row.id for row in rows]))
    if rows:
        connection.execute(taken.values(change | {"attempts": jobs.c.attempts + 1}))
    return [Lease(row.id, told_kind(row.kind), json.loads(row.payload), secret, row.attempts + 1) for row in rows]


def has_ready(connection: Connection, worker: str, games: Collection[str], *, trusted: bool, now_ms: int) -> bool:
    """Whether a job waits for a worker that can play these games, and may take another."""
    if connection.execute(select(jobs.c.id).where(_ready(worker, games, trusted)).limit(1)).first() is None:
        return False
    return trusted or _count_held(connection, worker, now_ms) < ACCOUNT_JOBS


def names_model(connection: Connection, account: str, sha256: str) -> bool:
    """Whether a job that a worker of this account holds now is done with a model of these bytes."""
    held = _taken_by(account) & (jobs.c.state == "leased")
    named = select(jobs.c.id).where(held, jobs.c.payload.contains(sha256))
    return connection.execute(named.limit(1)).first() is not None


def void(job_id: int) -> LeaseError:
    """What is raised where a lease does not hold its job any more."""
    return LeaseError(f"job {job_id}: this lease is void, the job went to another worker; drop the result")


def renew(connection: Connection, job_ids: Collection[int], secret: str, *, lease_s: float, now_ms: int) -> None:
    """Prolong the leases of jobs that were taken together. Raises LeaseError when all are void, or were held for as
    long as they may."""
    trusted = exists().where(workers.c.name == jobs.c.worker, workers.c.trusted)
    held = jobs.c.id.in_(job_ids) & (jobs.c.lease == secret) & (jobs.c.state == "leased")
    held &= trusted | (jobs.c.leased_ms > now_ms - round(1000 * HELD_S))
    change = update(jobs).where(held).values(lease_until_ms=now_ms + round(1000 * lease_s))
    if connection.execute(change).rowcount == 0:
        raise void(min(job_ids))


def note_reports(connection: Connection, held: Sequence[Row[Any]], reports: Mapping[int, str], *, now_ms: int) -> None:
    """Keep reports beside their jobs until they are linked; those whose lease has become void meanwhile are dropped."""
    change = (
        update(jobs)
        .where(held_by(bindparam("job_id"), bindparam("secret")))
        .values(state="reported", done_ms=now_ms, fault=None, report=bindparam("noted"))
    )
    rows = [{"job_id": row.id, "secret": row.lease, "noted": reports[row.id]} for row in held]
    connection.execute(change, rows)


def close(connection: Connection, job_ids: Collection[int]) -> None:
    """Mark reported jobs as done, in the transaction that logs what came of them."""
    reported = jobs.c.id.in_(job_ids) & (jobs.c.state == "reported")
    connection.execute(update(jobs).where(reported).values(state="done", report=None))


def dispute(connection: Connection, job_ids: Collection[int]) -> None:
    """Keep reported audits, with what was reported, until the arena has looked itself."""
    reported = jobs.c.id.in_(job_ids) & (jobs.c.state == "reported")
    connection.execute(update(jobs).where(reported).values(state="disputed"))


def take_over(connection: Connection, *, before_ms: int) -> None:
    """Audits that nobody took or finished since, or that nobody could do, are for the arena itself now."""
    undone = jobs.c.state.in_(("ready", "leased")) & (jobs.c.created_ms < before_ms)
    left = (jobs.c.state == "failed") | undone
    change = {"state": "disputed", "report": None, "lease": None}
    connection.execute(update(jobs).where(jobs.c.kind == "audit", left).values(change))


def settled(connection: Connection, job_id: int, sentence: str, *, now_ms: int) -> None:
    """Close a disputed audit. sentence: what came of it."""
    change = {"state": "done", "report": None, "fault": sentence, "done_ms": now_ms}
    connection.execute(update(jobs).where(jobs.c.id == job_id, jobs.c.state == "disputed").values(change))


def prune(connection: Connection, *, before_ms: int) -> int:
    """Forget some pairs that were logged, or audited, before a time. Returns how many those were.

    Others stay: what was checked is not checked again, a round is counted by its jobs.
    """
    logged = (jobs.c.state == "done") & (jobs.c.done_ms < before_ms)
    logged &= jobs.c.key.startswith(PAIR_KEY) | (jobs.c.kind == "audit")
    some = select(jobs.c.id).where(logged).limit(PRUNED_AT_ONCE)
    return int(connection.execute(delete(jobs).where(jobs.c.id.in_(some.scalar_subquery()))).rowcount)


def forget_checks(connection: Connection, keys: Collection[str]) -> None:
    """Forget validations that are over: what was checked may be checked again then."""
    over = jobs.c.key.in_(keys) & jobs.c.state.in_(("done", "failed"))
    connection.execute(delete(jobs).where(over))


def drop_reports(connection: Connection, job_ids: Collection[int]) -> None:
    """Forget what was reported of these jobs: the next `reap` hands them out again."""
    change = {"state": "leased", "lease_until_ms": 0, "report": None}
    connection.execute(update(jobs).where(jobs.c.id.in_(job_ids)).values(change))


def give_back(connection: Connection, job_id: int, secret: str, fault: str, *, max_attempts: int, now_ms: int) -> None:
    """A worker could not do its job: put it back. Raises LeaseError when its lease is void.

    After `max_attempts` it waits for trusted workers alone; after as many of theirs it has failed.
    """
    row = connection.execute(select(jobs).where(held_by(job_id, secret))).first()
    if row is None:
        raise void(job_id)
    _put_back(connection, row, fault, max_attempts, now_ms)


def reap(
    connection: Connection,
    *,
    max_attempts: int,
    now_ms: int,
    dead_workers: tuple[str, ...] = (),
    patient: bool = False,
) -> list[Row[Any]]:
    """Take back the jobs whose lease ran out, and all that dead workers hold. Returns rows of those that failed now.

    patient: of the former only those of which nothing is taken any more, because their account was suspended.
    """
    overdue = (jobs.c.lease_until_ms < (1 if patient else now_ms)) | jobs.c.worker.in_(dead_workers)
    rows = connection.execute(select(jobs).where(jobs.c.state == "leased", overdue).with_for_update()).all()
    fault = "the worker vanished"
    return [row for row in rows if _put_back(connection, row, fault, max_attempts, now_ms)]


def open_payloads(connection: Connection, kind: JobKind, env: str) -> Sequence[str]:
    """Payloads of a game's jobs whose matches are not in the log yet, as JSON, oldest first."""
    left = (jobs.c.kind == kind) & (jobs.c.env == env) & jobs.c.state.in_(("ready", "leased", "reported"))
    return connection.scalars(select(jobs.c.payload).where(left).order_by(jobs.c.id)).all()


def count_ready(connection: Connection, kind: JobKind, env: str) -> int:
    """How many of a game's jobs wait for any worker. Those that only a trusted one may still have are left out."""
    ready = (jobs.c.kind == kind) & (jobs.c.env == env) & (jobs.c.state == "ready")
    ready &= jobs.c.trusted_only.is_(needs_trust(kind, env))
    return connection.execute(select(func.count()).select_from(jobs).where(ready)).scalar_one()


def held_by_account(connection: Connection, env: str) -> Counter[str]:
    """How many of a game's jobs the workers of each account hold, or have handed in just now."""
    held = (jobs.c.env == env) & jobs.c.state.in_(("leased", "reported"))
    counted = select(jobs.c.worker, func.count()).where(held, jobs.c.worker.is_not(None)).group_by(jobs.c.worker)
    found = Counter[str]()
    for worker, count in connection.execute(counted):
        found[account_of(worker)] += count
    return found


def failed_jobs(connection: Connection, kind: JobKind) -> list[tuple[dict[str, Any], str]]:
    """Payloads of the jobs that were given up, with the reason, oldest first."""
    given_up = (jobs.c.kind == kind) & (jobs.c.state == "failed")
    rows = connection.execute(select(jobs.c.payload, jobs.c.fault).where(given_up).order_by(jobs.c.id))
    return [(json.loads(row.payload), row.fault) for row in rows]


def held_by(job_id: Any, secret: Any) -> ColumnElement[bool]:
    """The job, while this lease is the one that holds it."""
    return and_(jobs.c.id == job_id, jobs.c.lease == secret, jobs.c.state == "leased")


def _count_held(connection: Connection, worker: str, now_ms: int) -> int:
    """Jobs that a worker and all others of its account hold, or were the last to give back so often that those wait for
    trusted workers."""
    given_back = (jobs.c.state == "ready") & jobs.c.trusted_only & (jobs.c.created_ms > now_ms - GIVEN_BACK_MS)
    held = _taken_by(account_of(worker)) & ((jobs.c.state == "leased") | given_back)
    return connection.execute(select(func.count()).select_from(jobs).where(held)).scalar_one()


def _taken_by(account: str) -> ColumnElement[bool]:
    """Jobs that a worker of this account was the last to take."""
    return jobs.c.worker.startswith(f"{account}/", autoescape=True)


def told_kind(kind: Kind) -> JobKind:
    """Of a job, to workers and on public pages: nobody learns which are audits."""
    return "pair" if kind == "audit" else kind


def _ready(worker: str, games: Collection[str], trusted: bool) -> ColumnElement[bool]:
    """Jobs that a worker may take now."""
    ready = (jobs.c.state == "ready") & jobs.c.env.in_(games)
    ready &= jobs.c.not_for.is_(None) | (jobs.c.not_for != account_of(worker))
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
