"""What there is: repositories by tag, one repository, its files, its history.

The store knows only files with paths; folders are derived here.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import URL

from palus.hub import repos
from palus.hub.commits import MAIN, File, folders_of, list_commits, list_files, resolve_revision
from palus.hub.ids import MAX_PATH_BYTES
from palus.hub.limits import MIB
from palus.hub.refusals import EntryNotFoundError, InvalidInputError
from palus.hub.server.context import Hub
from palus.hub.server.route import HubRoute
from palus.hub.server.shapes import Json, show_commit, show_file, show_repo, show_sibling


def show_folders(files: Iterable[File], wanted: Collection[str]) -> dict[str, Json]:
    """Those of the wanted folders that hold a file, directly or not.

    The id of one changes when anything in it does, as git's would.
    """
    hashes: defaultdict[str, Any] = defaultdict(lambda: hashlib.sha1(usedforsecurity=False))
    for file in sorted(files, key=lambda file: file.path):
        for folder in filter(wanted.__contains__, folders_of(file.path)):
            hashes[folder].update(f"{file.path}\0{file.sha256}\n".encode())
    return {
        path: {"type": "directory", "path": path, "oid": content.hexdigest(), "size": 0}
        for path, content in hashes.items()
    }


COMMITS_PER_PAGE = 50
MAX_FULL_PAGE = 100
MAX_PAGE_BYTES = 2 * MIB
MAX_TAGS = 20
MAX_TREE_PAGE = 1000
MAX_PATHS = 1000
"""That are looked up at once; `huggingface_hub` asks for 500."""
_SORTS: dict[str, repos.Sort] = {
    **dict.fromkeys(("lastModified", "last_modified", "trendingScore", "trending_score", "likes"), "modified_ms"),
    **dict.fromkeys(("createdAt", "created_at"), "created_ms"),
    "downloads": "downloads",
}
Word = Annotated[str | None, Query(max_length=200)]
LongWord = Annotated[str | None, Query(max_length=MAX_PATH_BYTES)]
Words = Annotated[list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=20)]
Limit = Annotated[int, Query(ge=1)]
Page = Annotated[int, Query(ge=0, le=100_000)]


def make_listing_router(hub: Hub, kind: repos.Kind) -> APIRouter:
    """`/api/models` or `/api/datasets` and what is below it."""
    router = APIRouter(prefix=f"/api/{kind}s", tags=["hub: listings"], route_class=HubRoute)

    @router.get("")
    async def index(
        request: Request,
        filter: Words = None,
        author: Word = None,
        search: Word = None,
        sort: Word = None,
        limit: Limit = repos.MAX_PAGE,
        cursor: Word = None,
        full: bool = False,
    ) -> Response:
        """Repositories that have all the tags of `filter`; newest first, or by downloads. Pages by the Link header."""
        by, limit = _SORTS.get(sort or "", "modified_ms"), min(limit, MAX_FULL_PAGE if full else repos.MAX_PAGE)
        tags = tuple({tag: None for words in filter or () for tag in words.split(",") if tag})
        if len(tags) > MAX_TAGS:
            raise InvalidInputError(f"filter has {len(tags)} tags; at most {MAX_TAGS} are looked for, leave some out")
        wanted: Json = {"tags": tags, "author": author, "search": search, "sort": by, "limit": limit}
        wanted["after"] = _read_cursor(cursor)
        async with hub.listing(request):
            rows, last = await run_in_threadpool(page, request, full, wanted)
        headers = {}
        if last is not None:
            headers["Link"] = _next_link(request, {"cursor": f"{getattr(last, by)}.{last.id}"})
        return Response(b"[" + b",".join(rows) + b"]", headers=headers, media_type="application/json")

    # The upper of two addresses is the later one in the API's description.
    @router.get("/{owner}/{name}/revision/{revision:path}")
    @router.get("/{owner}/{name}")
    def info(request: Request, owner: str, name: str, revision: str = MAIN, blobs: bool = False) -> Json:
        """One repository at its head, or at a revision; `blobs` adds sizes and ids of its files."""
        repo, commit, files = at(request, f"{owner}/{name}", revision)
        used = sum({file.sha256: file.size for file in files}.values())
        siblings = [show_sibling(file, blobs) for file in files]
        return {**show_repo(repo, commit), "cardData": repo.card, "siblings": siblings, "usedStorage": used}

    @router.get("/{owner}/{name}/tree/{revision}/{path:path}")
    @router.get("/{owner}/{name}/tree/{revision}")
    async def tree(
        request: Request,
        owner: str,
        name: str,
        revision: str,
        path: str = "",
        recursive: bool = False,
        cursor: LongWord = None,
    ) -> Response:
        """Files and folders in a folder, or everything below it. Pages by the Link header."""
        async with hub.listing(request):
            wanted = (path.strip("/"), recursive, cursor)
            return await run_in_threadpool(tree_page, request, f"{owner}/{name}", revision, *wanted)

    @router.post("/{owner}/{name}/paths-info/{revision}")
    async def paths_info(request: Request, owner: str, name: str, revision: str) -> Response:
        """The files and folders among `paths` (a form, or JSON) that exist."""
        async with hub.listing(request):  # which has waited for the body
            return await run_in_threadpool(look_up, request, f"{owner}/{name}", revision, await request.body())

    @router.get("/{owner}/{name}/commits/{revision}")
    def commits(request: Request, response: Response, owner: str, name: str, revision: str, p: Page = 0) -> list[Json]:
        """The history, newest first. Pages by the Link header; `p` counts pages from 0."""
        caller = hub.identify(request)
        with hub.store.read() as connection:
            repo = hub.readable(connection, caller, kind, f"{owner}/{name}")
            commit = resolve_revision(connection, repo, revision)
            found = list_commits(connection, commit, p * COMMITS_PER_PAGE, COMMITS_PER_PAGE + 1)
        if len(found) > COMMITS_PER_PAGE:
            response.headers["Link"] = _next_link(request, {"p": str(p + 1)})
        return [show_commit(commit) for commit in found[:COMMITS_PER_PAGE]]

    @router.get("/{owner}/{name}/refs")
    def refs(request: Request, owner: str, name: str) -> Json:
        """The one branch that there is."""
        caller = hub.identify(request)
        with hub.store.read() as connection:
            repo = hub.readable(connection, caller, kind, f"{owner}/{name}")
        main = {"name": MAIN, "ref": f"refs/heads/{MAIN}", "targetCommit": repo.head}
        return {"branches": [main], "tags": [], "converts": []}

    def page(request: Request, full: bool, wanted: Json) -> tuple[list[bytes], repos.Repo | None]:
        """Repositories as JSON, up to the one that fills the page, which is the last where others may follow."""
        caller, rows, size = hub.identify(request), list[bytes](), 0
        with hub.store.read() as connection:
            found = repos.list_repos(connection, kind, reader=caller, **wanted)
            for repo in found:
                row = show_repo(repo)
                if full:
                    files = list_files(connection, repo.head)
                    row |= {"cardData": repo.card, "siblings": [show_sibling(file, False) for file in files]}
                rows.append(bytes(JSONResponse(row).body))
                size += max(len(rows[-1]), len(repo.card_json))  # that was read for it
                if size >= MAX_PAGE_BYTES:
                    break
        ends = len(rows) == len(found) < wanted["limit"]
        return rows, None if ends else found[len(rows) - 1]

    def tree_page(
        request: Request, full: str, revision: str, folder: str, recursive: bool, cursor: str | None
    ) -> Response:
        """What is in a folder, from the path behind the cursor on."""
        _, _, files = at(request, full, revision)
        prefix = f"{folder}/" if folder else ""
        inside = {file.path: file for file in files if file.path.startswith(prefix)}
        if folder and not inside:
            raise EntryNotFoundError(f"there is no folder {folder[:200]!a} at {revision[:60]!a}")
        below = (path for path in _walk(inside) if path.startswith(prefix))
        asked = (path for path in below if recursive or "/" not in path[len(prefix) :])
        seen = cursor.split("/") if cursor else []
        found = list(islice((path for path in asked if path.split("/") > seen), MAX_TREE_PAGE + 1))
        shown, headers = found[:MAX_TREE_PAGE], dict[str, str]()
        if len(found) > MAX_TREE_PAGE:
            headers["Link"] = _next_link(request, {"cursor": shown[-1]})
        known = {path: show_file(inside[path]) for path in shown if path in inside}
        known |= show_folders(inside.values(), {*shown} - {*known})
        return JSONResponse([known[path] for path in shown], headers=headers)

    def look_up(request: Request, full: str, revision: str, body: bytes) -> Response:
        _, _, files = at(request, full, revision)  # before the body is parsed: who may not ask takes no time
        paths = _read_paths(request.headers.get("content-type", ""), body)
        wanted = dict.fromkeys(path.strip("/") for path in paths)
        known = {file.path: show_file(file) for file in files if file.path in wanted} | show_folders(files, wanted)
        return JSONResponse([known[path] for path in wanted if path in known])

    def at(request: Request, full: str, revision: str) -> tuple[repos.Repo, str, tuple[File, ...]]:
        caller = hub.identify(request)
        with hub.store.read() as connection:
            repo = hub.readable(connection, caller, kind, full)
            commit = resolve_revision(connection, repo, revision)
            return repo, commit, list_files(connection, commit)

    return router


def _walk(paths: Iterable[str]) -> Iterator[str]:
    """Files and the folders that they are in, in the order of their segments: a folder before what is in it."""
    last = ""
    for path in sorted(paths, key=lambda path: path.split("/")):
        yield from (folder for folder in folders_of(path) if not last.startswith(f"{folder}/"))
        yield path
        last = path


def _read_cursor(cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    value, _, repo_id = cursor.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (value, repo_id)):
        raise InvalidInputError(f"{cursor!a} is not a cursor of this list; take the address of the Link header")
    return int(value), int(repo_id)


def _next_link(request: Request, changed: dict[str, str]) -> str:
    address = URL(scope={**request.scope, "path": quote(request.scope["path"])})  # a header has ASCII alone
    return f'<{address.include_query_params(**changed)}>; rel="next"'


def _read_paths(content_type: str, body: bytes) -> list[str]:
    try:
        if content_type.startswith("application/json"):
            paths = json.loads(body)["paths"]
        else:
            fields = parse_qsl(body.decode(), max_num_fields=MAX_PATHS + 1)  # counted before they are read; `expand`
            paths = [value for key, value in fields if key == "paths"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        sentence = f"the body is neither a form with at most {MAX_PATHS} `paths` nor JSON with a list of them"
        raise InvalidInputError(sentence) from error
    if isinstance(paths, str):
        paths = [paths]
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise InvalidInputError("`paths` is not a list of texts")
    if len(paths) > MAX_PATHS:
        raise InvalidInputError(f"{len(paths)} `paths` are asked for; at most {MAX_PATHS} are looked up at once")
    return paths
