"""A league of several runs on the page of runs, from its book alone."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from palus.cli.live import _league_folder
from palus.league.records import SEEN, encoded, home, part
from palus.store.depot import Depot
from palus.types import FROZEN
from palus.web.watch.app import Runs
from palus.web.watch.matches import Stage
from palus.web.watch.of_book import LeagueFolder

WEIGHTS = b"the weights"


def tell(
    depot: Depot, run: str, number: int, step: int, rows: list[list[Any]], snapshots: int = 1, goal: int = 3000
) -> None:
    """One part of a run's book: results, then a snapshot, a summary and the checkpoint."""
    kept = depot.put(f"{home(run)}/files", WEIGHTS)
    first = (number - 1) * snapshots
    lines: list[dict[str, Any]] = [{"kind": "run", "game": "SoccerTwos", "env_options": {}, "started": 1.0}]
    lines += [{"kind": "results", "training": rows, "evaluation": []}]
    lines += [{"kind": "snapshot", "number": k, "learner": 0, "behavior": "SoccerTwos", "role": "main", "step": step,
               "origin": FROZEN + k - 1 if k else None, "version": k, "elo": 1200.0, "sha256": kept}
              for k in range(first, first + snapshots)]  # fmt: skip
    lines += [{"kind": "summary", "learner": "SoccerTwos", "policy": 0, "behavior": "SoccerTwos", "step": step,
               "seconds": step / 100, "values": {"Self-play/ELO": 1200.0 + step}}]  # fmt: skip
    lines += [{"kind": "checkpoint", "steps": {"0": step}, "max_steps": {"0": goal}, "matches": 0, "window": 10}]
    depot.create(part(run, number), encoded([*lines, {"kind": "files", "time": 1e9, "files": None}]))


def begun(tmp_path: Path) -> tuple[Depot, LeagueFolder, Runs]:
    """The book of two runs that have told one part each, and their page."""
    depot = Depot(str(tmp_path / "cup"))
    tell(depot, "ada", 1, 1000, [["ada", "=random", 8.0, 10]])
    tell(depot, "bob", 1, 500, [["bob", "ada/0", 9.0, 10]])
    folder = LeagueFolder(depot.place, tmp_path / "page" / "cup")
    runs = Runs([tmp_path / "page" / "cup"])
    folder.refresh()
    return depot, folder, runs


def test_the_page_of_a_league_follows_its_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depot, folder, runs = begun(tmp_path)
    (page,) = runs.look().runs
    assert [(c.learner, c.behavior, c.step, c.max_steps) for c in page.learners] == [
        ("ada", "SoccerTwos", 1000, 3000), ("bob", "SoccerTwos", 500, 3000)]  # fmt: skip
    assert page.name == "cup" and page.game == "SoccerTwos" and page.state == "running"
    assert page.heard_ms == 1_000_000_000_000  # when they told it, not when it was read
    tell(depot, "bob", 2, 3000, [["bob", "ada/0", 10.0, 10]])
    tell(depot, "ada", 2, 3000, [["ada", "bob/0", 1.0, 4]])
    folder.refresh()
    (page,) = runs.look().runs
    assert [(c.learner, c.steps, c.values["Self-play/ELO"]) for c in page.learners] == [
        ("ada", [1000, 3000], [2200.0, 4200.0]), ("bob", [500, 3000], [1700.0, 4200.0])]  # fmt: skip
    assert page.state == "finished" and page.league is not None
    policies = {policy.label: policy for policy in page.league.policies}
    assert list(policies) == ["ada", "bob", "ada/0", "ada/1", "bob/0", "bob/1", "random"]
    assert [policies["bob/1"].parent, policies["bob/1"].origin] == [policies["bob"].id, policies["bob/0"].id]
    bob, ada = policies["bob/1"].id, policies["ada/0"].id
    assert (bob, ada, 10.0, 10) in page.league.training and (ada, bob, 0.0, 10) in page.league.training
    ratings = [policies[name].rating for name in ("bob/1", "ada/0", "random")]
    assert [r.mean for r in ratings if r] == sorted([r.mean for r in ratings if r], reverse=True) and len(ratings) == 3
    files = sorted((tmp_path / "page" / "cup" / "SoccerTwos" / "snapshots").iterdir())
    assert [path.name for path in files] == ["snapshot-00001.npz", "snapshot-100001.npz"]  # the newest of each
    assert hashlib.sha256(files[0].read_bytes()).digest() == hashlib.sha256(WEIGHTS).digest()
    monkeypatch.setattr("palus.web.watch.matches.trained_steps", lambda path: 3000)  # the weights above are none
    others = Stage(folder.folder, "SoccerTwos", {}).opponents()
    named = [(other.word, other.label) for other in others if other.word.startswith("snapshot")]
    assert named == [("snapshot-100001", "bob/1"), ("snapshot-1", "ada/1")]
    seen(depot, "bob", 1e9 + 7, 600)
    folder.refresh()
    assert runs.look().runs[0].heard_ms == 1_000_000_007_000


