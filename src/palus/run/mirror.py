"""The folder of a league's run, back from the storage that kept its last checkpoint: on a machine that never had it, or
whose own copy is another one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from palus.files import write_bytes
from palus.league.exchange import Berth
from palus.league.records import FILES, FilesLine, encoded, home, news, record_of
from palus.progress import PROGRESS, understood
from palus.run.folder import OwnFiles
from palus.store.depot import Depot


def restored(berth: Berth, root: Path) -> bool:
    """Make a folder what it was at the run's last checkpoint that the league knows of; False where there is none.

    Whatever palus wrote there since is removed. Raises StorageError.
    """
    depot = Depot(berth.storage)
    _, lines = news(depot, berth.run, 0)
    told = (record_of(berth.run, line) for line in reversed(lines))
    files = next((record.files for record in told if isinstance(record, FilesLine)), None)
    if not files:
        return False
    own = OwnFiles(root)
    own.remove_all()
    for name, sha256 in files.items():
        path = PurePosixPath(name)
        if not path.is_absolute() and ".." not in path.parts:
            write_bytes(own.add(root / path), depot.take(f"{home(berth.run)}/{FILES}", sha256))
    write_bytes(own.add(root / PROGRESS), encoded([line for line in lines if understood(line) is not None]))
    return True
