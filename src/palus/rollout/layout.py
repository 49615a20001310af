"""The memory that the sampler and its workers share: one anonymous file, cut into arrays in one place.

Nothing here has a name in a file system, so nothing can stay behind, and a full /dev/shm does not matter. Letters: T
decisions of a page, B rows (all agents of all games), A action columns.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from palus.errors import StorageError
from palus.types import F32, F64, AnyArray, Bool, GameSpec

ALIGNMENT = 64
"""Regions begin on cache lines of their own."""


@dataclass(frozen=True)
class SharedArrays:
    """Views of the shared memory; a page is one buffer of T decisions of B rows.

    observations: name -> [pages, T + 1, B, *shape]. aside: name -> [B, *shape], what belongs to no decision: last
    observations of truncated episodes, first ones of games that were just started. actions: [B, A], clipped.
    rewards: [pages, T, B], as the game gave them. terminated, truncated: [pages, T, B]; rows without a decision count
    as terminated. active: [pages, T + 1, B]; active_aside: [B]. shaping: [B, numbers], what each row is paid by.
    """

    observations: Mapping[str, AnyArray]
    aside: Mapping[str, AnyArray]
    actions: F32
    rewards: F32
    terminated: Bool
    truncated: Bool
    active: Bool
    active_aside: Bool
    shaping: F64


@dataclass(frozen=True)
class Layout:
    """Where each array lies. Workers get a copy, so that both sides agree."""

    spec: GameSpec
    rows: int
    horizon: int
    pages: int

    def _regions(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """name -> shape, type. Observations come with a prefix: their names are the game's."""
        lead, B = (self.pages, self.horizon), self.rows
        after = (self.pages, self.horizon + 1)
        regions: dict[str, tuple[tuple[int, ...], str]] = {}
        for o in self.spec.observations:
            regions[f"observations/{o.name}"] = ((*after, B, *o.shape), o.dtype)
            regions[f"aside/{o.name}"] = ((B, *o.shape), o.dtype)
        return {
            **regions,
            "actions": ((B, self.spec.actions.columns), "float32"),
            "rewards": ((*lead, B), "float32"),
            "terminated": ((*lead, B), "bool"),
            "truncated": ((*lead, B), "bool"),
            "active": ((*after, B), "bool"),
            "active_aside": ((B,), "bool"),
            "shaping": ((B, len(self.spec.shaping)), "float64"),
        }

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return sum(_aligned(shape, kind) for shape, kind in self._regions().values())

    def arrays(self, memory: mmap.mmap) -> SharedArrays:
        """The views of a mapping that is at least `size` bytes long."""
        views: dict[str, AnyArray] = {}
        offset = 0
        for name, (shape, kind) in self._regions().items():
            count = int(np.prod(shape))
            views[name] = np.frombuffer(memory, kind, count, offset).reshape(shape)
            offset += _aligned(shape, kind)
        names = [o.name for o in self.spec.observations]
        return SharedArrays(
            {name: views.pop(f"observations/{name}") for name in names},
            {name: views.pop(f"aside/{name}") for name in names},
            **views,
        )


def _aligned(shape: tuple[int, ...], kind: str) -> int:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def open_memory(size: int) -> int:
    """A file descriptor of `size` zero bytes that no other program can find; StorageError when there is no room."""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("palus-sampling", os.MFD_CLOEXEC)
        else:
            descriptor, path = tempfile.mkstemp(prefix="palus-")
            os.unlink(path)
    except OSError as error:
        raise StorageError(f"no shared memory for sampling: {error}; close other programs and try again") from error
    try:
        # Claims the memory now: running out of it later would be a bus error in the middle of a run.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise StorageError(
            f"sampling needs {size / 2**20:.0f} MiB of shared memory, and the system says: {error}; "
            "lower buffer_size or palus.sampling.pages, or free memory"
        ) from error
    return descriptor
