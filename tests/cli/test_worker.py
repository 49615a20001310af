"""`palus worker` as a process: what becomes of it when a signal ends the one that plays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def a_child_of(pid: int, other_than: int = 0) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [child for child in children(pid) if child != other_than]
        if found and b"--alone" in Path(f"/proc/{found[0]}/cmdline").read_bytes():
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no worker beside {other_than} was started")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_worker_that_a_signal_ends_is_started_again_and_ends_with_its_parent(tmp_path: Path, end: int) -> None:
    token = tmp_path / "lab.token"
    token.write_text("none")
    # Nobody listens there: the worker goes on asking.
    arguments = ("worker", "--arena", "http://127.0.0.1:9", "--token-file", str(token))
    parent = subprocess.Popen((sys.executable, "-u", "-m", "palus", *arguments), stdout=subprocess.PIPE, text=True)
    try:
        first = a_child_of(parent.pid)
        os.kill(first, signal.SIGSEGV)
        second = a_child_of(parent.pid, other_than=first)
        assert parent.poll() is None
        parent.send_signal(end)
        said, _ = parent.communicate(timeout=30)
    finally:
        parent.kill()
    assert parent.returncode == (0 if end == signal.SIGINT else -end)
    assert "ended by SIGSEGV" in said and "Starting again in" in said
    deadline = time.monotonic() + 30
    while Path(f"/proc/{second}").exists():
        assert time.monotonic() < deadline, "the worker goes on without the process that started it"
        time.sleep(0.05)


def test_a_worker_with_a_fault_of_its_own_is_not_started_again(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "palus", "worker", "--arena", "http://127.0.0.1:9", "--token-file", "missing")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("cannot be read") == 1
