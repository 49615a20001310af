"""The running arena without its pages: a scheduler in a thread, and worker processes that are started again when they
die. Everything it knows is in the store, so it may be killed at any instant and started again."""

from __future__ import annotations

import contextlib
import logging
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from palus.arena.jobs.worker import RESTART_S, pause_after
from palus.arena.ladder import queue
from palus.arena.ladder.audit import LOCAL, is_local, suspend_outliers
from palus.arena.ladder.audit_jobs import settle
from palus.arena.ladder.charge import Charge
from palus.arena.ladder.discovery import FolderPool, HuggingFace, Sweep, sweep_house, sweep_hub
from palus.arena.ladder.entries import FORGOTTEN_AT_ONCE, forget, forget_alike, is_current, owners_here
from palus.arena.ladder.rater import PAUSE_S, is_large
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler, run_sweep
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import instructions
from palus.arena.referee.games import game_of
from palus.errors import ArenaError, PalusError
from palus.files import write_text
from palus.hub.uploads import collect_garbage
from palus.store import Store
from palus.store.engine import SETTINGS_FILE, now_ms
from palus.store.tables import entries, jobs

logger = logging.getLogger(__name__)

TICK_S = 0.25
STOP_S = 20.0
FIRST_COMPARISON_S = 600.0
"""Of workers, after the start: a laptop's arena rarely runs for a whole day."""
SETTLE_EVERY_S = 5.0

HUB_EVERY_S, FOLDER_EVERY_S, HF_EVERY_S = 1.0, 3.0, 900.0
GARBAGE_EVERY_S = 600.0
JOBS_KEPT_MS, REFUSED_KEPT_MS = 3_600_000, 24 * 3_600_000
"""Uploads that no commit came to name are forgotten, pairs that were logged, refused revisions that no repository shows
any more, and those that brought nothing new."""


@dataclass(frozen=True)
class Sources:
    """Where models come from besides the hub of the store. pool: a folder. huggingface: also huggingface.co."""

    pool: Path | None = None
    huggingface: bool = False


@dataclass
class _LocalWorker:
    name: str
    process: subprocess.Popen[bytes]
    started_s: float


