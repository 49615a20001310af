"""`/api/worker`: where workers on other machines get their jobs and hand in results. Runner tokens only.

A worker may take leased jobs, read the models that they name, and close them. It is known by the account of its token
and a name of its own, so that nobody's results can be sent in somebody else's name.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from palus import __version__
from palus.arena.jobs.remote import LEASE_LOST_STATUS
from palus.arena.jobs.reports import AboutForm, from_json
from palus.arena.jobs.worker import IDLE_S, MOST_JOBS, Lease
from palus.arena.ladder import queue
from palus.arena.ladder.audit import suspension
from palus.arena.ladder.inbox import accept, distrust
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource, games_of, greet
from palus.arena.models.forms import Text
from palus.errors import ArenaError, FalseReportError, LeaseError, StorageError, UnreachableError
from palus.hub.refusals import NotSignedInError, RefusedRequestError
from palus.hub.server.context import Hub
from palus.store import Store
from palus.store.engine import now_ms
from palus.web.security import fault
from palus.web.shapes import Shape

_log = logging.getLogger(__name__)

QUESTIONS_PER_S = 25.0
"""Of all idle workers of one server together."""
LONGEST_PAUSE_S = 40.0
"""Below `palus.arena.ladder.workers.ALIVE_MS`."""

MAX_PARTS = 100_000
"""Brackets and commas in a message with reports. Read as JSON each takes up to a hundred bytes of memory and more."""

REPORTS_BYTES = 64 << 20
"""Of an account's reports that come in, or are looked at, at the same time."""

LONGEST_NAME = 96
"""Of a worker, with its account: as long as the database keeps it."""

JobId = Annotated[int, Field(ge=1, le=2**53)]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Secret = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Hello(Shape):
    """A worker says who it is. about: palus, platform, runtimes."""

    worker: str = Field(pattern=r"^[A-Za-z0-9._/-]{1,64}$")
    about: AboutForm

    @property
    def said(self) -> dict[str, Any]:
        """What it said of its machine."""
        return self.about.model_dump(exclude_unset=True)


class Wanted(Hello):
    """A worker asks for so many jobs, under its full name."""

    worker: str = Field(pattern=rf"^[A-Za-z0-9._/-]{{1,{LONGEST_NAME}}}$")
    jobs: int = Field(1, ge=1, le=MOST_JOBS)


class HeldLeases(Shape):
    """Jobs that were taken together."""

    jobs: list[JobId] = Field(min_length=1, max_length=MOST_JOBS)
    secret: Secret


class GivenBack(Shape):
    """A job that could not be done, and why."""

    job: JobId
    secret: Secret
    fault: Text


class DoneJob(Shape):
    """A job that is done. report: see `palus.arena.jobs.reports`."""

    job: JobId
    secret: Secret
    report: dict[str, Any]


class Finished(Shape):
    """Jobs that are done."""

    reports: list[DoneJob] = Field(min_length=1, max_length=MOST_JOBS)


class Pauses:
    """When idle workers ask again: one after another, so that a thousand of them cost no more than a dozen do. Accounts
    that wait share the turns evenly: who asks before its turn, or under a thousand names, lets its own account wait.

    Whatever their number, one of them asks soon after a job has come. A request that waited here instead would take a
    connection from a reader, and all workers of a laboratory behind one address have as many as that has.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_s: dict[str, float] = {}

    def next_s(self, account: str) -> float:
        """Until the next free turn of an account."""
        with self._lock:
            now = time.monotonic()
            waiting = {name: at_s for name, at_s in self._next_s.items() if at_s > now or name == account}
            step_s = len({*waiting, account}) / QUESTIONS_PER_S
            turn_s = min(max(waiting.get(account, 0.0) + step_s, now + IDLE_S), now + LONGEST_PAUSE_S)
            self._next_s = waiting | {account: turn_s}
            return turn_s - now


class Arriving:
    """Messages with reports that are in memory, by account: many of one sender, and the last byte of none, would take
    any amount of it. Used from the event loop only."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    @asynccontextmanager
    async def body(self, request: Request, account: str) -> AsyncIterator[bytearray]:
        """The body of a request, whose bytes count until the block ends."""
        data = bytearray()
        try:
            async for piece in request.stream():
                if self._bytes[account] + len(piece) > REPORTS_BYTES:
                    sentence = f"More than {REPORTS_BYTES >> 20} MiB of reports of {account} come in at once."
                    raise fault(503, "busy", f"{sentence} Try again in a moment.", {"Retry-After": "5"})
                self._bytes[account] += len(piece)
                data += piece
            yield data
        finally:
            self._bytes[account] -= len(data)
            self._bytes += Counter()  # forgets who has none


