"""The page of one match: its record, its place in the hash chain, its files."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field, JsonValue
from sqlalchemy import select

from palus.arena.ladder.log import GENESIS, LogRecord, fault
from palus.arena.ladder.match_files import read_actions, read_replay
from palus.arena.referee.games import game_of
from palus.arena.referee.result import Verdict
from palus.errors import ArenaError, ReplayError, StorageError
from palus.store import Store
from palus.store.tables import annulments, matches
from palus.web.api.roster import Player
from palus.web.api.summaries import SideName
from palus.web.api.view import View
from palus.web.shapes import Shape


class MatchSide(Shape):
    """Who played one side, as the record says it. player: the entity as it stands now."""

    repo: str
    owner: str
    revision: str
    file: str
    sha256: str
    mode: str
    player: Player


class MatchEvent(Shape):
    """type: one of the game's events, such as goal.   side: team that did it.   agent: from 0 as in the replay, null
    when unknown."""

    tick: int
    at_s: float
    type: str
    side: SideName
    agent: int | None


class StoredFile(Shape):
    """A file of the match, stored or made of its actions. url: where to get it, null when it is no longer kept."""

    sha256: str
    bytes: int
    url: str | None


class ChainPosition(Shape):
    """Where the match stands in the hash chain: hash = sha256(prev_hash + "\\n" + record)."""

    seq: int
    prev_hash: str
    hash: str
    intact: bool = Field(description="the hash was computed again for this answer, and the one before it fits")
    head_seq: int


class MatchPage(Shape):
    """One match. seed is text, which every reader of JSON keeps whole."""

    id: str
    env: str
    env_version: str
    filmed: bool = Field(description="the replay is an mp4, and the match does not repeat")
    score_word: str = Field(description="what a score counts, such as Goals")
    sides: tuple[str, str] = Field(description="what blue and purple are, empty where both are the same")
    seed: str
    unit_id: str
    leg: int
    season: int
    blue: MatchSide
    purple: MatchSide
    result: Verdict
    cause: str
    score: tuple[int, int]
    duration_ticks: int
    duration_s: float
    events: list[MatchEvent]
    started: str
    finished_ms: int
    wall_ms: float
    rated: bool
    annulled: str | None = Field(description="why the match was struck out")
    worker: str
    runner: dict[str, JsonValue]
    replay: StoredFile | None
    actions: StoredFile | None
    chain: ChainPosition
    other_leg: str | None = Field(description="id of the game with sides swapped")
    verify_command: str = Field(description="what to type to play the action log again, or to check the video")


def match_page(view: View, match_id: str) -> MatchPage | None:
    """The match of that id; None when the log has none. Its hash is computed again each time."""
    with view.store.read() as connection:
        row = connection.execute(select(matches).where(matches.c.id == match_id)).first()
        if row is None:
            return None
        annulled = connection.scalar(select(annulments.c.reason).where(annulments.c.match_id == match_id))
        of_unit = select(matches.c.id).where(matches.c.unit_id == row.unit_id, matches.c.id != match_id)
        other_leg = connection.scalar(of_unit.limit(1))
        before = connection.scalar(select(matches.c.hash).where(matches.c.seq == row.seq - 1)) or GENESIS
    record = LogRecord.from_json(row.record)
    blue, purple = (
        MatchSide.like(side, side.entity, player=view.roster.player(side.entity.sha256, side.entity.repo))
        for side in record.sides
    )
    game = game_of(record.env)
    return MatchPage.like(
        row,
        record,
        game,
        env_version=record.build.version,
        sides=game.sides,
        seed=str(record.seed),
        blue=blue,
        purple=purple,
        duration_s=record.duration_ticks * game.tick_s,
        events=[
            MatchEvent(
                tick=event.tick,
                at_s=event.tick * game.tick_s,
                type=event.kind,
                side="purple" if event.team else "blue",
                agent=event.agent if event.agent >= 0 else None,
            )
            for event in record.events
        ],
        rated=row.rated and annulled is None,
        annulled=annulled,
        runner={name: value for name, value in vars(record.runner).items() if name != "worker"},
        replay=_file(view.store, record, "replay"),
        actions=_file(view.store, record, "actions"),
        chain=ChainPosition.like(row, intact=fault(row, row.seq, before) is None, head_seq=view.version.seq),
        other_leg=other_leg,
        verify_command=f"palus verify {record.id}",
    )


def _file(store: Store, record: LogRecord, kind: Literal["replay", "actions"]) -> StoredFile | None:
    """What the record names, or what is made of the actions; None when nothing was played."""
    url = f"/api/arena/matches/{record.id}/{kind}"
    if kind == "replay" and record.replay is not None:
        return StoredFile.like(record.replay, url=url if store.blobs.has(record.replay.sha256) else None)
    try:
        data = (read_replay if kind == "replay" else read_actions)(store, record)
    except (StorageError, ReplayError, ArenaError):
        return None if record.actions is None else StoredFile.like(record.actions, url=None)
    if not data:
        return None
    return StoredFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), url=url)
