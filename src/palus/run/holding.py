"""The folder that a run works in: its own, held from before the first look at it until the end, or one that goes with
the run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from palus.config import RunFile
from palus.errors import CheckpointError, StorageError
from palus.learn.ranks import Ranks
from palus.progress import PROGRESS
from palus.run.folder import RunFolder
from palus.run.scratch import Scratch


@dataclass(frozen=True)
class Held:
    """root: the folder. alone: whether others are kept out of it, which some file systems cannot do."""

    root: Path
    alone: bool


@contextmanager
def holding(run: RunFile, ranks: Ranks, *, resume: bool, force: bool, alone: bool | None = None) -> Iterator[Held]:
    """Keep others out of the run's folder meanwhile. What only plays does so in a copy, and all ranks but the first
    write into folders of their own.

    alone: whether others are kept out already, of a caller that holds the folder; None where nobody does. Raises
    CheckpointError where another run has it, and where one that is to go on is not there; StorageError.
    """
    settings, names = run.checkpoint_settings, list(run.behaviors)
    folder = RunFolder(Path(settings.results_dir) / settings.run_id, names)
    if resume and ranks.rank == 0 and not folder.root.is_dir():  # nor is it made
        folder.refuse_nothing()
    if not (ranks.rank or settings.inference):
        with folder.held() if alone is None else nullcontext(alone) as is_alone:
            if resume:
                folder.refuse_nothing()
                folder.refuse_unwritable()
            yield Held(folder.root, is_alone or os.name == "nt")
        return
    with closing(Scratch("palus-rank-" if ranks.rank else "palus-play-")) as scratch:  # which nobody else has
        copy = scratch.path / settings.run_id
        if ranks.rank == 0 and resume:
            _copy_played(folder, copy)
        elif ranks.rank == 0:
            folder.refuse_existing(force=force)
        try:
            yield Held(copy, True)
        except CheckpointError as error:  # the copy goes, and nobody knows its name
            raise CheckpointError(str(error).replace(str(copy), str(folder.root))) from error


def _copy_played(folder: RunFolder, to: Path) -> None:
    """Copy what a run plays by; the copy can be written. Raises CheckpointError where there is nothing to go on from,
    or it trains just now, StorageError."""
    curves = shutil.ignore_patterns("*.tfevents.*", Path(PROGRESS).name)
    with folder.held():
        folder.refuse_nothing()
        try:
            shutil.copytree(
                folder.root, to, ignore=curves, copy_function=shutil.copyfile, ignore_dangling_symlinks=True
            )
            for own in (to, *to.rglob("*/")):
                own.chmod(0o700)
        except (OSError, shutil.Error) as error:
            raise StorageError(f"{folder.root}: could not be copied to {to} ({error}); free space there") from error
