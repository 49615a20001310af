"""Finds the models that want to play: on the built-in hub, in a folder, on huggingface.co, and the house players.

A sweep only looks. What becomes of a revision is decided in `palus.arena.ladder.entries`.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, exists, func, select

from palus.arena.models.entity import Entity, house_player
from palus.arena.models.rules import arena_rules
from palus.arena.referee.games import game_of
from palus.envs.arena_game import ArenaGame
from palus.errors import ArenaError, HubError
from palus.files import digest_of
from palus.hub.folder_pool import find_repositories
from palus.hub.ids import COMMIT, check_repo_id
from palus.store.blobs import BlobStore
from palus.store.engine import now_ms
from palus.store.tables import commit_files, commits, entries, repo_tags, repos

logger = logging.getLogger(__name__)

Source = Literal["hub", "folder", "hf", "house"]

_PUBLIC = (repos.c.kind == "model") & repos.c.private.is_(False) & repos.c.head.is_not(None)

MISSING_FILE, TOO_LARGE = "missing-file", "too-large"
MAX_LISTED = 50_000
"""Models of a game on another hub, which lists them page by page."""
FETCH_S, FETCH_BYTES = 600.0, 1 << 16
"""Until a model of another hub has to be here, and how much of it is read at once."""


@dataclass(frozen=True)
class Entry:
    """A revision of a repository that asks to be ranked, as the entity that it would be. pushed_ms: when its repository
    first had these files, as far as the source tells, 0 where it does not; of revisions that have an entry nobody looks
    it up.

    fault: why there is nothing to play. Its files are then those that are there, without a hash if they are too large.
    """

    entity: Entity
    pushed_ms: int
    fault: str | None = None


@dataclass(frozen=True)
class Sweep:
    """What one source offers now. present: repositories that still want to play, found or still being pushed."""

    source: Source
    env: str
    found: tuple[Entry, ...]
    present: frozenset[str]


def sweep_house(env: str) -> Sweep:
    """The built-in players."""
    found = tuple(Entry(house_player(name, env), 0) for name in game_of(env).house)
    return Sweep("house", env, found, frozenset(entry.entity.repo for entry in found))


def _entry(env: str, repo: str, revision: str, files: Mapping[str, str | None], pushed_ms: int) -> Entry:
    """What a revision brings. files: SHA-256 by behavior; None for those that are too large."""
    missing = [behavior for behavior in game_of(env).behaviors if behavior not in files]
    fault = MISSING_FILE if missing else TOO_LARGE if None in files.values() else None
    known = {behavior: sha256 or "" for behavior, sha256 in sorted(files.items())}
    return Entry(Entity("" if fault else digest_of(known), repo, revision, (*known.items(),)), pushed_ms, fault)


def sweep_hub(connection: Connection, env: str, *, quiet_since_ms: int) -> Sweep:
    """Public model repositories of this store that carry the game's tags, or an .onnx file named by a behavior of it.

    quiet_since_ms: heads that moved later are still being pushed; they are present but not found yet.
    """
    game = game_of(env)
    tags: dict[int, set[str]] = {}
    for repo_id, tag in connection.execute(select(repo_tags.c.repo_id, repo_tags.c.tag)):
        tags.setdefault(repo_id, set()).add(tag)
    files: dict[str, dict[str, str | None]] = {}
    wanted = select(commit_files).join(repos, repos.c.head == commit_files.c.commit_id)
    for row in connection.execute(wanted.where(commit_files.c.path.in_(game.files))):
        sha256 = row.sha256 if row.size <= arena_rules(game.pictures).max_bytes else None
        files.setdefault(row.commit_id, {})[game.files[row.path]] = sha256
    first_ms = _first_ms(connection, env)
    found, present = [], set()
    for row in connection.execute(select(repos).where(_PUBLIC).order_by(repos.c.id)):
        if row.modified_ms > quiet_since_ms:
            present.add(row.name)
        elif row.head in files or set(game.tags) <= tags.get(row.id, set()):
            present.add(row.name)
            pushed_ms = first_ms.get(row.head, row.modified_ms)
            found.append(_entry(env, row.name, row.head, files.get(row.head, {}), pushed_ms))
    return Sweep("hub", env, tuple(found), frozenset(present))


def _first_ms(connection: Connection, env: str) -> dict[str, int]:
    """When the repositories' present files of a game were first committed to them all, by the head of each that has no
    entry yet: a push that changes something else makes no model younger."""
    at_head = commit_files.alias()
    same = (commit_files.c.path == at_head.c.path) & (commit_files.c.sha256 == at_head.c.sha256)
    of_head = (entries.c.repo == repos.c.name) & (entries.c.revision == repos.c.head) & (entries.c.env == env)
    wanted = (
        select(repos.c.head, func.min(commits.c.created_ms))
        .join(at_head, at_head.c.commit_id == repos.c.head)
        .join(commits, commits.c.repo_id == repos.c.id)
        .join(commit_files, (commit_files.c.commit_id == commits.c.id) & same)
        .where(_PUBLIC, at_head.c.path.in_(game_of(env).files), ~exists().where(of_head))
        .group_by(repos.c.head, at_head.c.path)
    )
    first: dict[str, int] = {}
    for head, ms in connection.execute(wanted):
        first[head] = max(ms, first.get(head, 0))
    return first


class FolderPool:
    """A folder `<owner>/<name>/<Behavior>.onnx`: entering without any server. Bytes go to the blobs on change.

    Whoever shares the folder writes there: links and devices under the name of a model, a repository or an owner are
    not followed, and what is wrong with one repository keeps no other from playing. Dates of files are their writers',
    too: they say in which order those come that a look finds, and nobody is earlier by them than the looks before.
    """

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        self.folder = folder
        self._blobs = blobs
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}
        self._seen: dict[tuple[str, Path], list[tuple[int, int]]] = {}  # by env and repository, at the last look
        self._faults: dict[str, dict[str, str]] = {}  # of the last look: env -> repository -> what was told

    def sweep(self, env: str, *, quiet_since_ms: int) -> Sweep:
        """Raises ArenaError when there is no such folder."""
        if not self.folder.is_dir():
            raise ArenaError(f"{self.folder}: no folder is there; models that came from it play on. Check --pool")
        found, present, game, faults = list[tuple[int, Entry]](), set(), game_of(env), dict[str, str]()
        for repo, folder in find_repositories(self.folder).items():
            try:
                states = _plain_files(folder, game)
                if states:
                    present.add(repo)
                    modified_ms = max(state.st_mtime_ns for state in states.values()) // 1_000_000
                    if self._rests(env, folder, states, modified_ms, quiet_since_ms):
                        found.append((modified_ms, self._entry(env, repo, folder, states)))
            except OSError as error:  # tried again: whoever played from there plays on
                present.add(repo)
                fault = f"{error.filename or folder}: {error.strerror}; it is passed over until that is mended"
                faults[repo] = fault
                if fault != self._faults.get(env, {}).get(repo):
                    logger.warning("%s", fault)
        self._faults[env] = faults
        oldest_first = sorted(found, key=lambda one: one[0])
        return Sweep("folder", env, tuple(entry for _, entry in oldest_first), frozenset(present))

    def _rests(
        self, env: str, folder: Path, states: Mapping[str, os.stat_result], modified_ms: int, quiet_since_ms: int
    ) -> bool:
        """Whether a repository is not being copied any more. One whose clock is ahead is when nothing has changed since
        the last look. states: of its files, by name."""
        stamps = [(state.st_mtime_ns, state.st_size) for state in states.values()]
        before, self._seen[env, folder] = self._seen.get((env, folder)), stamps
        return modified_ms <= quiet_since_ms or (modified_ms > now_ms() and stamps == before)

    def _entry(self, env: str, repo: str, folder: Path, states: Mapping[str, os.stat_result]) -> Entry:
        """states: of its files, by name."""
        game = game_of(env)
        most = arena_rules(game.pictures).max_bytes
        files = {game.files[name]: self._store(folder / name, state, most) for name, state in states.items()}
        # No commits here: a revision is named by its bytes, and a file that is too large by its size.
        sizes = {game.files[name]: state.st_size for name, state in states.items()}
        revision = digest_of({b: sha256 or _digest(f"{repo} {sizes[b]}") for b, sha256 in files.items()})
        return _entry(env, repo, revision[:40], files, 0)

    def _store(self, path: Path, state: os.stat_result, most: int) -> str | None:
        """SHA-256 of the file's bytes, which are among the blobs then; None of more than `most`."""
        if state.st_size > most:
            return None
        stamp = (state.st_mtime_ns, state.st_size)
        known = self._known.get(path)
        # Of blobs that are elsewhere nobody asks: that would be a question for every model at every look.
        is_gone = known is not None and self._blobs.far is None and not self._blobs.has(known[1])
        if known is None or known[0] != stamp or is_gone:
            data = _read_plain(path, most + 1)
            if len(data) > most:
                return None
            known = self._known[path] = (stamp, self._blobs.put(data).sha256)
        return known[1]