def test_the_page_of_a_league_says_whom_its_runs_met_where_snapshots_took_over_the_matches(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    tell(depot, "bob", 2, 800, [["bob", "ada/0", 2.0, 4], ["bob", "bob/0", 2.0, 6], ["=random", "bob", 0.0, 10]])
    tell(depot, "bob", 3, 900, [])  # nobody met since
    folder.refresh()
    league = runs.look().runs[0].league
    assert league is not None and league.mix_of == "checkpoints"
    learners = {policy.id for policy in league.policies if policy.kind == "learner"}
    assert learners.isdisjoint(policy for policy, *_ in league.training)
    shares = {share.opponent: share.share for share in league.mix}
    assert shares == {"random": 20 / 30, "ada/0": 4 / 30, "bob/0": 6 / 30}  # ada's checkpoint, and bob's last of any
    assert {share.behavior for share in league.mix} == {"SoccerTwos"}


def test_the_newest_snapshot_of_each_learner_of_a_run_can_be_watched_and_no_older_one(tmp_path: Path) -> None:
    depot, learners = Depot(str(tmp_path / "cup")), ["Striker", "Goalie", "Striker"]
    folder = LeagueFolder(depot.place, tmp_path / "page" / "cup")
    for first in (0, 3):
        numbers = {learner: first + learner for learner in (1, 2, 0)}
        kept = {number: depot.put(f"{home('ada')}/files", b"%d" % number) for number in numbers.values()}
        lines = [
            {"kind": "snapshot", "number": number, "learner": learner, "behavior": learners[learner], "role": "main",
             "step": first, "origin": None, "version": first, "elo": 1200.0, "sha256": kept[number]}
            for learner, number in numbers.items()
        ]  # fmt: skip
        depot.create(part("ada", 1 + first // 3), encoded(lines))
        folder.refresh()
        files = [f"{path.parts[-3]} {path.stem[-1]}" for path in folder.folder.glob("*/snapshots/*.npz")]
        assert sorted(files) == [f"Goalie {first + 1}", f"Striker {first}", f"Striker {first + 2}"]


def seen(depot: Depot, run: str, time_s: float, step: int, state: str = "training") -> None:
    line = {"time": time_s, "steps": {"0": step}, "state": state, "host": "lab", "pid": 1}
    depot.replace(f"{home(run)}/{SEEN}", encoded([line]))


def test_a_league_that_was_stopped_and_goes_on_is_running(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    states = []
    for state in ("stopped", "training", "stopped"):
        for run in ("ada", "bob"):
            seen(depot, run, 1e9 + 7, 1200, state)
        folder.refresh()
        states.append(runs.look().runs[0].state)
    assert states == ["stopped", "running", "stopped"]


def test_a_league_on_a_machine_whose_clock_is_ahead_was_heard_of_now(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    seen(depot, "ada", time.time() + 3600, 1200)
    before_ms = int(1000 * time.time())
    folder.refresh()
    assert before_ms - 1000 <= (runs.look().runs[0].heard_ms or 0) <= 1000 * time.time()


def test_a_run_of_a_league_has_made_the_steps_of_its_last_checkpoint(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    later = {"kind": "checkpoint", "steps": {"0": 1300}, "max_steps": {"0": 3000}, "matches": 0, "window": 10}
    depot.create(part("ada", 2), encoded([later, {"kind": "files", "time": 1e9, "files": None}]))
    folder.refresh()
    assert [curves.step for curves in runs.look().runs[0].learners] == [1300, 500]


def test_runs_of_a_league_that_train_for_different_lengths_have_each_their_own(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    tell(depot, "SoccerTwos", 1, 500, [], goal=600)  # which is called as what they all play
    folder.refresh()
    (page,) = runs.look().runs
    assert [(c.learner, c.max_steps, c.left_s) for c in page.learners] == [
        ("ada", 3000, 20.0), ("bob", 3000, 25.0), ("SoccerTwos", 600, 1.0)]  # fmt: skip


def test_the_page_of_a_league_shows_a_run_that_was_begun_anew_as_it_is_now(tmp_path: Path) -> None:
    depot, folder, runs = begun(tmp_path)
    runs.look()
    depot.remove(part("ada", 1))
    depot.put(f"{home('ada')}/files", b"other weights")
    first = {
        "kind": "snapshot",
        "number": 0,
        "learner": 0,
        "behavior": "SoccerTwos",
        "role": "main",
        "step": 200,
        "origin": None,
        "version": 0,
        "elo": 1200.0,
        "sha256": hashlib.sha256(b"other weights").hexdigest(),
    }
    summary = {"kind": "summary", "learner": "SoccerTwos", "policy": 0, "behavior": "SoccerTwos", "step": 200,
               "seconds": 2.0, "values": {"Self-play/ELO": 7.0}}  # fmt: skip
    session = {"kind": "run", "game": "SoccerTwos", "env_options": {}, "started": 2.0}
    depot.create(part("ada", 1), encoded([session, first, summary]))
    folder.refresh()
    (page,) = runs.look().runs
    assert [(c.learner, c.steps, c.values["Self-play/ELO"]) for c in page.learners] == [
        ("ada", [200], [7.0]), ("bob", [500], [1700.0])]  # fmt: skip
    path = folder.folder / "SoccerTwos" / "snapshots" / "snapshot-00000.npz"
    assert path.read_bytes() == b"other weights"


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "snapshot", "number": 0, "learner": 0, "behavior": "S\ud800", "role": "main", "step": 20,
         "origin": None, "version": 0, "elo": 1200.0, "sha256": "0" * 64},
        {"kind": "summary", "learner": "\ud800", "policy": 0, "behavior": "S\ud800", "step": 20, "values": {"a": 1.0}},
        {"kind": "results", "training": [["=\ud800", "ada/0", 1.0, 2]], "evaluation": []},
    ],
    ids=lambda line: line["kind"],
)  # fmt: skip
def test_a_name_that_is_half_of_a_character_hides_nothing_of_a_league(tmp_path: Path, line: dict[str, Any]) -> None:
    depot, folder, runs = begun(tmp_path)
    depot.create(part("eve", 1), encoded([line]))
    folder.refresh()
    page = json.loads(runs.look().model_dump_json())["runs"][0]
    assert {"ada", "bob"} <= {curves["learner"] for curves in page["learners"]}
    assert {"ada/0", "bob/0"} <= {policy["label"] for policy in page["league"]["policies"]}


@pytest.mark.parametrize("place", ["..", ".", "../../cup/", "file://{}/cup/.."])
def test_a_league_is_written_beside_nothing_else_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    begun(tmp_path)
    here = tmp_path / "cup" if place == "." else tmp_path / "cup" / "ada"
    here.mkdir(exist_ok=True)
    if "://" in place:
        (tmp_path / "book").symlink_to(tmp_path / "cup" / "book")
    precious = tmp_path / "temp" / "mine" / "snapshots" / "snapshot-00000.npz"
    precious.parent.mkdir(parents=True)
    precious.write_bytes(WEIGHTS)
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    with _league_folder(place.format(tmp_path), threading.Event()) as folder:
        assert folder.name == ("league" if "://" in place else "cup")
        assert folder.parent.parent == tmp_path / "temp" and (folder / "league" / "league.json").is_file()
    assert [path for path in (tmp_path / "temp").rglob("*") if path.is_file()] == [precious]


@pytest.mark.parametrize("policy", [64, 1 << 53])
def test_a_learner_beyond_the_ids_of_its_run_hides_no_other(tmp_path: Path, policy: int) -> None:
    depot, _, _ = begun(tmp_path)
    summary = {"kind": "summary", "learner": "x", "policy": policy, "behavior": "SoccerTwos", "step": 20, "values": {}}
    depot.create(part("bea", 1), encoded([summary]))
    LeagueFolder(depot.place, tmp_path / "anew" / "cup").refresh()
    (page,) = Runs([tmp_path / "anew" / "cup"]).look().runs
    assert [(curves.learner, curves.policy) for curves in page.learners] == [("ada", 0), ("bob", 128)]
