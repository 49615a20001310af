"""What ends a process: the signals by which people and systems ask it to, and the end of the one that started it. And
whether this system can fork one."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from palus.errors import ConfigError

FORKLESS = "needs Linux or macOS; on Windows, run palus in WSL"
_PR_SET_PDEATHSIG = 1


def can_fork() -> bool:
    """False on Windows."""
    return hasattr(os, "fork")


def require_fork(what: str) -> None:
    """Raises ConfigError where processes cannot be forked. what: that which cannot be done then."""
    if not can_fork():
        raise ConfigError(f"{what} {FORKLESS}")


def ending_signals() -> tuple[signal.Signals, ...]:
    """Ctrl-C, what ends services, and a terminal that closes; the last not where it is ignored, as `nohup` has it."""
    if sys.platform == "win32" or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGINT, signal.SIGTERM
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def die_with(parent: int) -> None:
    """Be killed when the thread of the process `parent` that started this one ends.

    Linux only. Elsewhere the other end of the channel closes then, which ends a process that reads from it next.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
