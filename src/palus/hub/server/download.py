"""Files going out: `/{owner}/{name}/resolve/{revision}/{path}`, in whole or in part."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from palus.errors import StorageError
from palus.hub import repos
from palus.hub.commits import find_file, resolve_revision
from palus.hub.refusals import EntryNotFoundError
from palus.hub.server.context import Hub
from palus.hub.server.route import HubRoute, refused
from palus.hub.server.shapes import Json

# What a browser may show in place; nothing of it can run. The rest is for saving, by its address; a page may draw an
# SVG with <img>, where its scripts are dead.
_SHOWN = {
    **dict.fromkeys((".gif", ".jpeg", ".jpg", ".png", ".webp"), "image/{}"),
    **dict.fromkeys((".csv", ".log", ".md", ".txt", ".yaml", ".yml"), "text/plain; charset=utf-8"),
    ".json": "application/json",
}
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_download_router(hub: Hub, kind: repos.Kind) -> APIRouter:
    """`resolve` of one kind of repository."""
    prefix = f"/{repos.URL_PREFIX[kind]}{{owner}}/{{name}}"
    router = APIRouter(prefix=prefix, tags=["hub: downloads"], route_class=HubRoute)

    @router.get("/resolve/{revision}/{path:path}", response_class=Response)
    @router.head("/resolve/{revision}/{path:path}", response_class=Response)
    def get(request: Request, owner: str, name: str, revision: str, path: str) -> Response:
        """A file, or a part of it with a Range header. HEAD tells its commit, id and size."""
        caller = hub.identify(request)
        with hub.store.read() as connection:
            repo = hub.readable(connection, caller, kind, f"{owner}/{name}")
            commit = resolve_revision(connection, repo, revision)
            file = find_file(connection, commit, path)
        if file is None:
            missing = EntryNotFoundError(f"{repo.name} has no file {path[:200]!a} at {revision}")
            return refused(missing, {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"', **_SAFE}
        if repo.private:
            headers["Cache-Control"] = "private, no-store"
        if file.lfs:
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(file.size)}
        if f'"{file.etag}"' in request.headers.get("if-none-match", ""):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        shown = _presentation(PurePosixPath(file.path))
        if request.method == "HEAD":  # the database knows; a file behind a URL would be brought here for nothing
            described = FileResponse(file.path, headers=headers, **shown)
            return Response(headers={**described.headers, "Content-Length": str(file.size)})
        counts = path.endswith(".onnx") and "range" not in request.headers
        count = BackgroundTask(hub.downloads.count, repo.id) if counts else None
        where = hub.store.blobs.local(file.sha256)
        return FileResponse(where, headers=headers, background=count, stat_result=_stat(where), **shown)

    return router


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror}); restore the blobs from a backup") from error


def _presentation(path: PurePosixPath) -> Json:
    """Name, content type and disposition that never let a stranger's file act as a page of this site."""
    ending = path.suffix.lower()
    shown = _SHOWN.get(ending)
    saved = "image/svg+xml" if ending == ".svg" else "application/octet-stream"
    kind = shown.format(ending[1:].replace("jpg", "jpeg")) if shown else saved
    return {"filename": path.name, "media_type": kind, "content_disposition_type": "inline" if shown else "attachment"}
