"""Commits: complete lists of files under ids that never change their meaning, each written in one transaction."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, insert, select, update

from palus.hub.card import MAX_BYTES as MAX_CARD_BYTES
from palus.hub.card import Card, dump_card, read_card
from palus.hub.limits import HubLimits, show_bytes
from palus.hub.refusals import (
    InvalidInputError,
    RefusedRequestError,
    RepoNotFoundError,
    RevisionNotFoundError,
    TooLargeError,
)
from palus.store import BlobStore
from palus.store.engine import now_ms
from palus.store.tables import blobs, commit_files, commits, repo_tags, repos

if TYPE_CHECKING:
    from palus.hub.repos import Repo

MAIN = "main"
DAY_MS = 24 * 3600 * 1000
LISTED_BYTES = 300
"""That a file takes in the list of each commit, beside its path, which the database has twice."""
_README = "README.md"
_REVISION = re.compile(r"[0-9a-f]{40}\Z")


@dataclass(frozen=True)
class File:
    """One file of a commit. lfs: it came by LFS, and clients know it by its SHA-256 instead of git's SHA-1."""

    path: str
    sha256: str
    size: int
    lfs: bool
    git_sha1: str

    @property
    def etag(self) -> str:
        """The id by which clients tell whether they have these bytes."""
        return self.sha256 if self.lfs else self.git_sha1


@dataclass(frozen=True)
class Commit:
    """One commit of a history."""

    id: str
    title: str
    message: str
    author: str
    created_ms: int


@dataclass(frozen=True)
class Put:
    """Puts a file in place of whatever has its path. The bytes are stored already."""

    path: str
    sha256: str
    lfs: bool = False


@dataclass(frozen=True)
class Remove:
    """Takes away a file, or everything in a folder. The folder "" is the whole repository."""

    path: str
    folder: bool = False


@dataclass(frozen=True)
class Message:
    """What the author says about a commit. parent: the head that was seen; None does not care."""

    title: str
    description: str = ""
    parent: str | None = None


def resolve_revision(connection: Connection, repo: Repo, revision: str) -> str:
    """The commit that `main` or a commit id means. Raises RevisionNotFoundError."""
    if revision == MAIN:
        return repo.head
    if _REVISION.match(revision):
        known = select(commits.c.id).where(commits.c.id == revision, commits.c.repo_id == repo.id)
        if connection.execute(known).first():
            return revision
    raise RevisionNotFoundError(
        f"{repo.name} has no revision {revision[:60]!a}; it has the branch main and its commits"
    )


def list_files(connection: Connection, commit_id: str) -> tuple[File, ...]:
    """The files of a commit, by path."""
    rows = connection.execute(_select_files().where(commit_files.c.commit_id == commit_id))
    return tuple(sorted((File(*row) for row in rows), key=lambda file: file.path.encode()))


def find_file(connection: Connection, commit_id: str, path: str) -> File | None:
    """One file of a commit."""
    query = _select_files().where(commit_files.c.commit_id == commit_id, commit_files.c.path == path)
    row = connection.execute(query).first()
    return File(*row) if row else None


def list_commits(connection: Connection, commit_id: str, skip: int, limit: int) -> list[Commit]:
    """A commit and those before it, newest first."""
    newest = select(commits.c.repo_id, commits.c.number).where(commits.c.id == commit_id).subquery()
    columns = [commits.c[name] for name in ("id", "title", "message", "author", "created_ms")]
    query = select(*columns).join(newest, commits.c.repo_id == newest.c.repo_id)
    query = query.where(commits.c.number <= newest.c.number).order_by(commits.c.number.desc())
    return [Commit(*row) for row in connection.execute(query.offset(skip).limit(limit))]


