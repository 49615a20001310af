"""The contracts between collecting, learning and the league: what was decided and paid, what ended, who plays whom.

Letters: T decisions, B rows, A action columns, L numbers of a distribution, M choices under a mask, S floats of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from palus.config.environment import Value
from palus.rollout.acting import Policies
from palus.types import F32, I32, I64, AnyArray, Bool
from palus.types import FROZEN as FROZEN  # policy ids are part of this contract; who has no torch reads them there
from palus.types import MEMBERS as MEMBERS

ENDLESS = 10_000
"""Decisions after which a match is taken for endless where the game does not say when it ends: who plays there may
change between two rollouts, and such a match has no verdict on anybody."""


@dataclass(frozen=True)
class Rollout:
    """T decisions of B rows for one learning policy. Arrays are the collector's: they hold until it collects again.

    A row is one agent slot for a stretch of time. Rows of one group are neighbours: row = group * group_size + member.

    observations: name -> [T + 1, B, *shape] as the game gives them; entry T follows decision T - 1.
    masks: [T + 1, B, M] bool, True where allowed; None where the game masks nothing.
    states: [B, S] memory before decision 0; zero again after every end inside the row. last_states: [B, S] after
    decision T - 1, zero where an episode ended there.
    actions: [T, B, A]; log_probs: [T, B, A] of every column by the acting policy (densities where continuous).
    parameters: [T, B, L] of the acting distribution. values: [T, B] by the acting weights; None where acting computes
    no values (`Policy.act`).
    rewards: [T, B] the agent's own; group_rewards: [T, B] its group's; both as the game gave them.
    terminated: [T, B] ended by the rules at this decision; truncated: [T, B] cut off.
    active: [T, B] the row holds a decision of this policy (agents that left, lost workers, other policies do not).
    last_active: [B] the same after decision T - 1.
    shown: [T, B] of terminated rows those whose last observation the game told; None where none.
    final_observations: name -> [K, *shape], the last ones of truncated and of shown rows, in the order of
    `np.argwhere(concluded)`; final_states: [K, S] their memory then.
    paused: [T, B] there is no decision, but others of the group take one while the row's episode goes on; None where
    groups decide in step. It may be terminated or truncated in a pause: before its group decides the next time.
    unended: [T, B] of truncated rows those whose episode goes on: only the row ends there. None where none does.
    left: [T, B] of last decisions of episodes those of members that ended before others of their group; None where a
    step ends them at once.
    group_size: rows per group. versions: [T, B] gradient steps behind the acting weights. resident: the observations as
    tensors on the learner's device, where it has one. side_by_side: the rows are those of matches side by side, as many
    of each.
    """

    observations: Mapping[str, AnyArray]
    masks: Bool | None
    states: F32
    last_states: F32
    actions: F32
    log_probs: F32
    parameters: F32
    values: F32 | None
    rewards: F32
    group_rewards: F32
    terminated: Bool
    truncated: Bool
    active: Bool
    last_active: Bool
    final_observations: Mapping[str, AnyArray]
    final_states: F32
    group_size: int
    versions: I32
    resident: Mapping[str, Any] | None = None
    side_by_side: bool = True
    paused: Bool | None = None
    unended: Bool | None = None
    left: Bool | None = None
    shown: Bool | None = None

    def __post_init__(self) -> None:
        T, B = self.rewards.shape
        for name in ("actions", "log_probs", "parameters", "values", "group_rewards", "terminated", "truncated",
                     "active", "versions", "paused", "unended", "left", "shown"):  # fmt: skip
            array = getattr(self, name)
            if array is not None and array.shape[:2] != (T, B):
                raise ValueError(f"{name}: shape {array.shape}; expected to begin with {(T, B)}, as rewards do")
        for name, array in self.observations.items():
            if array.shape[:2] != (T + 1, B):
                raise ValueError(f"observation {name}: shape {array.shape}; expected to begin with {(T + 1, B)}")
        if B % self.group_size or len(self.states) != B or self.last_states.shape != self.states.shape:
            raise ValueError(
                f"{B} rows in groups of {self.group_size}, states {self.states.shape} and {self.last_states.shape}; "
                "expected whole groups and a state for each row"
            )

    @property
    def seen(self) -> Mapping[str, Any]:
        """The observations for the learner's network."""
        return self.observations if self.resident is None else self.resident

    @property
    def goes_on(self) -> Bool:
        """[T, B]: an episode is there, and does not end."""
        there = self.active if self.paused is None else self.active | self.paused
        lasting: Bool = there & ~(self.terminated | self.truncated)
        return lasting

    @property
    def ended(self) -> Bool:
        """[T, B]: the episode is over after it."""
        return self.terminated | (self.truncated if self.unended is None else self.truncated & ~self.unended)

    @property
    def concluded(self) -> Bool:
        """[T, B]: what was seen after it is among `final_observations`."""
        return self.truncated if self.shown is None else self.truncated | self.shown

    @property
    def decides_next(self) -> Bool:
        """[T, B]: `active` one decision later."""
        return np.concatenate([self.active[1:], self.last_active[None]])

    @property
    def followed(self) -> Bool:
        """[T, B]: what is seen after it is known, of the same episode or of the next."""
        return self.decides_next | self.concluded

    @cached_property
    def until(self) -> I64:
        """[T, B]: the time after which what came of it is seen: its own, or the last one that its agent waits in."""
        found = np.repeat(np.arange(len(self.active))[:, None], self.active.shape[1], 1)
        if self.paused is not None:
            for t in reversed(range(len(found) - 1)):
                found[t] = np.where(self.paused[t + 1], found[t + 1], found[t])
        return found

    @property
    def agent_steps(self) -> int:
        """Decisions that the learner can use."""
        return int(self.active.sum())

    def following(self, t: I64, b: I64) -> dict[str, AnyArray]:
        """The observations [R, *shape] after some decisions: the last ones of an episode, where they are known."""
        found = {name: seen[t + 1, b] for name, seen in self.observations.items()}
        last, concluded = self.concluded[t, b], self.concluded
        number = np.cumsum(concluded).reshape(concluded.shape)[t, b] - 1
        for name, seen in self.final_observations.items():
            found[name][last] = seen[number[last]]
        return found

    @property
    def pace(self) -> Pace:
        """Decision by decision, what was taken and ended."""
        return Pace(self.active.sum(1), (self.terminated | self.truncated).sum(1))


