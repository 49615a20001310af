"""The collector over single games in worker processes: plays many with the current policies and fills pages.

`collect` plays a page by rounds (`palus.rollout.rounds`), in the caller's thread. Inside `beside` a thread plays the
next one while that page is learned from: all of it, with the policies as they are, so that no bit depends on a clock.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from mmap import mmap
from typing import Any

import numpy as np
import torch

from palus.config.appo import Sampling
from palus.config.environment import Value
from palus.envs.drawing import draw
from palus.envs.game import Game, set_parameters
from palus.errors import StoppedEarly, WorkerError
from palus.nn.distributions import Draw, sample
from palus.nn.place import CPU, Placement
from palus.rollout.acting import Policies, Policy, memories
from palus.rollout.buffer import Buffer
from palus.rollout.layout import Layout, Table, open_memory
from palus.rollout.plan import Share, WorkerPlan, cores_for, plan_workers
from palus.rollout.pool import PATIENCE_S, InlineWorker, WorkerPool, Workers
from palus.rollout.rollout import Cast, Collected
from palus.rollout.rounds import Rounds
from palus.rollout.stepper import WARM_UP_GAMES, Assignment
from palus.types import GameSpec
from palus.unity.news import never

SLOW_START_S = 20.0
"""After so long it is told what games are doing that have not begun."""


class WorkerCollector:
    """A `palus.rollout.rollout.Collector`: rollouts of `horizon` decisions and, of all behaviors together, `rows` rows.

    Close it, or its games stay. All methods are for one thread, the learner's.
    stopped: asked while workers let it wait, also by the thread that plays beside the learner. warn: takes complaints
    as they come; without it they wait for `complaints`.
    """

    def __init__(
        self,
        make: Callable[[], Game],
        spec: GameSpec,
        settings: Sampling,
        *,
        rows: int,
        horizon: int,
        seed: int,
        learners: Mapping[int, tuple[str, Policy]],
        cast: Cast,
        load: Callable[[int], Policy],
        members: Mapping[int, tuple[str, Policy]] | None = None,
        draws: Mapping[str, Draw] | None = None,
        share: Share = Share(),  # noqa: B008  # frozen
        threads: int = 1,
        beside: bool = False,
        place: Placement = CPU,
    ) -> None:
        """make: can be pickled. learners: id -> name of its behavior in the game, policy; members: the same of those
        that never learn. load: gives a frozen policy that `cast` names and nobody published; it and `cast` are called
        in another thread inside `beside`. draws: by behavior, where actions are not sampled. share: which of the run's
        games these are; their rows and workers are those of one rank. threads: that decide while the learner waits.
        beside: whether pages are played while the learner is at work. place: of all policies.

        Raises ConfigError when the games do not divide evenly, StorageError without memory, and, here or from
        `collect`, EnvError when games cannot be made.
        """
        device = not place.compiled
        self.plan = plan_workers(settings, rows, spec.num_agents, share.neighbours, beside=beside and not device)
        self._spec, self._rows, self._horizon = spec, rows, horizon
        self._make, self._pages = make, 2 if beside else 1
        everybody = {**learners, **(members or {})}
        self.policies = Policies({policy: acting for policy, (_, acting) in everybody.items()}, load)
        games, self._place = rows // spec.num_agents, place
        # Those of other ranks would crowd the same cores.
        pinned = settings.affinity and self.plan.workers > 0 and share.neighbours == 1
        cores: Sequence[int | None] = [None] * self.plan.processes
        self._core: int | None = None  # of the thread that decides beside the learner
        if pinned:
            cores, self._core = cores_for(self.plan.workers, device)
        first = share.first(games)
        layout = Layout(spec, games, horizon, self._pages)
        self._memory = open_memory(layout.size)
        self._behavior = {policy: behavior for policy, (behavior, _) in learners.items()}
        try:
            memory = mmap(self._memory, layout.size)
            tables = layout.tables(memory)
            self._warm_up = _warm_up(settings, self.plan, share, horizon)
            self._workers = _workers(
                make, settings, self.plan, layout, self._memory, tables, seed, share, cores, self._warm_up,
                self._end_start,
            )  # fmt: skip
        except BaseException:
            os.close(self._memory)
            raise
        self._unpin = place.pin(np.frombuffer(memory, np.uint8))
        sizes = memories(everybody)
        self._buffers = {
            roster.behavior.name: Buffer(
                spec.env_id,
                roster,
                table,
                sizes.get(roster.behavior.name, 0),
                ((first + np.arange(games))[:, None] * spec.num_agents + np.array(roster.agents)).ravel(),
                (draws or {}).get(roster.behavior.name, sample),
            )
            for roster, table in zip(layout.rosters, tables, strict=True)
        }
        buffers = list(self._buffers.values())
        self._rounds = Rounds(
            spec, self.plan, self._workers, buffers, self.policies, cast, seed, first, 1 if beside else threads
        )
        self._counter, self._parameters = 0, dict[str, Value]()
        self._begun = time.perf_counter()
        self._late = math.inf  # when games that still start are told of
        self.stopped: Callable[[], bool] = never
        self.warn: Callable[[str], object] | None = None
        self._told = 0  # losses that `complaints` has spoken of
        self._before, self._max_restarts = 0, settings.max_restarts  # losses before the latest rollout was complete
        self._started = self._closed = False
        self._released = 0  # pages that may be written again
        self._held = False  # whether the learner reads the one that follows them
        self._outdated = 0  # pages that were played before the game's numbers were set
        self._thread = ThreadPoolExecutor(1, "palus-collector", self._begin_thread) if beside else None
        self._next: Future[None] | None = None  # the page after the one that is learned from

    def collect(self) -> Collected:
        """Play on for one page; pages that hold nothing but losses are passed over.

        Raises WorkerError when workers cannot be kept alive, EnvError when a game breaks its contract, StoppedEarly
        when `stopped` says so while workers are silent, or games are put out of step without any.
        """
        self.release()
        if not self._started:
            self._begin()
        self._hold()
        while all(buffer.is_empty(self._released % self._pages) for buffer in self._buffers.values()):
            self.release()
            self._hold()
        self._before = self._lost
        page = self._released % self._pages
        found = {
            policy: self._buffers[behavior].rollout(
                page, policy, self.policies[policy].state_size, policy not in self.policies.without_values
            )
            for policy, behavior in self._behavior.items()
        }
        rollouts = {policy: rollout for policy, (rollout, _) in found.items()}
        entropies = {policy: entropy for policy, (_, entropy) in found.items()}
        ghost_steps = {behavior: buffer.ghost_steps(page) for behavior, buffer in self._buffers.items()}
        outdated = self._released < self._outdated
        return Collected(rollouts, entropies, *self._rounds.ends(page), ghost_steps, outdated=outdated)

    def release(self) -> None:
        """Let the page that `collect` gave be written again."""
        if self._held:
            self._held = False
            self._pass_over()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """See `Collector.beside`. Whoever leaves it by an exception does not wait; `close` ends what is played."""
        if self._thread is not None:
            self._place.settle()  # what acts there has followed the learners
            self._next = self._thread.submit(self._play, self._released + 1)
        yield
        while self._next is not None and wait([self._next], PATIENCE_S).not_done:
            self._complain()

    def _begin_thread(self) -> None:
        torch.set_num_threads(1)
        self._place.queue_apart()
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})  # of this thread alone

    def _begin(self) -> None:
        """Start all games anew; a page that was played meanwhile is nobody's."""
        self._started = True
        self._heed()
        while self._released < self._rounds.complete:
            self._pass_over()
        self._late = time.monotonic() + SLOW_START_S if self._warm_up else math.inf
        self._rounds.restart(self._counter)

    def _heed(self) -> None:
        """Raise what went wrong while the learner was at work."""
        if self._next is not None:
            played, self._next = self._next, None
            played.result()

    def _pass_over(self) -> None:
        self._rounds.clear(self._released % self._pages)
        self._released += 1

    def _hold(self) -> None:
        """Hold the next page, which has been played or is played now."""
        self._heed()
        self._play(self._released, self._complain)
        self._held = True

    def _play(self, page: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Play on to the end of a page. meanwhile: called after every round."""
        if self._rounds.complete > page:
            return
        self._rounds.listen(wait=False)  # a worker lost meanwhile is replaced before it costs decisions
        while self._rounds.complete <= page and not self._closed:
            self._rounds.play(page + 1)
            meanwhile()
            vain = self._lost - self._before
            if vain > self._max_restarts:
                raise WorkerError(
                    f"{vain} workers were lost before a rollout was complete, more than palus.sampling.max_restarts: "
                    f"{self._max_restarts}. The last one, {self._rounds.tally.last}"
                )
            if self._rounds.idle:
                self._end_early()
        self._rounds.weigh()

    def _end_early(self) -> None:
        if self.stopped():
            raise StoppedEarly

    def _end_start(self) -> None:
        """While games of the main process start: what has begun is played to the end."""
        if self.stopped() and self._rounds.starting:
            raise StoppedEarly

    @property
    def in_play(self) -> set[int]:
        """Ids of frozen policies that a running match needs; none where all are to start anew."""
        return self._rounds.in_play

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
        self._outdated = self._rounds.complete
        if dict(parameters) == self._parameters:
            return
        game = self._make()  # whose refusal is heard here
        try:
            set_parameters(game, {name: draw(value) for name, value in parameters.items()})
        finally:
            game.close()
        self._parameters = dict(parameters)
        self._rounds.set_parameters(self._parameters)

    def restart(self) -> None:
        """Give up all games that run, and what was played beside the learner."""
        self._counter += 1
        self._started = False
        self._rounds.give_up()

    def shape_rewards(self, policy: int, numbers: Sequence[float]) -> None:
        """Pay a policy by these numbers, those of the game's `GameSpec.shaping`, in games that begin from now on."""
        self._rounds.shape(policy, numbers)

    def performance(self) -> Mapping[str, float]:
        """Shares of the time since the collector was made, and what was lost and repaired."""
        tally, seconds = self._rounds.tally, max(time.perf_counter() - self._begun, 1e-9)
        return {
            "Performance/Deciding Share": tally.deciding / seconds,
            "Performance/Waiting Share": tally.waiting / seconds,
            "Sampling/Crashed": float(tally.crashed),
            "Sampling/Hung": float(tally.hung),
            "Sampling/Dropped Decisions": float(tally.dropped),
        }

    def describe(self) -> list[str]:
        """Games, where they are stepped, and what a step is."""
        agents, rows, horizon = self._spec.num_agents, self._rows, self._horizon
        place = f"{self.plan.workers} workers" if self.plan.workers else "the main process"
        lines = [f"{rows // agents} games of {agents} agents in {place} x {horizon} decisions = {rows * horizon} rows"]
        if self._thread is not None:
            lines.append("each rollout is played while the one before is learned from (palus.sampling.asynchronous)")
        skip = self._spec.frameskip
        return [*lines, f"a decision takes {skip} engine frames"] if skip > 1 else lines

    def complaints(self) -> Sequence[str]:
        """That workers were lost since the last call; training goes on."""
        tally, lost = self._rounds.tally, self._lost
        if lost == self._told:
            return []
        self._told = lost
        return [
            f"lost {tally.last}. A new one took its place and training goes on; so far {lost} were lost, "
            f"and {tally.dropped} decisions with them."
        ]

    def _complain(self) -> None:
        """Tell at once where somebody listens: a rollout may never come."""
        if self.warn is None:
            return
        for line in self.complaints():
            self.warn(line)
        if time.monotonic() > self._late and self._rounds.idle and self._rounds.starting:
            self._late = math.inf
            self.warn(
                f"games have been starting for {SLOW_START_S:g} s; each is put out of step by up to {self._warm_up} "
                "random decisions, which palus.sampling.decorrelate: false leaves out."
            )

    @property
    def _lost(self) -> int:
        return self._rounds.tally.crashed + self._rounds.tally.hung

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; each leads a process group, its games' processes among them."""
        return self._workers.pids

    def save(self) -> dict[str, Any]:
        """Start all games anew before the next page, with seeds that follow from the run's and the saves so far."""
        self.restart()
        return {"tick": self._rounds.before + self._rounds.complete, "counter": self._counter}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue where `save` was called; before the first `collect`. KeyError, ValueError: it is of another kind."""
        self._rounds.before, self._counter = int(state["tick"]), int(state["counter"])

    def close(self) -> None:
        """End the thread, the workers and their games; calling it twice does no harm. Collected pages stay readable."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._thread is not None:
                self._workers.wake()
                self._thread.shutdown()
        finally:
            self._unpin()
            self._rounds.close()
            self._workers.close()
            os.close(self._memory)


def _warm_up(settings: Sampling, plan: WorkerPlan, share: Share, horizon: int) -> int:
    """The most random decisions before a game counts."""
    games = plan.splits * plan.games * (1 if plan.workers else share.size)  # as one process of as many workers has
    return horizon * min(games, WARM_UP_GAMES) if settings.decorrelate else 0


def _workers(
    make: Callable[[], Game],
    settings: Sampling,
    plan: WorkerPlan,
    layout: Layout,
    memory: int,
    tables: Sequence[Table],
    seed: int,
    share: Share,
    cores: Sequence[int | None],
    warm_up: int,
    alive: Callable[[], object],
) -> Workers:
    """Start whatever steps the games. alive: called after each thing that a game of the main process does."""
    assignments = [
        Assignment(
            worker=worker,
            make=make,
            splits=tuple(plan.games_of(worker, split) for split in range(plan.splits)),
            seed=seed,
            warm_up=warm_up,
            core=cores[worker],
            first=share.first(layout.games),
        )
        for worker in range(plan.processes)
    ]
    if plan.workers:
        return WorkerPool(assignments, layout, memory, timeout_s=settings.timeout, max_restarts=settings.max_restarts)
    return InlineWorker(assignments[0], layout, tables, alive)
