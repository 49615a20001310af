"""In place of a run's process: trains nothing, and ends as soon as it is asked to."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path

from palus.config import RunFile
from palus.launch.apart import Ending


def oblige(run: RunFile, log: Path, resume: bool, trust: object, tell: Connection, berth: object) -> None:
    """As `palus.launch.apart._train` is called."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    log.write_text("begun")
    if signal.sigtimedwait([signal.SIGTERM], 60) is not None:
        tell.send(Ending("it was asked to"))
