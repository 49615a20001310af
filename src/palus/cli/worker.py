"""`palus worker`: play an arena's matches on this machine."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from palus.cli.output import stdout, stop_signal
from palus.errors import ArenaError

EPILOG = """
Make the token on the arena's machine: palus account add lab --scope runner --label lab-pc > lab.token

With --scope trusted instead, it also checks models and plays duels in Doom, which nobody can play again to see
whether what it reports is true: for machines whose users you trust as yourself.

Examples:

  palus worker --arena http://192.168.1.20:8000 --token-file lab.token

  palus worker --arena http://192.168.1.20:8000 --token-file lab.token --name second     one process per core
"""


def worker(
    arena: Annotated[str, typer.Option(help="Address of the arena.")],
    token_file: Annotated[Path, typer.Option(help="File with a token of scope runner or trusted.")],
    name: Annotated[str | None, typer.Option(help="Name of this worker. Default: the machine's.")] = None,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Stop after so many jobs.")] = None,
    alone: Annotated[bool, typer.Option("--alone", hidden=True)] = False,
) -> None:
    """Take matches from an arena, play them here in locked processes, send the results with their action logs."""
    if max_jobs is None and not alone:
        raise typer.Exit(_keep_up([sys.executable, "-m", "palus", *sys.argv[1:], "--alone"]))
    from palus.arena.jobs.remote import HttpSource
    from palus.arena.jobs.worker import describe_here, wait_for_end, work

    try:
        token = token_file.read_text("utf-8").strip()
    except OSError as error:
        raise ArenaError(f"{token_file}: cannot be read ({error.strerror}); give the file with the token") from error
    source = HttpSource(arena, token, name or socket.gethostname(), describe_here())
    stop = stop_signal()
    if alone:
        threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()
    stdout.print(f"{source.worker} plays for {arena}. Ctrl-C stops it after the present match.")
    if not source.trusted:
        stdout.print(
            "It gets matches that can be played again; validations and duels in Doom need a token of scope trusted."
        )
    done = work(source, stop, max_jobs=max_jobs)
    stdout.print(f"{done} jobs done.")


def _keep_up(command: list[str]) -> int:
    """Run a command, and again when a signal ended it that was not meant for it. Returns its exit status.

    A game's engine can take the process down that plays it (ViZDoom 1.3.2 does, when an engine exits in its start).
    """
    from palus.arena.jobs.worker import RESTART_S, pause_after

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    process = None
    pause_s = RESTART_S
    try:
        while True:
            begun = time.monotonic()
            # The end of its input, not a signal, tells it to stop: a signal would be an error while it still starts.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            status = process.wait()
            if status >= 0:
                return status
            pause_s = pause_after(time.monotonic() - begun, pause_s)
            stdout.print(
                f"The worker was ended by {signal.Signals(-status).name}; its match goes to another one when its lease "
                f"has run out. Starting again in {pause_s:g} s."
            )
            time.sleep(pause_s)
    except KeyboardInterrupt:
        if process is None:
            return 0
        process.communicate()
        return max(process.returncode, 0)
