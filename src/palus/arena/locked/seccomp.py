"""The list of system calls that a locked process keeps: memory, time, its one channel, and its end. Linux only.

Written as classic BPF by hand, because the one sensible dependency for it is a C library. Whatever is not on the list
fails with EPERM; that includes opening files, sockets, new processes and threads, signals, and executable memory.
Source: Linux kernel documentation, Seccomp BPF (SECure COMPuting with filters).
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_RETURN_ALLOW = 0x7FFF0000
_RETURN_KILL = 0x80000000
_RETURN_EPERM = 0x00050000 | errno.EPERM
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_THIRD_ARGUMENT = 0, 4, 32
_PROT_EXEC = 4
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


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
