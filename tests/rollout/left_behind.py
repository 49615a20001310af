"""What runs of Doom could leave behind: processes that inherited a mark, files in shared memory."""

from __future__ import annotations

from pathlib import Path

MARK = "PALUS_TEST_MARK"
"""An environment variable; all that a marked process starts inherits it."""


def processes(mark: str) -> list[str]:
    """Command lines of all processes with this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def shared_files() -> set[Path]:
    """Names that ViZDoom gives to shared memory."""
    return set(Path("/dev/shm").glob("ViZDoom*"))