def make_worker_router(store: Store, settings: ArenaSettings) -> APIRouter:
    """The routes below `/api/worker`. The hub of their application says whose token it is, and counts wrong ones."""

    def runner(request: Request) -> None:
        hub: Hub = request.app.state.hub
        caller = suspended = None
        try:
            with store.read() as connection:
                if caller := hub.holder(connection, request):
                    suspended = suspension(connection, f"{caller.name}/")
        except NotSignedInError:
            pass
        except RefusedRequestError as refusal:
            sentence = f"Too many wrong tokens from this address; wait {refusal.retry_after_s} s and try again."
            raise fault(429, "too_many_requests", sentence, {"Retry-After": str(refusal.retry_after_s)}) from refusal
        if caller is None:
            raise fault(401, "no_token", "A worker needs a valid token; ask the arena's administrator for one.")
        if not caller.scopes & {"runner", "trusted", "admin"}:
            sentence = f"The token '{caller.label}' may not run matches; it needs the scope runner or trusted."
            raise fault(403, "not_a_runner", sentence)
        if suspended is not None:
            sentence = f"A worker of {caller.name} is suspended, so none of them is let in: {suspended}."
            raise fault(403, "suspended", sentence)
        request.state.runner = caller.name
        request.state.trusted = bool(caller.scopes & {"trusted", "admin"})

    router = APIRouter(prefix="/api/worker", tags=["worker"], dependencies=[Depends(runner), Depends(_told)])
    # For what a lease's secret allows, whoever shows it.
    by_secret = StoreSource(store, "", settings, {}, trusted=False)
    pauses, arriving = Pauses(), Arriving()

    @router.post("/hello")
    def hello(body: Hello, request: Request) -> dict[str, Any]:
        """Register; answers the worker's full name and how long a lease lasts."""
        own = body.worker.rpartition("/")[2]
        if not own:
            raise fault(
                422, "no_name", f"{body.worker} is no name of a worker; give one that does not end with a slash."
            )
        name = f"{request.state.runner}/{own}"
        if len(name) > LONGEST_NAME:
            sentence = (
                f"{name} has {len(name)} characters, and a worker's name {LONGEST_NAME} at the most, its account's"
            )
            raise fault(422, "long_name", f"{sentence} included; give it a shorter one with --name.")
        if not games_of(body.said):
            sentence = f"The games there are other builds than this arena's; install palus {__version__} there."
            raise fault(422, "another_build", sentence)
        with store.write() as connection:
            greet(connection, name, body.said, trusted=request.state.trusted, now_ms=now_ms())
        return {"worker": name, "lease_s": settings.lease_s, "trusted": request.state.trusted}

    @router.post("/take")
    def take(body: Wanted, request: Request) -> dict[str, Any]:
        """Lease jobs; none when nothing waits for this worker. pause_s: until it is worth asking again then. untended:
        says that some wait for another in vain."""
        account, _, own = body.worker.partition("/")
        if account != request.state.runner or not own or "/" in own:
            sentence = f"{body.worker} is not the name of a worker of {request.state.runner}; say hello first."
            raise fault(403, "not_your_worker", sentence)
        mine = StoreSource(store, body.worker, settings, body.said, trusted=request.state.trusted)
        leases = mine.take(body.jobs)
        pause_s = 0.0 if leases else pauses.next_s(account)
        return {"jobs": [vars(lease) for lease in leases], "pause_s": pause_s, "untended": mine.untended}

    @router.post("/renew")
    def renew(body: HeldLeases) -> dict[str, bool]:
        """Prolong the leases of jobs that were taken together."""
        by_secret.renew([_lease(job_id, body.secret) for job_id in body.jobs])
        return {"held": True}

    @router.post("/finish")
    async def finish(request: Request) -> dict[str, list[int]]:
        """Hand in reports. void: jobs whose leases are, and of which nothing was taken."""
        async with arriving.body(request, request.state.runner) as data:  # FastAPI reads before it asks for the token
            return {"void": sorted(await run_in_threadpool(take_in, data))}

    def take_in(data: bytearray) -> set[int]:
        if sum(map(data.count, (b"{", b"[", b","))) > MAX_PARTS:
            raise fault(413, "too_large", f"Reports with more than {MAX_PARTS:,} brackets and commas are not read.")
        try:
            body = Finished.model_validate_json(data)
        except ValidationError as error:
            raise fault(422, "invalid_input", f"Not finished jobs: {error.errors()[0]['msg']}.") from error
        deliveries = []
        for done in body.reports:
            try:
                deliveries.append((_lease(done.job, done.secret), from_json(done.report)))
            except FalseReportError as error:
                distrust(store, done.job, done.secret, str(error), now_ms=now_ms())
                raise
        return accept(store, deliveries, now_ms=now_ms())

    @router.post("/give-back")
    def give_back(body: GivenBack, request: Request) -> dict[str, bool]:
        """Put a job back that could not be done."""
        by_secret.give_back(_lease(body.job, body.secret), f"{request.state.runner}: {body.fault}")
        return {"given_back": True}

    @router.get("/models/{sha256}")
    def model(sha256: Sha256, request: Request) -> Response:
        """The bytes of a model that a job names which this account holds."""
        with store.read() as connection:
            if not queue.names_model(connection, request.state.runner, sha256):
                raise fault(404, "no_such_model", "No job that you hold names a model of this hash.")
        return Response(by_secret.model(sha256), media_type="application/octet-stream")

    return router


def _lease(job_id: int, secret: str) -> Lease:
    """As much of a lease as proves it."""
    return Lease(job_id, "pair", {}, secret, 0)


async def _told() -> AsyncIterator[None]:
    """Our errors as the answers that workers understand. (Without async it would begin and end in threads.)"""
    try:
        yield
    except FalseReportError as error:
        raise fault(422, "false_report", f"{error}; a worker that sends such reports is suspended") from error
    except LeaseError as error:
        raise fault(LEASE_LOST_STATUS, "lease_lost", str(error)) from error
    except (UnreachableError, StorageError) as error:
        _log.error("%s", error)  # the worker learns that, not where on this machine
        sentence = "The arena cannot read or write its files just now; try again in a moment."
        raise fault(503, "storage_away", sentence, {"Retry-After": "5"}) from error
    except ArenaError as error:
        raise fault(422, "refused", str(error)) from error
