"""What a run leaves on disk beside its checkpoint: snapshots, policies, ONNX files and the bundle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from palus.config import RunFile, dump_run
from palus.errors import CheckpointError, ConfigError, ModelError, StorageError, TrustError
from palus.export.bundle import Provenance, write_bundle
from palus.export.policy_file import PolicyFile, parse_policy, policy_bytes, read_policy, write_policy
from palus.files import force, remove, write_bytes, write_text
from palus.hub.model_card import refresh_card
from palus.league.book import FILE, Book
from palus.league.exchange import visitor_path
from palus.league.league import League
from palus.league.pools import Contender
from palus.league.records import Publication
from palus.nn.graph import game_facts
from palus.nn.network import Network
from palus.run.folder import RunFolder
from palus.run.postponed import Postponed
from palus.run.report import Report
from palus.run.trainee import Trainee
from palus.trust import Trust
from palus.types import GameSpec

BETTER = 1e-3
"""A new best policy leads by at least this, as in Sample Factory."""


class Saving:
    """Writes the files of a run. trainees: in the order of their policy ids."""

    def __init__(
        self,
        run: RunFile,
        spec: GameSpec,
        folder: RunFolder,
        trainees: Sequence[Trainee],
        trust: Trust,
        postponed: Postponed,
        warn: Callable[[str], None],
    ) -> None:
        """warn: takes what goes wrong without ending the training."""
        self.run, self.spec, self.folder, self.trainees, self.trust = run, spec, folder, trainees, trust
        # Of the snapshots: in memory those that are not written yet, and the newest, which is loaded next.
        self._held, self._unwritten, self._unforced = dict[Path, PolicyFile](), list[Path](), list[Path]()
        self._postponed, self._warn, self._is_failing = postponed, warn, False
        self._unmeasured = set[int]()  # policies whose best_metric nothing tells, which was told

    def path(self, trainee: Trainee, snapshot: int) -> Path:
        """Where a snapshot of a learner lies."""
        return self.folder.of(trainee.name) / "snapshots" / f"snapshot-{snapshot:05d}.npz"

    def save_snapshot(self, contender: Contender, snapshot: int) -> None:
        """Write a learner's present weights under the id of a snapshot, by and by and without waiting for the disk: no
        run goes on from it before the next checkpoint (`force_snapshots`), which tries again what a disk refused."""
        self._postponed(partial(self._try, self._hold(contender, snapshot)))

    def save_first_snapshot(self, contender: Contender, snapshot: int) -> None:
        """The same at the start, where giving up loses nothing. Raises StorageError."""
        self._write(self._hold(contender, snapshot))

    def _hold(self, contender: Contender, snapshot: int) -> Path:
        """Keep a learner's present weights in memory. Returns the file that they are for."""
        trainee = self.trainees[contender.policy]
        path, file = self.path(trainee, snapshot), trainee.policy_file(self.spec, snapshot)
        self._held = {waiting: self._held[waiting] for waiting in self._unwritten} | {path: file}
        self._unwritten.append(path)
        return path

    def _try(self, path: Path) -> None:
        """Write a snapshot that is held, unless it was forgotten meanwhile; where that fails it stays held."""
        if path not in self._unwritten:
            return
        try:
            self._write(path)
        except StorageError as error:
            if not self._is_failing:
                self._warn(f"{error} Training goes on; the next checkpoint tries again.")
            self._is_failing = True

    def _write(self, path: Path) -> None:
        for trainee in self.trainees:  # a kill may have left one of this number, maybe of another behavior
            remove(self.folder.of(trainee.name) / "snapshots" / path.name)
        write_policy(self.folder.own(path), self._held[path], forced=False)
        self._unwritten.remove(path)
        self._unforced.append(path)

    def force_snapshots(self) -> None:
        """Have all snapshots on disk, for a checkpoint that needs them. Raises StorageError."""
        for path in [*self._unwritten]:  # failed when it was its turn
            self._write(path)
        for path in self._unforced:
            force(path)
        self._unforced.clear()
        self._is_failing = False

    def forget(self, snapshots: Collection[int]) -> None:
        """Hold no longer what nobody needs: a disk may be full for days."""
        paths = {self.path(trainee, snapshot) for trainee in self.trainees for snapshot in snapshots}
        self._unwritten = [path for path in self._unwritten if path not in paths]

    def data(self, snapshot: int) -> bytes:
        """The file of a snapshot, on disk or not yet. Raises CheckpointError when it is gone."""
        path = self.find(snapshot)
        return policy_bytes(self._held[path]) if path in self._unwritten else path.read_bytes()

    def find(self, snapshot: int) -> Path:
        """The file of a snapshot. Raises CheckpointError when it is gone."""
        paths = [self.path(trainee, snapshot) for trainee in self.trainees]
        held = [path for path in paths if path in self._unwritten]
        for path in held or (path for path in paths if path.exists()):
            return path
        settings = self.run.checkpoint_settings  # what it plays by may be a copy, which nobody knows the name of
        lost = Path(settings.results_dir, settings.run_id, paths[-1].relative_to(self.folder.root))
        raise CheckpointError(f"{lost}: no such snapshot; was the run folder copied without `snapshots/`?")

    def load_policy(self, path: Path) -> Network:
        """The network of a file, in the number format and on the device of the run. Raises CheckpointError when it is
        gone."""
        own, file = self.trainees[0].learner.network, self._held.get(path) or read_policy(path)
        return Network.acting(
            file.spec, file.settings, file.arrays, own.weights.work.dtype, trust=self.trust, place=own.place
        )

    def misfit(self, data: bytes, told: Publication) -> str | None:
        """Why a snapshot of another run cannot be met; None where it can."""
        try:
            file = parse_policy(data, told.name)
            Network.acting(file.spec, file.settings, file.arrays, trust=self.trust)
        except (CheckpointError, ConfigError, ModelError, TrustError) as error:
            return str(error)
        played = self.spec.behavior(told.behavior)
        if (file.spec.observations, file.spec.actions) != (played.observations, played.actions):
            return f"{told.name}: sees or does something else than {told.behavior} does here; it is not met"
        return None

    def prune(self, league: League, needed: set[int]) -> None:
        """Delete snapshot files that the checkpoint just written does not need. Raises StorageError."""
        for trainee in self.trainees:
            for snapshot in range(league.snapshot_count):  # its own ones, whatever else lies there
                if snapshot not in needed:
                    remove(self.path(trainee, snapshot))
        met = {visitor_path(self.folder.root, member.name) for member in league.members if member.learner is not None}
        for path in self.folder.owned("league/visitors/*.npz"):
            if path not in met:
                remove(path)

    def keep_best(self, trainee: Trainee, report: Report) -> None:
        """Write best.npz when the mean score of a policy's recent episodes is a new record.

        Points are none: the league that they are taken from grows.
        """
        recent, score = trainee.record.recent, trainee.score
        after: int = getattr(trainee.behavior, "save_best_after", 0)
        if trainee.in_league or trainee.metric is None or len(recent) != recent.maxlen:
            return
        if score is None:
            if trainee.policy not in self._unmeasured:
                known = ("reward", "length", "true_objective", *sorted({name for e in recent for name in e.stats}))
                report.warn(
                    f"{trainee.label}: none of {len(recent)} episodes tells best_metric {trainee.metric}, so no policy "
                    f"is the best; they tell {', '.join(dict.fromkeys(known))}."
                )
            self._unmeasured.add(trainee.policy)
            return
        if trainee.step < after or score < trainee.best + BETTER:
            return
        try:
            write_policy(self.folder.own(trainee.folder / "best.npz"), trainee.policy_file(self.spec))
        except StorageError as error:
            report.warn(f"{error} Training goes on; the next record tries again.")
            return
        trainee.best = score

    def best_of(self, trainee: Trainee, saved: float) -> float:
        """The best score of a learner that goes on. saved: of its checkpoint; best.npz may be newer, where the run was
        killed."""
        path = trainee.folder / "best.npz"
        try:
            kept = read_policy(path).metric if self.folder.owns(path) and path.is_file() else None
        except CheckpointError:  # damaged; the next record replaces it
            kept = None
        return saved if kept is None or not math.isfinite(kept) else max(saved, kept)

    @property
    def exported(self) -> list[Trainee]:
        """Of every behavior its best main learner: the first among equals, and where nobody has a score."""
        learners: dict[str, list[Trainee]] = {}
        for trainee in self.trainees:
            learners.setdefault(trainee.name, []).append(trainee)
        return [
            max(own, key=lambda trainee: -math.inf if trainee.score is None else trainee.score)
            for own in learners.values()
        ]

    def write_onnx(self, report: Report, kept: Collection[str]) -> dict[str, bytes | None]:
        """The model of every behavior; None for encoders that do not write themselves. kept: those of which
        `<Behavior>-<step>.onnx` is written. Raises ModelError for weights that diverged, StorageError.
        """
        return {trainee.name: self._write_onnx(trainee, report, kept) for trainee in self.exported}

    def _write_onnx(self, trainee: Trainee, report: Report, kept: Collection[str]) -> bytes | None:
        network = trainee.learner.network
        try:
            data: bytes = network.onnx(game_facts(self.spec)).SerializeToString()
        except ModelError as error:
            if network.can_export:
                raise
            report.warn(f"no ONNX file: {error}")
            return None
        if trainee.name not in kept:
            return data
        path = self.folder.of(trainee.name) / f"{trainee.name}-{trainee.step}.onnx"
        write_bytes(self.folder.own(path), data)
        report.tell(f"Exported {path}")
        return data

    def tell_copies(self, models: Mapping[str, bytes | None], report: Report) -> None:
        """The console lines of a run's last models."""
        for trainee in self.exported:
            if models[trainee.name] is not None:
                source = self.folder.of(trainee.name) / f"{trainee.name}-{trainee.step}.onnx"
                report.tell(f"Copied {source} to {self.folder.root / trainee.name}.onnx.")

    def write_policies(self, league: League, numbers: Mapping[int, Mapping[str, float]]) -> None:
        """`policy.npz` of every behavior and of every learner of several, the payoff table, and what a population's
        policies learn with. numbers: by policy id."""
        exported = {self.folder.of(trainee.name): trainee for trainee in self.exported}
        for folder, trainee in ({t.folder: t for t in self.trainees} | exported).items():
            write_policy(self.folder.own(folder / "policy.npz"), trainee.policy_file(self.spec))
        for trainee in self.trainees:
            if trainee.policy in numbers:
                text = json.dumps(dict(numbers[trainee.policy]), indent=2) + "\n"
                write_text(self.folder.own(trainee.folder / "hyperparameters.json"), text)
        if league.pools:
            league.payoffs.write(self.folder.own(self.folder.of(self.trainees[0].name) / "payoffs.json"))

    def write_book(self, book: Book, steps: Mapping[int, int]) -> None:
        """`league/league.json`, where there is a league. Raises StorageError."""
        if book.league.pools:
            write_text(self.folder.own(self.folder.root / FILE), book.to_json(steps))

    def write_bundle(
        self,
        models: Mapping[str, bytes | None],
        kept: Collection[str],
        league: League,
        seconds: float,
        results: Mapping[str, float],
        pairs: int,
    ) -> Path:
        """The best policy of each behavior as a bundle. Returns the first one's model, or policy.npz without ONNX.

        models, kept: as of `write_onnx`; a file by step may take an older one's place. results: opponent -> share of
        points over so many mirrored pairs each.
        """
        exported, files = self.exported, dict[str, bytes]()
        for trainee in exported:
            name, model, elo = trainee.name, models[trainee.name], league.elo.get(trainee.policy)
            if model is not None:
                files[name] = model
            if model is not None and name in kept:
                keep = trainee.behavior.keep_checkpoints
                self.folder.record_checkpoint(name, trainee.step, trainee.record.mean_reward, keep, elo)
        first = exported[0]
        provenance = Provenance(
            self.run.env_id or "", first.behavior.trainer_type, first.step, seconds,
            league.elo.get(first.policy), results, pairs,
        )  # fmt: skip
        specs = {name: self.spec.behavior(name) for name in models}
        folder = self.folder.own_bundle()
        model_path = write_bundle(folder, files, specs, dump_run(self.run), provenance)
        refresh_card(folder)
        return model_path or self.folder.of(first.name) / "policy.npz"
