"""Audits as jobs: pairs of the log, played once more by trusted workers of other accounts.

Whether a pair is audited is drawn while it is logged, from numbers that nobody can foresee. The job is the one before
once more. By itself it does not show what it is, but its match is public: a worker that looks it up can tell, which is
why only trusted ones get it. Where both came to the same, that is that. Where they differ, one of them lies, or two
processors round differently: then the arena plays what each sent again itself, asks both players at every decision,
and believes neither. It does so, too, with audits that nobody took or could do. What is logged stays if the arena draws
the same; where only rounding explains it, the pair is struck out and nobody blamed.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, select

from palus.arena.ladder import queue
from palus.arena.ladder.audit import is_elsewhere, look_again, set_aside, strike_out, suspend, suspension
from palus.arena.ladder.log import LogRecord, read_match
from palus.arena.ladder.match_files import read_actions
from palus.arena.ladder.verification import Verification, verify_actions
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.referee.actions import decode_actions
from palus.arena.referee.games import env_build, layout_of, playable_game
from palus.arena.referee.result import PLAYED, MatchResult
from palus.errors import StorageError
from palus.store import Store
from palus.store.tables import jobs

logger = logging.getLogger(__name__)

OVERDUE_MS = 600_000
"""An audit that nobody has done after so long is left to the arena itself: perhaps no trusted worker is there."""
_CHANCE = random.SystemRandom()


def order_audit(connection: Connection, job: Row[Any], records: Sequence[LogRecord], share: float, now_ms: int) -> None:
    """Perhaps have a pair that is logged now played again. share: of the pairs; forfeits from elsewhere always are."""
    first = records[0]
    if playable_game(first.env).filmed or env_build(first.env).build_hash != first.build.build_hash:
        return
    forfeited = is_elsewhere(job.worker) and any(record.result not in PLAYED for record in records)
    if forfeited or _CHANCE.random() < share:
        payloads = {f"audit:{first.unit_id}": (queue.PRIORITY_AUDIT, json.loads(job.payload))}
        queue.enqueue(connection, "audit", payloads, now_ms=now_ms, not_for=queue.account_of(job.worker))


def compared(store: Store, order: Unit, unit: UnitReport) -> list[dict[str, Any]]:
    """What an auditor says where the log says something else, or has lost its actions, for `settle`; nothing where both
    say the same."""
    with store.read() as connection:
        logged = [read_match(connection, order.match_id(leg)) for leg in order.legs]
    pairs = list(zip(logged, unit.matches, strict=True))
    with suppress(StorageError):
        if all(record is not None and _same(store, record, match) for record, match in pairs):
            return []
    return [{"result": m.result.to_json(), "actions": base64.b64encode(m.actions).decode()} for m in unit.matches]


def settle(store: Store, *, now_ms: int, stop: threading.Event | None = None) -> list[str]:
    """Look at the audits that are left to the arena. Returns a sentence for each that is more than that all is well."""
    with store.write() as connection:
        queue.take_over(connection, before_ms=now_ms - OVERDUE_MS)
    with store.read() as connection:
        rows = connection.execute(select(jobs).where(jobs.c.state == "disputed").order_by(jobs.c.id)).all()
    sentences = []
    for row in rows:
        if stop is not None and stop.is_set():
            break
        sentences += _settle(store, row, now_ms)
    return sentences


def _settle(store: Store, job: Row[Any], now_ms: int) -> list[str]:
    order = Unit.from_payload(json.loads(job.payload))
    with store.read() as connection:
        found = [read_match(connection, order.match_id(leg)) for leg in order.legs]
    logged = [record for record in found if record is not None]
    ours = [look_again(store, record.id) for record in logged]
    told = json.loads(job.report)["told"] if job.report else []
    theirs = [_look_at(store, record, match) for record, match in zip(logged, told, strict=bool(told))]
    sentences = [own.sentence for own in ours if not own.ok]
    with store.write() as connection:
        sentences += strike_out(connection, ours, {record.id: record.runner.worker for record in logged}, now_ms)
        sentences += set_aside(connection, ours, now_ms)
        lies = [f"in an audit {own.sentence}" for own in theirs if own.forged]
        if lies and is_elsewhere(job.worker) and suspension(connection, job.worker) is None:
            suspend(connection, job.worker, lies[0], now_ms=now_ms)
            sentences.append(f"worker {job.worker} is suspended: {lies[0]}")
        outcome = " ".join(sentences) or "the log is right"
        queue.settled(connection, job.id, outcome, now_ms=now_ms)
    return sentences


def _look_at(store: Store, record: LogRecord, told: dict[str, Any]) -> Verification:
    """`verify` for what an auditor sent of a logged match."""
    said = MatchResult.from_json(told["result"])
    changes = {name: getattr(said, name) for name in ("result", "cause", "score", "duration_ticks", "final_state")}
    claimed = LogRecord(**vars(record) | changes)
    return verify_actions(store, claimed, base64.b64decode(told["actions"]), None)


def _same(store: Store, record: LogRecord, match: MatchReport) -> bool:
    """Whether an auditor's match is the logged one: its end, all frames of it, and what everybody chose."""
    own, said = vars(record), vars(match.result)
    names = ("result", "cause", "score", "duration_ticks", "final_state")
    if any(own[name] != said[name] for name in names):
        return False
    layout = layout_of(record.env)
    most = playable_game(record.env).max_ticks
    both = (decode_actions(data, layout, most) for data in (read_actions(store, record), match.actions))
    return next(both).tobytes() == next(both).tobytes()
