"""A run's part in a league of several: what it tells the others, and who of them it meets.

Whatever it tells waits until the run's checkpoint holds it, too, and is written right after that, under a number that
the checkpoint names: the pattern is known as a transactional outbox. A run that was killed anywhere in between writes
the same part again, finds it there, and goes on; so no match counts twice, and none counts that the run forgot. Who
finds something else in its place is one of two processes with the same name, and ends.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from palus.errors import StorageError, SupersededError
from palus.files import write_bytes
from palus.league.league import League
from palus.league.members import Member
from palus.league.records import (
    FILES,
    SEEN,
    TABLES,
    NamedCells,
    Publication,
    beginning,
    decoded,
    encoded,
    home,
    learner_name,
    lines_left_out,
    news,
    part,
    publications,
    record_of,
    runs_of,
    still_met,
)
from palus.league.results import policies_of, results_of
from palus.league.strength import add
from palus.rollout.rollout import FROZEN, MEMBERS, FinishedMatch
from palus.store.depot import Depot
from palus.threads import DaemonThreads

GREETING_S = 10.0
"""Between two signs of life."""
BEGUN_DIGITS = 16
"""Of the SHA-256 of another run's first part, in the names of its snapshots."""
FAREWELL_S = 5.0
"""How long a run that ends waits for the last one to be written, at most."""


@dataclass(frozen=True)
class Berth:
    """A run's place in a league. storage: folder or URL; run: its name there. mirrored: its own folder may be lost, so
    the storage keeps the files of its checkpoint, too."""

    storage: str
    run: str
    mirrored: bool = False


