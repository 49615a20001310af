"""The pages as files: built by Vite into the package, served from there.

HTML is asked for again each time; everything else has its content's hash in its name and may be kept for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

from fastapi import APIRouter, Request, Response

from palus.hub.ids import RESERVED_OWNERS
from palus.web.api.answers import Body, make_body, respond
from palus.web.api.router import IMMUTABLE, Name, Owner
from palus.web.security import fault

PAGES = {"/": "index"} | {f"/{name}": name for name in ("match", "compare", "matrix", "status", "analytics", "room")}
_NO_OWNERS = RESERVED_OWNERS - {"palus"}
"""Owners that have no pages; the players of the house have theirs."""

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}


def site_folder() -> Path:
    """Where the built pages lie in the package."""
    return Path(str(resources.files("palus.web") / "assets" / "site"))


def make_static_router(folder: Path, pages: Mapping[str, str]) -> APIRouter:
    """Built pages and what they load. folder: the built site. pages: address -> name of its page."""
    router = APIRouter(include_in_schema=False)
    static = _static_files(folder / "static")

    def add_page(address: str, name: str) -> None:
        @router.api_route(address, methods=["GET", "HEAD"])
        async def get_page(request: Request) -> Response:
            return respond(request, _page(folder, name))

    for address, name in pages.items():
        add_page(address, name)

    @router.api_route("/static/{path:path}", methods=["GET", "HEAD"])
    async def get_static(request: Request, path: str) -> Response:
        file = static.get(path)
        if file is None:
            raise _no_file()
        return respond(request, _read(file), IMMUTABLE)

    return router


def make_pages_router(folder: Path, find_model: Callable[[str], Awaitable[object]]) -> APIRouter:
    """Every address that people type. folder: the built site. find_model: raises the fault of an `owner/name` that has
    no page."""
    router = make_static_router(folder, PAGES)

    @router.api_route("/{owner}/{name}", methods=["GET", "HEAD"])
    async def get_model(request: Request, owner: Owner, name: Name) -> Response:
        if owner.lower() in _NO_OWNERS:
            raise _no_file()
        await find_model(f"{owner}/{name}")
        return respond(request, _page(folder, "model"))

    return router


def _static_files(folder: Path) -> dict[str, Path]:
    """Address below /static -> file, of all that is served there: what is not in this table does not exist."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return {file.relative_to(folder).as_posix(): file for file in files if file.suffix in MEDIA_TYPES}


def _page(folder: Path, name: str) -> Body:
    file = folder / f"{name}.html"
    if not file.is_file():
        sentence = "The pages are not built; run `make web` in a checkout of palus, or install a release."
        raise fault(503, "pages_not_built", sentence)
    return _read(file)


def _read(file: Path) -> Body:
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _load(file: Path, _stamp: int) -> Body:
    return make_body(file.read_bytes(), MEDIA_TYPES[file.suffix])


def _no_file() -> Exception:
    return fault(404, "not_found", "There is nothing at this address; start at the leaderboard.")
