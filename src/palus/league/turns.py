"""Which team learns, and when that changes: ML-Agents' ghost controller, for any number of teams and learners.

Steps are counted for each learner by itself and stand still while another team learns; ghost steps, decisions that
nobody learns from, for each behavior. Source: ML-Agents 1.1.0, ghost controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palus.config.league import LeagueSettings
from palus.league.pools import Contender, next_start
from palus.types import GameSpec


class Turns:
    """learning_side: the team that learns, an index into `GameSpec.sides`. steps: trainer steps by policy id;
    ghost_steps: by behavior. played_on: team -> the behaviors on it whose learners take turns."""

    def __init__(self, spec: GameSpec, contenders: Sequence[Contender], settings: LeagueSettings) -> None:
        """contenders: those with a past."""
        self.literal, self.all_learn = settings.counting == "reference", settings.learn == "all_teams"
        self.learners: dict[str, list[Contender]] = {}
        for contender in contenders:
            self.learners.setdefault(contender.behavior, []).append(contender)
        self.played_on = {
            side: [b for b in self.learners if any((a.team, a.behavior) == (side, b) for a in spec.agents)]
            for side in spec.sides
        }
        self._behaviors = list(self.played_on.values())
        self._sides = [
            side
            for side, behaviors in enumerate(self._behaviors)
            if any(contender.max_steps != 0 for behavior in behaviors for contender in self.learners[behavior])
        ]  # those that take turns
        self.learning_side = self._sides[0] if self._sides else 0
        self.steps = {contender.policy: 0 for contender in contenders}
        self.ghost_steps = dict.fromkeys(self.learners, 0)
        self._last_change = dict.fromkeys(self.learners, 0)

    def of(self, slot: int, begun: int) -> int:
        """The side that learns in the match that begins in a slot: that of all matches, or of each the next one that
        has steps to do, while there is one. begun: how many there were before it."""
        if not self.all_learn or not self._sides:
            return self.learning_side
        sides = [side for side in self._sides if self._is_open(side)] or self._sides
        return sides[(slot + begun) % len(sides)]

    def open(self, learners: Sequence[Contender]) -> list[Contender]:
        """Those that have steps to do."""
        return [c for c in learners if c.max_steps is None or self.steps[c.policy] < c.max_steps]

    def advance(self, steps: Mapping[int, int], ghost_steps: Mapping[str, int]) -> list[float]:
        """Count, and let other teams learn while that is due. steps: so far; ghost_steps: since the last call.

        A team whose learners are all done hands its turn on, except by reference counting, as in ML-Agents. Returns at
        which shares of the time since the last call teams changed, each in [0, 1].
        """
        before, self.steps = self.steps, {policy: steps[policy] for policy in self.steps}
        for behavior in self.ghost_steps:
            self.ghost_steps[behavior] += ghost_steps.get(behavior, 0)
        shares: list[float] = []
        while self._sides and not self.all_learn and (due := self._due(before)) is not None:
            shares.append(due)
            following = self._sides.index(self.learning_side) + 1
            self.learning_side = self._sides[following % len(self._sides)]
            if not self.literal:
                self._last_change = {behavior: self._sum(behavior, self.steps) for behavior in self.learners}
        return shares

    def _due(self, before: Mapping[int, int]) -> float | None:
        """When the learning team's turn ended, None while it goes on."""
        for behavior in self._behaviors[self.learning_side]:
            was, now = self._sum(behavior, before), self._sum(behavior, self.steps)
            interval = min(c.self_play.team_change for c in self.learners[behavior] if c.self_play is not None)
            start = next_start(self._last_change[behavior], now, interval, literal=self.literal)
            if start is not None:
                self._last_change[behavior] = start
                return min(max((start - was) / max(now - was, 1), 0.0), 1.0)
        others_wait = not self.literal and any(map(self._is_open, self._sides))
        return 1.0 if others_wait and not self._is_open(self.learning_side) else None

    def _sum(self, behavior: str, steps: Mapping[int, int]) -> int:
        return sum(steps[contender.policy] for contender in self.learners[behavior])

    def _is_open(self, side: int) -> bool:
        return any(self.open(self.learners[behavior]) for behavior in self._behaviors[side])

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        tables = {name: list(getattr(self, name).items()) for name in _TABLES}
        return {"learning_side": self.learning_side, **tables}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.learning_side = int(state["learning_side"])
        for name in _TABLES:
            setattr(self, name, getattr(self, name) | dict(state[name]))


_TABLES = ("steps", "ghost_steps", "_last_change")
