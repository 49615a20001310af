"""`palus league` on one machine, as a user types it, and as machines end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Event

import pytest
from flaky_storage import Flaky, flaky  # noqa: F401
from small_league import assert_whole, plan_of, read, wait, write_file
from typer.testing import CliRunner

from palus.cli import app
from palus.cluster import keeping, local
from palus.cluster.keeping import Keeper, Tail
from palus.cluster.plan import LeaguePlan
from palus.errors import CheckpointError, ConfigError, PalusError
from palus.launch.apart import Ending, claimed, found, training
from palus.league.records import SEEN, encoded, home, part
from palus.run.folder import OwnFiles, RunFolder
from palus.store.depot import Depot
from palus.trust import NOBODY


def command(file: Path, *options: str) -> list[str]:
    results = str(file.parent / "results")
    return [sys.executable, "-m", "palus", "league", str(file), "--results-dir", results, *options]


@pytest.mark.cluster
def test_a_league_goes_on_after_a_run_and_then_everybody_s_parent_was_killed(tmp_path: Path) -> None:
    file, root = write_file(tmp_path), tmp_path / "results" / "cup"

    def parts(name: str) -> int:
        return read(str(root))[name].parts if name in read(str(root)) else 0

    with (tmp_path / "out").open("w") as out:
        league = subprocess.Popen(command(file), stderr=out, start_new_session=True)
    wait(lambda: parts("ada") > 0 and parts("bob") > 0, "both have told something")
    killed = read(str(root))["ada"]
    os.kill(killed.seen.pid, signal.SIGKILL)
    wait(lambda: parts("ada") > killed.parts and read(str(root))["ada"].seen.pid != killed.seen.pid, "it went on")
    league.kill()
    league.wait()
    wait(lambda: all(run.seen.state == "stopped" for run in read(str(root)).values()), "both saved and ended")
    assert_whole(str(root), root)

    done = subprocess.run(command(file), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_whole(str(root), root)
    runs = read(str(root))
    assert {name: run.state(0.0) for name, run in runs.items()} == {"ada": "finished", "bob": "finished"}
    assert all(any(f"{other}/" in name for pair in runs[own].cells["training"] for name in pair)
               for own, other in (("ada", "bob"), ("bob", "ada")))  # fmt: skip
    printed = (tmp_path / "out").read_text() + done.stderr
    assert "ada: its process ended by SIGKILL before it was done; it goes on" in printed
    assert all(f"{name}    DuelToy. Step: " in printed for name in ("ada", "bob"))

    shown = subprocess.run([sys.executable, "-m", "palus", "league", "status", str(root), "--json"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    rows = json.loads(shown.stdout)
    assert [(row["run"], row["state"], row["max_steps"]) for row in rows] == [
        ("ada", "finished", 6000), ("bob", "finished", 6000)]  # fmt: skip
    assert all(low < mean < high for mean, low, high in (row["rating"] for row in rows))


def test_a_plan_gives_each_run_its_changes_a_seed_and_its_share_of_the_cores(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    plan = plan_of(file, ["env_settings.seed=7", "palus.threads=0"], cores=5)
    assert {name: (run.env_settings.seed, run.palus.threads) for name, run in plan.runs.items()} == {
        "ada": (7, 2), "bob": (1007, 2)}  # fmt: skip
    assert plan.runs["bob"].behaviors["DuelToy"].hyperparameters.learning_rate == 1e-3
    assert plan.runs["bob"].checkpoint_settings.run_id == "bob" and not plan.runs["bob"].palus.league.runs
    assert not plan.berth("ada").mirrored and plan_of(file, storage="memory://cup").berth("ada").mirrored
    assert list(plan_of(file, number=3).runs) == ["run-1", "run-2", "run-3"]
    assert list(plan_of(file, only=["bob"]).runs) == ["bob"]


def test_runs_of_seed_0_have_seeds_of_their_own_and_what_a_run_says_itself_goes_first(tmp_path: Path) -> None:
    own = "palus.league.runs={a: {}, b: {env_settings.seed: 5, palus.threads: 3}, c: {}}"
    plan = plan_of(write_file(tmp_path), ["env_settings.seed=0", "palus.threads=0", own])
    assert {name: (run.env_settings.seed, run.palus.threads) for name, run in plan.runs.items()} == {
        "a": (0, 1), "b": (5, 3), "c": (2000, 1)}  # fmt: skip
    drawn = plan_of(write_file(tmp_path), ["env_settings.seed=-1"])
    assert {run.env_settings.seed for run in drawn.runs.values()} == {-1}


@pytest.mark.parametrize(("cores", "only", "threads"), [(1, [], 1), (4, [], 2), (4, ["bob"], 4)])
def test_the_cores_are_shared_by_those_that_train_here(tmp_path: Path, cores: int, only: list, threads: int) -> None:
    """0 threads would be all cores for each."""
    plan = plan_of(write_file(tmp_path), ["palus.threads=0"], cores=cores, only=only)
    assert {run.palus.threads for run in plan.runs.values()} == {threads}


def test_a_storage_is_the_same_folder_for_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a cluster work in folders of their own. The league's own folder is no second place of its files."""
    file = write_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = plan_of(file, storage="shared/cup")
    assert plan.storage == str(tmp_path / "shared" / "cup") and plan.berth("ada").mirrored
    for storage in ("results/cup", str(tmp_path / "results" / "cup")):
        for results in ("results", str(tmp_path / "results")):
            own = plan_of(file, [f"checkpoint_settings.results_dir={json.dumps(results)}"], storage=storage)
            assert own.storage == str(tmp_path / "results" / "cup") and not own.berth("ada").mirrored
    assert plan_of(file, storage="memory://cup").storage == "memory://cup"


