"""Writing files so that a crash, a kill or a full disk leaves the old content or the new, never half. Leaf module."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from palus.errors import StorageError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, force it to disk, then put it in place in one step.

    Raises StorageError with the reason and the path; whatever was at `path` before is then still there.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            write(file)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: could not be written ({error.strerror or error}); "
            "free space or choose another folder. What was there before is unchanged."
        ) from error


def write_text(path: Path, text: str) -> None:
    """`write_atomically` for UTF-8 text."""
    write_atomically(path, lambda file: file.write(text.encode()))