@dataclass(frozen=True)
class Pace:
    """How a learner's rollout went by: of each of its T times, decisions that it can use, and ends in its rows. [T]."""

    taken: I64
    ended: I64

    @classmethod
    def of(cls, parts: Sequence[Pace]) -> Pace:
        """Of all parts of a rollout together."""
        return cls(np.sum([part.taken for part in parts], 0), np.sum([part.ended for part in parts], 0))

    @property
    def agent_steps(self) -> int:
        """Decisions in all."""
        return int(self.taken.sum())

    def ended_after(self, episodes: int) -> I64:
        """Of so many episodes in the order in which they ended, after how many decisions each did: [episodes].

        By the ends; where these are not all there is (lost workers, seats that changed), evenly spread.
        """
        made = np.repeat(self.taken.cumsum(), self.ended)
        return made if len(made) == episodes else np.arange(1, episodes + 1) * self.agent_steps // max(episodes, 1)


@dataclass(frozen=True)
class Episode:
    """One finished episode of one agent, whoever decided for it.

    slot: of the match; agent: index in `GameSpec.agents`; policy: id; learned: its decisions were learned from.
    length: decisions. The returns are undiscounted and as the game gave them. stats: what the game reported.
    left_early: others of its group played on; what the group reached is told by them. decision: of the rollout, with
    which it ended; 0 of games whose agents decide when they please.
    """

    slot: int
    agent: int
    policy: int
    learned: bool
    length: int
    reward: float
    group_reward: float
    left_early: bool = False
    stats: Mapping[str, float] = field(default_factory=dict)
    decision: int = field(default=0, compare=False)

    def number(self, name: str) -> float | None:
        """A figure by name: reward (with the group's), length, true_objective (else the reward), or a statistic."""
        total = self.reward + self.group_reward
        known = {"reward": total, "length": float(self.length), "true_objective": total} | dict(self.stats)
        return known.get(name)


