"""The memory that the collector and its workers share: one anonymous file, cut into arrays in one place.

Nothing here has a name in a file system, so nothing can stay behind, and a full /dev/shm does not matter. Letters: T
decisions of a page, B rows (the agents of a behavior in all games), A action columns.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from palus.errors import StorageError
from palus.types import F32, F64, I64, MASKS, AnyArray, BehaviorSpec, Bool, GameSpec

ALIGNMENT = 64
"""Regions begin on cache lines of their own."""


@dataclass(frozen=True)
class BehaviorRows:
    """The agents of a game that one behavior drives, in the order of their rows: members of a group are neighbours.

    group_size: 1 where groups differ in size. agents: indices into `GameSpec.agents`.
    """

    behavior: BehaviorSpec
    agents: tuple[int, ...]
    group_size: int

    @classmethod
    def of(cls, spec: GameSpec, behavior: BehaviorSpec) -> BehaviorRows:
        """The rows of a game's behavior."""
        groups = [spec.agents[i].group for i in spec.agents_of(behavior.name)]
        sizes = {groups.count(group) for group in groups}
        agents = sorted(spec.agents_of(behavior.name), key=lambda i: (spec.agents[i].group, i))
        return cls(behavior, tuple(agents), sizes.pop() if len(sizes) == 1 else 1)

    @cached_property
    def columns(self) -> slice | I64:
        """Where the rows' agents stand in arrays of all agents."""
        first, end = self.agents[0], self.agents[0] + len(self.agents)
        return slice(first, end) if self.agents == tuple(range(first, end)) else np.array(self.agents)

    @cached_property
    def places(self) -> I64:
        """Where the agents of the game's own arrays of this behavior stand among the rows of a game."""
        return np.argsort(self.agents)

    def rows(self, games: range) -> slice:
        """The rows of neighbouring games."""
        return slice(games.start * len(self.agents), games.stop * len(self.agents))


@dataclass(frozen=True)
class Table:
    """Views of the shared memory for one behavior; a page is one buffer of T decisions of B rows.

    observations: name -> [pages, T + 1, B, *shape], masks among them. aside: name -> [B, *shape], what belongs to no
    decision: last observations of truncated episodes, first ones of games that were just started. actions: [B, A],
    clipped. rewards, group_rewards: [pages, T, B], as the game gave them. terminated, truncated: [pages, T, B]; rows
    without a decision count as terminated. active: [pages, T + 1, B]; active_aside: [B]. shaping: [B, numbers], what
    each row is paid by.
    """

    observations: Mapping[str, AnyArray]
    aside: Mapping[str, AnyArray]
    actions: F32
    rewards: F32
    group_rewards: F32
    terminated: Bool
    truncated: Bool
    active: Bool
    active_aside: Bool
    shaping: F64


@dataclass(frozen=True)
class Layout:
    """Where each array lies. Workers get a copy, so that both sides agree."""

    spec: GameSpec
    games: int
    horizon: int
    pages: int

    @cached_property
    def rosters(self) -> tuple[BehaviorRows, ...]:
        """In the order of `GameSpec.behaviors`."""
        return tuple(BehaviorRows.of(self.spec, behavior) for behavior in self.spec.behaviors)

    def _regions(self, roster: BehaviorRows) -> Iterator[tuple[str, tuple[int, ...], str]]:
        """Name, shape and type. Observations come with a prefix: their names are the game's."""
        B, actions = self.games * len(roster.agents), roster.behavior.actions
        page, after = (self.pages, self.horizon, B), (self.pages, self.horizon + 1, B)
        for name, shape, kind in seen(roster.behavior):
            yield f"observations/{name}", (*after, *shape), kind
            yield f"aside/{name}", (B, *shape), kind
        yield "actions", (B, actions.columns), "float32"
        yield from ((name, page, "float32") for name in ("rewards", "group_rewards"))
        yield from ((name, page, "bool") for name in ("terminated", "truncated"))
        yield "active", after, "bool"
        yield "active_aside", (B,), "bool"
        yield "shaping", (B, len(self.spec.shaping)), "float64"

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return sum(_aligned(shape, kind) for roster in self.rosters for _, shape, kind in self._regions(roster))

    def tables(self, memory: mmap.mmap) -> list[Table]:
        """The views of a mapping that is at least `size` bytes long, for each behavior."""
        tables, offset = [], 0
        for roster in self.rosters:
            views: dict[str, AnyArray] = {}
            for name, shape, kind in self._regions(roster):
                views[name] = np.frombuffer(memory, kind, int(np.prod(shape)), offset).reshape(shape)
                offset += _aligned(shape, kind)
            names = [name for name, _, _ in seen(roster.behavior)]
            observations, aside = ({n: views.pop(f"{kind}/{n}") for n in names} for kind in ("observations", "aside"))
            tables.append(Table(observations, aside, **views))
        return tables


def seen(behavior: BehaviorSpec) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and type of all that an agent is shown before a decision: its observations, and masks."""
    masks = [(MASKS, (sum(behavior.branches),), "bool")] if behavior.actions.masked else []
    return [*((o.name, o.shape, o.dtype) for o in behavior.observations), *masks]


def _aligned(shape: tuple[int, ...], kind: str) -> int:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def open_memory(size: int) -> int:
    """A file descriptor of `size` zero bytes that no other program can find; StorageError when there is no room."""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("palus-sampling", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile(prefix="palus-") as file:
                descriptor = os.dup(file.fileno())
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
            "lower buffer_size, or free memory"
        ) from error
    return descriptor
