"""What a learner's agents did since its latest rollout, where agents are born, end and decide when they please.

Agents of a learner that learns from groups are kept with their group.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from palus.rollout.rollout import Rollout
from palus.rollout.stretches import WAITS, Decisions, Stretch, build
from palus.types import F32, I64, AnyArray, BehaviorSpec
from palus.unity.news import Steps

Key = tuple[int, str, int]
"""Game, behavior id, and the id of an agent, or of a group, which is made negative."""


class Demand(NamedTuple):
    """What a learner asks of rollouts. rows: decisions of one; horizon: those of a stretch at most; grouped: it learns
    from groups; whole: it wants as many of each agent as a stretch may have, however many agents are there at once."""

    rows: int
    horizon: int
    grouped: bool
    whole: bool = False


class LearnerStretches:
    """Decisions of one learner, and the stretches that they are in.

    Agents are known by game, behavior id and id. behavior: what they see and do. largest: group of any rollout so far;
    how many are there is told relative to it.
    """

    def __init__(self, demand: Demand, behavior: BehaviorSpec, state_size: int) -> None:
        self.demand, self.behavior, self.largest = demand, behavior, 1
        self._decisions = Decisions(behavior, state_size)
        self._open: dict[Key, Stretch] = {}
        self._homes: dict[Key, Key] = {}  # of agents, the stretches that their latest decisions went to
        self._done: list[Stretch] = []
        self._most = 0  # agents that were there at once since the latest rollout, where that is asked for

    @property
    def enough(self) -> bool:
        """Whether there is what the learner asks for."""
        rows, horizon, grouped, whole = self.demand
        lacking = (max(rows, horizon * self._most) if whole else rows) - self._decisions.known
        return lacking <= 0 and (not grouped or lacking + self._early() <= 0)

    def _early(self) -> int:
        """Decisions whose outcome is known before that of others of their step, which is of the next rollout then."""
        waiting = [stretch.latest() for stretch in self._open.values() if stretch.waits(self._decisions)]
        return sum(int(self._decisions["known"][row]) for latest in waiting for row in latest)

    def _key(self, game: int, name: str, agent: int, group: int) -> Key:
        """Of the stretch of an agent, or of its group."""
        return game, name, -group if group > 0 and self.demand.grouped else agent

    def add(
        self, game: int, name: str, steps: Steps, seen: Mapping[str, AnyArray], fields: Mapping[str, AnyArray]
    ) -> I64:
        """Enter decisions; returns their rows. seen: as the policy saw it; fields: the others of `Decisions.add`."""
        rows = self._decisions.add(len(steps), {**self._decisions.seen(seen), **fields})
        agents, groups, touched = steps.agent.tolist(), steps.group.tolist(), dict[Key, Stretch]()
        keys = [self._key(game, name, agent, group) for agent, group in zip(agents, groups, strict=True)]
        if self.demand.grouped:
            for agent, key, row in zip(agents, keys, rows.tolist(), strict=True):
                home = self._homes.get((game, name, agent), key)
                if home != key:
                    self._move(home, agent, row)
                self._homes[game, name, agent] = key
        first = list[bool]()
        for agent, key, row in zip(agents, keys, rows.tolist(), strict=True):
            stretch = self._open.get(key)
            if stretch is None:
                stretch = self._open[key] = Stretch()
            if key not in touched:
                touched[key] = stretch
                stretch.begin()
            first.append(agent not in stretch.members)
            stretch.steps[-1][stretch.place(agent)] = row
        self._decisions["first"][rows] = first
        if self.demand.whole:  # an id that ended may never be heard of again: each spawning has its own
            self._most = max(self._most, sum(bool(stretch.members) for stretch in self._open.values()))
        for stretch in touched.values():
            if len(stretch.steps) > self.demand.horizon:
                self._done.append(stretch.cut(self._decisions))
        return rows

    def pay(self, row: int, reward: float, group_reward: float) -> None:
        """What came of a decision; it is known now, or of no use any more."""
        self._decisions["rewards"][row] = reward
        self._decisions["group_rewards"][row] = group_reward
        self._decisions["known"][row] = not self._decisions["given_up"][row]

    def _move(self, home: Key, agent: int, row: int) -> None:
        """An agent decides elsewhere than in its group of before, which it leaves like one that is cut off. row: of the
        decision."""
        stretch = self._open[home]
        place = stretch.members.pop(agent)
        taken = [step[place] for step in stretch.steps if step.get(place, WAITS) != WAITS]
        if taken:  # else they were given up
            self._decisions["followed"][taken[-1]], self._decisions["unended"][taken[-1]] = row, True

    def end(self, game: int, name: str, ends: Steps, i: int, row: int, state: F32) -> None:
        """The episode of the i-th agent of `ends` is over. row: of its last decision, -1 where that was given up;
        state: its memory after it."""
        agent = int(ends.agent[i])
        home = self._homes.pop((game, name, agent), None) if self.demand.grouped else (game, name, agent)
        if home in self._open:
            self._open[home].members.pop(agent, None)  # its place is free
        if row < 0:
            return
        self._decisions["left"][row] = home in self._open and bool(self._open[home].members)
        self._decisions["terminated"][row] = not ends.truncated[i]
        last = {name: array[i : i + 1] for name, array in ends.observations.items()}
        self._decisions["followed"][row] = self._decisions.add(1, {**self._decisions.seen(last), "states": state})[0]

    def close(self, game: int, names: Container[str]) -> None:
        """No more decisions follow on those of these behavior ids in a game."""
        for key in [key for key in self._open if key[0] == game and key[1] in names]:
            self._done.append(self._open.pop(key).cut(self._decisions))
        self._homes = {who: key for who, key in self._homes.items() if who[0] != game or who[1] not in names}

    def rollout(self, has_values: bool) -> tuple[Rollout, float]:
        """What there is, and the mean entropy of its decisions in nats; stretches go on from there."""
        cut = [stretch.cut(self._decisions) for stretch in self._open.values()]
        whole = [stretch for stretch in (*self._done, *cut) if stretch.steps]
        rollout, entropy = build(self._decisions, whole, self.behavior, has_values, self.largest)
        self.largest = rollout.group_size
        return rollout, entropy

    def nothing(self, has_values: bool) -> tuple[Rollout, float]:
        """As `rollout`, of no decision; all that there is stays."""
        empty = Decisions(self.behavior, self._decisions["states"].shape[1])
        return build(empty, [], self.behavior, has_values)

    def forget(self) -> dict[int, int]:
        """After `rollout`, keep only rows that stretches that go on refer to. Returns old -> new numbers of these."""
        self._done, self._most = [], 0
        self._open = {key: stretch for key, stretch in self._open.items() if stretch.steps}
        steps = [step for stretch in self._open.values() for step in stretch.steps]
        numbers = self._decisions.keep([row for step in steps for row in step.values() if row != WAITS])
        for step in steps:
            step.update({member: numbers.get(row, WAITS) for member, row in step.items()})
        return numbers
