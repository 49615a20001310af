"""The training loop. Read this file first: collect, learn, advance the league, report, checkpoint; nothing else acts.

Whatever the game, the trainer and the network: collectors differ in how they step games, learners in what they do with
a rollout, and both are looked up in a table. Phases alternate where each uses all cores; games in worker processes do
not, and play the next rollout while APPO learns (`Collector.beside`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from palus.arena.referee.result import PairingSummary
from palus.config import RunFile, notes
from palus.envs import GameSource
from palus.errors import EnvError, PalusError, ProtocolError, StoppedEarly, WorkerError
from palus.league.exchange import Berth
from palus.league.population import with_numbers
from palus.learn.ranks import ALONE, Ranks
from palus.nn.matmul import explain, slowness
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.game_statistics import GameTold
from palus.rollout.rollout import FROZEN, Collected, FinishedMatch, Pace
from palus.rollout.workers import WorkerCollector
from palus.run.misfits import known_game
from palus.run.parts import Parts
from palus.run.session import interruptible
from palus.run.trainee import Trainee
from palus.trust import NOBODY, Trust

BOOK_SECONDS = 1.0
"""The book is written for readers, so many seconds apart at the least; checkpoints write it, too."""


@dataclass(frozen=True)
class TrainingResult:
    """What a run left behind. model: the trained policy's file, which inference does not write; finished: max_steps was
    reached."""

    model: Path
    steps: int
    wall_seconds: float
    finished: bool


class Run(Parts):
    """One run: what its parts do in an iteration; `train` drives it. collecting: it plays, and has learned nothing of
    that yet."""

    collecting = False

    def iterate(self) -> None:
        """Collect a rollout of every learner, learn from it, advance the league, report."""
        for trainee in self.trainees:
            trainee.publish()
        self.collecting = True
        with self.timers.block("env_step"):
            collected, before = self._together(self.collector.collect()), self.steps
        self.collecting = False
        with self.timers.block("trainer_advance"):
            self._digest(collected, before)

    def _together(self, collected: Collected) -> Collected:
        """What all ranks brought, in the order in which one process would tell it; rollouts stay where they are."""
        if self.ranks.size == 1:
            return collected
        own_paces = {policy: rollout.pace for policy, rollout in collected.rollouts.items()}
        told = self.ranks.gather(
            (
                own_paces, collected.entropies, collected.episodes, collected.matches, collected.ghost_steps,
                collected.outdated,
            )
        )  # fmt: skip
        paces = {policy: Pace.of([own[0][policy] for own in told]) for policy in own_paces}
        entropies = {
            policy: sum(own[1][policy] * own[0][policy].agent_steps for own in told) / max(pace.agent_steps, 1)
            for policy, pace in paces.items()
        }
        episodes = sorted((e for own in told for e in own[2]), key=lambda e: e.decision)  # of one decision, by match
        matches = sorted((m for own in told for m in own[3]), key=lambda m: m.decision)
        ghost_steps = {name: sum(own[4][name] for own in told) for name in collected.ghost_steps}
        outdated = any(own[5] for own in told)
        return Collected(collected.rollouts, entropies, episodes, matches, ghost_steps, paces, outdated)

    def _digest(self, collected: Collected, before: Mapping[int, int]) -> None:
        """Learn from a rollout, advance the league, report."""
        for trainee in self.trainees:
            trainee.count(trainee.learner.steps_in(collected.steps_of(trainee.policy), self.spec.frameskip))
        if not self.maker.beside:  # else opponents are drawn while it learns, as they stand before
            self.computing.postponed(partial(self._rate, collected.matches))
        if self.league.literal:  # what is due within a rollout has the weights that played it
            self._advance(collected)
        if self.maker.beside:  # nobody else reads the league while matches are cast
            self.computing.postponed.do()
        with self.collector.beside():
            for trainee in self.trainees:
                self._learn(trainee, collected, before[trainee.policy])
        self.collector.release()
        if not self.league.literal:
            self._advance(collected)
        forgotten = self.league.forgotten(self.in_play)
        self.collector.policies.retired.update(FROZEN + snapshot for snapshot in forgotten)
        if forgotten:
            self.saving.forget(forgotten - self.unsent)
        self._evolve()
        self._teach(collected)
        self._tell()

    def _rate(self, matches: Sequence[FinishedMatch]) -> None:
        """Enter what came of matches."""
        self.league.rate(matches)
        self.book.rate(matches)
        if self.exchange is not None:
            self.exchange.rate(matches, self.league)

    def _advance(self, collected: Collected) -> None:
        """Let the league save and change what is due, when all matches are rated."""
        self.computing.postponed.do()
        if self.maker.beside:
            self._rate(collected.matches)
        self._publish(self.league.advance(self.steps, collected.ghost_steps, self.saving.save_snapshot))
        for trainee in (self.trainees[policy] for policy in self.league.resets):
            trainee.learner.take_over(self.maker.untrained(trainee.behavior, self.spec, trainee.name, trainee.policy))
            self.report.tell(f"{trainee.label}: frozen at step {trainee.step}, begins anew.")
        self._compare()

    def _learn(self, trainee: Trainee, collected: Collected, step: int) -> None:
        """Let a learner learn from its rollout; not where it is done, or where it took no decision in it."""
        rollout, begun = collected.rollouts[trainee.policy], time.perf_counter()
        pace = collected.pace_of(trainee.policy)
        learns = step < trainee.behavior.max_steps and pace.agent_steps > 0 and not trainee.plays_only
        with self.timers.block("_update_policy"):
            stats = trainee.learner.update(rollout, step) if learns else {}
            self.computing.postponed.do()  # the last summary tells nothing of this rollout
            if learns:
                trainee.learner.calibrate(rollout)
        self.learning_seconds += time.perf_counter() - begun
        own = [e for e in collected.episodes if e.policy == trainee.policy and e.learned]
        steps = trainee.learner.steps_in(pace.agent_steps, self.spec.frameskip)
        share = steps / max(pace.agent_steps, 1)
        at = trainee.shown_step - steps + pace.ended_after(len(own)) * share
        trainee.record.add(own, stats, collected.entropies[trainee.policy], at.tolist())

    def _teach(self, collected: Collected) -> None:
        """Go on to the next lesson of every parameter whose lesson is over; who played in an older one has no say."""
        if not self.lessons.numbers:
            return
        learners = {trainee.policy: trainee for trainee in reversed(self.trainees)}
        ended = [(learners[e.policy], e) for e in collected.episodes if e.learned and not collected.outdated]
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

    def _tell(self) -> None:
        """Report what happened and play the baselines when they are due."""
        for complaint in (line for own in self.ranks.gather([*self.collector.complaints()]) for line in own):
            self.report.warn(complaint)
        share = self.learning_seconds / max(time.perf_counter() - self.started, 1e-9)
        performance = {"Performance/Learning Share": share, **self.collector.performance()}
        performance |= {f"Environment/Lesson Number/{name}": float(n) for name, n in self.lessons.numbers.items()}
        is_due = any(self.report.is_due(number) for number in range(len(self.trainees)))
        elo, seconds, now = self.league.elo, self.wall_seconds, time.perf_counter()
        told = [(own, own.shown_step, self._statistics(number)) for number, own in enumerate(self.trainees)]

        def summarize() -> None:
            if is_due:
                self.book.assess()
            for number, (own, step, statistics) in enumerate(told):
                numbers = performance | (self._values(own) if is_due else {})
                self.report.advance(number, step, seconds, now, elo.get(own.policy), numbers, statistics)

        self.computing.postponed(summarize)
        for trainee in self.trainees:
            self.saving.keep_best(trainee, self.report)
        if is_due and time.monotonic() - self.book_written > BOOK_SECONDS:
            self.computing.postponed(partial(self._write_book, self.steps))
        if self.exchange is not None:
            self.exchange.greet(self.steps)
        if not self.run.checkpoint_settings.inference and self.ranks.rank == 0:
            self.enter(self.baselines.evaluate_if_due(self.step, self.wall_seconds))

    def _statistics(self, number: int) -> GameTold:
        """What the games told of themselves since a learner's latest summary, where it has another one now."""
        if not isinstance(self.collector, ExchangeCollector) or not self.report.is_due(number):
            return GameTold()
        return self.collector.statistics.take(self.trainees[number].policy)

    def _values(self, trainee: Trainee) -> dict[str, float]:
        """Tag -> number of a learner for its summary, beside what its record says."""
        numbers = {f"Population/{name}": value for name, value in self._numbers.get(trainee.policy, {}).items()}
        points = {} if trainee.points is None else {"Self-play/League Points": trainee.points}
        return self.book.values(trainee.policy) | points | numbers

    def enter(self, results: Mapping[str, PairingSummary]) -> None:
        """Report what came of matches against fixed opponents, and enter it into the book."""
        if results:  # they stand behind the summary
            self.computing.postponed.do()
        player = self.saving.exported[0].policy
        self.report.scores(self.step, {name: result.score for name, result in results.items()}, player)
        for name, result in results.items():
            points, matches = result.wins + 0.5 * result.draws, result.wins + result.draws + result.losses
            self.book.evaluated(player, name, points, matches)