def add_commit(
    connection: Connection,
    store: BlobStore,
    repo: Repo,
    changes: Sequence[Put | Remove],
    message: Message,
    author: str,
    limits: HubLimits,
    card: Card | None = None,
) -> str:
    """Apply changes to the head; returns the new head, or the old one when nothing changes.

    card: of `pushed_card`, which is read before this; None reads it here.
    Call inside `store.write()`, where every other writer waits; who read the changes has bounded their number. Raises
    InvalidInputError, TooLargeError, RefusedRequestError where the head moved on or the day is over, and, when the
    repository is gone, RepoNotFoundError.
    """
    head = _lock_head(connection, repo)
    if message.parent and not head.startswith(message.parent):
        sentence = f"{repo.name} is at {head[:12]}, not at {message.parent[:12]}; fetch it and try again"
        raise RefusedRequestError(sentence, status=412)
    before = {file.path: file for file in list_files(connection, head)}
    after = _apply(before, changes, _stored_files(connection, changes))
    if after == before:
        return head
    _check_tree(after, limits)
    _check_history(connection, repo, limits)
    files = list(after.values())
    _charge(connection, repo, {file.sha256 for file in before.values()}, files, limits)
    commit_id = write_commit(connection, repo.id, f"{repo.kind}/{repo.name}", head, message, author, files)
    readme = after.get(_README)
    if readme is None:
        card = Card()
    elif before.get(_README) == readme:
        card = Card(json.loads(connection.execute(select(repos.c.card).where(repos.c.id == repo.id)).scalar_one()))
    elif card is None:
        card = _read_card(store, readme.sha256)
    _publish_card(connection, repo.id, card, has_onnx=any(path.endswith(".onnx") for path in after))
    return commit_id


def pushed_card(store: BlobStore, changes: Sequence[Put | Remove]) -> Card | None:
    """The card of the README.md that changes put; None where they put none. Raises StorageError."""
    put = [change.sha256 for change in changes if isinstance(change, Put) and change.path == _README]
    return _read_card(store, put[-1]) if put else None


def _read_card(store: BlobStore, sha256: str) -> Card:
    return read_card(store.read_start(sha256, MAX_CARD_BYTES + 1))


def _lock_head(connection: Connection, repo: Repo) -> str:
    head = connection.execute(select(repos.c.head).where(repos.c.id == repo.id).with_for_update()).scalar_one_or_none()
    if head is None:
        raise RepoNotFoundError(f"{repo.name} was deleted meanwhile")
    return str(head)


def _apply(before: Mapping[str, File], changes: Sequence[Put | Remove], stored: Mapping[Put, File]) -> dict[str, File]:
    """The files after changes, in the time that reading them takes: nobody looks at all files for each of them."""
    put = {path: (0, file) for path, file in before.items()}  # with the number of the change that put it there
    emptied: dict[str, int] = {}  # folder -> the last change that emptied it

    def is_there(path: str) -> bool:
        return path in put and all(emptied.get(folder, 0) <= put[path][0] for folder in ("", *folders_of(path)))

    for number, change in enumerate(changes, start=1):
        if isinstance(change, Put):
            put[change.path] = number, stored[change]
        elif change.folder:
            emptied[change.path] = number
        elif is_there(change.path):
            del put[change.path]
        else:
            raise InvalidInputError(f"there is no file {change.path} to delete; see the repository's list of files")
    return {path: file for path, (_, file) in put.items() if is_there(path)}


def _stored_files(connection: Connection, changes: Sequence[Put | Remove]) -> dict[Put, File]:
    puts = {change for change in changes if isinstance(change, Put)}
    wanted = blobs.c.sha256.in_({put.sha256 for put in puts})
    rows = {row.sha256: row for row in connection.execute(select(blobs).where(wanted))}
    for put in puts:
        if put.sha256 not in rows:
            raise InvalidInputError(f"the bytes of {put.path} ({put.sha256[:12]}) are not here; upload them again")
    return {put: File(put.path, put.sha256, rows[put.sha256].size, put.lfs, rows[put.sha256].git_sha1) for put in puts}


def folders_of(path: str) -> Iterator[str]:
    """Every folder that a path lies in, but for the root."""
    return (path[:end] for end, character in enumerate(path) if character == "/")


def check_number(number: int, limits: HubLimits) -> None:
    """Raises TooLargeError for more files than a repository may have."""
    if number > limits.repo_files:
        raise TooLargeError(f"the repository would have {number} files; at most {limits.repo_files} are allowed")


def _check_tree(files: dict[str, File], limits: HubLimits) -> None:
    check_number(len(files), limits)
    for path in files:
        for folder in folders_of(path):
            if folder in files:
                raise InvalidInputError(f"{folder} would be a file and a folder at once (of {path}); rename one")


