"""The rounds of sampling: deciding for games, what follows from their steps, what becomes of those of a lost worker.

Games stand in groups, one for each worker and split. A group is decided for (one forward pass serves many groups),
stepped by its worker, settled (ends, recurrent states, new opponents), and ready again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from palus.errors import EnvError
from palus.rollout.acting import Actor
from palus.rollout.affinity import Staff
from palus.rollout.groups import Group, locate, make_groups, whoever_is_ready, whole_splits
from palus.rollout.layout import SharedArrays
from palus.rollout.messages import Answer, Restart, Step
from palus.rollout.pages import Pages, Place
from palus.rollout.supervision import Lost, Players
from palus.rollout.trajectories import EpisodeEnd, SamplerFaults
from palus.types import F32, F64, I64, AnyArray, Continuous, GameSpec

Assign = Callable[[int], Sequence[int]]
"""Game index -> policy id of each of its agents; asked at every start of a game."""


@dataclass
class SamplerTimes:
    """Seconds so far. deciding: forward passes and draws. waiting: for games, or for a page that may be written."""

    deciding: float = 0.0
    waiting: float = 0.0


class Rounds:
    """Plays on, round by round, in one thread. Synchronous rounds take splits as a whole: their batches, and with them
    every bit, do not depend on which worker was faster. Asynchronous rounds take whoever is ready."""

    def __init__(
        self,
        spec: GameSpec,
        staff: Staff,
        players: Players,
        shared: SharedArrays,
        pages: Pages,
        actor: Actor,
        assign: Assign,
        asynchronous: bool,
    ) -> None:
        self.times = SamplerTimes()
        self.faults = SamplerFaults()
        self._spec, self._players, self._shared, self._pages = spec, players, shared, pages
        self._actor, self._assign, self._asynchronous = actor, assign, asynchronous
        self._horizon, self._counter = shared.rewards.shape[1], 0
        self._groups = make_groups(staff, spec.num_agents)
        self._splits = [[g for g in self._groups if g.split == split] for split in range(staff.splits)]
        B = len(shared.actions)
        self._states = np.zeros((B, actor.state_size), np.float32)
        self._policies = np.zeros(B, np.int32)
        self._starts = np.zeros(B // spec.num_agents, np.int64)
        self._default = np.array([value for _, value in spec.shaping])
        self._shaping: dict[int, F64] = {}
        self._numbers = np.arange(B)
        # Batches from several places are gathered here: fresh memory for each would cost more than the copy.
        self._staging = {name: np.empty_like(array) for name, array in shared.aside.items()} if asynchronous else {}
        self._low, self._high = _limits(spec)

    @property
    def complete(self) -> int:
        """Pages that every group has left behind."""
        return min(group.page for group in self._groups)

    def restart(self, counter: int) -> None:
        """Start all games anew, where they stand. counter: part of their seeds."""
        self._counter = counter
        self._starts[:] = 0
        for group in self._groups:
            self._begin(group)

    def shape(self, policy: int, numbers: Sequence[float]) -> None:
        """What a policy is paid by in games that begin from now on."""
        self._shaping[policy] = np.array(numbers, np.float64)

    def play(self, limit: int) -> None:
        """One round: settle who has stepped, decide for who may go on, else listen. Pages below `limit` are free."""
        if self._asynchronous:
            answered = [g for g in self._groups if g.state == "answered"]
            settled = [answered] if answered else []
        else:
            settled = whole_splits(self._splits, "answered")
        for batch in settled:
            self._settle(batch)
        if self._asynchronous:
            decided = whoever_is_ready(self._groups, limit)
        else:
            decided = [batch for batch in whole_splits(self._splits, "ready") if batch[0].page < limit]
        for batch in decided:
            self._decide(batch)
        if not settled and not decided:
            self.listen()

    def _decide(self, batch: list[Group]) -> None:
        began = time.perf_counter()
        for group in batch:
            if group.t == 0:
                self._open(group)
        at, rows = locate(batch, self._pages.count)
        observations = self._observations(at, rows)
        decisions = self._actor.decide(observations, self._states[rows], self._policies[rows], self._numbers[rows])
        self._pages.record(at, decisions)
        self._states[rows] = decisions.states
        self._shared.actions[rows] = np.clip(decisions.actions, self._low, self._high)
        for group in batch:
            group.state = "stepping"
            self._players.order(group.worker, Step(group.split, group.page % self._pages.count, group.t))
        self.times.deciding += time.perf_counter() - began

    def _open(self, group: Group) -> None:
        """Carry a group's latest observations and states to the beginning of its next page."""
        shared, rows, count = self._shared, group.rows, self._pages.count
        page, before = group.page % count, (group.page - 1) % count
        for name, array in shared.observations.items():
            array[page, 0, rows] = shared.aside[name][rows] if group.fresh else array[before, -1, rows]
        shared.active[page, 0, rows] = shared.active_aside[rows] if group.fresh else shared.active[before, -1, rows]
        self._pages.states[page, rows] = self._states[rows]
        group.fresh = False

    def _observations(self, at: Place, rows: slice | I64) -> dict[str, AnyArray]:
        """What a batch sees, [R, *shape] each. Raises EnvError on a number that is not finite."""
        seen = {}
        for name, array in self._shared.observations.items():
            if isinstance(rows, slice):
                seen[name] = array[at]
            else:
                page, t, row = at
                flat = array.reshape(-1, *array.shape[3:])
                places = (page * array.shape[1] + t) * array.shape[2] + row
                seen[name] = np.take(flat, places, 0, self._staging[name][: len(rows)], mode="clip")
            if array.dtype == np.float32 and not (finite := np.isfinite(seen[name])).all():
                self._refuse(~finite.reshape(len(finite), -1).all(1), at, rows, f"observation {name}")
        return seen

    def _refuse(self, bad: Any, at: Place, rows: slice | I64, what: str) -> None:
        """EnvError for the first agent with a number that is not finite, unless it is not there (inactive)."""
        bad = bad & self._shared.active[at]
        if bad.any():
            game, agent = divmod(int(self._numbers[rows][bad][0]), self._spec.num_agents)
            raise EnvError(
                f"{self._spec.env_id}: {what} of agent {agent} in game {game} is NaN or infinite; "
                "a game must give finite numbers"
            )

    def _settle(self, batch: list[Group]) -> None:
        """Draw the consequences of a step that was played."""
        shared, pages = self._shared, self._pages
        at, rows = locate(batch, self._pages.count)
        if not (finite := np.isfinite(shared.rewards[at])).all():
            self._refuse(~finite, at, rows, "the reward")
        truncated = shared.truncated[at]
        if truncated.any():
            cut = self._numbers[rows][truncated]
            last = {name: array[cut] for name, array in shared.aside.items()}
            values = np.zeros(len(truncated), np.float32)
            values[truncated] = self._actor.evaluate(last, self._states[cut], self._policies[cut])
            pages.final_values[at] = values
        ended = truncated | shared.terminated[at]
        if ended.any():
            self._states[self._numbers[rows][ended]] = 0.0
        for group in batch:
            self._ask(group.over)
            group.over = []
            group.state, group.t = "ready", group.t + 1
            if group.t == self._horizon:
                pages.last_states[group.page % pages.count, group.rows] = self._states[group.rows]
                group.page, group.t = group.page + 1, 0

    def _ask(self, games: Sequence[int]) -> None:
        """Who plays in games that begin, and what pays them."""
        P = self._spec.num_agents
        for game in games:
            rows = slice(game * P, (game + 1) * P)
            self._policies[rows] = self._assign(game)
            self._shared.shaping[rows] = [self._shaping.get(p, self._default) for p in self._policies[rows].tolist()]
            self._starts[game] += 1

    def _begin(self, group: Group) -> None:
        """Start a group's games anew, before the first decision of a page."""
        assert group.t == 0
        group.state, group.starts, group.fresh, group.over = "starting", group.starts + 1, True, []
        self._states[group.rows] = 0.0
        self._ask(group.games)
        self._players.order(group.worker, Restart(group.split, self._counter))

    def listen(self, wait: bool = True) -> None:
        """Take in what the games' players say; by default wait for a word."""
        began = time.perf_counter()
        for event in self._players.hear(wait):
            if isinstance(event, Lost):
                self._lose(event)
            else:
                self._note(*event)
        self.times.waiting += time.perf_counter() - began

    def _note(self, worker: int, answer: Answer) -> None:
        """Write down what a worker says; its split is settled later, perhaps with others."""
        group = self._splits[answer.split][worker]
        if group.state == "starting":
            group.starts -= 1
            group.state = "starting" if group.starts else "ready"
            return
        group.state, group.over = "answered", answer.over
        for ended in answer.ended:
            if ended.whole:
                game, agent = divmod(ended.row, self._spec.num_agents)
                frames = ended.decisions * self._spec.frameskip
                policy, start = int(self._policies[ended.row]), int(self._starts[game])
                end = EpisodeEnd(game, agent, policy, frames, ended.reward, ended.stats, start)
                self._pages.add_end(group.page % self._pages.count, group.t, ended.row, end)

    def _lose(self, event: Lost) -> None:
        """Give up what a lost worker played of its page; the one that took its place joins at the next page."""
        dropped = 0
        for group in self._groups:
            if group.worker != event.worker:
                continue
            decided = group.t + (group.state in ("stepping", "answered"))
            if decided:
                dropped += self._pages.lose(group.page % self._pages.count, decided, group.rows)
                group.page, group.t = group.page + 1, 0
            group.starts = 0  # what the lost one was told, its successor does not know
            self._begin(group)
        self.faults = replace(
            self.faults,
            crashed=self.faults.crashed + (not event.hung),
            hung=self.faults.hung + event.hung,
            dropped=self.faults.dropped + dropped,
            last=f"worker {event.worker}: {event.what}",
        )


def _limits(spec: GameSpec) -> tuple[F32, F32]:
    """What actions are clipped to on their way into the game, [A] each."""
    low, high = [], []
    for part in spec.actions.parts:
        continuous = isinstance(part, Continuous)
        low += [part.low if continuous else 0.0] * part.columns
        high += [part.high if continuous else np.inf] * part.columns
    return np.array(low, np.float32), np.array(high, np.float32)
