"""Keeps workers alive: starts them, passes orders and answers, replaces those that crash or hang, ends them all.

`WorkerPool` runs worker processes. `InlineWorker` does the same for none: it carries orders out in this process.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe

from palus.config.environment import Value
from palus.errors import EnvError, ScenarioError, WorkerError
from palus.rollout.layout import Layout, Table
from palus.rollout.stepper import Answer, Assignment, Failure, Restart, SetParameters, StepOrder, Stepper

RESTART_WINDOW_S = 600.0
PATIENCE_S = 1.0
"""How long `hear` waits for a word: whoever listens has more to heed, such as Ctrl-C."""
GOODBYE_S = 5.0
"""How long workers may take to close their games before they are killed."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Lost:
    """A worker is gone, its orders with it; another one has taken its place and waits for `Restart`. what: happened."""

    worker: int
    hung: bool
    what: str


class WorkerPool:
    """Worker processes over one shared memory."""

    def __init__(
        self, assignments: Sequence[Assignment], layout: Layout, memory: int, *, timeout_s: float, max_restarts: int
    ) -> None:
        """memory: descriptor of the shared memory; it stays the caller's. timeout_s: silence that counts as hung."""
        self._layout, self._memory = layout, memory
        self._timeout_s, self._max_restarts = timeout_s, max_restarts
        self._losses: deque[float] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = Pipe(duplex=False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._workers: list[_Worker] = []
        try:
            for assignment in assignments:
                self._workers.append(self._start(assignment))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; each leads a process group of its own."""
        return [worker.process.pid for worker in self._workers]

    def _start(self, assignment: Assignment) -> _Worker:
        worker = _Worker(assignment, self._layout, self._memory)
        self._selector.register(worker.connection, selectors.EVENT_READ, assignment.worker)
        return worker

    def order(self, workers: Sequence[int], order: Restart | StepOrder) -> None:
        """Hand out an order to each of these."""
        message = pickle.dumps(order)
        for worker in workers:
            self._workers[worker].send(message)

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games; workers that come later have them too."""
        for worker in self._workers:
            worker.assignment = replace(worker.assignment, parameters={**worker.assignment.parameters, **parameters})
            worker.tell(SetParameters(parameters))

    def hear(self, wait: bool = True) -> list[tuple[int, Answer] | Lost]:
        """Answers and losses; none where PATIENCE_S have passed, or where a worker says no more than that it is alive.
        Raises WorkerError after too many losses, and EnvError when games cannot even be made."""
        deadlines = [worker.silent_since + self._timeout_s for worker in self._workers if worker.owes]
        wait_s = max(0.0, min([d - time.monotonic() for d in deadlines] + [PATIENCE_S])) if wait else 0.0
        events: list[tuple[int, Answer] | Lost] = []
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                self._bell.recv_bytes()
                continue
            said = self._workers[key.data].receive()
            if isinstance(said, Answer):
                events.append((key.data, said))
            elif isinstance(said, Failure):
                events.append(self._replace(key.data, said))
        now = time.monotonic()
        for index, worker in enumerate(self._workers):
            if worker.owes and now - worker.silent_since > self._timeout_s:
                events.append(self._replace(index, None))
        return events

    def _replace(self, index: int, failure: Failure | None) -> Lost:
        """Put a new process in the place of one that failed, or that is silent (None)."""
        worker = self._workers[index]
        self._selector.unregister(worker.connection)
        status = worker.kill()
        if failure is None:
            what = (
                f"no word for {self._timeout_s:g} s; where one decision or reset of the game takes that long, raise "
                "palus.sampling.timeout"
            )
        else:
            what = failure.text or f"it ended with exit status {status}"
        if failure and failure.at_start and worker.assignment.life == 0:
            raise _first_fault(failure)
        now = time.monotonic()
        self._losses.append(now)
        while now - self._losses[0] > RESTART_WINDOW_S:
            self._losses.popleft()
        if len(self._losses) > self._max_restarts:
            raise WorkerError(
                f"{len(self._losses)} workers were lost within {RESTART_WINDOW_S / 60:g} minutes, more than "
                f"palus.sampling.max_restarts: {self._max_restarts}. The last one, worker {index}: {what}"
            )
        self._workers[index] = self._start(replace(worker.assignment, life=worker.assignment.life + 1))
        return Lost(index, failure is None, what)

    def wake(self) -> None:
        """Make `hear` return."""
        self._ring.send_bytes(b"!")

    def close(self) -> None:
        """Let workers close their games; kill those that take long."""
        workers, self._workers = self._workers, []
        try:
            for worker in workers:
                worker.send(pickle.dumps(None))
            deadline = time.monotonic() + min(GOODBYE_S, self._timeout_s)
            for worker in workers:
                worker.hear_out(deadline)
        finally:
            for worker in workers:
                worker.kill()
            self._selector.close()
            self._bell.close()
            self._ring.close()


def _first_fault(failure: Failure) -> EnvError:
    """The error of games that could not be made even once: trying again would not help."""
    if failure.kind == ScenarioError.__name__:
        return ScenarioError(failure.text)
    if failure.kind == EnvError.__name__:
        return EnvError(failure.text)
    return EnvError(f"the game cannot be made or started; it raised:\n{failure.text}")


class _Worker:
    """One process and the line to it. owes: answers it has yet to give; silent_since: when it had to begin to speak."""

    def __init__(self, assignment: Assignment, layout: Layout, memory: int) -> None:
        self.assignment = assignment
        self.connection, end = Pipe()
        channel = end.fileno()
        module = [sys.executable, "-m", "palus.rollout.worker", str(channel), str(memory), str(os.getpid())]
        # Games may be modules that only this process's path leads to.
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self.process = subprocess.Popen(
            module,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            pass_fds=(channel, memory),
            start_new_session=True,  # Ctrl-C is not for workers; and a kill reaches their games' processes too
        )
        end.close()
        self.owes = 0
        self.silent_since = time.monotonic()
        self.tell((assignment, layout))

    def send(self, order: bytes) -> None:
        """Hand out an order, pickled. The loss of the process is found when it is listened to."""
        if not self.owes:
            self.silent_since = time.monotonic()
        self.owes += 1
        self._say(order)

    def tell(self, message: object) -> None:
        """Send what is not answered."""
        self._say(pickle.dumps(message))

    def _say(self, message: bytes) -> None:
        with suppress(OSError):
            self.connection.send_bytes(message)

    def receive(self) -> Answer | Failure | None:
        """The next message; None for a mere sign of life."""
        self.silent_since = time.monotonic()
        try:
            said = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return Failure("", "", False)
        if isinstance(said, Answer):
            self.owes -= 1
        return said if isinstance(said, (Answer, Failure)) else None

    def hear_out(self, deadline: float) -> None:
        """Wait until the process has ended and its end of the line with it, but not longer than the deadline."""
        with suppress(EOFError, OSError):
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                self.connection.recv_bytes()

    def kill(self) -> int:
        """End the process and its process group at once; returns its exit status, -9 when this is what ended it."""
        # The group goes first: once the process has been waited for, its number may belong to another one.
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.connection.close()
        return self.process.wait()


class InlineWorker:
    """No workers: orders are carried out here, when somebody listens."""

    def __init__(
        self, assignment: Assignment, layout: Layout, tables: Sequence[Table], alive: Callable[[], object]
    ) -> None:
        """alive: as `Stepper` takes it; what it raises, `hear` raises."""
        self._stepper = Stepper(assignment, layout, tables, assignment.make, alive)
        self._orders: deque[Restart | StepOrder] = deque()
        self._bell = threading.Event()

    def order(self, workers: Sequence[int], order: Restart | StepOrder) -> None:
        """Hand out an order."""
        self._orders.append(order)

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games."""
        self._stepper.set_parameters(parameters)

    def hear(self, wait: bool = True) -> list[tuple[int, Answer] | Lost]:
        """Carry out all orders. Raises what the games raise."""
        if wait and not self._orders:
            self._bell.wait()
        self._bell.clear()
        orders, self._orders = self._orders, deque()
        return [(0, self._stepper.carry_out(order)) for order in orders]

    @property
    def pids(self) -> list[int]:
        """None."""
        return []

    def wake(self) -> None:
        """Make `hear` return."""
        self._bell.set()

    def close(self) -> None:
        """Close the games."""
        self._stepper.close()


Workers = WorkerPool | InlineWorker
"""Whatever steps the games."""
