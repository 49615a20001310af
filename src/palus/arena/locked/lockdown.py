"""What a process gives up before it meets a stranger's bytes. Each step says whether the system has it.

Once for all, in the parent of the locked processes and in this order: `drop_root`, `enter_empty_folder`,
`enter_namespaces`. In each locked process: `apply_limits`, `forbid_system_calls`. Beyond the resource limits everything
is Linux.

The filter of system calls is classic BPF, written by hand, because the one sensible dependency for it is a C library.
Left are memory, time, the one channel and the end of the process; whatever else is asked for fails with EPERM, which
includes opening files, sockets, new processes and threads, signals, and executable memory.
Source: Linux kernel documentation, Seccomp BPF (SECure COMPuting with filters).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
import sys
import tempfile

from palus.arena.models.rules import Limits

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
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


_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_RETURN_ALLOW = 0x7FFF0000
_RETURN_KILL = 0x80000000
_RETURN_EPERM = 0x00050000 | errno.EPERM
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_THIRD_ARGUMENT = 0, 4, 32
_PROT_EXEC = 4
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel calls them in the filter; the order is that of the numbers below."""

SYSTEM_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "sched_yield": (24, 124),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getrusage": (98, 165),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "membarrier": (324, 283),
    "rseq": (334, 293),
    "getrandom": (318, 278),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
"""Name -> number on x86-64 and on ARM64."""

WITHOUT_EXECUTION = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Those whose third argument is a memory protection: allowed unless the memory could be executed."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_system_calls() -> bool:
    """Give up every system call that is not listed, for good. False where the system knows no such filter."""
    if platform.system() != "Linux" or platform.machine() not in _ARCHITECTURES:
        return False
    code = _assemble(platform.machine())
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _assemble(machine: str) -> bytes:
    """The filter program, 8 bytes per instruction. Each test either returns or falls through to the next."""
    column = list(_ARCHITECTURES).index(machine)
    program = [
        _instruction(_LOAD_WORD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, _ARCHITECTURES[machine], if_true=1),
        _instruction(_RETURN, _RETURN_KILL),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    for numbers in SYSTEM_CALLS.values():
        program += [_instruction(_JUMP_IF_EQUAL, numbers[column], if_false=1), _instruction(_RETURN, _RETURN_ALLOW)]
    for numbers in WITHOUT_EXECUTION.values():
        program += [
            _instruction(_JUMP_IF_EQUAL, numbers[column], if_false=4),
            _instruction(_LOAD_WORD, _OFFSET_THIRD_ARGUMENT),
            _instruction(_JUMP_IF_SET, _PROT_EXEC, if_false=1),
            _instruction(_RETURN, _RETURN_EPERM),
            _instruction(_RETURN, _RETURN_ALLOW),
        ]
    return b"".join([*program, _instruction(_RETURN, _RETURN_EPERM)])


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `struct sock_filter`; the jumps count instructions to skip."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
