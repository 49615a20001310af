"""Server-sent events: what happened in the arena, told to every open page.

One task looks at the store while anybody listens, whatever process wrote to it, and hands each event to all listeners.
A reader that came back says which match it saw last and is told the newest of those it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from palus.hub.limits import client_of
from palus.web.api.answers import Answers
from palus.web.api.summaries import MatchSummary, match_summary
from palus.web.api.view import View
from palus.web.security import fault
from palus.web.shapes import Shape

_log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
"""A comment after so much silence, so that no proxy takes the connection for dead."""
RECONNECT_MS = 3000
BACKLOG = 50
"""Events that a slow listener may be behind, and matches that one who comes back is told."""


class Event(Shape):
    """One server-sent event; `seq` grows by one with every match of the log. Its SSE event name is `type`.

    match: a match was logged.   rating: a new fit was published.   entry: a revision was pushed, accepted or refused.
    """

    type: Literal["match", "rating", "entry"]
    seq: int
    env: str | None = None
    match: MatchSummary | None = None
    repo: str | None = None
    state: str | None = None


class Events:
    """All listeners of one server. poll_s: how often the store is looked at while somebody listens."""

    def __init__(self, answers: Answers, poll_s: float, max_listeners: int, client_listeners: int) -> None:
        self._answers = answers
        self._poll_s = poll_s
        self._max_listeners, self._client_listeners = max_listeners, client_listeners
        self._listeners: dict[asyncio.Queue[str | None], str] = {}  # -> of whom
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False

    async def listen(self, last_seq: int | None, client: str) -> AsyncIterator[str]:
        """The stream of one listener, who has seen the log up to last_seq. Raises HTTPException 503 when there are too
        many, of this client or at all."""
        if self._closed:
            raise fault(503, "stopping", "The arena is being stopped; come back later.")
        own = sum(owner == client for owner in self._listeners.values())
        if len(self._listeners) >= self._max_listeners or own >= self._client_listeners:
            sentence = f"{max(own, len(self._listeners))} pages are listening already; reload this one to see the news."
            raise fault(503, "too_many_listeners", sentence, {"Retry-After": "30"})
        stream = self._stream(last_seq, client)
        await anext(stream)  # without a pause since the look: others may ask before this one reads
        return stream

    async def _stream(self, last_seq: int | None, client: str) -> AsyncIterator[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue(BACKLOG)
        self._listeners[queue] = client
        try:
            yield ""  # for `listen`: from here on it counts
            yield f"retry: {RECONNECT_MS}\n\n"
            view = await self._answers.view()
            if self._watcher is None or self._watcher.done():
                self._watcher = asyncio.create_task(self._watch(view))
            for event in [] if last_seq is None else match_events(view, last_seq):
                yield _message(event)
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if message is None:
                    return
                yield message
        finally:
            self._listeners.pop(queue, None)

    async def _watch(self, view: View) -> None:
        """Tell listeners what changes, until there are none. A store that does not answer is asked again: their
        streams stay open, and they would never hear that nobody looks any more."""
        away = False
        while self._listeners:
            await asyncio.sleep(self._poll_s)
            try:
                newer = await self._answers.view()
            except Exception as error:
                if not away:
                    _log.error("open pages wait for news: %s", error)
                away = True
                continue
            away = False
            if newer.version != view.version:
                for event in changes(view, newer):
                    self._tell(_message(event))
                view = newer

    def _tell(self, message: str) -> None:
        for queue in list(self._listeners):
            try:
                queue.put_nowait(message)
            except asyncio.QueueFull:  # too slow: it reconnects and is told what it missed
                self._end(queue)

    def _end(self, queue: asyncio.Queue[str | None]) -> None:
        """Let a stream end now, whatever it has not read yet."""
        self._listeners.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    async def close(self) -> None:
        """End every stream and open no more."""
        self._closed = True
        for queue in list(self._listeners):
            self._end(queue)
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher


def changes(old: View, new: View) -> list[Event]:
    """What happened between two views, in the order in which pages should hear of it."""
    fitted = [
        Event(type="rating", seq=new.version.seq, env=env)
        for env, board in new.roster.ratings.items()
        if (board, new.roster.fields.get(env)) != (old.roster.ratings.get(env), old.roster.fields.get(env))
    ]
    return match_events(new, old.version.seq) + fitted + _entry_events(old, new)


def match_events(view: View, after_seq: int) -> list[Event]:
    """The newest matches after this one of the log, oldest first."""
    log = view.newest
    first = int(np.searchsorted(log["seq"], after_seq, side="right"))
    summaries = [match_summary(view, log, row) for row in range(max(first, log.n - BACKLOG), log.n)]
    return [Event(type="match", seq=summary.seq, env=summary.env, match=summary) for summary in summaries]


def _entry_events(old: View, new: View) -> list[Event]:
    if old.roster is new.roster:
        return []
    known = {entry.id: entry.state for rows in old.roster.entries_of.values() for entry in rows}
    changed = [entry for rows in new.roster.entries_of.values() for entry in rows if known.get(entry.id) != entry.state]
    return [
        Event(type="entry", seq=new.version.seq, env=entry.env, repo=entry.repo, state=entry.state)
        for entry in sorted(changed, key=lambda entry: entry.id)[-BACKLOG:]
    ]


def _message(event: Event) -> str:
    return f"id: {event.seq}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n"


def make_events_router(events: Events) -> APIRouter:
    """`/api/arena/events`."""
    router = APIRouter(prefix="/api/arena", tags=["arena"])

    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Events, without end."}},
    )
    async def get_events(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        stream = await events.listen(seen, client_of(request.scope))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    return router
