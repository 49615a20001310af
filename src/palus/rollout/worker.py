"""A worker process: makes its games, then steps them on order, until it is told to leave or its parent is gone.

Started by `palus.rollout.pool` as `python -m palus.rollout.worker SOCKET MEMORY PARENT`, two inherited file
descriptors and the parent's process id. It holds nothing that outlives it: a kill at any instant leaves no trace.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import time
import traceback
from contextlib import closing, suppress
from multiprocessing.connection import Connection

from palus.envs.game import Game
from palus.errors import PalusError
from palus.processes import die_with
from palus.rollout.layout import Layout
from palus.rollout.stepper import Assignment, Failure, SetParameters, Stepper

ALIVE_S = 1.0
"""Seconds between signs of life while an order takes long."""
_ALIVE = pickle.dumps(None)


def main() -> None:
    """Serve the parent. Ends without a word when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which closes its workers
    channel, memory, parent = map(int, sys.argv[1:4])
    die_with(parent)
    connection = Connection(channel)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        assignment, layout = connection.recv()
        _serve(connection, assignment, layout, mmap.mmap(memory, layout.size))


def _serve(connection: Connection, assignment: Assignment, layout: Layout, memory: mmap.mmap) -> None:
    if assignment.core is not None:
        os.sched_setaffinity(0, {assignment.core})
    if sys.platform == "linux":
        # Whoever is woken waits for its turn: else a game's engine and this process wake each other twice a tic.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    playing, said = False, 0.0

    def make() -> Game:
        game = assignment.make()
        connection.send_bytes(_ALIVE)
        return game

    def alive() -> None:
        nonlocal said
        now = time.monotonic()
        if now - said > ALIVE_S:
            said = now
            connection.send_bytes(_ALIVE)

    try:
        with closing(Stepper(assignment, layout, layout.tables(memory), make, alive)) as stepper:
            while (order := connection.recv()) is not None:
                if isinstance(order, SetParameters):
                    stepper.set_parameters(order.parameters)
                    continue
                said = time.monotonic()
                answer = stepper.carry_out(order)
                playing = True
                connection.send_bytes(pickle.dumps(answer))
    except Exception as error:  # whatever a user's game raises is reported, and the worker replaced
        text = str(error) if isinstance(error, PalusError) else traceback.format_exc().strip()
        connection.send_bytes(pickle.dumps(Failure(type(error).__name__, text, not playing)))


if __name__ == "__main__":
    main()
