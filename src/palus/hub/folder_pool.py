"""A folder as a hub: repositories lie in `<pool>/<owner>/<name>/`, and no server runs.

A push fills a hidden folder beside the repository and then changes places with it by two renames. Killed at any
instant, it leaves the old revision or the new one: between the renames the old one lies aside, where
`repository_folder` finds it, and the next push puts things right. Programs therefore ask it, never the path itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from palus.errors import HubError, StorageError
from palus.hub.ids import check_path, check_repo_id
from palus.hub.layout import Content

_READ_BYTES = 1 << 20
_ATTEMPTS = 5
_ABANDONED_S = 3600
"""A half-filled folder older than this belongs to a push that was killed."""


@dataclass(frozen=True)
class PoolRevision:
    """What a repository of the pool holds now. revision: 40 hex digits made of paths and contents."""

    repo_id: str
    folder: Path
    revision: str


def repository_folder(pool: Path, repo_id: str) -> Path | None:
    """Where the newest whole revision lies; None when there is no such repository. Raises HubError for a wrong id."""
    home = pool.joinpath(*_split_id(repo_id))
    if home.is_dir():
        return home
    aside = sorted(home.parent.glob(f".{home.name}.old.*"), key=lambda p: p.stat().st_mtime_ns)
    return aside[-1] if aside else None


def find_repositories(pool: Path) -> tuple[PoolRevision, ...]:
    """All repositories of a pool, by id. A folder whose path is no valid id is passed over."""
    found: dict[str, PoolRevision] = {}
    for owner in sorted(p for p in pool.iterdir() if p.is_dir()) if pool.is_dir() else ():
        for entry in sorted(p for p in owner.iterdir() if p.is_dir()):
            name = entry.name
            if name.startswith("."):
                if ".old." not in name:
                    continue
                name = name[1:].partition(".old.")[0]
            revision = _try_revision(pool, f"{owner.name}/{name}")
            if revision is not None:
                found[revision.repo_id] = revision
    return tuple(found[repo_id] for repo_id in sorted(found))


def read_revision(pool: Path, repo_id: str) -> PoolRevision | None:
    """A repository's present revision; None when there is no such repository. Raises HubError for a wrong id."""
    folder = repository_folder(pool, repo_id)
    return None if folder is None else PoolRevision(repo_id, folder, _revision(folder))


def push_to_pool(
    pool: Path, repo_id: str, files: Mapping[str, Content], is_replaced: Callable[[str], bool]
) -> tuple[str, bool]:
    """Make `files` the repository's content, all at once. Returns the revision and whether it is a new one.

    is_replaced: which paths of the present revision go when `files` lacks them; others stay.
    Raises HubError for a wrong id or path, StorageError when the pool cannot be written.
    """
    home = pool.joinpath(*_split_id(repo_id))
    for path in files:
        check_path(path)
    staging = home.parent / f".{home.name}.new.{uuid.uuid4().hex}"
    before = repository_folder(pool, repo_id)
    try:
        staging.mkdir(parents=True)
        if before is not None:
            _copy({p: f for p, f in _walk(before) if p not in files and not is_replaced(p)}, staging)
        _copy(files, staging)
        revision = _revision(staging)
        if before == home and _revision(home) == revision:
            return revision, False
        _swap(home, staging)
    except OSError as error:
        raise StorageError(
            f"{home}: could not be written ({error.strerror or error}); free space, choose another folder, or push "
            "again if somebody else pushed at the same moment. The former revision is still there."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return revision, True


def pull_from_pool(pool: Path, repo_id: str, folder: Path) -> str:
    """Copy a repository's files into `folder`; returns the revision. Raises HubError, StorageError."""
    for _ in range(_ATTEMPTS):
        source = read_revision(pool, repo_id)
        if source is None:
            raise HubError(f"{repo_id}: no such repository in {pool}; it holds {_known(pool)}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _copy(dict(_walk(source.folder)), folder)
        except FileNotFoundError:
            continue  # a push moved the revision away under our hands
        except OSError as error:
            raise StorageError(
                f"{folder}: could not be written ({error.strerror or error}); choose another folder"
            ) from error
        after = read_revision(pool, repo_id)
        if after is not None and after.revision == source.revision:
            return source.revision
    raise HubError(f"{repo_id}: changed under our hands {_ATTEMPTS} times; wait until the pushes end and pull again")


def _split_id(repo_id: str) -> tuple[str, str]:
    owner, _, name = repo_id.partition("/")
    check_repo_id(owner, name)
    return owner, name


def _swap(home: Path, staging: Path) -> None:
    """Put `staging` in the place of `home`, then clear away what it replaced, also what a killed push left."""
    _sync(staging)
    if home.is_dir():
        home.rename(home.parent / f".{home.name}.old.{uuid.uuid4().hex}")
    staging.rename(home)
    for replaced in home.parent.glob(f".{home.name}.old.*"):
        shutil.rmtree(replaced, ignore_errors=True)
    for unfinished in home.parent.glob(f".{home.name}.new.*"):
        if time.time() - unfinished.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(unfinished, ignore_errors=True)


def _copy(files: Mapping[str, Content], folder: Path) -> None:
    for path, content in files.items():
        target = folder.joinpath(*path.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)


def _sync(folder: Path) -> None:
    """Force the files to disk, so that a power cut after the renames cannot leave them empty."""
    for _, file in _walk(folder):
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """(path in the repository, file) in a fixed order. Links are not followed: a pool is shared."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            yield file.relative_to(folder).as_posix(), file


def _revision(folder: Path) -> str:
    total = hashlib.sha1(usedforsecurity=False)
    for path, file in _walk(folder):
        status = file.stat()
        total.update(f"{path}\0{_sha256(file, status.st_size, status.st_mtime_ns, status.st_ino)}\n".encode())
    return total.hexdigest()


@lru_cache(maxsize=8192)
def _sha256(file: Path, *_state: int) -> str:
    """Of the file's content. _state: size, time and number of the file, so that only changed files are read again."""
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _try_revision(pool: Path, repo_id: str) -> PoolRevision | None:
    try:
        return read_revision(pool, repo_id)
    except (HubError, FileNotFoundError):  # no valid id, or a push moves it at this moment: the next look finds it
        return None


def _known(pool: Path) -> str:
    return ", ".join(found.repo_id for found in find_repositories(pool)[:10]) or "none"
