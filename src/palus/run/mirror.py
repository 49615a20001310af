"""The folder of a league's run, back from the storage that kept its last checkpoint: on a machine that never had it, or
whose own copy is another one."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from palus.files import write_bytes
from palus.league.exchange import Berth
from palus.league.records import FILES, home, news
from palus.progress import PROGRESS
from palus.run.folder import OwnFiles
from palus.store.depot import Depot


def restored(berth: Berth, root: Path) -> bool:
    """Make a folder what it was at the run's last checkpoint that the league knows of; False where there is none.

    Whatever palus wrote there since is removed. Raises StorageError.
    """
    depot = Depot(berth.storage)
    _, lines = news(depot, berth.run, 0)
    files: dict[str, Any] | None = next((k["files"] for k in reversed(lines) if k.get("kind") == "files"), None)
    if not files:
        return False
    own = OwnFiles(root)
    own.remove_all()
    for name, sha256 in files.items():
        path = PurePosixPath(name)
        if not path.is_absolute() and ".." not in path.parts:
            write_bytes(own.add(root / path), depot.take(f"{home(berth.run)}/{FILES}", str(sha256)))
    told = [json.dumps(line) + "\n" for line in lines if line.get("kind") in ("run", "summary", "end")]
    write_bytes(own.add(root / PROGRESS), "".join(told).encode())
    return True
