"""What the runs of one league tell each other, on a storage that all of them reach: the only truth of the league.

    book/<run>/00000007.jsonl   the seventh part of what a run told, written once, by nobody else
    book/<run>/files/<sha256>   its snapshots; where its own folder may be lost, also the files of its last checkpoint
    book/<run>/seen.json        a sign of life, replaced every few seconds; nothing depends on it

A part holds what happened between two checkpoints of its run, and is written when the second one is: so who continues
from a checkpoint tells nothing twice, and every match counts once (`palus.league.exchange`). Lines are JSON objects:
those of `palus.progress`, and

    {"kind": "results", "training", "evaluation"}    rows [policy, opponent, points of the policy, matches]
    {"kind": "snapshot", "number", "learner", "behavior", "role", "origin", "step", "version", "elo", "sha256"}
    {"kind": "checkpoint", "steps", "max_steps", "origins", "matches", "window", "landmarks"}
    {"kind": "files", "time", "files"}               the last line: Unix time; name -> SHA-256, null without

In rows a snapshot is `run/number`, that of another run `run/number@` with the first digits of what this begins with, so
that results against a run that was begun anew since count for nobody; a learner `run` or `run+k`, a member of the run
file `=name`. Results of a learner are its next snapshot's from then on. Matches of a checkpoint are all that its run
has told of. What is none of these lines says nothing: it is left out, and the reader is told how often. Loads no torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from palus.config.league import Role
from palus.errors import StorageError
from palus.league.strength import Strength, add, credited, kept, strengths
from palus.progress import Count, ProgressLine, ToldLine, decoded_line
from palus.store.depot import Depot
from palus.types import FROZEN

BOOK = "book"
FILES = "files"
SEEN = "seen.json"
TABLES = ("training", "evaluation")
NamedCells = dict[tuple[str, str], tuple[float, int]]
SILENT_S = 60.0
"""A run that gave no sign of life for so long has ended, or its machine or the storage is away."""
START = 1200.0
"""Rating of the first policy that is rated."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}\Z")
_PART = re.compile(r"(\d{8})\.jsonl\Z")


def _possible(row: tuple[str, str, float, int]) -> tuple[str, str, float, int]:
    """Raises ValueError."""
    if not 0 <= row[2] <= row[3]:
        raise ValueError(f"{row[2]} points in {row[3]} matches")
    return row


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Row = Annotated[tuple[str, str, float, Count], AfterValidator(_possible)]


class ResultsLine(ToldLine):
    """Matches between each two policies."""

    kind: Literal["results"]
    training: list[Row]
    evaluation: list[Row]


class CheckpointLine(ToldLine):
    """How far the run was. By policy id of its learners: steps, max_steps, and origins, the snapshots that their
    weights come from, null where they began untrained; older books have none."""

    kind: Literal["checkpoint"]
    steps: dict[str, Count]
    max_steps: dict[str, Count]
    origins: dict[str, Count | None] = Field(default_factory=dict)
    window: Count = 10
    landmarks: Count = 0


class FilesLine(ToldLine):
    """What its folder held."""

    kind: Literal["files"]
    time: float
    files: dict[str, Sha256] | None = None


class SeenLine(ToldLine):
    """A sign of life. steps: as of `CheckpointLine`."""

    time: float
    steps: dict[str, Count]
    speed: float | None = None
    state: str
    host: str
    pid: int


def is_run_name(name: str) -> bool:
    """Whether a run of a league can be called so."""
    return bool(_NAME.match(name))


def home(run: str) -> str:
    """Where a run of the league writes."""
    return f"{BOOK}/{run}"


def part(run: str, number: int) -> str:
    """The name of a part, which number begins with 1."""
    return f"{home(run)}/{number:08d}.jsonl"


