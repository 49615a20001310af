"""The process of a worker beside the store: `python -m palus.arena.local_worker`, started by `palus.arena.service`.

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

from palus.arena.settings import ArenaSettings
from palus.arena.worker import work
from palus.arena.workers import StoreSource, describe_here
from palus.store import open_store

NICENESS = 5
"""Playing gives way to the pages; the models' own processes give way to this one."""
RESTART_S, RESTART_AT_MOST_S = 0.5, 30.0
"""A worker that dies is started again after so long; twice as long each time when it dies while it starts."""
STARTING_S = 2.0


def pause_after(lived_s: float, pause_s: float) -> float:
    """Seconds until a worker that died is started again. lived_s: how long it lived; pause_s: the pause before that."""
    return RESTART_S if lived_s > STARTING_S else min(2.0 * pause_s, RESTART_AT_MOST_S)


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


def wait_for_end(stop: threading.Event) -> None:
    """Set `stop` when standard input ends: the process that holds its other side wants it so, or is gone."""
    while sys.stdin.buffer.read(1):
        pass
    stop.set()


if __name__ == "__main__":
    main()
