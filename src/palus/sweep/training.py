"""A trial's run in a process of its own: a crash ends the trial and not the sweep, and whoever started it dies with it
in mind. Processes are forked from a server that has imported the training stack once."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from palus.config import RunFile
from palus.errors import DivergenceError, PalusError
from palus.trust import Trust

LOCK = ".lock"
"""In a trial's folder; held by the process that trains in it."""


@dataclass(frozen=True)
class Ending:
    """How a run ended. failure: "" when it did not; diverged: its numbers went wrong, which its settings are to blame
    for."""

    failure: str = ""
    diverged: bool = False


class Training:
    """A run that trains apart. Its end has to be waited for by `ending`."""

    def __init__(self, process: ForkServerProcess, told: Connection) -> None:
        self._process, self._told = process, told

    def wait(self, timeout_s: float) -> bool:
        """Whether it is over, after at most that time."""
        self._process.join(timeout_s)
        return not self._process.is_alive()

    def stop(self) -> None:
        """Let it end its iteration and save, and wait for that; at once where it has not begun yet."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGTERM)
        self._process.join()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()

    @property
    def ending(self) -> Ending:
        """After the end."""
        try:
            return self._told.recv()  # type: ignore[no-any-return]  # from our own child
        except EOFError:
            code = self._process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Ending(f"its process ended by {how} before it was done")


@contextmanager
def training(run: RunFile, log: Path, *, resume: bool, trust: Trust) -> Iterator[Training]:
    """Start a run; whatever happens within the block, it does not outlive it. log: takes what it prints."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["palus.train"])
    told, tell = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(run, log, resume, trust, tell), name=run.checkpoint_settings.run_id)
    process.start()
    tell.close()
    own = Training(process, told)
    try:
        yield own
    except Exception:
        own.stop()
        raise
    finally:
        own.kill()
        told.close()


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether nobody trains in a folder; nobody begins to while the block runs."""
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _train(run: RunFile, log: Path, resume: bool, trust: Trust, tell: Connection) -> None:
    """In the child: train, and say how it ended."""
    os.setsid()  # Ctrl-C in the terminal is for the sweep, which passes on what it means
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with claimed(Path(run.checkpoint_settings.results_dir)) as free:
        if not free:
            tell.send(Ending(f"{run.checkpoint_settings.results_dir}: another process trains in this folder"))
            return
        from palus.train import train

        try:
            train(run, resume=resume, force=not resume, trust=trust)
        except PalusError as error:
            print(f"error: {error}", flush=True)
            tell.send(Ending(str(error), isinstance(error, DivergenceError)))
        else:
            tell.send(Ending())


def _end_with_parent() -> None:
    """Stop as by hand, with everything saved, when whoever waits for this process is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
