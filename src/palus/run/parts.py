"""The parts of a run, wired together: made from a run file, joined by behaviors that come late, saved and loaded.

What they do with each other is `palus.train`, which is to be read first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from palus.config import RunFile
from palus.errors import CheckpointError, ConfigError, DemonstrationError, EnvError, ModelError, StorageError
from palus.files import write_text
from palus.league.book import Book
from palus.league.exchange import Berth, Exchange, visitor_path
from palus.league.league import OF_SLOTS, League
from palus.league.population import shaping_of, with_numbers
from palus.learn.ranks import ALONE, Ranks
from palus.nn.network import Network
from palus.nn.place import CPU, place_of
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.making import demands_of, draws_of, make_collector, make_source, plays_beside
from palus.rollout.plan import Share
from palus.rollout.rollout import FROZEN
from palus.run.alike import begin_alike, came_apart, not_shared, refuse_another_file, shared
from palus.run.baselines import Baselines
from palus.run.computing import Computing
from palus.run.folder import RunFolder
from palus.run.guests import Guests
from palus.run.holding import Held, holding
from palus.run.initial import another_trainer, initialize, with_initial_paths, with_seed
from palus.run.learners import LearnerMaker, contender_of, populations_of
from palus.run.lessons import Lessons
from palus.run.members import find_guests
from palus.run.mlagents_checkpoint import is_ml_agents
from palus.run.report import Report
from palus.run.saving import Saving
from palus.run.timers import TIMERS, Timers
from palus.run.trainee import Trainee
from palus.terminal import Terminal
from palus.trust import NOBODY, Trust
from palus.types import BehaviorSpec, GameSpec
from palus.unity.news import game_of, joined

_GAME = TypeAdapter(GameSpec)
LEFT_ALONE = 9
"""Times as long as it was waited for in vain a league's storage is left alone: a tenth of a run goes into waiting."""


