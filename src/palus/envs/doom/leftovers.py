"""Removes what starts of engines leave when they are killed: private folders, and names in shared memory.

Also a script, run by path beside every start, in a session of its own: it reads from its owner whether the start is
through, and cleans up after an owner that died meanwhile. Nobody else could: the names are only known to the dead.
"""

import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

FOLDER_PREFIX = "palus-doom-"
SHARED_MEMORY = Path("/dev/shm")
STALE_S = 1.0
"""A name is made, and its file mapped into memory, within microseconds; whoever has not by now, is gone."""


def sweep() -> None:
    """Remove this user's folders of dead owners, and their files in shared memory that no process has open."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and is_dead(owner):
            shutil.rmtree(folder, ignore_errors=True)
    stale = [file for file in SHARED_MEMORY.glob("ViZDoom*") if _is_stale(file)]
    if stale:
        mapped = _mapped_files()
        for file in stale:
            if str(file) not in mapped:
                file.unlink(missing_ok=True)


def is_dead(pid: int | str) -> bool:
    """Whether a process has ended. Until somebody waits for it, it stands in /proc: in some containers for ever."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _is_stale(file: Path) -> bool:
    try:
        state = file.stat()
    except FileNotFoundError:
        return False
    return state.st_uid == os.getuid() and time.time() - state.st_ctime > STALE_S


def _mapped_files() -> str:
    """The memory maps of all our processes, as one text."""
    maps = []
    for file in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            maps.append(file.read_text())
    return "\n".join(maps)


def main() -> None:
    """Wait for a byte, or for the end of the owner."""
    if not sys.stdin.buffer.read(1):
        time.sleep(STALE_S + 0.1)
        sweep()


if __name__ == "__main__":
    main()
