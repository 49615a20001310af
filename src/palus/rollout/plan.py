"""Where games are stepped: in this process or in workers, how many of these there are, and which of the games and which
core each of them has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from palus.config import RunFile
from palus.config.appo import Sampling
from palus.config.trainer import SacBehavior
from palus.envs import GameSource
from palus.errors import ConfigError
from palus.types import GameSpec

OUT_OF_SIGHT = (
    "palus.league.members: a scripted player reads the game itself, which runs in worker processes here; name model "
    "files only, or set palus.sampling.collector to in_process"
)
TARGET_ROLLOUT_STEPS = 80
"""Decisions per rollout when the number of matches is automatic: several times GAE's reach, 1 / (1 - gamma lambda)."""
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Share:
    """Which of a run's N matches are played here: rank r of R has the matches from r N / R to (r + 1) N / R.

    Draws are keyed by the numbers that matches have in the whole run, so who plays them where changes none. neighbours:
    the ranks on this machine, which share its cores.
    """

    rank: int = 0
    size: int = 1
    neighbours: int = 1

    def of(self, matches: int, what: str) -> int:
        """How many of a run's matches. what: the setting that says how many, for the ConfigError where they do not
        divide evenly."""
        if matches % self.size:
            raise ConfigError(f"{what}: {matches} matches, on {self.size} ranks; make them a multiple of {self.size}")
        return matches // self.size

    def first(self, own: int) -> int:
        """The number of the first match. own: how many are played here."""
        return self.rank * own


@dataclass(frozen=True)
class WorkerPlan:
    """An even division of games. workers: processes, 0 for none. games: a worker's share of a split.

    Games are numbered split by split, worker by worker: the rows of a split lie together, so that one batch of
    observations is one piece of memory.
    """

    workers: int
    splits: int
    games: int

    @property
    def processes(self) -> int:
        """Who steps games: the workers, or the main process alone."""
        return max(self.workers, 1)

    def games_of(self, worker: int, split: int) -> range:
        """The games of one worker in one split."""
        first = (split * self.processes + worker) * self.games
        return range(first, first + self.games)


def in_workers(settings: Sampling, source: GameSource) -> bool:
    """Whether the games of a run step in worker processes, or all in one call of this process."""
    if settings.collector == "auto":
        return not source.prefers_batch
    return settings.collector == "workers"


def plan_matches(run: RunFile, rows: int) -> tuple[int, int]:
    """How many matches step in one call of this process, and the decisions of a rollout. rows: of a match, those that
    learn for the first behavior."""
    first = next(iter(run.behaviors.values()))
    horizon, wanted = first.time_horizon, run.palus.num_matches
    size = rows * horizon if isinstance(first, SacBehavior) else first.rollout_rows(rows)
    matches = wanted or max(1, size // (rows * min(horizon, TARGET_ROLLOUT_STEPS)))
    return matches, rollout_steps(run, matches * rows)


def rollout_steps(run: RunFile, rows: int) -> int:
    """Decisions of a rollout, of all behaviors as many as the first one wants. rows: that learn for that one."""
    first, *others = run.behaviors.values()
    if isinstance(first, SacBehavior) and not all(isinstance(other, SacBehavior) for other in others):
        return first.time_horizon  # others learn nothing from a few decisions
    return -(-first.rollout_rows(rows) // rows)


def rows_per_match(spec: GameSpec, behavior: str, *, past: bool, mirrors: bool, all_teams: bool) -> int:
    """The most agents of a match that learn for a learner of a behavior of the game. past: it meets past selves;
    mirrors: as `Contender.mirrors`; all_teams: `palus.league.learn`."""
    agents = spec.agents_of(behavior)
    if not past or mirrors or all_teams:
        return len(agents)
    return max(sum(spec.agents[i].team == side for i in agents) for side in spec.sides)


def worker_games(run: RunFile, learning: int) -> int:
    """Games in workers, so that those who learn fill a rollout in `time_horizon` decisions. learning: agents of a
    match, for the first behavior. ConfigError, with the arithmetic, where these do not divide the rollout."""
    first, s = next(iter(run.behaviors.values())), run.palus.sampling
    share = s.games_per_worker or _splits(s, False)[0]
    if isinstance(first, SacBehavior):
        return run.palus.num_matches or max(s.workers, 1) * share
    rows = first.rollout_rows(learning) // first.time_horizon
    if rows < learning or rows % learning:
        raise ConfigError(
            f"buffer_size / time_horizon = {rows} rows, but {learning} agents of a game learn; "
            f"make buffer_size a multiple of time_horizon x {learning}"
        )
    return rows // learning


def _splits(settings: Sampling, beside: bool) -> list[int]:
    """How many, and the next best; without workers there is nothing to overlap."""
    if not settings.workers or (beside and not settings.splits):
        return [1]
    return [settings.splits] if settings.splits else [2, 1]


def plan_workers(
    settings: Sampling, rows: int, agents: int, neighbours: int = 1, *, beside: bool = False
) -> WorkerPlan:
    """Divide the games that have `rows` agents in all. ConfigError, with the arithmetic, where they do not divide.

    workers -1 takes as many physical cores as divide the games. neighbours: as in `Share`. beside: a learner is at work
    on the same cores meanwhile.
    """
    games = rows // agents
    if games < 1 or rows % agents:
        raise ConfigError(f"{rows} rows, but a game has {agents} agents; make them a multiple of {agents}")
    share, cores = settings.games_per_worker, max(physical_cores() // neighbours, 1)
    for splits in _splits(settings, beside):
        workers = settings.workers
        if workers < 0:
            fitting = [n for n in range(1, cores + 1) if games % (n * splits) == 0]
            workers = games // share if share else max(fitting, default=1)
        processes = max(workers, 1)
        if games % (processes * splits) == 0 and (not share or processes * share == games):
            return WorkerPlan(workers, splits, games // (processes * splits))
    asked = f"{workers} workers x {share or 'any number of'} games" + (f" in {splits} splits" if splits > 1 else "")
    raise ConfigError(
        f"{games} games of {agents} agents, which palus.sampling cannot divide into {asked}; make them "
        + (f"{processes * share}" if share else f"a multiple of {processes * splits}")
        + " (buffer_size / time_horizon / agents that learn), or change workers, games_per_worker, splits or, of sac, "
        "palus.num_matches"
    )


def usable_cpus() -> list[int]:
    """The logical processors that this process may run on, ascending; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def physical_cores() -> int:
    """Cores behind the usable logical processors: hyper-threads of one core count once."""
    cpus = usable_cpus()
    if not cpus:
        return os.cpu_count() or 1
    files = [Path(_TOPOLOGY.format(cpu)) for cpu in cpus]
    return len({file.read_text() if file.exists() else str(file) for file in files})


def cores_for(workers: int, device: bool) -> tuple[list[int | None], int | None]:
    """The processor to pin each worker to, None where they do not spread evenly: some cores would be crowded. And the
    first one where, with policies on a device, all workers but for one leave it to whoever decides for their games."""
    cpus = usable_cpus()
    spare = cpus[0] if device and 0 < workers == len(cpus) - 1 else None
    own = [cpu for cpu in cpus if cpu != spare]
    if not own or workers % len(own):
        return [None] * workers, None
    return [*own] * (workers // len(own)), spare
