"""The way of a report into the log: any process takes it in, one, the scheduler, links it into the chain.

`accept` checks reports against their jobs, stores their bytes and notes them beside their jobs; workers get their
answer then. `link` appends what waits to the log, closes the jobs and carries out what follows, all in one transaction.
A crash before either leaves everything as it was: bytes that nobody names, a job that somebody does again, a report
that is linked later; never a record without its bytes, a match twice, or half a pair.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select, tuple_, update

from palus import __version__
from palus.arena.jobs.reports import Report, ValidationReport
from palus.arena.jobs.worker import Done
from palus.arena.ladder import audit_jobs, entries, queue
from palus.arena.ladder.audit import is_elsewhere, suspend, suspension
from palus.arena.ladder.log import LogRecord, RunnerInfo, StoredBytes, append, lock_log
from palus.arena.ladder.report_check import check_unit, choices_of
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.models.refusal import Refusal
from palus.arena.referee.actions import encode_actions
from palus.arena.referee.games import env_build, game_of, layout_of
from palus.errors import ArenaError, FalseReportError
from palus.hub.uploads import pin
from palus.store import Store
from palus.store.tables import jobs, matches, workers

logger = logging.getLogger(__name__)

REPORTS_PER_TRANSACTION = 200

MODEL_AT_FAULT = {
    "crash": "its process ended while it played its first match",
    "timeout": "it took too long to answer in its first match",
    "non_finite": "it answered no probabilities in its first match",
    "invalid": "it could not be loaded for its first match, or broke a rule in it",
}


def accept(store: Store, deliveries: Sequence[Done], *, now_ms: int) -> set[int]:
    """Take reports in. Returns the jobs of which nothing is taken, because the lease is void. deliveries: of the leases
    only what proves them is looked at.

    A report that this lease has handed in before is taken for it; nothing is stored twice. Raises FalseReportError, and
    suspends the sender, when a report does not fit its job, ArenaError when a worker is suspended, or played what it
    reports with another build of a game that repeats; of none of the reports anything is stored then.
    """
    with store.read() as connection:
        held = {row.id: row for row in connection.execute(select(jobs).where(_shown(deliveries)))}
        names = {row.worker for row in held.values()}
        about = select(workers.c.name, workers.c.platform).where(workers.c.name.in_(names))
        said = {name: json.loads(text) for name, text in connection.execute(about)}
    written = {}
    for lease, report in deliveries:
        row = held.get(lease.job_id)
        if row is not None and row.state == "leased":
            try:
                written[row.id] = _written(store, row, report, said.get(row.worker, {}), now_ms)
            except FalseReportError as error:
                distrust(store, row.id, row.lease, str(error), now_ms=now_ms)
                raise
    with store.write() if written else store.read() as connection:
        if written:
            for name in sorted(names):
                reason = suspension(connection, name)
                if reason is not None:
                    raise ArenaError(f"worker {name} is suspended ({reason}); its results are not taken")
            queue.note_reports(connection, [row for row in held.values() if row.id in written], written, now_ms=now_ms)
        taken = jobs.c.state.in_(("reported", "disputed", "done"))
        known = connection.scalars(select(jobs.c.id).where(_shown(deliveries), taken))
        return {lease.job_id for lease, _ in deliveries} - set(known)


def link(store: Store, *, now_ms: int, audit_share: float = 0.0) -> int:
    """Append the oldest reports of the inbox to the log and close their jobs. Returns how many that were.

    audit_share: of the pairs that somebody else is to play again.

    Raises ArenaError when the log does not end where it was last left; the reports wait then.
    """
    waiting = select(jobs).where(jobs.c.state == "reported").order_by(jobs.c.done_ms, jobs.c.id)
    waiting = waiting.limit(REPORTS_PER_TRANSACTION)
    with store.read() as connection:
        if connection.execute(waiting.with_only_columns(jobs.c.id).limit(1)).first() is None:
            return 0
    with store.write() as connection:
        lock_log(connection)
        rows = connection.execute(waiting).all()
        noted = {row.id: json.loads(row.report) for row in rows}
        records = {row.id: list(map(LogRecord.from_json, noted[row.id]["records"])) for row in rows}
        actions = {id_: base64.b64decode(log) for row in rows for id_, log in noted[row.id].get("actions", {}).items()}
        logged = select(matches.c.id).where(matches.c.id.in_([record.id for own in records.values() for record in own]))
        known, tally = set(connection.scalars(logged)), Counter[str]()
        sound, void = [], []
        suspended = {name for name in {row.worker for row in rows} if suspension(connection, name) is not None}
        for row in rows:
            if row.worker in suspended:  # since it was accepted
                void.append(row.id)
                continue
            ids = {record.id for record in records[row.id]}
            if ids & known:  # two jobs of one unit; nothing is ever logged twice
                logger.error("job %d: a match of it is in the log already; its report is dropped", row.id)
                continue
            known |= ids
            tally[row.worker] += len(ids)
            sound.append(row)
        linked = [record for row in sound for record in records[row.id]]
        append(connection, linked, now_ms, actions)
        pin(connection, {sha256 for record in linked for side in record.sides for _, sha256 in side.entity.files})
        for row in sound:
            _carry_out(connection, row, noted[row.id], now_ms)
            if row.kind == "pair":
                audit_jobs.order_audit(connection, row, records[row.id], audit_share, now_ms)
        for name, count in tally.items():
            played = update(workers).where(workers.c.name == name)
            connection.execute(played.values(matches=workers.c.matches + count))
        queue.drop_reports(connection, void)
        queue.close(connection, [row.id for row in rows])
    return len(rows)


def distrust(store: Store, job_id: int, secret: str, reason: str, *, now_ms: int) -> None:
    """A false report came with this lease: suspend who holds it. Who shows no valid lease proves nothing of anybody."""
    with store.write() as connection:
        worker = connection.scalar(select(jobs.c.worker).where(queue.held_by(job_id, secret)))
        if worker is not None and is_elsewhere(worker):
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


def _shown(deliveries: Sequence[Done]) -> ColumnElement[bool]:
    """The jobs that are held, or were, by the leases that are shown."""
    return tuple_(jobs.c.id, jobs.c.lease).in_([(lease.job_id, lease.secret) for lease, _ in deliveries])


def _written(store: Store, job: Row[Any], report: Report, said: dict[str, Any], now_ms: int) -> str:
    """A report as it waits: its records of the log, and what it decides. said: by the worker about its machine."""
    payload = json.loads(job.payload)
    unit: UnitReport | None
    if job.kind in ("pair", "audit") and isinstance(report, UnitReport):
        order, unit = Unit.from_payload(payload), report
    elif job.kind == "validate" and isinstance(report, ValidationReport):
        order, unit = Unit.trial(payload), report.trial
    else:
        raise FalseReportError(f"the job is of kind {job.kind}, the report is a {type(report).__name__}")
    if unit is not None:
        if not game_of(order.env).filmed and not _is_of_this_build(order, unit):
            # Its own word, and nobody could look again: what it would rather not have rated could pass as this.
            raise ArenaError(
                f"job {job.id} was played with another build of {order.env}, so that nobody could play it again here; "
                f"install palus {__version__} there"
            )
        check_unit(order, unit)
    noted: dict[str, Any] = {"records": [], "actions": {}, "isolation": unit.isolation if unit else "none"}
    if unit is not None and job.kind == "audit":
        noted["told"] = audit_jobs.compared(store, order, unit)
    elif unit is not None:
        unit = replace(unit, matches=tuple(_within(match, job, now_ms) for match in unit.matches))
        logs = [_action_log(match) for match in unit.matches]
        records = _records(store, order, unit, logs, job.worker, said)
        noted["records"] = [record.to_json() for record in records]
        noted["actions"] = {
            record.id: base64.b64encode(log).decode() for record, log in zip(records, logs, strict=True) if log
        }
    if isinstance(report, ValidationReport):
        refusal = report.refusal or _trial_refusal(report.trial)
        noted |= {"refusal": vars(refusal) if refusal else None, "details": report.details}
    return json.dumps(noted)


def _carry_out(connection: Connection, job: Row[Any], noted: dict[str, Any], now_ms: int) -> None:
    """What a report means beyond its matches."""
    if noted.get("told"):
        queue.dispute(connection, [job.id])
    if job.kind == "validate":
        payload, refusal = json.loads(job.payload), noted["refusal"]
        verdict = Refusal(**refusal) if refusal else None
        env, sha256 = payload["env"], payload["contender"]["sha256"]
        entries.decide(connection, env, sha256, verdict, noted["details"], now_ms=now_ms)
    if noted["isolation"] != "none":  # two house players need none and tell nothing
        connection.execute(update(workers).where(workers.c.name == job.worker).values(isolation=noted["isolation"]))


def _records(
    store: Store, order: Unit, unit: UnitReport, logs: Sequence[bytes], worker: str, said: dict[str, Any]
) -> list[LogRecord]:
    """The unit as records of the log. Who played, by which seed and for what: the order says so, not the report."""
    runner = RunnerInfo(
        version=str(said.get("palus", __version__)),
        platform=str(said.get("platform", "")),
        runtimes={str(name): str(value) for name, value in said.get("runtimes", {}).items()},
        isolation=unit.isolation,
        worker=worker,
    )
    return [
        LogRecord(
            **vars(match.result) | {"id": order.match_id(leg), "unit_id": order.unit_id, "sides": order.sides(leg)},
            build=unit.env,
            season=order.season,
            round=order.round,
            rated=order.rated and _is_of_this_build(order, unit),
            runner=runner,
            replay=StoredBytes(store.blobs.put(match.replay).sha256, len(match.replay)) if match.replay else None,
            actions=StoredBytes(hashlib.sha256(log).hexdigest(), len(log)) if log else None,
        )
        for leg, match, log in zip(order.legs, unit.matches, logs, strict=True)
    ]


def _is_of_this_build(order: Unit, unit: UnitReport) -> bool:
    return unit.env.build_hash == env_build(order.env).build_hash


def _within(match: MatchReport, job: Row[Any], now_ms: int) -> MatchReport:
    """A match with the time for which it was played, as far as that is known: between the lease and the report."""
    leased_ms = job.leased_ms or job.created_ms
    first, last = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") for ms in (leased_ms, now_ms))
    started = max(first, min(match.result.started, last))
    wall_ms = max(0.0, min(match.result.wall_ms, float(now_ms - leased_ms)))
    return replace(match, result=replace(match.result, started=started, wall_ms=wall_ms))


def _action_log(match: MatchReport) -> bytes:
    """As it goes into the row: written here, so that it is no longer than what it says."""
    game = game_of(match.result.env)
    return b"" if game.filmed else encode_actions(choices_of(game, match), layout_of(game.env))
