"""A worker: takes leased jobs, plays or validates in locked processes, sends reports. Any number, anywhere.

Where the jobs come from is a `WorkSource`: the store of this machine, or an arena over HTTP (`jobs.remote`).
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from palus import __version__
from palus.arena.jobs.reports import Report, ValidationReport
from palus.arena.locked.play import play_unit
from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.locked.vet import vet
from palus.arena.models.entity import Entity
from palus.arena.referee.games import GAMES, env_build, platform_name, runtimes
from palus.errors import ArenaError, LeaseError, PalusError, UnreachableError

logger = logging.getLogger(__name__)

IDLE_S = 0.5
"""Between two questions for work while there is none; an arena with many idle workers asks for more patience."""
OUT_OF_REACH_S = 5.0
"""Until a source that is out of reach is tried again."""
REPORT_S = 10.0
"""A worker that holds several jobs hands in what is done so often: who ends it takes no more than that with it."""
MOST_JOBS = 100
"""That a worker takes at once."""

RESTART_S, RESTART_AT_MOST_S = 0.5, 30.0
"""A worker that dies is started again after so long; twice as long each time when it dies while it starts."""
STARTING_S = 2.0


JobKind = Literal["validate", "pair"]


@dataclass(frozen=True)
class Lease:
    """A job in the hands of a worker. secret: proves the lease, shared by all that were taken together.
    attempts: this one included."""

    job_id: int
    kind: JobKind
    payload: dict[str, Any]
    secret: str
    attempts: int


Done = tuple[Lease, Report]


class WorkSource(Protocol):
    """Where a worker gets its jobs. Every method raises UnreachableError when the source is out of reach for now, and
    ArenaError when it does not want what it is told."""

    @property
    def lease_s(self) -> float:
        """Seconds that a lease lasts without being renewed."""

    @property
    def play_s(self) -> float:
        """Seconds of work that are worth one question for it; 0 where asking costs nothing."""

    @property
    def pause_s(self) -> float:
        """Seconds until it is worth asking again, when nothing waits."""

    def take(self, count: int) -> list[Lease]:
        """At most so many jobs for this worker; none when nothing waits."""

    def renew(self, leases: Sequence[Lease]) -> None:
        """Prolong the leases of one `take`. Raises LeaseError when all are void."""

    def model(self, sha256: str) -> bytes:
        """The bytes of a model file. Raises ArenaError when they are gone."""

    def finish(self, done: Sequence[Done]) -> set[int]:
        """Hand in reports. Returns the jobs that went to somebody else meanwhile, whose reports are dropped."""

    def give_back(self, lease: Lease, fault: str) -> None:
        """Say that the job could not be done here."""


def describe_here() -> dict[str, Any]:
    """What a worker says about the machine it runs on. games: that it can play."""
    return {
        "palus": __version__,
        "platform": platform_name(),
        "runtimes": runtimes(),
        "games": (games := [game.env for game in GAMES.values() if game.can_be_played_here]),
        "builds": {game: env_build(game).build_hash for game in games},
    }


def pause_after(lived_s: float, pause_s: float) -> float:
    """Seconds until a worker that died is started again. lived_s: how long it lived; pause_s: the pause before that."""
    return RESTART_S if lived_s > STARTING_S else min(2.0 * pause_s, RESTART_AT_MOST_S)


def wait_for_end(stop: threading.Event) -> None:
    """Set `stop` when standard input ends: the process that holds its other side wants it so, or is gone."""
    while sys.stdin.buffer.read(1):
        pass
    stop.set()


def work(source: WorkSource, stop: threading.Event, *, max_jobs: int | None = None) -> int:
    """Do jobs until told to stop. Returns how many were done.

    So many are taken at once as take `source.play_s` seconds, by the pace of those before. Where none of them could be
    done that may be this machine's fault, with which it would spoil all that waits: it rests as one that died, and then
    takes one. max_jobs: stop after so many.
    """
    done, job_s, rest_s = 0, math.inf, RESTART_S
    while not stop.is_set() and (max_jobs is None or done < max_jobs):
        wanted = max(1, min(MOST_JOBS, int(source.play_s / job_s)))
        try:
            leases = source.take(wanted if max_jobs is None else min(wanted, max_jobs - done))
        except ArenaError as error:
            logger.warning("%s; trying again", error)
            stop.wait(OUT_OF_REACH_S)
            continue
        if not leases:
            stop.wait(source.pause_s)
            continue
        begun = time.monotonic()
        if taken := _do(source, leases, stop):
            done += taken
            job_s, rest_s = max((time.monotonic() - begun) / len(leases), 1e-3), RESTART_S
        else:
            job_s, rest_s = math.inf, pause_after(0.0, rest_s)
            stop.wait(rest_s)
    return done


def _do(source: WorkSource, leases: Sequence[Lease], stop: threading.Event) -> int:
    """Jobs, kept alive by a thread that renews their leases. Returns how many reports were taken."""
    finished, lost = threading.Event(), threading.Event()
    heart = threading.Thread(target=_keep_alive, args=(source, leases, finished, lost), daemon=True)
    heart.start()
    taken, reported_s = 0, time.monotonic()
    done: list[Done] = []
    try:
        for number, lease in enumerate(leases):
            if lost.is_set():
                logger.warning("%d jobs went to other workers before their turn came", len(leases) - number)
                break
            if stop.is_set() and number:
                _give_back(source, lease, "the worker was told to stop")
                continue
            try:
                done.append((lease, _run_in_reach(source, lease, stop, lost)))
            except PalusError as error:
                logger.warning("job %d: %s", lease.job_id, error)
                _give_back(source, lease, str(error))
            if time.monotonic() - reported_s > REPORT_S:
                taken, reported_s = taken + _hand_in(source, done, stop), time.monotonic()
                done = []
        return taken + _hand_in(source, done, stop)
    finally:
        finished.set()
        heart.join()


def _hand_in(source: WorkSource, done: Sequence[Done], stop: threading.Event) -> int:
    """Hand in reports, and wait for an arena that is away. Returns how many were taken."""
    while done:
        try:
            void = source.finish(done)
        except UnreachableError as error:
            if stop.is_set():
                return 0
            logger.warning("%s; the reports of %d jobs wait", error, len(done))
            stop.wait(OUT_OF_REACH_S)
        except ArenaError as error:
            for lease, _ in done:
                logger.warning("job %d: %s", lease.job_id, error)
                _give_back(source, lease, str(error))
            return 0
        else:
            for job_id in sorted(void):
                logger.warning("job %d: its lease is void, it went to another worker; the result is dropped", job_id)
            return len(done) - len(void)
    return 0


def _keep_alive(source: WorkSource, leases: Sequence[Lease], finished: threading.Event, lost: threading.Event) -> None:
    """lost: set when others have all jobs that are left."""
    while not finished.wait(source.lease_s / 3):
        try:
            source.renew(leases)
        except LeaseError:
            lost.set()
            return
        except ArenaError as error:
            logger.warning("leases of %d jobs not renewed: %s", len(leases), error)


def _give_back(source: WorkSource, lease: Lease, fault: str) -> None:
    try:
        source.give_back(lease, fault)
    except ArenaError as error:
        logger.warning("job %d could not be given back (%s); its lease will run out", lease.job_id, error)


def _run_in_reach(source: WorkSource, lease: Lease, stop: threading.Event, lost: threading.Event) -> Report:
    """What comes of a job, which waits for models that are out of reach until it is told to stop or others have it."""
    while True:
        try:
            return _run(source, lease)
        except UnreachableError as error:
            if stop.is_set() or lost.is_set():
                raise
            logger.warning("%s; job %d waits", error, lease.job_id)
            stop.wait(OUT_OF_REACH_S)


def _run(source: WorkSource, lease: Lease) -> Report:
    try:
        if lease.kind == "pair":
            return play_order(source, Unit.from_payload(lease.payload))
        return _validate(source, lease.payload)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArenaError(f"the job cannot be understood ({reason}); arena and worker need the same palus") from error


def _validate(source: WorkSource, payload: dict[str, Any]) -> ValidationReport:
    entity = Entity.from_json(payload["contender"]).with_models(source.model)
    verdict = vet(entity, payload["env"])
    trial = play_order(source, Unit.trial(payload)) if verdict.refusal is None else None
    return ValidationReport(verdict.refusal, verdict.details, trial)


def play_order(source: WorkSource, unit: Unit) -> UnitReport:
    """Play a unit as ordered. Raises ArenaError when it is nobody's fault but ours that it could not be played."""
    first, second = (entity.with_models(source.model) for entity in unit.contenders)
    report = play_unit(replace(unit, contenders=(first, second)))
    if any(result.cause == "engine" for result in report.results):
        why = " ".join(filter(None, report.failures)) or "the game's engine failed; the worker's messages say how"
        raise ArenaError(f"the match could not be played here: {why}")
    return report
