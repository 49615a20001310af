"""The tests of torch's path, once more on a device whose memory only operators may touch, as a GPU's."""

import os
import subprocess
import sys
from pathlib import Path

import places
import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(places.COMPILER is None, reason="the device is compiled, and there is no c++")
def test_nothing_reads_a_devices_memory_but_operators() -> None:
    files = (TESTS / "learn" / "test_device.py", TESTS / "run" / "test_devices.py")
    words = [sys.executable, "-m", "pytest", "-n0", "-m", "", *map(str, files)]
    done = subprocess.run(
        words, env={**os.environ, "PALUS_TEST_DEVICE": "elsewhere"}, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stdout
