"""Ports for programs that want a number and take no socket: below those that systems give to outgoing connections.

A port from among those, free when somebody looked, may be any client's a moment later.
"""

import contextlib
import os
import random
import socket

FIRST, LAST = 10_000, 32_000
"""Linux gives 32768 to 60999 to outgoing connections by default, other systems 49152 to 65535."""
_DRAWS = random.Random(os.getpid())  # tests that run in another process meanwhile draw others


def free_port(count: int = 1) -> int:
    """The first of so many TCP ports in a row that are free on 127.0.0.1."""
    while True:
        first = _DRAWS.randrange(FIRST, LAST)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
