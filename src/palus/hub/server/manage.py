"""Who a token belongs to (`hf auth login`, `whoami`); repositories made and deleted; model cards before a push."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from palus.hub import repos
from palus.hub.accounts import Caller, find_account
from palus.hub.card import read_card
from palus.hub.ids import check_repo_id
from palus.hub.refusals import ForbiddenError
from palus.hub.server.context import Hub, check_may_write
from palus.hub.server.route import HubRoute
from palus.hub.server.shapes import CardToCheck, CreateRepo, DeleteRepo, Json


def make_manage_router(hub: Hub) -> APIRouter:
    """`/api/whoami-v2`, `/api/repos/...` and `/api/validate-yaml`."""
    router = APIRouter(route_class=HubRoute, tags=["hub: accounts and repositories"])
    checkers = asyncio.Semaphore(hub.limits.cards_at_once)

    @router.get("/api/whoami-v2")
    def whoami(request: Request) -> Json:
        """The account of the token at hand."""
        caller = hub.require_caller(request)
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

    @router.post("/api/repos/create")
    def create(request: Request, body: CreateRepo) -> JSONResponse:
        """Make a repository. One that exists answers 409 with its address, as clients that do not mind expect."""
        caller = hub.require_caller(request)
        kind, full = _named(body, caller)
        owner, name = full.split("/")
        check_may_write(caller, owner)
        url = {"url": f"{request.base_url}{repos.URL_PREFIX[kind]}{full}", "name": full}
        with hub.store.write() as connection:
            if repos.find_repo(connection, kind, full) is not None:
                message = f"{kind} {full} exists already; choose another name, or push to it"
                return JSONResponse({**url, "error": message}, 409, {"X-Error-Message": message})
            account = find_account(connection, owner)
            if account is None:
                raise ForbiddenError(f"there is no account {owner}; use your own name")
            repos.create_repo(connection, kind, account, name, body.hides, hub.limits)
        return JSONResponse(url)

    @router.delete("/api/repos/delete")
    def delete(request: Request, body: DeleteRepo) -> Json:
        """Delete a repository with its history."""
        caller = hub.require_caller(request)
        kind, full = _named(body, caller)
        with hub.store.write() as connection:
            repos.delete_repo(connection, hub.writable(connection, caller, kind, full))
        return {"deleted": full}

    @router.post("/api/validate-yaml")
    async def check_card(body: CardToCheck) -> JSONResponse:
        """What is wrong with a README.md; every client asks before it uploads one, and stops on a 400."""
        async with checkers:
            card = await run_in_threadpool(read_card, body.content.encode("utf-8", "replace"))
        said = [{"message": card.warning}] if card.warning else []
        if card.hostile:
            return JSONResponse({"errors": said, "warnings": [], "error": card.warning}, 400)
        return JSONResponse({"errors": [], "warnings": said})

    return router


def _named(body: DeleteRepo, caller: Caller) -> tuple[repos.Kind, str]:
    """Which repository a body means. Clients send owner and name apart; some tools send `owner/name` as the name."""
    owner, _, name = body.name.rpartition("/")
    return body.type or "model", check_repo_id(owner or body.organization or caller.name, name)
