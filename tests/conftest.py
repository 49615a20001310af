"""What holds for every test: signals as a terminal leaves them, bytecode that is kept, no garbage sought in what all
tests share, and the order of files."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

# A shell that starts the tests in the background makes them, and all processes that they start, ignore Ctrl-C, which
# some tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where the environment forbids it, hundreds of processes compile the same sources.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

FIRST = (
    # One game's kernels are compiled in each; what comes later finds both in the cache.
    "arena/jobs/test_report_forms.py",
    "envs/soccer/test_strikers.py",
    # Few tests that take long: whoever took one of them last would work alone.
    "test_train_workers.py",
    "test_run_file_keys.py",
    "cli/test_demo.py",
    "cli/test_arena.py",
    "learn/test_cart_pole.py",
    "run/test_resume.py",
    "learn/test_imitation.py",
    "combinations/test_combinations.py",
    "arena/ladder/test_service.py",
    "arena/ladder/test_audit.py",
    "arena/ladder/test_audit_jobs.py",
    "sweep/test_sweep.py",
    "cli/test_commands.py",
    "cli/test_push.py",
    "rollout/test_worker_faults.py",
    "unity/test_unity_runs.py",
    "arena/locked/test_runner.py",
    "web/test_room_page.py",
    "envs/soccer/test_match.py",
    "run/test_ranks.py",
    "league/test_known_answers.py",
    "web/test_fuzz.py",
    "test_bits.py",
)
"""The files with which processes that share the tests begin."""


def pytest_configure(config: pytest.Config) -> None:
    """xdist keeps the order below instead of its own, which is that of the number of tests alone."""
    config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of FIRST, then those of many tests before those of few."""
    here = Path(__file__).parent
    places = {here / file: place for place, file in enumerate(FIRST)}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(FIRST)), -counts[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While files are read nothing is left over, and later nothing of it is to be looked through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
