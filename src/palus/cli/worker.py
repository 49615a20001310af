"""`palus worker`: play an arena's matches on this machine."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path
from typing import Annotated

import typer

from palus.cli.output import stdout

EPILOG = """
Make the token on the arena's machine: palus account add lab --scope runner --label lab-pc > lab.token

Examples:

  palus worker --arena http://192.168.1.20:8000 --token-file lab.token

  palus worker --arena http://192.168.1.20:8000 --token-file lab.token --name second     one process per core
"""


def worker(
    arena: Annotated[str, typer.Option(help="Address of the arena.")],
    token_file: Annotated[Path, typer.Option(help="File with a token of scope runner.")],
    name: Annotated[str | None, typer.Option(help="Name of this worker. Default: the machine's.")] = None,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Stop after so many jobs.")] = None,
) -> None:
    """Take matches from an arena, play them here in locked processes, send the results with their action logs."""
    from palus.arena.remote import HttpSource
    from palus.arena.worker import work
    from palus.arena.workers import describe_here
    from palus.errors import ArenaError

    try:
        token = token_file.read_text("utf-8").strip()
    except OSError as error:
        raise ArenaError(f"{token_file}: cannot be read ({error.strerror}); give the file with the token") from error
    source = HttpSource(arena, token, name or socket.gethostname(), describe_here())
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stdout.print(f"{source.worker} plays for {arena}. Ctrl-C stops it after the present match.", soft_wrap=True)
    done = work(source, stop, max_jobs=max_jobs)
    stdout.print(f"{done} jobs done.")
