"""Folders that nobody reads later: they go with their processes, or with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from palus.run.scratch import YOUNG_S, Scratch

PROGRAM = "from palus.run.scratch import Scratch; s = Scratch('palus-rank-'); print(s.path, flush=True); input()"


def test_the_folder_of_who_was_killed_goes_with_the_next_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         env=os.environ | {"TMPDIR": str(tmp_path)})
        for _ in range(2)
    ]  # fmt: skip
    killed, alive = (Path(other.stdout.readline().strip()) for other in others)  # type: ignore[union-attr]
    young, foreign = tmp_path / "palus-rank-young", tmp_path / "palus-trial-x"
    (killed / "snapshots").mkdir()
    for folder in (young, foreign):
        folder.mkdir()
    others[0].kill()
    others[0].communicate()
    before = time.time() - YOUNG_S - 1
    for folder in (killed, alive, foreign):
        os.utime(folder, (before, before))
    own = Scratch("palus-rank-")
    assert sorted(tmp_path.iterdir()) == sorted([alive, own.path, young, foreign])
    own.close()
    others[1].communicate("\n")
    assert sorted(tmp_path.iterdir()) == sorted([young, foreign])
