"""The rounds of collecting: deciding for games, what follows from their steps, what becomes of those of a lost worker.

A shard is a worker's games of one split. It is decided for (one forward pass serves many shards), stepped by its
worker, settled (ends, memory, new opponents), and ready again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from palus.config.environment import Value
from palus.rollout.acting import Policies
from palus.rollout.buffer import Buffer, Place
from palus.rollout.episodes import Episodes
from palus.rollout.plan import WorkerPlan
from palus.rollout.pool import Lost, Workers
from palus.rollout.rollout import ENDLESS, FROZEN, Cast, Episode, FinishedMatch, Seat
from palus.rollout.stepper import Answer, Restart, StepOrder
from palus.types import F64, I64, GameSpec

TRIED_EVERY = 64
"""Pages between those that try whether splits are better decided for in the other way."""

State = Literal["starting", "stepping", "answered", "ready"]
Ends = list[tuple[int, int, int, Episode | FinishedMatch]]
"""Decision, game, agent (-1 for the match), and what ended."""


@dataclass
class GameGroup:
    """It stands before decision t of a page, counted from the first page of all.

    state: starting (restarts are under way, `starts` of them), stepping, answered (stepped, not yet settled), ready.
    fresh: its first observations lie aside. answer: to the latest step.
    """

    worker: int
    split: int
    games: range
    agents: int
    page: int = 0
    t: int = 0
    state: State = "starting"
    starts: int = 0
    fresh: bool = True
    answer: Answer | None = None


@dataclass
class Tally:
    """So far: seconds of forward passes and draws, seconds of waiting for games, workers lost, decisions thrown away
    with them; which worker was lost last, and how."""

    deciding: float = 0.0
    waiting: float = 0.0
    crashed: int = 0
    hung: int = 0
    dropped: int = 0
    last: str = ""


class Rounds:
    """Plays on, round by round. A round takes splits as a whole: its batches, and with them every bit, do not depend on
    which worker was faster.

    Splits are decided for in turns, each while the others step, or side by side on several threads, once all have
    stepped: as it is quicker, by the clock. The bits are the same.
    """

    def __init__(
        self,
        spec: GameSpec,
        plan: WorkerPlan,
        workers: Workers,
        buffers: Sequence[Buffer],
        policies: Policies,
        cast: Cast,
        seed: int,
        first: int = 0,
        threads: int = 1,
    ) -> None:
        """first: the number of the first match in the run. threads: to decide on."""
        self.tally = Tally()
        self.idle = False  # the latest round waited, and nobody answered
        self._threads = min(threads, plan.splits)
        helpers = self._threads - 1
        self._pool = ThreadPoolExecutor(helpers, "deciding", torch.set_num_threads, (1,)) if helpers else None
        self._side_by_side = self._pool is not None
        self._seconds: dict[bool, float] = {}  # of a page, by whether its splits were decided for side by side
        self._spent, self._played, self._started = 0.0, 0, False  # of this page: seconds; whether games were started
        self.before = 0  # pages of earlier parts of the run; with page and decision part of the key of every draw
        self._first = first
        self._workers, self._buffers, self._policies, self._cast = workers, buffers, policies, cast
        self._seed = seed
        self._pages, self._horizon, _ = buffers[0].table.rewards.shape
        self._ends: list[Ends] = [[] for _ in range(self._pages)]
        self._shards = [
            GameGroup(worker, split, plan.games_of(worker, split), spec.num_agents)
            for split in range(plan.splits)
            for worker in range(plan.processes)
        ]
        self._splits = [[s for s in self._shards if s.split == split] for split in range(plan.splits)]
        self._hosts = {game: shard for shard in self._shards for game in shard.games}
        self._seats: list[tuple[Seat, ...]] = [()] * len(self._hosts)
        self._episodes = Episodes(spec, len(self._hosts), first)
        self._age = np.zeros(len(self._hosts), np.int64)  # decisions since the match was cast, in whole pages
        self._recast = np.zeros(len(self._hosts), np.bool_)  # it was cast anew while it ran
        self._endless = not spec.max_decisions
        self._counter = 0
        self._default = np.array([value for _, value in spec.shaping])
        self._shaping: dict[int, F64] = {}

    @property
    def complete(self) -> int:
        """Pages that every shard has left behind."""
        return min(shard.page for shard in self._shards)

    @property
    def starting(self) -> bool:
        """Whether games are under way to their first decision."""
        return any(shard.state == "starting" for shard in self._shards)

    @property
    def in_play(self) -> set[int]:
        """Frozen policies that a running match needs."""
        return {seat.policy for seats in self._seats for seat in seats if seat.policy >= FROZEN}

    def ends(self, page: int) -> tuple[list[Episode], list[FinishedMatch]]:
        """What ended in a page, by decision, then by game and agent."""
        # Workers speak in any order; what is learned from their words must not depend on it.
        told = [end for *_, end in sorted(self._ends[page], key=lambda e: e[:3])]
        return [e for e in told if isinstance(e, Episode)], [e for e in told if isinstance(e, FinishedMatch)]

    def clear(self, page: int) -> None:
        """Let a page be written again."""
        self._ends[page].clear()
        for buffer in self._buffers:
            buffer.clear(page)

    def give_up(self) -> None:
        """No match goes on; `restart` begins others."""
        self._seats = [()] * len(self._seats)

    def restart(self, counter: int) -> None:
        """Start all games anew, where they stand. counter: part of their seeds."""
        self._counter, self._started = counter, True
        for shard in self._shards:
            self._begin(shard)

    def shape(self, policy: int, numbers: Sequence[float]) -> None:
        """What a policy is paid by in games that begin from now on."""
        self._shaping[policy] = np.array(numbers, np.float64)

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games before the next round."""
        self._workers.set_parameters(parameters)

    def play(self, limit: int) -> None:
        """One round: settle who has stepped, decide for who may go on, else listen. Pages below `limit` are free."""
        self.idle = False
        settled = whole_splits(self._splits, "answered")
        for batch in settled:
            self._settle(batch)
        decided = [batch for batch in whole_splits(self._splits, "ready") if batch[0].page < limit]
        if self._side_by_side and any(s.state in ("stepping", "answered") for s in self._shards):
            decided = []
        for batches in [decided] if self._side_by_side and decided else [[batch] for batch in decided]:
            self._decide(batches)
        if not settled and not decided:
            self.listen()

    def weigh(self) -> None:
        """A page is played: see whether the next one's splits are to be decided for side by side."""
        self._played += 1
        if self._pool is not None and not self._started:
            self._seconds[self._side_by_side] = self._spent
            if len(self._seconds) == 1 or self._played % TRIED_EVERY == 0:
                self._side_by_side = not self._side_by_side
            else:
                self._side_by_side = self._seconds[True] <= self._seconds[False]
        self._spent, self._started = 0.0, False

    def _decide(self, batches: Sequence[list[GameGroup]]) -> None:
        """Decide for batches, side by side where there are threads, and have them step."""
        began = time.perf_counter()
        for shard in itertools.chain.from_iterable(batches):
            if shard.t == 0:
                self._cast_anew(shard.games)
                for buffer in self._buffers:
                    buffer.open(shard.page % self._pages, buffer.roster.rows(shard.games), shard.fresh)
                shard.fresh = False
        own, others = batches[:: self._threads], [batch for i, batch in enumerate(batches) if i % self._threads]
        waiting = [self._pool.submit(self._act, batch) for batch in others] if self._pool else []
        for batch in own:
            self._act(batch)
        for future in waiting:
            future.result()
        for batch in batches:
            for shard in batch:
                shard.state = "stepping"
            order = StepOrder(batch[0].split, batch[0].page % self._pages, batch[0].t)
            self._workers.order([shard.worker for shard in batch], order)
        seconds = time.perf_counter() - began
        self.tally.deciding += seconds
        self._spent += seconds

    def _act(self, batch: list[GameGroup]) -> None:
        """Draw a batch's actions; several batches may, side by side."""
        tick = (self.before + batch[0].page) * self._horizon + batch[0].t
        for buffer in self._buffers:
            buffer.decide(self._policies, *self._locate(batch, buffer), self._seed, tick)

    def _settle(self, batch: list[GameGroup]) -> None:
        """Draw the consequences of a step that was played."""
        self._tell(batch)
        for shard in batch:
            assert shard.answer
            self._seat([over.game for over in shard.answer.over])
            shard.state, shard.t = "ready", shard.t + 1
            if shard.t == self._horizon:
                for buffer in self._buffers:
                    buffer.close(shard.page % self._pages, buffer.roster.rows(shard.games))
                shard.page, shard.t = shard.page + 1, 0

    def _tell(self, batch: list[GameGroup]) -> None:
        """Write down what ended with a step."""
        games = _together(batch, 1)
        shape = self._episodes.length[games].shape
        active, ended = np.zeros((2, *shape), np.bool_)
        reward, group_reward = np.zeros((2, *shape), np.float32)
        for buffer in self._buffers:
            brought = buffer.settle(*self._locate(batch, buffer))
            for whole, part in zip((active, reward, group_reward, ended), brought, strict=True):
                whole[:, buffer.roster.columns] = part.reshape(shape[0], -1)
        answers = [(shard, shard.answer) for shard in batch if shard.answer]
        stats = {game: told for _, answer in answers for game, told in answer.stats.items()}
        for episode in self._episodes.add(games, active, reward, group_reward, ended, self._seats, stats):
            shard = self._hosts[episode.slot - self._first]
            episode = replace(episode, decision=shard.t)
            self._ends[shard.page % self._pages].append((shard.t, episode.slot, episode.agent, episode))
        for shard, answer in answers:
            for over in answer.over:
                if over.whole:
                    points = () if self._recast[over.game] else over.points
                    match = FinishedMatch(self._first + over.game, points, self._seats[over.game], shard.t)
                    self._ends[shard.page % self._pages].append((shard.t, over.game, -1, match))

    def _locate(self, batch: Sequence[GameGroup], buffer: Buffer) -> tuple[Place, slice | I64]:
        """Where a batch lies, which is at one decision: index into [pages, T, B], index into [B]; views, not copies,
        where its rows are neighbours."""
        rows = _together(batch, len(buffer.roster.agents))
        return (batch[0].page % self._pages, batch[0].t, rows), rows

    def _seat(self, games: Sequence[int]) -> None:
        """Who plays in games that begin, and what pays them."""
        for game in games:
            seats = self._seats[game] = tuple(self._cast(self._first + game))
            self._age[game], self._recast[game] = 0, False
            paid = {seat.policy: self._shaping.get(seat.policy, self._default) for seat in seats}
            for buffer in self._buffers:
                buffer.seat(game, seats, self._policies, paid)
        if self._policies.retired:
            self._policies.forget(self.in_play)

    def _cast_anew(self, games: range) -> None:
        """A page begins: change who plays in matches that go on and on; where somebody changes, memories begin anew."""
        for game in games if self._endless else ():
            if self._age[game] >= ENDLESS:
                before, recast = self._seats[game], self._recast[game]
                self._seat([game])
                self._recast[game] = recast or before != self._seats[game]
                if before != self._seats[game]:
                    self._episodes.forget(np.array([game]), partial=True)
                    for buffer in self._buffers:
                        buffer.states[buffer.roster.rows(range(game, game + 1))] = 0.0
        self._age[games.start : games.stop] += self._horizon

    def _begin(self, shard: GameGroup) -> None:
        """Start a shard's games anew, before the first decision of a page."""
        assert shard.t == 0
        shard.state, shard.starts, shard.fresh = "starting", shard.starts + 1, True
        for buffer in self._buffers:
            buffer.states[buffer.roster.rows(shard.games)] = 0.0
        self._seat(shard.games)
        self._workers.order([shard.worker], Restart(shard.split, self._counter))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def listen(self, wait: bool = True) -> None:
        """Take in what the workers say; by default wait for a word."""
        began = time.perf_counter()
        events = self._workers.hear(wait)
        self.idle = not events
        for event in events:
            if isinstance(event, Lost):
                self._lose(event)
            else:
                self._note(*event)
        seconds = time.perf_counter() - began
        self.tally.waiting += seconds
        self._spent += seconds

    def _note(self, worker: int, answer: Answer) -> None:
        """Write down what a worker says; its split is settled later, perhaps with others."""
        shard = self._splits[answer.split][worker]
        if shard.state == "starting":
            shard.starts -= 1
            shard.state = "starting" if shard.starts else "ready"
            self._episodes.forget(_together([shard], 1))
            self._episodes.partial[answer.partial] = True
            return
        shard.state, shard.answer = "answered", answer

    def _lose(self, event: Lost) -> None:
        """Give up what a lost worker played of its page; the one that took its place joins at the next page."""
        for shard in self._shards:
            if shard.worker != event.worker:
                continue
            decided = shard.t + (shard.state in ("stepping", "answered"))
            if decided:
                page = shard.page % self._pages
                for buffer in self._buffers:
                    self.tally.dropped += buffer.lose(page, decided, buffer.roster.rows(shard.games))
                shard.page, shard.t = shard.page + 1, 0
            shard.starts = 0  # what the lost one was told, its successor does not know
            self._begin(shard)
        self.tally.crashed += not event.hung
        self.tally.hung += event.hung
        self.tally.last = f"worker {event.worker}: {event.what}"


def _together(batch: Sequence[GameGroup], width: int) -> slice | I64:
    """The rows of all games of a batch, `width` of each."""
    own = [(shard.games.start * width, shard.games.stop * width) for shard in batch]
    first, end = own[0][0], own[-1][1]
    if end - first == sum(stop - start for start, stop in own):
        return slice(first, end)
    return np.concatenate([np.arange(start, stop) for start, stop in own])


def whole_splits(splits: Sequence[Sequence[GameGroup]], state: State) -> list[list[GameGroup]]:
    """The splits that are in this state as a whole, furthest behind first.

    Neither the batches nor their order depend on which worker was faster.
    """
    fronts = []
    for split in splits:
        if all(s.state != state for s in split):
            continue
        place = min((s.page, s.t) for s in split)
        # Shards that were lost are ahead, at the next page, where the others wait for them.
        front = [s for s in split if (s.page, s.t) == place]
        if all(s.state == state for s in front):
            fronts.append((place, front))
    return [front for _, front in sorted(fronts, key=lambda pair: pair[0])]