@dataclass(frozen=True)
class FinishedMatch:
    """The verdict of one match. points: by side, in the order of `GameSpec.sides`; () where the game gave none.

    seats: who played, by agent, in the order of `GameSpec.agents`. decision: as in `Episode`.
    """

    slot: int
    points: tuple[float, ...]
    seats: tuple[Seat, ...]
    decision: int = field(default=0, compare=False)


class Seat(NamedTuple):
    """Who decides for one agent. learns: its decisions go into the rollout of the policy, which must be a learner."""

    policy: int
    learns: bool


Cast = Callable[[int], Sequence[Seat]]
"""Match slot -> the seat of every agent, in the order of `GameSpec.agents`; asked before every match. Slots are
numbered over all ranks of a run, as in `Episode` and `FinishedMatch`."""


@dataclass(frozen=True)
class Collected:
    """What one call of `Collector.collect` brought. rollouts, entropies (mean, nats, of its decisions): by policy id of
    the learners; episodes of all policies and matches, in the order in which they ended. ghost_steps: by behavior,
    decisions of agents that nobody learns from, in matches that somebody learns from. paces: by policy id, of all
    ranks' rollouts together, where there are several. outdated: it was played beside the learner, before the latest
    `Collector.set_parameters`."""

    rollouts: Mapping[int, Rollout]
    entropies: Mapping[int, float]
    episodes: Sequence[Episode]
    matches: Sequence[FinishedMatch]
    ghost_steps: Mapping[str, int]
    paces: Mapping[int, Pace] = field(default_factory=dict)
    outdated: bool = False

    def pace_of(self, policy: int) -> Pace:
        """Of a learner's rollout, in all ranks."""
        return self.paces.get(policy) or self.rollouts[policy].pace

    def steps_of(self, policy: int) -> int:
        """Decisions that a learner can use, in all ranks."""
        return self.pace_of(policy).agent_steps


class Collector(Protocol):
    """Plays matches with the present policies. The only part of training that knows how a game is stepped.

    A collector is made with the policies of the learners, and plays with what these have at that moment.
    policies: all that it plays with, where others are published and retired; matches that go on keep one to their end.
    """

    policies: Policies

    def collect(self) -> Collected:
        """Play on for one rollout of every learner; it may hold none of its decisions. Raises EnvError, WorkerError."""

    def beside(self) -> AbstractContextManager[None]:
        """Inside, where the learner is at work on what `collect` gave, the next rollout may be played; what leaves it
        does not depend on how far that has come. Policies, seats and numbers of the game must not change there; what
        goes wrong in the games the next `collect` tells."""

    def release(self) -> None:
        """What `collect` gave has been learned from: its arrays may be written again."""

    @property
    def in_play(self) -> set[int]:
        """Ids of frozen policies that a running match needs."""

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of the game: constants at once, what is drawn when a match begins, for each match its own.

        Raises EnvError for names that it does not have.
        """

    def restart(self) -> None:
        """Give up all matches that run, and what was played beside the learner: the next rollout begins others."""

    def shape_rewards(self, policy: int, numbers: Sequence[float]) -> None:
        """Pay a policy by these numbers, those of the game's `GameSpec.shaping`, in matches that begin from now on."""

    def performance(self) -> Mapping[str, float]:
        """TensorBoard tag -> number: where the time went, what was lost and repaired."""

    def describe(self) -> list[str]:
        """Derived sizes with their arithmetic, for the start of the log."""

    def complaints(self) -> Sequence[str]:
        """What went wrong since the last call and was repaired, one sentence each."""

    def save(self) -> dict[str, Any]:
        """What `load` continues from. Games that cannot be saved start anew with it, here as there: a run that is
        resumed equals one that never stopped."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue where `save` was called; before the first `collect`."""

    def close(self) -> None:
        """End all games and their processes; calling it twice does no harm."""
