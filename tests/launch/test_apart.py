"""A run in a process of its own, as whoever started it sees it."""

from __future__ import annotations

import os
import signal
from multiprocessing import forkserver
from pathlib import Path

import pytest
from obliging import oblige
from processes import eventually

from palus.config import RunFile
from palus.launch import apart
from palus.launch.apart import Ending, training
from palus.trust import NOBODY


def test_runs_outlive_the_server_that_they_were_forked_from_and_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed terminal signals to all processes: the server, which has no handler, ends, and the runs do not."""
    monkeypatch.setattr(apart, "_train", oblige)
    logs = tmp_path / "asked", tmp_path / "killed"
    asked, killed = (training(RunFile(), log, resume=False, trust=NOBODY) for log in logs)
    with asked as one, killed as other:
        eventually(lambda: all(log.is_file() for log in logs), 120)
        server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        os.kill(server, signal.SIGTERM)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        assert not one.wait(0.1) and not other.wait(0.1)
        one.ask()
        other.kill()
        assert one.wait(10) and other.wait(0)
        assert one.ending == Ending("it was asked to") and other.ending.crashed


def test_a_run_that_dies_says_by_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_train", oblige)
    with training(RunFile(), tmp_path / "log", resume=False, trust=NOBODY) as process:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(10)
        assert process.ending == Ending("its process ended by SIGKILL before it was done", crashed=True)