def train(
    run: RunFile,
    *,
    resume: bool = False,
    force: bool = False,
    trust: Trust = NOBODY,
    on_start: Callable[[Run], None] | None = None,
    log: Callable[[str, str], None] | None = None,
    berth: Berth | None = None,
    ranks: Ranks = ALONE,
    alone: bool | None = None,
) -> TrainingResult:
    """Run to max_steps (or `palus.max_minutes`, or Ctrl-C), save, export; with `inference` play on, and save nothing.

    Ctrl-C once ends after the current iteration with everything saved, and before it where games keep it waiting; twice
    aborts at once, the last checkpoint stays.
    trust: modules of one's own that the run file may name. log, berth, alone: as `Run` takes them. ranks: each of them
    calls this with the same arguments; rank 0 tells and writes.
    Raises CheckpointError, ConfigError, DivergenceError, EnvError, RankError, StorageError, TrustError, WorkerError.
    """
    with (
        interruptible() as interrupted,
        closing(
            Run(run, resume=resume, force=force, trust=trust, log=log, berth=berth, ranks=ranks, alone=alone)
        ) as parts,
    ):
        try:
            if on_start is not None:
                on_start(parts)
            for line in (*parts.opening, *parts.lessons.lines(parts.lessons.numbers)):
                parts.report.tell(line)
            slow = slowness(parts.computing.matmul, parts.computing.measured, setting=parts.run.palus.matmul)
            if slow is not None:
                parts.report.warn(slow)
            with parts.report, parts.timers.block("TrainerController.start_learning"):
                return _drive(parts, interrupted)
        finally:
            parts.collector.close()
            parts.write_timers()
            if parts.exchange is not None:
                parts.exchange.greet(parts.steps, "stopped")


