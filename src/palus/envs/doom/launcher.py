"""Starts one Doom engine so that nothing outlives its owner. A script, run by path; the standard library suffices.

    launcher.py OWNER_PID FOLDER ENGINE [engine arguments]

The engine alone survives a killed owner, keeps writing into the current folder, and its shared memory has names that
somebody must remove. So this script, before it becomes the engine, asks the kernel to kill it together with its owner,
moves into a private folder, and leaves a small process beside the engine until the owner has removed the names.
"""

import ctypes
import os
import select
import shutil
import signal
import sys

PR_SET_PDEATHSIG = 1
SHARED_MEMORY = "/dev/shm"
POLL_S = 0.1


def shared_files(arguments: list[str]) -> list[str]:
    """The engine's files in shared memory; their names end with the identifier that its owner gave it."""
    identifier = arguments[arguments.index("+viz_instance_id") + 1]
    return [f"{SHARED_MEMORY}/ViZDoom{kind}{identifier}" for kind in ("SM", "MQCtr", "MQDoom")]


def remove(folder: str, files: list[str]) -> None:
    """Remove what a start makes."""
    for file in files:
        if os.path.exists(file):
            os.unlink(file)
    shutil.rmtree(folder, ignore_errors=True)


def clean_up_after(engine_alive: int, folder: str, files: list[str]) -> None:
    """Wait until the owner has removed the folder again (a start that worked), or the engine died before that.

    engine_alive: read end of a pipe that the engine alone holds open. A process id would not do: it may be reused, and
    a dead engine keeps it where nobody reaps orphans.
    """
    begun = False
    while not (begun and not os.path.exists(folder)):
        begun = begun or os.path.exists(folder)
        if select.select([engine_alive], [], [], POLL_S)[0]:
            remove(folder, files)
            return


def leave_behind(engine_alive: int, held_by_engine: int, folder: str, files: list[str]) -> None:
    """Start `clean_up_after` in a process of its own, out of reach of what ends the owner and its group."""
    if os.fork() == 0:
        os.close(held_by_engine)
        os.setsid()
        os.chdir("/")
        if os.fork() == 0:  # twice, so that the engine has no child to reap
            clean_up_after(engine_alive, folder, files)
        os._exit(0)
    os.wait()
    os.close(engine_alive)


def main(owner: int, folder: str, engine: str, arguments: list[str]) -> None:
    """Become the engine."""
    files = shared_files(arguments)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # it died before the kernel knew of our wish
        remove(folder, files)
        return
    # Ctrl-C reaches every process of the terminal; the owner decides when its games end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Sockets and memory of the owner are none of the engine's business, and would stay open with it.
    os.closerange(3, 4096)
    engine_alive, held_by_engine = os.pipe()
    leave_behind(engine_alive, held_by_engine, folder, files)
    os.mkdir(folder, 0o700)
    os.chdir(folder)
    log = os.open("engine.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    os.set_inheritable(held_by_engine, True)
    os.execv(engine, [engine, *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
