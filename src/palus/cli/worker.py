"""`palus worker`: play an arena's matches on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from palus.cli.output import stdout, stop_signal
from palus.errors import ArenaError
from palus.processes import ending_signals, require_fork

LOOK_S = 0.1
"""Between two looks at the workers' processes."""

EPILOG = """
Make the token on the arena's machine:

  palus account add lab --scope runner --label lab-pc > lab.token

With --scope trusted instead, it also checks models and plays duels in Doom, which nobody can play again to see
whether what it reports is true: for machines whose users you trust as yourself.

Examples:

  palus worker --arena http://lab:8000 --token-file lab.token

  # one process per core
  palus worker --arena http://lab:8000 --token-file lab.token --processes auto
"""


def worker(
    arena: Annotated[str, typer.Option(help="Address of the arena.")],
    token_file: Annotated[Path, typer.Option(help="File with a token of scope runner or trusted.")],
    name: Annotated[str | None, typer.Option(help="Name of this worker. Default: the machine's.")] = None,
    processes: Annotated[
        str, typer.Option(help="How many matches are played at the same time; auto is one per core.", metavar="N|auto")
    ] = "1",
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Stop after so many jobs.")] = None,
    alone: Annotated[bool, typer.Option("--alone", hidden=True)] = False,
) -> None:
    """Take matches from an arena, play them here in locked processes, send the results with their action logs."""
    require_fork("playing for an arena")
    count = _count(processes)
    if max_jobs is not None and count > 1:
        raise ArenaError("--max-jobs counts the jobs of one process; leave --processes out, or start it several times")
    if max_jobs is None and not alone:
        command = [sys.executable, "-m", "palus", *sys.argv[1:], "--alone"]
        own = name or socket.gethostname()
        numbered = [[*command, "--name", f"{own}-{number}"] for number in range(1, count + 1)]
        raise typer.Exit(_keep_up(numbered if count > 1 else [command]))
    from palus.arena.jobs.remote import HttpSource
    from palus.arena.jobs.worker import describe_here, wait_for_end, work

    try:
        token = token_file.read_text("utf-8").strip()
    except OSError as error:
        raise ArenaError(f"{token_file}: cannot be read ({error.strerror}); give the file with the token") from error
    except UnicodeDecodeError as error:
        raise ArenaError(f"{token_file}: not UTF-8, in which palus account add writes; save it as that") from error
    source = HttpSource(arena, token, name or socket.gethostname(), describe_here())
    stop = stop_signal()
    if alone:
        threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()
    stdout.print(f"{escape(source.worker)} plays for {escape(arena)}. Ctrl-C stops it after the present match.")
    if not source.trusted:
        stdout.print(
            "It gets matches that can be played again; validations and duels in Doom need a token of scope trusted."
        )
    with closing(source):
        done = work(source, stop, max_jobs=max_jobs)
    stdout.print(f"{done} jobs done.")


def _count(processes: str) -> int:
    """Raises ArenaError for what is neither a number from 1 on nor auto."""
    if processes == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not processes.isdecimal() or int(processes) < 1:
        raise ArenaError(f"--processes {processes}: neither a number from 1 on nor auto, which is one per core")
    return int(processes)


@dataclass
class _Process:
    """A worker's process, started again when a signal ended it that was not meant for it.

    A game's engine can take the process down that plays it (ViZDoom 1.3.2 does, when an engine exits in its start).
    """

    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    begun_s: float = 0.0
    pause_s: float = 0.0

    def look(self) -> int | None:
        """Start it when it is due. Returns its exit status when it ended by itself."""
        from palus.arena.jobs.worker import RESTART_S, pause_after

        now = time.monotonic()
        if self.process is None:
            if now >= self.begun_s + self.pause_s:
                self.begun_s = now
                # The end of its input tells it to stop: a signal would be an error while it still starts.
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, start_new_session=True)
            return None
        status = self.process.poll()
        if status is None or status >= 0:
            return status
        self.pause_s, self.begun_s = pause_after(now - self.begun_s, self.pause_s or RESTART_S), now
        stdout.print(
            f"A worker was ended by {signal.Signals(-status).name}; its jobs go to others when its leases have "
            f"run out. Starting again in {self.pause_s:g} s."
        )
        self.process = None
        return None


def _keep_up(commands: Sequence[list[str]]) -> int:
    """Keep workers running until told to stop, or until one ends with a fault of its own. Returns the exit status."""
    for number in ending_signals():
        signal.signal(number, signal.default_int_handler)
    workers = [_Process(command) for command in commands]
    status = None
    try:
        while status is None:
            time.sleep(LOOK_S)
            status = next((ended for worker in workers if (ended := worker.look()) is not None), None)
    except KeyboardInterrupt:
        pass
    running = [worker.process for worker in workers if worker.process is not None]
    for process in running:
        if process.stdin is not None:
            process.stdin.close()
    return max([0, *(process.wait() for process in running)])  # each finishes its match
