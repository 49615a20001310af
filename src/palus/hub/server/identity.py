"""Who a token belongs to: what `hf auth login` and `whoami` ask."""

from __future__ import annotations

from fastapi import APIRouter, Request

from palus.hub.server.context import Hub
from palus.hub.server.route import HubRoute
from palus.hub.server.shapes import Json


class IdentityEndpoints:
    """`/api/whoami-v2`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(route_class=HubRoute, tags=["hub: accounts"])
        router.add_api_route("/api/whoami-v2", self.whoami, methods=["GET"])
        return router

    def whoami(self, request: Request) -> Json:
        """The account of the token at hand."""
        caller = self._hub.require_caller(request)
        role = "write" if caller.can_write_as(caller.name) else "read"
        token = {"displayName": caller.label, "role": role, "scopes": sorted(caller.scopes)}
        return {
            "type": "user",
            "id": f"{caller.account_id:024x}",
            "name": caller.name,
            "fullname": caller.name,
            "isPro": False,
            "orgs": [],
            "auth": {"type": "access_token", "accessToken": token},
        }
