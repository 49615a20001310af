"""What stands in front of every route: how often an address may ask, how much it may send, how long that may take.

Not every database takes a NUL in a text, so that none gets past here in an address.

It looks at the request line, the address and the bytes as they pass, and keeps none of them, so that nobody's body is
in memory before its size is known. To the application a client that was refused in the middle of its body looks gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palus.hub.limits import Buckets, HubLimits, client_of, commit_body_bytes, show_bytes


@dataclass(frozen=True)
class RouteLimit:
    """Limits of the routes whose `METHOD /path` begins with a match of `routes`.

    body_bytes: of one request. per_s, burst: requests of one address, to all of these routes together.
    """

    routes: str
    body_bytes: int
    per_s: float
    burst: float


def hub_route_limits(limits: HubLimits) -> tuple[RouteLimit, ...]:
    """Limits of the hub's routes, the first that fits counts. Files are streamed to disk, all else is small."""
    often = (limits.address_per_s, limits.address_burst)
    kinds = "/api/(models|datasets)"
    return (
        RouteLimit("POST /api/validate-yaml", limits.json_bytes, limits.cards_per_minute / 60, limits.cards_per_minute),
        RouteLimit(rf"POST {kinds}/[^/]+/[^/]+/commit/", commit_body_bytes(limits.commit_bytes), *often),
        RouteLimit("PUT /api/lfs/", limits.lfs_bytes, *often),
        RouteLimit(rf"\w+ {kinds}/?$", limits.json_bytes, limits.listings_per_s, limits.listing_burst),
        RouteLimit(rf"\w+ {kinds}|\w+ /api/(repos/|whoami)|\w+ .*(/resolve/|\.git/)", limits.json_bytes, *often),
    )


class Guard:
    """ASGI middleware. routes: the first that fits a request counts; one that none fits is let through as it is.

    limits: how long any body may take."""

    def __init__(self, app: ASGIApp, routes: Sequence[RouteLimit], limits: HubLimits) -> None:
        self.app = app
        self._routes = [(re.compile(route.routes), route, Buckets(route.per_s, route.burst)) for route in routes]
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        found = self._find(scope) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        limit, buckets = found
        wait_s = buckets.take(client_of(scope))
        if wait_s > 0:
            sentence = f"Too many requests from this address; wait {wait_s:.1f} s and try again."
            answer = _refusal(429, "too_many_requests", sentence, {"Retry-After": str(math.ceil(wait_s))})
            await answer(scope, receive, send)
        elif "\0" in scope["path"]:
            sentence = "There is nothing at an address with a NUL (%00) in it."
            await _refusal(404, "not_found", sentence)(scope, receive, send)
        elif b"%00" in scope["query_string"]:
            sentence = "There is a NUL (%00) in what is asked for; leave it out."
            await _refusal(400, "invalid_input", sentence)(scope, receive, send)
        elif _declared_bytes(scope) > limit.body_bytes:
            await _too_large(limit.body_bytes)(scope, receive, send)
        else:
            body = _Body(scope, receive, send, limit.body_bytes, self._limits)
            with contextlib.suppress(ClientDisconnect):  # there is nobody to answer, and nothing for the log
                await self.app(scope, body.receive, body.send)

    def _find(self, scope: Scope) -> tuple[RouteLimit, Buckets] | None:
        line = f"{scope['method']} {scope['path']}"
        return next(((route, buckets) for pattern, route, buckets in self._routes if pattern.match(line)), None)


class _Body:
    """One request's body on its way in: counted, timed and, when it breaks a limit, answered here."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_bytes: int, limits: HubLimits) -> None:
        self._scope, self._receive, self._send, self._max_bytes = scope, receive, send, max_bytes
        self._allowed_s = limits.body_grace_s  # of waiting for the client; what the application takes does not count
        self._bytes_per_s = limits.body_bytes_per_s
        self._received = 0
        self._complete = self._started = self._refused = False

    async def receive(self) -> Message:
        """The next piece. After the last one the application may wait here for the client to leave."""
        if self._complete:
            return await self._receive()
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._allowed_s)):
                message = await self._receive()
        except TimeoutError:
            rate = show_bytes(self._bytes_per_s)
            sentence = f"The body came slower than {rate} a second; try again on a better connection."
            return await self._refuse(_refusal(408, "too_slow", sentence, {"Connection": "close"}))
        size = len(message.get("body", b""))
        self._received += size
        self._allowed_s += size / self._bytes_per_s - (time.monotonic() - began_s)
        if self._received > self._max_bytes:
            return await self._refuse(_too_large(self._max_bytes))
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """What the application answers, unless that was done here."""
        if not self._refused:
            self._started = True
            await self._send(message)

    async def _refuse(self, answer: JSONResponse) -> Message:
        self._refused = self._complete = True
        if not self._started:
            await answer(self._scope, self._receive, self._send)
        return {"type": "http.disconnect"}


def _declared_bytes(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return max((int(value) for value in lengths if value.isdigit()), default=0)


def _too_large(limit: int) -> JSONResponse:
    sentence = f"The body is larger than {show_bytes(limit)}, the most that is taken here; send less."
    return _refusal(413, "too_large", sentence)


def _refusal(status: int, code: str, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """In the shape of the arena's errors, with the header that clients of the hub show."""
    return JSONResponse({"error": sentence, "code": code}, status, {"X-Error-Message": sentence, **(headers or {})})
