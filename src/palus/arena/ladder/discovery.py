"""Finds the models that want to play: on the built-in hub, in a folder, on huggingface.co, and the house players.

A sweep only looks. What becomes of a revision is decided in `palus.arena.ladder.entries`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, select

from palus.arena.jobs.orders import house_player
from palus.arena.referee.games import game_of
from palus.errors import ArenaError, HubError
from palus.hub.ids import check_repo_id
from palus.store.blobs import BlobStore
from palus.store.tables import commit_files, repo_tags, repos

logger = logging.getLogger(__name__)

Source = Literal["hub", "folder", "hf", "house"]

MISSING_FILE, TOO_LARGE = "missing-file", "too-large"


@dataclass(frozen=True)
class Entry:
    """A revision of a repository that asks to be ranked.

    sha256: of the model file; None when there is none to play, `fault` then says why. pushed_ms: when it came.
    """

    source: Source
    repo: str
    revision: str
    env: str
    file: str
    sha256: str | None
    pushed_ms: int
    fault: str | None = None

    @property
    def owner(self) -> str:
        """First half of the repository's name."""
        return self.repo.partition("/")[0]


@dataclass(frozen=True)
class Sweep:
    """What one source offers now. present: repositories that still want to play, found or still being pushed."""

    source: Source
    env: str
    found: tuple[Entry, ...]
    present: frozenset[str]


def sweep_house(env: str) -> Sweep:
    """The built-in players."""
    players = [house_player(name, env) for name in game_of(env).house]
    found = tuple(Entry("house", player.repo, player.revision, env, "", player.sha256, 0) for player in players)
    return Sweep("house", env, found, frozenset(f.repo for f in found))


def sweep_hub(connection: Connection, env: str, *, quiet_since_ms: int) -> Sweep:
    """Public model repositories of this store that carry the game's tags, or an .onnx file named by the env.

    quiet_since_ms: heads that moved later are still being pushed; they are present but not found yet.
    """
    file, game = f"{env}.onnx", game_of(env)
    columns = (repos.c.id, repos.c.name, repos.c.head, repos.c.modified_ms, commit_files.c.sha256, commit_files.c.size)
    model_file = (commit_files.c.commit_id == repos.c.head) & (commit_files.c.path == file)
    query = (
        select(*columns)
        .outerjoin(commit_files, model_file)
        .where(repos.c.kind == "model", repos.c.private.is_(False), repos.c.head.is_not(None))
        .order_by(repos.c.id)
    )
    tags: dict[int, set[str]] = {}
    for repo_id, tag in connection.execute(select(repo_tags.c.repo_id, repo_tags.c.tag)):
        tags.setdefault(repo_id, set()).add(tag)
    found, present = [], set()
    for row in connection.execute(query):
        if row.modified_ms > quiet_since_ms:
            present.add(row.name)
        elif row.sha256 is not None or set(game.tags) <= tags.get(row.id, set()):
            present.add(row.name)
            fault = MISSING_FILE if row.sha256 is None else TOO_LARGE if row.size > game.rules.max_bytes else None
            sha256 = None if fault else row.sha256
            found.append(Entry("hub", row.name, row.head, env, file, sha256, row.modified_ms, fault))
    return Sweep("hub", env, tuple(found), frozenset(present))


class FolderPool:
    """A folder `<owner>/<name>/<env>.onnx`: entering without any server. Bytes go to the blobs when they change."""

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        self.folder = folder
        self._blobs = blobs
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}

    def sweep(self, env: str, *, quiet_since_ms: int) -> Sweep:
        """Raises ArenaError when the folder cannot be read."""
        found, present = [], set()
        try:
            for path in sorted(self.folder.glob(f"*/*/{env}.onnx")):
                owner, name = path.parts[-3:-1]
                try:
                    repo = check_repo_id(owner, name)
                except HubError:
                    continue  # hidden folders and the like: nobody asked for them to play
                present.add(repo)
                modified_ms = path.stat().st_mtime_ns // 1_000_000
                if modified_ms > quiet_since_ms:
                    continue
                fault = TOO_LARGE if path.stat().st_size > game_of(env).rules.max_bytes else None
                sha256 = None if fault else self._store(path)
                # No commits here: a revision is named by its bytes, and a file that is too large by its size.
                revision = sha256 or hashlib.sha256(f"{repo} {path.stat().st_size}".encode()).hexdigest()
                found.append(Entry("folder", repo, revision[:40], env, path.name, sha256, modified_ms, fault))
        except OSError as error:
            raise ArenaError(f"{self.folder}: cannot be read ({error.strerror}); check the folder of --pool") from error
        return Sweep("folder", env, tuple(found), frozenset(present))

    def _store(self, path: Path) -> str:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = self._known.get(path)
        if known is None or known[0] != stamp or not self._blobs.has(known[1]):
            known = (stamp, self._blobs.put(path.read_bytes()).sha256)
            self._known[path] = known
        return known[1]


class HuggingFace:
    """Models on huggingface.co, or another hub of its kind, by the game's tags. Needs the network, and may be slow."""

    def __init__(self, blobs: BlobStore, api: Any = None) -> None:
        """api: a `huggingface_hub.HfApi`; the default one follows HF_ENDPOINT and HF_TOKEN."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        self._api = api or HfApi()
        self._blobs = blobs
        # Between its versions the library changes the package that speaks HTTP; this base class follows it.
        self._errors: tuple[type[BaseException], ...] = (HfHubHTTPError.__bases__[0], OSError, ValueError)

    def sweep(self, env: str, *, wanted: Callable[[str, str], bool]) -> Sweep:
        """wanted: of (repo, revision); others are known already and not downloaded again.

        A repository that cannot be fetched is present but not found, so that it is tried again. Raises ArenaError when
        the list cannot be had.
        """
        try:
            models = list(self._api.list_models(filter=list(game_of(env).tags), full=True))
        except self._errors as error:
            raise ArenaError(f"{self._api.endpoint}: models cannot be listed ({error}); check the network") from error
        found = []
        for info in models:
            if info.sha and wanted(info.id, info.sha):
                try:
                    found.append(self._find(info, env))
                except self._errors as error:
                    logger.warning("%s of %s cannot be fetched: %s", info.id, self._api.endpoint, error)
        return Sweep("hf", env, tuple(found), frozenset(info.id for info in models))

    def _find(self, info: Any, env: str) -> Entry:
        """A listed model with its bytes stored."""
        file = f"{env}.onnx"
        has_file = any(sibling.rfilename == file for sibling in info.siblings or ())
        sha256 = self._download(info.id, info.sha, file, game_of(env).rules.max_bytes) if has_file else None
        fault = None if sha256 else TOO_LARGE if has_file else MISSING_FILE
        modified: datetime | None = info.last_modified
        pushed_ms = round(1000 * modified.timestamp()) if modified else 0
        return Entry("hf", info.id, info.sha, env, file, sha256, pushed_ms, fault)

    def _download(self, repo: str, revision: str, file: str, max_bytes: int) -> str | None:
        """SHA-256 of the stored bytes; None when they are too many."""
        sizes = self._api.get_paths_info(repo, [file], revision=revision)
        if not sizes or getattr(sizes[0], "size", 0) > max_bytes:
            return None
        return self._blobs.put(Path(self._api.hf_hub_download(repo, file, revision=revision)).read_bytes()).sha256
