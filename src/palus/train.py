"""The training loop. Read this file first: collect, learn, advance the league, report, checkpoint; nothing else acts.

Phases alternate and each uses all cores: measured on two cores, that beats overlapping them by half.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from palus import envs
from palus.config import RunFile, dump_run
from palus.errors import CheckpointError, EnvError, StorageError
from palus.export.bundle import Provenance, write_bundle, write_onnx
from palus.league.ghosts import GhostLeague
from palus.learn.learner import Learner, frozen_policy
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.nn.matmul import MatmulPath, choose, explain, keep_freed_memory, slowness
from palus.rollout.collector import Collector, PolicyFunction, Teams
from palus.rollout.rollout import LATEST, Matchup
from palus.run.baselines import Baselines
from palus.run.folder import RunFolder
from palus.run.report import Report
from palus.run.session import TrainingResult, interruptible, next_multiple
from palus.trust import NOBODY, Trust

ALGORITHMS: dict[str, Callable[..., Learner]] = {"ppo": PPO, "poca": POCA}
PHYSICAL_CORES = torch.get_num_threads()
"""What torch counts when it is imported, before anybody changes it."""
TARGET_ROLLOUT_STEPS = 80
"""Decisions per rollout when the number of matches is automatic: several times GAE's reach, 1 / (1 - gamma lambda)."""


