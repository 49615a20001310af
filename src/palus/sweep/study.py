"""The study of a sweep: kept by Optuna in a database that every worker reaches, and worked off trial by trial.

A worker that dies stops its heartbeat; whoever asks next gives its trial to the next free worker, which goes on from
its files where it finds them. Trials count by their numbers, so any number of workers do exactly as many as were asked.

Source: Akiba et al., Optuna: a next-generation hyperparameter optimization framework, 2019; tree-structured Parzen
estimators are Bergstra et al., Algorithms for hyper-parameter optimization, 2011; the median rule of pruning is
Golovin et al., Google Vizier, 2017, section 3.2.2.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from palus.errors import CheckpointError, ConfigError, PalusError, StorageError
from palus.files import make_folder, write_text
from palus.launch.apart import Training, claimed, training
from palus.progress import PROGRESS, ProgressReader
from palus.run.folder import read_checkpoint
from palus.store.engine import sqlite_url
from palus.sweep.objective import MARKS, curve, is_over
from palus.sweep.plan import Plan
from palus.trust import Trust

PLAN, STUDY_ID = "palus.plan", "palus.id"
CURVES, DONE, WHERE, WHY, SURPLUS = "curves", "done", "where", "why", "surplus"
"""Attributes of trials. done: the share of its budget that is used up."""
MOST_RETRIES = 10
"""Of a trial whose workers die, or are interrupted."""
POLL_S = 0.5
SILENT_BEATS = 4
"""Heartbeats after which a worker that does not give them is taken for dead."""
STARTUP_TRIALS = 5
"""Before anything is pruned."""
_ANOTHER = "another --name or --results-dir, of `show` another --output"


class TrialError(Exception):
    """A trial came to nothing; the sweep goes on."""


class InterruptedTrialError(TrialError):
    """By hand; somebody goes on with it."""


@contextmanager
def opened_storage(url: str, heartbeat_s: int = 30, *, create: bool = True) -> Iterator[RDBStorage]:
    """The database of a study while the block runs. url: of SQLAlchemy, or the path of an SQLite file. create: for who
    only looks at what is there, False.

    Raises ConfigError, StorageError.
    """
    storage = _open_storage(url, heartbeat_s, create)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


class _Beating(RDBStorage):
    """Whose heartbeat outlives that the database is away for a while; the worker itself says so where it stays away."""

    def record_heartbeat(self, trial_id: int) -> None:
        """A beat that is not taken is missed, of four: Optuna's thread would end by it, and be missed for ever."""
        with suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
            super().record_heartbeat(trial_id)


def _open_storage(url: str, heartbeat_s: int, create: bool) -> RDBStorage:
    if "://" not in url:
        make_folder(Path(url).parent, "--study or --results-dir")
        url = sqlite_url(Path(url))
    is_sqlite = url.startswith("sqlite")
    engine = {"connect_args": {"timeout": 60}} if is_sqlite else {"pool_pre_ping": True}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for attempt in range(5):
        try:
            with _calm():
                _check_tables(url, engine, create)
                retry = RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES)
                return _Beating(
                    url, engine, heartbeat_interval=heartbeat_s, grace_period=SILENT_BEATS * heartbeat_s,
                    heartbeat_stale_trial_callback=retry,
                )  # fmt: skip
        except ImportError as error:
            raise ConfigError(f"the study's database needs a driver: {error} `pip install palus[postgres]`") from error
        except (SQLAlchemyError, RuntimeError) as error:  # two workers may make the tables of an empty one at once
            if attempt == 4:
                raise StorageError(f"the study's database cannot be opened: {_short(error)}; check its URL") from error
            time.sleep(0.5 * (attempt + 1))
    raise AssertionError


def _check_tables(url: str, options: Mapping[str, Any], create: bool) -> None:
    """Optuna adds its tables to any database, and cannot use one whose `alembic_version` is another program's, as an
    arena's is. Raises ConfigError."""
    engine = create_engine(url, **options)
    try:
        tables = inspect(engine).get_table_names()
    finally:
        engine.dispose()
    if "studies" not in tables and not (create and "alembic_version" not in tables):
        found = "other tables than those of studies" if tables else "no study"
        raise ConfigError(
            f"{engine.url.render_as_string()}: the database holds {found}; name that of a sweep "
            "(FOLDER/study.db), or an empty one to begin"
        )