class Exchange:
    """Everything that reads or writes raises StorageError while the storage is away; what was to be told waits."""

    def __init__(self, berth: Berth) -> None:
        self.depot, self.run, self.mirrored = Depot(berth.storage), berth.run, berth.mirrored
        self.matches = 0
        self._number, self._outbox, self._sealed = 1, list[dict[str, Any]](), 0
        self._cells: dict[str, NamedCells] = {table: {} for table in TABLES}
        self._followed, self._published = 0, dict[int, str]()  # snapshots so far; id -> SHA-256 of those still kept
        self._others: dict[str, tuple[int, list[Publication]]] = {}
        self._misfits = set[Publication]()  # of others, told of
        self._beginnings: dict[str, str] = {}  # of other runs, the SHA-256 of their first part
        self._learners: list[tuple[str, int]] = []  # of other runs, in the order in which they were met
        self._policies: dict[str, int] = {}  # name of a visitor -> policy id here
        self._met = 0  # visitors so far
        self._greeter, self._greeting = DaemonThreads("palus-greeting"), list[Future[None]]()
        self._greeted, self._greeted_steps = -GREETING_S, 0
        self._speed: float | None = None

    # -- what is told ---------------------------------------------------------------------------------------------

    def note(self, line: Mapping[str, Any]) -> None:
        """A line of `palus.progress`."""
        self._outbox.append(dict(line))

    def rate(self, matches: Sequence[FinishedMatch], league: League) -> None:
        """Results of matches, one for each two policies that met."""
        names = {member.policy: self._told_as(member) for member in league.members if self._known(member)}
        unknown = {m.policy for m in league.members} - names.keys()

        def name(policy: int) -> str:
            policy = league.person(policy)
            return learner_name(self.run, policy) if policy < FROZEN else f"{self.run}/{policy - FROZEN}"

        for match in matches:
            table = self._cells[TABLES[not any(seat.learns for seat in match.seats)]]
            for (a, b), points in results_of(match, policies_of(match, league.spec)).items():
                if unknown & {a, b}:
                    continue
                one, other = names.get(a) or name(a), names.get(b) or name(b)
                if one != other:
                    add(table, one, other, points)
                    self.matches += 1

    def follow(self, league: League, data_of: Callable[[int], bytes]) -> None:
        """Tell of the snapshots that the league has taken since the last call. data_of: their files, by their ids."""
        for number in range(self._followed, league.snapshot_count):
            snapshot = league.snapshots.get(number)
            if snapshot is None or snapshot.present:
                continue
            self._tell_results()
            sha256 = hashlib.sha256(data_of(number)).hexdigest()
            self._published[number] = sha256
            role = league.pools[snapshot.parent].contender.role
            told = Publication(
                self.run, number, snapshot.parent, snapshot.behavior, role, snapshot.origin, snapshot.step,
                snapshot.version, float(snapshot.elo), sha256,
            )  # fmt: skip
            self._outbox.append({"kind": "snapshot", **asdict(told)})
        self._followed = league.snapshot_count

    def _tell_results(self) -> None:
        """Results so far belong to who the learners were so far."""
        if any(self._cells.values()):
            rows = {table: [[*pair, *cell] for pair, cell in cells.items()] for table, cells in self._cells.items()}
            self._outbox.append({"kind": "results", **rows})
            self._cells = {table: {} for table in TABLES}

    def seal(self, league: League, steps: Mapping[int, int], max_steps: Mapping[int, int]) -> None:
        """A checkpoint is about to be written: what was told until now belongs to it."""
        self._tell_results()
        windows = [pool.settings.window for pool in league.pools.values()]
        self._outbox.append({
            "kind": "checkpoint",
            "steps": {str(policy): step for policy, step in steps.items()},
            "max_steps": {str(policy): step for policy, step in max_steps.items()},
            "origins": {str(policy): pool.origin for policy, pool in league.pools.items()},
            "matches": self.matches,
            "window": max(windows, default=0),
            "landmarks": league.settings.landmarks,
        })  # fmt: skip
        self._sealed = len(self._outbox)

    def publish(self, league: League, snapshots: Callable[[int], Path], files: Mapping[str, Path]) -> None:
        """The checkpoint is written: tell what it holds. snapshots: where a snapshot lies; files: those that go to the
        storage with it, by their names in the run's folder.

        Raises SupersededError where another process tells under this run's name.
        """
        while self._sealed:
            folder = f"{home(self.run)}/{FILES}"
            there = {name.rpartition("/")[2] for name in self.depot.list(folder)}
            lines = self._outbox[: self._sealed]
            for told in publications(self.run, lines):
                if told.sha256 not in there:
                    self.depot.put(folder, snapshots(told.number).read_bytes())
            manifest = {name: self._kept(folder, path, there) for name, path in files.items()}
            lines = [*lines, {"kind": "files", "time": time.time(), "files": manifest or None}]
            self._confirm(lines)
            past = {number for pool in league.pools.values() for number in pool.past}
            self._published = {number: sha256 for number, sha256 in self._published.items() if number in past}
            for sha256 in there - {*self._published.values(), *manifest.values()}:
                self.depot.remove(f"{folder}/{sha256}")

    def _kept(self, folder: str, path: Path, there: set[str]) -> str:
        """The SHA-256 of a file that the storage has, now at the latest."""
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        return sha256 if sha256 in there else self.depot.put(folder, data)

    def _confirm(self, lines: list[dict[str, Any]]) -> None:
        """Write a part, or find that it was written, maybe with less in it, before the run was killed or cut off."""
        name, written = part(self.run, self._number), len(lines) - 1
        if not self.depot.create(name, encoded(lines)):
            written = lines_told(self.depot.get(name), lines)
            if not written:
                raise SupersededError(
                    f"{self.depot.place}/{name}: another process has told of {self.run} since; this one ends. One at a "
                    "time trains a run: end the other one, or give its league another --storage."
                )
        del self._outbox[:written]
        self._sealed -= written
        self._number += 1

    @property
    def unsent(self) -> set[int]:
        """Ids of snapshots whose files the storage still lacks."""
        return {told.number for told in publications(self.run, self._outbox)}

    def greet(self, steps: Mapping[int, int], state: str = "training") -> None:
        """A sign of life, at most every `GREETING_S` while it trains; nobody misses one.

        A storage that takes its time, or never answers, holds no training up: there is no other one meanwhile.
        """
        now, total = time.monotonic(), sum(steps.values())
        if state == "training" and now - self._greeted < GREETING_S:
            return
        if state != "training":
            wait(self._greeting, FAREWELL_S)
        if not all(greeting.done() for greeting in self._greeting):
            return
        went_on = 0 < self._greeted_steps < total
        if went_on and (state == "training" or self._speed is None):  # the end of a run is no speed
            self._speed = (total - self._greeted_steps) / (now - self._greeted)
        self._greeted, self._greeted_steps = now, total
        line = {
            "time": time.time(), "steps": {str(p): s for p, s in steps.items()}, "speed": self._speed, "state": state,
            "host": socket.gethostname(), "pid": os.getpid(),
        }  # fmt: skip
        self._greeting = [self._greeter.submit(self.depot.replace, f"{home(self.run)}/{SEEN}", encoded([line]))]
        if state != "training":
            wait(self._greeting, FAREWELL_S)
            self._greeter.close()

    # -- who is met -----------------------------------------------------------------------------------------------

    def visitors(
        self,
        league: League,
        root: Path,
        own: Callable[[Path], Path],
        misfit: Callable[[bytes, Publication], str | None],
    ) -> tuple[list[Member], list[str]]:
        """The snapshots of other runs that are met from now on, with their files in place, and why some are not.

        root: the run's folder. own: enters a file that is about to be written there. misfit: why one cannot be met.
        """
        found, complaints = list[Member](), list[str]()
        here = {member.policy for member in league.members}
        self._policies = {name: policy for name, policy in self._policies.items() if policy in here}
        for run in (run for run in runs_of(self.depot) if run != self.run):
            self._notice_beginning(run)
            read, told = self._others.get(run, (0, []))
            read, lines = news(self.depot, run, read)
            if left_out := sum(record_of(run, line) is None for line in lines):
                complaints.append(lines_left_out(run, left_out))
            self._others[run] = read, self._thinned(league, [*told, *publications(run, lines)])
            folder = f"{home(run)}/{FILES}"
            there = {name.rpartition("/")[2] for name in self.depot.list(folder)}
            for one in self._others[run][1]:
                path = visitor_path(root, one.name)
                if not (path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == one.sha256):
                    if one.sha256 not in there or one in self._misfits:  # its run has dropped it since
                        continue
                    try:
                        data = self.depot.take(folder, one.sha256)
                    except StorageError:
                        if self.depot.has(f"{folder}/{one.sha256}"):
                            raise
                        continue  # dropped after it was listed
                    if complaint := misfit(data, one):
                        complaints.append(complaint)
                        self._misfits.add(one)
                        continue
                    write_bytes(own(path), data)
                found.append(self._member(one))
        return found, complaints

    def _notice_beginning(self, run: str) -> None:
        """Where a run was begun anew since, forget its old self, whose snapshots have the names of the new ones."""
        begun = beginning(self.depot, run)
        if self._beginnings.setdefault(run, begun) != begun:
            self._beginnings[run] = begun
            self._others.pop(run, None)
            self._policies = {name: policy for name, policy in self._policies.items() if not name.startswith(f"{run}/")}

    def _told_as(self, member: Member) -> str:
        """A member as rows have it, a snapshot of another run with what that begins with: it may be begun anew."""
        run = member.name.partition("/")[0]
        begun = self._beginnings.get(run, "")[:BEGUN_DIGITS]
        return f"={member.name}" if member.learner is None else f"{member.name}@{begun}"

    def _known(self, member: Member) -> bool:
        """Whether what the book calls so is this member, and not a new self of its run."""
        return member.learner is None or self._policies.get(member.name) == member.policy

    def _thinned(self, league: League, told: Sequence[Publication]) -> list[Publication]:
        """What is left of another run's past, by this run's own settings; nothing of what is not played here."""
        left: list[Publication] = []
        for learner, behavior in dict.fromkeys((one.learner, one.behavior) for one in told):
            pools = league.pools_of(behavior)
            own = [one for one in told if (one.learner, one.behavior) == (learner, behavior)]
            left += still_met(own, pools[0].settings.window, league.settings.landmarks) if pools else ()
        return left

    def _member(self, one: Publication) -> Member:
        learner = (one.run, one.learner)
        if learner not in self._learners:
            self._learners.append(learner)
        if one.name not in self._policies:
            self._policies[one.name] = MEMBERS + MAX_HOUSE + self._met
            self._met += 1
        number = -1 - self._learners.index(learner)
        return Member(self._policies[one.name], one.name, one.behavior, number, one.version, one.role)

    # -- what a checkpoint holds ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, right after `seal`."""
        return {
            "number": self._number,
            "outbox": encoded(self._outbox).decode(),
            "matches": self.matches,
            "followed": self._followed,
            "published": list(self._published.items()),
            "others": [
                (run, read, encoded([{"kind": "snapshot", **asdict(one)} for one in told]).decode())
                for run, (read, told) in self._others.items()
            ],
            "beginnings": dict(self._beginnings),
            "learners": [list(learner) for learner in self._learners],
            "policies": list(self._policies.items()),
            "met": self._met,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._number, self.matches = int(state["number"]), int(state["matches"])
        self._followed, self._met = int(state["followed"]), int(state["met"])
        self._outbox = decoded(state["outbox"].encode())
        self._sealed = len(self._outbox)
        self._published = {int(number): sha256 for number, sha256 in state["published"]}
        self._others = {
            run: (int(read), publications(run, decoded(told.encode()))) for run, read, told in state["others"]
        }
        self._beginnings = dict(state.get("beginnings", {}))  # older runs took note of none
        self._learners = [(run, int(learner)) for run, learner in state["learners"]]
        self._policies = {name: int(policy) for name, policy in state["policies"]}


def lines_told(data: bytes, outbox: Sequence[Mapping[str, Any]]) -> int:
    """How many lines of an outbox, from its first one on, a part of the book tells; 0 where it tells others."""
    told = decoded(data)[:-1]
    return len(told) if told == decoded(encoded(outbox))[: len(told)] else 0


MAX_HOUSE = 1 << 12
"""Policy ids of visitors begin so far above those of the members that the run file names."""


def visitor_path(root: Path, name: str) -> Path:
    """Where a run keeps the snapshot of another. name: `run/number`."""
    run, _, number = name.partition("/")
    return root / "league" / "visitors" / f"{run}-{int(number):05d}.npz"