class ArenaService:
    """A context manager: entering starts the scheduler and the workers, leaving stops both.

    url: of the store's database, for the workers. workers: processes on this machine; 0 when all are elsewhere.
    waits: while another service is in charge of the store, to take its place when that ends.
    Raises ArenaError when this machine's workers lack what a game takes, and on entering when another service is in
    charge and this one does not wait.
    """

    def __init__(
        self,
        store: Store,
        settings: ArenaSettings,
        sources: Sources,
        *,
        workers: int,
        url: str | None = None,
        waits: bool = False,
    ) -> None:
        _check_games(settings, workers)
        self.settings = settings
        self._store, self._url, self._wanted = store, url, workers
        self._scheduler = Scheduler(store, settings, _sweeps(store, settings, sources), min_workers=max(workers, 1))
        self._workers: list[_LocalWorker] = []
        self._rater: subprocess.Popen[bytes] | None = None
        self._restart_s = RESTART_S
        self._restart_due_s = 0.0
        self._ticked_ms = 0
        self._charge, self._in_charge, self._waits = Charge(store), False, waits
        self._stop = threading.Event()
        collect = partial(collect_garbage, store)
        first_s = min(FIRST_COMPARISON_S, settings.audit_interval_s)
        self._threads = [  # each on its own: matches go on meanwhile
            self._thread("arena scheduler", 0.0, TICK_S, self._take_charge, self._keep_workers, self._tick),
            self._thread("arena ratings", 0.0, TICK_S, self._rate),
            self._thread("arena garbage", 0.0, GARBAGE_EVERY_S, self._prune_jobs, self._forget_revisions, collect),
            self._thread("arena audits", 0.0, SETTLE_EVERY_S, self._settle),
            self._thread("arena comparison", first_s, settings.audit_interval_s, self._compare_workers),
        ]
        if sources.huggingface:
            far = HuggingFace(store.blobs)
            periodic = PeriodicSweep(lambda env: far.sweep(env, wanted=_is_new(store, env)), HF_EVERY_S)
            look_far = partial(run_sweep, store, periodic, settings)
            self._threads.append(self._thread("arena huggingface", 0.0, HF_EVERY_S, look_far, daemon=True))

    def __enter__(self) -> ArenaService:
        self._take_charge()
        if not self._in_charge and not self._waits:
            raise ArenaError(
                f"{self._store.folder}: an arena runs on this data folder already, or on its database, or is computed "
                "again by `palus recompute`; use that one, stop it, or add to it with --role web"
            )
        if not self._in_charge:
            logger.warning("another scheduler is in charge of this arena; this one takes its place when it ends")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            if not thread.daemon:
                thread.join()
        self._end_rater()
        _end([worker.process for worker in self._workers])
        self._charge.release()

    def _take_charge(self) -> None:
        """Be the one in charge, where nobody is. Take back then at once what workers of a killed service hold; should
        one still live, its result is refused."""
        was, taken = self._in_charge, False
        try:
            taken = self._charge.take()
        finally:  # not in between: the other threads would miss their turns
            self._in_charge = taken
        if not self._in_charge:
            self._end_rater()
        if was or not self._in_charge:
            return
        write_text(self._store.folder / SETTINGS_FILE, self.settings.to_json())
        self._scheduler.wait_for_workers()
        with self._store.read() as connection:
            held = connection.scalars(select(jobs.c.worker).where(jobs.c.state == "leased").distinct()).all()
        self._scheduler.take_back(tuple(worker for worker in held if is_local(worker)))

    def _thread(
        self, name: str, first_s: float, every_s: float, *steps: Callable[[], object], daemon: bool = False
    ) -> threading.Thread:
        """Takes the steps again and again while this service is in charge, until it stops; `_take_charge` also while it
        is not. daemon: nobody waits for it to end.

        It must not end before: what goes wrong is told, and tried again later.
        """

        def run() -> None:
            pause_s = first_s
            while not self._stop.wait(pause_s):
                for step in steps:
                    if not (self._in_charge or step == self._take_charge):
                        break
                    try:
                        step()
                    except (PalusError, SQLAlchemyError, OSError) as error:
                        # A full disk or a database that restarts: say so, and go on when it is over.
                        logger.error("%s", error)
                        self._stop.wait(PAUSE_S)
                    except Exception:
                        logger.exception("the arena goes on without this step, and tries it again")
                        self._stop.wait(PAUSE_S)
                pause_s = every_s

        return threading.Thread(target=run, name=name, daemon=daemon)

    def _tick(self) -> None:
        """A pass. After a while without one workers could not renew their leases: the database was away, this machine
        slept, or its clock was set."""
        if now_ms() > self._ticked_ms + 1000 * self.settings.lease_s / 3:
            self._scheduler.wait_for_workers()
        self._scheduler.tick()
        self._ticked_ms = now_ms()

    def _keep_workers(self) -> None:
        """Start what is missing. Jobs of those that died are free again at once."""
        dead = [worker for worker in self._workers if worker.process.poll() is not None]
        if dead:
            self._workers = [worker for worker in self._workers if worker not in dead]
            self._scheduler.take_back(tuple(worker.name for worker in dead))
            for worker in dead:
                logger.warning("worker %s ended with %s", worker.name, worker.process.returncode)
                lived_s = time.monotonic() - worker.started_s
                self._restart_s = pause_after(lived_s, self._restart_s)
            self._restart_due_s = time.monotonic() + self._restart_s
        if time.monotonic() >= self._restart_due_s:
            while len(self._workers) < self._wanted:
                name = f"{LOCAL}{secrets.token_hex(4)}"
                self._workers.append(_LocalWorker(name, self._start("workers", name), time.monotonic()))

    def _start(self, module: str, name: str) -> subprocess.Popen[bytes]:
        """A process of ours that ends with its standard input."""
        process = subprocess.Popen(
            [sys.executable, "-m", f"palus.arena.ladder.{module}"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the service, which lets its workers finish
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; noticed at the next look
            process.stdin.write(instructions(self._store.folder, self._url, name, self.settings))
            process.stdin.flush()
        return process

    def _rate(self) -> None:
        """Refit the ratings: in this thread while the field is small, else in a process of its own."""
        if not self._scheduler.rated_elsewhere and not is_large(self._store):
            self._scheduler.refresh()
            return
        self._scheduler.rated_elsewhere = True
        if self._rater is None or self._rater.poll() is not None:
            if self._rater is not None:
                logger.warning("the process that rates ended with %s; another one is started", self._rater.returncode)
                self._stop.wait(PAUSE_S)
            self._rater = self._start("rater", "rater")

    def _end_rater(self) -> None:
        if self._rater is not None:
            _end([self._rater])
            self._rater = None

    def _prune_jobs(self) -> None:
        """Forget pairs some time after they were logged: a worker may ask about a report that it sent twice."""
        pruned = queue.PRUNED_AT_ONCE
        while pruned == queue.PRUNED_AT_ONCE and not self._stop.is_set():
            with self._store.write() as connection:
                pruned = queue.prune(connection, before_ms=now_ms() - JOBS_KEPT_MS)

    def _forget_revisions(self) -> None:
        forgotten = FORGOTTEN_AT_ONCE
        while forgotten == FORGOTTEN_AT_ONCE and not self._stop.is_set():
            forgotten = forget(self._store, before_ms=now_ms() - REFUSED_KEPT_MS)
        forget_alike(self._store)

    def _settle(self) -> None:
        for sentence in settle(self._store, now_ms=now_ms(), stop=self._stop):
            logger.error("audit: %s", sentence)

    def _compare_workers(self) -> None:
        for sentence in suspend_outliers(self._store, now_ms=now_ms()):
            logger.error("audit: %s", sentence)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let processes of ours end; those that do not are killed."""
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _check_games(settings: ArenaSettings, workers: int) -> None:
    for game in map(game_of, settings.envs):
        if workers and not game.can_be_played_here:
            raise ArenaError(
                f"{game.env} takes {' and '.join(game.packages)}, which this machine lacks; "
                f"pip install '{game.install}', or let others play: --workers 0, and palus worker there "
                "with a token of scope trusted"
            )


def _sweeps(store: Store, settings: ArenaSettings, sources: Sources) -> list[PeriodicSweep]:
    quiet_ms = round(1000 * settings.quiet_s)

    def look_at_hub(env: str) -> Sweep:
        with store.read() as connection:
            return sweep_hub(connection, env, quiet_since_ms=now_ms() - quiet_ms)

    sweeps = [PeriodicSweep(sweep_house, float("inf")), PeriodicSweep(look_at_hub, HUB_EVERY_S, for_all=True)]
    if sources.pool is not None:
        pool = FolderPool(sources.pool, store.blobs)

        def look_at_pool(env: str) -> Sweep:
            return pool.sweep(env, quiet_since_ms=now_ms() - quiet_ms)

        sweeps.append(PeriodicSweep(look_at_pool, FOLDER_EVERY_S, for_all=True))
    return sweeps


def _is_new(store: Store, env: str) -> Callable[[str, str], bool]:
    """Whether a revision of another hub is to be fetched: one without an entry, or that comes back."""
    with store.read() as connection:
        wanted = select(entries.c.repo, entries.c.revision).where(entries.c.env == env, is_current())
        known = {tuple(row) for row in connection.execute(wanted)}
        ours = owners_here(connection)
    return lambda repo, revision: (repo, revision) not in known and repo.partition("/")[0].lower() not in ours
