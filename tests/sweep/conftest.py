"""Runs that are over at once, and workers of one study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from small_sweep import Make, Quick, Reward

    from palus.config import RunFile
    from palus.sweep.plan import Plan
    from palus.sweep.study import Worker


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reward], None]:
    """Let runs report what a function of run file and share of the budget says, in place of training."""
    from small_sweep import Quick

    from palus.sweep import study as study_module

    def with_rewards(reward: Reward) -> None:
        @contextmanager
        def told(run: RunFile, log: Path, **_: object) -> Iterator[Quick]:
            yield Quick(run, reward)

        monkeypatch.setattr(study_module, "training", told)

    return with_rewards


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Make]:
    """Makes workers of one study."""
    from palus.sweep.study import Worker, make_study, opened_storage, own_folder
    from palus.trust import NOBODY

    with ExitStack() as stack:

        def make(own: Plan, trials: int, folder: Path = tmp_path, url: str = "") -> Worker:
            storage = stack.enter_context(opened_storage(url or str(tmp_path / "study.db"), 1))
            study = make_study(storage, "menu", own)
            own_folder(folder, study)
            return Worker(storage, study, own, folder, trials, NOBODY, stopped=lambda: False, tell=lambda line: None)

        yield make
