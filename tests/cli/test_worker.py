"""`palus worker` as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from palus.cli import app


def test_a_worker_with_a_fault_of_its_own_is_not_started_again(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "palus", "worker", "--arena", "http://127.0.0.1:9", "--token-file", "missing")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("cannot be read") == 1


def test_a_token_file_that_is_no_text_is_told_in_a_sentence(tmp_path: Path) -> None:
    (path := tmp_path / "lab.token").write_bytes("palus_x".encode("utf-16"))
    command = ["worker", "--arena", "http://127.0.0.1:9", "--token-file", str(path), "--max-jobs", "1"]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "600"})
    assert done.exit_code == 2 and f"{path}: not UTF-8" in done.stderr
