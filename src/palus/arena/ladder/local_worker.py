"""The process of a worker beside the store: `python -m palus.arena.ladder.local_worker`, started by `ladder.service`.

It is told everything in one line of JSON on standard input, so that no password of a database shows in a list of
processes. When its standard input ends, its parent is gone or wants it to stop: it finishes its job and leaves.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path

from palus.arena.jobs.worker import describe_here, wait_for_end, work
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource
from palus.store import open_store

NICENESS = 5
"""Playing gives way to the pages; the models' own processes give way to this one."""


def instructions(folder: Path, url: str | None, name: str, settings: ArenaSettings) -> bytes:
    """The line that the process reads."""
    told = {"folder": str(folder), "url": url, "name": name, "settings": settings.to_json()}
    return json.dumps(told).encode() + b"\n"


def main() -> None:
    """Work until standard input ends."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    told = json.loads(sys.stdin.buffer.readline())
    settings = ArenaSettings.from_json(told["settings"])
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    stop = threading.Event()
    threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()
    store = open_store(Path(told["folder"]), told["url"])
    try:
        work(StoreSource(store, told["name"], settings, describe_here()), stop)
    finally:
        store.close()


if __name__ == "__main__":
    main()
