"""Bytes by their SHA-256, on disk or behind a URL. What users call a file is only a key in the database, so no path
can escape.

Behind a URL (`palus.store.depot`) every blob is a file `ab/ab12...` there; the folder then is a copy of those that this
machine used lately, and may be emptied at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

from palus.errors import StorageError
from palus.store.depot import Depot

_UNFINISHED = ".incoming-"
COPIES_BYTES = 20 << 30
"""Of blobs that are elsewhere, so much is kept on this machine."""
IN_USE_S = 600.0
"""Whoever was given a copy's path has opened it by then."""
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Blob:
    """Bytes that are stored. git_sha1: the id that git gives a blob of them."""

    sha256: str
    size: int
    git_sha1: str


class BlobStore:
    """A folder of files named by their content: `ab/ab12...`. Written once, never changed; safe between processes.

    far: the storage that they are really in, where that is not the folder. most_bytes: that copies of them take.
    """

    def __init__(self, folder: Path, far: Depot | None = None, *, most_bytes: float = COPIES_BYTES) -> None:
        self.folder, self.far, self.most_bytes = folder, far, most_bytes
        self._brought = 0
        self._lock, self._bringing = threading.Lock(), WeakValueDictionary[str, threading.Lock]()

    def path(self, sha256: str) -> Path:
        """Where these bytes are or would be on this machine. Raises ValueError for anything but 64 lower-case hex
        digits."""
        if not _SHA256.match(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r}")
        return self.folder / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        """Whether these bytes are stored."""
        return self.path(sha256).is_file() if self.far is None else self.far.has(_name(sha256))

    def local(self, sha256: str) -> Path:
        """A file of these bytes on this machine, brought here where it is not, once for all who ask meanwhile. Raises
        StorageError when they are missing everywhere."""
        path = self.path(sha256)
        if self.far is None:
            return path
        with self._lock:
            one_at_a_time = self._bringing.setdefault(sha256, threading.Lock())
        with one_at_a_time:
            if path.is_file():
                with contextlib.suppress(OSError):
                    os.utime(path)  # it was used
            else:
                self._bring(sha256, self.far)
        return path

    def _bring(self, sha256: str, far: Depot) -> None:
        with self.open_writer() as writer:
            far.fetch(_name(sha256), writer.path)
            writer.reread()
            if writer.seal().sha256 != sha256:
                raise StorageError(f"{far.place}: blob {sha256[:12]} is damaged; restore it from a backup")
            writer.show()

    def read_start(self, sha256: str, size: int) -> bytes:
        """The first `size` bytes, unchecked; all for -1. Raises StorageError when they are missing."""
        try:
            with self.local(sha256).open("rb") as file:
                return file.read(size)
        except OSError as error:
            raise StorageError(
                f"blob {sha256[:12]} cannot be read ({error.strerror}); restore the blob folder from a backup"
            ) from error

    def read(self, sha256: str) -> bytes:
        """All bytes. Raises StorageError when they are missing or no longer hash to their name."""
        data = self.read_start(sha256, -1)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StorageError(f"blob {sha256[:12]} is damaged on disk; restore the blob folder from a backup")
        return data

    def put(self, data: bytes) -> Blob:
        """Store bytes; storing them again changes nothing. Raises StorageError, and leaves nothing then."""
        with self.open_writer() as writer:
            writer.write(data)
            return writer.keep()

    def open_writer(self) -> BlobWriter:
        """A writer for bytes that come in pieces. Raises StorageError."""
        return BlobWriter(self)

    def sweep_unfinished(self, older_than_s: float) -> None:
        """Remove what killed writers left, if nothing was added to it for this long."""
        oldest = time.time() - older_than_s
        for file in self.folder.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(FileNotFoundError):  # its writer was alive and has just finished
                if file.stat().st_mtime < oldest:
                    file.unlink()

    def remove(self, sha256: str) -> None:
        """Forget these bytes; nothing happens when they are not there."""
        self.path(sha256).unlink(missing_ok=True)
        if self.far is not None:
            self.far.remove(_name(sha256))

    def make_room(self, brought: int) -> None:
        """Of blobs that are elsewhere, keep those here that were used lately. brought: bytes that came now."""
        self._brought += brought
        if self.far is None or self._brought < self.most_bytes / 20:
            return
        self._brought, kept, now = 0, 0, time.time()
        found = []
        for file in self.folder.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):  # other processes make room, too
                found.append((file.stat(), file))
        for seen, file in sorted(found, key=lambda one: one[0].st_mtime, reverse=True):
            kept += seen.st_size
            if kept > self.most_bytes and now - seen.st_mtime > IN_USE_S:
                file.unlink(missing_ok=True)


def _name(sha256: str) -> str:
    """In the far storage, as in a folder: whoever moves one to the other copies it as it is."""
    return f"{sha256[:2]}/{sha256}"


class BlobWriter:
    """Takes bytes as they come and hashes them; a context manager that leaves nothing behind unless `keep` was called.

    The steps that can fail raise StorageError. size: bytes taken so far.
    """

    def __init__(self, store: BlobStore) -> None:
        self.size = 0
        self._store, self._sha256 = store, hashlib.sha256()
        self._sealed: Blob | None = None
        with self._reporting():
            store.folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=store.folder, prefix=_UNFINISHED)
        self._file, self.path = os.fdopen(descriptor, "w+b"), Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.discard()

    def write(self, chunk: bytes) -> None:
        """Take some more bytes."""
        with self._reporting():
            self._file.write(chunk)
        self._sha256.update(chunk)
        self.size += len(chunk)

    def seal(self) -> Blob:
        """Bring the bytes to the disk and say what they are, without making them visible yet."""
        if self._sealed is None:
            # git hashes the size before the bytes, so its id takes a second look at them.
            sha1 = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
            with self._reporting():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.seek(0)
                while chunk := self._file.read(1 << 20):
                    sha1.update(chunk)
                self._file.close()
            self._sealed = Blob(self._sha256.hexdigest(), self.size, sha1.hexdigest())
        return self._sealed

    def reread(self) -> None:
        """Take what somebody else wrote to `path` for what came."""
        with self._reporting():
            while chunk := self._file.read(1 << 20):
                self._sha256.update(chunk)
                self.size += len(chunk)

    def keep(self) -> Blob:
        """Make the bytes visible under their name, to everybody."""
        blob = self.seal()
        if self._store.far is not None:
            self._store.far.send(_name(blob.sha256), self.path)
        self.show()
        return blob

    def show(self) -> None:
        """Make the bytes visible on this machine."""
        blob = self.seal()
        with self._reporting():
            target = self._store.path(blob.sha256)
            target.parent.mkdir(exist_ok=True)
            self.path.chmod(0o644)
            self.path.replace(target)
        self._store.make_room(blob.size)

    def discard(self) -> None:
        """Drop what was not kept."""
        with contextlib.suppress(OSError):  # what a full disk did not take is dropped here anyway
            self._file.close()
        self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self._store.folder}: could not be written ({error.strerror or error}); free space and try again"
            ) from error
