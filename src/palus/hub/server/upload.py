"""What changes a repository: what is about to be sent, commits read while they arrive, who may see it."""

from __future__ import annotations

import re
from contextlib import closing

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from palus.hub import repos
from palus.hub.accounts import Caller
from palus.hub.commits import MAIN, Message, Put, Remove, add_commit, list_files, pushed_card
from palus.hub.ids import check_path
from palus.hub.limits import commit_body_bytes, show_bytes
from palus.hub.refusals import ForbiddenError, InvalidInputError, RefusedRequestError, TooLargeError
from palus.hub.server.context import Hub
from palus.hub.server.ndjson import CommitReader
from palus.hub.server.route import STREAMED_BODY, HubRoute, pieces
from palus.hub.server.shapes import FileToUpload, Json, Preupload, Settings
from palus.hub.uploads import day_bytes_left, keep_uploads, reusable

_CLIENT = re.compile(r"hf_hub/(\d+)\.(\d+)")
# From this version on a client with hf_xet never uses LFS, whatever the server says, and a server cannot see whether
# it has hf_xet. Who turned Xet off says so with HF_HUB_USER_AGENT_ORIGIN=lfs, which ends up in the User-Agent.
_XET_ONLY = (1, 20)
_USES_LFS = "origin/lfs"


