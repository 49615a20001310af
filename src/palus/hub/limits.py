"""How much of the hub one file, repository, account or address may take, and the buckets that meter requests."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class HubLimits:
    """The defaults suit a class on one machine. Bytes count what is stored: equal files are stored once.

    file_bytes: of one file in the body of a commit. lfs_bytes: of one file by LFS. commit_bytes: of all files in the
    body of one commit. repo_bytes, account_bytes: over all commits. day_bytes: new, per account and 24 hours.
    commits_per_day: per repository. requests_per_s, request_burst: of one token, or one address without a token.
    bad_tokens_per_minute: of one address.
    """

    file_bytes: int = 256 * MIB
    lfs_bytes: int = 4 * GIB
    commit_bytes: int = GIB
    repo_bytes: int = 4 * GIB
    account_bytes: int = 8 * GIB
    day_bytes: int = 8 * GIB
    repo_files: int = 1000
    account_repos: int = 200
    commits_per_day: int = 500
    requests_per_s: float = 50.0
    request_burst: int = 3000
    bad_tokens_per_minute: int = 30


def show_bytes(count: int) -> str:
    """A number of bytes for people: `28 MiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


class Buckets:
    """Token buckets by key: each holds `burst` and fills at `per_s`. Safe between threads.

    They live in memory: a restart fills them all, which harms nobody.
    """

    MAX_KEYS = 10_000

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._levels: dict[str, tuple[float, float]] = {}  # key -> level, when
        self._lock = threading.Lock()

    def take(self, key: str, now_s: float | None = None) -> float:
        """Take one; returns 0, or the seconds after which there is one again."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            level = self._level(key, now_s)
            if level < 1:
                return (1 - level) / self._per_s
            if len(self._levels) >= self.MAX_KEYS:
                self._levels = {k: v for k, v in self._levels.items() if self._level(k, now_s) < self._burst - 1}
            self._levels[key] = (level - 1, now_s)
            return 0.0

    def _level(self, key: str, now_s: float) -> float:
        level, since_s = self._levels.get(key, (self._burst, now_s))
        return min(self._burst, level + (now_s - since_s) * self._per_s)
