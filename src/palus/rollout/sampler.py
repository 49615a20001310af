"""The sampler: plays many games with the current policies and fills pages for the learner.

Synchronous: `collect` plays a page, in the caller's thread. Asynchronous: the same rounds (`palus.rollout.rounds`) run
in a thread and fill the next page while one is learned from; without a free page they pause.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from mmap import mmap
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from palus.config.appo import Sampling
from palus.rollout.acting import Actor, Policy
from palus.rollout.affinity import Staff, core_for, plan_staff
from palus.rollout.layout import Layout, SharedArrays, open_memory
from palus.rollout.messages import GameMaker, Posting
from palus.rollout.pages import Pages
from palus.rollout.rounds import Assign, Rounds, SamplerTimes
from palus.rollout.stepper import WARM_UP_GAMES
from palus.rollout.supervision import Crew, Players, Soloist
from palus.rollout.trajectories import EpisodeEnd, SamplerFaults, Trajectories
from palus.types import GameSpec


class Sampler:
    """Collects `Trajectories` of `rows` rows and `horizon` decisions. Close it, or use it as a context manager.

    All methods are for one thread, the learner's.
    """

    def __init__(
        self,
        make: GameMaker,
        spec: GameSpec,
        settings: Sampling,
        *,
        rows: int,
        horizon: int,
        seed: int,
        policies: Mapping[int, Policy],
        assign: Assign,
        reward_scale: float = 1.0,
        reward_clip: float = np.inf,
    ) -> None:
        """policies: by id, every id that `assign` returns among them. rows: all agents of all games.

        `assign` is called in the sampler's thread when it is asynchronous. Raises ConfigError when the games do not
        divide evenly, StorageError without memory, and, here or from `collect`, EnvError when games cannot be made.
        """
        self.staff = plan_staff(settings, rows, spec.num_agents)
        self._asynchronous = settings.asynchronous
        self._reward_scale, self._reward_clip = reward_scale, reward_clip
        self._actor = Actor(policies, spec.actions, seed)
        layout = Layout(spec, rows, horizon, settings.pages if settings.asynchronous else 1)
        self._memory = open_memory(layout.size)
        try:
            shared = layout.arrays(mmap(self._memory, layout.size))
            self._pages = Pages(layout, shared, self._actor.state_size)
            self._players = _players(make, settings, self.staff, layout, self._memory, shared, seed)
        except BaseException:
            os.close(self._memory)
            raise
        self._rounds = Rounds(
            spec, self.staff, self._players, shared, self._pages, self._actor, assign, self._asynchronous
        )
        self._counter = 0
        self._started = self._closed = False
        self._released = 0  # pages that may be written again
        self._held: int | None = None  # the page that the learner reads
        self._taken: set[int] = set()  # policies that have seen it
        self._thread: threading.Thread | None = None
        self._progress = threading.Condition()
        self._error: BaseException | None = None

    def collect(self, policy: int = 0) -> tuple[Trajectories, list[EpisodeEnd]]:
        """The next page as this policy may learn from it, and the policy's episodes that ended in it.

        Several policies share pages: each call with another policy gives the same page, a call with one that has seen
        it gives the next, and releases it. Views stay good until then. Raises WorkerError when workers cannot be kept
        alive, EnvError when a game breaks its contract.
        """
        if self._held is None or policy in self._taken:
            self._turn()
        assert self._held is not None
        self._taken.add(policy)
        page = self._held % self._pages.count
        trajectories = self._pages.trajectories(page, policy, self._reward_scale, self._reward_clip)
        return trajectories, self._pages.ends(page, policy)

    def release(self) -> None:
        """Let the page that `collect` gave be written again; what was learned from it must be done with."""
        if self._held is None:
            return
        self._pages.clear(self._held % self._pages.count)
        self._held, self._released = None, self._released + 1
        self._taken.clear()
        if self._thread:
            self._players.wake()

    def _turn(self) -> None:
        """Hold the next page; pages that hold nothing but losses are passed over."""
        self.release()
        self._start()
        while True:
            page = self._released
            if self._asynchronous:
                self._await(page)
            else:
                self._rounds.listen(wait=False)  # a worker lost meanwhile is replaced before it costs decisions
                while self._rounds.complete <= page:
                    self._rounds.play(page + 1)
            self._held = page
            if not self._pages.is_empty(page % self._pages.count):
                return
            self.release()

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        self._rounds.restart(self._counter)
        if self._asynchronous:
            self._thread = threading.Thread(target=self._play_on, name="palus-sampler", daemon=True)
            self._thread.start()

    def _await(self, page: int) -> None:
        with self._progress:
            while self._rounds.complete <= page and self._error is None:
                self._progress.wait()
        if self._error is not None:
            raise self._error

    def _play_on(self) -> None:
        """The asynchronous thread."""
        torch.set_num_threads(1)  # this thread's own number: the learner needs the other cores
        try:
            while not self._closed:
                complete = self._rounds.complete
                self._rounds.play(self._released + self._pages.count)
                if self._rounds.complete > complete:
                    with self._progress:
                        self._progress.notify_all()
        except BaseException as error:  # it belongs to the learner's thread, which waits for a page
            with self._progress:
                self._error = error
                self._progress.notify_all()

    def publish(self, policy_id: int, policy: Policy) -> None:
        """Act with these weights from the next batch on. On return, no batch uses the former ones any more."""
        self._actor.publish(policy_id, policy)

    def shape_rewards(self, policy_id: int, numbers: Sequence[float]) -> None:
        """Pay a policy by these numbers, those of the game's `GameSpec.shaping`, in games that begin from now on."""
        self._rounds.shape(policy_id, numbers)

    def restart_games(self, counter: int) -> None:
        """Start all games anew before the next page, with seeds that follow from the run's seed and `counter`.

        Games cannot be saved: a run that does this at its checkpoints goes on from one as if it had never stopped.
        Asynchronous runs do not repeat anyway, and their games go on.
        """
        self._counter = counter
        if not self._asynchronous:
            self._started = False

    @property
    def all_ends(self) -> list[EpisodeEnd]:
        """Episodes of every policy, frozen ones included, that ended in the page that is held."""
        return [] if self._held is None else self._pages.ends(self._held % self._pages.count)

    @property
    def faults(self) -> SamplerFaults:
        """What went wrong and was repaired."""
        return self._rounds.faults

    @property
    def times(self) -> SamplerTimes:
        """Where the time of the sampler's thread went."""
        return self._rounds.times

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; each leads a process group, its games' processes among them."""
        return self._players.pids

    @property
    def entropy(self) -> dict[int, float]:
        """Policy id -> mean entropy, nats, of its decisions in the page that is held."""
        return {
            policy: self._pages.entropy(self._held % self._pages.count, policy)
            for policy in self._taken
            if self._held is not None
        }

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, after `restart_games`: numbers alone."""
        return {"tick": self._actor.tick, "counter": self._counter}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the sampler whose state this is; before the first `collect`."""
        self._actor.tick = int(state["tick"])
        self.restart_games(int(state["counter"]))

    def close(self) -> None:
        """End the thread, the workers and their games; calling it twice does no harm. Collected pages stay readable."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._thread:
                self._players.wake()
                self._thread.join()
        finally:
            self._players.close()
            os.close(self._memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _players(
    make: GameMaker,
    settings: Sampling,
    staff: Staff,
    layout: Layout,
    memory: int,
    shared: SharedArrays,
    seed: int,
) -> Players:
    """Start whoever steps the games."""
    warm_up = layout.horizon * min(staff.splits * staff.games, WARM_UP_GAMES) if settings.decorrelate else 0
    pinned = settings.affinity and staff.workers > 0
    postings = [
        Posting(
            worker=worker,
            make=make,
            splits=tuple(staff.games_of(worker, split) for split in range(staff.splits)),
            seed=seed,
            warm_up=warm_up,
            core=core_for(worker, staff.workers) if pinned else None,
        )
        for worker in range(staff.teams)
    ]
    if staff.workers:
        return Crew(postings, layout, memory, timeout_s=settings.timeout, max_restarts=settings.max_restarts)
    return Soloist(postings[0], layout, shared)
