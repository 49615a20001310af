"""Starts Doom engines: one child process each; on Linux it dies with this one and leaves no file behind.

What ViZDoom leaves to its users is taken care of here: starts that fail now and then are repeated, settings files go to
a private folder, and names in shared memory are removed as soon as both sides have opened them (see `launcher.py` and
`leftovers.py`). One thing cannot be: an engine that exits in the middle of its start takes its owner with it, because
ViZDoom 1.3.2 then crashes.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palus.envs.doom import launcher, leftovers
from palus.envs.doom.leftovers import FOLDER_PREFIX, SHARED_MEMORY, sweep
from palus.errors import EnvError, ScenarioError

try:
    import vizdoom
except ImportError as error:
    raise ScenarioError("Doom needs the package vizdoom, which is not installed; pip install 'palus[doom]'") from error

ATTEMPTS = 3
PAUSE_S = 0.5
FORK_LIMIT_S = 10.0
GRACE_S = 5.0
"""How long a call may take to notice that its engine is dead, which takes milliseconds, until it is given up."""
SHARED_BYTES = 8 << 20
"""What an engine may put into shared memory while it starts; several may start at once."""


class EngineStuckError(RuntimeError):
    """A call was given up: its engine died with the lock of their message queue in hand."""


EngineFault = (
    EngineStuckError,
    vizdoom.MessageQueueException,
    vizdoom.SharedMemoryException,
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.ViZDoomUnexpectedExitException,
)
"""What a call to an engine raises when its process is gone or out of step."""

_forking = threading.Lock()
"""Held by the start whose child process is not there yet."""


@dataclass(frozen=True)
class Engine:
    """A running engine. game: ViZDoom's handle. pid: of the engine's process; 0 where it is not known."""

    game: Any
    pid: int

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended; False where it is not known."""
        return self.pid > 0 and leftovers.is_dead(self.pid)

    def kill(self) -> None:
        """End the process at once; a call that waits for it in another thread then returns with an EngineFault, unless
        the engine held the lock of its message queue: then it never does."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and free the handle, for which no call may be at work."""
        # ViZDoom's own close asks the engine to leave and waits for it: for ever, when it hangs or held that lock.
        self.kill()
        freeing = threading.Thread(target=self._free, daemon=True)
        freeing.start()
        freeing.join(GRACE_S)

    def _free(self) -> None:
        with suppress(*EngineFault):
            self.game.close()


def start_engine(build: Callable[[], Any], what: str) -> Engine:
    """Start the engine of a game that `build` has set up, anew for every attempt. what: its name in messages.

    Raises EnvError when it does not start, with the engine's own last words, or when shared memory is full.
    """
    for attempt in range(1, ATTEMPTS + 1):
        sweep()
        _check_shared_memory()
        game = build()
        folder = Path(tempfile.gettempdir(), f"{FOLDER_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            if sys.platform != "linux":
                game.init()  # the launcher's means are missing: a killed owner leaves the engine and its files
                return Engine(game, 0)
            with _guarded():
                return _start(game, folder)
        except (*EngineFault, vizdoom.FileDoesNotExistException) as error:
            words = _last_words(folder)
            with suppress(*EngineFault):
                game.close()
            if attempt == ATTEMPTS:
                raise EnvError(f"the engine of {what} did not start in {attempt} attempts: {error}. {words}") from error
            time.sleep(PAUSE_S * attempt)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def _guarded() -> Iterator[None]:
    """Keep a process beside a start that cleans up if this one is killed in the middle of it."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", leftovers.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # out of reach of a kill that ends our whole process group
    )
    try:
        yield
    finally:
        guard.communicate(b"1")


def _start(game: Any, folder: Path) -> Engine:
    """Start by way of the launcher, which makes the folder, then take the names away."""
    # An unset path means the engine inside the package; it must be spelled out now that the launcher stands before it.
    engine = game.get_vizdoom_path() or str(Path(vizdoom.__file__).parent / "vizdoom")
    command = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), str(folder), engine]
    # ViZDoom takes the path of one program, without arguments: a script, in memory so that no kill can leave it behind.
    script = os.memfd_create("start-doom", 0)
    try:
        os.write(script, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode())
        game.set_vizdoom_path(f"/proc/self/fd/{script}")
        with _one_fork_at_a_time(folder), _undisturbed():
            game.init()
    finally:
        os.close(script)
    for file in SHARED_MEMORY.glob(f"ViZDoom*{game.get_instance_id()}"):
        file.unlink(missing_ok=True)  # both sides have it open
    return Engine(game, int((folder / "pid").read_text()))


@contextmanager
def _one_fork_at_a_time(folder: Path) -> Iterator[None]:
    """Let the next start begin when this one's child process is there.

    ViZDoom forks in a thread of its own, and two forks at the same instant can block each other for ever: OpenBLAS,
    which numpy and scipy bring along, ends its threads before every fork and waits for them. Engines of a network game
    wait for each other later in their starts, so whole starts cannot take turns.
    """
    _forking.acquire()
    through = threading.Event()
    watch = threading.Thread(target=_release_after_fork, args=(folder / "pid", through), daemon=True)
    watch.start()
    try:
        yield
    finally:
        through.set()
        watch.join()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start what a closing terminal and Ctrl-C do not reach: they would end the child process before it has become the
    launcher, which ignores them, and ViZDoom then crashes. ViZDoom's thread and its child have the mask of this one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _release_after_fork(pid_file: Path, through: threading.Event) -> None:
    """The launcher writes the file as one of its first acts."""
    limit = time.monotonic() + FORK_LIMIT_S
    while not through.wait(0.002) and not pid_file.exists() and time.monotonic() < limit:
        pass
    _forking.release()


def _last_words(folder: Path) -> str:
    log = folder / "engine.log"
    lines = log.read_text(errors="replace").split("\n")[-8:] if log.exists() else []
    return "The engine said: " + " / ".join(line.strip() for line in lines if line.strip()) if lines else ""


def _check_shared_memory() -> None:
    """Refuse to start when shared memory is full: writing to it would kill this process by a bus error."""
    if SHARED_MEMORY.is_dir():
        state = os.statvfs(SHARED_MEMORY)
        free = state.f_bavail * state.f_frsize
        if free < SHARED_BYTES:
            raise EnvError(
                f"{SHARED_MEMORY} has {free >> 10} KiB left; a Doom engine needs {SHARED_BYTES >> 20} MiB to start. "
                "Free some, or give the container more (docker run --shm-size)"
            )
