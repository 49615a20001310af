"""A league on a Ray cluster: one actor for each run, on whatever machine has room. The only module that imports Ray.

An actor holds no truth: it keeps its run in a process beside it (`palus.cluster.keeping`), which goes on from the
checkpoint on the league's storage. An actor that is gone, with its machine or without, is replaced by another one.
Where the driver or Ray's head dies, runs save and end, and the same command goes on. What a run prints comes by the
actor's other concurrency group, which answers while it trains.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from palus import __version__
from palus.cluster.keeping import Keeper, Tail
from palus.cluster.plan import LeaguePlan
from palus.errors import ConfigError, WorkerError
from palus.launch.apart import Ending
from palus.processes import ending_signals
from palus.trust import Trust

POLL_S = 1.0
FRUITLESS = 20
"""An actor that dies so often before it trained for a minute has no machine to live on."""
STARTING_S = 30.0
"""An actor that has not answered by then most likely waits for room."""


class RunActor:
    """Keeps one run of a league on the machine where Ray put it."""

    def __init__(self, plan: LeaguePlan, name: str, trust: Trust, version: str) -> None:
        """version: of the driver's palus. Raises ConfigError where it is another one here."""
        if version != __version__:
            raise ConfigError(
                f"{socket.gethostname()} has palus {__version__}, and the league was started by {version}; install the "
                "same on all machines"
            )
        self._said: list[str] = [f"trains on {socket.gethostname()}"]
        self._tail, self._keeper = Tail(plan.log(name)), Keeper(plan, name, trust, self._said.append)

    def keep(self) -> Ending:
        """Train to the end."""
        return self._keeper.keep()

    def news(self) -> list[str]:
        """Lines since the last call."""
        said, self._said[:] = list(self._said), []
        return said + self._tail.lines()

    def stop(self) -> None:
        """Let the run save and end."""
        self._keeper.stop.set()


class _Place:
    """An actor from the driver's side. begun: when; cpus: it takes; training: its answer to come; answered: whether
    it has ever, since Ray keeps one that finds no room waiting without a word."""

    def __init__(self, plan: LeaguePlan, name: str, trust: Trust) -> None:
        decorated: Any = ray.remote  # its types know of no concurrency groups
        self.cpus, self.answered, self._told = plan.runs[name].palus.threads, False, False
        as_actor = decorated(
            num_cpus=self.cpus, max_restarts=0, scheduling_strategy="SPREAD",
            concurrency_groups={"training": 1, "status": 1},
        )  # fmt: skip
        self.actor: Any = as_actor(RunActor).remote(plan, name, trust, __version__)
        self.begun = time.monotonic()
        self.training = self.actor.keep.options(concurrency_group="training").remote()
        self._asked: Any = None

    def lines(self, patience_s: float) -> list[str]:
        """What the run has printed, as far as the actor answers in so many seconds. Raises RayError."""
        if self._asked is None:
            self._asked = self.actor.news.options(concurrency_group="status").remote()
        if not ray.wait([self._asked], timeout=patience_s)[0]:
            return []
        asked, self._asked = self._asked, None
        lines = list(ray.get(asked))
        self.answered = True
        return lines

    def complaint(self) -> str | None:
        """Once, that it has not begun for long, and what it may wait for."""
        if self.answered or self._told or time.monotonic() - self.begun < STARTING_S:
            return None
        self._told = True
        cluster: Any = ray  # its types leave these out
        total, free = (told.get("CPU", 0.0) for told in (cluster.cluster_resources(), cluster.available_resources()))
        return f"has not begun yet: it takes {_cpus(self.cpus)}, and {free:g} of the cluster's {total:g} are free"

    def stop(self) -> None:
        """Let the run save and end; what never began ends at once."""
        if not self.answered:
            ray.kill(self.actor)
            return
        self.actor.stop.options(concurrency_group="status").remote()


def play_league(
    plan: LeaguePlan, trust: Trust, address: str, stopped: Callable[[], bool], tell: Callable[[str, str], None]
) -> dict[str, Ending]:
    """Train all runs of a plan on a cluster. As `palus.cluster.local.play_league`.

    Raises WorkerError where there is no cluster.
    """
    handlers = {number: signal.getsignal(number) for number in ending_signals()}
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        raise WorkerError(
            f"--cluster {address}: no Ray cluster answers ({error}); start one with `ray start --head`, or leave "
            "--cluster out to train here"
        ) from error
    for number, handler in handlers.items():  # Ray puts its own in their place, and ends at once
        signal.signal(number, handler)
    try:
        return _Driver(plan, trust, tell).drive(stopped)
    finally:
        ray.shutdown()


def _cpus(number: float) -> str:
    return f"{number:g} CPU{'' if number == 1 else 's'}"


class _Driver:
    def __init__(self, plan: LeaguePlan, trust: Trust, tell: Callable[[str, str], None]) -> None:
        self.plan, self.trust, self.tell = plan, trust, tell
        self.places = {name: _Place(plan, name, trust) for name in plan.runs}
        self.fruitless, self.endings = dict.fromkeys(plan.runs, 0), dict[str, Ending]()

    def drive(self, stopped: Callable[[], bool]) -> dict[str, Ending]:
        stopping = False
        while self.places:
            ray.wait([place.training for place in self.places.values()], timeout=POLL_S)
            if stopped() and not stopping:
                stopping = True
                for place in self.places.values():
                    place.stop()
            for name in list(self.places):
                self._look(name, stopping)
        return self.endings

    def _look(self, name: str, stopping: bool) -> None:
        """Pass on what a run printed; where its actor is gone, put another one in its place."""
        place = self.places[name]
        try:
            over = bool(ray.wait([place.training], timeout=0)[0])
            for line in [line for _ in range(1 + over) for line in place.lines(10.0 if over else 0.0)]:
                self.tell(name, line)
            if over:
                self.endings[name] = ray.get(place.training)
                del self.places[name]
            elif complaint := place.complaint():
                self.tell("league", f"{name} {complaint}.")
        except RayActorError as error:
            self.fruitless[name] = self.fruitless[name] + 1 if time.monotonic() - place.begun < 60 else 0
            if stopping or self.fruitless[name] >= FRUITLESS:
                self.endings[name] = Ending("" if stopping else f"its actor dies again and again: {error}")
                del self.places[name]
                return
            self.tell("league", f"{name}: its actor or its machine is gone; another one goes on from its checkpoint.")
            self.places[name] = _Place(self.plan, name, self.trust)
        except RayError as error:  # what it raised itself; the others train on
            self.endings[name] = Ending(f"its actor failed: {error}")
            del self.places[name]
