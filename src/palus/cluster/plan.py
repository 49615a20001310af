"""Which runs a league has, and where they lie."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from palus.config import RunFile, load_run
from palus.errors import CheckpointError, ConfigError, StorageError
from palus.launch.apart import claimed
from palus.league.exchange import Berth
from palus.league.records import BOOK, SILENT_S, home, is_run_name, runs_of, seen
from palus.run.folder import OwnFiles, RunFolder
from palus.run.misfits import misfits
from palus.store.depot import Depot
from palus.trust import Trust

SEEDS_APART = 1000
"""Learners of a run take the seeds that follow its own."""


@dataclass(frozen=True)
class LeaguePlan:
    """root: the folder of the league on this machine, with the folders of its runs. storage: of the book, a URL or a
    folder that means the same in whatever folder a process works; the same as root where nobody gave another. runs:
    run files by name. whole: these are all runs of the league, not some that are trained here."""

    root: Path
    storage: str
    runs: Mapping[str, RunFile]
    whole: bool = True

    def berth(self, name: str) -> Berth:
        """A run's place in the league, for a process that works where this one does."""
        own = str(self.root), str(self.root.absolute())
        return Berth(self.storage, name, mirrored=self.storage not in own)

    def folder(self, name: str) -> Path:
        """Of a run, on the machine that trains it."""
        return self.root / name

    def log(self, name: str) -> Path:
        """What a run prints."""
        return self.root / f"{name}.log"

    def check_storage(self) -> None:
        """Write a file there and remove it. Raises StorageError."""
        depot, name = Depot(self.storage), f"writable-{uuid4().hex}"
        depot.replace(name, b"")
        depot.remove(name)

    def clear(self) -> None:
        """Remove what former runs of these names left; of a whole league, what any left there.

        Raises CheckpointError, with all of it still there, when one of them is training, here or where its storage is
        reached from; StorageError.
        """
        depot = Depot(self.storage)
        names = dict.fromkeys([*self.runs, *(runs_of(depot) if self.whole else ())])
        with ExitStack() as kept_out:
            for name in names:
                if (folder := self.folder(name)).is_dir():
                    if not kept_out.enter_context(claimed(folder)):
                        raise CheckpointError(f"{folder}: is training just now; wait for its end, or stop its league.")
                    kept_out.enter_context(RunFolder(folder, []).held())
                last = seen(depot, name) if self.berth(name).mirrored else None
                if last is not None and last.state == "training" and time.time() - last.time < SILENT_S:
                    raise CheckpointError(
                        f"{self.storage}/{home(name)}: is training just now, on {last.host!r:.80}; stop it there. One "
                        f"that was killed is taken to train for {SILENT_S:.0f} s."
                    )
            for name in names:  # a kill leaves no checkpoint that would go on, and no book without its beginning
                told = depot.list(home(name))
                OwnFiles(self.folder(name)).remove_all()
                for file in reversed(told):
                    depot.remove(file)


def make_plan(
    file: str,
    overrides: Sequence[str],
    *,
    number: int | None,
    storage: str | None,
    only: Sequence[str],
    cores: int,
    trust: Trust,
) -> LeaguePlan:
    """A checked plan. number: of runs, all alike but for their seeds, in the place of `palus.league.runs`. only: names
    of those that are trained here, all without it. cores: shared by the runs whose file does not say how many.

    Raises ConfigError with what is wrong in the file, or in what a run changes of it.
    """
    base = load_run(file, overrides, judge=lambda run: misfits(run, trust))
    changes = dict(base.palus.league.runs) if number is None else {f"run-{k}": {} for k in range(1, number + 1)}
    faults = [f"palus.league.runs: {name!r:.80} cannot name a run; letters, digits, '-', '_'" for name in changes
              if not is_run_name(name) or name == BOOK]  # fmt: skip
    faults += [
        f"palus.league.runs.{name}: {key} cannot differ; the league says where its runs lie, and resumes them"
        for name, own in changes.items()
        for key in own
        if key.partition(".")[0] == "checkpoint_settings"
    ]
    if len(changes) < 2:
        faults.append("palus.league.runs: a league has two runs at least; name them there, or give --runs N")
    if not any(behavior.self_play for behavior in (*base.behaviors.values(), base.default_settings) if behavior):
        faults.append("behaviors: nobody plays against the other runs' snapshots; give a behavior self_play")
    if base.checkpoint_settings.initialize_from is not None:
        faults.append("checkpoint_settings.initialize_from: name the file with init_path of the behaviors instead")
    if base.checkpoint_settings.inference:
        faults.append("checkpoint_settings.inference: nothing is learned, so there is no league")
    faults += [f"--only {name}: not a run of this league; it has {', '.join(changes)}" for name in only
               if changes and name not in changes]  # fmt: skip
    if faults:
        raise ConfigError(faults)
    root = Path(base.checkpoint_settings.results_dir) / base.checkpoint_settings.run_id
    settings = {"checkpoint_settings.results_dir": str(root), "checkpoint_settings.resume": False,
                "checkpoint_settings.force": False, "palus.league.runs": {}}  # fmt: skip
    if not base.palus.threads:
        settings["palus.threads"] = max(1, cores // len(only or changes))
    runs = {}
    for k, (name, own) in enumerate(changes.items()):
        values = {**settings, "checkpoint_settings.run_id": name}
        if base.env_settings.seed >= 0:
            values["env_settings.seed"] = base.env_settings.seed + k * SEEDS_APART
        given = [*overrides, *(f"{key}={json.dumps(value)}" for key, value in (values | own).items())]
        if not only or name in only:
            try:
                runs[name] = load_run(file, given, judge=lambda run: misfits(run, trust))
            except ConfigError as error:
                raise ConfigError([f"palus.league.runs.{name}: {fault}" for fault in error.faults]) from error
    if storage and "://" not in storage:
        storage = str(Path(storage).absolute())
    try:
        Depot(storage or str(root))
    except StorageError as error:
        raise ConfigError(f"--storage {error}") from error
    return LeaguePlan(root, storage or str(root), runs, whole=not only)
