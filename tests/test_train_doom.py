"""`palus train` on Doom, ended while it starts and while it plays: it ends, and nothing stays behind."""

from __future__ import annotations

import importlib.util
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from left_behind import MARK, processes, shared_files
from processes import eventually

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vizdoom") is None, reason="needs vizdoom: pip install 'palus[doom]'"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]

TINY = (
    "hyperparameters.buffer_size=128",
    "hyperparameters.batch_size=128",
    "time_horizon=16",
    "network_settings.memory.memory_size=16",
    "network_settings.image_units=16",
)
LAST_WORDS_BEFORE_THE_FIRST_PAGE = "a decision takes 4"


class Training:
    """A run of eight games in two workers, in a process group of its own, as a terminal starts it."""

    def __init__(self, folder: Path) -> None:
        self.results, self.temporary, self.mark = folder / "results", folder / "tmp", secrets.token_hex(8)
        self.temporary.mkdir()
        self.before = shared_files()
        overrides = [f"behaviors.doom_basic.{own}" for own in TINY]
        overrides += ["palus.sampling.workers=2", "palus.matmul=highest", "palus.threads=1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palus", "train", "doom-basic", "--results-dir", str(self.results), *overrides],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
        )

    def wait_for(self, words: str) -> None:
        """Until it says so."""
        assert self.process.stderr is not None
        said = ""
        while words not in said:
            said = self.process.stderr.readline()
            assert said, "the run ended by itself"

    def end(self, blow: int) -> str:
        """Give the process group a signal, as a terminal does; returns the run's last words."""
        os.killpg(self.process.pid, blow)
        return str(self.process.communicate(timeout=120)[1])

    def check_nothing_is_left(self) -> None:
        """Neither processes nor files."""
        eventually(lambda: not processes(self.mark))
        eventually(lambda: not shared_files() - self.before and not list(self.temporary.iterdir()))


def test_ctrl_c_before_the_first_page_ends_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.wait_for(LAST_WORDS_BEFORE_THE_FIRST_PAGE)
    said = run.end(signal.SIGINT)
    assert run.process.returncode == 0 and "Stopped at step" in said, said
    assert (run.results / "doom-basic" / "doom_basic" / "checkpoint.pt").is_file()
    run.check_nothing_is_left()


@pytest.mark.slow
def test_a_run_killed_before_the_first_page_leaves_nothing(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.wait_for(LAST_WORDS_BEFORE_THE_FIRST_PAGE)
    run.end(signal.SIGKILL)
    run.check_nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_ended_at_random_instants_leaves_nothing(blow: int, tmp_path: Path) -> None:
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Training(folder)
        delay_s = 0.2 + random.random() * 8  # from the first import, after Python's own start, to some seconds of play
        time.sleep(delay_s)
        said = run.end(blow)
        assert blow == signal.SIGKILL or "Traceback" not in said, f"after {delay_s} s: {said}"
        run.check_nothing_is_left()
