"""`palus site export`: the arena's pages as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from palus.cli.options import DEFAULT_DATA, DatabaseOption, DataOption
from palus.cli.output import opened, stdout

EPILOG = """
Examples:

  # then: python -m http.server --directory public
  palus site export public

  palus site export public --data /srv/arena --matches 500
"""

app = typer.Typer(help="The arena's pages as files.", no_args_is_help=True, epilog=EPILOG)


@app.callback()
def _site() -> None:  # keeps `export` a word of its own: typer runs an only command without its name
    pass


@app.command(epilog=EPILOG)
def export(
    folder: Annotated[Path, typer.Argument(help="Where to write; an earlier export is replaced.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
    matches: Annotated[
        int, typer.Option(min=0, help="Matches to take along at most, the newest of those that pages link to.")
    ] = 5000,
) -> None:
    """Write leaderboard, model and match pages, replays and downloads for any static server.

    Nothing in it is live. offline.html opens without a server.
    """
    from palus.web.static_site import export_site

    with opened(data, database) as store:
        summary = export_site(store, folder, max_matches=matches)
    left_out = f" {summary.left_out} more matches are linked and left out; see --matches." if summary.left_out else ""
    stdout.print(
        f"Wrote {escape(str(folder))}: {summary.models} models, {summary.matches} matches, {summary.files} files, "
        f"{summary.bytes / 1e6:.1f} MB.{left_out}"
    )
