"""Bytes by their SHA-256, on disk. What users call a file is only a key in the database, so no path can escape."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from palus.errors import StorageError

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Blob:
    """Bytes that are stored. git_sha1: the id that git gives a blob of them."""

    sha256: str
    size: int
    git_sha1: str


class BlobStore:
    """A folder of files named by their content: `ab/ab12...`. Written once, never changed; safe between processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Where these bytes are or would be. Raises ValueError for anything but 64 lower-case hex digits."""
        if not _SHA256.match(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r}")
        return self.folder / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        """Whether these bytes are stored."""
        return self.path(sha256).is_file()

    def read(self, sha256: str) -> bytes:
        """All bytes. Raises StorageError when they are missing or no longer hash to their name."""
        try:
            data = self.path(sha256).read_bytes()
        except OSError as error:
            raise StorageError(
                f"blob {sha256[:12]} cannot be read ({error.strerror}); restore the blob folder from a backup"
            ) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StorageError(f"blob {sha256[:12]} is damaged on disk; restore the blob folder from a backup")
        return data

    def put(self, data: bytes) -> Blob:
        """Store bytes; storing them again changes nothing."""
        return self.write([data], len(data))

    def write(self, chunks: Iterable[bytes], size: int) -> Blob:
        """Store a stream of a declared size while hashing it.

        Raises ValueError when more or fewer bytes come than declared, StorageError when the disk refuses them;
        nothing is left behind then.
        """
        sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        received = 0
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".incoming-", delete=False) as file:
                temporary = Path(file.name)
                for chunk in chunks:
                    received += len(chunk)
                    if received > size:
                        raise ValueError(f"more bytes than the {size} that were declared")
                    sha256.update(chunk)
                    sha1.update(chunk)
                    file.write(chunk)
                if received != size:
                    raise ValueError(f"{received} bytes came, {size} were declared")
                file.flush()
                os.fsync(file.fileno())
            target = self.path(sha256.hexdigest())
            target.parent.mkdir(exist_ok=True)
            temporary.chmod(0o644)
            temporary.replace(target)
        except OSError as error:
            raise StorageError(
                f"{self.folder}: could not be written ({error.strerror or error}); free space and try again"
            ) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        return Blob(sha256.hexdigest(), size, sha1.hexdigest())

    def remove(self, sha256: str) -> None:
        """Forget these bytes; nothing happens when they are not there."""
        self.path(sha256).unlink(missing_ok=True)
