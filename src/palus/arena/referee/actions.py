"""The action log of a match, and the match played again from it: physics only, no policy, no random number.

Format: one byte per agent and decision, 9 * move + 3 * strafe + turn with branch indices 0 to 2; the decisions of
agent 0 in order, then those of agent 1, 2 and 3; raw deflate. Empty bytes are a match in which nothing was decided.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from palus import envs
from palus.arena.referee.games import playable_game
from palus.arena.referee.result import verdict_of
from palus.errors import ReplayError
from palus.types import F32

I8 = NDArray[np.int8]

_AGENTS, _BRANCHES, _CODES = 4, 3, 27
_CODE_OF_BRANCH = np.array([9, 3, 1], np.uint8)


def encode_actions(actions: I8) -> bytes:
    """actions: [decisions, 4, 3] branch indices."""
    if len(actions) == 0:
        return b""
    codes = (actions.astype(np.uint8) @ _CODE_OF_BRANCH).T
    deflate = zlib.compressobj(level=9, wbits=-15)
    return deflate.compress(codes.tobytes()) + deflate.flush()


def decode_actions(data: bytes, max_decisions: int) -> I8:
    """The inverse of `encode_actions`: [decisions, 4, 3]. Raises ReplayError when the log is none or too long."""
    if not data:
        return np.zeros((0, _AGENTS, _BRANCHES), np.int8)
    limit = _AGENTS * max_decisions
    inflate = zlib.decompressobj(wbits=-15)
    try:
        raw = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        raise ReplayError(f"not an action log ({error}); it was damaged after the match") from error
    if len(raw) > limit or not inflate.eof or inflate.unused_data or len(raw) % _AGENTS:
        raise ReplayError(
            f"not an action log: expected {_AGENTS} bytes per decision, at most {max_decisions} decisions"
        )
    codes = np.frombuffer(raw, np.uint8).reshape(_AGENTS, -1).T
    if codes.size and codes.max() >= _CODES:
        raise ReplayError(f"not an action log: code {codes.max()}, expected 0 to {_CODES - 1}")
    return np.stack([codes // 9, codes // 3 % 3, codes % 3], axis=-1).astype(np.int8)


def state_hash(frames: F32) -> str:
    """SHA-256 of a match as played. frames: [ticks + 1, 14], the state after every fixed step at full precision.

    All frames, not the last alone: two matches that differ anywhere differ here.
    """
    little_endian = np.ascontiguousarray(frames, "<f4")
    return hashlib.sha256(little_endian.tobytes()).hexdigest()


@dataclass(frozen=True)
class Replayed:
    """A match that was played again. frames: [ticks + 1, 14]. winner: team that scored, -1 none. over: by the rules of
    the game; otherwise somebody failed after the last action."""

    frames: F32
    winner: int
    over: bool

    @property
    def state(self) -> str:
        """`state_hash` of the match."""
        return state_hash(self.frames)

    @property
    def ticks(self) -> int:
        """Fixed steps."""
        return len(self.frames) - 1


class Witness(Protocol):
    """Looks on while a match is played again."""

    def see(self, env: Any, decision: int, choice: I8 | None) -> None:
        """A decision is about to be played. choice: [4, 3] as logged; None after the last one of a match that is not
        over."""


def replay_actions(env_id: str, seed: int, actions: bytes) -> str:
    """The `state_hash` of `replay_match`: equal to `MatchResult.final_state`."""
    return replay_match(env_id, seed, actions).state


def replay_match(env_id: str, seed: int, actions: bytes, witness: Witness | None = None) -> Replayed:
    """Play a match again from its match seed and action log.

    The same as the first time on a machine of the same kind, with the same build of the environment.
    Raises ReplayError when the log is not one, or goes on after the match has ended; ArenaError for a game that no
    arena plays.
    """
    game = playable_game(env_id)
    if game.filmed:
        raise ReplayError(f"matches of {env_id} do not repeat; what there is of them is a video")
    env: Any = envs.make(env_id, 1, record=True)
    decisions = decode_actions(actions, env.spec.max_decisions)
    env.reset(np.array([seed], np.int64))
    frames = [game.still(env, 0)[None]]
    over = False
    for decision, choice in enumerate(decisions):
        if over:
            raise ReplayError(f"the match ended after {decision} decisions, its action log has {len(decisions)}")
        if witness is not None:
            witness.see(env, decision, choice)
        step = env.step([choice[None].astype(np.int32)])
        over = bool(step.match_over[0])
        frames.append(game.frames(env, 0))
    if witness is not None and not over:
        witness.see(env, len(decisions), None)
    winner = {"win1": 0, "win2": 1}.get(verdict_of(step.points[0]), -1) if over else -1
    return Replayed(np.concatenate(frames), winner, over)
