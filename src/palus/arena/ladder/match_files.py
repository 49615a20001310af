"""What there is of a logged match beside its record: the action log in its row, and its replay.

A replay of a game that repeats is made from its actions when somebody asks, and shows what everybody did, not with
which probability. Videos, and replays of matches that an older palus logged, are blobs.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from sqlalchemy import select

from palus.arena.ladder.log import LogRecord
from palus.arena.referee.actions import replay_match
from palus.arena.referee.replay import encode_replay
from palus.arena.referee.result import PLAYED
from palus.envs.recording import Recording
from palus.errors import ReplayError, StorageError
from palus.store import Store
from palus.store.tables import matches

KEPT_REPLAYS = 256
"""That were made last; of a few kilobytes each."""


def read_actions(store: Store, record: LogRecord) -> bytes:
    """The action log of a match, b"" when nothing was played.

    Raises StorageError when it is gone, or another than the record says.
    """
    if record.actions is None:
        return b""
    with store.read() as connection:
        kept = connection.scalar(select(matches.c.actions).where(matches.c.id == record.id))
    if kept is None:
        return store.blobs.read(record.actions.sha256)
    if hashlib.sha256(kept).hexdigest() != record.actions.sha256:
        raise StorageError(f"the actions of match {record.id} are not those of its record; restore a backup")
    return bytes(kept)


def read_replay(store: Store, record: LogRecord) -> bytes:
    """Its replay: a video where the game is filmed. b"" when nothing was played.

    Raises StorageError when it is gone, ReplayError when it cannot be made again here.
    """
    if record.replay is not None:
        return store.blobs.read(record.replay.sha256)
    actions = read_actions(store, record)
    return _made(record.to_json(), actions) if actions else b""


def recording_of(record: LogRecord, actions: bytes) -> Recording:
    """A match of a game that repeats, played again. Raises ReplayError where it comes out otherwise here."""
    again = replay_match(record.env, record.seed, actions)
    told = (record.result, tuple(record.score)) if record.result in PLAYED else (None, (0, 0))
    if again.state != record.final_state or (again.result, again.score) != told:
        raise ReplayError(
            f"match {record.id} comes out otherwise here than it was logged: another build of {record.env} played it "
            f"(palus {record.build.version}), or another kind of processor"
        )
    return Recording(
        env_id=record.env,
        seed=record.seed,
        names=(record.sides[0].entity.repo, record.sides[1].entity.repo),
        frames=again.frames,
        actions=again.choices,
        probabilities=None,
        events=(*again.events, *record.events),
        score=record.score,
        result=record.outcome,
    )


@lru_cache(KEPT_REPLAYS)
def _made(line: str, actions: bytes) -> bytes:
    return encode_replay([recording_of(LogRecord.from_json(line), actions)])
