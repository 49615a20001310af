"""A worker: takes leased jobs, plays or validates in locked processes, sends reports. Any number, anywhere.

Where the jobs come from is a `WorkSource`: the store of this machine, or an arena over HTTP (`jobs.remote`).
"""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from palus import __version__
from palus.arena.jobs.reports import Report, ValidationReport
from palus.arena.locked.play import play_unit
from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.locked.vet import vet
from palus.arena.models.entity import Entity
from palus.arena.models.rules import Limits
from palus.arena.referee.games import GAMES, env_build, platform_name, runtimes
from palus.errors import ArenaError, LeaseError, PalusError

logger = logging.getLogger(__name__)

IDLE_S = 0.5
"""Between two questions for work while there is none."""


RESTART_S, RESTART_AT_MOST_S = 0.5, 30.0
"""A worker that dies is started again after so long; twice as long each time when it dies while it starts."""
STARTING_S = 2.0


JobKind = Literal["validate", "pair"]


@dataclass(frozen=True)
class Lease:
    """A job in the hands of a worker. secret: proves the lease. attempts: this one included."""

    job_id: int
    kind: JobKind
    payload: dict[str, Any]
    secret: str
    attempts: int


class WorkSource(Protocol):
    """Where a worker gets its jobs. Every method may raise ArenaError when the source is out of reach for now."""

    @property
    def lease_s(self) -> float:
        """Seconds that a lease lasts without being renewed."""

    def take(self) -> Lease | None:
        """A job for this worker; None when nothing waits."""

    def renew(self, lease: Lease) -> None:
        """Prolong the lease. Raises LeaseError when it is void."""

    def model(self, sha256: str) -> bytes:
        """The bytes of a model file. Raises ArenaError when they are gone."""

    def finish(self, lease: Lease, report: Report) -> None:
        """Hand in a report. Raises LeaseError when the job went to somebody else."""

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


def work(
    source: WorkSource, stop: threading.Event, *, limits: Limits | None = None, max_jobs: int | None = None
) -> int:
    """Do jobs until told to stop. Returns how many were done.

    limits: of the models' processes; by default those of each game.   max_jobs: stop after so many.
    """
    done = 0
    while not stop.is_set() and (max_jobs is None or done < max_jobs):
        try:
            lease = source.take()
        except ArenaError as error:
            logger.warning("%s; trying again", error)
            stop.wait(10 * IDLE_S)
            continue
        if lease is None:
            stop.wait(IDLE_S)
            continue
        done += _do(source, lease, limits)
    return done


def _do(source: WorkSource, lease: Lease, limits: Limits | None) -> bool:
    """One job, kept alive by a thread that renews the lease. Returns whether its report was taken."""
    finished = threading.Event()
    heart = threading.Thread(target=_keep_alive, args=(source, lease, finished), daemon=True)
    heart.start()
    try:
        report = _run(source, lease, limits)
        source.finish(lease, report)
        return True
    except LeaseError as error:
        logger.warning("%s", error)
    except PalusError as error:
        logger.warning("job %d: %s", lease.job_id, error)
        _give_back(source, lease, str(error))
    finally:
        finished.set()
        heart.join()
    return False


def _keep_alive(source: WorkSource, lease: Lease, finished: threading.Event) -> None:
    while not finished.wait(source.lease_s / 3):
        try:
            source.renew(lease)
        except LeaseError:
            return  # handing in the report will say so
        except ArenaError as error:
            logger.warning("lease of job %d not renewed: %s", lease.job_id, error)


def _give_back(source: WorkSource, lease: Lease, fault: str) -> None:
    try:
        source.give_back(lease, fault)
    except ArenaError as error:
        logger.warning("job %d could not be given back (%s); its lease will run out", lease.job_id, error)


def _run(source: WorkSource, lease: Lease, limits: Limits | None) -> Report:
    try:
        if lease.kind == "pair":
            return play_order(source, Unit.from_payload(lease.payload), limits)
        return _validate(source, lease.payload, limits)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArenaError(f"the job cannot be understood ({reason}); arena and worker need the same palus") from error


def _validate(source: WorkSource, payload: dict[str, Any], limits: Limits | None) -> ValidationReport:
    entity = Entity.from_json(payload["contender"]).with_models(source.model)
    verdict = vet(entity, payload["env"], limits=limits)
    if verdict.refusal is not None:
        return ValidationReport(verdict.refusal, verdict.details, None)
    return ValidationReport(None, verdict.details, play_order(source, Unit.trial(payload), limits))


def play_order(source: WorkSource, unit: Unit, limits: Limits | None) -> UnitReport:
    """Play a unit as ordered. Raises ArenaError when it is nobody's fault but ours that it could not be played."""
    first, second = (entity.with_models(source.model) for entity in unit.contenders)
    report = play_unit(replace(unit, contenders=(first, second)), limits)
    if any(result.cause == "engine" for result in report.results):
        why = " ".join(filter(None, report.failures)) or "the game's engine failed; the worker's messages say how"
        raise ArenaError(f"the match could not be played here: {why}")
    return report
