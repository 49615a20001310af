"""The one web application of an arena: hub protocol, JSON, pages, live events, downloads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import APIRouter, FastAPI

from palus import __version__
from palus.arena.jobs.remote import MAX_ANSWER_BYTES
from palus.arena.ladder.settings import ArenaSettings
from palus.hub.limits import KIB, HubLimits
from palus.hub.server.guard import Guard, RouteLimit, hub_route_limits
from palus.hub.server.router import include_hub
from palus.store import Store
from palus.web.api.answers import Answers
from palus.web.api.router import find_model, make_api_router
from palus.web.api.view import FRESH_S, Views
from palus.web.events import Events, make_events_router
from palus.web.exports import Exports, make_downloads_router
from palus.web.live import RoomLimits
from palus.web.names import KnownNames, Names
from palus.web.pages import make_pages_router, site_folder
from palus.web.room import Rooms, make_room_router
from palus.web.security import SecurityHeaders, install_faults


@dataclass(frozen=True)
class WebLimits:
    """What one server gives its readers, and how far pages may lag behind the store.

    requests_per_s, request_burst: of one address. matches_per_s, matches_burst: the same for matches and their replays,
    which are made again. comparisons_per_s, comparisons_burst: the same for pairs of models, of which there are many.
    request_bytes, report_bytes: of one body; reports are those of remote workers. listeners, client_listeners: open
    event streams of everybody, of one address. fresh_s: pages may be this much behind. poll_s: time between looks at
    the store while somebody listens. keep_s: downloads may be this much behind.
    """

    requests_per_s: float = 50.0
    request_burst: int = 1000  # a classroom behind one address; a page is about a dozen requests
    matches_per_s: float = 10.0
    matches_burst: int = 200
    comparisons_per_s: float = 5.0
    comparisons_burst: int = 50
    request_bytes: int = 64 * KIB
    report_bytes: int = MAX_ANSWER_BYTES
    listeners: int = 250
    client_listeners: int = 100  # a class may share one
    fresh_s: float = FRESH_S
    poll_s: float = 0.5
    keep_s: float = 60.0  # writing 240 000 rows takes seconds


def make_app(
    store: Store,
    *,
    arena: ArenaSettings | None = None,
    hub_limits: HubLimits | None = None,
    limits: WebLimits | None = None,
    extra_routers: Sequence[APIRouter] = (),
    rooms: Rooms | None = None,
    site: Path | None = None,
    names: Names | None = None,
) -> FastAPI:
    """The application over a store. The caller serves it and closes the store afterwards.

    arena: games, mode and season to show. extra_routers: routes that come before all others, such as the
    workers'. rooms: the demo room's places. site: folder of built pages, by default the package's own. names: under
    which it answers, besides addresses in numbers; by default localhost.
    """
    limits = limits or WebLimits()
    hub_limits = hub_limits or HubLimits()
    site = site or site_folder()
    views = Views(store, limits.fresh_s, arena)
    answers = Answers(views)
    exports = Exports(views, limits.keep_s)
    events = Events(answers, limits.poll_s, limits.listeners, limits.client_listeners)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        answers.warm()
        yield
        await events.close()
        await hub.downloads.close()
        exports.close()
        answers.close()

    app = FastAPI(title="palus arena", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.events = events  # palus.web.serving ends them when the server stops
    app.add_middleware(KnownNames, names=names or Names())
    app.add_middleware(Guard, routes=route_limits(limits, hub_limits), limits=hub_limits)
    app.add_middleware(SecurityHeaders)
    install_faults(app, site)
    for router in extra_routers:  # first: workers ask more often than all others
        app.include_router(router)
    app.include_router(make_events_router(events))
    app.include_router(make_downloads_router(exports))
    app.include_router(make_api_router(answers))
    hub = include_hub(app, store, hub_limits)
    app.include_router(make_room_router(answers, rooms or Rooms(RoomLimits())))
    # last: /{owner}/{name} would swallow others
    app.include_router(make_pages_router(site, partial(find_model, answers)))
    return app


def route_limits(limits: WebLimits, hub: HubLimits) -> tuple[RouteLimit, ...]:
    """Limits of all routes, the first that fits counts; a socket is no request, its room counts it."""
    often = (limits.requests_per_s, limits.request_burst)
    return (
        *hub_route_limits(hub),
        RouteLimit("POST /api/worker/finish", limits.report_bytes, *often),
        RouteLimit(r"\w+ /api/worker/", limits.request_bytes, *often),
        RouteLimit("GET /api/arena/matches/", limits.request_bytes, limits.matches_per_s, limits.matches_burst),
        RouteLimit(
            r"\w+ /api/arena/compare/", limits.request_bytes, limits.comparisons_per_s, limits.comparisons_burst
        ),
        RouteLimit("", limits.request_bytes, *often),
    )