class Run:
    """All parts of one run, wired together; `train` drives them."""

    def __init__(self, run: RunFile, *, resume: bool = False, force: bool = False, trust: Trust = NOBODY) -> None:
        self.run = run
        self.name, self.behavior = next(iter(run.behaviors.items()))
        self.folder = RunFolder(Path(run.checkpoint_settings.results_dir) / run.checkpoint_settings.run_id, self.name)
        self.saved = self.folder.load() if resume else None
        if self.saved is None:
            self.folder.refuse_existing(force=force)
        self.threads = run.palus.threads or PHYSICAL_CORES
        torch.set_num_threads(1)  # the learner splits minibatches over its own threads, the game its matches
        keep_freed_memory()
        # A resumed run goes on with the path that it began with: another one would give other bits.
        automatic = run.palus.matmul == "auto" and self.saved is not None
        self.matmul, self.measured = choose(self.saved["matmul"] if automatic and self.saved else run.palus.matmul)
        self.matmul.activate()
        seed = run.env_settings.seed if run.env_settings.seed >= 0 else secrets.randbelow(2**31)
        if self.saved is not None:
            seed = self.saved["seed"]
        self.seed = seed
        self.run = run = run.model_copy(update={"env_settings": run.env_settings.model_copy(update={"seed": seed})})
        env_id, self_play = run.env_id, self.behavior.self_play
        assert env_id is not None, "checked by palus.config.unsupported"
        probe = envs.make(env_id, 1, trust, **run.palus.env_options)
        teams = Teams.of(probe, self_play is not None)
        self.spec = probe.spec.behavior(self.name)
        matches, steps = _sizes(run, self.name, teams)
        options = ({"threads": self.threads} if env_id == "SoccerTwos" else {}) | run.palus.env_options
        env = envs.make(env_id, matches, trust, **options)
        self.league = None
        if self_play is not None:
            self.league = GhostLeague(self_play, self.name, len(teams.agents), self.folder.snapshots, seed)
        self.learner: Learner = ALGORITHMS[self.behavior.trainer_type](
            self.behavior, self.spec, self.matmul.dtype, seed, self.threads
        )
        self.baselines = Baselines(run, probe.spec, self.learner.actor)
        if self.saved is None:
            self.folder.clear()  # only now, when nothing can be wrong with the run file any more
            if self.league is not None:
                self.folder.own(self.league.next_path)
                self.league.advance(0, 0, self.learner.actor.arrays())  # the pool starts with the untrained policy
        draw = self.league.draw if self.league is not None else lambda slot: Matchup(0, LATEST)
        self.collector = Collector(env, teams, steps, seed, draw, self.threads)
        self.step, self.previous_seconds, self.started = 0, 0.0, time.perf_counter()
        self.report = Report(run, self.name, self.folder)
        self._opponent = lru_cache(maxsize=256)(self._load_opponent)
        if self.saved is not None:
            self._load(self.saved)
            self.saved = None

    @property
    def wall_seconds(self) -> float:
        """Seconds of training, earlier parts of a resumed run included."""
        return self.previous_seconds + time.perf_counter() - self.started

    def _load_opponent(self, snapshot: int) -> PolicyFunction:
        assert self.league is not None
        return frozen_policy(self.league.arrays(snapshot), self.matmul.dtype)

    def iterate(self) -> None:
        """Collect one rollout, learn from it, advance the league, report."""
        self.collector.env.set_parameters(self.run.parameters_at(self.step / self.behavior.max_steps))
        rollout, episodes = self.collector.collect(self.learner.actor, self._opponent, self.learner.updates)
        stats = self.learner.update(rollout, self.step)
        self.step += rollout.agent_steps
        if self.league is not None:
            for episode in episodes:
                self.league.rate(episode)
            self.folder.own(self.league.next_path)
            ghost_steps = rollout.agent_steps * (len(self.collector.teams.agents) - 1)
            self.league.advance(self.step, ghost_steps, self.learner.actor.arrays())
            self.league.forget(self.collector.opponents_in_play)
        elo = self.league.elo if self.league is not None else None
        self.report.add(self.step, self.wall_seconds, episodes, stats, self.collector.take_entropy(), elo)
        self.report.scores(self.step, self.baselines.evaluate_if_due(self.step))

    def save(self) -> Path:
        """Write checkpoint, snapshot list, policy and bundle. Raises StorageError; older files stay."""
        elo = self.league.elo if self.league is not None else None
        arrays = self.learner.actor.arrays()
        # The export refuses weights that diverged, so it comes before the checkpoint that it would replace.
        write_onnx(self.folder.own(self.folder.behavior_folder / f"{self.name}-{self.step}.onnx"), arrays, self.spec)
        self.folder.save(self._state())
        if self.league is not None:
            self.league.prune(self.collector.opponents_in_play)
        env_id, trainer = self.run.env_id or "", self.behavior.trainer_type
        measured = (self.baselines.latest, self.baselines.settings.baseline_pairs)
        provenance = Provenance(env_id, trainer, self.step, self.wall_seconds, elo, *measured)
        model = write_bundle(self.folder.own_bundle(), arrays, self.spec, dump_run(self.run), provenance)
        self.folder.record_checkpoint(self.step, self.report.mean_reward, self.behavior.keep_checkpoints, elo)
        self.report.checkpoint(self.step, model)
        return model

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "step": self.step,
            "wall_seconds": self.wall_seconds,
            "matmul": self.matmul.name,
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "league": self.league.state_dict() if self.league is not None else None,
            "report": self.report.state_dict(),
            "baselines": self.baselines.state_dict(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        try:
            self.learner.load_state_dict(state["learner"])
            if self.league is not None:
                self.league.load_state_dict(state["league"])
            self.collector.load_state_dict(state["collector"])
            self.report.load_state_dict(state["report"])
            self.baselines.load_state_dict(state["baselines"])
            self.step, self.previous_seconds = state["step"], state["wall_seconds"]
        except (KeyError, RuntimeError, ValueError, TypeError, EnvError) as error:
            raise CheckpointError(
                f"{self.folder.checkpoint}: does not fit this run file ({error}); resume with the run's own "
                f"{self.folder.root / 'configuration.yaml'}, or start anew with --force."
            ) from error


def train(
    run: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    trust: Trust = NOBODY,
    on_start: Callable[[Run], None] | None = None,
) -> TrainingResult:
    """Run to max_steps (or `palus.max_minutes`, or Ctrl-C), save, export.

    Ctrl-C once ends after the current iteration with everything saved; twice aborts at once, the last checkpoint stays.
    trust: modules of one's own that the run file may name.
    Raises CheckpointError, ConfigError, EnvError, StorageError, TrustError.
    """
    parts = Run(run, resume=resume, force=force, trust=trust)
    if on_start is not None:
        on_start(parts)
    slow = slowness(parts.matmul, parts.measured)
    if slow is not None:
        parts.report.warn(slow)
    behavior, limit = parts.behavior, run.palus.max_minutes * 60
    session_start = time.perf_counter()
    next_save = next_multiple(parts.step, behavior.checkpoint_interval)
    with parts.report, interruptible() as interrupted:
        while parts.step < behavior.max_steps and not interrupted():
            parts.iterate()
            if limit and time.perf_counter() - session_start > limit:
                break
            if parts.step >= next_save:
                next_save = next_multiple(parts.step, behavior.checkpoint_interval)
                if parts.step >= behavior.max_steps:
                    break  # saved below, with the last scores
                try:
                    parts.save()
                except StorageError as error:
                    parts.report.warn(f"{error} Training goes on; the next checkpoint tries again.")
        parts.report.scores(parts.step, parts.baselines.evaluate(parts.step))
        model = parts.save()
    return TrainingResult(model, parts.step, parts.wall_seconds, parts.step >= behavior.max_steps)


def _sizes(run: RunFile, name: str, teams: Teams) -> tuple[int, int]:
    """Matches N and decisions T, so that N x learning agents x T covers buffer_size."""
    behavior = run.behaviors[name]
    rows_per_match = teams.agents.shape[1]
    buffer_size = behavior.hyperparameters.buffer_size
    target = min(behavior.time_horizon, TARGET_ROLLOUT_STEPS)
    matches = run.palus.num_matches or max(1, buffer_size // (rows_per_match * target))
    return matches, -(-buffer_size // (matches * rows_per_match))


def describe(parts: Run) -> list[str]:
    """Derived values of a run with their reasons, for the start of the log."""
    collector = parts.collector
    L = collector.rows_per_match
    return [
        explain(parts.matmul, parts.measured),
        f"{collector.env.num_matches} matches x {L} learning agents x {collector.rollout_steps} decisions "
        f"= {collector.env.num_matches * L * collector.rollout_steps} steps per update",
    ]


__all__ = ["MatmulPath", "Run", "TrainingResult", "describe", "train"]