def make_upload_router(hub: Hub, kind: repos.Kind) -> APIRouter:
    """`/api/{models,datasets}/{owner}/{name}/...`: `preupload/{revision}`, `commit/{revision}`, `settings`."""
    prefix = f"/api/{kind}s/{{owner}}/{{name}}"
    router = APIRouter(prefix=prefix, tags=["hub: changes"], route_class=HubRoute)
    limits = hub.limits

    @router.post("/preupload/{revision}")
    def preupload(request: Request, owner: str, name: str, revision: str, body: Preupload) -> Json:
        """How to send each file: nearly always inside the commit, because that needs no Xet.

        The id of the file that is here already lets clients leave out what did not change.
        """
        caller = hub.require_caller(request)
        _check_branch(revision)
        with hub.store.read() as connection:
            repo = hub.writable(connection, caller, kind, f"{owner}/{name}")
            present = {file.path: file for file in list_files(connection, repo.head)}
            left = day_bytes_left(connection, caller.account_id, limits)
        agent = request.headers.get("user-agent", "")
        answers = []
        for file in body.files:
            mode = upload_mode(file, agent, left)
            here = present.get(check_path(file.path))
            oid = None if here is None else here.sha256 if mode == "lfs" else here.git_sha1
            answers.append({"path": file.path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": answers}

    def upload_mode(file: FileToUpload, agent: str, left: int) -> str:
        if file.size > left:
            raise TooLargeError(
                f"{file.path} has {show_bytes(file.size)}; you may send {show_bytes(max(left, 0))} more within a day"
            )
        if file.size <= limits.file_bytes:
            return "regular"
        if file.size > limits.lfs_bytes:
            raise TooLargeError(
                f"{file.path} has {show_bytes(file.size)}; {show_bytes(limits.lfs_bytes)} are allowed. Leave it out: "
                f"--exclude '{file.path}', or ignore_patterns"
            )
        version = _CLIENT.search(agent)
        if _USES_LFS in agent or not version or (int(version[1]), int(version[2])) < _XET_ONLY:
            return "lfs"
        allowed = show_bytes(limits.file_bytes)
        raise TooLargeError(
            f"{file.path} has {show_bytes(file.size)}; {allowed} are allowed for clients with Xet. Leave it out "
            f"(--exclude '{file.path}', or ignore_patterns), or turn Xet off and say so: set "
            "HF_HUB_DISABLE_XET=1 and HF_HUB_USER_AGENT_ORIGIN=lfs, then push again"
        )

    @router.post("/commit/{revision}", openapi_extra=STREAMED_BODY)
    async def commit(request: Request, owner: str, name: str, revision: str) -> Json:
        """Add a commit to the head. Its files are stored while they arrive; it becomes visible as a whole."""
        caller, repo = await run_in_threadpool(admit, request, f"{owner}/{name}", revision)
        length = request.headers.get("content-length", "")
        declared = int(length) if length.isdigit() else None
        # Three bytes of a file come as four characters.
        most = limits.commit_bytes if declared is None else min(limits.commit_bytes, declared * 3 // 4)
        allowed = await run_in_threadpool(hub.incoming.take_up_to, hub.store, caller.account_id, most, limits)
        try:
            body_bytes = commit_body_bytes(allowed)
            if declared is not None and declared > body_bytes:
                raise _too_large(declared, body_bytes)
            reader = CommitReader(
                hub.store.blobs.open_writer,
                lambda writers: keep_uploads(hub.store, writers, caller.account_id, limits),
                limits,
                allowed,
            )
            message, changes = await _read(request, reader, body_bytes)
        finally:
            hub.incoming.give_back(caller.account_id, allowed)
        async with hub.committing(caller):
            head = await run_in_threadpool(add, caller, repo, message, changes)
        url = f"{request.base_url}{repos.URL_PREFIX[kind]}{repo.name}/commit/{head}"
        return {"success": True, "commitOid": head, "commitUrl": url, "hookOutput": ""}

    @router.put("/settings")
    def set_visibility(request: Request, owner: str, name: str, body: Settings) -> Json:
        """Hide the repository or show it."""
        if body.visibility is None and body.private is None:
            raise InvalidInputError("nothing to set: only visibility (or private) can be set here")
        caller = hub.require_caller(request)
        with hub.store.write() as connection:
            repo = hub.writable(connection, caller, kind, f"{owner}/{name}")
            repos.set_private(connection, repo, body.hides)
        return {"private": body.hides, "visibility": "private" if body.hides else "public"}

    def admit(request: Request, full: str, revision: str) -> tuple[Caller, repos.Repo]:
        caller = hub.require_caller(request)
        _check_branch(revision)
        if request.query_params.get("create_pr") in ("1", "true"):
            raise InvalidInputError("this hub has no pull requests; push to main (leave out create_pr)")
        with hub.store.read() as connection:
            return caller, hub.writable(connection, caller, kind, full)

    def add(caller: Caller, repo: repos.Repo, message: Message, changes: list[Put | Remove]) -> str:
        blobs = hub.store.blobs
        by_hash = {change.sha256: change.path for change in changes if isinstance(change, Put) and change.lfs}
        with hub.store.read() as connection:
            missing = by_hash.keys() - reusable(connection, blobs, caller, by_hash)
        if missing:
            raise ForbiddenError(f"the bytes of {by_hash[min(missing)]} were not uploaded by you; upload them first")
        card = pushed_card(blobs, changes)
        with hub.store.write() as connection:
            return add_commit(connection, blobs, repo, changes, message, caller.name, limits, card)

    return router


async def _read(request: Request, reader: CommitReader, body_bytes: int) -> tuple[Message, list[Put | Remove]]:
    """Feed a body to a reader off the event loop.

    A refused body is read to its end all the same: clients send all of it before they look at the answer.
    """
    refusal: RefusedRequestError | None = None
    received = 0
    with closing(reader):
        async for piece in pieces(request):
            received += len(piece)
            if received > body_bytes:
                raise refusal or _too_large(received, body_bytes)
            if refusal is None:
                try:
                    await run_in_threadpool(reader.feed, piece)
                except RefusedRequestError as error:
                    refusal = error
        if refusal is not None:
            raise refusal
        return await run_in_threadpool(reader.finish)


def _check_branch(revision: str) -> None:
    if revision != MAIN:
        raise InvalidInputError(f"{revision[:60]!a} cannot be pushed to; this hub has one branch, main")


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        f"the commit has {show_bytes(size)}, and {show_bytes(limit)} may be sent now; leave large files out, send "
        "several commits, or wait until tomorrow"
    )
