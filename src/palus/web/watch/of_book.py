"""A league of several runs as the folder of one run, whose learners its runs are: so the page of a run shows a league,
from its book alone, wherever that lies."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from palus.errors import StorageError
from palus.files import is_file_name, write_bytes, write_text
from palus.league.records import FILES, TABLES, LeagueRecord, NamedCells, Publication, RunRecord, home, learner_name
from palus.league.strength import scored
from palus.progress import PROGRESS, ProgressWriter, SessionLine, SummaryLine
from palus.store.depot import Depot
from palus.types import FROZEN, MEMBERS
from palus.web.watch.league import LEAGUE

RUNS_APART = 100_000
"""Between the ids of the snapshots of two runs."""
LEARNERS_APART = 64
"""Between those of their learners; a run that says it has more is shown without the rest."""


class LeagueFolder:
    """place: of the league, a folder or a URL; folder: what is written, nothing else lies there."""

    def __init__(self, place: str, folder: Path) -> None:
        self.record, self.folder = LeagueRecord(Depot(place)), folder
        self._progress = ProgressWriter(folder / PROGRESS)
        self._forget()

    def _forget(self) -> None:
        """Nothing that was written counts."""
        self._shown, self._begun = dict[str, int](), dict[str, str]()
        self._learners, self._over = list[list[Any]](), False
        self._progress.length = 0
        for path in self.folder.glob("*/snapshots/*.npz"):
            path.unlink()

    def refresh(self) -> None:
        """Write what is new, all where a run was begun anew. Raises StorageError while the book cannot be read."""
        self.record.read()
        begun = {name: run.begun for name, run in self.record.runs.items()}
        if any(begun[name] != before for name, before in self._begun.items() if before):
            self._forget()
        self._begun = begun
        self._tell_progress()
        if self.record.runs:
            write_text(self.folder / LEAGUE, self._league())
            self._fetch_newest()

    def _tell_progress(self) -> None:
        runs = self.record.runs
        told = [(name, run, line) for name, run in runs.items() for line in _first_summaries(run)]
        learners = [
            [self._label(run, line), self._learner(name, line.policy), line.behavior] for name, run, line in told
        ]
        over = bool(runs) and all(run.state(time.time()) in ("finished", "stopped") for run in runs.values())
        opening = next((line for run in runs.values() for line in run.lines if isinstance(line, SessionLine)), None)
        if opening is not None and (learners != self._learners or (self._over and not over)):
            goals = {self._label(run, line): run.max_steps.get(str(line.policy), 0) for _, run, line in told}
            self._progress.append({**opening.model_dump(), "run_id": self.folder.name, "learners": learners,
                                   "max_minutes": 0, "max_steps": goals})  # fmt: skip
            self._learners, self._over = learners, False
        for name, run in runs.items():
            for line in run.lines[self._shown.get(name, 0) :]:
                if isinstance(line, SummaryLine):
                    mapped = {"learner": self._label(run, line), "policy": self._learner(name, line.policy)}
                    self._progress.append({**line.model_dump(), **mapped})
            self._shown[name] = len(run.lines)
        if over and not self._over:
            step, done = min(run.step for run in runs.values()), all(run.step >= run.goal for run in runs.values())
            self._progress.append({"kind": "end", "step": step, "seconds": 0.0, "finished": done})
            self._over = True
        heard = [run.last_seen for run in runs.values() if run.last_seen is not None]
        if heard and self._progress.path.exists():  # written now, of what was told then
            told_at = min(max(0.0, *heard), time.time())
            os.utime(self._progress.path, (told_at, told_at))

    def _label(self, run: RunRecord, line: SummaryLine) -> str:
        several = len({told.learner for told in run.lines if isinstance(told, SummaryLine)}) > 1
        return f"{run.name} {line.learner}" if several else run.name

    def _learner(self, run: str, policy: int) -> int:
        """A policy id of its own for each learner of each run, below those of snapshots."""
        return list(self.record.runs).index(run) * LEARNERS_APART + policy

    def _id(self, told: Publication) -> int:
        return FROZEN + list(self.record.runs).index(told.run) * RUNS_APART + told.number

    def _league(self) -> str:
        """As `palus.league.book` writes it."""
        runs, ratings = self.record.runs, self.record.ratings()
        kept = self.record.field
        ids = {name: self._id(told) for name, told in kept.items()}
        shown = {name: rating._asdict() for name, rating in ratings.items()}
        learners, newest = [], {learner_name(t.run, t.learner): t for run in runs.values() for t in run.snapshots}
        origins = {name: origin for run in runs.values() for name, origin in run.learners.items()}
        for name, told in newest.items():
            ids[name] = self._learner(told.run, told.learner)
            step = runs[told.run].steps.get(str(told.learner), told.step)
            learners.append({"policy": ids[name], "behavior": told.behavior, "role": told.role, "step": step,
                             "origin": ids.get(origins[name] or ""), "elo": told.elo,
                             "rating": shown.get(name)})  # fmt: skip
        house = [name for name in ratings if name.startswith("=")]
        ids |= {name: MEMBERS + k for k, name in enumerate(house)}
        snapshots = [
            {"id": ids[name], "name": name, "behavior": told.behavior, "role": told.role, "step": told.step,
             "parent": ids[learner_name(told.run, told.learner)], "elo": told.elo, "rating": shown.get(name),
             "origin": None if told.origin is None else ids.get(f"{told.run}/{told.origin - FROZEN}")}
            for name, told in kept.items()
        ]  # fmt: skip
        members = [{"id": ids[name], "name": name[1:], "behavior": "", "rating": shown.get(name)} for name in house]
        tables = {table: _rows(self.record.cells(table), ids) for table in TABLES}
        mix = {
            behavior: {str(ids.get(name, name.removeprefix("="))): share for name, share in shares.items()}
            for behavior, shares in self.record.mix().items()
        }
        content = {"format": 1, "learners": learners, "snapshots": snapshots, "members": members, **tables,
                   "mix": mix, "mix_of": "checkpoints"}  # fmt: skip
        return json.dumps(content) + "\n"

    def _fetch_newest(self) -> None:
        """The newest snapshot of each learner, to be watched playing; what went meanwhile comes with the next one."""
        for run in self.record.runs.values():
            newest = {told.learner: told for told in run.snapshots}.values()
            files = {self._path(told): told.sha256 for told in newest if is_file_name(told.behavior)}
            for path, sha256 in files.items():
                if path.exists():
                    continue
                try:
                    data = self.record.depot.take(f"{home(run.name)}/{FILES}", sha256)
                except StorageError:
                    continue
                for older in path.parent.glob("*.npz"):
                    if _run_of(older) == _run_of(path) and older not in files:
                        older.unlink()
                write_bytes(path, data)

    def _path(self, told: Publication) -> Path:
        return self.folder / told.behavior / "snapshots" / f"snapshot-{self._id(told) - FROZEN:05d}.npz"


def _run_of(path: Path) -> int:
    """Which run's a snapshot in the folder is."""
    return int(path.stem.split("-")[1]) // RUNS_APART


def _first_summaries(run: RunRecord) -> Iterator[SummaryLine]:
    """One of each learner that has told any and has an id here."""
    told = (line for line in reversed(run.lines) if isinstance(line, SummaryLine) and line.policy < LEARNERS_APART)
    yield from {line.learner: line for line in told}.values()


def _rows(cells: NamedCells, ids: Mapping[str, int]) -> list[list[Any]]:
    """[policy, opponent, points of the policy, matches] in both directions, of those that have an id."""
    known = [pair for pair in cells if pair[0] in ids and pair[1] in ids]
    return [[ids[a], ids[b], *scored(cells, a, b)] for pair in known for a, b in (pair, pair[::-1])]
