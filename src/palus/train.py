"""The training loop. Read this file first: collect, learn, advance the league, report, checkpoint; nothing else acts.

Whatever the game, the trainer and the network: collectors differ in how they step games, learners in what they do with
a rollout, and both are looked up in a table. Phases alternate and each uses all cores: measured on two cores, that
beats overlapping them by half (`palus.sampling.asynchronous` overlaps them).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from palus.arena.referee.result import PairingSummary
from palus.config import Behavior, RunFile
from palus.config.league import Role
from palus.errors import CheckpointError, ConfigError, EnvError, ModelError, ProtocolError, StorageError, WorkerError
from palus.files import write_text
from palus.league.book import Book
from palus.league.league import League
from palus.league.pools import Contender
from palus.league.population import PopulationLeague, shaping_of, with_numbers
from palus.learn import ALGORITHMS
from palus.learn.learner import Learner
from palus.nn.matmul import choose, explain, keep_freed_memory, slowness
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.making import demands_of, draws_of, make_collector, make_source
from palus.rollout.rollout import FROZEN, Collected
from palus.run.baselines import Baselines
from palus.run.folder import RunFolder
from palus.run.guests import Guests
from palus.run.initial import continued, initial_state, with_initial_paths
from palus.run.lessons import Lessons
from palus.run.members import find_guests
from palus.run.mlagents_checkpoint import is_ml_agents
from palus.run.report import Report
from palus.run.saving import Saving
from palus.run.session import interruptible
from palus.run.timers import TIMERS, Timers
from palus.run.trainee import PolicyRecord, Trainee
from palus.trust import NOBODY, Trust
from palus.types import BehaviorSpec, GameSpec
from palus.unity.news import game_of, joined

PHYSICAL_CORES = torch.get_num_threads()
"""What torch counts when it is imported, before anybody changes it."""


_GAME = TypeAdapter(GameSpec)


@dataclass(frozen=True)
class TrainingResult:
    """What a run left behind. model: the trained policy's file; finished: max_steps was reached."""

    model: Path
    steps: int
    wall_seconds: float
    finished: bool


