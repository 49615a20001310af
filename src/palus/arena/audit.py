"""Trust, checked: matches are played again from their seed and action log, runners are compared with each other.

Matches of games that do not repeat cannot be played again: what is left to check is their record and their video.

What is struck out stays in the log; `annulments` names it with the reason, and the ratings are computed without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Select, insert, select, update

from palus.arena.builds import env_build
from palus.arena.games import game_of
from palus.arena.log import LogRecord, read_match
from palus.arena.result import verdict_of
from palus.arena.runner.actions import Replayed, replay_match
from palus.arena.runner_tests import RatedGame, suspicions
from palus.errors import ArenaError, ReplayError, StorageError
from palus.store import Store
from palus.store.tables import annulments, matches, workers

LOCAL = "local-"
"""Names of the workers that the service itself starts begin like this; nobody else's may."""

_POINTS = {"win1": 1.0, "win2": 0.0, "draw": 0.5, "forfeit1": 0.0, "forfeit2": 1.0}


@dataclass(frozen=True)
class Verification:
    """What playing a match again gave, or looking at its video. ok: None when it could not be tried. sentence: for
    people."""

    match_id: str
    ok: bool | None
    sentence: str


def verify(store: Store, match_id: str) -> Verification:
    """Play a match again from its seed and action log and compare the final state.

    Raises ArenaError when there is no such match.
    """
    with store.read() as connection:
        row = read_match(connection, match_id)
    if row is None:
        raise ArenaError(f"there is no match {match_id} in this log; its address is on the match's page")
    return verify_record(store, row.record)


def verify_record(store: Store, record: LogRecord) -> Verification:
    """`verify` for a record at hand."""
    if game_of(record.env.id).filmed:
        return _check_filmed(store, record)
    here = env_build(record.env.id)
    if here.build_hash != record.env.build_hash:
        return Verification(
            record.id,
            None,
            f"match {record.id} was played with palus {record.env.version} and another build of {record.env.id}; "
            "install that version to verify it",
        )
    try:
        actions = store.blobs.read(record.actions.sha256) if record.actions else b""
        again = replay_match(record.env.id, record.seed, actions)
    except (StorageError, ReplayError) as error:
        return Verification(record.id, False, f"match {record.id} cannot be played again: {error}")
    if again.state != record.state:
        return Verification(
            record.id,
            False,
            f"match {record.id} ends differently when it is played again: its record does not belong to its actions",
        )
    if not _is_told_truly(record, again):
        return Verification(
            record.id,
            False,
            f"match {record.id} is recorded as {record.result} {record.score[0]}:{record.score[1]} after "
            f"{record.duration_ticks} ticks, which is not how it ends when it is played again",
        )
    return Verification(record.id, True, f"match {record.id}: played again, the same to the last bit")


def _check_filmed(store: Store, record: LogRecord) -> Verification:
    """A match that nobody can play again: whether result and score agree, and the video is the one recorded."""
    if record.result in ("win1", "win2", "draw") and verdict_of(record.score) != record.result:
        sentence = f"match {record.id} is recorded as {record.result} {record.score[0]}:{record.score[1]}"
        return Verification(record.id, False, f"{sentence}, which contradict each other")
    try:
        video = store.blobs.read(record.replay.sha256) if record.replay else b""
    except StorageError as error:
        return Verification(record.id, False, f"the video of match {record.id} is not the one recorded: {error}")
    seen = f"its video of {len(video)} bytes is the one recorded" if video else "it has no video"
    return Verification(
        record.id,
        True,
        f"match {record.id}: {record.env.id} does not repeat, and cannot be played again; its record is sound, {seen}",
    )


def _is_told_truly(record: LogRecord, again: Replayed) -> bool:
    """Whether result, score and duration are those of the match. Who forfeited, cannot be seen from its actions."""
    if record.result not in ("win1", "win2", "draw"):
        return True
    result, score = {0: ("win1", (1, 0)), 1: ("win2", (0, 1))}.get(again.winner, ("draw", (0, 0)))
    return (record.result, tuple(record.score), record.duration_ticks) == (result, score, again.ticks)


def audit(store: Store, share: float, *, seed: int, now_ms: int) -> list[Verification]:
    """Verify a random share of the log, at least one match; strike out what fails. Returns the failures."""
    with store.read() as connection:
        ids = connection.execute(select(matches.c.id).where(matches.c.id.not_in(_struck())).order_by(matches.c.seq))
        candidates = list(ids.scalars())
    count = min(len(candidates), max(1, round(share * len(candidates))))
    chosen = np.random.default_rng(seed).permutation(len(candidates))[:count]
    found = [verify(store, candidates[i]) for i in sorted(chosen.tolist())]
    failures = [verification for verification in found if verification.ok is False]
    with store.write() as connection:
        for failure in failures:
            annul_unit(connection, failure.match_id, failure.sentence, now_ms=now_ms)
    return failures


def annul_unit(connection: Connection, match_id: str, reason: str, *, now_ms: int) -> int:
    """Strike out a match and the other leg of its mirrored pair. Returns how many matches that were."""
    unit = select(matches.c.unit_id).where(matches.c.id == match_id).scalar_subquery()
    return _annul(connection, select(matches.c.id).where(matches.c.unit_id == unit), reason, now_ms)


def suspend(connection: Connection, worker: str, reason: str, *, now_ms: int) -> int:
    """Take no more results from a worker and strike out all it has sent. Returns how many matches that were.

    Raises ArenaError when there is no such worker.
    """
    changed = connection.execute(update(workers).where(workers.c.name == worker).values(suspended=reason))
    if changed.rowcount == 0:
        raise ArenaError(f"there is no worker {worker}; the status page lists them")
    reason = f"worker {worker} was suspended: {reason}"
    return _annul(connection, select(matches.c.id).where(matches.c.worker == worker), reason, now_ms)


def suspend_outliers(store: Store, *, now_ms: int) -> list[str]:
    """Suspend every worker from elsewhere whose results differ from the rest's. Returns a sentence for each."""
    with store.read() as connection:
        columns = select(matches.c.worker, matches.c.blue, matches.c.purple, matches.c.result)
        counted = columns.where(matches.c.id.not_in(_struck()), matches.c.season > 0)
        games = [
            RatedGame(LOCAL if worker.startswith(LOCAL) else worker, blue, purple, _POINTS.get(result), result)
            for worker, blue, purple, result in connection.execute(counted)
        ]
    found = [suspicion for suspicion in suspicions(games) if suspicion.worker != LOCAL]
    with store.write() as connection:
        for suspicion in found:
            suspend(connection, suspicion.worker, suspicion.sentence, now_ms=now_ms)
    return [f"worker {suspicion.worker} is suspended: {suspicion.sentence}" for suspicion in found]


def _annul(connection: Connection, wanted: Select[tuple[str]], reason: str, now_ms: int) -> int:
    ids = list(connection.execute(wanted.where(matches.c.id.not_in(_struck()))).scalars())
    if ids:
        rows = [{"match_id": match_id, "reason": reason, "created_ms": now_ms} for match_id in ids]
        connection.execute(insert(annulments), rows)
    return len(ids)


def _struck() -> Select[tuple[str]]:
    return select(annulments.c.match_id)
