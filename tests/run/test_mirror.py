"""A run's folder, back from the storage of its league."""

from __future__ import annotations

import json
from pathlib import Path

from test_exchange import go_on, run, told

from palus.league.exchange import Berth
from palus.league.records import encoded, home, part
from palus.progress import understood
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
