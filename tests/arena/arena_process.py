"""An arena without pages as a process: `python arena_process.py DATA POOL`, until its standard input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from palus.arena.ladder.service import ArenaService, Sources
from palus.arena.ladder.settings import ArenaSettings
from palus.store import open_store

# Never satisfied, never out of patience: the queue is full for as long as the test wants.
SETTINGS = ArenaSettings(target_half_width=0.0, max_attempts=10_000, lease_s=5.0, quiet_s=0.0)


def main() -> None:
    store = open_store(Path(sys.argv[1]))
    with ArenaService(store, SETTINGS, Sources(pool=Path(sys.argv[2])), workers=2):
        print("started", flush=True)
        sys.stdin.read()
    store.close()


if __name__ == "__main__":
    main()