def make_study(storage: RDBStorage, name: str, plan: Plan) -> optuna.Study:
    """Join the study of that name, or make it. Raises ConfigError when it has another plan, or none."""
    options: Any = {
        "sampler": optuna.samplers.TPESampler(constant_liar=True),
        "pruner": optuna.pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=MARKS * plan.seeds // 4),
    }
    with _calm():
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, directions=["maximize"] * len(plan.objectives), **options
            )
        except optuna.exceptions.DuplicatedStudyError:
            study = optuna.load_study(storage=storage, study_name=name, **options)
            deadline = time.monotonic() + 30
            while _is_blank(study) and time.monotonic() < deadline:
                time.sleep(POLL_S)  # whoever makes it is about to say what it is
        if _is_blank(study):
            study.set_user_attr(STUDY_ID, uuid.uuid4().hex)
            study.set_user_attr(PLAN, plan.to_json())
            present = plan.present()
            if present is not None:
                study.enqueue_trial(present)
    plan_of(study)
    differ = list(_differences(json.loads(study.user_attrs[PLAN]), json.loads(plan.to_json())))
    if differ:
        raise ConfigError(
            f"study {name} is another one: {'; '.join(differ)}. Type the command that it was made with, or choose "
            "another --name"
        )
    return study


def _is_blank(study: optuna.Study) -> bool:
    return PLAN not in study.user_attrs and not study.get_trials(deepcopy=False)


def find_study(storage: RDBStorage, name: str | None) -> optuna.Study:
    """A study that is there; the only one where no name is given. Raises ConfigError."""
    names = optuna.get_all_study_names(storage)
    if name is None and len(names) == 1:
        [name] = names
    if name not in names:
        there = ", ".join(names) or "none yet"
        raise ConfigError(f"there is no study {name}: {there}" if name else f"say which study with --name: {there}")
    return optuna.load_study(storage=storage, study_name=name)


def plan_of(study: optuna.Study) -> Plan:
    """What a study compares. Raises ConfigError when `palus sweep` did not make it."""
    return Plan.of_json(study.user_attrs.get(PLAN, "null"))


def refuse_folder(folder: Path) -> None:
    """Raises ConfigError when a folder holds something else than a sweep."""
    there = [path for path in folder.glob("[!.]*") if not path.name.startswith("study.db")]
    if there and not (folder / ".study").is_file():
        raise ConfigError(f"{folder}: holds no sweep, but something else; choose {_ANOTHER}")


def holds(folder: Path, study: optuna.Study) -> bool:
    """Whether a folder is that of a study."""
    mark = folder / ".study"
    return mark.is_file() and mark.read_text() == study.user_attrs[STUDY_ID]


def own_folder(folder: Path, study: optuna.Study) -> None:
    """Make a folder the sweep's, or find that it is. Raises ConfigError when it holds something else."""
    refuse_folder(folder)
    mark = folder / ".study"
    if not mark.is_file():
        write_text(mark, study.user_attrs[STUDY_ID])
    elif not holds(folder, study):
        raise ConfigError(f"{folder}: holds another sweep; move it away, or choose {_ANOTHER}")


def trial_folder(folder: Path, number: int) -> Path:
    """Where the runs of a trial lie in a sweep's folder."""
    return folder / f"trial-{number:04d}"


