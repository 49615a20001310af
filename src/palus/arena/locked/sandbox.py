"""Opens locked processes, talks to them within time limits, and says how they ended. Never parses a model.

A locked process holds the models of one stranger. It is forked by a helper process (`palus.arena.locked.zygote`) that
has imported everything beforehand, so that opening one takes milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from palus.arena.locked.frames import MAX_REPORT_BYTES, PREFIX, Findings, Greeting, Kind, Task, Told
from palus.arena.models.rules import Limits
from palus.errors import ArenaError
from palus.processes import FORKLESS, can_fork

_MAX_MESSAGE_BYTES = 4096
_STARTUP_S = 120.0
_STARVED_S = 1.0
"""A process that was given less processor time than this before a wall timeout was not slow but starved."""

_OWN_FAULTS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGABRT", "SIGSYS", "SIGPIPE", "SIGXFSZ"}
"""Signals by which the system ends a process for what it did. It cannot send itself any other, its filter lets none
out: SIGKILL, SIGTERM and the like are the doing of an operator, or of a system that lacks memory."""

T = TypeVar("T", bound=Told)
FailureCause = Literal["timeout", "crash", "engine"]


class LockedProcessError(ArenaError):
    """A locked process gave no answer. cause: "timeout" and "crash" are the model's doing, "engine" is not."""

    def __init__(self, cause: FailureCause, sentence: str) -> None:
        self.cause: FailureCause = cause
        super().__init__(sentence)


class Sandbox:
    """Opens locked processes; for use by several threads. Closing it ends all of its processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def open(self, limits: Limits) -> LockedProcess:
        """A new process under these limits, ready for a task. Raises LockedProcessError ("engine")."""
        try:
            return self._open(limits)
        except LockedProcessError:  # the helper may have been killed since the last time; the next one is a new one
            return self._open(limits)

    def reap(self, pid: int) -> tuple[int, float]:
        """End a process of this sandbox. Returns its wait status and the processor seconds that it used."""
        answer = self._request({"op": "reap", "pid": pid})
        if "status" not in answer:
            raise LockedProcessError("engine", str(answer["error"]))
        return answer["status"], answer["cpu_s"]

    def close(self) -> None:
        """End all processes of this sandbox. It can be used again."""
        with self._lock:
            self._close()

    def _open(self, limits: Limits) -> LockedProcess:
        try:
            here, there = socket.socketpair()
        except OSError as error:
            raise LockedProcessError("engine", f"no process for the model: {error.strerror}") from error
        with there:
            try:
                answer = self._request({"op": "fork", "limits": asdict(limits)}, there.fileno())
                if "pid" not in answer:
                    raise LockedProcessError("engine", f"no process for the model: {answer['error']}")
                return LockedProcess(self, answer["pid"], here, limits)
            except LockedProcessError:
                here.close()
                raise

    def _request(self, message: dict[str, Any], descriptor: int | None = None) -> dict[str, Any]:
        """The helper's answer. Only a request for a process, which brings a descriptor, starts a helper."""
        with self._lock:
            try:
                if self._helper is None:
                    if descriptor is None:
                        raise LockedProcessError("engine", "the sandbox is closed")
                    self._helper = _start_helper()
                control = self._helper[1]
                socket.send_fds(control, [json.dumps(message).encode()], [] if descriptor is None else [descriptor])
                answer = control.recv(_MAX_MESSAGE_BYTES)
            except OSError as error:
                self._close()
                raise LockedProcessError("engine", f"the helper of the sandbox is gone ({error})") from error
            if not answer:
                self._close()
                raise LockedProcessError("engine", "the helper of the sandbox is gone")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _close(self) -> None:
        if self._helper is None:
            return
        process, control = self._helper
        self._helper = None
        control.close()  # its end of file ends the helper, which ends its children
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stderr is not None
        process.stderr.close()


def shared_sandbox() -> Sandbox:
    """The sandbox of this process, started at its first use and closed at its exit."""
    return _sandbox_of(os.getpid())


@functools.cache
def _sandbox_of(_pid: int) -> Sandbox:  # by process: a forked copy must not talk through its parent's socket
    sandbox = Sandbox()
    atexit.register(sandbox.close)
    return sandbox


