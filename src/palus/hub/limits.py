"""How much of the hub one file, repository, account or address may take, and the buckets that meter requests."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class HubLimits:
    """The defaults suit a class on one machine. Bytes count what is stored: equal files are stored once.

    file_bytes: of one file in the body of a commit. lfs_bytes: of one file by LFS. commit_bytes: of all files in
    the body of one commit. json_bytes: of the body of any other request. body_grace_s, body_bytes_per_s: a body may
    take the first, and a second more for so many bytes. repo_bytes, account_bytes: over all commits, with their
    lists of files (`palus.hub.commits.LISTED_BYTES`). day_bytes: new, per account and 24 hours. commits_per_day:
    per repository. requests_per_s, request_burst: of one token, or one address without a token. address_per_s,
    address_burst: of one address, whatever tokens it shows. bad_tokens_per_minute, cards_per_minute: of one
    address. cards_at_once: checked for everybody. listings_per_s, listing_burst: pages of lists of repositories, of
    one address. listings_at_once: made for everybody, with pages of trees and answers about paths, one for an address.
    """

    file_bytes: int = 256 * MIB
    lfs_bytes: int = 4 * GIB
    commit_bytes: int = GIB
    json_bytes: int = MIB
    body_grace_s: float = 30.0
    body_bytes_per_s: int = 8 * KIB
    repo_bytes: int = 4 * GIB
    account_bytes: int = 8 * GIB
    day_bytes: int = 8 * GIB
    repo_files: int = 1000
    account_repos: int = 200
    commits_per_day: int = 500
    requests_per_s: float = 50.0
    request_burst: int = 3000
    address_per_s: float = 200.0
    address_burst: int = 6000
    bad_tokens_per_minute: int = 30
    cards_per_minute: int = 60
    cards_at_once: int = 1
    listings_per_s: float = 5.0
    listing_burst: int = 200
    listings_at_once: int = 2


def show_bytes(count: int) -> str:
    """A number of bytes for people: `28 MiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def commit_body_bytes(file_bytes: int) -> int:
    """The largest body of a commit of so many bytes: four thirds for base64, the rest for paths."""
    return int(file_bytes * 1.4) + 16 * MIB


def client_of(scope: Mapping[str, Any]) -> str:
    """Whom a connection counts for: its address, of IPv6 the network, because one machine has all of its addresses."""
    host = str((scope.get("client") or ("unknown",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class Buckets:
    """Token buckets by key: each holds `burst` and fills at `per_s`. Safe between threads.

    They live in memory: a restart fills them all, which harms nobody. With more than MAX_KEYS the one that was asked
    for least recently is forgotten, and is full again.
    """

    MAX_KEYS = 10_000

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._levels: dict[str, tuple[float, float]] = {}  # key -> level, when; asked for least recently first
        self._lock = threading.Lock()

    def take(self, key: str, now_s: float | None = None) -> float:
        """Take one; returns 0, or the seconds after which there is one again."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            level, since_s = self._levels.pop(key, (self._burst, now_s))
            level = min(self._burst, level + (now_s - since_s) * self._per_s)
            self._levels[key] = (level - 1 if level >= 1 else level, now_s)
            if len(self._levels) > self.MAX_KEYS:
                del self._levels[next(iter(self._levels))]
            return 0.0 if level >= 1 else (1 - level) / self._per_s
