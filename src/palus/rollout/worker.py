"""A worker process: makes its games, then steps them on order, until it is told to leave or its parent is gone.

Started by `palus.rollout.supervision` as `python -m palus.rollout.worker SOCKET MEMORY PARENT`, two inherited file
descriptors and the parent's process id. It holds nothing that outlives it: a kill at any instant leaves no trace.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from palus.errors import PalusError
from palus.rollout.layout import Layout
from palus.rollout.messages import Alive, Close, Failure, Posting
from palus.rollout.stepper import Stepper

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the parent. Ends without a word when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which closes its workers
    channel, memory, parent = map(int, sys.argv[1:4])
    _die_with(parent)
    connection = Connection(channel)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        posting, layout = connection.recv()
        _serve(connection, posting, layout, mmap.mmap(memory, layout.size))


def _serve(connection: Connection, posting: Posting, layout: Layout, memory: mmap.mmap) -> None:
    if posting.core is not None:
        os.sched_setaffinity(0, {posting.core})
    games = []
    playing = False
    try:
        for _ in range(sum(map(len, posting.splits))):
            games.append(posting.make())
            connection.send_bytes(pickle.dumps(Alive()))
        stepper = Stepper(posting, layout, layout.arrays(memory), games)
        while not isinstance(order := connection.recv(), Close):
            answer = stepper.carry_out(order)
            playing = True
            connection.send_bytes(pickle.dumps(answer))
    except Exception as error:  # whatever a user's game raises is reported, and the worker replaced
        text = str(error) if isinstance(error, PalusError) else traceback.format_exc().strip()
        connection.send_bytes(pickle.dumps(Failure(type(error).__name__, text, not playing)))
    finally:
        for game in games:
            game.close()


def _die_with(parent: int) -> None:
    """Be killed when the parent's thread that started this process ends. Elsewhere than on Linux the end of the channel
    is what a worker notices, after the order at hand."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)


if __name__ == "__main__":
    main()
