"""`palus worker` as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_worker_with_a_fault_of_its_own_is_not_started_again(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "palus", "worker", "--arena", "http://127.0.0.1:9", "--token-file", "missing")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("cannot be read") == 1
