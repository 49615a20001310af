"""The page of one match: its record, its place in the hash chain, its files."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, select

from palus.arena.chain import fault
from palus.arena.games import game_of
from palus.arena.log import GENESIS, LogRecord, LogSide, StoredBytes
from palus.arena.recording import RecordedEvent
from palus.store import Store
from palus.store.tables import annulments, matches
from palus.web.api.view import View
from palus.web.shapes import ChainPosition, MatchEvent, MatchPage, MatchSide, StoredFile


def match_page(view: View, store: Store, connection: Connection, match_id: str) -> MatchPage | None:
    """The match of that id; None when the log has none. Its hash is computed again each time."""
    row = connection.execute(select(matches).where(matches.c.id == match_id)).first()
    if row is None:
        return None
    record = LogRecord.from_json(row.record)
    blue, purple = record.sides
    game = game_of(record.env.id)
    annulled = connection.scalar(select(annulments.c.reason).where(annulments.c.match_id == match_id))
    other_leg = connection.scalar(
        select(matches.c.id).where(matches.c.unit_id == row.unit_id, matches.c.id != match_id).limit(1)
    )
    return MatchPage(
        id=record.id,
        env=record.env.id,
        env_version=record.env.version,
        filmed=game.filmed,
        seed=str(record.seed),
        unit_id=record.unit_id,
        leg=record.leg,
        season=record.season,
        blue=_side(view, blue),
        purple=_side(view, purple),
        result=row.result,
        cause=record.cause,
        score=record.score,
        duration_ticks=record.duration_ticks,
        duration_s=record.duration_ticks * game.tick_s,
        events=[_event(event, game.tick_s) for event in record.events],
        started=record.started,
        finished_ms=row.finished_ms,
        wall_ms=record.wall_ms,
        rated=row.rated and annulled is None,
        annulled=annulled,
        worker=row.worker,
        runner={
            "version": record.runner.version,
            "platform": record.runner.platform,
            "runtimes": dict(record.runner.runtimes),
            "isolation": record.runner.isolation,
        },
        replay=_file(store, record.replay, f"/api/arena/matches/{record.id}/replay"),
        actions=_file(store, record.actions, f"/api/arena/matches/{record.id}/actions"),
        chain=_chain(view, connection, row),
        other_leg=other_leg,
        verify_command=f"palus verify {record.id}",
    )


def stored_record(connection: Connection, match_id: str) -> LogRecord | None:
    """The record of a match; None for an unknown one."""
    record = connection.scalar(select(matches.c.record).where(matches.c.id == match_id))
    return None if record is None else LogRecord.from_json(record)


def _side(view: View, side: LogSide) -> MatchSide:
    return MatchSide(
        repo=side.repo,
        owner=side.owner,
        revision=side.revision,
        file=side.file,
        sha256=side.sha256,
        mode=side.mode,
        player=view.roster.player(side.sha256, side.repo),
    )


def _event(event: RecordedEvent, tick_s: float) -> MatchEvent:
    return MatchEvent(
        tick=event.tick,
        at_s=event.tick * tick_s,
        type=event.kind,
        side="purple" if event.team else "blue",
        agent=event.agent if event.agent >= 0 else None,
    )


def _file(store: Store, stored: StoredBytes | None, url: str) -> StoredFile | None:
    if stored is None:
        return None
    return StoredFile(sha256=stored.sha256, bytes=stored.bytes, url=url if store.blobs.has(stored.sha256) else None)


def _chain(view: View, connection: Connection, row: Row[Any]) -> ChainPosition:
    before = connection.scalar(select(matches.c.hash).where(matches.c.seq == row.seq - 1)) or GENESIS
    return ChainPosition(
        seq=row.seq,
        prev_hash=row.prev_hash,
        hash=row.hash,
        intact=fault(row, row.seq, before) is None,
        head_seq=view.version.seq,
    )
