"""A run in a process of its own, as whoever started it sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe, forkserver
from pathlib import Path
from typing import Any

import pytest
from obliging import oblige
from processes import children, eventually

from palus.config import RunFile, load_run
from palus.config.source import Source
from palus.errors import CheckpointError, EnvError, PalusError, StorageError
from palus.launch import apart
from palus.launch.apart import Ending, claimed, training
from palus.league.exchange import Berth
from palus.run.folder import RunFolder
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


@pytest.mark.skipif(sys.platform != "linux", reason="a disk that is always full")
def test_why_a_run_ended_is_told_where_its_log_takes_nothing(tmp_path: Path) -> None:
    run = load_run("debug", [f"checkpoint_settings.results_dir={tmp_path}"])
    with training(run, Path("/dev/full"), resume=True, trust=NOBODY) as process:
        assert process.wait(120)
        assert not process.ending.crashed and "nothing to resume" in process.ending.failure


def test_a_run_that_can_write_neither_its_log_nor_its_lock_is_not_tried_again(tmp_path: Path) -> None:
    run = load_run("debug", [f"checkpoint_settings.results_dir={tmp_path}"])
    (tmp_path / "log").mkdir()
    with training(run, tmp_path / "log", resume=True, trust=NOBODY) as process:
        assert process.wait(120)
        reason = f"{tmp_path / 'log'}: could not be written (Is a directory); check who may write there."
        assert process.ending == Ending(reason, unsaved=True)
    (tmp_path / ".lock").mkdir()
    ending = apart._ended(run, False, NOBODY, None)
    reason = f"{tmp_path / '.lock'}: could not be written (Is a directory); check who may write there."
    assert ending == Ending(reason, unsaved=True)


@pytest.mark.parametrize(("error", "unsaved"), [(StorageError("no space"), True), (EnvError("no game"), False)])
def test_a_run_says_whether_it_is_its_disk_that_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PalusError, unsaved: bool
) -> None:
    def train(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("palus.train.train", train)
    run = RunFile().changed(checkpoint_settings={"results_dir": str(tmp_path)})
    assert apart._ended(run, False, NOBODY, None) == Ending(str(error), unsaved=unsaved)


def test_a_run_whose_parent_was_killed_ends_without_a_word() -> None:
    told, tell = Pipe(duplex=False)
    told.close()
    apart._say(tell, Ending())
    told, tell = Pipe(duplex=False)
    apart._say(tell, Ending("it was asked to"))
    assert told.recv() == Ending("it was asked to")


WILD = """
behaviors:
  MenuToy:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 256, learning_rate: 1e38, learning_rate_schedule: constant}
    network_settings: {hidden_units: 16, num_layers: 1}
    max_steps: 3000
    time_horizon: 8
palus: {env: MenuToy, num_matches: 16, matmul: highest, threads: 1}
"""


def test_a_run_whose_numbers_went_wrong_has_diverged_and_is_not_taken_for_one_that_died(tmp_path: Path) -> None:
    run = load_run(Source("run.yaml", WILD), [f"checkpoint_settings.results_dir={tmp_path}"])
    with training(run, tmp_path / "log", resume=False, trust=NOBODY) as process:
        assert process.wait(120)
        ending = process.ending
        assert (ending.diverged, ending.crashed) == (True, False) and "not finite" in ending.failure


def test_a_run_that_does_not_go_on_takes_the_place_of_a_former_one(tmp_path: Path) -> None:
    """A trial whose worker died before the first checkpoint begins again in the same folder."""
    tame = ["behaviors.MenuToy.hyperparameters.learning_rate=1e-4", "behaviors.MenuToy.max_steps=256"]
    run = load_run(Source("run.yaml", WILD), [*tame, f"checkpoint_settings.results_dir={tmp_path}"])
    for _ in range(2):
        with training(run, tmp_path / "log", resume=False, trust=NOBODY) as process:
            assert process.wait(120) and process.ending == Ending()


def test_a_run_does_not_begin_in_a_folder_in_which_another_trains(tmp_path: Path) -> None:
    run = load_run(Source("run.yaml", WILD), [f"checkpoint_settings.results_dir={tmp_path}"])
    with claimed(tmp_path), training(run, tmp_path / "log", resume=False, trust=NOBODY) as process:
        assert process.wait(120)
        assert process.ending == Ending(f"{tmp_path}: another process trains in this folder")


def test_nobody_else_is_in_a_run_of_a_league_from_the_look_for_its_checkpoint_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, looked = RunFile().changed(checkpoint_settings={"results_dir": str(tmp_path), "run_id": "one"}), list[str]()

    def look(*given: Any, **how: Any) -> bool:
        with pytest.raises(CheckpointError, match="is training just now"):
            RunFolder(tmp_path / "one", []).held().__enter__()
        looked.append("alone" if how.get("alone") else "")
        return True

    (tmp_path / "one").mkdir()
    monkeypatch.setattr(apart, "found", look)
    monkeypatch.setattr("palus.train.train", look)
    assert apart._ended(run, False, NOBODY, Berth(str(tmp_path / "storage"), "one")) == Ending()
    assert looked == ["", "alone"]


PRESSED = """
import signal, sys
from pathlib import Path
from palus.config import RunFile, load_run
from palus.launch.apart import training
from palus.trust import NOBODY

signal.signal(signal.SIGINT, lambda *_: print("pressed", flush=True))
with training(RunFile(), Path(sys.argv[1]), resume=False, trust=NOBODY) as process:
    print("started")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_while_the_server_imports_the_training_stack_is_not_for_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRESSED, str(tmp_path / "log")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        eventually(lambda: any("forkserver" in _words(child) for child in children(process.pid)), 120)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "pressed\nstarted\n", "")


def _words(pid: int) -> str:
    """What a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_text()
