"""Starts one Doom engine so that it does not outlive its owner. A script, run by path; the standard library suffices.

    launcher.py OWNER_PID FOLDER ENGINE [engine arguments]

The engine alone survives a killed owner and writes into the current folder. So this script, before it becomes the
engine, asks the kernel to kill it together with its owner, and moves into a private folder.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
TUNABLES = "glibc.malloc.hugetlb=1"
"""Ask for large pages, where the machine gives them to who asks: engines share a core, and each finds the addresses of
its small pages forgotten when its turn comes."""


def main(owner: int, folder: str, engine: str, arguments: list[str]) -> None:
    """Become the engine."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # it died before the kernel knew of our wish
        return
    # Ctrl-C, and the end of the terminal, reach every process of it; the owner decides when its games end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Sockets and memory of the owner are none of the engine's business, and would stay open with it.
    os.closerange(3, 4096)
    os.mkdir(folder, 0o700)
    os.chdir(folder)
    log = os.open("engine.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    os.environ.setdefault("GLIBC_TUNABLES", TUNABLES)  # others than glibc pass over it
    os.execv(engine, [engine, *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
