"""All endpoints of the hub as one router, to be included at the root of an application."""

from __future__ import annotations

from fastapi import APIRouter

from palus.hub.limits import HubLimits
from palus.hub.repos import URL_PREFIX
from palus.hub.server.context import Hub
from palus.hub.server.download import DownloadEndpoints
from palus.hub.server.lfs import LfsEndpoints, LfsPutEndpoint
from palus.hub.server.listing import ListingEndpoints
from palus.hub.server.manage import ManageEndpoints
from palus.hub.server.upload import UploadEndpoints
from palus.store import Store


def make_hub_router(store: Store, limits: HubLimits) -> APIRouter:
    """The hub on a store. Include it before routes such as `/{owner}/{name}`; it lives under `/api`,
    `/{owner}/{name}/resolve`, `/{owner}/{name}.git` and `/datasets`."""
    hub = Hub(store, limits)
    router = APIRouter()
    for endpoints in (ManageEndpoints(hub), LfsPutEndpoint(hub)):
        router.include_router(endpoints.router())
    for kind in URL_PREFIX:
        for make in (ListingEndpoints, UploadEndpoints, LfsEndpoints, DownloadEndpoints):
            router.include_router(make(hub, kind).router())
    return router
