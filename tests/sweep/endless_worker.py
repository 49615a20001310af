"""A worker of a study whose trial never ends; a test starts it as a process of its own, to kill it.

Words: the study's database, its plan as JSON, the sweep's folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palus.config import RunFile
from palus.sweep import study as study_module
from palus.sweep.plan import Plan
from palus.sweep.study import Worker, make_study, opened_storage, own_folder
from palus.trust import NOBODY


@contextmanager
def endless(run: RunFile, log: Path, **_: object) -> Iterator[None]:
    """In place of training."""
    log.write_text("begun")
    while True:
        time.sleep(1)
    yield


if __name__ == "__main__":
    study_module.training = endless  # type: ignore[assignment]
    database, told, folder = sys.argv[1:]
    plan = Plan.of_json(told)
    with opened_storage(database, 1) as storage:
        study = make_study(storage, "menu", plan)
        own_folder(Path(folder), study)
        Worker(storage, study, plan, Path(folder), 2, NOBODY, stopped=lambda: False, tell=print).work()
