"""The workers that the arena knows, and those that run beside its store.

`python -m palus.arena.ladder.workers` is the process of such a one, started by `ladder.service`. It is told everything
in one line of JSON on standard input, so that no password of a database shows in a list of processes. When its standard
input ends, its parent is gone or wants it to stop: it finishes its job and leaves.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as QueueTimeoutError

from palus.arena.jobs.worker import IDLE_S, Done, Lease, describe_here, wait_for_end, work
from palus.arena.ladder import queue
from palus.arena.ladder.audit import suspension, workers_with
from palus.arena.ladder.inbox import accept
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.games import DEFAULT_GAME, GAMES, env_build
from palus.errors import ArenaError, StorageAwayError, StorageError, UnreachableError
from palus.store import Store, open_store
from palus.store.engine import now_ms
from palus.store.tables import jobs, workers

NICENESS = 5
"""Playing gives way to the pages; the models' own processes give way to this one."""

GREETING_MS = 10_000
"""An idle worker says so often that it is there."""

ALIVE_MS = 60_000
"""Who was heard of within that time is there; who holds a lease is, too."""

ACCOUNT_WORKERS = 2000
"""Names of an account's workers that are kept, those that were heard of last."""


def games_of(about: dict[str, Any]) -> list[str]:
    """What a worker can play, by what it says about itself; workers of old say nothing and play the first.

    Games of which it has another build than ours are left out: what it played of them could not be played again.
    """
    games, builds = about.get("games") or [DEFAULT_GAME], about.get("builds") or {}
    return [game for game in games if game in GAMES and builds.get(game, "") in ("", env_build(game).build_hash)]


def greet(
    connection: Connection, name: str, about: dict[str, Any], *, trusted: bool, now_ms: int, count: int = 1
) -> None:
    """Note that a worker is there. count: jobs that it takes at once. Raises ArenaError when it is suspended."""
    reason = suspension(connection, name)
    if reason is not None:
        raise ArenaError(f"worker {name} is suspended: {reason}")
    now = {"last_seen_ms": now_ms, "platform": json.dumps(about, sort_keys=True), "trusted": trusted, "jobs": count}
    if connection.execute(update(workers).where(workers.c.name == name).values(now)).rowcount == 0:
        new = {"name": name, "isolation": "unknown", "first_seen_ms": now_ms, "matches": 0}  # its first match tells
        insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        same = insert(workers).values(now | new)  # of whom another connection may have heard in this instant
        connection.execute(same.on_conflict_do_update(index_elements=["name"], set_=now))
        own = select(workers.c.name).where(workers_with(name)).order_by(workers.c.last_seen_ms.desc(), workers.c.name)
        connection.execute(delete(workers).where(workers.c.name.in_(own.offset(ACCOUNT_WORKERS))))


def at_work(now_ms: int) -> ColumnElement[bool]:
    """Of a worker: that it is there, and may play."""
    busy = select(jobs.c.worker).where(jobs.c.state == "leased", jobs.c.lease_until_ms > now_ms)
    there = (workers.c.last_seen_ms > now_ms - ALIVE_MS) | workers.c.name.in_(busy)
    return there & workers.c.suspended.is_(None)


def untended(connection: Connection, now_ms: int) -> str | None:
    """A sentence where jobs wait for a trusted worker that can play their game, and none is there; else None."""
    waiting = (jobs.c.state == "ready") & jobs.c.trusted_only & (jobs.c.kind != "audit")  # the arena can do these
    counted = select(jobs.c.env, func.count()).where(waiting).group_by(jobs.c.env).order_by(jobs.c.env)
    counts = {env: int(count) for env, count in connection.execute(counted)}
    if not counts:
        return None
    trusted = select(workers.c.platform).where(at_work(now_ms), workers.c.trusted)
    tended = {game for said in connection.scalars(trusted) for game in games_of(json.loads(said))}
    left = [f"{count} of {env}" for env, count in counts.items() if env not in tended]
    if not left:
        return None
    return (
        f"Jobs wait for a worker that this arena trusts, and none is there: {', '.join(left)}. Checks of models, "
        "matches that do not repeat and pairs that others gave back go to the arena's own workers (--workers) and to "
        "those with a token of scope trusted (palus account add NAME --scope trusted) alone."
    )


