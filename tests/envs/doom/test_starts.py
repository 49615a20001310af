"""Engines that are started by several threads at the same instant."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")

STARTS = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from palus.envs import make_game

square = np.random.default_rng(0).random((400, 400))
for round in range(80):
    square @ square  # wakes the threads that OpenBLAS ends, and waits for, before every fork
    games = [make_game("doom_basic") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda game: game.reset(round), games))
    for game in games:
        game.close()
print("through")
"""


@pytest.mark.slow
def test_starts_at_the_same_instant_do_not_block_each_other() -> None:
    """Without the turns that starts take this hangs within a few dozen rounds."""
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, timeout=400)
    assert done.stdout == "through\n", done.stderr