class Parts:
    """All parts of one run. Close it, or its games stay, and its folder is taken."""

    def __init__(
        self,
        run: RunFile,
        *,
        resume: bool = False,
        force: bool = False,
        trust: Trust = NOBODY,
        log: Callable[[str, str], None] | None = None,
        berth: Berth | None = None,
        ranks: Ranks = ALONE,
        alone: bool | None = None,
    ) -> None:
        """log: takes level and text of every line that is told, in place of the terminal. berth: in a league of several
        runs, whose snapshots this one meets, too. ranks: of which each makes the same parts; all but rank 0 tell
        nothing and write into a folder that goes with them. alone: as `holding` takes it.

        The run's folder is held from before the first look at it until `close`. Raises CheckpointError where another
        run has it, StorageError where the league's storage cannot be opened.
        """
        self.ranks = ranks
        self.exchange = None if berth is None else Exchange(berth)
        self._told: Mapping[str, Any] | None = None  # what the run told a league that it trains apart from now
        log = log if ranks.rank == 0 else lambda level, text: None
        with ExitStack() as kept:
            held = kept.enter_context(holding(run, ranks, resume=resume, force=force, alone=alone))
            run = with_seed(run, held.root, ranks, resume)  # before the source, which may start games with it
            self.source = make_source(run, trust, Terminal(stderr=True).print if log is None else partial(log, "INFO"))
            try:
                self._wire(run, held, resume, force, trust, log)
            except BaseException:
                self.source.close()
                raise
            self._kept = kept.pop_all()  # what is given back at the end

    def _wire(
        self, run: RunFile, held: Held, resume: bool, force: bool, trust: Trust, log: Callable[[str, str], None] | None
    ) -> None:
        """Make all parts. held: the run's folder."""
        root, ranks, place = held.root, self.ranks, place_of(run.torch_settings.device)
        if ranks.size > 1:
            refuse_another_file(run, ranks)
            if reason := not_shared(run):
                raise ConfigError(f"{reason}: {ranks.size} ranks cannot train it; start it without torchrun")
        if run.talks and not resume:  # before a game is started, which takes long and writes its log there
            with_initial_paths(run)
            RunFolder(root, list(run.behaviors)).refuse_existing(force=force)
        self.spec = self.source.spec
        run = run.completed(behavior.name for behavior in self.spec.behaviors)
        home = [path.parent.name for path in sorted(root.glob("*/checkpoint.pt"))] if run.talks and resume else []
        self.folder = RunFolder(root, [*home, *run.behaviors])
        self.foreign = resume and is_ml_agents(self.folder.checkpoint)
        if self.foreign and ranks.size > 1:
            raise ConfigError(f"{root}: of ML-Agents itself; resume it once without torchrun, then with it")
        saved = self.folder.load() if resume and not self.foreign and ranks.rank == 0 else None
        saved = shared(saved, root, ranks)
        if run.talks:
            run = self._recall(run, saved)
        if saved is None and not self.foreign and ranks.rank == 0:
            run = with_initial_paths(run)
            self.folder.refuse_existing(force=force or run.talks)
        self.computing = computing = Computing.begin(run, place, saved, ranks)
        self.seed = seed = int(saved["seed"]) if saved is not None else run.env_settings.seed
        self.run = run = run.changed(env_settings={"seed": seed})
        beside, names = plays_beside(run, self.source), self.folder.behaviors
        self.maker = LearnerMaker(run.palus.trainers, seed, computing, trust, ranks, beside)
        self.populations = populations_of(run, self.spec, names, seed)
        self.trainees = self.maker.trainees(run, self.spec, self.folder, names, self.populations)
        contenders = [contender_of(trainee) for trainee in self.trainees]
        guests = Guests.of(find_guests(run.palus.league.members, self.spec), computing.matmul.dtype, place, trust)
        self.league = League(self.spec, contenders, seed, settings=run.palus.league, members=guests.members)
        self.book = Book(self.league)
        self.timers = Timers()
        note = None if self.exchange is None else self.exchange.note
        self.report = Report(
            run, self.trainees, self.folder, self.timers, log=log, note=note, postponed=computing.postponed
        )
        if not held.alone:
            self.report.warn(f"{root}: its file system has no locks; see to it that no other run trains in it.")
        self.saving = Saving(run, self.spec, self.folder, self.trainees, trust, computing.postponed, self.report.warn)
        self.baselines = Baselines(run, self.spec, {t.kind: t.learner.network for t in self.saving.exported})
        acting = {t.policy: (t.kind, t.acting) for t in self.trainees}
        self.collector = make_collector(
            run, self.source, self.spec, acting, {c.policy: self.league.rows_per_match(c) for c in contenders},
            self.league.cast, seed, computing.threads, self._load_policy, guests.policies, guests.scripts,
            self._meet, place=CPU if guests.policies else place,
            compact=not guests.policies and all(trainee.learner.takes_rays for trainee in self.trainees),
            share=Share(ranks.rank, ranks.size, ranks.local_size),
        )  # fmt: skip
        self.lessons = Lessons(run)
        self.opening: list[str] = []  # where the weights come from, in ML-Agents' words
        self.learning_seconds, self.previous_seconds, self.started = 0.0, 0.0, time.perf_counter()
        self.book_written = self._left_alone_until = -math.inf  # by the monotonic clock
        try:
            self._begin(saved)
        except BaseException:
            self.collector.close()
            raise

    def _begin(self, saved: dict[str, Any] | None) -> None:
        """Bring all parts to where the run begins, or goes on. saved: its checkpoint."""
        if saved is None:
            home = self.folder if self.foreign else None
            self.opening += initialize(self.trainees, home, self.report.warn) if self.ranks.rank == 0 else []
            begin_alike(self.trainees, self.ranks)
            if self.foreign:
                self.report.go_on()
                lessons = self.folder.recorded_lessons()
                self.lessons.load_state_dict({"numbers": lessons, "smoothed": {}, "rewards": {}})
                for policy, pool in self.league.pools.items():
                    pool.elo = self.folder.recorded_elo(self.trainees[policy].name) or pool.elo
            self.folder.clear()  # only now, when nothing can be wrong with the run file any more
            self.league.advance(self.steps, {}, self.saving.save_first_snapshot)  # the past begins with the untrained
            self._follow()
            self.book.assess()
        else:
            self._load(saved)
            if len(self.trainees) > len(saved["learners"]):  # the past of who is new begins
                self.league.advance(self.steps, {}, self.saving.save_snapshot)
            for trainee in self.trainees:
                self.opening.append(f"Resuming from {trainee.folder}.")
                self.opening.append(f"Resuming training from step {trainee.step}.")
        for name in self.run.behaviors.keys() - set(self.folder.behaviors):
            self.opening.append(f"{name} has not appeared yet; it is trained when it does.")
        settings = self.run.checkpoint_settings
        if settings.inference:  # what it plays by is a copy
            named = Path(settings.results_dir, settings.run_id)
            self.opening = [line.replace(str(self.folder.root), str(named)) for line in self.opening]
        self._shape_rewards()
        self.collector.set_parameters(self.lessons.values)
        self.passed = self.checkpoints
        self._exchange(at_once=True)

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
        self.computing.postponed.do()
        before = self.run, self.spec, self.populations
        self.run = self.run.completed([seen.name])
        self.spec = joined(self.spec, game_of(self.spec.env_id, {name: seen}))
        fresh, lines = list[Trainee](), list[str]()
        try:
            if seen.name not in self.run.behaviors:
                raise ConfigError("the run file has no settings for it; add it to behaviors, or give default_settings")
            if seen.name not in self.folder.behaviors:
                self.run = with_initial_paths(self.run)
                own = populations_of(self.run, self.spec, [seen.name], self.seed, len(self.folder.behaviors))
                self.populations = self.populations | own
                fresh = self.maker.trainees(self.run, self.spec, self.folder, [seen.name], own, len(self.trainees))
                known = self.foreign and (self.folder.of(seen.name) / "checkpoint.pt").is_file()
                lines = initialize(fresh, self.folder if known else None, self.report.warn)
            contenders = [contender_of(trainee) for trainee in (*self.trainees, *fresh)]
            settings, members = self.run.palus.league, self.league.house
            league = League(self.spec, contenders, self.seed, settings=settings, members=members)
        except (CheckpointError, ConfigError, DemonstrationError, ModelError) as error:
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
        acting = {t.policy: (t.kind, t.acting) for t in fresh}
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

    def _compare(self) -> None:
        """Learners that share a behavior, by what they take from the league; the best one plays the baselines."""
        for trainee in self.trainees:
            trainee.points = self.league.points(trainee.policy) if trainee.in_league else None
        self.baselines.send({trainee.kind: trainee.learner.network for trainee in self.saving.exported})

    def _publish(self, snapshots: Sequence[int]) -> None:
        """Have new snapshots at hand, and enter them into the book."""
        for snapshot in snapshots:
            self.collector.policies.publish(FROZEN + snapshot, self.saving.load_policy(self.saving.find(snapshot)))
        self._follow()

    def _follow(self) -> None:
        """Enter what the league has taken into the book, and tell of it."""
        self.book.follow()
        if self.exchange is not None:
            self.computing.postponed.do()
            self.exchange.follow(self.league, self.saving.data)

    def _load_policy(self, policy: int) -> Network:
        """A frozen policy from its file. Raises CheckpointError when that is gone."""
        visitor = next((member for member in self.league.members if member.policy == policy), None)
        found = self.saving.find(policy - FROZEN) if visitor is None else visitor_path(self.folder.root, visitor.name)
        return self.saving.load_policy(found)

    def _exchange(self, at_once: bool) -> None:
        """Tell the league what the checkpoint holds, and learn who else is there; while its storage is away, later.

        Who waited in vain leaves the storage alone meanwhile, unless `at_once`: checkpoints may be seconds apart."""
        begun = time.monotonic()
        if self.exchange is None or (begun < self._left_alone_until and not at_once):
            return
        try:
            files = self.folder.mirrored() if self.exchange.mirrored else {}
            self.exchange.publish(self.league, self.saving.find, files)
            visitors, complaints = self.exchange.visitors(
                self.league, self.folder.root, self.folder.own, self.saving.misfit
            )
        except StorageError as error:
            now = time.monotonic()
            self._left_alone_until = now + LEFT_ALONE * (now - begun)
            complaints = [f"{str(error).rstrip('.')}. Training goes on; a later checkpoint tries again."]
        else:
            self.league.visit(visitors)
        for complaint in complaints:
            self.report.warn(complaint)

    @property
    def _numbers(self) -> dict[int, Mapping[str, float]]:
        """Policy id -> the numbers that it learns with, of populations."""
        own = self.populations
        return {t.policy: own[t.name].numbers[t.number] for t in self.trainees if t.name in own}

    def _shape_rewards(self) -> None:
        for policy, own in self._numbers.items() if self.spec.shaping else ():
            self.collector.shape_rewards(policy, shaping_of(own))

    def _write_book(self, steps: Mapping[int, int]) -> None:
        """For readers, so that it goes wrong costs no training. steps: trainer steps by policy id."""
        self.book_written = time.monotonic()
        try:
            self.saving.write_book(self.book, steps)
        except StorageError as error:
            self.report.warn(f"{error} Training goes on; the next summary tries again.")

    def save(self, due: Collection[str] | None = None) -> Path:
        """Write checkpoint, policies and bundle; returns the model. due: behaviors whose policies are kept by step, all
        without it, as at the end. Raises StorageError; older files stay."""
        with self.timers.block("RLTrainer._checkpoint"):
            return self._save(due)

    def _save(self, due: Collection[str] | None) -> Path:
        self.computing.postponed.do()
        # The export refuses weights that diverged, so it comes before the checkpoint that it would replace.
        kept = list(self.run.behaviors) if due is None else due
        if came_apart(self.trainees, self.ranks):
            self.report.warn("the weights of ranks came apart; all go on with those of rank 0.")
            begin_alike(self.trainees, self.ranks)
        models = self._write_models(kept)
        if self.exchange is not None:
            goals = {trainee.policy: trainee.behavior.max_steps for trainee in self.trainees}
            self.exchange.seal(self.league, self.steps, goals)
        state, in_play = self._state(), self.in_play
        self.saving.force_snapshots()
        if self.ranks.rank:
            self.saving.prune(self.league, self.league.needed(in_play))
            return self.folder.root
        self.folder.save(state)
        self._write_book(self.steps)
        self.saving.prune(self.league, self.league.needed(in_play) | self.unsent)
        self.saving.write_policies(self.league, self._numbers)
        self.folder.record_lessons(self.lessons.numbers)
        results, pairs = self.baselines.latest, self.baselines.settings.baseline_pairs
        model = self.saving.write_bundle(models, kept, self.league, self.wall_seconds, results, pairs)
        if due is None:
            self.saving.tell_copies(models, self.report)
        self._exchange(at_once=due is None)
        return model

    def _write_models(self, kept: Collection[str]) -> Mapping[str, bytes | None]:
        """What `Saving.write_onnx` gives, of rank 0 alone. Raises StorageError on every rank where rank 0 could not
        write: all that follows is done by all of them, or by none."""
        models: Mapping[str, bytes | None] = {}
        failure = ""
        if self.ranks.rank == 0:
            try:
                models = self.saving.write_onnx(self.report, kept)
            except StorageError as error:
                failure = str(error)
        if failure := self.ranks.first(failure):
            raise StorageError(failure)
        return models

    def save_if_due(self) -> None:
        """Save where a behavior has passed a checkpoint since the last one; what goes wrong costs no training."""
        before, self.passed = self.passed, self.checkpoints
        due = [name for name in self.passed if self.passed[name] != before.get(name, 0)]
        if due and not self.finished:
            try:
                self.save(due)
            except StorageError as error:
                self.report.warn(f"{error} Training goes on; the next checkpoint tries again.")

    def _state(self) -> dict[str, Any]:
        """Of all ranks, what differs between them under `ranks`: one file, which replaces its predecessor at once."""
        league, collector = self.league.state_dict(), self.collector.save()
        own = {"collector": collector, "league": {name: league[name] for name in OF_SLOTS}}
        several = {"ranks": self.ranks.gather(own)} if self.ranks.size > 1 else {}
        told = self._told if self.exchange is None else self.exchange.state_dict()
        return {
            **several,
            "seed": self.seed,
            "wall_seconds": self.wall_seconds,
            "matmul": self.computing.matmul.name,
            "device": self.computing.place.device.type,
            "names": [t.name for t in self.trainees],
            **({"game": _GAME.dump_python(self.spec)} if self.run.talks else {}),
            "learners": [(t.step, t.best, t.learner.state_dict()) for t in self.trainees],
            "populations": {name: population.state_dict() for name, population in self.populations.items()},
            "collector": collector,
            "league": league,
            "book": self.book.state_dict(),
            "report": self.report.state_dict(),
            "lessons": self.lessons.state_dict(),
            "baselines": self.baselines.state_dict(),
            **({} if told is None else {"exchange": told}),
        }

    def _load(self, state: dict[str, Any]) -> None:
        there = state.get("ranks", [None])
        if len(there) != self.ranks.size:
            raise CheckpointError(
                f"{self.folder.checkpoint}: saved by {len(there)} ranks, and this run has {self.ranks.size}; start as "
                "many (torchrun's --nnodes times --nproc-per-node)"
            )
        if own := there[self.ranks.rank]:
            state = state | {"collector": own["collector"], "league": state["league"] | own["league"]}
        try:
            learners = state["learners"]
            known = self.trainees[: len(learners)] if self.run.talks else self.trainees
            if len(known) != len(learners):
                raise ValueError(f"learners: it holds {len(learners)}, and the run file asks for {len(self.trainees)}")
            for name in self.populations.keys() & state["populations"].keys():  # one may have just appeared
                self.populations[name].load_state_dict(state["populations"][name])
            for policy, numbers in self._numbers.items():
                self.trainees[policy].learner.tune(with_numbers(self.trainees[policy].behavior, numbers))
            for trainee, (step, best, learner) in zip(known, learners, strict=True):
                trainee.learner.load_state_dict(learner)
                trainee.step, trainee.best = int(step), self.saving.best_of(trainee, float(best))
            self.league.load_state_dict(state["league"])
            self.book.load_state_dict(state["book"])
            self._compare()
            if "lessons" in state:  # a run of an older version went by progress alone, and finds its way
                self.lessons.load_state_dict(state["lessons"])
            self.collector.load(state["collector"])
            self.report.load_state_dict(state["report"])
            self.baselines.load_state_dict(state["baselines"])
            self.previous_seconds = float(state["wall_seconds"])
            self._told = state.get("exchange")
            if self.exchange is not None and self._told is not None:
                self.exchange.load_state_dict(self._told)
        except (KeyError, RuntimeError, ValueError, TypeError, EnvError, ModelError) as error:
            told = another_trainer(self.folder.root, self.run.behaviors) or error
            raise CheckpointError(
                f"{self.folder.checkpoint}: does not fit this run file ({told}); resume with the run's own "
                f"{self.folder.root / 'configuration.yaml'}, or start anew with --force."
            ) from error

    def write_timers(self) -> None:
        """`run_logs/timers.json`; like `_write_book`."""
        try:
            write_text(self.folder.own(self.folder.root / TIMERS), self.timers.to_json() + "\n")
        except StorageError as error:
            self.report.warn(str(error))

    @property
    def unsent(self) -> set[int]:
        """Ids of snapshots that a league is still to be told of."""
        return set() if self.exchange is None else self.exchange.unsent

    @property
    def in_play(self) -> set[int]:
        """Ids of policies that a running match of any rank needs, or its slot keeps for the next one."""
        return set().union(*self.ranks.gather(self.collector.in_play | self.league.staying))

    def close(self) -> None:
        """End all games and their processes, and let others into the folder."""
        with self._kept:
            self.collector.close()