@dataclass
class StoreSource:
    """Jobs from a store that this process can open. worker: a name of its own for every process.

    trusted: whoever can open the store is; those that are served through it are as their token says. untended: where
    the last `take` found nothing, the sentence of that name.
    """

    store: Store
    worker: str
    settings: ArenaSettings
    about: dict[str, Any]
    trusted: bool = True
    play_s: float = 0.0
    pause_s: float = IDLE_S
    untended: str | None = None

    @property
    def lease_s(self) -> float:
        """Seconds that a lease lasts without being renewed."""
        return self.settings.lease_s

    def take(self, count: int = 1) -> list[Lease]:
        """At most so many jobs; none when nothing waits."""
        now, games, leases = now_ms(), games_of(self.about), list[Lease]()
        with self.store.read() as connection:
            idle = not queue.has_ready(connection, self.worker, games, trusted=self.trusted, now_ms=now)
            seen_ms = connection.scalar(select(workers.c.last_seen_ms).where(workers.c.name == self.worker)) or 0
            self.untended = untended(connection, now) if idle else None
        if idle and now - seen_ms < GREETING_MS:
            return leases
        with self.store.write() as connection:
            greet(connection, self.worker, self.about, trusted=self.trusted, now_ms=now, count=count)
            if not idle:
                leases = queue.take(
                    connection, self.worker, games, trusted=self.trusted, lease_s=self.lease_s, now_ms=now, count=count
                )
            return leases

    def renew(self, leases: Sequence[Lease]) -> None:
        """Prolong the leases of one `take`. Raises LeaseError when all are void."""
        ids, secret = [lease.job_id for lease in leases], leases[0].secret
        with self.store.write() as connection:
            queue.renew(connection, ids, secret, lease_s=self.lease_s, now_ms=now_ms())

    def model(self, sha256: str) -> bytes:
        """The bytes of a model file. Raises UnreachableError where their storage is away, ArenaError where they are
        gone or damaged."""
        try:
            return self.store.blobs.read(sha256)
        except StorageAwayError as error:
            raise UnreachableError(f"the arena's models are out of reach: {error}") from error
        except StorageError as error:
            raise ArenaError(f"the model cannot be read: {error}") from error

    def finish(self, done: Sequence[Done]) -> set[int]:
        """Put reports into the inbox. Returns the jobs whose leases are void."""
        return accept(self.store, done, now_ms=now_ms())

    def give_back(self, lease: Lease, fault: str) -> None:
        """Put a job back that could not be done. Raises LeaseError when the lease is void."""
        attempts = self.settings.max_attempts
        with self.store.write() as connection:
            queue.give_back(connection, lease.job_id, lease.secret, fault, max_attempts=attempts, now_ms=now_ms())


class OwnSource(StoreSource):
    """The same for a process that plays beside the store: while its database does not answer, or the disk is full, it
    keeps its leases and reports and tries again."""

    def take(self, count: int = 1) -> list[Lease]:
        """As there. Raises UnreachableError."""
        with _reaching():
            return super().take(count)

    def renew(self, leases: Sequence[Lease]) -> None:
        """As there. Raises UnreachableError."""
        with _reaching():
            super().renew(leases)

    def finish(self, done: Sequence[Done]) -> set[int]:
        """As there. Raises UnreachableError."""
        with _reaching():
            return super().finish(done)

    def give_back(self, lease: Lease, fault: str) -> None:
        """As there. Raises UnreachableError."""
        with _reaching():
            super().give_back(lease, fault)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, QueueTimeoutError, StorageError, OSError) as error:
        raise UnreachableError(f"the arena's store does not answer: {str(error).splitlines()[0]}") from error


def instructions(folder: Path, url: str | None, name: str, settings: ArenaSettings) -> bytes:
    """The line that the process reads."""
    told = {"folder": str(folder), "url": url, "name": name, "settings": settings.to_json()}
    return json.dumps(told).encode() + b"\n"


def begin() -> tuple[Store, str, ArenaSettings]:
    """What a process of the arena's does first: read its `instructions` and give way to the pages."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    told = json.loads(sys.stdin.buffer.readline())
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    return open_store(Path(told["folder"]), told["url"]), told["name"], ArenaSettings.from_json(told["settings"])


def main() -> None:
    """Work until standard input ends."""
    store, name, settings = begin()
    stop = threading.Event()
    threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()
    try:
        work(OwnSource(store, name, settings, describe_here()), stop)
    finally:
        store.close()


if __name__ == "__main__":
    main()
