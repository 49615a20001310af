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
from palus.hub.uploads import day_bytes_left, keep_upload, may_reuse, over_quota

VALID_S = 3600
_MEDIA_TYPE = "application/vnd.git-lfs+json"
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Positive = Annotated[int, Query(ge=0, le=2**53)]


class LfsEndpoints:
    """`/{owner}/{name}.git/info/lfs/...` of one kind of repository."""

    def __init__(self, hub: Hub, kind: repos.Kind) -> None:
        self._hub, self._kind = hub, kind

    def router(self) -> APIRouter:
        """The routes."""
        prefix = f"/{repos.URL_PREFIX[self._kind]}{{owner}}/{{name}}.git/info/lfs"
        router = APIRouter(prefix=prefix, tags=["hub: changes"], route_class=HubRoute)
        router.add_api_route("/objects/batch", self.batch, methods=["POST"])
        router.add_api_route("/verify", self.verify, methods=["POST"])
        return router

    def batch(self, request: Request, owner: str, name: str, body: LfsBatch) -> JSONResponse:
        """Where to put each object; one without actions is here already."""
        caller = self._hub.require_caller(request)
        if body.operation != "upload":
            raise InvalidInputError("only uploads go by LFS here; download a file from its resolve address")
        store, limits = self._hub.store, self._hub.limits
        with store.read() as connection:
            repo = self._hub.writable(connection, caller, self._kind, f"{owner}/{name}")
            here = {o.oid for o in body.objects if store.blobs.has(o.oid) and may_reuse(connection, caller, o.oid)}
            left = day_bytes_left(connection, caller.account_id, limits)
        missing = [item for item in body.objects if item.oid not in here]
        if missing and max(item.size for item in missing) > limits.lfs_bytes:
            raise TooLargeError(f"one file may have {show_bytes(limits.lfs_bytes)}; leave the largest out")
        if sum(item.size for item in missing) > left:
            raise over_quota(left)
        objects = [self._answer(request, caller, repo.name, item, item.oid in here) for item in body.objects]
        return JSONResponse({"transfer": "basic", "objects": objects}, media_type=_MEDIA_TYPE)

    def _answer(self, request: Request, caller: Caller, repo: str, item: LfsObject, is_here: bool) -> Json:
        answer: Json = {"oid": item.oid, "size": item.size}
        if is_here:
            return answer
        expires_s = int(time.time()) + VALID_S
        signature = self._hub.sign(item.oid, item.size, caller.account_id, expires_s)
        query = {"size": item.size, "account": caller.account_id, "expires": expires_s, "signature": signature}
        upload = f"{request.base_url}api/lfs/{item.oid}?{urlencode(query)}"
        verify = f"{request.base_url}{repos.URL_PREFIX[self._kind]}{repo}.git/info/lfs/verify"
        return {**answer, "actions": {"upload": {"href": upload, "header": {}}, "verify": {"href": verify}}}

    def verify(self, request: Request, owner: str, name: str, body: LfsObject) -> Json:
        """Whether an object arrived as it was announced."""
        caller = self._hub.require_caller(request)
        blobs = self._hub.store.blobs
        with self._hub.store.read() as connection:
            self._hub.writable(connection, caller, self._kind, f"{owner}/{name}")
            known = may_reuse(connection, caller, body.oid) and blobs.has(body.oid)
        if not known or blobs.local(body.oid).stat().st_size != body.size:
            raise InvalidInputError(f"object {body.oid[:12]} of {body.size} bytes did not arrive; upload it again")
        return {"oid": body.oid, "size": body.size}


class LfsPutEndpoint:
    """`/api/lfs/{oid}`: takes the bytes themselves. The signature in the address stands for the token."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        """The route."""
        router = APIRouter(tags=["hub: changes"], route_class=HubRoute)
        router.add_api_route("/api/lfs/{oid}", self.put, methods=["PUT"], openapi_extra=STREAMED_BODY)
        return router

    async def put(
        self, request: Request, oid: Sha256, size: Positive, account: Positive, expires: Positive, signature: str
    ) -> Json:
        """Store an object. Refused unless exactly the announced bytes come, and the account's day has room for them:
        what was promised when the address was given out may have gone to others since."""
        hub = self._hub
        hub.check_signature(signature, expires, oid, size, account)
        await run_in_threadpool(hub.incoming.take, hub.store, account, size, hub.limits)
        try:
            await self._store(request, oid, size, account)
        finally:
            hub.incoming.give_back(account, size)
        return {"oid": oid, "size": size}

    async def _store(self, request: Request, oid: str, size: int, account: int) -> None:
        store = self._hub.store
        with await run_in_threadpool(store.blobs.open_writer) as writer:
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
            await run_in_threadpool(keep_upload, store, writer, account, self._hub.limits)