def test_a_storage_that_cannot_be_written_is_told_before_anything_trains(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, command(write_file(tmp_path), "--storage", str(tmp_path / "file" / "cup"))[3:])
    assert result.exit_code == 2 and "could not be written (Not a directory)" in result.stderr
    assert not list((tmp_path / "results" / "cup").rglob("*.log"))
    plan = plan_of(write_file(tmp_path), storage=str(tmp_path / "shared"))
    plan.check_storage()
    assert not list((tmp_path / "shared").iterdir())


@pytest.mark.parametrize(
    ("overrides", "options", "fault"),
    [
        ([], {"only": ["eve"]}, "--only eve: not a run of this league; it has ada, bob"),
        (["palus.league.runs={}"], {"only": ["eve"]}, r"a league has two runs at least; .* give --runs N$"),
        (["palus.league.runs={../x: {}, b: {}}"], {}, "cannot name a run"),
        (["palus.league.runs={book: {}, b: {}}"], {}, "'book' cannot name a run"),
        (["checkpoint_settings.initialize_from=x"], {}, "initialize_from: name the file with init_path"),
        (["checkpoint_settings.inference=true"], {}, "inference: nothing is learned"),
        (["palus.league.runs={a: {palus.threds: 1}, b: {}}"], {}, r"palus.league.runs.a: .*palus.threds.*threads"),
        (
            ["palus.league.runs={a: {checkpoint_settings.run_id: x}, b: {}}"],
            {},
            r"a: checkpoint_settings.run_id cannot",
        ),
        (
            ["palus.league.runs={a: {}, b: {checkpoint_settings: {inference: true}}}"],
            {},
            r"b: checkpoint_settings canno",
        ),
        (["behaviors.DuelToy.self_play=null"], {}, "give a behavior self_play"),
        ([], {"storage": "nosuch://cup"}, "--storage nosuch://cup: cannot be opened"),
    ],
)
def test_a_plan_that_makes_no_league_says_why(tmp_path: Path, overrides: list[str], options: dict, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        plan_of(write_file(tmp_path), overrides, **options)


@pytest.mark.parametrize(
    ("away", "said"), [(False, "no league has told anything here"), (True, "the storage did not do it")]
)
def test_how_a_league_ended_is_told_also_where_its_book_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool, said: str
) -> None:
    def play_league(plan: LeaguePlan, *_: object) -> dict[str, Ending]:
        if away:
            (plan.root / "book" / "ada").mkdir(parents=True)
            (plan.root / "book" / "ada" / "00000001.jsonl").write_bytes(b"")
            monkeypatch.setattr(Depot, "get", lost)
        return {"ada": Ending("its disk is full"), "bob": Ending()}

    def lost(depot: Depot, name: str) -> bytes:
        with depot._reporting(name):
            raise ConnectionError

    monkeypatch.setattr(local, "play_league", play_league)
    result = CliRunner().invoke(app, command(write_file(tmp_path))[3:])
    assert result.exit_code == 1
    assert "ada: its disk is full" in result.stderr and said in result.stderr


