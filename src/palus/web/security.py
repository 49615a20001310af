"""What every answer carries to protect its reader, how often one address may ask, and errors as one JSON shape."""

from __future__ import annotations

import logging

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palus.hub.limits import Buckets
from palus.web.shapes import Fault

_log = logging.getLogger(__name__)

CONTENT_POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""No inline script or style, nothing from elsewhere. data: images are those that the card sanitiser let through, blob:
those that a page draws itself."""

HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

REQUESTS_PER_S = 50.0
REQUEST_BURST = 1000
"""A classroom behind one address opens its pages at the same time; a page is about a dozen requests."""


class SecurityHeaders:
    """Adds HEADERS to every answer that does not set them itself: files of the hub have a stricter policy."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, guarded if scope["type"] == "http" else send)


class Meter:
    """Dependency of our routes: refuses an address that asks too often. The hub meters its own routes by token."""

    def __init__(self, per_s: float = REQUESTS_PER_S, burst: int = REQUEST_BURST) -> None:
        self._buckets = Buckets(per_s, burst)

    async def __call__(self, request: Request) -> None:
        """Raises HTTPException 429 with Retry-After."""
        address = request.client.host if request.client else "unknown"
        wait_s = self._buckets.take(address)
        if wait_s > 0:
            sentence = f"Too many requests from this address; wait {wait_s:.1f} s and try again."
            raise fault(429, "too_many_requests", sentence, {"Retry-After": str(int(wait_s) + 1)})


def fault(status: int, code: str, sentence: str, headers: dict[str, str] | None = None) -> HTTPException:
    """An exception that becomes a Fault."""
    return HTTPException(status, {"error": sentence, "code": code}, headers)


def install_faults(app: FastAPI) -> None:
    """Let every error leave the server as a Fault; what went wrong inside goes to the log only."""
    app.add_exception_handler(StarletteHTTPException, _http_fault)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _input_fault)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _inner_fault)


_SENTENCES = {
    404: ("not_found", "There is nothing at this address; check its spelling, or start at the leaderboard."),
    405: ("method_not_allowed", "This address does not take that method."),
}


async def _http_fault(_request: Request, error: StarletteHTTPException) -> Response:
    detail: object = error.detail
    if isinstance(detail, dict):
        body = Fault(**detail)
    else:
        code, sentence = _SENTENCES.get(error.status_code, ("refused", str(detail)))
        body = Fault(error=sentence, code=code)
    return JSONResponse(body.model_dump(), error.status_code, error.headers)


async def _input_fault(_request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    sentence = f"{where}: {first['msg']}; see /openapi.json for what is expected."
    return JSONResponse(Fault(error=sentence, code="invalid_input").model_dump(), 422)


async def _inner_fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    sentence = "The arena could not answer this; its log says why. Try again in a moment."
    return JSONResponse(Fault(error=sentence, code="internal").model_dump(), 500, HEADERS)
