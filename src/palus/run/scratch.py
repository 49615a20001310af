"""A folder for what a process writes and nobody reads after it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from palus.files import locked

YOUNG_S = 60.0
"""A folder that nobody has locked may have been made just now."""


class Scratch:
    """A folder among the system's temporary ones, until `close`. prefix: of its name. One whose process was killed is
    removed by the next of that prefix, except on Windows, which locks no folders."""

    def __init__(self, prefix: str) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            with suppress(OSError):  # another user's, or gone
                _remove_abandoned(left)
        self._folder = tempfile.TemporaryDirectory(prefix=prefix)
        self.path, self._held = Path(self._folder.name), None
        with suppress(OSError):  # a file system without locks
            self._held = os.open(self.path, os.O_RDONLY)
            locked(self._held)

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _remove_abandoned(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY)
    try:
        if time.time() - os.fstat(held).st_mtime > YOUNG_S and locked(held):
            shutil.rmtree(folder)
    finally:
        os.close(held)
