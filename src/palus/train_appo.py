"""The training loop of `appo` behaviors: take a page from the sampler, learn from it, report, checkpoint.

Synchronous by default: phases alternate, each uses all cores, and a run repeats exactly. Asynchronous: the sampler
fills the next page in a thread of its own meanwhile. `train.py` is the loop of games that step as one kernel.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from palus.config import RunFile, dump_run
from palus.config.trainer import AppoBehavior
from palus.errors import CheckpointError, ModelError, StorageError
from palus.export.bundle import Provenance, write_agent_bundle
from palus.files import write_text
from palus.league.casting import Casting
from palus.league.population import PopulationLeague, shaping_of, with_numbers
from palus.league.sampled_ghosts import SampledGhosts
from palus.learn.appo import APPO
from palus.nn.actor_critic import ActorCritic
from palus.nn.matmul import choose, explain, keep_freed_memory, slowness
from palus.rollout.messages import GameMaker
from palus.rollout.sampler import Sampler
from palus.run.agent_folder import FILES, Agent, best_of, write_agent
from palus.run.folder import RunFolder
from palus.run.sampled_report import SampledReport
from palus.run.session import TrainingResult, interruptible, next_multiple
from palus.trust import NOBODY, Trust

PHYSICAL_CORES = torch.get_num_threads()
"""What torch counts when it is imported, before anybody changes it."""
BETTER = 1e-3
"""A new best policy leads by at least this, as in Sample Factory."""


class AppoRun:
    """All parts of one run, wired together; `train_appo` drives them. Close it, or its games stay."""

    def __init__(self, run: RunFile, *, resume: bool = False, force: bool = False, trust: Trust = NOBODY) -> None:
        self.name, behavior = next(iter(run.behaviors.items()))
        assert isinstance(behavior, AppoBehavior) and run.env_id is not None, "checked by palus.config.unsupported"
        self.behavior = behavior
        self.folder = RunFolder(Path(run.checkpoint_settings.results_dir) / run.checkpoint_settings.run_id, self.name)
        saved = self.folder.load() if resume else None
        if saved is None:
            self.folder.refuse_existing(force=force)
        self.threads = run.palus.threads or PHYSICAL_CORES
        torch.set_num_threads(1)  # the learner splits minibatches over its own threads
        keep_freed_memory()
        # A resumed run goes on with the path that it began with: another one would give other bits.
        automatic = run.palus.matmul == "auto" and saved is not None
        self.matmul, self.measured = choose(saved["matmul"] if automatic and saved else run.palus.matmul)
        self.matmul.activate()
        seed = run.env_settings.seed if run.env_settings.seed >= 0 else secrets.randbelow(2**31)
        self.seed = int(saved["seed"]) if saved is not None else seed
        settings = run.env_settings.model_copy(update={"seed": self.seed})
        self.run = run.model_copy(update={"env_settings": settings})
        self.trust = trust
        make = GameMaker(run.env_id, run.palus.env_options, trust)
        game = make()
        self.spec = game.spec
        game.close()
        self._learners_and_sampler(make)
        self.report = SampledReport(self.name, behavior, self.policy_folders, self.folder)
        self.step, self.saves, self.learning_seconds = 0, 0, 0.0
        self._told_losses = 0
        self.previous_seconds, self.started = 0.0, time.perf_counter()
        try:
            if saved is None:
                self.folder.clear()  # only now, when nothing can be wrong with the run file any more
            else:
                self._load(saved)
        except BaseException:
            self.close()
            raise

    def _learners_and_sampler(self, make: GameMaker) -> None:
        behavior, settings = self.behavior, self.behavior.population
        count = settings.size if settings is not None else 1
        self.population = None
        if settings is not None:
            self.population = PopulationLeague(settings, behavior, self.seed, self.spec.shaping)
        numbers = self.population.numbers if self.population is not None else [{}]
        self.learners = [
            APPO(
                with_numbers(behavior, own), self.spec, self.matmul.dtype, self.seed + k, self.threads, trust=self.trust
            )
            for k, own in enumerate(numbers)
        ]
        self.frames, self.records = [0] * count, [float("-inf")] * count
        mix, self_play = settings is not None and settings.mix_in_game, behavior.self_play
        self.ghosts = None
        if self_play is not None:
            self.ghosts = SampledGhosts(self_play, self.name, self.spec, self.folder.snapshots, self.seed)
        self.casting = self.ghosts or Casting(count, self.spec.num_agents, mix, self.seed)
        self.sampler = Sampler(
            make, self.spec, self.run.palus.sampling,
            rows=behavior.hyperparameters.buffer_size // behavior.time_horizon, horizon=behavior.time_horizon,
            seed=self.seed, policies={k: learner.policy for k, learner in enumerate(self.learners)},
            assign=self.casting, reward_scale=behavior.extrinsic.strength,
            reward_clip=behavior.hyperparameters.reward_clip,
        )  # fmt: skip
        if self.population is not None:
            self._shape_rewards(self.population)

    def _shape_rewards(self, population: PopulationLeague) -> None:
        for k, own in enumerate(population.numbers):
            self.sampler.shape_rewards(k, shaping_of(own))

    @property
    def policy_folders(self) -> list[Path]:
        """Where each policy's files lie."""
        root = self.folder.behavior_folder
        return [root] if self.population is None else [root / f"policy_{k}" for k in range(len(self.learners))]

    @property
    def wall_seconds(self) -> float:
        """Seconds of training, earlier parts of a resumed run included."""
        return self.previous_seconds + time.perf_counter() - self.started

    def iterate(self) -> None:
        """Take one page, let every policy learn from its part of it, report. The step is the slowest policy's."""
        for k, learner in enumerate(self.learners):
            page, ends = self.sampler.collect(k)
            begun = time.perf_counter()
            stats = learner.update(page, self.frames[k])
            self.learning_seconds += time.perf_counter() - begun
            self.frames[k] += page.frames
            self.report.records[k].add(ends, stats, self.sampler.entropy[k])
        if self.ghosts is not None:
            self.ghosts.rate(self.sampler.all_ends)
        self._tell_losses()
        self.sampler.release()
        self.step = min(self.frames)
        self._keep_best()
        if self.ghosts is not None and self.ghosts.is_due(self.step):
            self._add_ghost(self.ghosts)
        if self.population is not None:
            self._evolve(self.population)
        self.report.advance(self.step, self.wall_seconds, self._performance())

    def _tell_losses(self) -> None:
        """Say that a worker was lost, once; training goes on."""
        faults = self.sampler.faults
        if faults.lost > self._told_losses:
            self._told_losses = faults.lost
            self.report.warn(
                f"lost {faults.last}. A new one took its place and training goes on; so far {faults.lost} were lost, "
                f"and {faults.dropped} decisions with them."
            )

    def _performance(self) -> dict[str, float]:
        faults, times = self.sampler.faults, self.sampler.times
        seconds = max(time.perf_counter() - self.started, 1e-9)
        return {
            **({} if self.ghosts is None else {"Self-play/ELO": self.ghosts.elo}),
            "Performance/Learning Share": self.learning_seconds / seconds,
            "Performance/Deciding Share": times.deciding / seconds,
            "Performance/Waiting Share": times.waiting / seconds,
            "Sampling/Crashed": float(faults.crashed),
            "Sampling/Hung": float(faults.hung),
            "Sampling/Dropped Decisions": float(faults.dropped),
        }

    def _keep_best(self) -> None:
        """Write best.npz of every policy whose recent mean is a new record."""
        behavior = self.behavior
        for k, (record, folder) in enumerate(zip(self.report.records, self.policy_folders, strict=True)):
            mean = record.mean(behavior.best_metric)
            full = len(record.recent) == record.recent.maxlen
            if not full or mean is None or self.frames[k] < behavior.save_best_after or mean < self.records[k] + BETTER:
                continue
            try:
                write_agent(self.folder.own(folder / FILES["best"]), self._agent(k))
            except StorageError as error:
                self.report.warn(f"{error} Training goes on; the next record tries again.")
                continue
            self.records[k] = mean

    def _agent(self, k: int) -> Agent:
        arrays, metric = self.learners[k].policy.arrays(), self.report.records[k].mean(self.behavior.best_metric)
        return Agent(self.spec, self.behavior.network_settings, arrays, self.frames[k], metric)

    def _add_ghost(self, ghosts: SampledGhosts) -> None:
        """Make the present policy an opponent of later ones."""
        try:
            self.folder.own(ghosts.next_path)
            snapshot = ghosts.save(self.step, self.learners[0].policy.arrays())
        except StorageError as error:
            self.report.warn(f"{error} Training goes on against older snapshots.")
            return
        self._publish(ghosts, snapshot)
        ghosts.admit(snapshot)

    def _publish(self, ghosts: SampledGhosts, snapshot: int) -> None:
        settings, dtype = self.behavior.network_settings, self.matmul.dtype
        policy = ActorCritic(self.spec, settings, torch.Generator(), dtype, trust=self.trust)
        policy.load_arrays(ghosts.arrays(snapshot))
        self.sampler.publish(ghosts.policy_id(snapshot), policy)

    def _evolve(self, population: PopulationLeague) -> None:
        """Give every policy that is due its turn."""
        for k, learner in enumerate(self.learners):
            if not population.is_due(k, self.frames[k]):
                continue
            objectives = [record.mean(self.behavior.best_metric) for record in self.report.records]
            turn = population.turn(k, self.frames[k], objectives)
            if turn is None:
                continue
            if turn.donor is not None:
                learner.take_over(self.learners[turn.donor])
                self.report.tell(f"{self.name} policy {k}: takes over policy {turn.donor}'s weights.")
            learner.tune(with_numbers(self.behavior, turn.numbers))
            self._shape_rewards(population)

    def save(self) -> Path:
        """Write checkpoint, policies and bundle, and start all games anew. Raises StorageError; older files stay.

        Games cannot be saved. As they start anew at every checkpoint, a run that is resumed equals one that never
        stopped (synchronous mode).
        """
        self.saves += 1
        self.casting.restart(self.saves)
        self.sampler.restart_games(self.saves)
        agents = [self._agent(k) for k in range(len(self.learners))]
        for agent, folder in zip(agents, self.policy_folders, strict=True):
            write_agent(self.folder.own(folder / FILES["latest"]), agent)
        if self.population is not None:
            for own, folder in zip(self.population.numbers, self.policy_folders, strict=True):
                write_text(self.folder.own(folder / "hyperparameters.json"), json.dumps(own, indent=2) + "\n")
        self.folder.save(self._state())
        if self.ghosts is not None:
            self.ghosts.prune()
        model = self._export(best_of(agents))
        self.report.tell(f"Exported {model} at step {self.step}.")
        return model

    def _export(self, agent: Agent) -> Path:
        """Write the bundle; returns its model, or policy.npz where that is all there can be."""
        elo = None if self.ghosts is None else self.ghosts.elo
        provenance = Provenance(self.run.env_id or "", "appo", agent.steps, self.wall_seconds, elo)
        settings, configuration = agent.settings, dump_run(self.run)
        try:
            return write_agent_bundle(
                self.folder.own_bundle(), self.name, agent.arrays, agent.spec, settings, configuration, provenance
            )
        except ModelError as error:
            self.report.warn(f"no ONNX file: {error}")
            return self.policy_folders[0] / FILES["latest"]

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "step": self.step,
            "saves": self.saves,
            "frames": list(self.frames),
            "records": list(self.records),
            "wall_seconds": self.wall_seconds,
            "matmul": self.matmul.name,
            "learners": [learner.state_dict() for learner in self.learners],
            "population": self.population.state_dict() if self.population is not None else None,
            "ghosts": self.ghosts.state_dict() if self.ghosts is not None else None,
            "sampler": self.sampler.state_dict(),
            "report": self.report.state_dict(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        try:
            if self.population is not None:
                self.population.load_state_dict(state["population"])
                for learner, numbers in zip(self.learners, self.population.numbers, strict=True):
                    learner.tune(with_numbers(self.behavior, numbers))
                self._shape_rewards(self.population)
            for learner, saved in zip(self.learners, state["learners"], strict=True):
                learner.load_state_dict(saved)
            if self.ghosts is not None:
                self.ghosts.load_state_dict(state["ghosts"])
                for snapshot in self.ghosts.window:
                    self._publish(self.ghosts, snapshot)
            self.sampler.load_state_dict(state["sampler"])
            self.report.load_state_dict(state["report"])
            self.frames, self.records = list(state["frames"]), list(state["records"])
            self.step, self.saves, self.previous_seconds = state["step"], state["saves"], state["wall_seconds"]
            self.casting.restart(self.saves)
        except (KeyError, RuntimeError, ValueError, TypeError, ModelError) as error:
            raise CheckpointError(
                f"{self.folder.checkpoint}: does not fit this run file ({error}); resume with the run's own "
                f"{self.folder.root / 'configuration.yaml'}, or start anew with --force."
            ) from error

    def close(self) -> None:
        """End all games and their processes."""
        self.sampler.close()


def train_appo(
    run: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    trust: Trust = NOBODY,
    on_start: Callable[[AppoRun], None] | None = None,
) -> TrainingResult:
    """Run to max_steps engine frames (or `palus.max_minutes`, or Ctrl-C) and save.

    Ctrl-C once ends after the current page with everything saved; twice aborts at once, the last checkpoint stays.
    trust: modules of one's own that the run file may name.
    Raises CheckpointError, ConfigError, DivergenceError, EnvError, StorageError, TrustError, WorkerError.
    """
    with interruptible() as interrupted:
        parts = AppoRun(run, resume=resume, force=force, trust=trust)
        try:
            if on_start is not None:
                on_start(parts)
            slow = slowness(parts.matmul, parts.measured)
            if slow is not None:
                parts.report.warn(slow)
            with parts.report:
                return _drive(parts, interrupted)
        finally:
            parts.close()


def _drive(parts: AppoRun, interrupted: Callable[[], bool]) -> TrainingResult:
    behavior, limit = parts.behavior, parts.run.palus.max_minutes * 60
    begun, next_save = time.perf_counter(), next_multiple(parts.step, behavior.checkpoint_interval)
    while parts.step < behavior.max_steps and not interrupted():
        parts.iterate()
        if limit and time.perf_counter() - begun > limit:
            break
        if next_save <= parts.step < behavior.max_steps:
            next_save = next_multiple(parts.step, behavior.checkpoint_interval)
            try:
                parts.save()
            except StorageError as error:
                parts.report.warn(f"{error} Training goes on; the next checkpoint tries again.")
    model = parts.save()
    return TrainingResult(model, parts.step, parts.wall_seconds, parts.step >= behavior.max_steps)


def describe(parts: AppoRun) -> list[str]:
    """Derived values of a run with their reasons, for the start of the log."""
    h, horizon, staff = parts.behavior.hyperparameters, parts.behavior.time_horizon, parts.sampler.staff
    rows = h.buffer_size // horizon
    games = rows // parts.spec.num_agents
    place = f"{staff.workers} workers" if staff.workers else "the main process"
    return [
        explain(parts.matmul, parts.measured),
        f"{games} games in {place} = buffer_size {h.buffer_size} / time_horizon {horizon}"
        + (f" / {parts.spec.num_agents} agents" if parts.spec.num_agents > 1 else ""),
        f"1 step = 1 engine frame; a decision takes {parts.spec.frameskip}",
    ]