def _plain_files(folder: Path, game: ArenaGame) -> dict[str, os.stat_result]:
    """A game's files that are in a repository's folder. Raises OSError for what has such a name and is no file, and for
    a folder that is elsewhere."""
    states = {}
    for name in game.files:
        try:
            states[name] = (folder / name).lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(states[name].st_mode):
            raise OSError(errno.EINVAL, "no plain file (a link, a folder or a device)", str(folder / name))
    if states and (link := next((place for place in (folder.parent, folder) if place.is_symlink()), None)):
        raise OSError(errno.EINVAL, "a link, and no folder of the pool's own", str(link))
    return states


def _read_plain(path: Path, most: int) -> bytes:
    """At most so many bytes of a file. Raises OSError for what has become anything else since it was looked at."""
    with open(_opened(path), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no plain file (a link, a folder or a device)", str(path))
        return file.read(most)


def _opened(path: Path) -> int:
    """Number of the opened file. Of its repository and its owner, too, no link is followed, whenever it came there."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if os.open not in os.supports_dir_fd:  # Windows, where links take rights that visitors lack
        return os.open(path, flags)
    folder = None
    for part in (path.parent.parent, path.parent.name, path.name):
        try:
            opened = os.open(part, flags, dir_fd=folder)
        finally:
            if folder is not None:
                os.close(folder)
        folder = opened
    return opened


class HuggingFace:
    """Models on huggingface.co, or another hub of its kind, by the game's tags. Needs the network, and may be slow."""

    def __init__(self, blobs: BlobStore, api: Any = None) -> None:
        """api: a `huggingface_hub.HfApi`; the default one follows HF_ENDPOINT and HF_TOKEN."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        from palus.hub.bounded import bound_answers

        bound_answers()
        self._api = api or HfApi()
        self._blobs = blobs
        # Between its versions the library changes the package that speaks HTTP; this base class follows it.
        self._errors: tuple[type[BaseException], ...] = (HfHubHTTPError.__bases__[0], HubError, OSError, ValueError)

    def sweep(self, env: str, *, wanted: Callable[[str, str], bool]) -> Sweep:
        """wanted: of (repo, revision); others are known already and not downloaded again.

        A repository that cannot be fetched, or whose commit is none, is present but not found, so that it is tried
        again; one whose name none may have here is neither. Raises ArenaError when the list cannot be had.
        """
        try:
            listed = list(islice(self._api.list_models(filter=list(game_of(env).tags), full=True), MAX_LISTED + 1))
        except self._errors as error:
            raise ArenaError(f"{self._api.endpoint}: models cannot be listed ({error}); check the network") from error
        if len(listed) > MAX_LISTED:  # a part of it would take out all others
            raise ArenaError(f"{self._api.endpoint}: lists more than {MAX_LISTED:,} models of {env}; check HF_ENDPOINT")
        models = [info for info in listed if _is_repo_id(info.id)]
        if left_out := [info.id for info in listed if not _is_repo_id(info.id)]:
            logger.info("%s: left out, as nobody may have these names here: %s", self._api.endpoint, left_out[:20])
        found = []
        for info in models:
            if COMMIT.fullmatch(str(info.sha)) and wanted(info.id, info.sha):
                try:
                    found.append(self._find(info, env))
                except self._errors as error:
                    logger.warning("%s of %s cannot be fetched: %s", info.id, self._api.endpoint, error)
        return Sweep("hf", env, tuple(found), frozenset(info.id for info in models))

    def _find(self, info: Any, env: str) -> Entry:
        """A listed model with its bytes stored."""
        game, there = game_of(env), {sibling.rfilename for sibling in info.siblings or ()}
        files = {
            behavior: self._download(info.id, info.sha, file, arena_rules(game.pictures).max_bytes)
            for file, behavior in game.files.items()
            if file in there
        }
        modified: datetime | None = info.last_modified
        pushed_ms = round(1000 * modified.timestamp()) if modified else 0
        return _entry(env, info.id, info.sha, files, pushed_ms)

    def _download(self, repo: str, revision: str, file: str, max_bytes: int) -> str | None:
        """SHA-256 of the stored bytes; None when they are too many. They do not pass through the library's cache, where
        what a hub answers would name files."""
        from huggingface_hub import constants, get_session, hf_hub_url
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils._http import hf_raise_for_status

        url = hf_hub_url(repo, file, revision=revision, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self._api.token)
        data, until_s = bytearray(), time.monotonic() + FETCH_S
        with get_session().stream("GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT) as answer:
            hf_raise_for_status(answer)
            for part in answer.iter_bytes(FETCH_BYTES):
                data += part
                if len(data) > max_bytes:
                    return None
                if time.monotonic() > until_s:
                    raise TimeoutError(f"{file} is not here after {FETCH_S:g} s")
        return self._blobs.put(bytes(data)).sha256


def _is_repo_id(name: str) -> bool:
    owner, _, repo = name.partition("/")
    try:
        return check_repo_id(owner, repo) == name
    except HubError:
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
