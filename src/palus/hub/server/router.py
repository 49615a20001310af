"""All endpoints of the hub, at the root of an application."""

from __future__ import annotations

from fastapi import FastAPI

from palus.hub.limits import HubLimits
from palus.hub.repos import URL_PREFIX
from palus.hub.server.context import Hub
from palus.hub.server.download import make_download_router
from palus.hub.server.lfs import make_lfs_put_router, make_lfs_router
from palus.hub.server.listing import make_listing_router
from palus.hub.server.manage import make_manage_router
from palus.hub.server.upload import make_upload_router
from palus.store import Store


def include_hub(app: FastAPI, store: Store, limits: HubLimits) -> Hub:
    """Give the application the hub on a store, before routes such as `/{owner}/{name}`; it lives under `/api`,
    `/{owner}/{name}/resolve`, `/{owner}/{name}.git` and `/datasets`. Returns it: its `downloads` are closed at the end.

    Workers' routes find it as `app.state.hub`.
    """
    hub = app.state.hub = Hub(store, limits)
    app.include_router(make_manage_router(hub))
    app.include_router(make_lfs_put_router(hub))
    for kind in URL_PREFIX:
        for make in (make_listing_router, make_upload_router, make_lfs_router, make_download_router):
            app.include_router(make(hub, kind))
    return hub
