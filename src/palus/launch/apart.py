"""A run in a process of its own: a crash ends the run and not whoever started it; where that one dies, the run saves
and ends. Processes are forked from a server that has imported the training stack once."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from palus.config import RunFile, load_run
from palus.config.load import changes
from palus.errors import CheckpointError, ConfigError, DivergenceError, PalusError, StorageError, SupersededError
from palus.files import locked_if_it_can_be
from palus.league.exchange import Berth
from palus.league.records import beginning, home
from palus.run.folder import RunFolder
from palus.run.mirror import restored
from palus.store.depot import Depot
from palus.trust import Trust

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess  # which Windows has not

LOCK = ".lock"
"""In a trial's folder, and in that of a run of a league; held by the process that trains in it."""
PATIENCE_S = 120.0
"""How long a run of a league waits until a former process of its name has saved and ended."""


@dataclass(frozen=True)
class Ending:
    """How a run ended. failure: "" when it did not; diverged: its numbers went wrong, which its settings are to blame
    for; crashed: its process died before it could say anything, or another one had gone on in its name, or the storage
    of its league was away and had its checkpoint; unsaved: its folder took no more, as on a full disk."""

    failure: str = ""
    diverged: bool = False
    crashed: bool = False
    unsaved: bool = False


class Training:
    """A run that trains apart. Its end has to be waited for by `ending`.

    Only its own end of the pipe, which closes with it, says whether it is over: the server that it was forked from, by
    which multiprocessing would know, also ends by a signal to all processes at once, and the run trains on.
    """

    def __init__(self, process: ForkServerProcess, told: Connection) -> None:
        self._process, self._told = process, told
        self._said: Ending | None = None
        self._over = False

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it is over, after about that time at most; None waits for it."""
        while not self._over and self._told.poll(timeout_s):
            try:
                self._said = self._told.recv()  # from our own child
            except EOFError:
                self._over = True
        return self._over

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def ask(self) -> None:
        """Let it end its iteration, save and end; at once where it has not begun yet."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)
        self.wait(None)
        self._process.join()

    def _send(self, number: signal.Signals) -> None:
        if not self.wait(0.0):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def ending(self) -> Ending:
        """After the end."""
        self.wait(None)
        self._process.join()
        if self._said is not None:
            return self._said
        code = self._process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Ending(f"its process ended by {how} before it was done", crashed=True)


@contextmanager
def training(run: RunFile, log: Path, *, resume: bool, trust: Trust, berth: Berth | None = None) -> Iterator[Training]:
    """Start a run; whatever happens within the block, it does not outlive it. log: takes what it prints.

    berth: its place in a league. It then goes on wherever there is a checkpoint, and waits for a former process of its
    name that still saves.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["palus.train"])
    _serve()
    told, tell = context.Pipe(duplex=False)
    args = (run, log, resume, trust, tell, berth)
    process = context.Process(target=_train, args=args, name=run.checkpoint_settings.run_id)
    process.start()
    tell.close()
    own = Training(process, told)
    try:
        yield own
    except Exception:
        own.ask()
        own.wait(None)
        raise
    finally:
        own.kill()
        told.close()


def _serve() -> None:
    """Start the server where there is none; Ctrl-C in the terminal would end it while it imports."""
    resource_tracker.ensure_running()  # which unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def claimed(folder: Path, patience_s: float = 0.0) -> Iterator[bool]:
    """Whether nobody trains in a folder, so long after at most; nobody begins to while the block runs.

    A file system without locks has nobody kept out. Raises StorageError.
    """
    try:
        file = (folder / LOCK).open("a")
    except OSError as error:
        raise StorageError(
            f"{folder / LOCK}: could not be written ({error.strerror}); check who may write there."
        ) from error
    with file:
        until = time.monotonic() + patience_s
        while not (free := locked_if_it_can_be(file) is not False) and time.monotonic() < until:
            time.sleep(0.1)
        yield free


def found(berth: Berth, folder: Path) -> bool:
    """Whether a run of a league has a checkpoint to go on from, which then is in its folder, which is held: the
    storage's, or its own where that is newer or the storage is away.

    Raises StorageError when it is away and there is none, CheckpointError when the league knows of one that is gone.
    """
    try:
        if berth.mirrored and restored(berth, folder):
            return True
    except StorageError:
        if not any(folder.glob("*/checkpoint.pt")):
            raise
    there = any(folder.glob("*/checkpoint.pt"))
    if not there and beginning(Depot(berth.storage), berth.run):
        raise CheckpointError(
            f"{folder}: no checkpoint to go on from, but {berth.storage}/{home(berth.run)} tells of one; put it "
            f"back, or begin this run anew: --only {berth.run} --force"
        )
    return there


def _train(run: RunFile, log: Path, resume: bool, trust: Trust, tell: Connection, berth: Berth | None) -> None:
    """In the child: train, and say how it ended."""
    os.setsid()  # Ctrl-C in the terminal is for the sweep, which passes on what it means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # which the server blocks
    try:
        with log.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    except OSError as error:  # as the next process would find it
        reason = f"{log}: could not be written ({error.strerror or error}); check who may write there."
        _say(tell, Ending(reason, unsaved=True))
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _say(tell, _ended(run, resume, trust, berth))


def _say(tell: Connection, ending: Ending) -> None:
    with suppress(OSError):  # whoever started it is gone
        tell.send(ending)


def _ended(run: RunFile, resume: bool, trust: Trust, berth: Berth | None) -> Ending:
    """Train, to the end."""
    folder = Path(run.checkpoint_settings.results_dir)
    folder = folder if berth is None else folder / run.checkpoint_settings.run_id
    with ExitStack() as kept_out:
        try:
            if not kept_out.enter_context(claimed(folder, 0.0 if berth is None else PATIENCE_S)):
                return Ending(f"{folder}: another process trains in this folder")
            alone = None if berth is None else kept_out.enter_context(RunFolder(folder, []).held())
        except PalusError as error:
            return Ending(str(error), unsaved=isinstance(error, StorageError))
        from palus.train import train

        try:
            if berth is not None:
                resume = found(berth, folder)
                _tell_changes(run, folder)
        except PalusError as error:
            return Ending(str(error), crashed=isinstance(error, StorageError))
        try:
            train(run, resume=resume, force=not resume, trust=trust, berth=berth, alone=alone)
        except PalusError as error:
            with suppress(OSError):  # the disk that ended it may be that of the log
                print(f"error: {error}", file=sys.stderr, flush=True)
            kinds = DivergenceError, SupersededError, StorageError
            return Ending(str(error), *(isinstance(error, kind) for kind in kinds))
    return Ending()


def _tell_changes(run: RunFile, folder: Path) -> None:
    with suppress(ConfigError, OSError):  # of nobody, or of an older version: the start says what is wrong
        begun = load_run(folder / "configuration.yaml")
        for line in changes(begun, run.completed(begun.behaviors)):
            print(line, flush=True)


def _end_with_parent() -> None:
    """Stop as by hand, with everything saved, when whoever waits for this process is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
