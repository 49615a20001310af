"""Files written so that a crash, a kill or a full disk leaves the old or the new content; arrays read from anywhere.

Leaf module.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import IO, Any, BinaryIO

import numpy as np

from palus.errors import StorageError
from palus.types import AnyArray

MAX_ARRAY_BYTES = 2**30
"""Of all arrays of a file together, unpacked: a policy has some MB, and a small archive can claim any number."""

MAX_NAME = 200
"""Bytes of a name: file systems allow 255, and a suffix comes behind it."""
UNFINISHED = ".part"
"""At the end of the names of files that are being written."""


def digest_of(files: Mapping[str, str]) -> str:
    """Name of a set of files: SHA-256 of the only one, or that of the sorted pairs. files: their own by behavior."""
    if len(files) == 1:
        return next(iter(files.values()))
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def is_file_name(name: str) -> bool:
    """Whether a name from outside may become that of a file or a folder: one that is not hidden and leads nowhere."""
    plain = 0 < len(name.encode(errors="replace")) <= MAX_NAME and name.isprintable()
    return plain and PurePath(name).name == name and not name.startswith(".") and not set(name) & {"\\", ":"}


def make_folder(path: Path, option: str) -> None:
    """Have a folder. option: of the command line, which says where it is. Raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: the folder cannot be made ({error.strerror}); choose another {option}") from error


def write_atomically(path: Path, write: Callable[[BinaryIO], object], *, forced: bool = True) -> None:
    """Let `write` fill a temporary file beside `path`, force it to disk, then put it in place in one step. Without
    `forced` it takes `force` for the file to outlive a machine that loses its power.

    Raises StorageError with the reason and the path; whatever was at `path` before is then still there.
    """
    temporary = raw = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(UNFINISHED, f".{path.name}.", path.parent)
        temporary = Path(name)
        raw = _Refusable(number, "wb")
        with io.BufferedWriter(raw) as file:
            write(file)
            file.flush()
            if forced:
                os.fsync(number)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        refusal = None if raw is None else raw.refusal
        reason = error if isinstance(error, OSError) else refusal
        if reason is None or not isinstance(error, Exception):
            raise
        advice = "give the name of a file" if reason.errno == errno.EISDIR else "free space or choose another folder"
        raise StorageError(
            f"{path}: could not be written ({reason.strerror or reason}); {advice}. What was there before is unchanged."
        ) from error


class _Refusable(io.FileIO):
    """Remembers why a write was refused: torch and zip archives then raise errors of their own over it."""

    refusal: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.refusal = error
            raise


class GrowingFile:
    """One that only grows, by whole pieces. length: bytes of it that count; whatever lies behind them goes with the
    next piece."""

    def __init__(self, path: Path) -> None:
        self.path, self.length = path, 0

    def grow(self, data: bytes) -> None:
        """Add a piece. Raises StorageError; half a piece that a full disk let through is overwritten by the next."""
        try:
            try:
                file = self.path.open("ab")
            except FileNotFoundError:
                self.path.parent.mkdir(parents=True)
                file = self.path.open("ab")
            with file:
                end = file.seek(0, 2)
                if end > self.length:
                    file.truncate(self.length)
                file.write(data)
            self.length = min(self.length, end) + len(data)
        except OSError as error:
            raise StorageError(
                f"{self.path}: could not be written ({error.strerror or error}); free space there."
            ) from error


def whole_name(name: str) -> str | None:
    """Of a temporary file that `write_atomically` fills, the name of the file that it was to become."""
    found = re.fullmatch(rf"\.(.+)\.[^.]+{re.escape(UNFINISHED)}", name)
    return found[1] if found else None


def force(path: Path) -> None:
    """Have a file on disk that was written without; one that is gone since is no fault. Raises StorageError."""
    try:
        with path.open("r+b") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path}: could not be written ({error.strerror or error}); free space there.") from error


def remove(path: Path) -> None:
    """Have no file there. Raises StorageError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if not os.path.lexists(path):  # a disk that nobody may write to says so of every name
            return
        raise StorageError(
            f"{path}: could not be removed ({error.strerror or error}); have its folder writable."
        ) from error


def write_bytes(path: Path, data: bytes) -> None:
    """`write_atomically` for bytes at hand."""
    write_atomically(path, lambda file: file.write(data))


def write_text(path: Path, text: str) -> None:
    """The same for text, as UTF-8."""
    write_bytes(path, text.encode())


def read_arrays(data: bytes) -> dict[str, AnyArray]:
    """The arrays of an `.npz`, whoever made it; nothing in it is executed.

    Raises ValueError, whatever is wrong: damage, pickled objects, text that is none, more than MAX_ARRAY_BYTES.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_ARRAY_BYTES:
            raise ValueError(f"{size:,} bytes of arrays, at most {MAX_ARRAY_BYTES:,} are read")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        for array in arrays.values():
            if array.dtype.kind == "U":  # numpy makes strings of numbers that are no characters, and they break later
                array.astype(array.dtype.newbyteorder("<")).tobytes().decode("utf-32-le")
    except Exception as error:  # a damaged zip raises almost anything
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return arrays


def locked(file: IO[str] | int) -> bool:
    """Take the lock of an open file or folder, which ends with it; False where another process has it.

    Windows has no such locks: there it is always had. Raises OSError where the file system has none.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def locked_if_it_can_be(file: IO[str] | int) -> bool | None:
    """The same, but None where the file system has no locks, so that nobody is kept out."""
    try:
        return locked(file)
    except OSError:
        return None
