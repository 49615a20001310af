"""A run's folder, back from the storage of its league."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flaky_storage import Flaky, flaky  # noqa: F401
from test_exchange import go_on, run, told

from palus.errors import CheckpointError, StorageError
from palus.launch.apart import found
from palus.league.exchange import Berth
from palus.league.records import encoded, home, part
from palus.progress import understood
from palus.run.folder import RunFolder
from palus.run.mirror import restored
from palus.store.depot import Depot


def test_a_run_goes_on_on_a_machine_that_never_had_it(tmp_path: Path) -> None:
    storage, there = tmp_path / "storage", tmp_path / "there"
    with run(tmp_path / "here", "ada", storage) as ada:
        go_on(ada, 2)
        known = told(storage).runs["ada"]
        ada.iterate()  # what is no part of a checkpoint is lost with its machine
    assert restored(Berth(str(storage), "ada", mirrored=True), there / "ada")
    lines = (there / "ada" / "run_logs" / "progress.jsonl").read_text().splitlines()
    assert [understood(json.loads(line)) for line in lines] == known.lines
    with run(there, "ada", storage, resume=True) as again:
        assert {"0": again.step} == known.steps
        go_on(again, 1)
        assert told(storage).runs["ada"].matches == again.exchange.matches > known.matches  # type: ignore[union-attr]
    files = len(list((storage / "book" / "ada" / "files").iterdir()))
    assert files < 20  # those of older checkpoints are gone


def test_what_a_book_says_of_files_leads_out_of_no_folder(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "storage"))
    berth = Berth(depot.place, "eve", mirrored=True)
    assert not restored(berth, tmp_path / "eve")
    sha256 = depot.put(f"{home('eve')}/files", b"x")
    names = ["../evil", "/tmp/palus-evil", "a/../../evil", "DuelToy/checkpoint.pt"]
    depot.create(part("eve", 1), encoded([{"kind": "files", "time": 1.0, "files": dict.fromkeys(names, sha256)}]))
    assert restored(berth, tmp_path / "eve")
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert [name for name in written if not name.startswith("storage/")] == [
        "eve/.palus-files", "eve/DuelToy/checkpoint.pt", "eve/run_logs/progress.jsonl"]  # fmt: skip


def test_what_a_run_saved_without_the_storage_is_kept(tmp_path: Path, flaky: Flaky) -> None:  # noqa: F811
    berth = Berth(flaky.place, "ada", mirrored=True)
    with run(tmp_path, "ada", flaky.place) as ada:
        go_on(ada, 1)
        with flaky.gone():
            ada.iterate()
            ada.save()
        step = ada.step
    assert restored(berth, tmp_path / "ada")
    with run(tmp_path, "ada", flaky.place, resume=True) as again:
        assert again.step == step
        record = told(flaky.place).runs["ada"]
        assert (record.parts, record.steps["0"]) == (2, step)
        assert record.matches == again.exchange.matches  # type: ignore[union-attr]
    events = {*tmp_path.glob("ada/DuelToy/events*")}  # which no storage keeps
    assert restored(berth, tmp_path / "ada") and {*tmp_path.glob("ada/DuelToy/events*")} == events


def test_a_run_begins_without_the_storage_where_its_folder_has_a_checkpoint(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
) -> None:
    berth, folder = Berth(flaky.place, "ada", mirrored=True), RunFolder(tmp_path / "ada", ["DuelToy"])
    assert not found(berth, folder.root)
    depot = Depot(flaky.place)
    names = ["DuelToy/checkpoint.pt", "DuelToy/snapshots/snapshot-1.npz"]
    files = {name: depot.put(f"{home('ada')}/files", name.encode()) for name in names}
    depot.create(part("ada", 1), encoded([{"kind": "files", "time": 1.0, "files": files}]))
    with flaky.gone(), pytest.raises(StorageError, match="the storage did not do it"):
        found(berth, folder.root)
    snapshot = f"{home('ada')}/files/{files[names[1]]}"
    depot.remove(snapshot)
    for _ in range(2):  # half a folder is none to go on from
        with pytest.raises(StorageError, match="is not there"):
            found(berth, folder.root)
    depot.replace(snapshot, names[1].encode())
    assert found(berth, folder.root)
    with flaky.gone():
        assert found(berth, folder.root)


def test_a_run_that_has_told_of_itself_goes_on_in_no_empty_book(tmp_path: Path) -> None:
    """`--force` from another machine empties the book, and does not reach this one's folder."""
    folder = RunFolder(tmp_path / "ada", ["DuelToy"])
    berth = Berth(str(tmp_path / "storage"), "ada", mirrored=True)
    folder.save({"exchange": {"number": 1, "outbox": "", "published": []}})
    assert found(berth, folder.root), "it has told nothing yet"
    folder.save({"exchange": {"number": 3, "outbox": "", "published": []}})
    with pytest.raises(CheckpointError, match=r"goes on from part 2 of .*/storage/book/ada, which has none"):
        found(berth, folder.root)


SHA256 = "0" * 64
SNAPSHOT = {"kind": "snapshot", "number": 4, "learner": 0, "behavior": "DuelToy", "role": "main", "origin": None,
            "step": 1000, "version": 4, "elo": 1200.0, "sha256": SHA256}  # fmt: skip
TOLD = {"kind": "results", "training": [], "evaluation": []}
MORE = {"kind": "results", "training": [["ada", "bob", 1.0, 1]], "evaluation": []}


@pytest.mark.parametrize(
    ("exchange", "stays"),
    [
        ({"number": 3}, True),  # the next part was never written
        ({"number": 2}, True),
        ({"number": 2, "outbox": [TOLD, MORE]}, True),  # and saved once more since
        ({"number": 2, "outbox": [MORE]}, False),  # another process has told this part
        ({"number": 1}, False),
        ({"number": 5}, False),  # of a run that was begun anew
        ({"number": 3, "published": [(4, "1" * 64)]}, False),
        ({"number": "x"}, False),
        (None, False),
    ],
)
def test_a_folder_stays_where_it_goes_on_from_the_book(
    tmp_path: Path, exchange: dict[str, Any] | None, stays: bool
) -> None:
    depot, folder = Depot(str(tmp_path / "storage")), RunFolder(tmp_path / "ada", ["DuelToy"])
    berth = Berth(depot.place, "ada", mirrored=True)
    depot.create(part("ada", 1), encoded([SNAPSHOT, {"kind": "files", "time": 1.0, "files": None}]))
    files = {"DuelToy/checkpoint.pt": depot.put(f"{home('ada')}/files", b"of the storage")}
    depot.create(part("ada", 2), encoded([TOLD, {"kind": "files", "time": 2.0, "files": files}]))
    if exchange is not None:
        state = {"outbox": [TOLD], "published": [(4, SHA256)], **exchange}
        folder.save({"exchange": {**state, "outbox": encoded(state["outbox"]).decode()}})
    assert restored(berth, folder.root)
    assert (folder.checkpoint.read_bytes() != b"of the storage") == stays