class Run:
    """All parts of one run, wired together; `train` drives them. Close it, or its games stay."""

    def __init__(
        self,
        run: RunFile,
        *,
        resume: bool = False,
        force: bool = False,
        trust: Trust = NOBODY,
        log: Callable[[str, str], None] | None = None,
    ) -> None:
        """log: takes level and text of every line that is told, in place of the terminal."""
        self.trust = trust
        self.source = make_source(run, trust)
        try:
            self._wire(run, resume, force, trust, log)
        except BaseException:
            self.source.close()
            raise

    def _wire(
        self, run: RunFile, resume: bool, force: bool, trust: Trust, log: Callable[[str, str], None] | None
    ) -> None:
        """Make all parts."""
        settings = run.checkpoint_settings
        root = Path(settings.results_dir) / settings.run_id
        if run.talks and not resume:  # before the game writes its log there
            RunFolder(root, list(run.behaviors)).refuse_existing(force=force)
        self.spec = self.source.spec
        run = run.completed(behavior.name for behavior in self.spec.behaviors)
        home = [path.parent.name for path in sorted(root.glob("*/checkpoint.pt"))] if run.talks and resume else []
        self.folder = RunFolder(root, [*home, *run.behaviors])
        self.foreign = resume and is_ml_agents(self.folder.checkpoint)
        saved = self.folder.load() if resume and not self.foreign else None
        if run.talks:
            run = self._recall(run, saved)
        if self.foreign:
            run = continued(run, self.folder)
        elif saved is None:
            run = with_initial_paths(run)
            self.folder.refuse_existing(force=force or run.talks)
        self.threads = run.palus.threads or PHYSICAL_CORES
        torch.set_num_threads(1)  # the learner splits minibatches over its own threads, the game its matches
        keep_freed_memory()
        # A resumed run goes on with the path that it began with: another one would give other bits.
        automatic = run.palus.matmul == "auto" and saved is not None
        self.matmul, self.measured = choose(saved["matmul"] if automatic and saved else run.palus.matmul)
        self.matmul.activate()
        seed = run.env_settings.seed if run.env_settings.seed >= 0 else secrets.randbelow(2**31)
        self.seed = seed = int(saved["seed"]) if saved is not None else seed
        self.run = run = run.model_copy(update={"env_settings": run.env_settings.model_copy(update={"seed": seed})})
        self.populations = self._populations(self.folder.behaviors, 0)
        self.trainees = self._trainees(self.folder.behaviors, 0)
        contenders = [_contender(trainee) for trainee in self.trainees]
        guests = Guests.of(find_guests(run.palus.league.members, self.spec), self.matmul.dtype, trust)
        self.league = League(self.spec, contenders, seed, settings=run.palus.league, members=guests.members)
        self.book = Book(self.league)
        self.saving = Saving(run, self.spec, self.folder, self.trainees, trust)
        self.baselines = Baselines(run, self.spec, {t.kind: t.learner.network for t in self.saving.exported})
        acting = {t.policy: (t.kind, t.learner.network) for t in self.trainees}
        self.collector = make_collector(
            run, self.source, self.spec, acting, {c.policy: self.league.rows_per_match(c) for c in contenders},
            self.league.cast, seed, self.threads, self.saving.load_snapshot, guests.policies, guests.scripts,
            self._meet,
        )  # fmt: skip
        self.timers = Timers()
        self.report = Report(run, self.trainees, self.folder, self.timers, log=log)
        self.lessons = Lessons(run)
        self.opening: list[str] = []  # where the weights come from, in ML-Agents' words
        self.learning_seconds, self.previous_seconds, self.started = 0.0, 0.0, time.perf_counter()
        try:
            if saved is None:
                self.opening += self._initialize(self.trainees)
                if self.foreign:
                    lessons = self.folder.recorded_lessons()
                    self.lessons.load_state_dict({"numbers": lessons, "smoothed": {}, "rewards": {}})
                self.folder.clear()  # only now, when nothing can be wrong with the run file any more
                self.league.advance(self.steps, {}, self.saving.save_snapshot)  # the past begins with the untrained
                self.book.follow()
                self.book.assess()
            else:
                self._load(saved)
                if len(self.trainees) > len(saved["learners"]):  # the past of who is new begins
                    self.league.advance(self.steps, {}, self.saving.save_snapshot)
                for trainee in self.trainees:
                    self.opening.append(f"Resuming from {trainee.folder}.")
                    self.opening.append(f"Resuming training from step {trainee.step}.")
            for name in run.behaviors.keys() - set(self.folder.behaviors):
                self.opening.append(f"{name} has not appeared yet; it is trained when it does.")
            self._shape_rewards()
            self.collector.set_parameters(self.lessons.values)
        except BaseException:
            self.close()
            raise

    def _recall(self, run: RunFile, saved: Mapping[str, Any] | None) -> RunFile:
        """Of a game that talks, put what it told in an earlier part of the run before what it tells now: behaviors
        come when they please, and learners keep their numbers. Returns the run with settings for all of them."""
        if saved is not None and "game" in saved:  # not that of an older version, where nobody came late
            self.spec = joined(_GAME.validate_python(saved["game"]), self.spec)
        there = [behavior.name for behavior in self.spec.behaviors]
        run = run.completed(there)
        before = saved["names"] if saved is not None else ()
        names = [name for name in dict.fromkeys([*before, *run.behaviors]) if name in there and name in run.behaviors]
        self.folder = RunFolder(self.folder.root, names)
        return run

    def _meet(self, name: str, seen: BehaviorSpec) -> str | None:
        """A behavior id speaks for the first time in mid-run: give its behavior the learners that it would have had
        from the start. Returns why it has none."""
        before = self.run, self.spec, self.populations
        self.run = self.run.completed([seen.name])
        self.spec = joined(self.spec, game_of(self.spec.env_id, {name: seen}))
        fresh, lines = list[Trainee](), list[str]()
        try:
            if seen.name not in self.run.behaviors:
                raise ConfigError("the run file has no settings for it; add it to behaviors, or give default_settings")
            if seen.name not in self.folder.behaviors:
                self.run = with_initial_paths(self.run)
                self.populations = self.populations | self._populations([seen.name], len(self.folder.behaviors))
                fresh = self._trainees([seen.name], len(self.trainees))
                lines = self._initialize(fresh)
            contenders = [_contender(trainee) for trainee in (*self.trainees, *fresh)]
            settings, members = self.run.palus.league, self.league.members
            league = League(self.spec, contenders, self.seed, settings=settings, members=members)
        except (CheckpointError, ConfigError, ModelError) as error:
            self.run, self.spec, self.populations = before
            return f"{name} appeared, and its agents play at random: {error}. --resume continues after that."
        league.load_state_dict(self.league.state_dict())
        book, self.league, self.book = self.book, league, Book(league)
        self.book.load_state_dict(book.state_dict())
        self.trainees += fresh
        self.saving.run, self.saving.spec, self.report.run = self.run, self.spec, self.run
        if fresh:
            self._give_room(fresh)
            for line in lines:
                self.report.tell(line)
        acting = {t.policy: (t.kind, t.learner.network) for t in fresh}
        assert isinstance(self.collector, ExchangeCollector), "no other game talks"
        demands = demands_of(self.run, acting, {c.policy: league.rows_per_match(c) for c in contenders})
        self.collector.admit(self.spec, demands, acting, league.cast, draws_of(self.run, self.spec))
        self._publish(league.advance(self.steps, {}, self.saving.save_snapshot))
        return None

    def _give_room(self, fresh: Sequence[Trainee]) -> None:
        """A folder, curves and a place in the lessons for the learners of a behavior that has just appeared."""
        self.folder.add(fresh[0].name)
        self.report.tell(f"{fresh[0].name} appeared, and is trained from now on.")
        self.report.add(fresh)
        lessons, self.lessons = self.lessons, Lessons(self.run)
        self.lessons.load_state_dict(lessons.state_dict())
        self._shape_rewards()

    def _populations(self, names: Sequence[str], first: int) -> dict[str, PopulationLeague]:
        """Those of these behaviors. first: how many behaviors there were before."""
        own = {name: self.run.behaviors[name] for name in names}
        return {
            name: PopulationLeague(behavior.population, behavior, self.seed + number, self.spec.shaping)
            for number, (name, behavior) in enumerate(own.items(), first)
            if behavior.population is not None
        }

    def _trainees(self, names: Sequence[str], first: int) -> list[Trainee]:
        """The learners of each behavior: one, the policies of its population, or those of the league's roles. first:
        the id of the first."""
        found: list[Trainee] = []
        for name in names:
            behavior = self.run.behaviors[name]
            kind, roles = self.spec.behavior(name).name, self.run.learners_of(name)
            several = behavior.population is not None or len(roles) > 1
            for k, role in enumerate(roles):
                tuned: Behavior = behavior
                if behavior.population is not None:
                    tuned = with_numbers(behavior, self.populations[name].numbers[k])
                policy = first + len(found)
                learner = self._untrained(tuned, name, policy)
                record = PolicyRecord(learner.splits_rewards, self.spec.frameskip if learner.counts_frames else None)
                folder = self.folder.of(name) / f"policy_{k}" if several else self.folder.of(name)
                label = _label(name, behavior, roles, k)
                trainee = Trainee(policy, name, kind, label, behavior, learner, folder, record)
                trainee.number, trainee.role = k, role
                trainee.plays_only = self.run.checkpoint_settings.inference
                trainee.in_league = several and behavior.self_play is not None
                found.append(trainee)
        return found

    def _untrained(self, behavior: Behavior, name: str, policy: int) -> Learner:
        """A learner as it is before it has learned anything. name: of the behavior."""
        algorithm, spec = ALGORITHMS[behavior.trainer_type], self.spec.behavior(name)
        return algorithm(behavior, spec, self.matmul.dtype, self.seed + policy, self.threads, trust=self.trust)

    @property
    def steps(self) -> dict[int, int]:
        """Policy id -> trainer steps."""
        return {trainee.policy: trainee.step for trainee in self.trainees}

    @property
    def step(self) -> int:
        """The slowest learner's, of those that learn at all."""
        return min((trainee.step for trainee in self.trainees if trainee.behavior.max_steps), default=0)

    @property
    def checkpoints(self) -> dict[str, int]:
        """By behavior, the multiples of `checkpoint_interval` that its slowest learner has passed."""
        slowest: dict[str, int] = {}
        for trainee in self.trainees:
            slowest[trainee.name] = min(trainee.step, slowest.get(trainee.name, trainee.step))
        return {name: step // self.run.behaviors[name].checkpoint_interval for name, step in slowest.items()}

    @property
    def finished(self) -> bool:
        """Whether every learner has done its max_steps."""
        return all(trainee.step >= trainee.behavior.max_steps for trainee in self.trainees)

    @property
    def wall_seconds(self) -> float:
        """Seconds of training, earlier parts of a resumed run included."""
        return self.previous_seconds + time.perf_counter() - self.started

    def iterate(self) -> None:
        """Collect a rollout of every learner, learn from it, advance the league, report."""
        with self.timers.block("env_step"):
            collected, before = self.collector.collect(), self.steps
        with self.timers.block("trainer_advance"):
            self._digest(collected, before)

    def _digest(self, collected: Collected, before: Mapping[int, int]) -> None:
        """Learn from a rollout, advance the league, report."""
        for trainee in self.trainees:
            trainee.count(trainee.learner.steps_in(collected.rollouts[trainee.policy], self.spec.frameskip))
        if self.league.literal:  # what is due within a rollout has the weights that played it
            self._advance(collected)
        for trainee in self.trainees:
            self._learn(trainee, collected, before[trainee.policy])
        self.collector.release()
        if not self.league.literal:
            self._advance(collected)
        for snapshot in self.league.forgotten(self.collector.in_play):
            self.collector.policies.retired.add(FROZEN + snapshot)
        self._evolve()
        self._teach(collected)
        self._tell()

    def _advance(self, collected: Collected) -> None:
        """Let the league rate, save and change what is due."""
        self.league.rate(collected.matches)
        self.book.rate(collected.matches)
        self._publish(self.league.advance(self.steps, collected.ghost_steps, self.saving.save_snapshot))
        for trainee in (self.trainees[policy] for policy in self.league.resets):
            trainee.learner.take_over(self._untrained(trainee.behavior, trainee.name, trainee.policy))
            self.report.tell(f"{trainee.label}: frozen at step {trainee.step}, begins anew.")
        self._compare()

    def _compare(self) -> None:
        """Learners that share a behavior, by what they take from the league; the best one plays the baselines."""
        for trainee in self.trainees:
            trainee.points = self.league.points(trainee.policy) if trainee.in_league else None
        self.baselines.send({trainee.kind: trainee.learner.network for trainee in self.saving.exported})

    def _publish(self, snapshots: Sequence[int]) -> None:
        """Have new snapshots at hand, and enter them into the book."""
        for snapshot in snapshots:
            self.collector.policies.publish(FROZEN + snapshot, self.saving.load_snapshot(FROZEN + snapshot))
        self.book.follow()

    def _learn(self, trainee: Trainee, collected: Collected, step: int) -> None:
        """Let a learner learn from its rollout; not where it is done, or where it took no decision in it."""
        rollout, begun = collected.rollouts[trainee.policy], time.perf_counter()
        learns = step < trainee.behavior.max_steps and rollout.agent_steps > 0 and not trainee.plays_only
        with self.timers.block("_update_policy"):
            stats = trainee.learner.update(rollout, step) if learns else {}
        self.learning_seconds += time.perf_counter() - begun
        own = [e for e in collected.episodes if e.policy == trainee.policy and e.learned]
        steps = trainee.learner.steps_in(rollout, self.spec.frameskip)
        share = steps / max(rollout.agent_steps, 1)
        at = trainee.shown_step - steps + rollout.ended_after(len(own)) * share
        trainee.record.add(own, stats, collected.entropies[trainee.policy], at.tolist())

    def _teach(self, collected: Collected) -> None:
        """Go on to the next lesson of every parameter whose lesson is over."""
        if not self.lessons.numbers:
            return
        learners = {trainee.policy: trainee for trainee in reversed(self.trainees)}
        ended = [(learners[e.policy], e) for e in collected.episodes if e.learned]
        progress = {trainee.name: trainee.progress for trainee in learners.values()}
        changed = self.lessons.advance(progress, [(own.name, own.record.reward_of(e)) for own, e in ended])
        if changed:
            self.collector.set_parameters(self.lessons.values)
            if self.lessons.resets:
                self.collector.restart()
            for line in self.lessons.lines(changed):
                self.report.tell(line)

    def _evolve(self) -> None:
        """Give every policy of a population that is due its turn."""
        for name, population in self.populations.items():
            policies = [trainee for trainee in self.trainees if trainee.name == name]
            for trainee in policies:
                if not population.is_due(trainee.number, trainee.step):
                    continue
                turn = population.turn(trainee.number, trainee.step, [other.score for other in policies])
                if turn is None:
                    continue
                if turn.donor is not None:
                    self._take_over(trainee, policies[turn.donor])
                trainee.learner.tune(with_numbers(trainee.behavior, turn.numbers))
                self._shape_rewards()

    def _take_over(self, trainee: Trainee, donor: Trainee) -> None:
        """Let a learner go on from another's weights; where there is a past, what it was joins it."""
        if trainee.behavior.self_play is not None:
            self._publish(self.league.take_over(trainee.policy, donor.policy, self.saving.save_snapshot))
            self._compare()
        trainee.learner.take_over(donor.learner)
        self.report.tell(f"{trainee.label}: takes over the weights of {donor.label} at step {trainee.step}.")

    @property
    def _numbers(self) -> dict[int, Mapping[str, float]]:
        """Policy id -> the numbers that it learns with, of populations."""
        own = self.populations
        return {t.policy: own[t.name].numbers[t.number] for t in self.trainees if t.name in own}

    def _shape_rewards(self) -> None:
        for policy, own in self._numbers.items() if self.spec.shaping else ():
            self.collector.shape_rewards(policy, shaping_of(own))

    def _tell(self) -> None:
        """Report what happened and play the baselines when they are due."""
        for complaint in self.collector.complaints():
            self.report.warn(complaint)
        share = self.learning_seconds / max(time.perf_counter() - self.started, 1e-9)
        performance = {"Performance/Learning Share": share, **self.collector.performance()}
        performance |= {f"Environment/Lesson Number/{name}": float(n) for name, n in self.lessons.numbers.items()}
        is_due = any(self.report.is_due(number) for number in range(len(self.trainees)))
        if is_due:
            self.book.assess()
        for number, trainee in enumerate(self.trainees):
            elo, values = self.league.elo.get(trainee.policy), self._values(trainee) if is_due else {}
            self.report.advance(number, self.wall_seconds, elo, performance | values)
            self.saving.keep_best(trainee, self.report)
        if is_due:
            self._write_book()
        if not self.run.checkpoint_settings.inference:
            self.enter(self.baselines.evaluate_if_due(self.step, self.wall_seconds))

    def _values(self, trainee: Trainee) -> dict[str, float]:
        """Tag -> number of a learner for its summary, beside what its record says."""
        numbers = {f"Population/{name}": value for name, value in self._numbers.get(trainee.policy, {}).items()}
        points = {} if trainee.points is None else {"Self-play/League Points": trainee.points}
        return self.book.values(trainee.policy) | points | numbers

    def enter(self, results: Mapping[str, PairingSummary]) -> None:
        """Report what came of matches against fixed opponents, and enter it into the book."""
        player = self.saving.exported[0].policy
        self.report.scores(self.step, {name: result.score for name, result in results.items()}, player)
        for name, result in results.items():
            points, matches = result.wins + 0.5 * result.draws, result.wins + result.draws + result.losses
            self.book.evaluated(player, name, points, matches)

    def _write_book(self) -> None:
        """For readers, so that it goes wrong costs no training."""
        try:
            self.saving.write_book(self.book, self.steps)
        except StorageError as error:
            self.report.warn(f"{error} Training goes on; the next summary tries again.")

    def save(self, due: Collection[str] | None = None) -> Path:
        """Write checkpoint, policies and bundle; returns the model. due: behaviors whose policies are kept by step, all
        without it, as at the end. Raises StorageError; older files stay."""
        with self.timers.block("RLTrainer._checkpoint"):
            return self._save(due)

    def _save(self, due: Collection[str] | None) -> Path:
        # The export refuses weights that diverged, so it comes before the checkpoint that it would replace.
        kept = list(self.run.behaviors) if due is None else due
        models = self.saving.write_onnx(self.report, kept)
        self.folder.save(self._state())
        self._write_book()
        self.saving.prune(self.league, self.league.needed(self.collector.in_play))
        self.saving.write_policies(self.league, self._numbers)
        self.folder.record_lessons(self.lessons.numbers)
        results, pairs = self.baselines.latest, self.baselines.settings.baseline_pairs
        model = self.saving.write_bundle(models, kept, self.league, self.wall_seconds, results, pairs)
        if due is None:
            self.saving.tell_copies(models, self.report)
        return model

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "wall_seconds": self.wall_seconds,
            "matmul": self.matmul.name,
            "names": [t.name for t in self.trainees],
            **({"game": _GAME.dump_python(self.spec)} if self.run.talks else {}),
            "learners": [(t.step, t.best, t.learner.state_dict()) for t in self.trainees],
            "populations": {name: population.state_dict() for name, population in self.populations.items()},
            "collector": self.collector.save(),
            "league": self.league.state_dict(),
            "book": self.book.state_dict(),
            "report": self.report.state_dict(),
            "lessons": self.lessons.state_dict(),
            "baselines": self.baselines.state_dict(),
        }

    def _initialize(self, trainees: Sequence[Trainee]) -> list[str]:
        """Give learners the weights of `init_path`. Where ML-Agents trained them so far, their steps count that.
        Returns where they come from, in ML-Agents' words."""
        lines: list[str] = []
        for trainee in trainees:
            path = trainee.behavior.init_path
            if path is None:
                continue
            try:
                state, steps = initial_state(Path(path), trainee.name, trainee.learner)
                trainee.learner.begin_from(state)
            except (KeyError, IndexError, RuntimeError, ValueError, TypeError, ModelError) as error:
                raise CheckpointError(
                    f"{path}: does not fit behavior {trainee.name} ({error}); its trainer and network_settings have to "
                    "be those of the run that it comes from."
                ) from error
            trainee.step = steps if self.foreign else 0
            lines += (
                [f"Resuming from {trainee.folder}.", f"Resuming training from step {trainee.step}."]
                if self.foreign
                else [
                    f"Initializing from {path}.",
                    f"Starting training from step 0 and saving to {trainee.folder}.",
                ]
            )
        return lines

    def _load(self, state: dict[str, Any]) -> None:
        try:
            for name in self.populations.keys() & state["populations"].keys():  # one may have just appeared
                self.populations[name].load_state_dict(state["populations"][name])
            for policy, numbers in self._numbers.items():
                self.trainees[policy].learner.tune(with_numbers(self.trainees[policy].behavior, numbers))
            known = self.trainees[: len(state["learners"])] if self.run.talks else self.trainees
            for trainee, (step, best, learner) in zip(known, state["learners"], strict=True):
                trainee.learner.load_state_dict(learner)
                trainee.step, trainee.best = int(step), float(best)
            self.league.load_state_dict(state["league"])
            self.book.load_state_dict(state["book"])
            self._compare()
            if "lessons" in state:  # a run of an older version went by progress alone, and finds its way
                self.lessons.load_state_dict(state["lessons"])
            self.collector.load(state["collector"])
            self.report.load_state_dict(state["report"])
            self.baselines.load_state_dict(state["baselines"])
            self.previous_seconds = float(state["wall_seconds"])
        except (KeyError, RuntimeError, ValueError, TypeError, EnvError, ModelError) as error:
            raise CheckpointError(
                f"{self.folder.checkpoint}: does not fit this run file ({error}); resume with the run's own "
                f"{self.folder.root / 'configuration.yaml'}, or start anew with --force."
            ) from error

    def write_timers(self) -> None:
        """`run_logs/timers.json`; like `_write_book`."""
        try:
            write_text(self.folder.own(self.folder.root / TIMERS), self.timers.to_json() + "\n")
        except StorageError as error:
            self.report.warn(str(error))

    def close(self) -> None:
        """End all games and their processes."""
        self.collector.close()


