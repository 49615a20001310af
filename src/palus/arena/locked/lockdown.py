"""What a process gives up before it meets a stranger's bytes. Each step says whether the system has it.

Once for all, in the parent of the locked processes and in this order: `drop_root`, `enter_empty_folder`,
`enter_namespaces`. In each locked process: `apply_limits`, `seccomp.forbid_system_calls`. Beyond the resource limits
everything is Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import tempfile

from palus.arena.models.limits import Limits

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522
_NOBODY = 65534


def drop_root() -> None:
    """Become the user without rights, where the caller is root: otherwise root owns what it may no longer reach."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def enter_empty_folder() -> None:
    """Make a folder that is already deleted the working folder: nothing is in it, nothing can be made in it."""
    folder = tempfile.mkdtemp(prefix="palus-")
    os.chdir(folder)
    os.rmdir(folder)


def enter_namespaces() -> bool:
    """Own user, network, mount and IPC namespaces with the working folder as root, then no capability at all.

    The network has no interface that is up. False where the system has none, or refuses them to ordinary users.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS) != 0:
        return False
    try:
        os.chroot(".")
    except OSError:  # some systems grant the namespaces but none of the rights inside them
        return False
    os.chdir("/")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    return bool(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and libc.capset(header, none) == 0)


def apply_limits(limits: Limits) -> None:
    """Resource limits and priority of this process. A limit that the system does not know is left out."""
    values = {
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_FSIZE": (0, 0),
        "RLIMIT_NOFILE": (8, 8),
        "RLIMIT_NPROC": (0, 0),
        "RLIMIT_AS": (limits.memory_bytes, limits.memory_bytes),
        # At the soft limit comes SIGXCPU, which says why; at the hard one SIGKILL, which does not.
        "RLIMIT_CPU": (limits.cpu_s, limits.cpu_s + 1),
    }
    for name, pair in values.items():
        # macOS knows the name of the address-space limit and refuses to set it.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), pair)
    os.nice(limits.niceness)


def die_with(parent: int) -> None:
    """Be killed when the process `parent`, which started this one, ends. Linux only; elsewhere its end of the channel
    closes, which ends a process that reads from it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
