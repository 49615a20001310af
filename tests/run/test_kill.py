"""A run that is killed at any instant, as often as one likes, ends as the run that was left alone."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest
from killed_run import go_on
from test_resume import assert_same

from palus.run.folder import RunFolder

ROLES = "palus.league.roles={main_exploiter: 1, league_exploiter: 1}"


def start(folder: Path, *overrides: str) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["palus.train", "palus.league.book"])
    process = context.Process(target=go_on, args=(str(folder), *overrides))
    process.start()
    return process


def ended(folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The checkpoint, the league as readers see it, and the snapshots that are there."""
    state = RunFolder(folder / "debug", ["DuelToy"]).load()
    snapshots = sorted(path.name for path in (folder / "debug" / "DuelToy" / "snapshots").iterdir())
    return state, json.loads((folder / "debug" / "league" / "league.json").read_text()), snapshots


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "overrides"),
    [(20, ()), (5, (ROLES,))],
)
def test_killed_at_random_instants_a_run_ends_with_the_league_of_the_one_left_alone(
    tmp_path: Path, kills: int, overrides: tuple[str, ...]
) -> None:
    instants, began = random.Random(13), time.monotonic()
    alone = start(tmp_path / "alone", *overrides)
    alone.join()
    whole = time.monotonic() - began
    assert alone.exitcode == 0
    for _ in range(kills):
        process = start(tmp_path / "killed", *overrides)
        process.join(instants.uniform(0.0, 0.6) * whole)
        process.kill()
        process.join()
    last = start(tmp_path / "killed", *overrides)
    last.join()
    assert last.exitcode == 0
    (state, league, snapshots), expected = ended(tmp_path / "killed"), ended(tmp_path / "alone")
    assert_same(state, expected[0])
    assert (league, snapshots) == expected[1:]
    roles = {record["role"] for record in league["snapshots"]}
    assert len(roles) == (3 if overrides else 1) and (overrides or len(league["snapshots"]) == 17)
    assert len(snapshots) <= len(roles) * (3 + 3) + 8  # window, landmarks, in running matches
