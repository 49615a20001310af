"""What every endpoint has in common: errors as clients read them, bodies never compressed."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from palus.errors import StorageError
from palus.hub.limits import MIB
from palus.hub.refusals import InvalidInputError, RefusedRequestError

_NOT_IN_HEADERS = re.compile(r"[^\x20-\x7e]")  # messages repeat what strangers sent
_MAX_HEADER = 1000
_log = logging.getLogger(__name__)


# Clients may call it application/x-ndjson; described as bytes, because that is how it is read.
STREAMED_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """A body as it comes, but for the last in pieces large enough that handing each to a thread costs little."""
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) >= MIB:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


class HubRoute(APIRoute):
    """A route whose refusals carry the headers that clients show to their users."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI, guarded."""
        serve = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                _check_encoding(request)
                return await serve(request)
            except RefusedRequestError as refusal:
                return refused(refusal)
            except RequestValidationError as error:
                return refused(InvalidInputError(_first_fault(error)))
            except HTTPException as error:  # FastAPI's, while it read the body
                return refused(InvalidInputError(str(error.detail)))
            except StorageError as error:
                _log.error("%s", error)  # the caller learns that, not where on this machine
                message = "the hub cannot read or write its files just now; tell who runs it, then try again"
                return JSONResponse({"error": message}, HTTPStatus.INSUFFICIENT_STORAGE, {"X-Error-Message": message})

        return guarded


def refused(refusal: RefusedRequestError, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer for a refusal."""
    known = {
        "X-Error-Message": _NOT_IN_HEADERS.sub("?", str(refusal))[:_MAX_HEADER],
        **({"X-Error-Code": refusal.code} if refusal.code else {}),
        **(headers or {}),
    }
    if refusal.status == 401:
        known["WWW-Authenticate"] = "Bearer"
    if refusal.retry_after_s is not None:
        known["Retry-After"] = str(refusal.retry_after_s)
    return JSONResponse({"error": str(refusal)}, refusal.status, known)


def _check_encoding(request: Request) -> None:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        sentence = f"the body is {coding[:20]!a}-encoded; send it as it is, without Content-Encoding"
        raise RefusedRequestError(sentence, status=415)


def _first_fault(error: RequestValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where}: {fault['msg']}; see the API's description for what is expected"
