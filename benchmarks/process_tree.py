"""CPU time and memory of a process and everything that it starts."""

from __future__ import annotations

import threading
import time

import psutil

BETWEEN_SAMPLES_S = 1.0
MEMORY_EVERY = 10
"""Samples: to ask the system for the memory of hundreds of engines takes a core for most of a second."""


class Meter(threading.Thread):
    """CPU time of a process tree, once a second, and its memory, every tenth time, until its root ends.

    cpu: (time.monotonic, CPU seconds by then).   memory: the most seen at once, bytes.   processes: the most at once.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process(pid)
        self.cpu: list[tuple[float, float]] = [(time.monotonic(), 0.0)]
        self.memory, self.processes = 0, 0
        self._seen: dict[int, float] = {}

    def run(self) -> None:
        while self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE:
            memory, count = 0, 0
            weighs = len(self.cpu) % MEMORY_EVERY == 0
            for process in self._tree():
                try:
                    times = process.cpu_times()
                    self._seen[process.pid] = times.user + times.system
                    memory += process.memory_full_info().pss if weighs else 0
                    count += 1
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self.cpu.append((time.monotonic(), sum(self._seen.values())))
            self.memory, self.processes = max(self.memory, memory), max(self.processes, count)
            time.sleep(BETWEEN_SAMPLES_S)

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far, those of processes that ended included."""
        return self.cpu[-1][1]

    def cpu_between(self, first: float, last: float) -> float:
        """CPU seconds between two instants, from the nearest samples."""

        def nearest(instant: float) -> tuple[float, float]:
            return min(self.cpu, key=lambda sample: abs(sample[0] - instant))

        near = [nearest(instant) for instant in (first, last)]
        return (near[1][1] - near[0][1]) * (last - first) / max(near[1][0] - near[0][0], 1e-9)
