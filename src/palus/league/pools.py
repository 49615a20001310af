"""Learners as the league sees them, their past selves, and the counters of ML-Agents' ghost trainer.

Source: ML-Agents 1.1.0, ghost trainer. Something is due when *more* than its interval has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from palus.config.league import Role
from palus.config.trainer import SelfPlay


@dataclass(frozen=True)
class Contender:
    """A learner. self_play: None where it has no past. mirrors: learns from both sides of a match against itself;
    without, from the learning team alone, as ML-Agents does. max_steps: its trainer steps; None means no end. mixes:
    without a past, agents of one match may follow it and other learners of its behavior, else all follow the same."""

    policy: int
    behavior: str
    self_play: SelfPlay | None = None
    mirrors: bool = False
    max_steps: int | None = None
    role: Role = "main"
    mixes: bool = True


@dataclass
class Snapshot:
    """A frozen policy. parent: the learner whose weights it has; behavior: its; step: the learner's then. present: it
    stands for the learner itself until the next swap, so that matches against it move the learner's rating. version:
    how many snapshots the learner had made before. origin: policy id of the snapshot before it in its line, None for
    the first; not one of its learner's own where that had just gone on from another's weights."""

    parent: int
    behavior: str
    step: int
    elo: float
    present: bool = False
    version: int = 0
    origin: int | None = None


@dataclass
class Pool:
    """The past of one learner. elo: its own. versions: how many snapshots it has made. window: ids of its newest ones,
    landmarks: of older ones that stay, spread over the run (`strength.kept`); ids are never given twice. origin: policy
    id of the snapshot that the learner's weights come from, None where they began untrained.

    last_save, last_swap: where these counters began, in trainer steps and in ghost steps. ghosts: by reference
    counting, team -> the snapshot that plays it while it does not learn.
    """

    contender: Contender
    settings: SelfPlay
    elo: float
    versions: int = 0
    window: list[int] = field(default_factory=list)
    landmarks: list[int] = field(default_factory=list)
    last_save: int = 0
    last_swap: int = 0
    ghosts: dict[int, int] = field(default_factory=dict)
    origin: int | None = None

    @property
    def past(self) -> list[int]:
        """All snapshots that may be met, older before newer."""
        return [*self.landmarks, *self.window]


def next_start(last: int, now: int, interval: int, *, literal: bool) -> int | None:
    """Where a counter begins anew that stood at `last`; None while no more than `interval` steps have passed.

    literal: at the step at which it was due, as if steps had come one by one, so that it may be due again; else now.
    """
    if now - last <= interval:
        return None
    return last + interval + 1 if literal else now


def swaps(last: int, steps: int, interval: int, turns: list[int]) -> tuple[int, int]:
    """How often the opponents of a behavior change, and where the counter begins then: after more than `interval` ghost
    steps since the last change, and whenever another team begins to learn (`turns`: at which ghost steps)."""
    count = 0
    for turn in [*turns, None]:
        end = steps if turn is None else turn - 1  # both at one step are one change
        while (start := next_start(last, end, interval, literal=True)) is not None:
            last, count = start, count + 1
        if turn is not None:
            last, count = turn, count + 1
    return count, last
