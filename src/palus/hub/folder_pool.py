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
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from palus.errors import HubError, StorageError
from palus.hub.ids import check_path, check_repo_id
from palus.hub.layout import Content

_ATTEMPTS = 5
_ABANDONED_S = 3600
"""A half-filled folder older than this belongs to a push that was killed."""


def repository_folder(pool: Path, repo_id: str) -> Path | None:
    """Where the newest whole revision lies; None when there is no such repository. Raises HubError for a wrong id."""
    home = pool / check_repo_id(*repo_id.partition("/")[::2])
    if home.is_dir():
        return home
    aside = sorted(home.parent.glob(f".{home.name}.old.*"), key=lambda p: p.stat().st_mtime_ns)
    return aside[-1] if aside else None


def find_repositories(pool: Path) -> dict[str, Path]:
    """Where the newest whole revision of every repository lies, by id. A folder whose path is no id is passed over."""
    found = {}
    for entry in sorted(pool.glob("*/*")):
        name, aside = entry.name, entry.name.startswith(".") and ".old." in entry.name
        repo_id = f"{entry.parent.name}/{name[1:].partition('.old.')[0] if aside else name}"
        with suppress(HubError):
            if folder := repository_folder(pool, repo_id):
                found[repo_id] = folder
    return found


def push_to_pool(
    pool: Path, repo_id: str, files: Mapping[str, Content], is_replaced: Callable[[str], bool]
) -> tuple[str, bool]:
    """Make `files` the repository's content, all at once. Returns the revision and whether it is a new one.

    is_replaced: which paths of the present revision go when `files` lacks them; others stay.
    Raises HubError for a wrong id or path, StorageError when the pool cannot be written.
    """
    home = pool / check_repo_id(*repo_id.partition("/")[::2])
    for path in files:
        check_path(path)
    staging = home.parent / f".{home.name}.new.{uuid.uuid4().hex}"
    before = repository_folder(pool, repo_id)
    try:
        staging.mkdir(parents=True)
        if before is not None:
            _copy({p: f for p, f in _walk(before) if p not in files and not is_replaced(p)}, staging)
        _copy(files, staging)
        revision = revision_of(staging)
        if before == home and revision_of(home) == revision:
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


def pull_from_pool(pool: Path, repo_id: str, folder: Path) -> None:
    """Copy a repository's files into `folder`. Raises HubError, StorageError."""
    for _ in range(_ATTEMPTS):
        source = repository_folder(pool, repo_id)
        if source is None:
            if not pool.is_dir():
                raise HubError(f"{pool}: no such folder; give the one that was pushed to")
            known = ", ".join([*find_repositories(pool)][:10]) or "none"
            raise HubError(f"{repo_id}: no such repository in {pool}; it holds {known}")
        try:
            revision = revision_of(source)
            folder.mkdir(parents=True, exist_ok=True)
            _copy(dict(_walk(source)), folder)
            after = repository_folder(pool, repo_id)
            if after is not None and revision_of(after) == revision:
                return
        except FileNotFoundError:
            continue  # a push moved the revision away under our hands
        except OSError as error:
            raise StorageError(
                f"{folder}: could not be written ({error.strerror or error}); choose another folder"
            ) from error
    raise HubError(f"{repo_id}: changed under our hands {_ATTEMPTS} times; wait until the pushes end and pull again")


def _swap(home: Path, staging: Path) -> None:
    """Put `staging` in the place of `home`, then clear away what it replaced, also what a killed push left."""
    for _, file in _walk(staging):  # so that a power cut after the renames cannot leave them empty
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())
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


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """(path in the repository, file) in a fixed order. Links are not followed: a pool is shared."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            yield file.relative_to(folder).as_posix(), file


def revision_of(folder: Path) -> str:
    """40 hex digits made of the paths and contents in a folder."""
    total = hashlib.sha1(usedforsecurity=False)
    for path, file in _walk(folder):
        status = file.stat()
        total.update(f"{path}\0{_sha256(file, status.st_size, status.st_mtime_ns, status.st_ino)}\n".encode())
    return total.hexdigest()


@lru_cache(maxsize=8192)
def _sha256(file: Path, *_state: int) -> str:
    """Of the file's content. _state: size, time and number of the file, so that only changed files are read again."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