@pytest.mark.parametrize("taken", ["results", "results/cup", "results/cup/bob"])
def test_a_league_whose_folders_cannot_be_made_says_so(tmp_path: Path, taken: str) -> None:
    path = tmp_path / taken
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("something else")
    result = CliRunner().invoke(app, command(write_file(tmp_path))[3:])
    assert result.exit_code == 2
    assert "the folder cannot be made (" in result.stderr and "choose another --results-dir" in result.stderr


def test_a_league_is_not_begun_anew_while_a_run_of_it_trains(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    for storage in (None, str(tmp_path / "far")):
        plan = plan_of(file, storage=storage)
        depot = Depot(plan.storage)
        for name in plan.runs:
            OwnFiles(plan.folder(name)).add(plan.folder(name) / "x").write_text("of a former run")
            depot.create(part(name, 1), b"")
        for kept in (claimed(plan.folder("bob")), RunFolder(plan.folder("bob"), []).held()):
            with kept, pytest.raises(CheckpointError, match=r"cup/bob: .*is training just now"):
                plan.clear()
        if storage is not None:
            line = {"time": time.time(), "steps": {}, "state": "training", "host": "elsewhere", "pid": 1}
            depot.replace(f"{home('bob')}/{SEEN}", encoded([line]))
            with pytest.raises(CheckpointError, match=r"book/bob: is training just now, on 'elsewhere'"):
                plan.clear()
            depot.replace(f"{home('bob')}/{SEEN}", encoded([line | {"time": time.time() - 100}]))
        assert {part(name, 1) for name in plan.runs} <= {*depot.list("book")}
        assert all(plan.folder(name).joinpath("x").exists() for name in plan.runs)
        plan.clear()
        assert not depot.list("book") and not any(plan.folder(name).joinpath("x").exists() for name in plan.runs)


@pytest.mark.parametrize("only", [[], ["ada"]])
def test_a_whole_league_that_is_begun_anew_keeps_nothing_of_runs_that_it_no_longer_has(tmp_path, only) -> None:
    plan = plan_of(write_file(tmp_path), only=only)
    depot = Depot(plan.storage)
    for name in ("ada", "third"):
        OwnFiles(plan.folder(name)).add(plan.folder(name) / "x").write_text("of a former run")
        depot.create(part(name, 1), b"")
    with claimed(plan.folder("third")):
        if only:
            plan.clear()
            assert depot.list("book") == [part("third", 1)] and (plan.folder("third") / "x").exists()
            return
        with pytest.raises(CheckpointError, match=r"cup/third: is training just now"):
            plan.clear()
    plan.clear()
    assert not depot.list("book") and not any((plan.folder(name) / "x").exists() for name in ("ada", "third"))


@pytest.mark.parametrize("storage", [None, "far"])
@pytest.mark.parametrize("removed", range(6))
def test_a_league_goes_on_with_no_book_that_has_lost_its_beginning(
    tmp_path: Path, storage: str | None, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it was begun anew, after so many files of the storage, and started again without --force."""
    plan = plan_of(write_file(tmp_path), storage=storage and str(tmp_path / storage), only=["ada"])
    depot, folder = Depot(plan.storage), plan.folder("ada")
    name = "DuelToy/checkpoint.pt"
    checkpoint = OwnFiles(folder).add(folder / name)
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"weights")
    files = {name: depot.put(f"{home('ada')}/files", b"weights")}
    for number in (1, 2, 3):
        depot.create(part("ada", number), encoded([{"kind": "files", "time": 1.0, "files": files}]))
    depot.replace(f"{home('ada')}/{SEEN}", b"")
    remove, done = Depot.remove, list[str]()

    def until_killed(depot: Depot, name: str) -> None:
        if len(done) == removed:
            raise KeyboardInterrupt
        remove(depot, name)
        done.append(name)

    monkeypatch.setattr(Depot, "remove", until_killed)
    with suppress(KeyboardInterrupt):
        plan.clear()
    parts = [name for name in depot.list(home("ada")) if name.endswith(".jsonl")]
    try:
        goes_on = found(plan.berth("ada"), folder)
    except PalusError:  # it says what is the matter
        return
    assert len(parts) == 3 if goes_on else not parts


class Pauses(Event):
    """Passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout or 0.0)
        return self.is_set()


class Dying(Keeper):
    tries, ending = 0, Ending("it died", crashed=True)

    def _train(self) -> Ending:
        self.tries += 1
        assert self.tries < 20
        return self.ending


def test_a_run_that_dies_again_and_again_is_tried_later_and_later(tmp_path: Path) -> None:
    keeper = Dying(plan_of(write_file(tmp_path)), "ada", NOBODY, lambda line: None)
    keeper.stop = pauses = Pauses()
    assert keeper.keep().crashed and (keeper.tries, pauses.asked) == (5, [0.0, 15.0, 30.0, 45.0])
    stopped = Dying(keeper.plan, "ada", NOBODY, lambda line: stopped.stop.set())
    assert stopped.keep() == Ending() and stopped.tries == 1
    for ending in (Ending(), Ending("its loss is not a number", diverged=True)):
        over = Dying(keeper.plan, "ada", NOBODY, lambda line: None)
        over.ending, over.stop = ending, Pauses()
        assert over.keep() == ending and over.tries == 1


def test_a_run_without_a_place_for_its_folder_is_given_up_and_says_so(tmp_path: Path) -> None:
    """On a machine of a cluster, where nobody looked before; the other runs train on."""
    plan = plan_of(write_file(tmp_path))
    plan.root.parent.write_text("no folder")
    assert Tail(plan.log("ada")).lines() == []
    ending = Keeper(plan, "ada", NOBODY, lambda line: None).keep()
    assert "cup/ada: the folder cannot be made (" in ending.failure and not ending.crashed


def test_who_died_before_it_could_be_told_to_end_has_died(tmp_path: Path) -> None:
    class Meanwhile(Dying):
        def _train(self) -> Ending:
            self.stop.set()
            return super()._train()

    told = list[str]()
    assert Meanwhile(plan_of(write_file(tmp_path)), "ada", NOBODY, told.append).keep().crashed and not told


def test_what_a_run_has_told_before_it_died_counts_and_a_storage_that_is_away_does_not(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
) -> None:
    class Telling(Dying):
        def _train(self) -> Ending:
            ending = super()._train()
            if self.tries == 3:
                Depot(flaky.place).create(part("ada", 1), b"")
            flaky.away = self.tries >= 5
            return ending

    keeper = Telling(plan_of(write_file(tmp_path), storage=flaky.place), "ada", NOBODY, lambda line: None)
    keeper.stop = pauses = Pauses()
    assert keeper.keep().crashed and (keeper.tries, pauses.asked) == (8, [0.0, 15.0, 0.0, 0.0, 15.0, 30.0, 45.0])


def test_who_is_told_to_end_is_asked_once_and_did_not_die_where_it_is_killed_for_not_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stubborn:
        ending = Ending("its process ended by SIGKILL before it was done", crashed=True)
        waited, asked, killed = 0, 0, False

        def wait(self, timeout_s: float) -> bool:
            self.waited += 1
            assert self.waited < 9
            if self.waited == 4:
                keeper.abort.set()
            return self.killed

        def ask(self) -> None:
            self.asked += 1

        def kill(self) -> None:
            self.killed = True

    process = Stubborn()
    monkeypatch.setattr(keeping, "training", lambda *_, **__: nullcontext(process))
    keeper = Keeper(plan_of(write_file(tmp_path)), "ada", NOBODY, lambda line: None)
    keeper.stop.set()
    assert keeper.keep() == Ending()
    assert (process.asked, process.waited) == (1, 5)


def test_what_a_run_prints_is_followed_by_whole_lines_from_now_on(tmp_path: Path) -> None:
    log = tmp_path / "ada.log"
    early = Tail(log)
    assert early.lines() == []
    log.write_bytes(b"of yesterday\n")
    late = Tail(log)
    told = []
    for data in (b"one\ntw", b"", b"o\nthree\n"):
        with log.open("ab") as file:
            file.write(data)
        told.append(late.lines())
    assert told == [["one"], [], ["two", "three"]]
    assert early.lines() == ["of yesterday", "one", "two", "three"]


def test_a_log_that_cannot_be_opened_has_no_lines(tmp_path: Path) -> None:
    """Its run ends, and says why; the others train on."""
    tails = Tail(tmp_path), Tail(tmp_path / "not yet")
    assert [tail.lines() for tail in tails] == [[], []]


def test_a_run_whose_only_checkpoint_is_out_of_reach_ends_as_one_that_died(tmp_path: Path) -> None:
    plan = plan_of(write_file(tmp_path), storage=str(tmp_path / "far"))
    files = {"DuelToy/checkpoint.pt": "0" * 64}
    Depot(plan.storage).create(part("ada", 1), encoded([{"kind": "files", "time": 1.0, "files": files}]))
    plan.folder("ada").mkdir(parents=True)
    with training(plan.runs["ada"], plan.log("ada"), resume=True, trust=NOBODY, berth=plan.berth("ada")) as process:
        assert process.wait(120.0)
        ending = process.ending
        assert ending.crashed and "is not there" in ending.failure


def test_a_run_that_goes_on_says_what_is_new_in_it(tmp_path: Path) -> None:
    file = write_file(tmp_path, max_steps=600)
    plan_of(file).folder("bob").mkdir(parents=True)
    for rate in (1e-3, 1e-3, 2e-3):
        plan = plan_of(file, [f"palus.league.runs.bob={{behaviors.DuelToy.hyperparameters.learning_rate: {rate}}}"])
        with training(plan.runs["bob"], plan.log("bob"), resume=True, trust=NOBODY, berth=plan.berth("bob")) as process:
            assert process.wait(120.0) and process.ending == Ending()
    told = [line for line in plan.log("bob").read_text().splitlines() if "until now" in line]
    assert told == ["behaviors.DuelToy.hyperparameters.learning_rate: 0.002, until now 0.001"]


def test_a_run_whose_folder_is_gone_does_not_begin_from_zero_beside_its_book(tmp_path: Path) -> None:
    plan = plan_of(write_file(tmp_path))
    Depot(plan.storage).create(part("ada", 1), b"")
    keeper = Keeper(plan, "ada", NOBODY, lambda line: None)
    ending = keeper.keep()
    assert not ending.crashed and "cup/ada: no checkpoint to go on from" in ending.failure
    assert "begin this run anew: --only ada --force" in ending.failure
    assert not list(plan.folder("ada").glob("*/*"))
