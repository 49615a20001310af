"""Takes a worker's report in: checks it against the job, stores the bytes, then everything else in one transaction.

Blobs are written first. A crash in between leaves bytes that nobody names, never a record without its bytes; the job's
lease runs out and somebody plays it again, to the same result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select, update

from palus import __version__
from palus.arena.jobs.reports import Report, ValidationReport
from palus.arena.ladder import entries, queue
from palus.arena.ladder.audit import is_local, suspend
from palus.arena.ladder.log import LogRecord, RunnerInfo, StoredBytes, append
from palus.arena.ladder.report_check import check_unit
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.models.refusal import Refusal
from palus.arena.referee.builds import env_build
from palus.errors import ArenaError, FalseReportError, LeaseError
from palus.store import Store
from palus.store.tables import jobs, workers

MODEL_AT_FAULT = {
    "crash": "its process ended while it played its first match",
    "timeout": "it took too long to answer in its first match",
    "non_finite": "it answered no probabilities in its first match",
    "invalid": "it could not be loaded for its first match, or broke a rule in it",
}


@dataclass(frozen=True)
class _Job:
    kind: str
    payload: dict[str, Any]
    worker: str


def complete(store: Store, job_id: int, secret: str, report: Report, *, now_ms: int) -> bool:
    """Store a report. False when this lease has stored it before; that is no fault.

    Raises LeaseError when the lease is void, FalseReportError when the report does not fit its job, ArenaError when the
    worker is suspended. Nothing is stored then.
    """
    with store.read() as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None or row.lease != secret:
        raise LeaseError(f"job {job_id}: this lease is void, the job went to another worker; drop the result")
    job = _Job(row.kind, json.loads(row.payload), row.worker or "")
    order, unit = _order_and_unit(job, report)
    if unit is not None:
        check_unit(order, unit)
    records = _records(store, order, unit, job.worker) if unit else []
    with store.write() as connection:
        if not queue.close(connection, job_id, secret, now_ms=now_ms):
            return False
        _check_worker(connection, job.worker)
        append(connection, records, now_ms)
        if isinstance(report, ValidationReport):
            _decide(connection, job.payload, report, now_ms)
        tally: dict[str, Any] = {"matches": workers.c.matches + len(records)}
        if unit is not None and unit.isolation != "none":  # two house players need none and tell nothing
            tally["isolation"] = unit.isolation
        connection.execute(update(workers).where(workers.c.name == job.worker).values(tally))
    return True


def distrust(store: Store, job_id: int, secret: str, reason: str, *, now_ms: int) -> None:
    """A false report came with this lease: suspend who holds it. Who shows no valid lease proves nothing of anybody."""
    held = (jobs.c.id == job_id) & (jobs.c.lease == secret) & (jobs.c.state == "leased")
    with store.write() as connection:
        worker = connection.execute(select(jobs.c.worker).where(held)).scalar()
        if worker is not None and not is_local(worker):
            suspend(connection, worker, f"it sent a false report: {reason}"[:500], now_ms=now_ms)


def _order_and_unit(job: _Job, report: Report) -> tuple[Unit, UnitReport | None]:
    if job.kind == "pair" and isinstance(report, UnitReport):
        return Unit.from_payload(job.payload), report
    if job.kind == "validate" and isinstance(report, ValidationReport):
        return Unit.trial(job.payload), report.trial
    raise FalseReportError(f"the job is of kind {job.kind}, the report is a {type(report).__name__}")


def _decide(connection: Connection, payload: dict[str, Any], report: ValidationReport, now_ms: int) -> None:
    env, sha256 = payload["env"], payload["contender"]["sha256"]
    refusal = report.refusal or _trial_refusal(report.trial)
    if refusal is None:
        entries.accept(connection, env, sha256, report.details, now_ms=now_ms)
    else:
        entries.refuse(connection, env, sha256, refusal, report.details, now_ms=now_ms)


def _trial_refusal(trial: UnitReport | None) -> Refusal | None:
    """A model that passes every check and then cannot finish a pair against the random player is not ranked."""
    causes = [match.result.cause for match in trial.matches] if trial else []
    for cause in causes:
        if cause in MODEL_AT_FAULT:
            return Refusal(
                "trial-" + cause.replace("_", "-"),
                f"the model passed its checks, but {MODEL_AT_FAULT[cause]}",
                "let it play with `palus match` and push what you find there",
            )
    return None


def _records(store: Store, order: Unit, unit: UnitReport, worker: str) -> list[LogRecord]:
    """The unit as records of the log. Who played, by which seed and for what: the order says so, not the report."""
    with store.read() as connection:
        known = connection.execute(select(workers).where(workers.c.name == worker)).first()
    runner = _runner(known, worker, unit.isolation)
    return [
        _record(store, order, leg, match, unit, runner) for leg, match in zip(order.legs, unit.matches, strict=True)
    ]


def _runner(known: Row[Any] | None, worker: str, isolation: str) -> RunnerInfo:
    said = json.loads(known.platform) if known else {}
    return RunnerInfo(
        version=str(said.get("palus", __version__)),
        platform=str(said.get("platform", "")),
        runtimes={str(name): str(value) for name, value in said.get("runtimes", {}).items()},
        isolation=isolation,
        worker=worker,
    )


def _record(store: Store, order: Unit, leg: int, match: MatchReport, unit: UnitReport, runner: RunnerInfo) -> LogRecord:
    ordered = {"id": order.match_id(leg), "unit_id": order.unit_id, "sides": order.sides(leg)}
    return LogRecord(
        **vars(match.result) | ordered,
        build=unit.env,
        season=order.season,
        round=order.round,
        rated=order.rated and unit.env.build_hash == env_build(order.env).build_hash,  # others cannot be played again
        runner=runner,
        replay=_store(store, match.replay),
        actions=_store(store, match.actions),
    )


def _check_worker(connection: Connection, worker: str) -> None:
    suspended = connection.execute(select(workers.c.suspended).where(workers.c.name == worker)).scalar()
    if suspended is not None:
        raise ArenaError(f"worker {worker} is suspended ({suspended}); its results are not taken")


def _store(store: Store, data: bytes) -> StoredBytes | None:
    return StoredBytes(store.blobs.put(data).sha256, len(data)) if data else None
