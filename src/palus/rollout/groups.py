"""Groups of games, a worker's share of a split each: how far they are, which go on together, where their rows lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from palus.rollout.affinity import Staff
from palus.rollout.pages import Place
from palus.types import I64

MIN_ROWS = 16
"""Batches of whoever is ready wait for this many rows: below it a forward pass costs much more per row."""

State = Literal["starting", "stepping", "answered", "ready"]


@dataclass
class Group:
    """It stands before decision t of a page, counted from the first page of all.

    state: starting (restarts are under way, `starts` of them), stepping, answered (stepped, not yet settled), ready.
    fresh: its first observations lie aside. over: games that ended with the latest step.
    """

    worker: int
    split: int
    games: range
    rows: slice
    page: int = 0
    t: int = 0
    state: State = "starting"
    starts: int = 0
    fresh: bool = True
    over: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Its rows."""
        return int(self.rows.stop - self.rows.start)


def make_groups(staff: Staff, agents: int) -> list[Group]:
    """All groups, in the order of their rows."""
    groups = []
    for split in range(staff.splits):
        for worker in range(staff.teams):
            games = staff.games_of(worker, split)
            groups.append(Group(worker, split, games, slice(games.start * agents, games.stop * agents)))
    return groups


def whole_splits(splits: Sequence[Sequence[Group]], state: State) -> list[list[Group]]:
    """The splits that are in this state as a whole, furthest behind first.

    Neither the batches nor their order depend on which worker was faster.
    """
    fronts = []
    for split in splits:
        if all(g.state != state for g in split):
            continue
        place = min((g.page, g.t) for g in split)
        # Groups that were lost are ahead, at the next page, where the others wait for them.
        front = [g for g in split if (g.page, g.t) == place]
        if all(g.state == state for g in front):
            fronts.append((place, front))
    return [front for _, front in sorted(fronts, key=lambda pair: pair[0])]


def whoever_is_ready(groups: Sequence[Group], limit: int) -> list[list[Group]]:
    """One batch of all groups that may be decided for, their page being below `limit`; none while more are to come."""
    ready = [g for g in groups if g.state == "ready" and g.page < limit]
    enough = sum(g.size for g in ready) >= MIN_ROWS
    if ready and (enough or not any(g.state in ("starting", "stepping") for g in groups)):
        return [ready]
    return []


def locate(batch: Sequence[Group], pages: int) -> tuple[Place, slice | I64]:
    """Where a batch lies: index into [pages, T, B], index into [B]; views, not copies, where it is in one piece."""
    first, last = batch[0], batch[-1]
    sizes = [g.size for g in batch]
    together = all((g.page, g.t) == (first.page, first.t) for g in batch)
    if together and last.rows.stop - first.rows.start == sum(sizes):
        rows = slice(first.rows.start, last.rows.stop)
        return (first.page % pages, first.t, rows), rows
    numbers = np.concatenate([np.arange(g.rows.start, g.rows.stop) for g in batch])
    place = np.repeat([g.page % pages for g in batch], sizes), np.repeat([g.t for g in batch], sizes), numbers
    return place, numbers