def _check_history(connection: Connection, repo: Repo, limits: HubLimits) -> None:
    recent = select(func.count()).where(commits.c.repo_id == repo.id, commits.c.created_ms > now_ms() - DAY_MS)
    if connection.execute(recent).scalar_one() >= limits.commits_per_day:
        sentence = f"{repo.name} got {limits.commits_per_day} commits within a day; go on tomorrow"
        raise RefusedRequestError(sentence, status=429)


def _charge(connection: Connection, repo: Repo, before: set[str], files: Sequence[File], limits: HubLimits) -> None:
    """Add to what the repository takes, and refuse what would fill it or the owner's share.

    What the head had not counts, also where an older commit had it. Nothing is added up anew: with every commit of a
    long history that would keep all other writers waiting longer.
    """
    stored = sum({file.sha256: file.size for file in files if file.sha256 not in before}.values())
    listed = sum(LISTED_BYTES + 2 * len(file.path.encode()) for file in files)
    own = update(repos).where(repos.c.id == repo.id).values(used_bytes=repos.c.used_bytes + stored + listed)
    row = connection.execute(own.returning(repos.c.used_bytes, repos.c.owner_id)).one()
    of_owner = connection.scalar(select(func.sum(repos.c.used_bytes)).where(repos.c.owner_id == row.owner_id))
    for what, size, limit in (
        (repo.name, row.used_bytes, limits.repo_bytes),
        (f"all of {repo.owner}", of_owner or 0, limits.account_bytes),
    ):
        if size > limit:
            raise TooLargeError(
                f"{what} would take {show_bytes(int(size))} with its history; {show_bytes(limit)} are allowed. "
                "Leave checkpoints out, or delete a repository"
            )


def write_commit(
    connection: Connection,
    repo_id: int,
    repo_name: str,
    parent: str | None,
    message: Message,
    author: str,
    files: Sequence[File],
) -> str:
    """Make a commit the head, unchecked; returns its id. parent: None for the empty one that a repository begins with,
    so that it always has a head."""
    number, created_ms = 0, now_ms()
    if parent is not None:
        number = 1 + connection.execute(select(commits.c.number).where(commits.c.id == parent)).scalar_one()
    row: dict[str, Any] = {"parent": parent, "title": message.title, "message": message.description, "author": author}
    row |= {"number": number, "created_ms": created_ms}
    # The id covers everything, so that one id can never mean two trees: clients keep a commit's tree for ever.
    tree = [[file.path, file.sha256, file.lfs] for file in files]
    covered = json.dumps([repo_name, row, tree], sort_keys=True).encode()
    commit_id = hashlib.sha1(covered, usedforsecurity=False).hexdigest()
    connection.execute(insert(commits).values({**row, "id": commit_id, "repo_id": repo_id}))
    if files:
        listed = [{"path": f.path, "sha256": f.sha256, "size": f.size, "lfs": f.lfs} for f in files]
        connection.execute(insert(commit_files), [{**file, "commit_id": commit_id} for file in listed])
    connection.execute(update(repos).where(repos.c.id == repo_id).values(head=commit_id, modified_ms=created_ms))
    return commit_id


def _publish_card(connection: Connection, repo_id: int, card: Card, *, has_onnx: bool) -> None:
    """Make tags and card those of the new head."""
    tags = dict.fromkeys([*card.tags, *(["onnx"] if has_onnx else [])])
    values: dict[str, Any] = {"card": dump_card(card.data), "library_name": card.library_name}
    connection.execute(update(repos).where(repos.c.id == repo_id).values(values))
    connection.execute(delete(repo_tags).where(repo_tags.c.repo_id == repo_id))
    if tags:
        connection.execute(insert(repo_tags), [{"repo_id": repo_id, "tag": tag} for tag in tags])


def _select_files() -> Any:
    columns = (commit_files.c.path, commit_files.c.sha256, commit_files.c.size, commit_files.c.lfs, blobs.c.git_sha1)
    return select(*columns).join(blobs, blobs.c.sha256 == commit_files.c.sha256)