def _contender(trainee: Trainee) -> Contender:
    """A learner as the league sees it."""
    behavior = trainee.behavior
    mixes = behavior.population is None or behavior.population.mix_in_game
    return Contender(
        trainee.policy, trainee.kind, behavior.self_play, behavior.mirrors, behavior.max_steps, trainee.role, mixes
    )


def _label(name: str, behavior: Behavior, roles: Sequence[Role], number: int) -> str:
    """How lines call a learner: by its behavior, and by its number or its role where there are several."""
    if behavior.population is not None:
        return f"{name} policy {number}"
    if len(roles) == 1:
        return name
    role = roles[number]
    return f"{name} {role} {number - roles.index(role) + 1}" if roles.count(role) > 1 else f"{name} {role}"


def train(
    run: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    trust: Trust = NOBODY,
    on_start: Callable[[Run], None] | None = None,
    log: Callable[[str, str], None] | None = None,
) -> TrainingResult:
    """Run to max_steps (or `palus.max_minutes`, or Ctrl-C), save, export; with `inference` play on, and save nothing.

    Ctrl-C once ends after the current iteration with everything saved; twice aborts at once, the last checkpoint stays.
    trust: modules of one's own that the run file may name. log: as `Run` takes it.
    Raises CheckpointError, ConfigError, DivergenceError, EnvError, StorageError, TrustError, WorkerError.
    """
    with interruptible() as interrupted:
        parts = Run(run, resume=resume, force=force, trust=trust, log=log)
        try:
            for line in parts.lessons.lines(parts.lessons.numbers):
                parts.report.tell(line)
            if on_start is not None:
                on_start(parts)
            for line in parts.opening:
                parts.report.tell(line)
            slow = slowness(parts.matmul, parts.measured)
            if slow is not None:
                parts.report.warn(slow)
            with parts.folder.held(), parts.report, parts.timers.block("TrainerController.start_learning"):
                return _drive(parts, interrupted)
        finally:
            parts.close()
            parts.write_timers()


