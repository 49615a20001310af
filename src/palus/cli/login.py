"""`palus login`: keep a hub's token, where `huggingface_hub` keeps tokens too."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Annotated

import typer
from rich.markup import escape

from palus.cli.output import stdout
from palus.errors import HubError

EPILOG = """
The token is asked for without showing it, or read from standard input. It is never an argument, since other people on
the machine can read those.

Examples:

  # huggingface.co; make a token at https://huggingface.co/settings/tokens
  palus login

  # an arena; its teacher or administrator hands out tokens
  palus login http://192.168.1.20:8000

  palus login http://127.0.0.1:8000 < token.txt
"""


def login(
    hub: Annotated[str | None, typer.Argument(help="huggingface.co, or an arena as http://host:port.")] = None,
) -> None:
    """Store your token of a hub, after asking the hub whether it is good."""
    from palus.hub.target import HubTarget, parse_target

    target = parse_target(hub)
    if not isinstance(target, HubTarget):
        raise HubError(f"{hub}: a folder needs no token; push to it right away")
    client = hub_client()
    if sys.stdin is None:  # closed by whoever started us
        token = ""
    elif sys.stdin.isatty():
        token = str(typer.prompt(f"Token of {target.url}", hide_input=True))
    else:
        token = sys.stdin.readline()
    if not token.strip():
        raise HubError(f"{target.url}: no token was given; paste it at the prompt, or send it to standard input")
    name = client.log_in(target.url, token.strip())
    stdout.print(f"Signed in to {target.url} as {escape(name)}; the token is stored.")


def hub_client() -> ModuleType:
    """`palus.hub.client`, which needs a package that the base install lacks. Raises HubError that says which."""
    try:
        from palus.hub import client
    except ModuleNotFoundError as error:
        raise HubError(
            f"speaking to a hub needs {error.name}, which is not installed; pip install 'palus[hub]', "
            "or push to a folder with --hub folder:PATH"
        ) from error
    return client
