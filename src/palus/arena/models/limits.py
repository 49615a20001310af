"""What an isolated process may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """For one process, which holds one model for one mirrored pair or one validation.

    memory_bytes: address space, everything included; a process with a stock policy takes about 300 MiB of it.
    cpu_s: processor seconds, whole ones; a stock policy takes 0.2 s for a pair that goes to the time limit.
    wall_s: seconds that one answer may take on the clock. Generous, because a busy machine is nobody's fault.
    niceness: added to the process's own, 0 to 19: playing never slows the pages down.
    """

    memory_bytes: int = 768 * 2**20
    cpu_s: int = 20
    wall_s: float = 60.0
    niceness: int = 10
