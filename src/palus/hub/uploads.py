"""Bytes that come in before a commit names them: written, counted against the day, claimed; swept when nobody did."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from palus.hub.accounts import Caller
from palus.hub.commits import DAY_MS
from palus.hub.limits import KIB, HubLimits, show_bytes
from palus.hub.refusals import TooLargeError
from palus.store import Store
from palus.store.blobs import Blob, BlobStore, BlobWriter
from palus.store.engine import now_ms
from palus.store.tables import blob_claims, blobs, commit_files, commits, repos

LEAST_BYTES = 4 * KIB
"""That a file counts for in its account's day, because a disk takes as much for a byte."""
SWEEP_BLOBS, SWEPT_TOGETHER = 200, 10
"""Orphans per sweep, and in one transaction of it: writers wait for that, and bytes elsewhere go by a request each."""
SWEEP_PAUSE_S = 0.15
"""Between these: SQLite's writers look again whether it is their turn every tenth of a second."""


def keep_uploads(store: Store, writers: Sequence[BlobWriter], account_id: int, limits: HubLimits) -> None:
    """Store finished bytes as those of an account, all or none. Raises TooLargeError when they are more than its day
    has left.

    The database learns of them before the folder shows them: whatever a kill leaves behind can be swept.
    """
    sealed = {blob.sha256: blob for blob in (writer.seal() for writer in writers)}
    here = set(filter(store.blobs.has, sealed))  # asked before others wait: the bytes may lie elsewhere
    with store.write() as connection:
        for sha256 in sorted(sealed):  # in one order, or two who bring the same would wait for each other
            _claim(connection, sealed[sha256], account_id, is_here=sha256 in here)
        left = day_bytes_left(connection, account_id, limits)
        if left < 0:  # leaving here takes the rows back
            raise over_quota(left + sum(max(blob.size, LEAST_BYTES) for blob in sealed.values()))
    for writer in writers:
        writer.keep()


def _claim(connection: Connection, blob: Blob, account_id: int, is_here: bool) -> None:
    """Note that an account brought these bytes. is_here: counts only where the hub has no row of them yet."""
    now = now_ms()
    row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
    # `insert` with ON CONFLICT, which SQLAlchemy has per dialect
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(blobs).values(**row, created_ms=now, pinned=is_here).on_conflict_do_nothing())
    claim = insert(blob_claims).values(sha256=blob.sha256, account_id=account_id, created_ms=now)
    key = (blob_claims.c.sha256, blob_claims.c.account_id)
    connection.execute(claim.on_conflict_do_update(index_elements=key, set_={"created_ms": now}))


class Incoming:
    """Bytes on their way in by account, so that uploads at the same time share one day's quota. In memory: a restart
    ends the uploads too."""

    def __init__(self) -> None:
        self._bytes: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, store: Store, account_id: int, size: int, limits: HubLimits) -> None:
        """Set bytes of the quota aside until `give_back`. Raises TooLargeError when so many are not left."""
        with self._lock, store.read() as connection:
            left = day_bytes_left(connection, account_id, limits) - self._bytes[account_id]
            if size > left:
                raise over_quota(left)
            self._bytes[account_id] += size

    def take_up_to(self, store: Store, account_id: int, size: int, limits: HubLimits) -> int:
        """Set so many bytes aside, or those that are left; returns how many, to be given back."""
        with self._lock, store.read() as connection:
            left = day_bytes_left(connection, account_id, limits) - self._bytes[account_id]
            taken = max(0, min(size, left))
            self._bytes[account_id] += taken
            return taken

    def give_back(self, account_id: int, size: int) -> None:
        """They are stored now, or will not come."""
        with self._lock:
            self._bytes[account_id] -= size
            if not self._bytes[account_id]:
                del self._bytes[account_id]


def over_quota(left: int) -> TooLargeError:
    """left: bytes that the account may still bring today."""
    return TooLargeError(f"you may send {show_bytes(max(left, 0))} more within a day; leave large files out")


def day_bytes_left(connection: Connection, account_id: int, limits: HubLimits) -> int:
    """How much an account may still bring today."""
    charged = case((blobs.c.size < LEAST_BYTES, LEAST_BYTES), else_=blobs.c.size)
    claimed = select(func.sum(charged)).join(blob_claims, blob_claims.c.sha256 == blobs.c.sha256)
    recent = claimed.where(blob_claims.c.account_id == account_id, blob_claims.c.created_ms > now_ms() - DAY_MS)
    return limits.day_bytes - int(connection.execute(recent).scalar_one() or 0)


def reusable(connection: Connection, store: BlobStore, caller: Caller, hashes: Collection[str]) -> set[str]:
    """The hashes whose bytes are stored and that a caller may commit by them: they brought the bytes, or can read them
    in a repository.

    Otherwise a hash alone, which is no secret, would open private files.
    """
    claimed = exists().where(blob_claims.c.sha256 == blobs.c.sha256, blob_claims.c.account_id == caller.account_id)
    readable = select(commit_files.c.sha256).select_from(commit_files.join(commits).join(repos))
    readable = readable.where(commit_files.c.sha256 == blobs.c.sha256)
    if not caller.is_admin:
        readable = readable.where(or_(repos.c.private.is_(False), repos.c.owner_id == caller.account_id))
    query = select(blobs.c.sha256).where(blobs.c.sha256.in_(hashes), or_(claimed, readable.exists()))
    return {sha256 for sha256 in connection.scalars(query) if store.has(sha256)}


def pin(connection: Connection, hashes: Collection[str]) -> None:
    """Keep these bytes when their repository is gone: matches that were played with them are verified by them."""
    swept = blobs.c.sha256.in_(hashes) & blobs.c.pinned.is_(False)
    connection.execute(update(blobs).where(swept).values(pinned=True))


def collect_garbage(store: Store, older_than_ms: int = DAY_MS) -> int:
    """Remove uploaded bytes that no commit has named for a day and no match ever did. Returns how many blobs went.

    Call it from time to time; each call handles a limited number. Bytes that the arena stored itself have no row among
    the hub's blobs and are never touched.
    """
    store.blobs.sweep_unfinished(older_than_ms / 1000)
    gone, before_ms = 0, now_ms() - older_than_ms
    while gone < SWEEP_BLOBS:
        some = _sweep(store, before_ms)
        gone += some
        if some < SWEPT_TOGETHER:
            break
        time.sleep(SWEEP_PAUSE_S)
    return gone


def _sweep(store: Store, before_ms: int) -> int:
    try:
        with store.write() as connection:
            orphans = _find_orphans(connection, before_ms)
            connection.execute(delete(blobs).where(blobs.c.sha256.in_(orphans)))
            for sha256 in orphans:
                store.blobs.remove(sha256)
    except IntegrityError:  # a commit took one of them between the two statements; the next call sees that
        return 0
    return len(orphans)


def _find_orphans(connection: Connection, before_ms: int) -> list[str]:
    query = select(blobs.c.sha256).where(
        blobs.c.created_ms < before_ms,
        blobs.c.pinned.is_(False),
        ~exists().where(commit_files.c.sha256 == blobs.c.sha256),
        ~exists().where(blob_claims.c.sha256 == blobs.c.sha256, blob_claims.c.created_ms >= before_ms),
    )
    return list(connection.execute(query.limit(SWEPT_TOGETHER).with_for_update(skip_locked=True)).scalars())
