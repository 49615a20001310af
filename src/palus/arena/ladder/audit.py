"""Trust, checked: samples of the log are played again (see `palus.arena.ladder.verification`), runners are compared.

What is struck out stays in the log; `annulments` names it with the reason, and the ratings are computed without it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, Table, func, insert, select, update

from palus.arena.ladder import queue
from palus.arena.ladder.entries import refuse
from palus.arena.ladder.log import lock_log, note_annulments
from palus.arena.ladder.runner_tests import RatedMatch, suspicions
from palus.arena.ladder.verification import Verification, verify
from palus.arena.referee.games import GAMES
from palus.arena.referee.result import PLAYED
from palus.errors import ArenaError
from palus.store import Store
from palus.store.tables import annulments, jobs, matches, workers

logger = logging.getLogger(__name__)

LOCAL = "local-"
"""Names of the workers that the service itself starts begin like this; nobody else's may."""

OUTLIER_MATCHES = 200_000
"""Of the newest, in which workers' results are compared."""

_ROWS_PER_READ, _AT_ONCE = 10_000, 500
"""Matches that are read at once, and named in one condition."""

FORFEITS_FORGIVEN = 2
"""A time-out or a crash that does not happen again may be the fault of a busy machine; so many of an account's
pairs within `FORGIVEN_MS` may, whatever it calls its workers."""
FORGIVEN_MS = 24 * 3_600_000
_SUSPENDED, _MODEL, _ROUNDED = "worker ", "model ", "rounding: "
"""Why a match was struck out begins like this where its worker was suspended, a model was at fault, or nobody."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. suspended: sentences."""

    found: tuple[Verification, ...]
    suspended: tuple[str, ...]

    @property
    def failures(self) -> list[Verification]:
        """Matches that are struck out now."""
        return [verification for verification in self.found if verification.ok is False]

    @property
    def unchecked(self) -> list[Verification]:
        """Matches that could not be played again."""
        return [verification for verification in self.found if verification.ok is None]


def audit(store: Store, share: float, *, seed: int, now_ms: int) -> Audit:
    """Play a random share of the log again, at least one mirrored pair, both legs; strike out what fails. Of the others
    no more is in memory than a number for each pair.

    Pairs with a forfeit that a worker elsewhere reported are all played again. Workers from elsewhere whose matches
    turn out to be forged are suspended.
    """
    counted, first = matches.c.id.not_in(_struck()), func.min(matches.c.seq)
    pairs = select(first).where(counted).group_by(matches.c.unit_id).order_by(first)
    forfeited = counted & matches.c.result.not_in(PLAYED) & matches.c.worker.contains("/")
    rows: dict[int, tuple[str, str]] = {}
    with store.read() as connection:
        firsts = np.fromiter(connection.scalars(pairs, execution_options={"yield_per": _ROWS_PER_READ}), np.int64)
        count = min(len(firsts), max(1, round(share * len(firsts))))
        chosen = firsts[np.random.default_rng(seed).permutation(len(firsts))[:count]].tolist()
        chosen += connection.scalars(select(matches.c.seq).where(forfeited))
        for start in range(0, len(chosen), _AT_ONCE):
            some = matches.alias()
            units = select(some.c.unit_id).where(some.c.seq.in_(chosen[start : start + _AT_ONCE]))
            of_units = select(matches.c.seq, matches.c.id, matches.c.worker).where(matches.c.unit_id.in_(units))
            rows |= {seq: (match_id, worker) for seq, match_id, worker in connection.execute(of_units.where(counted))}
    again = dict(rows[seq] for seq in sorted(rows))
    found = [look_again(store, match_id) for match_id in again]
    with store.write() as connection:
        suspended = strike_out(connection, found, again, now_ms)
    return Audit(tuple(found), tuple(suspended))


