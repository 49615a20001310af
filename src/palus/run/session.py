"""How long work is ended by hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from palus.processes import ending_signals

HEARD = "Interrupted: ending in order, which takes a while where kernels are compiled; once more ends at once.\n"
PASSED_ON_S = 5.0
"""What a system sends to all processes at once, as to those of a service that it stops, comes once more from whoever
started this one and passes it on."""


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """First Ctrl-C, SIGTERM or SIGHUP: finish the iteration and save, which is said. Second: the default, at once; but
    one that is only passed on says nothing new."""
    pressed, heard = False, dict[int, float]()

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if signum in heard:
            if time.monotonic() - heard[signum] > PASSED_ON_S:
                signal.signal(signum, previous[signum])
                signal.raise_signal(signum)
            return
        heard[signum] = time.monotonic()
        if signum == signal.SIGINT:  # of a key, which nobody passes on
            signal.signal(signum, previous[signum])
        with suppress(OSError):  # the terminal may have closed
            os.write(2, f"{os.linesep * os.isatty(2)}{HEARD}".encode())  # nothing that may be at work just now

    previous: dict[int, Any] = {s: signal.getsignal(s) for s in ending_signals()}
    try:
        for s in previous:
            signal.signal(s, handle)
    except ValueError:  # not in the main thread: the caller handles signals
        previous = {}
    try:
        yield lambda: pressed
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)
