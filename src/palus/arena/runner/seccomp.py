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
from dataclasses import dataclass

_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_RETURN_ALLOW = 0x7FFF0000
_RETURN_KILL = 0x80000000
_RETURN_EPERM = 0x00050000 | errno.EPERM
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_THIRD_ARGUMENT = 0, 4, 32
_PROT_EXEC = 4
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


@dataclass(frozen=True)
class _Calls:
    """System-call numbers of one processor family. protect: those whose third argument is a memory protection."""

    architecture: int
    allowed: tuple[int, ...]
    protect: tuple[int, ...]


_CALLS = {
    "x86_64": _Calls(
        architecture=0xC000003E,
        allowed=(
            *(0, 1, 3),  # read, write, close
            *(11, 12, 25, 28),  # munmap, brk, mremap, madvise
            *(13, 14, 15, 131),  # rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack
            *(24, 35, 230, 96, 228),  # sched_yield, nanosleep, clock_nanosleep, gettimeofday, clock_gettime
            *(39, 186, 98, 204, 309),  # getpid, gettid, getrusage, sched_getaffinity, getcpu
            *(202, 219, 324, 334, 318),  # futex, restart_syscall, membarrier, rseq, getrandom
            *(60, 231),  # exit, exit_group
        ),
        protect=(9, 10),  # mmap, mprotect
    ),
    "aarch64": _Calls(
        architecture=0xC00000B7,
        allowed=(
            *(63, 64, 57),
            *(215, 214, 216, 233),
            *(134, 135, 139, 132),
            *(124, 101, 115, 169, 113),
            *(172, 178, 165, 123, 168),
            *(98, 128, 283, 293, 278),
            *(93, 94),
        ),
        protect=(222, 226),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_system_calls() -> bool:
    """Give up every system call that is not listed, for good. False where the system knows no such filter."""
    calls = _CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        return False
    code = _assemble(calls)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _assemble(calls: _Calls) -> bytes:
    """The filter program, 8 bytes per instruction. Each test either returns or falls through to the next."""
    program = [
        _instruction(_LOAD_WORD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, calls.architecture, if_true=1),
        _instruction(_RETURN, _RETURN_KILL),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    for number in calls.allowed:
        program += [_instruction(_JUMP_IF_EQUAL, number, if_false=1), _instruction(_RETURN, _RETURN_ALLOW)]
    for number in calls.protect:
        program += [
            _instruction(_JUMP_IF_EQUAL, number, if_false=4),
            _instruction(_LOAD_WORD, _OFFSET_THIRD_ARGUMENT),
            _instruction(_JUMP_IF_SET, _PROT_EXEC, if_false=1),
            _instruction(_RETURN, _RETURN_EPERM),
            _instruction(_RETURN, _RETURN_ALLOW),
        ]
    return b"".join([*program, _instruction(_RETURN, _RETURN_EPERM)])


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `struct sock_filter`; the jumps count instructions to skip."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
