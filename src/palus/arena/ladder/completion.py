"""Takes a worker's report in: checks it against the job, stores the bytes, then everything else in one transaction.

Blobs are written first. A crash in between leaves bytes that nobody names, never a record without its bytes; the job's
lease runs out and somebody plays it again, to the same result.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import select, update

from palus import __version__
from palus.arena.jobs.reports import Report, ValidationReport
from palus.arena.ladder import entries, queue
from palus.arena.ladder.audit import is_local, suspend, suspension
from palus.arena.ladder.log import LogRecord, RunnerInfo, StoredBytes, append
from palus.arena.ladder.report_check import check_unit
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.models.refusal import Refusal
from palus.arena.referee.games import env_build
from palus.errors import ArenaError, FalseReportError
from palus.store import Store
from palus.store.tables import jobs, workers

MODEL_AT_FAULT = {
    "crash": "its process ended while it played its first match",
    "timeout": "it took too long to answer in its first match",
    "non_finite": "it answered no probabilities in its first match",
    "invalid": "it could not be loaded for its first match, or broke a rule in it",
}


def complete(store: Store, job_id: int, secret: str, report: Report, *, now_ms: int) -> bool:
    """Store a report. False when this lease has stored it before; that is no fault.

    Raises LeaseError when the lease is void, FalseReportError when the report does not fit its job, ArenaError when the
    worker is suspended. Nothing is stored then.
    """
    with store.read() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id, jobs.c.lease == secret)).first()
    if job is None:
        raise queue.void(job_id)
    payload, worker = json.loads(job.payload), job.worker or ""
    unit: UnitReport | None
    if job.kind == "pair" and isinstance(report, UnitReport):
        order, unit = Unit.from_payload(payload), report
    elif job.kind == "validate" and isinstance(report, ValidationReport):
        order, unit = Unit.trial(payload), report.trial
    else:
        raise FalseReportError(f"the job is of kind {job.kind}, the report is a {type(report).__name__}")
    if unit is not None:
        check_unit(order, unit)
    records = _records(store, order, unit, worker) if unit else []
    with store.write() as connection:
        if not queue.close(connection, job_id, secret, now_ms=now_ms):
            return False
        suspended = suspension(connection, worker)
        if suspended is not None:
            raise ArenaError(f"worker {worker} is suspended ({suspended}); its results are not taken")
        append(connection, records, now_ms)
        if isinstance(report, ValidationReport):
            env, sha256 = payload["env"], payload["contender"]["sha256"]
            refusal = report.refusal or _trial_refusal(report.trial)
            entries.decide(connection, env, sha256, refusal, report.details, now_ms=now_ms)
        tally: dict[str, Any] = {"matches": workers.c.matches + len(records)}
        if unit is not None and unit.isolation != "none":  # two house players need none and tell nothing
            tally["isolation"] = unit.isolation
        connection.execute(update(workers).where(workers.c.name == worker).values(tally))
    return True


def distrust(store: Store, job_id: int, secret: str, reason: str, *, now_ms: int) -> None:
    """A false report came with this lease: suspend who holds it. Who shows no valid lease proves nothing of anybody."""
    with store.write() as connection:
        worker = connection.scalar(select(jobs.c.worker).where(queue.held_by(job_id, secret)))
        if worker is not None and not is_local(worker):
            suspend(connection, worker, f"it sent a false report: {reason}"[:500], now_ms=now_ms)


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
        said = json.loads(connection.scalar(select(workers.c.platform).where(workers.c.name == worker)) or "{}")
    runner = RunnerInfo(
        version=str(said.get("palus", __version__)),
        platform=str(said.get("platform", "")),
        runtimes={str(name): str(value) for name, value in said.get("runtimes", {}).items()},
        isolation=unit.isolation,
        worker=worker,
    )
    return [
        _record(store, order, leg, match, unit, runner) for leg, match in zip(order.legs, unit.matches, strict=True)
    ]


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


def _store(store: Store, data: bytes) -> StoredBytes | None:
    return StoredBytes(store.blobs.put(data).sha256, len(data)) if data else None
