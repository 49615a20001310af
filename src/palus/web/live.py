"""Streams a live match over one WebSocket at the pace of the game, and takes a person's choices from it.

To the client: JSON texts about the match as a whole (see `palus.web.room`), and one binary message per decision,
little endian:

    u8 1 | u8 fixed steps T | i8 team that scored, -1 none | u8 1 when the match is over | u32 number of the first
    fixed step | u16 score of blue | u16 of purple | code of what each agent chose | for each agent u8 probability / 255
    of its choices, zeros where unknown | u8 number of events E | E x (u8 fixed step of these, from 0 | u8 kind | u8
    team | i8 agent, -1 none) | T x C x i32: the channels of a frame

Codes, choices, kinds of events, channels and their units are those of the game's `MatchLayout`, as in its replays.

From the client, JSON: {"type": "act", "choice": [0..2, 0..2, 0..2]}, {"type": "pause"}, {"type": "resume"} and, a few
times a minute at least, anything: {"type": "alive"} if there is nothing else to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from palus.arena.locked.live import DURATION_TICKS, LiveMatch, LiveStep
from palus.arena.referee.games import layout_of
from palus.envs.recording import MatchLayout
from palus.hub.limits import Buckets
from palus.web.shapes import Shape

_HEAD = struct.Struct("<BBbBIHH")
_EVENT = struct.Struct("<BBBb")
_STEP_MESSAGE = 1
_PROBABILITY_LEVELS = 255
MAX_LAG_S = 0.3
"""A server that falls behind by more than this does not race to catch up."""


@dataclass(frozen=True)
class RoomLimits:
    """matches, client_matches: played at the same time, by everybody and by one address.   starts_per_minute: of one
    address.   words_per_s: of one client.   silence_s: without a word from a client it is gone.   pause_s: the longest
    pause.   match_s: of a match with its pauses.   celebration_s: rest after a goal.   duration_ticks: of a match."""

    matches: int = 6
    client_matches: int = 3
    starts_per_minute: int = 20
    words_per_s: float = 50.0
    silence_s: float = 20.0
    pause_s: float = 180.0
    match_s: float = 600.0
    celebration_s: float = 2.6
    duration_ticks: int = DURATION_TICKS


_Branch = Literal[0, 1, 2]
_Choice = tuple[_Branch, _Branch, _Branch]


class _Message(Shape):
    """What a client says during a match."""

    type: Literal["act", "pause", "resume", "alive"]
    choice: _Choice = (0, 0, 0)


class _Seat:
    """What the client wants at this moment."""

    def __init__(self) -> None:
        self.choice: _Choice = (0, 0, 0)
        self.paused = False
        self.gone = False
        self._changed = asyncio.Event()

    def hear(self, message: _Message) -> None:
        """Take in a message."""
        if message.type == "act":
            self.choice = message.choice
        elif message.type in ("pause", "resume"):
            self.paused = message.type == "pause"
            self._changed.set()

    def leave(self) -> None:
        """The client is gone."""
        self.gone = True
        self._changed.set()

    async def rest(self, seconds: float) -> bool:
        """Wait; returns early, and True, when the client paused, resumed or left."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, seconds))
        return self._changed.is_set()


async def play_live(socket: WebSocket, match: LiveMatch, limits: RoomLimits) -> bool:
    """Play the match to its end, or until the client is gone or has paused for too long. Returns whether it ended.

    Raises ArenaError when a model no longer plays.
    """
    seat = _Seat()
    listener = asyncio.create_task(_listen(socket, seat, limits))
    try:
        async with asyncio.timeout(limits.match_s):
            return await _play(socket, match, seat, limits)
    except (TimeoutError, WebSocketDisconnect, RuntimeError):  # the last is starlette's word for a closed socket
        return False
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


async def _play(socket: WebSocket, match: LiveMatch, seat: _Seat, limits: RoomLimits) -> bool:
    clock, layout = asyncio.get_running_loop().time, layout_of(match.game.env)
    due = clock()
    while not seat.gone:
        if seat.paused:
            if not await seat.rest(limits.pause_s):
                return False
            due = clock()
            continue
        # Policies and physics compute in a thread: other rooms and pages go on meanwhile.
        step = await asyncio.to_thread(match.step, seat.choice)
        # A client that no longer reads would otherwise keep its place for ever.
        await asyncio.wait_for(socket.send_bytes(encode_step(step, layout)), limits.silence_s)
        if step.finished:
            return True
        due += len(step.frames) * match.game.tick_s + (limits.celebration_s if step.goal >= 0 else 0.0)
        due = max(due, clock() - MAX_LAG_S)
        while clock() < due and not seat.gone and not seat.paused:
            await seat.rest(due - clock())
    return False


async def _listen(socket: WebSocket, seat: _Seat, limits: RoomLimits) -> None:
    """Pass on what the client says, until it says nothing more, too much, or something that we do not understand."""
    words = Buckets(limits.words_per_s, 2 * limits.words_per_s)
    try:
        while words.take("") == 0:
            text = await asyncio.wait_for(socket.receive_text(), limits.silence_s)
            seat.hear(_Message.model_validate_json(text))
    except (TimeoutError, WebSocketDisconnect, RuntimeError, ValidationError, KeyError):
        pass
    seat.leave()


def encode_step(step: LiveStep, layout: MatchLayout) -> bytes:
    """The binary message of one decision; see above."""
    head = _HEAD.pack(_STEP_MESSAGE, len(step.frames), step.goal, step.finished, step.first_tick, *step.score)
    codes = layout.encode_actions(step.actions[None].astype(np.int16))
    levels = np.rint(np.nan_to_num(step.probabilities) * _PROBABILITY_LEVELS).astype(np.uint8)
    told = b"".join(row[:width].tobytes() for row, width in zip(levels, layout.choices, strict=True))
    happened = [
        _EVENT.pack(event.tick - step.first_tick, layout.events.index(event.kind), event.team, event.agent)
        for event in step.events
    ]
    events = bytes([len(happened)]) + b"".join(happened)
    frames = np.rint(step.frames.astype(np.float64) / layout.unit_of(layout.units)).astype("<i4")
    return head + codes + told + events + frames.tobytes()
