"""The collector over single games in worker processes: plays many with the current policies and fills pages.

Synchronous: `collect` plays a page, in the caller's thread. Asynchronous: the same rounds (`palus.rollout.rounds`) run
in a thread and fill the next page while one is learned from; without a free page they pause.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from typing import Any

import numpy as np
import torch

from palus.config.appo import Sampling
from palus.config.environment import Value
from palus.envs.drawing import draw
from palus.envs.game import Game, set_parameters
from palus.nn.distributions import Draw, sample
from palus.rollout.acting import Policies, Policy, memories
from palus.rollout.buffer import Buffer
from palus.rollout.layout import Layout, Table, open_memory
from palus.rollout.plan import Share, WorkerPlan, core_for, plan_workers
from palus.rollout.pool import InlineWorker, WorkerPool, Workers
from palus.rollout.rollout import Cast, Collected
from palus.rollout.rounds import Rounds
from palus.rollout.stepper import WARM_UP_GAMES, Assignment
from palus.types import GameSpec


class WorkerCollector:
    """A `palus.rollout.rollout.Collector`: rollouts of `horizon` decisions and, of all behaviors together, `rows` rows.

    Close it, or its games stay. All methods are for one thread, the learner's.
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
    ) -> None:
        """make: can be pickled. learners: id -> name of its behavior in the game, policy; members: the same of those
        that never learn. load: gives a frozen policy that `cast` names and nobody published; it and `cast` are called
        in a thread of their own when it is asynchronous. draws: by behavior, where actions are not sampled. share:
        which of the run's games these are; their rows and workers are those of one rank. threads: that decide while
        the learner waits.

        Raises ConfigError when the games do not divide evenly, StorageError without memory, and, here or from
        `collect`, EnvError when games cannot be made.
        """
        self.plan = plan_workers(settings, rows, spec.num_agents, share.neighbours)
        self._spec, self._rows, self._horizon = spec, rows, horizon
        self._make, self._asynchronous = make, settings.asynchronous
        self._pages = settings.pages if self._asynchronous else 1
        everybody = {**learners, **(members or {})}
        self.policies = Policies({policy: acting for policy, (_, acting) in everybody.items()}, load)
        games = rows // spec.num_agents
        first = share.first(games)
        layout = Layout(spec, games, horizon, self._pages)
        self._memory = open_memory(layout.size)
        self._behavior = {policy: behavior for policy, (behavior, _) in learners.items()}
        try:
            tables = layout.tables(mmap(self._memory, layout.size))
            self._workers = _workers(make, settings, self.plan, layout, self._memory, tables, seed, share)
        except BaseException:
            os.close(self._memory)
            raise
        sizes = memories(everybody)
        self._buffers = {
            roster.behavior.name: Buffer(
                spec.env_id,
                roster,
                table,
                sizes.get(roster.behavior.name, 0),
                self._asynchronous,
                ((first + np.arange(games))[:, None] * spec.num_agents + np.array(roster.agents)).ravel(),
                (draws or {}).get(roster.behavior.name, sample),
            )
            for roster, table in zip(layout.rosters, tables, strict=True)
        }
        buffers = list(self._buffers.values())
        self._rounds = Rounds(
            spec, self.plan, self._workers, buffers, self.policies, cast, seed, self._asynchronous, first, threads
        )
        self._counter, self._parameters = 0, dict[str, Value]()
        self._begun = time.perf_counter()
        self._told = 0  # losses that `complaints` has spoken of
        self._started = self._closed = False
        self._released = 0  # pages that may be written again
        self._held = False  # whether the learner reads the one that follows them
        self._thread: threading.Thread | None = None
        self._progress = threading.Condition()
        self._error: BaseException | None = None

    def collect(self) -> Collected:
        """Play on for one page; pages that hold nothing but losses are passed over.

        Raises WorkerError when workers cannot be kept alive, EnvError when a game breaks its contract.
        """
        self.release()
        if not self._started:
            self._started = True
            self._rounds.restart(self._counter)
            if self._asynchronous:
                self._thread = threading.Thread(target=self._play_on, name="palus-collector", daemon=True)
                self._thread.start()
        self._play_page()
        while all(buffer.is_empty(self._released % self._pages) for buffer in self._buffers.values()):
            self.release()
            self._play_page()
        page = self._released % self._pages
        found = {
            policy: self._buffers[behavior].rollout(page, policy, policy not in self.policies.without_values)
            for policy, behavior in self._behavior.items()
        }
        rollouts = {policy: rollout for policy, (rollout, _) in found.items()}
        entropies = {policy: entropy for policy, (_, entropy) in found.items()}
        ghost_steps = {behavior: buffer.ghost_steps(page) for behavior, buffer in self._buffers.items()}
        return Collected(rollouts, entropies, *self._rounds.ends(page), ghost_steps)

    def release(self) -> None:
        """Let the page that `collect` gave be written again."""
        if not self._held:
            return
        self._rounds.clear(self._released % self._pages)
        self._held, self._released = False, self._released + 1
        if self._thread:
            self._workers.wake()

    def _play_page(self) -> None:
        """Hold the next page."""
        page = self._released
        if self._asynchronous:
            with self._progress:
                while self._rounds.complete <= page and self._error is None:
                    self._progress.wait()
            if self._error is not None:
                raise self._error
        else:
            self._rounds.listen(wait=False)  # a worker lost meanwhile is replaced before it costs decisions
            while self._rounds.complete <= page:
                self._rounds.play(page + 1)
            self._rounds.weigh()
        self._held = True

    def _play_on(self) -> None:
        """The asynchronous thread."""
        torch.set_num_threads(1)  # this thread's own number: the learner needs the other cores
        try:
            while not self._closed:
                complete = self._rounds.complete
                self._rounds.play(self._released + self._pages)
                if self._rounds.complete > complete:
                    with self._progress:
                        self._progress.notify_all()
        except BaseException as error:  # it belongs to the learner's thread, which waits for a page
            with self._progress:
                self._error = error
                self._progress.notify_all()

    @property
    def in_play(self) -> set[int]:
        """Ids of frozen policies that a running match needs; none where all are to start anew."""
        return self._rounds.in_play if self._started else set()

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
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
        """Give up all games that run; asynchronous ones go on."""
        self._counter += 1
        if not self._asynchronous:
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
        skip = self._spec.frameskip
        return [*lines, f"a decision takes {skip} engine frames"] if skip > 1 else lines

    def complaints(self) -> Sequence[str]:
        """That workers were lost since the last call; training goes on."""
        tally = self._rounds.tally
        lost = tally.crashed + tally.hung
        if lost == self._told:
            return []
        self._told = lost
        return [
            f"lost {tally.last}. A new one took its place and training goes on; so far {lost} were lost, "
            f"and {tally.dropped} decisions with them."
        ]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; each leads a process group, its games' processes among them."""
        return self._workers.pids

    def save(self) -> dict[str, Any]:
        """Start all games anew before the next page, with seeds that follow from the run's seed and the saves so far.

        Asynchronous runs do not repeat anyway, and their games go on.
        """
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
            if self._thread:
                self._workers.wake()
                self._thread.join()
        finally:
            self._rounds.close()
            self._workers.close()
            os.close(self._memory)


def _workers(
    make: Callable[[], Game],
    settings: Sampling,
    plan: WorkerPlan,
    layout: Layout,
    memory: int,
    tables: Sequence[Table],
    seed: int,
    share: Share,
) -> Workers:
    """Start whatever steps the games."""
    games = plan.splits * plan.games * (1 if plan.workers else share.size)  # as one process of as many workers has
    warm_up = layout.horizon * min(games, WARM_UP_GAMES) if settings.decorrelate else 0
    pinned = settings.affinity and plan.workers > 0 and share.neighbours == 1  # others would crowd these cores
    assignments = [
        Assignment(
            worker=worker,
            make=make,
            splits=tuple(plan.games_of(worker, split) for split in range(plan.splits)),
            seed=seed,
            warm_up=warm_up,
            core=core_for(worker, plan.workers) if pinned else None,
            first=share.first(layout.games),
        )
        for worker in range(plan.processes)
    ]
    if plan.workers:
        return WorkerPool(assignments, layout, memory, timeout_s=settings.timeout, max_restarts=settings.max_restarts)
    return InlineWorker(assignments[0], layout, tables)
