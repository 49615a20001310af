"""A hub alone, without arena and pages."""

from __future__ import annotations

from fastapi import FastAPI

from palus.hub.limits import HubLimits
from palus.hub.server.guard import Guard, hub_route_limits
from palus.hub.server.router import make_hub_router
from palus.store import Store


def make_hub_app(store: Store, limits: HubLimits | None = None) -> FastAPI:
    """An application that serves the hub's protocol and nothing else."""
    app = FastAPI(title="palus hub", docs_url=None, redoc_url=None)
    limits = limits or HubLimits()
    app.add_middleware(Guard, routes=hub_route_limits(limits), limits=limits)
    app.include_router(make_hub_router(store, limits))
    return app
