"""The folder of a league's run, back from the storage that kept its last checkpoint: on a machine that never had it, or
whose own copy is an older one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from palus.errors import CheckpointError
from palus.files import write_bytes
from palus.league.exchange import Berth, lines_told
from palus.league.records import FILES, FilesLine, decoded, encoded, home, news, part, publications, record_of
from palus.progress import PROGRESS, understood
from palus.run.folder import OwnFiles, read_checkpoint
from palus.store.depot import Depot


def restored(berth: Berth, root: Path) -> bool:
    """Have in a folder, which is held, the run's last checkpoint; False where the league knows of none.

    The folder stays as it is where its own checkpoint goes on from all that the league knows, as after a time without
    the storage. Else whatever palus wrote there is replaced by what the storage keeps. Raises StorageError,
    CheckpointError where it has told of more than an empty book.
    """
    depot = Depot(berth.storage)
    last, lines = news(depot, berth.run, 0)
    if _goes_on(berth, root, depot, last, lines):
        return True
    told = (record_of(berth.run, line) for line in reversed(lines))
    files = next((record.files for record in told if isinstance(record, FilesLine)), None)
    if not files:
        return False
    own = OwnFiles(root)
    own.remove_all()
    write_bytes(own.add(root / PROGRESS), encoded([line for line in lines if understood(line) is not None]))
    # The checkpoint last: nobody goes on from half a folder.
    for name, sha256 in sorted(files.items(), key=lambda file: file[0].endswith("/checkpoint.pt")):
        path = PurePosixPath(name)
        if not path.is_absolute() and ".." not in path.parts:
            write_bytes(own.add(root / path), depot.take(f"{home(berth.run)}/{FILES}", sha256))
    return True


def _goes_on(berth: Berth, root: Path, depot: Depot, last: int, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the checkpoint in a folder has told all parts of the book, but maybe the last one, or the one after it,
    which it tells next. lines: of all parts up to `last`. Raises CheckpointError where the book is empty, and it has
    told some."""
    checkpoint = next(iter(sorted(root.glob("*/checkpoint.pt"))), None)
    try:
        state = None if checkpoint is None else read_checkpoint(checkpoint).get("exchange")
        if state is None:
            return False
        number, outbox = int(state["number"]), decoded(state["outbox"].encode())
        published = {int(snapshot): sha256 for snapshot, sha256 in state["published"]}
    except (CheckpointError, KeyError, TypeError, ValueError):
        return False
    if any(published.get(one.number, one.sha256) != one.sha256 for one in publications(berth.run, lines)):
        return False  # the run was begun anew elsewhere
    if number > 1 and not last:
        raise CheckpointError(
            f"{root}: goes on from part {number - 1} of {berth.storage}/{home(berth.run)}, which has none: the league "
            "was begun anew on another machine, or has moved without its book. To begin this run anew, too, move the "
            "folder away; to go on with it, copy its book there."
        )
    if number == last:
        return lines_told(depot.get(part(berth.run, last)), outbox) > 0
    return number == last + 1
