"""`palus audit`, `verify` and `recompute` say what they checked, and that there was something to check."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import delete, select
from typer.testing import CliRunner

from palus.arena.jobs.worker import describe_here, work
from palus.arena.ladder.charge import Charge
from palus.arena.ladder.discovery import sweep_house
from palus.arena.ladder.log import check_head
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource
from palus.cli import app
from palus.store import open_store
from palus.store.derived import play_stats
from palus.store.tables import annulments, matches


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "500"})
    return done.exit_code, done.output


def play(folder: Path) -> tuple[int, str]:
    """A store with a mirrored pair. Returns where its log ends."""
    store, settings = open_store(folder), ArenaSettings()
    plan = Scheduler(store, settings, [PeriodicSweep(sweep_house, 1e9)], seed=1)
    plan.tick()
    assert work(StoreSource(store, "w", settings, describe_here()), threading.Event(), max_jobs=1) == 1
    plan.link()
    with store.read() as connection:
        head = check_head(connection)
    store.close()
    return head


@pytest.mark.parametrize("command", [("audit",), ("verify", "abc"), ("recompute",)])
def test_a_folder_that_is_not_there_is_no_arena_and_is_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / "typo"
    code, said = run(*command, "--data", folder)
    assert code == 2 and "no arena has its data there" in said
    assert not folder.exists()
    folder.mkdir()
    assert run(*command, "--data", folder)[0] == 2
    assert list(folder.iterdir()) == []


def test_a_log_without_a_match_is_no_pass(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code, said = run("audit", "--data", tmp_path)
    assert code == 2 and "holds no match yet" in said


def test_recompute_beside_a_running_arena_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    play(tmp_path)
    store = open_store(tmp_path)
    Refresher(store, ArenaSettings()).refresh()
    in_charge = Charge(store)
    assert in_charge.take()
    code, said = run("recompute", "--data", tmp_path)
    assert code == 2 and "stop it first" in said and "Traceback" not in said
    with store.read() as connection:
        assert len(connection.execute(select(play_stats)).all()) == 2
    in_charge.release()
    assert run("recompute", "--data", tmp_path)[0] == 0
    assert in_charge.take(), "it lets the next one be in charge"
    in_charge.release()
    store.close()


def test_an_audit_says_what_it_checked_and_compares_a_head_that_was_noted(tmp_path: Path) -> None:
    number, digest = play(tmp_path)
    code, said = run("audit", "--sample", "100%", "--head", f"{number}:{digest}", "--data", tmp_path)
    assert code == 0, said
    assert f"2 matches: the hash chain is whole. It ends with 2:{digest}" in said
    assert "2 matches were played again by their players, the same to the last bit" in said
    code, said = run("audit", "--head", f"2:{'0' * 64}", "--data", tmp_path)
    assert code == 2 and "written anew" in said
    assert run("audit", "--head", "newest", "--data", tmp_path)[0] == 2


def test_a_cut_tail_fails_the_audit_and_strikes_nothing_out(tmp_path: Path) -> None:
    play(tmp_path)
    store = open_store(tmp_path)
    with store.write() as connection:
        connection.execute(delete(matches).where(matches.c.seq == 2))
    code, said = run("audit", "--data", tmp_path)
    assert code == 2 and "palus left it at 2" in said
    with store.read() as connection:
        assert connection.execute(select(annulments)).all() == []
    store.close()
