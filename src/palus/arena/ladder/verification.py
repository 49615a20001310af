"""One match of the log, played again from its seed and action log with the players that the log names.

Matches of games that do not repeat cannot be played again: what is left to check is their record and their video.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import select

from palus.arena.ladder.log import LogRecord, read_match
from palus.arena.ladder.match_files import read_actions
from palus.arena.locked.probe import mixes_rows
from palus.arena.locked.steady import unsteady
from palus.arena.locked.witness import Testimony, ask_again
from palus.arena.models.entity import Entity
from palus.arena.models.refusal import Refusal, RefusedError
from palus.arena.referee.actions import Replayed
from palus.arena.referee.games import GAMES, env_build, layout_of
from palus.arena.referee.replay import decode_replay
from palus.arena.referee.result import PLAYED, Mode, verdict_of
from palus.envs.recording import Recording
from palus.errors import ArenaError, ReplayError, StorageError
from palus.store import Store
from palus.store.tables import matches


@dataclass(frozen=True)
class Verification:
    """What playing a match again gave, or looking at its video. ok: None when it could not be tried. sentence: for
    people. forged: nobody who played it would have sent this. filmed: only the record and the video were looked at.
    at_fault: SHA-256 of a model that may not play, "" for none. refusal: with which it is refused. rounded: choices
    that are not drawn here, but may have been where sums are rounded otherwise."""

    match_id: str
    ok: bool | None
    sentence: str
    forged: bool = False
    filmed: bool = False
    at_fault: str = ""
    refusal: Refusal | None = None
    rounded: int = 0


def verify(store: Store, match_id: str) -> Verification:
    """Play a match again from its seed and action log and compare the final state.

    Raises ArenaError when there is no such match.
    """
    with store.read() as connection:
        record = read_match(connection, match_id)
    if record is None:
        raise ArenaError(f"there is no match {match_id} in this log; its address is on the match's page")
    return verify_record(store, record)


def verify_record(store: Store, record: LogRecord) -> Verification:
    """`verify` for a record at hand."""
    game = GAMES.get(record.env)
    if game is None:
        return _unchecked(record, f"no arena plays {record.env}")
    if game.filmed:
        return _check_filmed(store, record)
    if env_build(game.env).build_hash != record.build.build_hash:
        return _unchecked(
            record,
            f"it was played with palus {record.build.version} and another build of {game.env}; install that version to "
            "verify it",
        )
    try:
        actions = read_actions(store, record)
        replay = store.blobs.read(record.replay.sha256) if record.replay else b""
    except StorageError as error:
        return _unchecked(record, str(error))
    return verify_actions(store, record, actions, replay, in_pair=True)


def verify_actions(
    store: Store, record: LogRecord, actions: bytes, replay: bytes | None, *, in_pair: bool = False
) -> Verification:
    """`verify` for a match of a game that repeats, of the build that is here, with its action log at hand. in_pair:
    whether the other leg of the log is of the same pair: one process answers in both, and may have failed in that one.
    """
    try:
        again, said = _play_again(store, record, actions)
        shown = decode_replay(replay, "its replay").recordings[0] if replay else None
    except StorageError as error:
        return _unchecked(record, str(error))
    except ReplayError as error:
        return Verification(record.id, False, f"match {record.id} cannot be played again: {error}", forged=True)
    found = _judge(record, again, said, shown)
    if found.ok is not False or not in_pair or not _has_failed_process(record):
        return found
    failed = _failed_beside(store, record)
    both = [replace(own, healthy=own.healthy and not gone) for own, gone in zip(said, failed, strict=True)]
    together = _judge(record, again, both, shown)
    return together if together.ok else found


def _play_again(store: Store, record: LogRecord, actions: bytes) -> tuple[Replayed, tuple[Testimony, ...]]:
    """Raises StorageError when a model is not here, ReplayError."""
    contenders = _contender(store, record.sides[0].entity), _contender(store, record.sides[1].entity)
    mode: Mode = "greedy" if record.sides[0].mode == "greedy" else "stochastic"
    return ask_again(record.env, record.seed, record.leg, actions, contenders, mode)


def _has_failed_process(record: LogRecord) -> bool:
    return record.result not in PLAYED and record.cause in ("timeout", "crash", "invalid")


def _failed_beside(store: Store, record: LogRecord) -> tuple[bool, bool]:
    """Whose process failed in the other leg of the pair at the decision at which this one ended: by side of this one,
    blue first."""
    beside = select(matches.c.id).where(matches.c.unit_id == record.unit_id, matches.c.id != record.id)
    with store.read() as connection:
        other = read_match(connection, connection.scalar(beside.limit(1)) or "")
    if other is None or not _has_failed_process(other) or other.duration_ticks != record.duration_ticks:
        return False, False
    try:
        again, said = _play_again(store, other, read_actions(store, other))
    except (StorageError, ReplayError):
        return False, False
    if again.state != other.final_state or again.result is not None:
        return False, False
    at_fault = other.result != "forfeit2", other.result != "forfeit1"
    blue, purple = (
        fault and not own.healthy and own.failed not in ("", "engine")
        for fault, own in zip(at_fault, said, strict=True)
    )
    return purple, blue  # the sides of this leg are the others


def _judge(record: LogRecord, again: Replayed, said: Sequence[Testimony], shown: Recording | None) -> Verification:
    """said: by the first side's player, and the second's."""
    told = f"match {record.id} is recorded as {record.result} ({record.cause}) {record.score[0]}:{record.score[1]}"
    if again.state != record.final_state:
        fault = "ends differently when it is played again: its record does not belong to its actions"
        return Verification(record.id, False, f"match {record.id} {fault}", forged=True)
    if shown is not None and not _is_shown(shown, again):
        return Verification(record.id, False, f"the replay of match {record.id} shows another match", forged=True)
    ending, is_recorded = _ending(again, said), (record.result, tuple(record.score), record.duration_ticks)
    otherwise = f"{told} after {record.duration_ticks} ticks, which is not how it ends when it is played again"
    if ending != is_recorded and (again.result is not None or record.result in PLAYED):  # whoever fails here
        return Verification(record.id, False, otherwise, forged=True)
    strange = [(side.entity, own) for side, own in zip(record.sides, said, strict=True) if own.strange]
    if strange:
        entity, own = min(strange, key=lambda pair: pair[1].is_unsteady)
        if own.is_unsteady:
            does = "chooses otherwise where its observations differ by rounding alone"
            return _refused(record, entity, does, unsteady())
        does = f"would not have taken {own.strange} of its {own.choices} choices"
        return Verification(record.id, False, f"match {record.id}: {entity.repo} {does}", forged=True)
    entities = [side.entity for side in record.sides]
    for entity, own, forfeit in zip(entities, said, ("forfeit1", "forfeit2"), strict=True):
        failed_there = record.result in (forfeit, "void")
        if own.mixes_rows and not failed_there:
            return _refused(record, entity, "answers an agent differently when others are asked with it", mixes_rows())
        if own.failed == "engine" or (own.failed and not failed_there):
            return _unchecked(record, f"the process of {entity.repo} failed here ({own.failed})")
    if ending == is_recorded:
        rounded = sum(own.rounded for own in said)
        sentence = f"match {record.id}: played again, the same to the last bit"
        if rounded:
            choices = sum(own.choices for own in said)
            sentence += f"; of {choices} choices {rounded} are the players' own only where sums are rounded otherwise"
        found = Verification(record.id, True, sentence, rounded=rounded)
        mixing = [entity.sha256 for entity, own in zip(entities, said, strict=True) if own.mixes_rows]
        return replace(found, at_fault=mixing[0], refusal=mixes_rows().refusal) if mixing else found
    if _has_failed_process(record) and (ending is None or record.result == "void"):  # of both, where one fails again
        sentence = f"{told}; whose process failed then answers now, so the match does not count"
        return Verification(record.id, False, sentence)
    return Verification(record.id, False, otherwise, forged=True)


def _refused(record: LogRecord, entity: Entity, does: str, error: RefusedError) -> Verification:
    sentence = f"match {record.id}: {entity.repo} {does}"
    return Verification(record.id, False, sentence, at_fault=entity.sha256, refusal=error.refusal)


def _ending(again: Replayed, said: Sequence[Testimony]) -> tuple[str, tuple[int, int], int] | None:
    """Result, score and ticks as they come out again; None when nobody failed where the actions end."""
    if again.result is not None:
        return again.result, again.score, again.ticks
    healthy = said[0].healthy, said[1].healthy
    verdict = {(False, False): "void", (False, True): "forfeit1", (True, False): "forfeit2"}.get(healthy)
    return None if verdict is None else (verdict, (0, 0), again.ticks)


def _is_shown(shown: Recording, again: Replayed) -> bool:
    """Whether a replay shows the match as it was played again, to the precision of its file."""
    if shown.frames.shape != again.frames.shape:
        return False
    layout = layout_of(shown.env_id)
    return bool((np.abs(shown.frames - again.frames) <= layout.unit_of(layout.units)).all())


def _contender(store: Store, entity: Entity) -> Entity:
    """Who played a side, with the bytes that are kept here. Raises StorageError when they are not."""
    if entity.house is not None and all(entity.house not in game.house for game in GAMES.values()):
        raise StorageError(f"there is no house player {entity.house}")
    return entity.with_models(store.blobs.read)


def _unchecked(record: LogRecord, why: str) -> Verification:
    return Verification(record.id, None, f"match {record.id} cannot be played again here: {why}")


def _check_filmed(store: Store, record: LogRecord) -> Verification:
    """A match that nobody can play again: whether result and score agree, and the video is the one recorded."""
    if record.result in PLAYED and verdict_of(record.score) != record.result:
        sentence = f"match {record.id} is recorded as {record.result} {record.score[0]}:{record.score[1]}"
        return Verification(record.id, False, f"{sentence}, which contradict each other", forged=True, filmed=True)
    try:
        video = store.blobs.read(record.replay.sha256) if record.replay else b""
    except StorageError as error:
        sentence = f"the video of match {record.id} is not the one recorded: {error}"
        return Verification(record.id, False, sentence, filmed=True)
    seen = f"its video of {len(video)} bytes is the one recorded" if video else "it has no video"
    sentence = f"match {record.id}: {record.env} does not repeat, and cannot be played again; its record is sound"
    return Verification(record.id, True, f"{sentence}, {seen}", filmed=True)
