"""Repositories in the store: made, found, listed by tag, read. What the endpoints and the arena share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from palus.hub.accounts import Account, Caller
from palus.hub.commits import Message, find_file, resolve_revision, write_commit
from palus.hub.ids import check_repo_id
from palus.hub.limits import HubLimits
from palus.hub.refusals import AlreadyExistsError, EntryNotFoundError, RepoNotFoundError, TooLargeError
from palus.store import Store
from palus.store.engine import now_ms
from palus.store.tables import accounts, repo_tags, repos

Kind = Literal["model", "dataset"]
Sort = Literal["modified_ms", "created_ms", "downloads"]

# Datasets first: their addresses begin with a fixed word where those of models have an owner.
URL_PREFIX: dict[Kind, str] = {"dataset": "datasets/", "model": ""}
MAX_PAGE = 1000


@dataclass(frozen=True)
class Repo:
    """A repository at its head. name: owner/name. modified_ms: when the head last moved. card_json: its card's data, as
    it is stored."""

    id: int
    kind: Kind
    name: str
    owner: str
    private: bool
    head: str
    library_name: str | None
    downloads: int
    created_ms: int
    modified_ms: int
    card_json: str = "{}"
    tags: tuple[str, ...] = ()

    @cached_property
    def card(self) -> dict[str, Any]:
        """Read when it is asked for: it takes twenty times its bytes."""
        data: dict[str, Any] = json.loads(self.card_json)
        return data


def create_repo(
    connection: Connection, kind: Kind, owner: Account, name: str, private: bool, limits: HubLimits
) -> Repo:
    """A new repository with a first, empty commit. Raises InvalidInputError, AlreadyExistsError, TooLargeError."""
    full = check_repo_id(owner.name, name)
    if find_repo(connection, kind, full) is not None:
        raise AlreadyExistsError(f"{kind} {full} exists already; choose another name, or push to it")
    owned = connection.execute(select(func.count()).where(repos.c.owner_id == owner.id)).scalar_one()
    if owned >= limits.account_repos:
        raise TooLargeError(f"{owner.name} owns {owned} repositories, the most that are allowed; delete one first")
    created_ms = now_ms()
    row = {"kind": kind, "owner_id": owner.id, "name": full, "key": full.lower(), "private": private, "card": "{}"}
    times = {"downloads": 0, "used_bytes": 0, "created_ms": created_ms, "modified_ms": created_ms}
    try:
        repo_id = connection.execute(insert(repos).values({**row, **times}).returning(repos.c.id)).scalar_one()
    except IntegrityError as error:  # a database with several writers: somebody was faster
        raise AlreadyExistsError(f"{kind} {full} exists already; choose another name, or push to it") from error
    head = write_commit(connection, repo_id, f"{kind}/{full}", None, Message("initial commit"), owner.name, [])
    return Repo(repo_id, kind, full, owner.name, private, head, None, 0, created_ms, created_ms)


def find_repo(connection: Connection, kind: Kind, name: str) -> Repo | None:
    """The repository `owner/name`, in any case."""
    row = connection.execute(_select().where(repos.c.kind == kind, repos.c.key == name.lower())).first()
    return _with_tags(connection, [row])[0] if row else None


def delete_repo(connection: Connection, repo: Repo) -> None:
    """Forget a repository and its commits; bytes that nothing else needs go a day later (`garbage`)."""
    connection.execute(delete(repos).where(repos.c.id == repo.id))


def set_private(connection: Connection, repo: Repo, private: bool) -> None:
    """Hide a repository from everybody but its owner, or show it."""
    connection.execute(update(repos).where(repos.c.id == repo.id).values(private=private))


def add_downloads(connection: Connection, counts: Mapping[int, int]) -> None:
    """So many more downloads, by the repository's id; those that are gone are passed over."""
    more = update(repos).where(repos.c.id == bindparam("repo")).values(downloads=repos.c.downloads + bindparam("more"))
    connection.execute(more, [{"repo": repo_id, "more": count} for repo_id, count in sorted(counts.items())])


def list_repos(
    connection: Connection,
    kind: Kind = "model",
    *,
    tags: Sequence[str] = (),
    author: str | None = None,
    search: str | None = None,
    reader: Caller | None = None,
    sort: Sort = "modified_ms",
    after: tuple[int, int] | None = None,
    limit: int = MAX_PAGE,
) -> list[Repo]:
    """Up to `limit` repositories, largest sort value (newest) first.

    tags: all of which they have. search: part of the name, any case. reader: who sees private ones of their own too,
    where their token allows that. after: sort value and id of the repository at which the list was left.
    """
    column = repos.c[sort]
    query = _select().where(repos.c.kind == kind).order_by(column.desc(), repos.c.id.desc()).limit(limit)
    for tag in tags:
        query = query.where(exists().where(repo_tags.c.repo_id == repos.c.id, repo_tags.c.tag == tag))
    if author is not None:
        query = query.where(accounts.c.key == author.lower())
    if search is not None:
        query = query.where(repos.c.key.contains(search.lower(), autoescape=True))
    if reader is None or not reader.is_admin:
        shown: list[ColumnElement[bool]] = [repos.c.private.is_(False)]
        if reader is not None and reader.can_read_as(reader.name):
            shown.append(repos.c.owner_id == reader.account_id)
        query = query.where(or_(*shown))
    if after is not None:
        query = query.where(tuple_(column, repos.c.id) < tuple_(*map(literal, after)))
    return _with_tags(connection, connection.execute(query).all())


def read_file(store: Store, repo: str, revision: str, path: str) -> bytes:
    """The bytes of one file of a model's repository. revision: `main` or a commit.

    Raises RepoNotFoundError, RevisionNotFoundError, EntryNotFoundError; StorageError for a damaged blob folder.
    """
    with store.read() as connection:
        found = find_repo(connection, "model", repo)
        if found is None:
            raise RepoNotFoundError(f"there is no model {repo} here, or it is private; check the name and your token")
        file = find_file(connection, resolve_revision(connection, found, revision), path)
    if file is None:
        raise EntryNotFoundError(f"{repo} has no {path} at {revision}; see its list of files")
    return store.blobs.read(file.sha256)


def _select() -> Select[Any]:
    names = (part.name for part in fields(Repo) if part.name not in ("owner", "card_json", "tags"))
    others = (accounts.c.name.label("owner"), repos.c.card.label("card_json"))
    return select(*(repos.c[name] for name in names), *others).join(accounts, accounts.c.id == repos.c.owner_id)


def _with_tags(connection: Connection, rows: Sequence[Row[Any]]) -> list[Repo]:
    """Repositories of rows, their tags fetched in one query."""
    tags: dict[int, list[str]] = {row.id: [] for row in rows}
    query = select(repo_tags.c.repo_id, repo_tags.c.tag).where(repo_tags.c.repo_id.in_(tags))
    for repo_id, tag in connection.execute(query.order_by(repo_tags.c.tag)):
        tags[repo_id].append(tag)
    return [Repo(**row._mapping, tags=tuple(tags[row.id])) for row in rows]
