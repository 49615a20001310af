"""The action log of a match, and the match played again from it: physics only, no policy, no random number.

Format: the choices as the game's `MatchLayout.encode_actions` writes them, deflated (raw). Empty bytes are a match in
which nothing was decided.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from palus.arena.referee.games import layout_of, playable_game, source_of
from palus.arena.referee.questions import by_behavior
from palus.arena.referee.result import Verdict, verdict_of
from palus.envs.recording import I16, MatchLayout, RecordedEvent
from palus.errors import ReplayError
from palus.types import F32


def encode_actions(actions: I16, layout: MatchLayout) -> bytes:
    """actions: [decisions, P, A] branch indices."""
    if len(actions) == 0:
        return b""
    deflate = zlib.compressobj(level=9, wbits=-15)
    return deflate.compress(layout.encode_actions(actions)) + deflate.flush()


def decode_actions(data: bytes, layout: MatchLayout, max_decisions: int) -> I16:
    """The inverse of `encode_actions`. Raises ReplayError when the log is none or too long."""
    if not data:
        return layout.decode_actions(b"")
    limit = sum(layout.code_bytes) * max_decisions
    inflate = zlib.decompressobj(wbits=-15)
    try:
        raw = inflate.decompress(data, limit + 1)
        if len(raw) > limit or not inflate.eof or inflate.unused_data:
            raise ValueError(f"expected at most {max_decisions} decisions")
        return layout.decode_actions(raw)
    except (zlib.error, ValueError) as error:
        raise ReplayError(f"not an action log ({error}); it was damaged after the match") from error


def state_hash(frames: F32) -> str:
    """SHA-256 of a match as played. frames: [ticks + 1, C], the state after every fixed step at full precision.

    All frames, not the last alone: two matches that differ anywhere differ here.
    """
    little_endian = np.ascontiguousarray(frames, "<f4")
    return hashlib.sha256(little_endian.tobytes()).hexdigest()


@dataclass(frozen=True)
class Replayed:
    """A match that was played again. frames: [ticks + 1, C]. choices: [decisions, P, A]. events: but for how it ended.
    result, score: by the rules of the game; None when it was not over with the last action: somebody failed then."""

    frames: F32
    choices: I16
    events: tuple[RecordedEvent, ...]
    result: Verdict | None
    score: tuple[int, int]

    @property
    def state(self) -> str:
        """`state_hash` of the match: equal to its `MatchResult.final_state`."""
        return state_hash(self.frames)

    @property
    def ticks(self) -> int:
        """Fixed steps."""
        return len(self.frames) - 1


class Witness(Protocol):
    """Looks on while a match is played again."""

    def see(self, env: Any, decision: int, choice: I16 | None) -> None:
        """A decision is about to be played. choice: [P, A] as logged; None after the last one of a match that is not
        over."""


def replay_match(env_id: str, seed: int, actions: bytes, witness: Witness | None = None) -> Replayed:
    """Play a match again from its match seed and action log.

    The same as the first time on a machine of the same kind, with the same build of the environment.
    Raises ReplayError when the log is not one, or goes on after the match has ended; ArenaError for a game that no
    arena plays.
    """
    game, layout = playable_game(env_id), layout_of(env_id)
    env: Any = source_of(env_id).batch(1, record=True)
    decisions = decode_actions(actions, layout, game.max_ticks // layout.ticks_per_decision)
    env.reset(np.array([seed], np.int64))
    frames = [game.still(env, 0)[None]]
    events: list[RecordedEvent] = []
    ticks = 0
    result: Verdict | None = None
    score = (0, 0)
    for decision, choice in enumerate(decisions):
        if result is not None:
            raise ReplayError(f"the match ended after {decision} decisions, its action log has {len(decisions)}")
        if witness is not None:
            witness.see(env, decision, choice)
        step = env.step(by_behavior(env.spec, choice[None].astype(np.int32)))
        if step.match_over[0]:
            result, score = verdict_of(step.points[0]), game.score(step.points[0].tolist(), step.stats.get(0, {}))
        events += game.events(env, 0, ticks)
        frames.append(game.frames(env, 0))
        ticks += len(frames[-1])
    if witness is not None and result is None:
        witness.see(env, len(decisions), None)
    return Replayed(np.concatenate(frames), decisions, tuple(events), result, score)
