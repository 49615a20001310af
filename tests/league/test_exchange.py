"""Runs of one league: they meet each other's snapshots, and whatever is killed, every match counts once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flaky_storage import Flaky, flaky  # noqa: F401
from killed_run import RUN, SETTINGS
from test_league import at, filled, league, match
from test_turns import TWO_ON_ONE

from palus.config import load_run
from palus.config.league import Role
from palus.config.trainer import SelfPlay
from palus.errors import CheckpointError, StorageError
from palus.export.policy_file import write_policy
from palus.league.exchange import Berth, Exchange, visitor_path
from palus.league.league import League
from palus.league.pools import Contender
from palus.league.records import LeagueRecord, Publication, home, seen
from palus.rollout.rollout import FROZEN, MEMBERS, FinishedMatch, Seat
from palus.run.folder import OwnFiles
from palus.store.depot import Depot
from palus.train import Run
from palus.types import ObservationSpec

OVERRIDES = {**SETTINGS, "max_steps": 6000, "checkpoint_interval": 1000, "summary_freq": 1000}


@contextmanager
def run(
    folder: Path, name: str, storage: Path | str | None = None, *, resume: bool = False, **more: Any
) -> Iterator[Run]:
    """A run of the league, which its test drives."""
    behaviors = json.dumps({"DuelToy": {**OVERRIDES, **more}})
    file = load_run("debug", [*RUN, f"behaviors={behaviors}", f"checkpoint_settings.run_id={name}",
                              f"checkpoint_settings.results_dir={folder}"])  # fmt: skip
    made = Run(file, resume=resume, force=not resume, log=lambda level, text: None,
               berth=Berth(str(storage or folder), name, mirrored=storage is not None))  # fmt: skip
    try:
        yield made
    finally:
        made.close()


def go_on(made: Run, checkpoints: int) -> None:
    """Train until so many parts more are in the book, as the loop does."""
    told = made.exchange._number + checkpoints  # type: ignore[union-attr]
    while made.exchange._number < told:  # type: ignore[union-attr]
        made.iterate()
        made.save_if_due()


def names(made: Run) -> set[str]:
    return {visitor.name for visitor in made.league.visitors}


def told(folder: Path | str) -> LeagueRecord:
    return LeagueRecord(Depot(str(folder))).read()


def test_runs_meet_each_other_s_snapshots_rate_them_and_forget_them(tmp_path: Path) -> None:
    with run(tmp_path, "ada") as ada, run(tmp_path, "bob") as bob:
        go_on(ada, 2)
        go_on(bob, 1)
        record = told(tmp_path)
        assert names(bob) == {one.name for one in record.runs["ada"].kept} and len(names(bob)) > 3
        go_on(bob, 1)
        go_on(ada, 1)
        assert names(ada) == {one.name for one in told(tmp_path).runs["bob"].kept}
        met = {seat.policy for match in [bob.league.cast(slot) for slot in range(400)] for seat in match}
        assert {visitor.policy for visitor in bob.league.visitors[-3:]} <= met  # `window`: the newest of each learner
        record = told(tmp_path)
        pairs = record.cells("training")
        assert any(a.startswith("ada/") and b.startswith("bob/") for a, b in pairs)
        assert sum(matches for _, matches in pairs.values()) == sum(r.matches for r in record.runs.values()) > 100
        for made in (ada, bob):
            assert record.runs[made.exchange.run].matches == made.exchange.matches  # type: ignore[union-attr]
        ratings = record.ratings()
        assert ratings["ada"] == ratings[record.runs["ada"].snapshots[-1].name]
        assert {"ada", "bob"} <= ratings.keys()
        shown = json.loads((tmp_path / "bob" / "league" / "league.json").read_text())["members"]
        assert {one["name"] for one in shown} >= {name for name in names(bob) if name.startswith("ada/")}

        go_on(ada, 1)  # whose oldest snapshots are not met any more
        go_on(bob, 2)
        assert not any(name.startswith("=") for pair in told(tmp_path).cells("training") for name in pair)
        here = {visitor_path(bob.folder.root, member.name) for member in bob.league.members}
        assert {*(tmp_path / "bob" / "league" / "visitors").iterdir()} <= here
        known = {policy for policy in bob.collector.policies.known if policy >= 1 << 24}
        assert known <= {member.policy for member in bob.league.members}
        kept = {one.sha256 for one in told(tmp_path).runs["ada"].kept}
        assert {path.name for path in (tmp_path / "book" / "ada" / "files").iterdir()} == kept


@pytest.mark.parametrize("died", ["before its checkpoint", "before it was told", "after it was told"])
def test_who_dies_tells_nothing_twice_and_forgets_nothing(
    tmp_path: Path, died: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(tmp_path, "ada") as ada:
        go_on(ada, 2)
        ada.iterate()
        if died == "before it was told":
            with monkeypatch.context() as patch:
                patch.setattr(Depot, "create", lambda *_: (_ for _ in ()).throw(StorageError("away")))
                ada.save()
        elif died == "after it was told":
            ada.save()
    with run(tmp_path, "ada", resume=True) as again:
        record, exchange = told(tmp_path).runs["ada"], again.exchange
        assert exchange is not None
        assert (record.matches, record.step) == (exchange.matches, again.step)
        assert record.parts == exchange._number - 1 == (2 if died == "before its checkpoint" else 3)
        assert [one.number for one in record.snapshots] == list(range(len(record.snapshots)))
        go_on(again, 1)
        assert told(tmp_path).runs["ada"].matches == exchange.matches


def test_a_checkpoint_holds_what_was_played_since_the_last_snapshot(tmp_path: Path) -> None:
    file, made, exchange = tmp_path / "snapshot.npz", filled(1), Exchange(Berth(str(tmp_path), "ada"))
    file.write_bytes(b"weights")
    exchange.follow(made, lambda number: b"weights")
    exchange.rate([match(0, 1.0), match(0, 0.5), match(0, 0.0)], made)
    exchange.seal(made, {0: 10}, {0: 100})
    again = Exchange(Berth(str(tmp_path), "ada"))  # it was killed here
    again.load_state_dict(json.loads(json.dumps(exchange.state_dict())))
    for one in (again, exchange):
        one.publish(made, lambda number: file, {})
    record = told(tmp_path).runs["ada"]
    assert (record.parts, record.matches, record.step) == (1, 3, 10)
    assert record.open["training"] == {("ada", "ada/0"): (1.5, 3)}
    again.follow(made, lambda number: b"weights")
    again.seal(made, {0: 20}, {0: 100})
    again.publish(made, lambda number: file, {})
    record = told(tmp_path).runs["ada"]
    assert (record.parts, record.matches, record.step, len(record.snapshots)) == (2, 3, 20, 1)
    files = [path.read_bytes() for path in (tmp_path / "book" / "ada" / "files").iterdir()]
    assert files == [b"weights"]  # whom others meet stays, though an earlier process told of it


def test_what_was_played_before_a_snapshot_is_that_snapshot_s(tmp_path: Path) -> None:
    file, made, exchange = tmp_path / "snapshot.npz", filled(1), Exchange(Berth(str(tmp_path), "ada"))
    file.write_bytes(b"weights")
    exchange.follow(made, lambda number: b"weights")
    exchange.rate([match(0, 1.0)] * 2, made)
    at(made, 2)
    exchange.follow(made, lambda number: b"weights")
    exchange.rate([match(1, 0.0)], made)
    exchange.seal(made, {0: 2}, {0: 100})
    exchange.publish(made, lambda number: file, {})
    record = told(tmp_path).runs["ada"]
    assert record.cells["training"] == {("ada/0", "ada/1"): (0.0, 2)}
    assert record.open["training"] == {("ada", "ada/1"): (0.0, 1)}


def test_a_snapshot_that_stands_for_its_learner_is_told_of_as_the_learner(tmp_path: Path) -> None:
    file, made, exchange = tmp_path / "snapshot.npz", filled(2), Exchange(Berth(str(tmp_path), "ada"))
    file.write_bytes(b"weights")
    made.snapshots[1] = replace(made.snapshots[1], present=True)
    exchange.follow(made, lambda number: b"weights")
    nobody_learns = FinishedMatch(0, (0.0, 1.0), (Seat(FROZEN + 1, False), Seat(FROZEN, False)))
    exchange.rate([match(1, 1.0), match(0, 1.0), nobody_learns], made)  # the first one against itself
    exchange.seal(made, {0: 2}, {0: 100})
    exchange.publish(made, lambda number: file, {})
    record = told(tmp_path).runs["ada"]
    assert [one.number for one in record.snapshots] == [0] and record.matches == exchange.matches == 2
    assert record.open == {"training": {("ada", "ada/0"): (1.0, 1)}, "evaluation": {("ada", "ada/0"): (0.0, 1)}}


ROLES: tuple[Role, ...] = ("main", "main_exploiter")


def test_visitors_have_ids_of_their_own_and_those_of_one_learner_its_number(tmp_path: Path) -> None:
    exchange = Exchange(Berth(str(tmp_path), "ada"))
    snapshots = (("bob", 0, 0), ("eve", 0, 0), ("bob", 1, 1), ("bob", 0, 0), ("eve", 2, 0), ("eve", 4, 0))
    told = [
        Publication(run, number, learner, "", ROLES[learner], None, 1, number // 2, 1200.0, "0" * 64)
        for run, number, learner in snapshots
    ]
    visitors = [exchange._member(one) for one in told]
    assert [visitor.learner for visitor in visitors] == [-1, -2, -3, -1, -2, -2]
    assert [visitor.policy - MEMBERS - 4096 for visitor in visitors] == [0, 1, 2, 0, 3, 4]
    assert [visitor.version for visitor in visitors] == [0, 0, 0, 0, 1, 2]
    assert [visitor.role for visitor in visitors] == [ROLES[k] for k in (0, 0, 1, 0, 0, 0)]
    again = Exchange(Berth(str(tmp_path), "ada"))
    again.load_state_dict(json.loads(json.dumps(exchange.state_dict())))
    new = [again._member(replace(told[1], run=run, number=7)) for run in ("eve", "amy")]
    assert [(visitor.learner, visitor.policy - MEMBERS - 4096) for visitor in new] == [(-2, 5), (-4, 6)]


def test_a_checkpoint_tells_the_largest_window_of_its_behaviors(tmp_path: Path) -> None:
    sizes = {"Striker": 3, "Goalie": 7}
    contenders = [Contender(k, name, SelfPlay(window=sizes[name])) for k, name in enumerate(sizes)]
    made, exchange = League(TWO_ON_ONE, contenders, 0), Exchange(Berth(str(tmp_path), "ada"))
    exchange.seal(made, {0: 1, 1: 1}, {0: 9, 1: 9})
    exchange.publish(made, lambda number: tmp_path, {})
    assert told(tmp_path).runs["ada"].window == 7


def test_files_of_the_last_checkpoint_stay_on_the_storage_and_those_before_go(tmp_path: Path) -> None:
    made, exchange = league(), Exchange(Berth(str(tmp_path), "ada"))
    same, other = tmp_path / "configuration.yaml", tmp_path / "checkpoint.pt"
    same.write_bytes(b"settings")
    for step in (1, 2):
        other.write_bytes(b"weights of step %d" % step)
        exchange.seal(made, {0: step}, {0: 100})
        exchange.publish(made, lambda number: same, {path.name: path for path in (same, other)})
    there = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (same, other)}
    assert {path.name for path in (tmp_path / "book" / "ada" / "files").iterdir()} == there


def test_what_came_after_a_part_that_was_told_unnoticed_is_told_with_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, exchange, create = league(), Exchange(Berth(str(tmp_path), "ada")), Depot.create

    def cut_off(*given: Any) -> bool:
        create(*given)
        raise StorageError("the answer never came")

    exchange.seal(made, {0: 1}, {0: 100})
    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(Depot, "create", cut_off)
        exchange.publish(made, lambda number: tmp_path, {})
    assert told(tmp_path).runs["ada"].step == 1
    exchange.seal(made, {0: 2}, {0: 100})
    exchange.publish(made, lambda number: tmp_path, {})
    record = told(tmp_path).runs["ada"]
    assert (record.parts, record.step) == (2, 2)


def test_a_learner_that_has_begun_anew_is_told_as_such(tmp_path: Path) -> None:
    with run(tmp_path, "ada") as ada:
        go_on(ada, 1)
        newest = told(tmp_path).runs["ada"].snapshots[-1]
        assert told(tmp_path).runs["ada"].learners == {"ada": newest.name}
        ada.league._begin_anew(ada.league.pools[0], None)
        ada.save()
        assert told(tmp_path).runs["ada"].learners == {"ada": None}


def test_a_storage_that_is_away_loses_nothing(tmp_path: Path, flaky: Flaky) -> None:  # noqa: F811
    with run(tmp_path, "ada", flaky.place) as ada:
        go_on(ada, 1)
        with flaky.gone():
            while ada.step < 3500:
                ada.iterate()
                ada.save_if_due()
            with pytest.raises(StorageError, match="the storage did not do it"):
                told(flaky.place)
        assert told(flaky.place).runs["ada"].parts == 1
        go_on(ada, 1)
        record = told(flaky.place).runs["ada"]
        assert record.parts == 2 and record.matches == ada.exchange.matches  # type: ignore[union-attr]
        assert [one.number for one in record.snapshots] == list(range(ada.league.snapshot_count))


def test_of_two_processes_of_one_run_one_ends(tmp_path: Path) -> None:
    with run(tmp_path, "ada") as ada:
        go_on(ada, 1)
        ada._kept.close()  # on another machine nothing keeps the twin out of a copy of the folder
        with run(tmp_path, "ada", resume=True) as twin:
            go_on(twin, 1)
        with pytest.raises(CheckpointError, match="another process has told of ada since"):
            go_on(ada, 1)


def test_a_storage_that_never_answers_a_sign_of_life_holds_no_training_up(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palus.league.exchange.GREETING_S", 0.0)
    with run(tmp_path, "ada", flaky.place) as ada:
        go_on(ada, 1)
        with flaky.silent():
            for _ in range(3):
                ada.iterate()
            assert flaky.waiting == 1
        ada.exchange.greet(ada.steps, "stopped")  # type: ignore[union-attr]
        seen = told(flaky.place).runs["ada"].seen
        assert seen is not None and (seen.state, seen.steps) == ("stopped", {"0": ada.step})


def test_a_sign_of_life_comes_every_ten_seconds_and_tells_the_speed_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, cy = (Exchange(Berth(str(tmp_path), name)) for name in ("ada", "bob", "cy"))
    found = []
    for exchange, now, step, state in (
        (ada, 100.0, 50, "training"), (ada, 104.0, 1000, "training"), (ada, 110.0, 1050, "training"),
        (ada, 111.0, 1052, "stopped"), (bob, 112.0, 50, "training"), (bob, 113.0, 50, "stopped"),
        (cy, 114.0, 50, "training"), (cy, 119.0, 550, "stopped"),
    ):  # fmt: skip
        clock = SimpleNamespace(monotonic=lambda now=now: now, time=time.time)
        monkeypatch.setattr("palus.league.exchange.time", clock)
        exchange.greet({0: step}, state)
        wait(exchange._greeting)
        line = seen(exchange.depot, exchange.run)
        assert line is not None
        found.append((line.steps["0"], line.speed))
    assert found == [
        (50, None),
        (50, None),
        (1050, 100.0),
        (1052, 100.0),
        (50, None),
        (50, None),
        (50, None),
        (550, 100.0),
    ]


def test_a_storage_that_never_answers_is_waited_for_a_tenth_of_the_time(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("palus.run.parts.time.monotonic", lambda: now[0])
    with run(tmp_path, "ada", flaky.place) as ada:
        asked = list[float]()

        def never_answers(*_: object) -> None:
            asked.append(now[0])
            now[0] += 40.0
            raise StorageError("no answer")

        monkeypatch.setattr(Depot, "list", never_answers)
        for _ in range(6):
            ada.save(["DuelToy"])
            now[0] += 90.0
        assert asked == [0.0, 400.0]
        ada.save()  # the last one
        assert asked[2:] == [now[0] - 40.0]


def test_who_is_begun_anew_is_met_as_who_it_is_now(tmp_path: Path) -> None:
    with run(tmp_path, "ada") as ada, run(tmp_path, "bob") as bob:
        go_on(ada, 3)
        go_on(bob, 2)
        before = {visitor.name: visitor.policy for visitor in bob.league.visitors}
        assert any("ada/0" in pair for pair in told(tmp_path).cells("training"))
    depot = Depot(str(tmp_path))
    for file in depot.list(home("ada")):
        depot.remove(file)
    OwnFiles(tmp_path / "ada").remove_all()
    with run(tmp_path, "ada") as ada:
        go_on(ada, 1)
    book = told(tmp_path)
    assert sum(matches for _, matches in book.cells("training").values()) < sum(r.matches for r in book.runs.values())
    with run(tmp_path, "bob", resume=True) as bob:
        book = {one.name: one.sha256 for one in told(tmp_path).runs["ada"].kept}
        assert names(bob) == book.keys() and names(bob) & before.keys()
        files = {name: visitor_path(bob.folder.root, name).read_bytes() for name in book}
        assert {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} == book
        now = {visitor.name: visitor.policy for visitor in bob.league.visitors}
        assert not {*now.values()} & {*before.values()}

        exchange = bob.exchange
        name = min(now.keys() & before.keys())
        assert exchange is not None and before[name] in {member.policy for member in bob.league.members}
        for policies, more in ((before, 0), (now, 1)):  # a match of its old self may still be played
            matches = exchange.matches
            seats = Seat(0, True), Seat(policies[name], False)
            exchange.rate([FinishedMatch(0, (1.0, 0.0), seats)], bob.league)
            assert exchange.matches == matches + more


def test_a_snapshot_that_is_dropped_while_others_are_fetched_ends_no_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(tmp_path, "ada") as ada, run(tmp_path, "bob") as bob:
        go_on(ada, 1)
        last = told(tmp_path).runs["ada"].kept[-1]
        take = Depot.take

        def late(self: Depot, folder: str, sha256: str) -> bytes:
            self.remove(f"{home('ada')}/files/{last.sha256}")  # by its owner
            return take(self, folder, sha256)

        monkeypatch.setattr(Depot, "take", late)
        warned = list[str]()
        monkeypatch.setattr(bob.report, "warn", warned.append)
        go_on(bob, 1)
        assert names(bob) == {one.name for one in told(tmp_path).runs["ada"].kept} - {last.name} and not warned

        monkeypatch.setattr(Depot, "take", lambda *_: (_ for _ in ()).throw(StorageError("damaged")))
        Depot(str(tmp_path)).create(f"{home('ada')}/files/{last.sha256}", b"")
        go_on(bob, 1)
        assert names(bob) and warned == ["damaged. Training goes on; a later checkpoint tries again."]


def test_a_snapshot_of_another_run_that_cannot_play_here_is_not_met(tmp_path: Path) -> None:
    theirs = Publication("bob", 0, 0, "DuelToy", "main", None, 1, 0, 1200.0, "0" * 64)
    with run(tmp_path, "ada") as ada:
        file, path = ada.trainees[0].policy_file(ada.spec, 7), tmp_path / "snapshot.npz"

        def complaint(**changes: Any) -> str | None:
            write_policy(path, replace(file, **changes))
            return ada.saving.misfit(path.read_bytes(), theirs)

        (name, *_), small = file.arrays, (ObservationSpec("eye", (3, 8, 8), "uint8"),)
        text = np.full(file.arrays[name].shape, "one")
        assert f"weights {name}: no numbers" in str(complaint(arrays={**file.arrays, name: text}))
        assert "8 x 8 are too small" in str(complaint(spec=replace(file.spec, observations=small)))
        wide = (ObservationSpec("obs", (99,)),)
        assert "expected shape" in str(complaint(spec=replace(file.spec, observations=wide)))
        assert complaint() is None
        assert str(ada.saving.misfit(path.read_bytes()[:100], theirs)).startswith("bob/0: ")
        (kind,) = ada.spec.behaviors
        here = replace(kind, observations=(ObservationSpec("obs_0", (9,)),))
        ada.saving.spec = replace(ada.spec, behaviors=(here,))
        assert str(complaint()).startswith("bob/0: sees or does something else than DuelToy does here")
