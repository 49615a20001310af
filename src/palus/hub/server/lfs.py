"""Large files by git's LFS protocol (transfer `basic`), for clients without Xet.

The client asks where to put what; the addresses it gets are signed for one account, hash and size and good for an
hour, because it sends the bytes without its token.
"""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from palus.hub import repos
from palus.hub.accounts import Caller
from palus.hub.limits import show_bytes
from palus.hub.refusals import InvalidInputError, TooLargeError
from palus.hub.server.context import Hub
from palus.hub.server.route import STREAMED_BODY, HubRoute, pieces
from palus.hub.server.shapes import Json, LfsBatch, LfsObject
from palus.hub.uploads import day_bytes_left, keep_uploads, over_quota, reusable

VALID_S = 3600
_MEDIA_TYPE = "application/vnd.git-lfs+json"
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Positive = Annotated[int, Query(ge=0, le=2**53)]


def make_lfs_router(hub: Hub, kind: repos.Kind) -> APIRouter:
    """`/{owner}/{name}.git/info/lfs/...` of one kind of repository."""
    prefix = f"/{repos.URL_PREFIX[kind]}{{owner}}/{{name}}.git/info/lfs"
    router = APIRouter(prefix=prefix, tags=["hub: changes"], route_class=HubRoute)

    @router.post("/objects/batch")
    def batch(request: Request, owner: str, name: str, body: LfsBatch) -> JSONResponse:
        """Where to put each object; one without actions is here already."""
        caller = hub.require_caller(request)
        if body.operation != "upload":
            raise InvalidInputError("only uploads go by LFS here; download a file from its resolve address")
        store, limits = hub.store, hub.limits
        with store.read() as connection:
            repo = hub.writable(connection, caller, kind, f"{owner}/{name}")
            here = reusable(connection, store.blobs, caller, {item.oid for item in body.objects})
            left = day_bytes_left(connection, caller.account_id, limits)
        missing = [item for item in body.objects if item.oid not in here]
        if missing and max(item.size for item in missing) > limits.lfs_bytes:
            raise TooLargeError(f"one file may have {show_bytes(limits.lfs_bytes)}; leave the largest out")
        if sum(item.size for item in missing) > left:
            raise over_quota(left)
        objects = [answer_to(request, caller, repo.name, item, item.oid in here) for item in body.objects]
        return JSONResponse({"transfer": "basic", "objects": objects}, media_type=_MEDIA_TYPE)

    def answer_to(request: Request, caller: Caller, repo: str, item: LfsObject, is_here: bool) -> Json:
        answer: Json = {"oid": item.oid, "size": item.size}
        if is_here:
            return answer
        expires_s = int(time.time()) + VALID_S
        signature = hub.sign(item.oid, item.size, caller.account_id, expires_s)
        query = {"size": item.size, "account": caller.account_id, "expires": expires_s, "signature": signature}
        upload = f"{request.base_url}api/lfs/{item.oid}?{urlencode(query)}"
        verify = f"{request.base_url}{repos.URL_PREFIX[kind]}{repo}.git/info/lfs/verify"
        return {**answer, "actions": {"upload": {"href": upload, "header": {}}, "verify": {"href": verify}}}

    @router.post("/verify")
    def verify(request: Request, owner: str, name: str, body: LfsObject) -> Json:
        """Whether an object arrived as it was announced."""
        caller = hub.require_caller(request)
        blobs = hub.store.blobs
        with hub.store.read() as connection:
            hub.writable(connection, caller, kind, f"{owner}/{name}")
            known = reusable(connection, blobs, caller, {body.oid})
        if not known or blobs.local(body.oid).stat().st_size != body.size:
            raise InvalidInputError(f"object {body.oid[:12]} of {body.size} bytes did not arrive; upload it again")
        return {"oid": body.oid, "size": body.size}

    return router


def make_lfs_put_router(hub: Hub) -> APIRouter:
    """`/api/lfs/{oid}`: takes the bytes themselves. The signature in the address stands for the token."""
    router = APIRouter(tags=["hub: changes"], route_class=HubRoute)

    @router.put("/api/lfs/{oid}", openapi_extra=STREAMED_BODY)
    async def put(
        request: Request, oid: Sha256, size: Positive, account: Positive, expires: Positive, signature: str
    ) -> Json:
        """Store an object. Refused unless exactly the announced bytes come, and the account's day has room for them:
        what was promised when the address was given out may have gone to others since."""
        hub.check_signature(signature, expires, oid, size, account)
        await run_in_threadpool(hub.incoming.take, hub.store, account, size, hub.limits)
        try:
            await keep(request, oid, size, account)
        finally:
            hub.incoming.give_back(account, size)
        return {"oid": oid, "size": size}

    async def keep(request: Request, oid: str, size: int, account: int) -> None:
        with await run_in_threadpool(hub.store.blobs.open_writer) as writer:
            async for piece in pieces(request):
                if writer.size + len(piece) > size:
                    raise InvalidInputError(f"more than the announced {size} bytes came; ask for a new address")
                await run_in_threadpool(writer.write, piece)
            blob = await run_in_threadpool(writer.seal)
            if (blob.sha256, blob.size) != (oid, size):
                raise InvalidInputError(
                    f"{blob.size} bytes of hash {blob.sha256[:12]} came, {size} of hash {oid[:12]} were announced; "
                    "upload them again"
                )
            await run_in_threadpool(keep_uploads, hub.store, [writer], account, hub.limits)

    return router
