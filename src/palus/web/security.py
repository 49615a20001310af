"""What every answer carries to protect its reader, and errors.

Programs get them as one JSON shape; readers of the pages in the site's frame, with the sentence and a way on.
"""

from __future__ import annotations

import html
import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import Field
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palus.web.shapes import Shape

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


class ErrorAnswer(Shape):
    """Body of every answer that is not a success; a browser that asks for a page is shown the sentence on one."""

    error: str = Field(description="one sentence: what was found, what was expected, what to do")
    code: str = Field(description="stable name of the fault, for programs")


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


def fault(status: int, code: str, sentence: str, headers: dict[str, str] | None = None) -> HTTPException:
    """An exception that becomes a Fault."""
    return HTTPException(status, {"error": sentence, "code": code}, headers)


_SENTENCES = {
    404: ("not_found", "There is nothing at this address; check its spelling, or start at the leaderboard."),
    405: ("method_not_allowed", "This address does not take that method."),
}


def install_faults(app: FastAPI, site: Path) -> None:
    """Let every error leave the server as a Fault, or as a page that says the same to a browser which asks for one.

    What went wrong inside goes to the log only, where uvicorn's traceback follows the line from here. site: folder of
    the built pages.
    """

    def answer(request: Request, status: int, body: ErrorAnswer, headers: Mapping[str, str] | None = None) -> Response:
        if wants_page(request) and (page := error_page(site, status, body.error)) is not None:
            return HTMLResponse(page, status, {**(headers or {}), "Cache-Control": "no-store", "Vary": "Accept"})
        return JSONResponse(body.model_dump(), status, headers)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        return answer(request, error.status_code, _fault_of(error), error.headers)

    @app.exception_handler(RequestValidationError)
    async def misread(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["loc"][0] == "path" and wants_page(request):  # an address that nobody has
            return await refused(request, StarletteHTTPException(404))
        where = ".".join(str(part) for part in first["loc"])
        sentence = f"{where}: {first['msg']}; see /openapi.json for what is expected."
        return answer(request, 422, ErrorAnswer(error=sentence, code="invalid_input"))

    @app.exception_handler(OperationalError)
    async def away(request: Request, error: OperationalError) -> Response:
        if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # it answers: that the SQL is wrong
            return await failed(request, error)
        _log.error("%s %a: the database does not answer: %s", request.method, request.url.path[:200], error.orig)
        sentence = "The arena's database does not answer; try again in a moment."
        return answer(request, 503, ErrorAnswer(error=sentence, code="database_away"), {"Retry-After": "5"})

    @app.exception_handler(NoConnectionError)
    async def busy(request: Request, error: NoConnectionError) -> Response:
        _log.error("%s %a: no connection to the database came free", request.method, request.url.path[:200])
        sentence = "The arena is busy; try again in a moment."
        return answer(request, 503, ErrorAnswer(error=sentence, code="busy"), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        _log.error("%s %a failed: %s", request.method, request.url.path[:200], type(error).__name__)
        sentence = "The arena could not answer this; its log says why. Try again in a moment."
        return answer(request, 500, ErrorAnswer(error=sentence, code="internal"), HEADERS)


def _fault_of(error: StarletteHTTPException) -> ErrorAnswer:
    detail: object = error.detail
    if isinstance(detail, dict):
        return ErrorAnswer(**detail)
    code, sentence = _SENTENCES.get(error.status_code, ("refused", str(detail)))
    return ErrorAnswer(error=sentence, code=code)


_TITLES = {404: "Nothing here", 405: "Not at this address", 429: "Too many requests", 500: "Something failed"}


def wants_page(request: Request) -> bool:
    """Whether a browser asks for something to look at; what is below /api is for programs, whoever asks."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def error_page(site: Path, status: int, sentence: str) -> str | None:
    """The page that says what went wrong; None where the pages are not built. site: folder of the built pages."""
    file = site / "error.html"
    if not file.is_file():
        return None
    title = _TITLES.get(status, "This did not work")
    return file.read_text("utf-8").replace("{title}", title).replace("{sentence}", html.escape(sentence))
