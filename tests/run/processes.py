"""What tests ask of processes: their children, by Linux's /proc, and patience."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def children(pid: int) -> list[int]:
    """Processes that a process started; none when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():  # a process belongs to the thread that started it
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def eventually(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Wait until a condition holds, and return what it gave. AssertionError when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {timeout_s} s"
        time.sleep(0.01)
    return found
