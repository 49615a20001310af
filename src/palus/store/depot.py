"""Named files under a folder or a URL (`s3://bucket/cup`, `gs://...`, `memory://...`), for whoever works on several
machines. Files are written whole or not at all; `create` never replaces one, so what a name means stays.

A folder needs nothing else. URLs are opened by fsspec, which nobody else imports, and by its package for the protocol
(`s3fs` for `s3`); keys come from where that package looks for them (environment, its own files), never from here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palus.errors import StorageAwayError, StorageError
from palus.files import UNFINISHED, whole_name, write_atomically, write_bytes

S3_TIMEOUTS_S = {"connect_timeout": 5, "read_timeout": 10}
S3_ATTEMPTS = 2
"""Of its tools, and of botocore below them; with their own numbers, a server that never answers is waited for for
minutes, and whoever calls tries again."""
LEFT_S = 3600.0
"""A file on a disk that nobody has added to for so long is one that a kill left; clocks differ."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,127}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Depot:
    """Files below `place`, a folder or a URL; names are parts joined by `/`, none of which can lead out of it.

    Everything raises ValueError for a name that is none, and StorageAwayError where the storage is out of reach.
    """

    def __init__(self, place: str) -> None:
        """Raises StorageError for a URL whose protocol is not installed."""
        self.place = place.rstrip("/") if "://" in place else str(Path(place))
        is_url = "://" in place and not place.startswith("file://")
        self._files: _Folder | _Url = _Url(self.place) if is_url else _Folder(Path(place.removeprefix("file://")))

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet; False where it is, which changes nothing."""
        with self._reporting(name):
            return self._files.create(checked(name), data)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in the place of what was there."""
        with self._reporting(name):
            self._files.replace(checked(name), data)

    def get(self, name: str) -> bytes:
        """All bytes of a file. StorageError also where it is not there."""
        with self._reporting(name):
            return self._files.get(checked(name))

    def fetch(self, name: str, path: Path) -> None:
        """Write a file's bytes to a path of this machine, in pieces. StorageError also where it is not there."""
        with self._reporting(name):
            self._files.fetch(checked(name), path)

    def send(self, name: str, path: Path) -> None:
        """`replace` with the bytes of a path of this machine, in pieces."""
        with self._reporting(name):
            self._files.send(checked(name), path)

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        with self._reporting(name):
            return self._files.has(checked(name))

    def list(self, folder: str = "") -> list[str]:
        """The names of all files below a folder, sorted; [] where it is not there. What killed writers left goes."""
        with self._reporting(folder):
            return sorted(name for name in self._files.list(folder and checked(folder)) if is_name(name))

    def remove(self, name: str) -> None:
        """Forget a file; nothing happens where it is not there."""
        with self._reporting(name):
            self._files.remove(checked(name))

    def put(self, folder: str, data: bytes) -> str:
        """Keep bytes in a folder under their SHA-256, which is returned; nothing is written where they are there."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.create(f"{folder}/{sha256}", data)
        return sha256

    def take(self, folder: str, sha256: str) -> bytes:
        """Bytes that `put` kept. StorageError also where they no longer hash to their name."""
        if not _SHA256.match(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r:.80}")
        data = self.get(f"{folder}/{sha256}")
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StorageError(f"{self.place}/{folder}/{sha256}: is damaged; restore it from a backup")
        return data

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, StorageError):
            raise
        except FileNotFoundError as error:
            raise StorageError(f"{self.place}/{name}: is not there; was it removed by hand?") from error
        except Exception as error:  # every protocol has its own
            raise StorageAwayError(
                f"{self.place}/{name}: the storage did not do it ({type(error).__name__}: {error}); check that it can "
                "be reached, its keys and its free space"
            ) from error


def is_name(name: str) -> bool:
    """Whether a file can be called so."""
    return all(_PART.match(part) for part in name.split("/"))


def checked(name: str) -> str:
    """The same name. Raises ValueError."""
    if not is_name(name):
        raise ValueError(f"{name!r:.200}: not a name of files; expected letters, digits, '_', '.', '-' and '/'")
    return name


class _Folder:
    """On a disk of this machine, or on one that several machines share."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, data: bytes) -> bool:
        target = self.root / name
        if target.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name}."
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=prefix, suffix=UNFINISHED, delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.link(file.name, target)  # unlike a rename it refuses what is there, also between processes
            except FileExistsError:
                return False
            finally:
                os.unlink(file.name)
        return True

    def replace(self, name: str, data: bytes) -> None:
        write_bytes(self.root / name, data)

    def get(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def fetch(self, name: str, path: Path) -> None:
        shutil.copyfile(self.root / name, path)

    def send(self, name: str, path: Path) -> None:
        with path.open("rb") as source:
            write_atomically(self.root / name, lambda file: shutil.copyfileobj(source, file))

    def has(self, name: str) -> bool:
        return (self.root / name).is_file()

    def list(self, folder: str) -> Iterator[str]:
        for path in (self.root / folder).rglob("*"):
            if whole_name(path.name) is not None:
                _sweep(path)
            elif path.is_file():
                yield path.relative_to(self.root).as_posix()

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what a writer has left, unless it may be alive."""
    with suppress(OSError):  # it was alive, or another reader was faster, or may do what this one may not
        if time.time() - path.stat().st_mtime > LEFT_S:
            path.unlink()


class _Url:
    """Through fsspec. Object stores write whole objects, and S3 itself refuses to create one that is there."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise StorageError(f"{url}: takes fsspec, which is not installed; pip install 'palus[cluster]'") from error
        is_s3 = url.startswith(("s3://", "s3a://"))
        config = {**S3_TIMEOUTS_S, "retries": {"total_max_attempts": S3_ATTEMPTS}}
        options = {"use_listings_cache": False, **({"config_kwargs": config} if is_s3 else {})}  # others write, too
        try:
            self._files, self.root = fsspec.core.url_to_fs(url, **options)
            if is_s3:
                self._files.retries = S3_ATTEMPTS
        except (ImportError, ValueError) as error:
            raise StorageError(f"{url}: cannot be opened ({error})") from error

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._files.pipe_file(f"{self.root}/{name}", data, mode="create")
        except Exception:  # each store has its own word for "it is there"
            if not self._files.exists(f"{self.root}/{name}"):
                raise
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self.root}/{name}", data)

    def get(self, name: str) -> bytes:
        return bytes(self._files.cat_file(f"{self.root}/{name}"))

    def fetch(self, name: str, path: Path) -> None:
        self._files.get_file(f"{self.root}/{name}", str(path))

    def send(self, name: str, path: Path) -> None:
        self._files.put_file(str(path), f"{self.root}/{name}")

    def has(self, name: str) -> bool:
        return bool(self._files.isfile(f"{self.root}/{name}"))

    def list(self, folder: str) -> Iterator[str]:
        for path in self._files.find(f"{self.root}/{folder}".rstrip("/")):
            yield str(path)[len(self.root) :].strip("/")

    def remove(self, name: str) -> None:
        if self._files.exists(f"{self.root}/{name}"):
            self._files.rm_file(f"{self.root}/{name}")
