"""Threads for calls that may never come back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import wait

import pytest

from palus.threads import DaemonThreads

NEVER_BACK = """
import threading
from palus.threads import DaemonThreads
threads = DaemonThreads("test")
threads.submit(threading.Event().wait)
print(threads.submit(sum, [1, 2]).result())
"""


def named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_nobody_waits_for_a_call_that_never_comes_back() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER_BACK], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr


def test_calls_run_side_by_side_in_threads_that_are_used_again_and_end() -> None:
    threads, together = DaemonThreads("of this test"), threading.Barrier(3)
    for _ in range(4):
        calls = [threads.submit(together.wait, 30) for _ in range(3)]
        wait(calls)
        assert sorted(call.result() for call in calls) == [0, 1, 2]
        with pytest.raises(ZeroDivisionError):
            threads.submit(divmod, 1, 0).result()
    assert named("of this test") == 3
    threads.close()
    limit = time.monotonic() + 30
    while named("of this test") and time.monotonic() < limit:
        time.sleep(0.01)
    assert named("of this test") == 0
