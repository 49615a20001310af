"""The parent of all locked processes: imports once what they need, then forks one per request.

`python -m palus.arena.locked.zygote <socket>`, started by `palus.arena.locked.sandbox`. It holds no stranger's bytes
itself: a fork costs milliseconds because numpy and onnxruntime are already there, and starts clean every time.

Requests are single JSON messages. `fork` comes with the channel of the new process as an ancillary descriptor and is
answered with its process id. `reap` kills the process with its group and is answered with its wait status and the
processor seconds it used; a process id stays reserved until then. The end of the socket ends everything.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from typing import Any

from palus.arena.locked import lockdown
from palus.arena.locked.inside import serve, warm_up
from palus.arena.models.rules import Limits
from palus.processes import die_with

MAX_MESSAGE_BYTES = 4096


def main(control: socket.socket) -> None:
    """Serve requests until the other end closes."""
    warm_up()
    null = os.open(os.devnull, os.O_RDWR)
    lockdown.drop_root()
    lockdown.enter_empty_folder()
    namespaces = lockdown.enter_namespaces()
    for standard in (0, 1, 2):  # what libraries print goes nowhere
        os.dup2(null, standard)
    os.close(null)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, the pages shared with this process
    control.send(json.dumps({"ready": True}).encode())
    children: set[int] = set()
    try:
        while request := _receive(control):
            message, channel = request
            answer = _reap(message, children) if message["op"] == "reap" else _fork(message, channel, namespaces)
            children ^= {answer["pid"]} if "pid" in answer else set()
            control.send(json.dumps(answer).encode())
    finally:
        for pid in children:
            _kill(pid)


def _receive(control: socket.socket) -> tuple[dict[str, Any], int] | None:
    """The next request and the descriptor that came with it, -1 when none; None at the end of the socket."""
    data, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 1)
    if not data:
        return None
    return json.loads(data), descriptors[0] if descriptors else -1


def _fork(message: dict[str, Any], channel: int, namespaces: bool) -> dict[str, Any]:
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(channel)
        return {"error": error.strerror}
    if pid:
        os.close(channel)
        with contextlib.suppress(OSError):  # the child may have done it already
            os.setpgid(pid, pid)
        return {"pid": pid}
    code = 1
    try:
        with contextlib.suppress(EOFError, BrokenPipeError):
            _become_locked(Limits(**message["limits"]), parent, channel, namespaces)
        code = 0
    finally:
        # Never back into the loop above, which belongs to the parent; and no clean-up that the parent will do.
        os._exit(code)


def _become_locked(limits: Limits, parent: int, channel: int, namespaces: bool) -> None:
    """The life of a forked process."""
    os.setpgid(0, 0)
    die_with(parent)
    own = 3
    if channel != own:
        os.dup2(channel, own)
    os.closerange(own + 1, 1 << 20)
    lockdown.apply_limits(limits)
    filtered = lockdown.forbid_system_calls()
    levels = ["namespaces"] * namespaces + ["seccomp"] * filtered + ["limits"]
    serve(own, "+".join(levels))


def _reap(message: dict[str, Any], children: set[int]) -> dict[str, Any]:
    pid = int(message["pid"])
    if pid not in children:
        return {"error": f"process {pid} is none of this one's"}
    status, usage = _kill(pid)
    return {"pid": pid, "status": status, "cpu_s": usage}


def _kill(pid: int) -> tuple[int, float]:
    """End a child and its group. Returns its wait status (its own end, if it was faster) and processor seconds."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a zombie's group
        os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
