"""Threads that wait at work for the next loop: OpenMP's, on which Numba runs `prange`.

They are reached in microseconds, where threads that sleep are woken one after the other; it takes cores that have
nothing else to do, as where a device learns.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

import numba

FEWEST = 4
"""Threads of which half may spin, the others being left to who decides."""
TURNS = 1_000_000
"""Of a waiting thread, until it sleeps: some 10 ms, longer than what passes between the loops of a decision."""
config: Any = numba.config  # its attributes are made at run time, from the environment


def spinners(threads: int) -> int:
    """How many of a run's threads may spin; 0 where there are too few, or Numba finds no OpenMP."""
    return threads // 2 if threads >= FEWEST and _has_openmp() else 0


def take_threads(count: int) -> None:
    """Have no more than so many threads share in what this thread runs side by side: a loop ends when the last of them
    has come, and one that waits for a core that others use holds all up."""
    numba.set_num_threads(min(count, config.NUMBA_NUM_THREADS))


@cache
def _has_openmp() -> bool:
    """Load it for Numba, with threads that spin: it reads how to wait when it loads, and torch, for which
    `palus/__init__.py` says the opposite, brings a library of its own."""
    before = os.environ.get("GOMP_SPINCOUNT")
    os.environ["GOMP_SPINCOUNT"] = before or str(TURNS)
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    finally:
        if before is None:
            del os.environ["GOMP_SPINCOUNT"]
    config.THREADING_LAYER = "omp"
    return True
