"""`palus account`: who may push to the hub of an arena, and with which tokens."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from palus.cli.options import DEFAULT_DATA, DatabaseOption, DataOption
from palus.cli.output import opened, print_json, stderr, stdout, typed
from palus.errors import HubError

if TYPE_CHECKING:
    from sqlalchemy import Connection

EPILOG = """
A token is shown once, when it is made; the arena keeps only its hash. Whoever has the arena's folder may run these
commands, also while the arena runs.

Examples:

  # an account and its token, to log in with
  palus account add ada

  # one more token: for a worker on another machine
  palus account add ada --scope runner --label lab-pc

  # ... that also does what nobody could check later
  palus account add ada --scope trusted --label my-pc

  # one name per line in, a sheet to cut and hand out
  palus account tokens class.txt > sheet.txt

  # worthless from now on
  palus account revoke ada --label lab-pc
"""

app = typer.Typer(help="Accounts of an arena's hub and their tokens.", no_args_is_help=True, epilog=EPILOG)

Scopes = Annotated[
    list[str] | None, typer.Option("--scope", help="read, write, runner, trusted or admin; may be repeated.")
]
Label = Annotated[str, typer.Option(help="What the token is for.")]
Name = Annotated[str, typer.Argument(help="Name of the account: first part of its repositories' names.")]

DEFAULT_SCOPES = ("read", "write")


@app.command(epilog=EPILOG)
def add(
    name: Name,
    scope: Scopes = None,
    label: Label = "default",
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Make an account, or one more token for one that exists, and print the token."""
    from palus.hub.accounts import issue_token

    with _accounts(data, database) as connection:
        token = issue_token(connection, name, label, scope or DEFAULT_SCOPES)
    print(token)


@app.command(epilog=EPILOG)
def tokens(
    names: Annotated[Path, typer.Argument(help="Text file with one name per line.")],
    address: Annotated[str, typer.Option(help="Where the class reaches the arena.")] = "http://ADDRESS:PORT",
    label: Label = "class",
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Make accounts for a class and print a sheet with everybody's token. All of them, or none when a name is bad."""
    from palus.hub.accounts import issue_token

    wanted = _read_names(names)
    with _accounts(data, database) as connection:
        sheet = {name: issue_token(connection, name, label, DEFAULT_SCOPES) for name in wanted}
    for name, token in sheet.items():
        print(f"{name}\n  export HF_ENDPOINT={address}\n  export HF_TOKEN={token}\n{'-' * 64}")


@app.command("list", epilog=EPILOG)
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Show every account's tokens by label; the tokens themselves are not kept."""
    from palus.hub.accounts import list_tokens

    with opened(data, database) as store, store.read() as connection:
        found = list_tokens(connection)
    if as_json:
        shown = [(t.account, t.label, sorted(t.scopes), t.revoked_ms is not None) for t in found]
        print_json([dict(zip(("account", "label", "scopes", "revoked"), row, strict=True)) for row in shown])
        return
    table = Table("account", "label", "scopes", "made", "state")
    for token in found:
        made = datetime.datetime.fromtimestamp(token.created_ms / 1000).strftime("%Y-%m-%d %H:%M")
        state = "revoked" if token.revoked_ms else "valid"
        table.add_row(token.account, token.label, ", ".join(sorted(token.scopes)), made, state)
    stdout.table(table)


@app.command(epilog=EPILOG)
def revoke(
    name: Name,
    label: Annotated[str | None, typer.Option(help="Only tokens with this label; all of them without it.")] = None,
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Make an account's tokens worthless at once; what it pushed stays."""
    from palus.hub.accounts import revoke_tokens

    with opened(data, database) as store, store.write() as connection:
        count = revoke_tokens(connection, name, label)
    if count == 0:
        stdout.print(f"Nothing to do: these tokens of {name} are revoked already.")
        return
    stdout.print(f"{count} token{'' if count == 1 else 's'} of {name} revoked.")


@contextmanager
def _accounts(data: Path, database: str | None) -> Iterator[Connection]:
    """A transaction on an arena's accounts. It may have them before its first start, which is told: a token of another
    folder than the arena's opens nothing."""
    from palus.store.engine import DATABASE_FILE

    new = database is None and not (data / DATABASE_FILE).is_file()
    with opened(data, database, create=True) as store, store.write() as connection:
        yield connection
    if new:
        stderr.print(f"{escape(str(data))}: no arena was there, so this begins one: palus arena --data {typed(data)}")


def _read_names(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HubError(f"{file}: cannot be read as a text file of names ({error})") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise HubError(f"{file} has no names; write one per line")
    return list(dict.fromkeys(names))