def counting(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Trials that are part of the sweep: without those that another one repeats, and those that were too many."""
    repeated = {number for trial in trials for number in trial.system_attrs.get("retry_history", ())}
    return [
        trial
        for trial in trials
        if not (trial.state == TrialState.FAIL and (trial.number in repeated or SURPLUS in trial.user_attrs))
    ]


@dataclass
class Worker:
    """Works off a study. folder: the sweep's, on this machine. trials: of the study, all workers together.

    stopped: whether somebody presses Ctrl-C. tell: takes a line for people. show: takes number and share of the budget
    of the trial that runs.
    """

    storage: RDBStorage
    study: optuna.Study
    plan: Plan
    folder: Path
    trials: int
    trust: Trust
    stopped: Callable[[], bool]
    tell: Callable[[str], None]
    show: Callable[[int, float], None] = lambda number, share: None
    _missed: set[int] = field(default_factory=set)

    def work(self) -> bool:
        """Until all trials are over, those of other workers too: whether they are.

        Raises PalusError when the first trials fail one after another, StorageError when the database is away, or this
        machine's disk takes no more.
        """
        while not self.stopped():
            try:
                with _calm():
                    mine = counting(self._look())
                    if len(mine) < self.trials or any(t.state == TrialState.WAITING for t in mine[: self.trials]):
                        self.study.optimize(self._try, n_trials=1, catch=(TrialError,))
                    elif any(trial.state == TrialState.RUNNING for trial in mine):
                        time.sleep(POLL_S)
                    else:
                        return True
            except ValueError as error:
                if not str(error).startswith("Cannot tell a "):  # Optuna's, of a trial that is over for the study
                    raise
                self.tell("This machine was silent for so long that its trial was given to another worker.")
            except (SQLAlchemyError, optuna.exceptions.StorageInternalError, UnboundLocalError) as error:
                lost = error.__context__ if isinstance(error, UnboundLocalError) else error  # Optuna 5.0's own, over it
                if not isinstance(lost, SQLAlchemyError | optuna.exceptions.StorageInternalError):
                    raise
                raise StorageError(
                    f"the study's database is out of reach: {_short(lost)}; the same command goes on"
                ) from error
        return False

    def _look(self) -> list[FrozenTrial]:
        """All trials, after those of dead workers were given back. Each that runs is given one heartbeat, so that the
        next one of a worker that died before its first is missed."""
        optuna.storages.fail_stale_trials(self.study)
        trials: list[FrozenTrial] = self.study.get_trials(deepcopy=False)
        for trial in trials:
            if trial.state == TrialState.RUNNING and trial.number not in self._missed:
                self._missed.add(trial.number)
                self.storage.record_heartbeat(self._id(trial.number))
        return trials

    def _id(self, number: int) -> int:
        study = self.storage.get_study_id_from_name(self.study.study_name)
        return int(self.storage.get_trial_id_from_study_id_trial_number(study, number))

    def _try(self, trial: optuna.Trial) -> float | list[float]:
        """One trial: its objectives. Raises TrialError, TrialPruned; StorageError where this machine cannot keep it."""
        before = [own for own in counting(self.study.get_trials(deepcopy=False)) if own.number < trial.number]
        if len(before) >= self.trials:
            trial.set_user_attr(SURPLUS, True)
            raise TrialError
        labels = {dimension.path: dimension.suggest(trial) for dimension in self.plan.space}
        self.storage.record_heartbeat(self._id(trial.number))
        trial.set_user_attr(WHERE, f"{socket.gethostname()}:{os.getpid()}")
        trial.set_user_attr(DONE, 0.0)
        self.tell(f"Trial {trial.number}: {describe(labels)}")
        try:
            values = self._values(trial, labels)
        except optuna.TrialPruned as why:
            if str(why):
                trial.set_user_attr(WHY, str(why))
            self.tell(
                f"Trial {trial.number}: pruned at {trial.user_attrs[DONE]:.0%} of its budget{str(why) and f', {why}'}."
            )
            raise
        except (InterruptedTrialError, StorageError, KeyboardInterrupt):
            self.tell(f"Trial {trial.number}: interrupted; the same command goes on with it.")
            self._give_back(trial)
            raise
        except TrialError as why:
            trial.set_user_attr(WHY, str(why))
            self.tell(f"Trial {trial.number}: failed, {why}")
            failed = [own for own in before if own.state == TrialState.FAIL]
            if len(failed) == len(before) >= 2:
                raise PalusError(f"the first {len(failed) + 1} trials all failed, the last one: {why}") from why
            raise
        told = zip(self.plan.objectives, values, strict=True)
        self.tell(f"Trial {trial.number}: {', '.join(f'{name} {value:.4g}' for name, value in told)}.")
        return values

    def _give_back(self, trial: optuna.Trial) -> None:
        """Let somebody go on with it, unless another worker was given it already."""
        own = self.study.get_trials(deepcopy=True)[trial.number]
        if own.state == TrialState.RUNNING:
            RetryHeartbeatStaleTrialCallback()(self.study, own)

    def _values(self, trial: optuna.Trial, labels: Mapping[str, Any]) -> list[float]:
        """Train with every seed, one after another; the mean of each objective at the end."""
        folder = trial_folder(self.folder, trial.number)
        self._inherit(trial, folder)
        make_folder(folder, "--results-dir")
        curves: list[list[dict[int, float]]] = []
        for seed in range(self.plan.seeds):
            try:
                run = self.plan.run(labels, folder, seed, self.trust)
            except PalusError as error:
                raise optuna.TrialPruned(f"these values do not go together: {error}") from error
            root = folder / run.checkpoint_settings.run_id
            reader = ProgressReader(root / PROGRESS)
            _, lines = reader.news()
            if not is_over(lines, self.plan.minutes):
                resume = any(root.glob("*/checkpoint.pt"))
                if resume and self.plan.minutes:
                    left = max(self.plan.minutes - _seconds_at_checkpoint(root) / 60, 0.01)
                    run = run.changed(palus={"max_minutes": left})
                is_own = not lines  # not what a former process told, which this one first cuts back to its checkpoint
                with training(run, root.with_suffix(".log"), resume=resume, trust=self.trust) as process:
                    while not process.wait(POLL_S):
                        if self.stopped():
                            raise InterruptedTrialError
                        void, news = reader.news()
                        lines = news if void else lines + news
                        is_own = is_own or void or any(line["kind"] == "run" for line in news)
                        if is_own:
                            self._report(trial, curves, self._curves(lines))
                    self._judge(process)
                void, news = reader.news()
                lines = news if void else lines + news
                if not is_over(lines, self.plan.minutes):  # and yet it ended well: it was told to
                    raise InterruptedTrialError if self.stopped() else TrialError("its run was ended by a signal")
            self._report(trial, curves, self._curves(lines))
            curves.append(self._curves(lines))
            missing = [name for name, own in zip(self.plan.objectives, curves[-1], strict=True) if MARKS not in own]
            if missing:
                tags = sorted({tag for line in lines for tag in line.get("values", ())})
                raise TrialError(f"its run reported no {missing[0]}, but {', '.join(tags) or 'nothing'}")
        return [fmean(own[k][MARKS] for own in curves) for k in range(len(self.plan.objectives))]

    def _curves(self, lines: Sequence[Mapping[str, Any]]) -> list[dict[int, float]]:
        return [curve(lines, objective, self.plan.minutes) for objective in self.plan.objectives]

    def _judge(self, process: Training) -> None:
        """How a run ended that nobody stopped. Raises TrialPruned, TrialError, StorageError."""
        ending = process.ending
        if ending.unsaved:  # all others would fail by it, too
            raise StorageError(ending.failure)
        if ending.diverged:
            raise optuna.TrialPruned(f"it diverged: {ending.failure}")
        if ending.failure:
            raise TrialError(ending.failure)

    def _report(
        self, trial: optuna.Trial, over: Sequence[Sequence[dict[int, float]]], now: Sequence[dict[int, float]]
    ) -> None:
        """Tell the study how far a trial is, and ask whether it may go on. Raises TrialPruned.

        over: curves of its finished runs, by objective. now: of the one that runs. A trial is compared at mark k of its
        seed s by the mean over its seeds so far, as number s * MARKS + k.
        """
        mark = max((max(own, default=0) for own in now), default=0)
        number = len(over) * MARKS + mark
        done = number / (MARKS * self.plan.seeds)
        self.show(trial.number, done)
        before = round(trial.user_attrs[DONE] * MARKS * self.plan.seeds)
        if number == before:
            return
        means = [
            {k: fmean([value, *(own[n][k] for own in over if k in own[n])]) for k, value in now[n].items()}
            for n in range(len(self.plan.objectives))
        ]
        for n, own in enumerate(means):  # what the run that goes on has not reached yet stands as it was
            earlier = {k: fmean(run[n][k] for run in over if k in run[n]) for run in over for k in run[n]}
            means[n] = {**earlier, **own}
        told = {str(name): means[n] for n, name in enumerate(self.plan.objectives)}
        trial.set_user_attr(CURVES, told)
        trial.set_user_attr(DONE, done)
        if len(self.plan.objectives) == 1:
            for k in now[0]:
                if len(over) * MARKS + k > before:
                    trial.report(means[0][k], len(over) * MARKS + k)
            if self.plan.prunes and done < 1 and trial.should_prune():
                raise optuna.TrialPruned

    def _inherit(self, trial: optuna.Trial, folder: Path) -> None:
        """Take over what a trial that this one repeats has left on this machine, unless somebody still trains in it."""
        history = self.study.get_trials(deepcopy=False)[trial.number].system_attrs.get("retry_history", [])
        for number in reversed(history):
            old = trial_folder(self.folder, number)
            if old.is_dir() and not folder.exists():
                with claimed(old) as free:
                    if free:
                        old.rename(folder)


def _seconds_at_checkpoint(root: Path) -> float:
    """How long a run had trained when it was saved, from where it goes on. Raises TrialError."""
    try:
        return float(read_checkpoint(next(root.glob("*/checkpoint.pt")))["wall_seconds"])
    except CheckpointError as error:
        raise TrialError(str(error)) from error


def describe(labels: Mapping[str, Any]) -> str:
    """Values with the last words of their keys."""
    return ", ".join(f"{path.rpartition('.')[2]} {_shown(value)}" for path, value in labels.items())


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _differences(theirs: Any, ours: Any, key: str = "") -> Iterator[str]:
    """Where two plans differ, as trees."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for word in theirs | ours:
            yield from _differences(theirs.get(word), ours.get(word), f"{key}.{word}" if key else word)
    elif theirs != ours:
        yield f"{key} {json.dumps(theirs)}, here {json.dumps(ours)}"


def _short(error: BaseException) -> str:
    """The first line of what a database says, which names the fault; the rest is its statement."""
    return str(error.__cause__ or error).splitlines()[0]


@contextmanager
def _calm() -> Iterator[None]:
    """Without Optuna's warnings of what it may still change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


logging.getLogger("alembic").setLevel(logging.WARNING)