def encoded(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """The bytes of a part."""
    return b"".join(json.dumps(line, allow_nan=False, default=str).encode() + b"\n" for line in lines)


def decoded(data: bytes) -> list[dict[str, Any]]:
    """The lines of a part; what is no object is none."""
    return [line for raw in data.splitlines() if (line := decoded_line(raw)) is not None]


def runs_of(depot: Depot) -> list[str]:
    """The runs that told anything. Raises StorageError."""
    names = {name.split("/")[1] for name in depot.list(BOOK) if name.count("/") >= 2}
    return sorted(filter(is_run_name, names))


def news(depot: Depot, run: str, after: int) -> tuple[int, list[dict[str, Any]]]:
    """The number of the last part that is there, and the lines of all parts behind `after`; one that is no object is an
    empty one. Raises StorageError."""
    there = (name.removeprefix(f"{home(run)}/") for name in depot.list(home(run)))
    numbers = sorted(int(match[1]) for name in there if (match := _PART.match(name)) and int(match[1]) > after)
    raws = [raw for number in numbers for raw in depot.get(part(run, number)).splitlines()]
    return max(numbers, default=after), [decoded_line(raw) or {} for raw in raws]


def beginning(depot: Depot, run: str) -> str:
    """The SHA-256 of a run's first part, another one where the run was begun anew; empty before there is one.

    Raises StorageError.
    """
    first = part(run, 1)
    return hashlib.sha256(depot.get(first)).hexdigest() if depot.has(first) else ""


def seen(depot: Depot, run: str) -> SeenLine | None:
    """A run's last sign of life; None where there is none, or none that can be read."""
    try:
        return SeenLine.model_validate(decoded(depot.get(f"{home(run)}/{SEEN}"))[0])
    except (StorageError, IndexError, ValidationError):
        return None


@dataclass(frozen=True)
class Publication:
    """A snapshot as its run told of it. learner: policy id there; version: how many snapshots that had made before."""

    run: str
    number: Count
    learner: Count
    behavior: str
    role: Role
    origin: Count | None
    step: Count
    version: Count
    elo: float
    sha256: Sha256

    @property
    def name(self) -> str:
        """As rows have it."""
        return f"{self.run}/{self.number}"


_Other = ResultsLine | CheckpointLine | FilesLine | ProgressLine
_PUBLICATION = TypeAdapter(Publication)
_OTHERS: TypeAdapter[_Other] = TypeAdapter(Annotated[_Other, Field(discriminator="kind")])


def record_of(run: str, line: Mapping[str, Any]) -> Publication | _Other | None:
    """What a line of a run says; None where it is none of the book: anybody who reaches the storage can write there."""
    try:
        if line.get("kind") == "snapshot":
            return _PUBLICATION.validate_python({**line, "run": run})
        return _OTHERS.validate_python(line)
    except ValidationError:
        return None


def lines_left_out(run: str, number: int) -> str:
    """What its reader is told of lines that say nothing."""
    return (
        f"{home(run)}: {number} lines are none of a league's book, and count for nothing; they are damaged, "
        "another version of palus wrote them, or something else reaches the storage."
    )


def publications(run: str, lines: Iterable[Mapping[str, Any]]) -> list[Publication]:
    """The snapshots that some lines of a run tell of."""
    return [told for line in lines if isinstance(told := record_of(run, line), Publication)]


def still_met(told: Sequence[Publication], window: int, landmarks: int) -> list[Publication]:
    """Of the snapshots of one learner, older before newer, those that are met, as its own league keeps them."""
    return [told[k] for k in kept([one.step for one in told], window, landmarks)]


@dataclass
class RunRecord:
    """What one run told, or as much as was read. begun: as of `beginning`; parts: read so far. left_out: lines that say
    nothing. lines: of `palus.progress`, all of them. cells: of frozen policies, by table; open: of those where one of
    the two still learns, so that its next snapshot takes them over. Both are (policy, opponent) -> points and matches,
    by names, the lesser name first; matches: in all. late: learner -> whom it met -> matches of training, those of the
    last checkpoint that had any; coming: since then."""

    name: str
    begun: str = ""
    parts: int = 0
    left_out: int = 0
    lines: list[ProgressLine] = field(default_factory=list)
    snapshots: list[Publication] = field(default_factory=list)
    cells: dict[str, NamedCells] = field(default_factory=lambda: {table: {} for table in TABLES})
    open: dict[str, NamedCells] = field(default_factory=lambda: {table: {} for table in TABLES})
    late: dict[str, Counter[str]] = field(default_factory=dict)
    coming: dict[str, Counter[str]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    max_steps: dict[str, int] = field(default_factory=dict)
    origins: dict[str, int | None] = field(default_factory=dict)
    matches: int = 0
    window: int = 10
    landmarks: int = 0
    told_at: float | None = None
    seen: SeenLine | None = None

    def read(self, depot: Depot) -> None:
        """Take in what is new. Raises StorageError."""
        self.parts, lines = news(depot, self.name, self.parts)
        for line in lines:
            self._take(line)
        self.seen = seen(depot, self.name)

    def _take(self, line: dict[str, Any]) -> None:
        match record_of(self.name, line):
            case ResultsLine() as told:
                for table, rows in zip(TABLES, (told.training, told.evaluation), strict=True):
                    for a, b, points, matches in rows:
                        add(self.open[table], a, b, points, matches)
                        self.matches += matches
                    self._settle(table)
                for a, b, _, matches in told.training:
                    for one, other in ((a, b), (b, a)):
                        if is_learner(one):
                            self.coming.setdefault(one, Counter())[other] += matches
            case Publication() as snapshot:
                self.snapshots.append(snapshot)
                for table in TABLES:
                    learner = learner_name(self.name, snapshot.learner)
                    self.open[table] = credited(self.open[table], learner, snapshot.name)
                    self._settle(table)
            case CheckpointLine() as checkpoint:
                self.steps, self.max_steps = checkpoint.steps, checkpoint.max_steps
                self.origins = checkpoint.origins
                self.window, self.landmarks = checkpoint.window, checkpoint.landmarks
            case FilesLine(time=told_at):
                self.told_at = told_at
                if self.coming:
                    self.late, self.coming = self.coming, {}
            case None:
                self.left_out += 1
            case progress:
                self.lines.append(progress)

    def _settle(self, table: str) -> None:
        """Move what is between frozen policies out of the way."""
        for pair in [pair for pair in self.open[table] if not any(map(is_learner, pair))]:
            add(self.cells[table], *pair, *self.open[table].pop(pair))

    @property
    def kept(self) -> list[Publication]:
        """Its snapshots that are still met."""
        learners = dict.fromkeys(told.learner for told in self.snapshots)
        return [
            told
            for learner in learners
            for told in still_met([t for t in self.snapshots if t.learner == learner], self.window, self.landmarks)
        ]

    @property
    def learners(self) -> dict[str, str | None]:
        """Each learner that was ever frozen -> the snapshot that its weights come from, by names; None where they began
        untrained."""
        found = dict[str, str | None]()
        for learner, newest in {told.learner: told.number for told in self.snapshots}.items():
            origin = self.origins.get(str(learner), FROZEN + newest)
            found[learner_name(self.name, learner)] = None if origin is None else f"{self.name}/{origin - FROZEN}"
        return found

    def _slowest(self, steps: Mapping[str, int]) -> tuple[int, int]:
        """Steps and goal of the learner that has done the smallest share of its own; without one that only plays."""
        goals = {policy: goal for policy, goal in self.max_steps.items() if goal}
        if not goals:
            return min(steps.values(), default=0), 0
        return min(((steps.get(policy, 0), goal) for policy, goal in goals.items()), key=lambda own: own[0] / own[1])

    @property
    def _present(self) -> tuple[int, int]:
        seen = self.seen if self.seen is not None and self.seen.time > (self.told_at or 0.0) else None
        return self._slowest(self.steps if seen is None else seen.steps)

    @property
    def step(self) -> int:
        """Of its slowest learner, as it said last."""
        return self._present[0]

    @property
    def saved(self) -> int:
        """Of its slowest learner, at the checkpoint from which it can go on."""
        return self._slowest(self.steps)[0]

    @property
    def goal(self) -> int:
        """Steps of its slowest learner when it is done; 0 before it said so."""
        return self._present[1]

    def state(self, now: float) -> str:
        """finished, stopped, silent for a minute and more, or training."""
        if self.goal and self.step >= self.goal:
            return "finished"
        if self.seen is not None and self.seen.state == "stopped":
            return "stopped"
        last = self.last_seen
        return "silent" if last is None or now - last > SILENT_S else "training"

    @property
    def last_seen(self) -> float | None:
        """Unix time by the clock of its machine; None before it told anything."""
        times = (self.told_at, None if self.seen is None else self.seen.time)
        return max((at for at in times if at is not None), default=None)


def is_learner(name: str) -> bool:
    """Whether a name in a row is that of a learner."""
    return "/" not in name and not name.startswith("=")


def learner_name(run: str, policy: int) -> str:
    """A learner as rows have it."""
    return run if policy == 0 else f"{run}+{policy}"


class LeagueRecord:
    """The whole league, read from its storage; `read` again takes in what is new."""

    def __init__(self, depot: Depot) -> None:
        self.depot, self.runs = depot, dict[str, RunRecord]()

    def read(self) -> LeagueRecord:
        """Raises StorageError. A run that was begun anew since is what it says now, and nothing of before."""
        for name in runs_of(self.depot):
            begun = beginning(self.depot, name)
            if name not in self.runs or self.runs[name].begun != begun:
                self.runs[name] = RunRecord(name, begun)
            self.runs[name].read(self.depot)
        return self

    @property
    def field(self) -> dict[str, Publication]:
        """All snapshots that are still met, by name, run by run, older before newer."""
        return {told.name: told for run in self.runs.values() for told in run.kept}

    def cells(self, table: str) -> NamedCells:
        """`training` or `evaluation` of all runs together."""
        total: NamedCells = {}
        for cells in (cells for run in self.runs.values() for cells in (run.cells[table], run.open[table])):
            for (a, b), (points, matches) in cells.items():
                if (one := self._now(a)) and (other := self._now(b)):
                    add(total, one, other, points, matches)
        return total

    def mix(self) -> dict[str, dict[str, float]]:
        """Behavior -> share of each of those whom its learners met of late, by names."""
        met: dict[str, Counter[str]] = {}
        for run in self.runs.values():
            behaviors = {learner_name(run.name, told.learner): told.behavior for told in run.snapshots}
            for learner in run.late.keys() & behaviors.keys():
                for name, matches in run.late[learner].items():
                    if known := self._now(name):
                        met.setdefault(behaviors[learner], Counter())[known] += matches
        return {behavior: {name: n / of.total() for name, n in sorted(of.items()) if n} for behavior, of in met.items()}

    def _now(self, name: str) -> str:
        """A name in a row without what its run began with; empty where that was begun anew since."""
        known, mark, begun = name.partition("@")
        run = self.runs.get(known.partition("/")[0])
        return name if not mark or name[0] == "=" else known if run and run.begun.startswith(begun) else ""

    def ratings(self) -> dict[str, Strength]:
        """Of every snapshot that is still met and every learner, which is one player with the snapshot that its weights
        come from."""
        learners = {name: origin for run in self.runs.values() for name, origin in run.learners.items()}
        origins = {name: origin for name, origin in learners.items() if origin is not None}
        tables = [self.cells(table) for table in TABLES]
        house = [name for cells in tables for pair in cells for name in pair if name.startswith("=")]
        number = {name: k for k, name in enumerate(dict.fromkeys([*self.field, *origins.values(), *house, *learners]))}
        if not number:
            return {}
        cells: dict[tuple[int, int], tuple[float, int]] = {}
        for named in tables:
            for (a, b), (points, matches) in named.items():
                if a in number and b in number:
                    add(cells, number[a], number[b], points, matches)
        same = {number[learner]: number[origin] for learner, origin in origins.items()}
        found = strengths(cells, list(number.values()), same, {}, START)
        return {name: found[k] for name, k in number.items()}
