"""Open connections of one server: how many, of whom, and how long one may do nothing.

uvicorn waits for ever for a request that was begun and for a reader who does not read, and a process has room for
about a thousand connections. Here whoever was silent for the longest makes room for a newcomer, and what does not move
for too long is closed. A connection that is being served is never closed for another's sake.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palus.hub.limits import KIB, Buckets, client_of

SWEEP_S = 1.0


@dataclass(frozen=True)
class ConnectionLimits:
    """connections: of everybody. client_connections: of one address. header_bytes, header_lines: of the head of a
    request. header_s: until a request has come, from the start of the connection or the answer before it. stall_s: for
    a reader who takes nothing of an answer. piece_bytes, small_pieces: so many pieces of a body may be smaller than
    that, above what larger ones make up for. message_bytes: of one message by WebSocket. frames_per_s: pings, pongs and
    parts of messages there; twice as many at once. read_bytes: taken from a connection before the others have their
    turn.
    """

    connections: int = 512
    client_connections: int = 160
    header_bytes: int = 16 * KIB
    header_lines: int = 100
    header_s: float = 20.0
    stall_s: float = 60.0
    piece_bytes: int = 256
    small_pieces: int = 200
    message_bytes: int = 4 * KIB
    frames_per_s: float = 50.0
    read_bytes: int = 64 * KIB


@dataclass
class _Seat:
    client: str
    progress: Hashable
    since_s: float  # when it moved last
    buffered: int = 0


class Connections:
    """Everybody who is connected. Used from the event loop only.

    proxies: addresses or networks in numbers that bring many clients each; the limit of one client is not theirs.
    """

    def __init__(self, limits: ConnectionLimits, proxies: Sequence[str] = ()) -> None:
        self.limits = limits
        self._proxies = [ip_network(proxy, strict=False) for proxy in proxies]
        self._seats: dict[Line, _Seat] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, line: Line, client: str) -> None:
        """Give a new connection its place; another one loses it where all are taken, or this one gets none."""
        own = [other for other, seat in self._seats.items() if seat.client == client]
        self._seats[line] = _Seat(client, line.progress, time.monotonic())
        if len(own) >= self.limits.client_connections and not self._is_proxy(line):
            self._make_room([*own, line])
        elif len(self._seats) > self.limits.connections:
            self._make_room(list(self._seats))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def leave(self, line: Line) -> None:
        """The connection is closed, or speaks another protocol from now on."""
        self._seats.pop(line, None)

    def _is_proxy(self, line: Line) -> bool:
        peer = line.transport.get_extra_info("peername")
        return bool(self._proxies and peer) and any(ip_address(peer[0]) in proxy for proxy in self._proxies)

    def _make_room(self, among: list[Line]) -> None:
        """Close the one that has been idle for the longest; the newcomer is idle too, and the last."""
        self._close(next(line for line in sorted(among, key=lambda line: self._seats[line].since_s) if line.idle))

    def _close(self, line: Line) -> None:
        self.leave(line)
        line.transport.abort()

    def _sweep(self) -> None:
        """Close what has not moved for too long."""
        now_s = time.monotonic()
        for line, seat in list(self._seats.items()):
            buffered = line.transport.get_write_buffer_size()
            if line.progress != seat.progress or buffered < seat.buffered or not (buffered or line.idle):
                seat.progress, seat.since_s = line.progress, now_s
            elif now_s - seat.since_s > (self.limits.stall_s if buffered else self.limits.header_s):
                self._close(line)
            seat.buffered = buffered
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._seats else None


class Line(asyncio.Protocol):
    """One of uvicorn's protocols, seated."""

    seats: Connections
    transport: Any
    client: tuple[str, int] | None
    pauses = 0

    def connection_made(self, transport: Any) -> None:
        transport.max_size = self.seats.limits.read_bytes  # asyncio's own are four times as many
        super().connection_made(transport)
        self.seats.enter(self, client_of({"client": self.client}))

    def connection_lost(self, exc: Exception | None) -> None:
        self.seats.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self.pauses += 1
        super().pause_writing()

    @property
    def idle(self) -> bool:
        """No request is being read or answered."""
        return bool(self.transport.is_closing())

    @property
    def progress(self) -> Hashable:
        """Another value after every request, and after every pause for a slow reader."""
        return self.pauses


class _Whole(h11.Connection):
    """Requests that are not made of crumbs: each line of a head, and each piece of a body, takes long to read for what
    it says, and nobody else's are read meanwhile.

    give_up: called where a body's pieces are too many; heads are refused.
    """

    def __init__(self, limits: ConnectionLimits, give_up: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self._limits, self._give_up, self._small = limits, give_up, 0.0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if head.count(b"\n") > self._limits.header_lines:
                raise h11.RemoteProtocolError("too many lines in the head of a request", error_status_hint=431)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._small = 0.0
        elif isinstance(event, h11.Data):
            self._small = max(0.0, self._small + 1.0 - len(event.data) / self._limits.piece_bytes)
            if self._small > self._limits.small_pieces:
                self._give_up()
                return h11.NEED_DATA
        return event


class HttpLine(Line, H11Protocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.conn = _Whole(self.seats.limits, transport.abort)

    def handle_websocket_upgrade(self, event: Any) -> None:
        self.seats.leave(self)
        super().handle_websocket_upgrade(event)

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def progress(self) -> Hashable:
        return self.cycle, self.pauses


class SocketLine(Line, WebSocketsSansIOProtocol):
    """Idle until its first word, and after ours that this is the end; in between silence is the room's to judge."""

    spoken = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = self.seats.limits.message_bytes
        often = self.seats.limits.frames_per_s
        self._frames = Buckets(often, 2 * often)

    def send_receive_event_to_app(self) -> None:
        """A whole message has come."""
        self.spoken = True
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        if self._is_patient():
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        if self._is_patient():
            super().handle_pong(event)

    def handle_cont(self, event: Any) -> None:
        if self._is_patient():
            super().handle_cont(event)

    def _is_patient(self) -> bool:
        """Whether another frame that says nothing by itself may be looked at; ends the connection where it may not."""
        if self.transport.is_closing():
            return False
        if self._frames.take("") > 0:
            self.transport.abort()
            return False
        return True

    @property
    def idle(self) -> bool:
        return not self.spoken or self.close_sent or super().idle
