"""What a process that another one started owes it: not to outlive it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Be killed when the thread of the process `parent` that started this one ends.

    Linux only. Elsewhere the other end of the channel closes then, which ends a process that reads from it next.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