def _drive(parts: Run, interrupted: Callable[[], bool]) -> TrainingResult:
    limit = parts.run.palus.max_minutes * 60
    begun, passed = time.perf_counter(), parts.checkpoints
    inference = parts.run.checkpoint_settings.inference
    while (inference or not parts.finished) and not interrupted():
        try:
            with parts.timers.block("TrainerController.advance"):
                parts.iterate()
        except (ProtocolError, WorkerError):  # before anything was learned from it: what there is is whole
            if not inference:
                parts.save()
            raise
        if limit and time.perf_counter() - begun > limit:
            break
        before, passed = passed, parts.checkpoints
        due = [name for name in passed if passed[name] != before.get(name, 0)]
        if due and not parts.finished:
            try:
                parts.save(due)
            except StorageError as error:
                parts.report.warn(f"{error} Training goes on; the next checkpoint tries again.")
    if inference:  # nothing was learned, and what is there stays
        name = parts.folder.behaviors[0]
        return TrainingResult(parts.folder.root / f"{name}.onnx", parts.step, parts.wall_seconds, False)
    if interrupted():
        parts.report.tell("Learning was interrupted. Please wait while the graph is generated.")
    parts.enter(parts.baselines.evaluate(parts.step))
    model = parts.save()
    return TrainingResult(model, parts.step, parts.wall_seconds, parts.finished)


def describe(parts: Run) -> list[str]:
    """Derived values of a run with their reasons, for the start of the log."""
    return [explain(parts.matmul, parts.measured), *parts.collector.describe(), *parts.baselines.describe()]
