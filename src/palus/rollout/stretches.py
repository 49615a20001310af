"""Decisions of agents that come and go, and the rollouts made of them.

Every row of a `Decisions` is what one agent saw at one time: a decision, or the last observation of an episode. A
stretch is one row of a rollout in the making, or of a group as many as it has members, and short ones share theirs: the
decisions of one agent or of one group, one after another, over as many episodes as there were. Letters as in
`palus.rollout.rollout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palus.rollout.rollout import Rollout
from palus.types import I64, MASKS, AnyArray, BehaviorSpec, Bool

WAITS = -2
"""In the place of a row: a member is there, but others of its group decide."""


class Decisions:
    """What a learner's agents saw, did and got, one array for each field; `add` gives the numbers of new rows."""

    def __init__(self, behavior: BehaviorSpec, state_size: int) -> None:
        actions = behavior.actions
        self.count = 0
        self._arrays: dict[str, AnyArray] = {
            **{f"seen {o.name}": np.zeros((1, *o.shape), np.float32) for o in behavior.observations},
            "states": np.zeros((1, state_size), np.float32),
            "actions": np.zeros((1, actions.columns), np.float32),
            "log_probs": np.zeros((1, actions.columns), np.float32),
            "parameters": np.zeros((1, actions.parameters), np.float32),
            **{name: np.zeros(1, np.float32) for name in ("values", "entropies", "rewards", "group_rewards")},
            "versions": np.zeros(1, np.int32),
            "followed": np.full(1, -1, np.int64),  # the row seen after one that ended, or is cut off, there
            **{name: np.zeros(1, np.bool_) for name in ("first", "known", "terminated", "given_up", "unended", "left")},
        }
        if actions.masked:
            self._arrays[f"seen {MASKS}"] = np.ones((1, sum(behavior.branches)), np.bool_)

    @property
    def known(self) -> int:
        """Decisions whose outcome is known."""
        return int(self["known"][: self.count].sum())

    def __getitem__(self, name: str) -> AnyArray:
        return self._arrays[name]

    def add(self, count: int, fields: Mapping[str, Any]) -> I64:
        """New rows. fields: name -> [count, ...]; the others are as for a decision whose outcome is not known."""
        first, self.count = self.count, self.count + count
        rows = np.arange(first, self.count)
        if self.count > len(self["known"]):
            for name, array in self._arrays.items():
                fresh = np.zeros((max(2 * len(array), self.count, 256), *array.shape[1:]), array.dtype)
                fresh[:first] = array[:first]
                self._arrays[name] = fresh
        for name, array in self._arrays.items():
            array[rows] = fields.get(name, -1 if name == "followed" else name == f"seen {MASKS}")
        return rows

    def seen(self, observations: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Fields for `add`."""
        return {f"seen {name}": array for name, array in observations.items()}

    def keep(self, rows: Sequence[int]) -> dict[int, int]:
        """Forget all others but what was seen after these. Returns old -> new numbers."""
        followed = self["followed"][np.array(rows, np.int64)]
        wanted = np.unique(np.concatenate([rows, followed[followed >= 0]])).astype(np.int64)
        for array in self._arrays.values():
            array[: len(wanted)] = array[wanted]
        self.count, after = len(wanted), self["followed"][: len(wanted)]
        after[after >= 0] = np.searchsorted(wanted, after[after >= 0])
        return {old: new for new, old in enumerate(wanted.tolist())}


@dataclass
class Stretch:
    """steps: for each, member -> row of the record, or WAITS. members: places of those who are there, by agent id."""

    members: dict[int, int] = field(default_factory=dict)
    steps: list[dict[int, int]] = field(default_factory=list)

    def place(self, agent: int) -> int:
        """The member's place; the first free one for a member that comes."""
        if agent not in self.members:
            taken = set(self.members.values())
            self.members[agent] = next(place for place in range(len(taken) + 1) if place not in taken)
        return self.members[agent]

    def begin(self) -> None:
        """A step in which nobody has decided yet."""
        self.steps.append(dict.fromkeys(self.members.values(), WAITS))

    def latest(self) -> list[int]:
        """Rows of the latest step's decisions."""
        return [row for row in self.steps[-1].values() if row != WAITS]

    def waits(self, record: Decisions) -> bool:
        """Whether what came of the latest step is not known yet: of somebody who decided, or, where all of them ended,
        of the others of their group."""
        latest = self.latest()
        if not all(record["known"][row] for row in latest):
            return True
        return bool(self.members) and all(record["terminated"][row] or record["followed"][row] >= 0 for row in latest)

    def cut(self, record: Decisions) -> Stretch:
        """What is known so far, as a stretch of its own; this one goes on with the step that was decided last, with all
        who decided in it.

        Members that go on are cut off there, at what they saw when they decided next. A decision whose outcome is still
        out, since its agent decides more seldom than others of its group, is given up.
        """
        waits, (known, first, followed) = self.waits(record), (record[name] for name in ("known", "first", "followed"))
        done = Stretch({}, self.steps[:-1] if waits else self.steps)
        last = self.steps[-1] if waits else {}
        latest, following, unborn = dict[int, int](), dict[int, int](), set[int]()
        for step in done.steps:
            for member, row in step.items():
                if row != WAITS and known[row]:
                    latest[member] = row
                elif row != WAITS:
                    record["given_up"][row], step[member], following[member] = True, WAITS, row
                    unborn |= {member} if first[row] else set()  # this was all that it did
            for member in unborn & step.keys() if unborn else ():
                del step[member]
        if following:
            done.steps = [step for step in done.steps if max(step.values(), default=WAITS) != WAITS]
        following |= {member: row for member, row in last.items() if row != WAITS}
        for member, row in latest.items():
            if not record["terminated"][row] and followed[row] < 0 and member in following:
                followed[row], record["unended"][row] = following[member], True
        places = {member: place for place, member in enumerate(last)}
        self.members = {agent: places[member] for agent, member in self.members.items() if member in places}
        self.steps = [{places[member]: row for member, row in last.items()}] if last else []
        return done


def build(
    record: Decisions, stretches: Sequence[Stretch], behavior: BehaviorSpec, with_values: bool, least: int = 1
) -> tuple[Rollout, float]:
    """The rollout of these stretches, all cut, and the mean entropy of its decisions in nats, 0 without any. least:
    rows of a group, where all have fewer members."""
    G = max(least, max((member + 1 for s in stretches for step in s.steps for member in step), default=1))
    columns = _columns(record, stretches)
    # One more than the longest: what follows a decision that was neither ended nor cut off is not known.
    T, B = max(map(len, columns), default=0) + 1, max(len(columns), 1) * G
    rows: I64 = np.full((T, B), -1, np.int64)
    for number, column in enumerate(columns):
        for t, step in enumerate(column):
            for member, row in step.items():
                rows[t, number * G + member] = row
    waits: Bool = rows == WAITS
    rows[waits] = -1
    active: Bool = rows >= 0

    def spread(name: str) -> AnyArray:
        found = record[name][rows]
        found[~active] = 0
        return found

    seen: dict[str, AnyArray] = {}
    for name in (*(o.name for o in behavior.observations), *((MASKS,) if behavior.actions.masked else ())):
        array = record[f"seen {name}"]
        seen[name] = np.zeros((T + 1, B, *array.shape[1:]), array.dtype)
        seen[name][:-1] = spread(f"seen {name}")
        if name == MASKS:
            seen[name][:-1][~active], seen[name][-1] = True, True
    followed = np.where(active, record["followed"][rows], -1)
    terminated, unended = spread("terminated"), spread("unended")
    if waits.any():
        _let_leave(waits, active & ~spread("first"), followed, terminated, unended)
    concluded: Bool = followed >= 0
    ends = followed[concluded]  # in the order of argwhere
    first = rows[active.argmax(0), np.arange(B)]  # of each row, which may begin in a pause; empty in all later ones
    states = np.where(first[:, None] >= 0, record["states"][first], np.float32(0))
    rollout = Rollout(
        masks=seen.pop(MASKS, None),
        observations=seen,
        states=states,
        last_states=np.zeros_like(states),
        actions=spread("actions"),
        log_probs=spread("log_probs"),
        parameters=spread("parameters"),
        values=spread("values") if with_values else None,
        rewards=spread("rewards"),
        group_rewards=spread("group_rewards"),
        terminated=terminated,
        truncated=concluded & ~terminated,
        active=active,
        last_active=np.zeros(B, np.bool_),
        final_observations={o.name: record[f"seen {o.name}"][ends] for o in behavior.observations},
        final_states=record["states"][ends],
        group_size=G,
        versions=spread("versions"),
        side_by_side=False,
        paused=waits if waits.any() else None,
        unended=unended,
        left=spread("left"),
        shown=concluded & terminated,
    )
    entropy = float(record["entropies"][rows[active]].mean()) if active.any() else 0.0
    return rollout, entropy


def _columns(record: Decisions, stretches: Sequence[Stretch]) -> list[list[dict[int, int]]]:
    """The steps of every row, or group of rows: short stretches one after another, an empty step between them, as far
    as the longest one reaches. One whose agents remember something begins a row, where alone a rollout tells of it; so
    does one in which somebody waits since a decision that is not in it."""
    longest, columns = max((len(stretch.steps) for stretch in stretches), default=0), list[list[dict[int, int]]]()
    for stretch in stretches:
        first = list(stretch.steps[0].values())
        begins = WAITS in first or record["states"][first].any()
        if not begins and columns and len(columns[-1]) + 1 + len(stretch.steps) <= longest:
            columns[-1] += [{}, *stretch.steps]
        else:
            columns.append([*stretch.steps])
    return columns


def _let_leave(waits: Bool, returns: Bool, followed: I64, terminated: Bool, unended: Bool) -> None:
    """Move the ends of those who waited then from their decisions to the last step that they waited in, in place.

    returns: who decides in an episode that had begun. Who waits and is not there in the next step leaves, also where
    its decision is not in the rollout. All [T, B].
    """
    for t in range(1, len(waits)):
        own = waits[t]
        followed[t, own], followed[t - 1, own] = followed[t - 1, own], -1
        for ends in (terminated, unended):
            ends[t, own], ends[t - 1, own] = ends[t - 1, own], False
    stays = np.zeros_like(waits)
    stays[:-1] = (waits | returns)[1:]
    terminated |= waits & ~stays & (followed < 0)
