"""Answers kept as bytes until the arena moves on: built once, sent many times, with an ETag.

A page that 50 people read costs one build per change of the arena, and no more than a twentieth of the time however
often the arena changes: an answer that took 50 ms is good for a second. Builds run in threads of their own, so that
the event loop stays free for everything that is ready.

Answers about games are few. Those about models, pairs of them and matches are as many as somebody likes to ask for:
they have threads beside those of the others, and only so many of them wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from palus.web.api.view import View, Views
from palus.web.security import fault
from palus.web.shapes import Shape

BUILDERS = 2
MAX_WAITING = 100
"""Answers about models, pairs of them and matches that wait to be built, or are."""
BUSY_S = 5
PATIENCE = 20.0
"""An answer is sent for so many times the time that it took to make, although the arena has moved on."""
MAX_STALE_S = 5.0
MAX_BYTES = 48 << 20
GZIP_LEVEL = 3
SMALL_BYTES = 1000
"""Below this, compressing saves nothing."""


Build = Callable[[View], Shape | None]


@dataclass(frozen=True)
class Body:
    """An answer as it travels."""

    plain: bytes
    zipped: bytes | None
    etag: str
    media_type: str


@dataclass(frozen=True)
class _Kept:
    """stamp: of the view that it was made from. made_s, cost_s: when it was made, and how long that took."""

    stamp: object
    body: Body | None
    made_s: float
    cost_s: float

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self.body.plain) + len(self.body.zipped or b"") if self.body else 0


def make_body(plain: bytes, media_type: str) -> Body:
    """Bytes with what their headers need."""
    zipped = gzip.compress(plain, GZIP_LEVEL, mtime=0) if len(plain) > SMALL_BYTES else None
    return Body(plain, zipped, f'W/"{hashlib.sha256(plain).hexdigest()[:20]}"', media_type)


def respond(request: Request, body: Body, cache_control: str = "no-cache") -> Response:
    """The response to a request: 304 when the reader has these bytes, compressed when it can read that."""
    headers = {"ETag": body.etag, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    known = request.headers.get("if-none-match", "")
    if body.etag in (tag.strip() for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    if body.zipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(body.zipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=body.media_type)
    return Response(body.plain, headers=headers, media_type=body.media_type)


def _make(view: View, build: Build, stamp: object) -> _Kept:
    started_s = time.monotonic()
    shape = build(view)
    body = None if shape is None else make_body(shape.model_dump_json().encode(), "application/json")
    made_s = time.monotonic()
    return _Kept(stamp, body, made_s, made_s - started_s)


class _Builders:
    """Threads that build answers, and what they are at or will be. most: answers at the same time."""

    def __init__(self, name: str, most: float) -> None:
        self.threads, self.most = ThreadPoolExecutor(BUILDERS, name), most
        self.building: dict[str, asyncio.Task[Body | None]] = {}


class Answers:
    """Builds, keeps and sends the JSON of pages. Used from the event loop only."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self._patience = PATIENCE if views.fresh_s > 0 else 0.0
        self._games = _Builders("palus-games", math.inf)
        self._others = _Builders("palus-pages", MAX_WAITING)
        self._files = ThreadPoolExecutor(BUILDERS, "palus-files")
        self._turns = asyncio.Semaphore(BUILDERS)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    async def view(self) -> View:
        """The present view."""
        if view := self.views.cached():
            return view
        return await asyncio.get_running_loop().run_in_executor(self._games.threads, self.views.current)

    async def send(
        self, request: Request, build: Build, missing: str | None = None, *repos: str, keeps: bool = True
    ) -> Response:
        """The response to a request whose address says it all; the others are as `get` takes them."""
        return respond(request, await self.get(request.url.path, build, missing, *repos, keeps=keeps))

    async def get(self, key: str, build: Build, missing: str | None = None, *repos: str, keeps: bool = True) -> Body:
        """The answer for a key, built when the arena has moved on, or these repositories where it is about them alone.

        missing: what to say where `build` finds nothing; None for answers about games, which are always there.
        keeps: whether it depends on nothing else; only a recent one is good otherwise.
        Raises a fault for what is missing, and where too many answers wait.
        """
        view = await self.view()
        by = self._games if missing is None else self._others
        body = await self._find(key, view, build, view.stamp(*repos) if keeps else object(), by)
        if body is None:
            raise fault(404, "not_found", missing or "")
        return body

    async def _find(self, key: str, view: View, build: Build, stamp: object, by: _Builders) -> Body | None:
        kept = self._kept.get(key)
        if kept is not None and (kept.stamp == stamp or self._is_recent(kept)):
            self._kept.move_to_end(key)
            return kept.body
        task = by.building.get(key)
        if task is None and len(by.building) >= by.most:
            sentence = f"Too many pages are being made just now; wait {BUSY_S} s and try again."
            raise fault(503, "busy", sentence, {"Retry-After": str(BUSY_S)})
        if task is None:
            task = by.building[key] = asyncio.create_task(self._build(key, view, build, stamp, by))
            task.add_done_callback(lambda _: by.building.pop(key, None))
        return await asyncio.shield(task)  # a reader who leaves does not take the answer away from the others

    def _is_recent(self, kept: _Kept) -> bool:
        return time.monotonic() - kept.made_s < min(self._patience * kept.cost_s, MAX_STALE_S)

    async def _build(self, key: str, view: View, build: Build, stamp: object, by: _Builders) -> Body | None:
        kept = await asyncio.get_running_loop().run_in_executor(by.threads, _make, view, build, stamp)
        old = self._kept.pop(key, None)
        self._bytes += kept.size - (old.size if old else 0)
        self._kept[key] = kept
        while self._bytes > MAX_BYTES or len(self._kept) > 10_000:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size
        return kept.body

    async def file(self, request: Request, make: Callable[[], Response]) -> Response:
        """What is made whenever it is asked for, in threads of its own, so that nothing else waits for these files.

        Nothing is made for a reader who has left before it was their turn.
        """
        with contextlib.suppress(ClientDisconnect):
            # A GET has no body, but the end of the connection comes after it. Whoever announced one and is silent waits
            # here, and takes no turn from others.
            await request.body()
        async with self._turns:
            if await request.is_disconnected():
                return Response(status_code=204)
            return await asyncio.get_running_loop().run_in_executor(self._files, make)

    def warm(self) -> None:
        """Begin to read entries and ratings, so that the first reader does not wait for thousands."""
        self._games.threads.submit(self.views.current)

    def close(self) -> None:
        """End the threads, after what they are at: they must not outlive the store."""
        for threads in (self._games.threads, self._others.threads, self._files):
            threads.shutdown(cancel_futures=True)
