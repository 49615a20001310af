"""What the endpoints share: the store, the limits, who calls, and which repositories they may see or change."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import WeakValueDictionary

from fastapi import Request
from sqlalchemy import Connection
from starlette.requests import ClientDisconnect

from palus.hub.accounts import Caller, authenticate
from palus.hub.limits import Buckets, HubLimits, client_of
from palus.hub.refusals import INVALID_TOKEN, ForbiddenError, NotSignedInError, RefusedRequestError, RepoNotFoundError
from palus.hub.repos import Kind, Repo, find_repo
from palus.hub.server.download_counts import DownloadCounts
from palus.hub.uploads import Incoming
from palus.store import Store


class Hub:
    """One hub on a store."""

    def __init__(self, store: Store, limits: HubLimits) -> None:
        self.store, self.limits, self.incoming = store, limits, Incoming()
        self.downloads = DownloadCounts(store)
        self._listing = asyncio.Semaphore(limits.listings_at_once)  # not in threads, which are everybody's
        self._listing_for: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._committing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._secret = _shared_secret(store.folder / "upload.key")  # signs upload addresses
        self._requests = Buckets(limits.requests_per_s, limits.request_burst)
        self._bad_tokens = Buckets(limits.bad_tokens_per_minute / 60, limits.bad_tokens_per_minute)

    def identify(self, request: Request) -> Caller | None:
        """Who calls; None without a token. Raises NotSignedInError for a bad token; refuses too many requests."""
        caller = None
        if "authorization" in request.headers:
            with self.store.read() as connection:
                caller = self.holder(connection, request)
        _meter(self._requests, f"token {caller.token_id}" if caller else f"address {client_of(request.scope)}")
        return caller

    def holder(self, connection: Connection, request: Request) -> Caller | None:
        """Whose token a request shows; None without one. Raises NotSignedInError for a bad one; refuses too many."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token:
            return None
        caller = authenticate(connection, token.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            _meter(self._bad_tokens, client_of(request.scope))
            raise NotSignedInError(INVALID_TOKEN)
        return caller

    def require_caller(self, request: Request) -> Caller:
        """Who calls. Raises NotSignedInError when nobody says who they are."""
        caller = self.identify(request)
        if caller is None:
            raise NotSignedInError("this needs a token; run `hf auth login`, or set HF_TOKEN")
        return caller

    def committing(self, caller: Caller) -> asyncio.Lock:
        """Held while a commit of theirs is written: an account's commits wait for each other, and not in threads and
        the queue of writers, which are everybody's."""
        return self._committing.setdefault(caller.account_id, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def listing(self, request: Request) -> AsyncIterator[None]:
        """A turn at a list, a tree or an answer about paths. An address's requests wait for each other, and only one of
        them for everybody's. Raises ClientDisconnect where who asked has left before it came: nothing is made then."""
        await request.body()  # the end of the connection comes after it
        own = self._listing_for.setdefault(client_of(request.scope), asyncio.Lock())
        async with own, self._listing:
            if await request.is_disconnected():
                raise ClientDisconnect
            yield

    def readable(self, connection: Connection, caller: Caller | None, kind: Kind, name: str) -> Repo:
        """The repository, if the caller may see it. Raises NotSignedInError, RepoNotFoundError."""
        repo = find_repo(connection, kind, name)
        if repo is not None and (not repo.private or (caller is not None and caller.can_read_as(repo.owner))):
            return repo
        if caller is None:
            # The same for what is private and what is not there; clients read it as "not found, or log in".
            sentence = f"there is no public {kind} {name} here; if it is private, log in"
            raise NotSignedInError(sentence, code=RepoNotFoundError.code)
        raise RepoNotFoundError(f"there is no {kind} {name} here, or it is private and not yours; check the name")

    def writable(self, connection: Connection, caller: Caller, kind: Kind, name: str) -> Repo:
        """The repository, if the caller may change it. Raises RepoNotFoundError, ForbiddenError."""
        repo = self.readable(connection, caller, kind, name)
        check_may_write(caller, repo.owner)
        return repo

    def sign(self, *parts: str | int) -> str:
        """A signature of a short-lived permission."""
        text = "\n".join(str(part) for part in parts)
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def check_signature(self, signature: str, expires_s: int, *parts: str | int) -> None:
        """Raises ForbiddenError unless `sign` made it of these parts and its time is not over."""
        if not hmac.compare_digest(signature.encode(), self.sign(*parts, expires_s).encode()):
            raise ForbiddenError("this address was not given out by the hub; ask for a new one")
        if expires_s < time.time():
            raise ForbiddenError("this address is no longer valid; ask for a new one")


def check_may_write(caller: Caller, owner: str) -> None:
    """Raises ForbiddenError unless the caller may change the repositories of an owner."""
    if caller.can_write_as(owner):
        return
    if owner.lower() == caller.name.lower():
        scopes = ", ".join(sorted(caller.scopes))
        raise ForbiddenError(f"the token {caller.label!r} allows only: {scopes}; use one with the scope write")
    raise ForbiddenError(f"you are {caller.name} and may not change what belongs to {owner}; use your own name")


def _meter(buckets: Buckets, key: str) -> None:
    wait_s = buckets.take(key)
    if wait_s > 0:
        sentence = f"too many requests; wait {wait_s:.0f} s and try again"
        raise RefusedRequestError(sentence, status=429, retry_after_s=int(wait_s) + 1)


def _shared_secret(path: Path) -> bytes:
    """32 random bytes that all processes of a hub know, since an address that one gives out is used at another."""
    if not path.exists():
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(fresh, path)
        fresh.unlink()
    return path.read_bytes()