def _drive(parts: Run, interrupted: Callable[[], bool]) -> TrainingResult:
    limit, ranks = parts.run.palus.max_minutes * 60, parts.ranks
    begun, before = time.perf_counter(), parts.steps
    inference = parts.run.checkpoint_settings.inference
    pressed = late = False
    if isinstance(parts.collector, ExchangeCollector):
        parts.collector.stopped = interrupted
    if isinstance(parts.collector, WorkerCollector) and ranks.size == 1:  # several have to end and tell together
        parts.collector.stopped, parts.collector.warn = interrupted, parts.report.warn
    while (inference or not parts.finished) and not (pressed or late):
        try:
            with parts.timers.block("TrainerController.advance"):
                parts.iterate()
        except StoppedEarly:
            pressed = True
            break
        except Exception as error:
            # What there is is whole. A league starts a run again that died by an exception of the game's own, and for
            # ever where it tells of a checkpoint each time: only who has come further saves then.
            further = parts.collecting and parts.steps != before
            if further or isinstance(error, EnvError | ProtocolError | WorkerError):
                _give_up(parts)
            raise
        # One word of any rank ends all of them, after the same iteration.
        words = ranks.gather((interrupted(), limit > 0 and time.perf_counter() - begun > limit))
        pressed, late = (any(said) for said in zip(*words, strict=True))
        if not (pressed or late):
            parts.save_if_due()
    if inference:  # nothing was learned, and what is there stays
        name = parts.folder.behaviors[0]
        return TrainingResult(parts.folder.root / f"{name}.onnx", parts.step, parts.wall_seconds, False)
    parts.report.seconds = parts.wall_seconds  # test matches may have taken long since the last iteration
    if pressed:
        parts.report.tell("Learning was interrupted. Please wait while the graph is generated.")
        if parts.baselines.opponents:  # they are played for seconds, and who has pressed may press again, or kill
            parts.save(())
            parts.report.tell("Saved. The last test matches are played; Ctrl-C again leaves them out.")
    if ranks.rank == 0:
        parts.enter(parts.baselines.evaluate(parts.step))
    model = parts.save()
    return TrainingResult(model, parts.step, parts.wall_seconds, parts.finished)


def _give_up(parts: Run) -> None:
    """Save what was learned where games go on no more, whatever they raised; matches that run are lost."""
    for complaint in parts.collector.complaints():
        parts.report.warn(complaint)
    if parts.run.checkpoint_settings.inference or parts.ranks.size > 1:
        return
    parts.collector.restart()
    try:
        parts.save()
    except PalusError as failure:  # which is not why the run ends
        parts.report.warn(str(failure))


def describe(parts: Run) -> list[str]:
    """Derived values of a run with their reasons, and keys without effect, for the start of the log."""
    computing, ranks = parts.computing, parts.ranks.size
    in_int8 = any(trainee.learner.network.int8 is not None for trainee in parts.trainees)
    source = parts.source if isinstance(parts.source, GameSource) else None
    is_over = parts.finished and parts.step > 0 and not parts.run.checkpoint_settings.inference
    return [
        *notes(parts.run, known_game(parts.run, source, parts.spec)),
        *(["every learner has done its max_steps; raise max_steps to train on"] if is_over else []),
        explain(computing.matmul, computing.measured, computing.place.device, setting=parts.run.palus.matmul),
        *(["acting int8: encodes pictures faster here; learning stays in fp32 (palus.acting)"] if in_int8 else []),
        *(f"each of {ranks} ranks: {line}" if ranks > 1 else line for line in parts.collector.describe()),
    ]
