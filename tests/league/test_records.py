"""The book of a league, whatever stands in it: anybody who reaches the storage can write there."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palus.cli.league import status_of
from palus.league.exchange import Berth, Exchange
from palus.league.records import (
    SEEN,
    SILENT_S,
    LeagueRecord,
    Publication,
    RunRecord,
    SeenLine,
    beginning,
    encoded,
    home,
    part,
    publications,
)
from palus.store.depot import Depot
from palus.types import FROZEN

SNAPSHOT: dict[str, Any] = {
    "kind": "snapshot", "number": 0, "learner": 0, "behavior": "DuelToy", "role": "main", "origin": None, "step": 10,
    "version": 0, "elo": 1200.0, "sha256": "0" * 64,
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {"kind": "checkpoint", "steps": {"0": 10}, "max_steps": {"0": 20}, "landmarks": 3}
RESULTS: dict[str, Any] = {"kind": "results", "training": [["ada", "=random", 1.5, 2]], "evaluation": []}


def row(*cells: object) -> dict[str, Any]:
    return RESULTS | {"evaluation": [list(cells)]}


WRONG: list[dict[str, Any]] = [
    {"kind": ["results"]},
    {"kind": "of a later version"},
    row("ada"),
    row("ada", "bob", "x", 1),
    row("ada", "bob", 1.0, "x"),
    row("ada", "bob", 3.0, 2),
    row("ada", "bob", -1.0, 2),
    row("ada", "bob", 0.0, 10**400),
    CHECKPOINT | {"window": "x"},
    CHECKPOINT | {"window": -5},
    CHECKPOINT | {"landmarks": -1},
    CHECKPOINT | {"steps": {"0": "z"}},
    CHECKPOINT | {"origins": {"0": "ada/0"}},
    SNAPSHOT | {"step": -1},
    SNAPSHOT | {"sha256": "../../x"},
    SNAPSHOT | {"role": "spy"},
    {"kind": "files", "time": 1.0, "files": {"a": "b"}},
    {"kind": "summary", "learner": "ada", "step": 1, "values": {}},
]


def tell(depot: Depot, data: bytes) -> None:
    depot.create(part("ada", 1), data)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_line_that_is_none_of_the_book_is_left_out_and_counted(tmp_path: Path, wrong: dict[str, Any]) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, encoded([SNAPSHOT, RESULTS, wrong, CHECKPOINT, {"kind": "files", "time": 5.0, "files": None}]))
    (own,) = LeagueRecord(depot).read().runs.values()
    assert (own.left_out, own.matches, own.steps, own.landmarks, own.told_at) == (1, 2, {"0": 10}, 3, 5.0)
    assert [told.name for told in own.kept] == ["ada/0"]
    (shown,) = status_of(depot.place)
    assert (shown.step, shown.snapshots, shown.left_out) == (10, 1, 1)
    assert publications("ada", [wrong]) == []


@pytest.mark.parametrize("damage", [b"[" * 100_000, b'{"x": 1e999}', b'{"x": NaN}', b"\xff", b"9" * 5000])
def test_bytes_that_are_no_line_are_passed_over_and_counted(tmp_path: Path, damage: bytes) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, damage + b"\n" + encoded([CHECKPOINT]))
    depot.replace(f"{home('ada')}/{SEEN}", damage)
    (own,) = LeagueRecord(depot).read().runs.values()
    assert (own.left_out, own.step, own.seen) == (1, 10, None)


def test_who_reads_on_sees_a_run_that_was_begun_anew_as_it_is_now(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, encoded([SNAPSHOT, RESULTS, CHECKPOINT]))
    depot.create(part("ada", 2), encoded([SNAPSHOT | {"number": 1}, RESULTS]))
    record = LeagueRecord(depot).read()
    assert record.read().runs["ada"].matches == 4, "nothing is read twice"
    for number in (1, 2):
        depot.remove(part("ada", number))
    assert record.read().runs["ada"].matches == 4, "nothing that could be read instead"
    tell(depot, encoded([SNAPSHOT | {"step": 11}, row("ada/0", "=random", 1.0, 1)]))
    own = record.read().runs["ada"]
    assert (own.matches, [(told.name, told.step) for told in own.kept]) == (3, [("ada/0", 11)])


def test_members_of_the_run_file_are_rated_beside_those_who_met_them(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, encoded([SNAPSHOT, row("ada", "=random", 9.0, 10), CHECKPOINT]))
    ratings = LeagueRecord(depot).read().ratings()
    assert set(ratings) == {"ada", "ada/0", "=random"}
    assert ratings["ada"] == ratings["ada/0"] and ratings["ada"].mean > ratings["=random"].mean + 100


def test_a_learner_that_came_back_to_what_nobody_meets_any_more_is_rated_as_that(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    newer = SNAPSHOT | {"number": 1, "origin": FROZEN, "step": 20, "version": 1}
    tell(depot, encoded([
        SNAPSHOT, newer, RESULTS | {"training": [["ada/0", "=random", 9.0, 10], ["ada/1", "=random", 5.0, 10]]},
        CHECKPOINT | {"window": 1, "landmarks": 0, "origins": {"0": FROZEN}},
    ]))  # fmt: skip
    record = LeagueRecord(depot).read()
    ratings = record.ratings()
    assert list(record.field) == ["ada/1"] and ratings["ada"] == ratings["ada/0"] != ratings["ada/1"]


def test_results_against_a_run_that_was_begun_anew_count_no_more(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, encoded([SNAPSHOT, CHECKPOINT]))
    begun = beginning(depot, "ada")[:16]
    rows = [["bob/0", f"ada/0@{begun}", 1.0, 2], ["bob/0", "ada/1", 1.0, 1], ["bob/0", "=a@b", 0.0, 1]]
    depot.create(part("bob", 1), encoded([SNAPSHOT, RESULTS | {"training": rows}]))
    record = LeagueRecord(depot).read()
    others = {("ada/1", "bob/0"): (0.0, 1), ("=a@b", "bob/0"): (1.0, 1)}  # an older book does not say against whom
    assert record.cells("training") == {("ada/0", "bob/0"): (1.0, 2)} | others
    depot.remove(part("ada", 1))
    tell(depot, encoded([SNAPSHOT | {"step": 11}, CHECKPOINT]))
    assert record.read().cells("training") == LeagueRecord(depot).read().cells("training") == others


def test_a_run_of_the_league_is_told_of_them_once_and_goes_on(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "cup"))
    tell(depot, encoded([*WRONG, SNAPSHOT]) + b'{"kind": "resul')
    exchange, league = Exchange(Berth(depot.place, "bob")), SimpleNamespace(members=[], pools_of=lambda behavior: [])
    told = [exchange.visitors(league, tmp_path, Path, lambda data, one: None)[1] for _ in range(2)]  # type: ignore
    assert [len(complaints) for complaints in told] == [1, 0]
    assert told[0][0].startswith(f"book/ada: {len(WRONG) + 1} lines are none of a league's book, and count for noth")


def test_a_snapshot_that_cannot_play_here_is_fetched_and_told_of_once(tmp_path: Path) -> None:
    depot, asked = Depot(str(tmp_path / "cup")), list[bytes]()
    tell(depot, encoded([SNAPSHOT | {"sha256": depot.put(f"{home('ada')}/files", b"weights")}]))
    pool, settings = SimpleNamespace(settings=SimpleNamespace(window=10)), SimpleNamespace(landmarks=0)
    exchange = Exchange(Berth(depot.place, "bob"))
    league: Any = SimpleNamespace(members=[], settings=settings, pools_of=lambda behavior: [pool])

    def misfit(data: bytes, told: Publication) -> str:
        asked.append(data)
        return f"{told.name}: does not fit"

    told = [exchange.visitors(league, tmp_path, Path, misfit) for _ in range(3)]
    assert told == [([], ["ada/0: does not fit"]), ([], []), ([], [])] and asked == [b"weights"]


def test_a_sign_of_life_that_is_none_is_none(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path))
    tell(depot, encoded([CHECKPOINT]))
    depot.replace(f"{home('ada')}/{SEEN}", encoded([{"time": "x", "steps": []}]))
    assert [row.step for row in status_of(depot.place)] == [10]


@pytest.mark.parametrize(
    ("steps", "goals", "shown"),
    [
        ((1000, 1200), (1000, 5000), ("training", 1200, 5000)),
        ((1000, 5100), (1000, 5000), ("finished", 1000, 1000)),
        ((700, 0), (1000, 0), ("training", 700, 1000)),  # the second one only plays
        ((1000, 0), (1000, 0), ("finished", 1000, 1000)),
    ],
)
def test_a_run_is_finished_when_every_learner_has_its_own_steps(
    tmp_path: Path, steps: tuple[int, ...], goals: tuple[int, ...], shown: tuple[str, int, int]
) -> None:
    depot, now = Depot(str(tmp_path)), time.time()
    told, own = ({str(policy): number for policy, number in enumerate(numbers)} for numbers in (steps, goals))
    half = {policy: number // 2 for policy, number in told.items()}
    lines = [CHECKPOINT | {"steps": half, "max_steps": own}, {"kind": "files", "time": now - 9.0, "files": None}]
    tell(depot, encoded(lines))
    seen = {"time": now, "steps": told, "speed": 1.0, "state": "training", "host": "h", "pid": 1}
    depot.replace(f"{home('ada')}/{SEEN}", encoded([seen]))
    (row,) = status_of(depot.place)
    assert (row.state, row.step, row.max_steps) == shown
    assert row.checkpoint == shown[1] // 2


@pytest.mark.parametrize(("told_at", "seen_at", "step"), [(100.0, 90.0, 15), (90.0, 100.0, 12)])
def test_how_far_a_run_is_and_whether_it_is_silent_says_what_it_told_last(
    told_at: float, seen_at: float, step: int
) -> None:
    seen = SeenLine(time=seen_at, steps={"0": 12}, state="training", host="h", pid=1)
    run = RunRecord("ada", steps={"0": 15}, max_steps={"0": 20}, told_at=told_at, seen=seen)
    assert (run.step, run.saved, run.last_seen) == (step, 15, 100.0)
    assert [run.state(100.0 + SILENT_S + late) for late in (0.0, 0.1)] == ["training", "silent"]


@pytest.mark.parametrize(
    ("origins", "same_as"),
    [
        ({"0": FROZEN, "1": FROZEN + 2}, "ada/2"),
        ({}, "ada/2"),  # an older book does not say
        ({"0": FROZEN, "1": None}, None),
        ({"0": FROZEN, "1": FROZEN}, "ada/0"),
    ],
)
def test_a_learner_is_one_player_with_the_snapshot_that_its_weights_come_from(
    tmp_path: Path, origins: dict[str, int | None], same_as: str | None
) -> None:
    """Frozen after it had won, the second learner goes on, begins anew, or takes over the first one's weights."""
    depot = Depot(str(tmp_path))
    exploiter = SNAPSHOT | {"learner": 1, "role": "main_exploiter"}
    tell(depot, encoded([
        SNAPSHOT, exploiter | {"number": 1},
        RESULTS | {"training": [["ada+1", "ada/0", 45.0, 50], ["ada/1", "ada/0", 25.0, 50]]},
        exploiter | {"number": 2, "origin": FROZEN + 1, "step": 20, "version": 1},
        RESULTS | {"training": [["ada+1", "ada/1", 1.0, 50]]},
        CHECKPOINT | ({"origins": origins} if origins else {}),
    ]))  # fmt: skip
    ratings = LeagueRecord(depot).read().ratings()
    assert set(ratings) == {"ada", "ada+1", "ada/0", "ada/1", "ada/2"}
    assert ratings["ada"] == ratings["ada/0"]
    assert [name for name in ("ada/0", "ada/1", "ada/2") if ratings[name] == ratings["ada+1"]] == [
        name for name in (same_as,) if name
    ]
    if same_as is None:
        assert ratings["ada+1"].high < ratings["ada/1"].mean < ratings["ada/2"].low
