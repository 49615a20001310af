"""What a model that took over its locked process would try. Run as a program in place of `palus.arena.locked.zygote`.

`python attacker.py SOCKET [no-filter]`: every forked process tries everything and sends what came of it through its
channel, as JSON: name of the attempt to "done" or to the name of the error. no-filter: without the system-call filter,
so that the namespaces alone have to hold.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable

import numpy as np

from palus.arena.locked import zygote

MEMORY_BYTES = 2 << 30


def attempts(port: int) -> dict[str, Callable[[], object]]:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: int) -> None:
        if getattr(libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)

    return {
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 5),
        "unix socket": lambda: socket.socket(socket.AF_UNIX).connect("/run/systemd/private"),
        "read a file": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "read this file": lambda: os.open(__file__, os.O_RDONLY),
        "write here": lambda: os.open("loot", os.O_WRONLY | os.O_CREAT, 0o600),
        "write there": lambda: os.open("/tmp/palus-loot", os.O_WRONLY | os.O_CREAT, 0o600),
        "write to old descriptors": lambda: [os.write(n, b"hello") for n in range(4, 64)],
        "list files": lambda: os.listdir("/tmp"),
        "make a folder": lambda: os.mkdir("/tmp/palus-loot"),
        "fork": lambda: os.fork() or os._exit(0),
        "execute": lambda: os.execv("/bin/sh", ["sh", "-c", "true"]),
        "signal": lambda: os.kill(os.getppid(), 0),
        "trace": lambda: call("ptrace", 16, os.getppid(), 0, 0),
        "machine code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
        "another root": lambda: os.chroot("."),
        "mount": lambda: call("mount", 0, 0, 0, 0, 0),
        "raise limits": lambda: call("nice", -5) or raise_memory(),
        "memory": lambda: np.ones(MEMORY_BYTES, np.uint8),
    }


def raise_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def attack(channel: int, isolation: str) -> None:
    """In place of `zygote.serve`: reads the port to connect to, answers the report."""
    port = int(os.read(channel, 16))
    report = {"isolation": isolation, "environment": sorted(os.environ)}
    for name, attempt in attempts(port).items():
        try:
            attempt()
            report[name] = "done"
        except MemoryError:
            report[name] = "MemoryError"
        except OSError as error:
            report[name] = errno.errorcode.get(error.errno or 0, str(error))
    os.write(channel, json.dumps(report).encode())


if __name__ == "__main__":
    zygote.serve = attack
    if sys.argv[2:] == ["no-filter"]:
        zygote.lockdown.forbid_system_calls = lambda: False
    # What Python imports when it first needs it, it cannot import any more behind the lock.
    "".encode("idna")
    zygote.main(socket.socket(fileno=int(sys.argv[1])))