def look_again(store: Store, match_id: str) -> Verification:
    """`verify`; a record that nobody foresaw is reported, and the audit goes on."""
    try:
        return verify(store, match_id)
    except Exception as error:
        logger.exception("match %s cannot be verified", match_id)
        return Verification(match_id, None, f"match {match_id} cannot be verified: {error}")


def strike_out(
    connection: Connection, found: Sequence[Verification], worker_of: dict[str, str], now_ms: int
) -> list[str]:
    """Strike out what did not verify, and suspend workers from elsewhere for it, unless a model is at fault: such ones
    are refused. Returns a sentence for each worker.

    worker_of: who reported each match.
    """
    failures = [failure for failure in found if failure.ok is False]
    for failure in failures:
        fault = f"{_MODEL}{failure.at_fault[:8]}: " if failure.at_fault else ""
        annul_unit(connection, failure.match_id, f"{fault}{failure.sentence}", now_ms=now_ms)
    for verification in found:
        if verification.refusal is not None:
            refuse(connection, verification.at_fault, verification.refusal, now_ms=now_ms)
    guilty = [failure for failure in failures if not failure.at_fault and is_elsewhere(worker_of[failure.match_id])]
    reasons = {worker_of[failure.match_id]: failure.sentence for failure in guilty if failure.forged}
    named = {queue.account_of(worker): worker for worker in sorted({worker_of[one.match_id] for one in guilty})}
    for account in sorted(named.keys() - set(map(queue.account_of, reasons))):
        count = _struck_lately(connection, named[account], now_ms)
        if count > FORFEITS_FORGIVEN:
            sentence = f"{count} of its account's pairs came out otherwise when they were played again"
            reasons[named[account]] = sentence
    for worker, reason in reasons.items():
        suspend(connection, worker, reason, now_ms=now_ms)
    return [f"worker {worker} is suspended: {reason}" for worker, reason in reasons.items()]


def set_aside(connection: Connection, found: Sequence[Verification], now_ms: int) -> list[str]:
    """Strike out what only rounding explains: an honest worker's processor may differ, and a forger may have chosen.

    Nobody is blamed, however often it happens. Returns a sentence for each match.
    """
    doubtful = [verification for verification in found if verification.rounded]
    for verification in doubtful:
        annul_unit(connection, verification.match_id, f"{_ROUNDED}{verification.sentence}", now_ms=now_ms)
    return [verification.sentence for verification in doubtful]


def is_local(worker: str) -> bool:
    """Whether the service itself started a worker; an account may begin its name as it likes."""
    return worker.startswith(LOCAL) and not is_elsewhere(worker)


def is_elsewhere(worker: str) -> bool:
    """Whether a worker reports over the network: it is called account/name."""
    return "/" in worker


def annul_unit(connection: Connection, match_id: str, reason: str, *, now_ms: int) -> int:
    """Strike out a match and the other leg of its mirrored pair. Returns how many matches that were."""
    unit = select(matches.c.unit_id).where(matches.c.id == match_id).scalar_subquery()
    return _annul(connection, select(matches.c.id).where(matches.c.unit_id == unit), reason, now_ms)


def workers_with(worker: str, table: Table = workers) -> ColumnElement[bool]:
    """Rows of a worker and of all others that its account answers for."""
    column = table.c.name if table is workers else table.c.worker
    account, slash, _ = worker.partition("/")
    return column.startswith(f"{account}/", autoescape=True) if slash else column == worker


def suspension(connection: Connection, worker: str) -> str | None:
    """Why nothing is taken from a worker; None when all is well.

    A worker from elsewhere is called account/name, and its account answers for it: when one is suspended, all are.
    """
    suspended = select(workers.c.suspended).where(workers.c.suspended.is_not(None), workers_with(worker))
    found: str | None = connection.scalar(suspended.limit(1))
    return found


