"""All endpoints of the hub: as one router, to be included at the root of an application, and as an application."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from palus.hub.limits import HubLimits
from palus.hub.repos import URL_PREFIX
from palus.hub.server.context import Hub
from palus.hub.server.download import DownloadEndpoints
from palus.hub.server.guard import Guard, hub_route_limits
from palus.hub.server.lfs import LfsEndpoints, LfsPutEndpoint
from palus.hub.server.listing import ListingEndpoints
from palus.hub.server.manage import ManageEndpoints
from palus.hub.server.upload import UploadEndpoints
from palus.store import Store


def make_hub_router(store: Store, limits: HubLimits | None = None) -> APIRouter:
    """The hub on a store. Include it before routes such as `/{owner}/{name}`; it lives under `/api`,
    `/{owner}/{name}/resolve`, `/{owner}/{name}.git` and `/datasets`."""
    hub = Hub(store, limits or HubLimits())
    router = APIRouter()
    for endpoints in (ManageEndpoints(hub), LfsPutEndpoint(hub)):
        router.include_router(endpoints.router())
    for kind in URL_PREFIX:
        for make in (ListingEndpoints, UploadEndpoints, LfsEndpoints, DownloadEndpoints):
            router.include_router(make(hub, kind).router())
    return router


def make_hub_app(store: Store, limits: HubLimits | None = None) -> FastAPI:
    """An application that serves the hub's protocol and nothing else."""
    app = FastAPI(title="palus hub", docs_url=None, redoc_url=None)
    limits = limits or HubLimits()
    app.add_middleware(Guard, routes=hub_route_limits(limits), limits=limits)
    app.include_router(make_hub_router(store, limits))
    return app