def _start_helper() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start it with a clean environment and wait until it has imported everything."""
    if not can_fork():
        raise LockedProcessError("engine", f"holding models in {FORKLESS}")
    here, there = socket.socketpair()
    # The same modules as here, whatever way they were found; one thread each, or the helper could not be forked safely.
    paths = [str(Path(entry).resolve()) for entry in sys.path if entry]
    settings = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    settings["ORT_DISABLE_TELEMETRY"] = "1"  # which has a thread, too
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "palus.arena.locked.zygote", str(there.fileno())],
            env={"PYTHONPATH": os.pathsep.join(paths)} | settings,
            pass_fds=(there.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    here.settimeout(_STARTUP_S)
    try:
        ready = here.recv(_MAX_MESSAGE_BYTES)
    except TimeoutError:
        ready = b""
    if ready:
        here.settimeout(None)
        return process, here
    here.close()
    process.kill()
    said = process.communicate()[1].decode(errors="replace").strip().splitlines() or ["it said nothing"]
    raise LockedProcessError("engine", f"the helper of the sandbox did not start: {said[-1]}")


class LockedProcess:
    """One process with the models of one contender. Whatever it does, `ask` returns what was asked for or raises
    LockedProcessError."""

    def __init__(self, sandbox: Sandbox, pid: int, channel: socket.socket, limits: Limits) -> None:
        self._sandbox, self._channel, self._limits = sandbox, channel, limits
        self.pid = pid
        self._ended = False
        self.isolation = self._told(Greeting, time.monotonic() + limits.wall_s).isolation

    def begin(self, task: Task, models: Sequence[bytes]) -> Findings:
        """Hand over the task and the model of each of its behaviors; returns what the process says of them."""
        deadline = time.monotonic() + self._limits.wall_s
        self._send(Kind.TASK, task.model_dump_json().encode(), deadline)
        for model in models:
            self._send(Kind.MODEL, model, deadline)
        report = self._told(Findings, deadline)
        if report.refusal is None and (
            len(report.state_sizes) != len(models)
            or len(report.details) != len(models) * (task.examine_up_to_ms is not None)
        ):
            raise self._stop("crash", "answered garbage instead of a report")
        return report

    def ask(self, observations: bytes, answer_bytes: int, behavior: int = 0) -> bytes:
        """The probabilities for these observations, exactly `answer_bytes` of them. behavior: number in the task."""
        deadline = time.monotonic() + self._limits.wall_s
        self._send(Kind.OBSERVATIONS, observations + bytes([behavior]), deadline)
        return self._receive(Kind.PROBABILITIES, deadline, answer_bytes)

    def _told(self, form: type[T], deadline: float) -> T:
        """The next report."""
        payload = self._receive(Kind.REPORT, deadline)
        try:
            return form.model_validate_json(payload)
        except ValidationError:
            raise self._stop("crash", "answered garbage instead of a report") from None

    def close(self) -> None:
        """Kill it, if it still lives."""
        if not self._ended:
            with contextlib.suppress(LockedProcessError):  # without the helper it is dead already
                self._reap()

    def _send(self, kind: Kind, payload: bytes, deadline: float) -> None:
        try:
            self._channel.settimeout(max(1e-3, deadline - time.monotonic()))
            self._channel.sendall(PREFIX.pack(kind, len(payload)) + payload)
        except TimeoutError:
            raise self._late() from None
        except OSError:
            raise self._gone() from None

    def _receive(self, wanted: Kind, deadline: float, size: int | None = None) -> bytes:
        """A frame of the wanted kind, of this size or, for reports, of at most MAX_REPORT_BYTES."""
        kind, length = PREFIX.unpack(self._read(PREFIX.size, deadline))
        if kind == Kind.FAILED and length <= MAX_REPORT_BYTES:
            raise self._stop("crash", self._read(length, deadline).decode(errors="replace")[:200])
        if kind != wanted or (length != size if size is not None else length > MAX_REPORT_BYTES):
            raise self._stop("crash", f"answered garbage ({length} bytes of kind {kind})")
        return self._read(length, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            try:
                self._channel.settimeout(max(1e-3, deadline - time.monotonic()))
                got = self._channel.recv_into(view)
            except TimeoutError:
                raise self._late() from None
            except OSError:
                got = 0
            if got == 0:
                raise self._gone()
            view = view[got:]
        return bytes(buffer)

    def _gone(self) -> LockedProcessError:
        """It closed its end: find out why."""
        status, cpu_s = self._reap()
        if os.WIFEXITED(status):
            return LockedProcessError("crash", f"its process ended with exit code {os.WEXITSTATUS(status)}")
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU or cpu_s >= self._limits.cpu_s:
            return LockedProcessError("timeout", f"used up its {self._limits.cpu_s} s of processor time")
        name = signal.Signals(number).name
        if name in _OWN_FAULTS:
            return LockedProcessError("crash", f"its process was ended by signal {name}")
        return LockedProcessError("engine", f"its process was killed from outside (signal {name}); is memory short?")

    def _late(self) -> LockedProcessError:
        """It did not answer in time."""
        _, cpu_s = self._reap()
        waited = f"no answer within {self._limits.wall_s:g} s"
        if cpu_s < _STARVED_S:
            return LockedProcessError("engine", f"{waited}, but it was only given {cpu_s:.1f} s of processor time")
        return LockedProcessError("timeout", waited)

    def _stop(self, cause: FailureCause, sentence: str) -> LockedProcessError:
        self.close()
        return LockedProcessError(cause, sentence)

    def _reap(self) -> tuple[int, float]:
        if self._ended:
            raise LockedProcessError("engine", "its process has been ended before")
        self._ended = True
        self._channel.close()
        return self._sandbox.reap(self.pid)