def suspend(connection: Connection, worker: str, reason: str, *, now_ms: int) -> int:
    """Take no more results from a worker and strike out all it has sent. Returns how many matches that were.

    A worker from elsewhere goes with all others of its account: it could take another name at any time. A reason may
    hold what a stranger wrote, and is read in terminals: what does not print becomes a question mark.
    Raises ArenaError when there is no such worker.
    """
    lock_log(connection)  # before the rows of workers, as `inbox.link` does: they would wait for each other
    reason = "".join(character if character.isprintable() else "?" for character in reason)
    changed = connection.execute(update(workers).where(workers_with(worker)).values(suspended=reason))
    if changed.rowcount == 0:
        raise ArenaError(f"there is no worker {worker}; the status page lists them")
    held = (jobs.c.state == "leased") & workers_with(worker, jobs)
    connection.execute(update(jobs).where(held).values(lease_until_ms=0))  # the scheduler hands them out again
    reason = f"{_SUSPENDED}{worker} was suspended: {reason}"
    return _annul(connection, select(matches.c.id).where(workers_with(worker, matches)), reason, now_ms)


def reinstate(connection: Connection, worker: str) -> None:
    """Let a suspended worker, and all of its account, work again. What was struck out stays so.

    Raises ArenaError when there is no such worker, or none is suspended.
    """
    suspended = workers_with(worker) & workers.c.suspended.is_not(None)
    if connection.execute(update(workers).where(suspended).values(suspended=None)).rowcount == 0:
        raise ArenaError(f"no worker {worker} is suspended; the status page lists them")


def suspend_outliers(store: Store, *, now_ms: int) -> list[str]:
    """Suspend every account elsewhere whose results differ from the rest's, among the newest matches. Returns a
    sentence for each, which names one of its workers: an account may have any number, with few matches each."""
    with store.read() as connection:
        columns = select(matches.c.worker, matches.c.blue, matches.c.purple, matches.c.result)
        head = connection.scalar(select(func.max(matches.c.seq))) or 0
        newest = (matches.c.seq > head - OUTLIER_MATCHES) & (matches.c.season > 0)
        counted = columns.where(newest, matches.c.id.not_in(_struck()))
        named: dict[str, str] = {}
        games = [
            RatedMatch(
                LOCAL if is_local(worker) else named.setdefault(queue.account_of(worker), worker), blue, purple, result
            )
            for worker, blue, purple, result in connection.execute(counted)
        ]
    found = [suspicion for suspicion in suspicions(games) if suspicion.worker != LOCAL]
    with store.write() as connection:
        for suspicion in found:
            suspend(connection, suspicion.worker, suspicion.sentence, now_ms=now_ms)
    return [f"worker {suspicion.worker} is suspended: {suspicion.sentence}" for suspicion in found]


def _annul(connection: Connection, wanted: Select[tuple[str]], reason: str, now_ms: int) -> int:
    lock_log(connection)
    ids = list(connection.execute(wanted.where(matches.c.id.not_in(_struck()))).scalars())
    if ids:
        rows = [{"match_id": match_id, "reason": reason, "created_ms": now_ms} for match_id in ids]
        connection.execute(insert(annulments), rows)
        note_annulments(connection)
    return len(ids)


def _struck_lately(connection: Connection, worker: str, now_ms: int) -> int:
    """Pairs of a worker and all others of its account that came out otherwise when they were played again."""
    filmed = [game.env for game in GAMES.values() if game.filmed]
    own = workers_with(worker, matches) & matches.c.env.not_in(filmed)
    for blameless in (_SUSPENDED, _MODEL, _ROUNDED):
        own &= ~annulments.c.reason.startswith(blameless)
    own &= annulments.c.created_ms > now_ms - FORGIVEN_MS
    both = annulments.join(matches, matches.c.id == annulments.c.match_id)
    counted = select(func.count(matches.c.unit_id.distinct())).select_from(both).where(own)
    return int(connection.execute(counted).scalar_one())


def _struck() -> Select[tuple[str]]:
    return select(annulments.c.match_id)
