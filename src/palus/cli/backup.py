"""`palus backup` and `palus restore`: a copy of a running arena's data folder, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.output import print_json, stderr, stdout

if TYPE_CHECKING:
    from palus.store.backup import Backup

EPILOG = """
Examples:

  # while the arena runs; again later, only what is new is copied
  palus backup arena /mnt/usb/arena

  palus backup arena backup --database postgresql+psycopg://palus@db/palus

  # into a new folder, then: palus arena --data arena
  palus restore /mnt/usb/arena arena

  palus restore backup arena --database postgresql+psycopg://palus@db/empty

A backup is a data folder too and can be looked at in place: palus arena --data backup. On the same disk the files of
the models are linked, not copied: choose another disk against a broken one.
"""

_DATABASE = "Address of the arena's PostgreSQL database, where it uses one."


def backup(
    data: Annotated[Path, typer.Argument(help="Data folder of the arena.", metavar="DATA")],
    destination: Annotated[Path, typer.Argument(help="New folder, or an earlier backup.", metavar="DEST")],
    database: Annotated[str | None, typer.Option(help=_DATABASE)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was copied as JSON.")] = False,
) -> None:
    """Copy an arena: accounts, models, matches, replays. It may run on meanwhile."""
    from palus.store.backup import back_up

    made = back_up(data, destination, database)
    _report(made, as_json, f"{destination} holds")


def restore(
    source: Annotated[Path, typer.Argument(help="What palus backup wrote.", metavar="BACKUP")],
    data: Annotated[Path, typer.Argument(help="New data folder.", metavar="DATA")],
    database: Annotated[str | None, typer.Option(help="Fill this empty PostgreSQL database.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was restored as JSON.")] = False,
) -> None:
    """Make a data folder from a backup. Nothing that exists is overwritten."""
    from palus.store.backup import restore as restore_backup

    restored = restore_backup(source, data, database)
    _report(restored, as_json, f"{data} now holds")


def _report(made: Backup, as_json: bool, what: str) -> None:
    if made.missing:
        stderr.print(
            f"[yellow]warning:[/] the bytes of {len(made.missing)} listed files are not in the blob folder, "
            f"the first is {made.missing[0]}",
        )
    if as_json:
        print_json(made)
        return
    stdout.print(
        f"{escape(what)} {made.matches:,} matches and {made.blobs:,} files ({made.blob_bytes / 1e6:.1f} MB), "
        f"{made.copied:,} of them new."
    )
