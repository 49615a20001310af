"""Workers of a study that are killed, interrupted, asleep or without a disk, and what becomes of their trials."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from processes import eventually
from small_sweep import EPOCHS, RATE, RUN, SPACE, Make, Quick, Reward, number_of, plan, rate

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

import optuna
from optuna.trial import TrialState
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from palus.config import RunFile, load_run
from palus.errors import StorageError
from palus.launch.apart import Ending, claimed
from palus.progress import PROGRESS, ProgressWriter
from palus.run.folder import RunFolder
from palus.sweep import study as study_module
from palus.sweep.outcome import rows
from palus.sweep.study import WHERE, trial_folder


def test_a_worker_whose_database_goes_away_says_so(worker: Make, at_once: Callable[[Reward], None]) -> None:
    own = worker(plan(), 3)

    def lose(run: RunFile, share: float) -> float:
        if share > 0.5:
            event.listen(own.storage.engine, "before_cursor_execute", away)
        return 1.0

    def away(*_: object) -> None:
        raise OperationalError("SELECT", {}, OSError("no server answers"))

    at_once(lose)
    with pytest.raises(StorageError, match=r"the study's database is out of reach: .*no server answers.* goes on$"):
        own.work()
    own.storage.record_heartbeat(1)  # its thread lives on


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_worker_whose_trial_was_given_to_another_one_says_so_and_goes_on(
    worker: Make, at_once: Callable[[Reward], None], interrupted: bool
) -> None:
    """As after a laptop was asleep: the trial is over for the study, and a new one stands for it."""
    own, said = worker(plan(), 1), list[str]()
    own.tell = said.append

    def asleep(run: RunFile, share: float) -> float:
        if number_of(run) == 0 and share == 0.5:
            [trial] = own.study.get_trials()
            own.storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
            give_away = own.storage.get_heartbeat_stale_trial_callback()
            assert give_away is not None
            give_away(own.study, trial)
        return share

    at_once(asleep)
    own.stopped = lambda: interrupted and len(own.study.trials) > 1
    assert own.work() is not interrupted
    assert "This machine was silent for so long that its trial was given to another worker." in said
    states = [trial.state.name for trial in own.study.trials]
    assert states == (["FAIL", "WAITING"] if interrupted else ["FAIL", "COMPLETE"])


@pytest.mark.slow
def test_two_workers_share_a_study_and_one_that_is_killed_is_missed(tmp_path: Path) -> None:
    """The commands as typed. The killed one's trial is done by the other, and the number that learns is found."""
    (tmp_path / "menu.yaml").write_text(json.dumps(RUN))
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ("sweep", "menu.yaml", f"{RATE}=1e-2", "--objective", "reward", "--trials", "2", "--heartbeat", "1")
    command = [sys.executable, "-m", "palus", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "said.txt").open("wb") as said:
        first = subprocess.Popen(command, cwd=tmp_path, stderr=said, env=environment, start_new_session=True)
        try:
            folder = tmp_path / "results" / "menu"
            eventually((folder / "trial-0000").is_dir, 120)
        finally:
            first.kill()
            first.wait()
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert second.returncode == 0, second.stderr
    status = subprocess.run(
        [sys.executable, "-m", "palus", "sweep", "status", str(folder / "study.db"), "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(status.stdout)
    assert [row["state"] for row in told] == ["complete"] * 2
    assert 0 not in [row["number"] for row in told]  # the trial of the dead worker, done under another number
    learned = {row["number"]: row["values"][0] > 2.3 for row in told}
    assert learned == {row["number"]: row["labels"][RATE] == 1e-2 for row in told} and any(learned.values())
    [best] = [row for row in told if row["best"]]
    assert best["labels"] == {RATE: 1e-2}
    assert rate(load_run(folder / "best.yaml")) == 1e-2
    assert all((folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG" for name in ("curves", "importances", "slices"))
    number = best["number"]
    assert load_run(trial_folder(folder, number) / "seed-0" / "configuration.yaml").env_settings.seed == 0
    assert (trial_folder(folder, number) / "seed-0" / "MenuToy.onnx").is_file()


def test_a_killed_worker_is_missed_and_another_does_its_trial(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    script = Path(__file__).with_name("endless_worker.py")
    process = subprocess.Popen([sys.executable, script, str(tmp_path / "study.db"), plan().to_json(), tmp_path])
    try:
        eventually((tmp_path / "trial-0000" / "seed-0.log").is_file, 120)
    finally:
        process.kill()
        process.wait()
    at_once(lambda run, share: rate(run))
    heir, deadline = worker(plan(), 2), time.monotonic() + 120
    heir.stopped = lambda: time.monotonic() > deadline
    assert heir.work()
    first, second = sorted(rows(heir.study, heir.plan), key=lambda row: row.labels != {RATE: 1e-6, EPOCHS: 3})
    assert first.labels == {RATE: 1e-6, EPOCHS: 3}  # the values of the dead one's trial
    assert {first.number, second.number} == {1, 2} and first.state == second.state == "complete"


@pytest.mark.filterwarnings("ignore:.*(Heartbeat|experimental)")
def test_a_worker_that_dies_before_its_first_heartbeat_is_missed_in_a_repeated_trial_too(worker: Make) -> None:
    """Optuna hands on to the repeated trial what the first worker said of its own."""
    own = worker(plan(), 1)
    first = own.study.ask()
    first.set_user_attr(WHERE, "there:1")
    give_back = own.storage.get_heartbeat_stale_trial_callback()
    assert give_back is not None
    give_back(own.study, own.study.get_trials()[0])
    own.study.tell(first, state=TrialState.FAIL)
    own.study.ask()
    assert [trial.state.name for trial in own._look()] == ["FAIL", "RUNNING"]
    with own.storage.engine.begin() as database:
        database.execute(text("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'"))  # long ago
    assert [trial.state.name for trial in own._look()] == ["FAIL", "FAIL", "WAITING"]


def test_an_interrupted_trial_goes_on_from_its_checkpoint(
    worker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "POLL_S", 0.02)
    own = plan()

    def begun() -> bool:
        return any(tmp_path.glob(f"trial-*/seed-0/{PROGRESS}"))

    first = worker(own, 1)
    first.stopped = begun
    assert not first.work()
    assert worker(own, 1).work()
    done = worker(own, 1)
    [row] = rows(done.study, own)
    assert (row.number, row.state, row.done) == (1, "complete", 1.0)
    folder = trial_folder(tmp_path, 1)
    lines = [json.loads(line) for line in (folder / "seed-0" / PROGRESS).read_text().splitlines()]
    assert [line["kind"] for line in lines if line["kind"] != "summary"] == ["run", "run", "end"]
    resumed = re.search(r"Resuming training from step (\d+)", (folder / "seed-0.log").read_text())
    assert resumed is not None and 0 < int(resumed[1]) < 3000
    assert not trial_folder(tmp_path, 0).exists()


class GoingOn:
    """A run that reports every five seconds of training, from its checkpoint of 15 s on where there is one. It moves 25
    seconds on whenever somebody waits for it, but for the first time."""

    ending = Ending()

    def __init__(self, run: RunFile) -> None:
        settings = run.checkpoint_settings
        self.folder = RunFolder(Path(settings.results_dir) / settings.run_id, ["MenuToy"])
        self.writer = ProgressWriter(self.folder.root / PROGRESS)
        self.at, self.minutes, self.begun = 0, run.palus.max_minutes, False

    def wait(self, timeout_s: float) -> bool:
        if not self.begun:
            self.begun = True
            return False
        if self.writer.length == 0:
            self.at = 15 if self.folder.checkpoint.exists() else 0
            self.end = self.at + self.minutes * 60
            self.writer.cut_back({0: self.at})
            self.writer.append({"kind": "run", "max_steps": {"MenuToy": 1000}})
        for _ in range(5):
            self.at += 5
            names = {"kind": "summary", "policy": 0, "behavior": "MenuToy", "step": self.at, "seconds": self.at}
            self.writer.append({**names, "values": {"Environment/Cumulative Reward": self.at}})
            if self.at == 15:
                self.folder.of("MenuToy").mkdir()
                self.folder.save({"wall_seconds": 15.0})
            if self.at >= self.end:
                self.writer.append({"kind": "end", "step": self.at, "seconds": self.at, "finished": False})
                return True
        return False


def test_a_trial_by_the_clock_that_was_killed_has_its_whole_time_from_the_checkpoint_on(
    worker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def going_on(run: RunFile, log: Path, **_: object) -> Iterator[GoingOn]:
        yield GoingOn(run)

    monkeypatch.setattr(study_module, "training", going_on)
    own = plan(minutes=1.0)
    first = worker(own, 1)
    first.stopped = lambda: any("45" in path.read_text() for path in tmp_path.glob(f"trial-*/seed-0/{PROGRESS}"))
    assert not first.work()
    heir = worker(own, 1)
    assert heir.work()
    [row] = rows(heir.study, own)
    assert (row.state, row.values) == ("complete", [60.0])
    reported = heir.study.trials[1].intermediate_values
    assert {step: reported[step] for step in (5, 14, 20)} == {5: 15.0, 14: 40.0, 20: 60.0}


def test_a_crash_is_told_and_costs_one_trial(worker: Make, tmp_path: Path) -> None:
    """The trial's process is killed: the reason stands in the table, and the sweep goes on."""
    own, seen = plan(), []

    def killing() -> bool:
        pids = [int(p.name) for p in Path("/proc").glob("[0-9]*") if str(tmp_path) in _open_files(p)]
        if pids and not seen:
            seen.extend(pids)
            os.kill(pids[0], signal.SIGKILL)
        return False

    sweep = worker(own, 2)
    sweep.stopped = killing
    assert sweep.work()
    first, second = rows(sweep.study, own)
    assert (first.state, second.state) == ("failed", "complete")
    assert first.why == "its process ended by SIGKILL before it was done"


@pytest.mark.parametrize("all_were", [True, False])
def test_a_run_that_was_told_to_end_has_not_failed_where_its_worker_was_told_too(
    worker: Make, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch, all_were: bool
) -> None:
    """As by systemd, which signals to all processes: the run may be faster."""
    told = list[float]()

    def half(quick: Quick, timeout_s: float) -> bool:
        told.append(quick.step)
        quick.writer.append({"kind": "end", "step": 50, "seconds": 50, "finished": False})
        return True

    at_once(lambda run, share: share)
    monkeypatch.setattr(Quick, "wait", half)
    own = worker(plan(), 1)
    own.stopped = lambda: all_were and bool(told)
    assert own.work() is not all_were
    assert [trial.state.name for trial in own.study.trials] == (["FAIL", "WAITING"] if all_were else ["FAIL"])
    if not all_were:
        assert [row.why for row in rows(own.study, own.plan)] == ["its run was ended by a signal"]


def _open_files(process: Path) -> str:
    try:
        return " ".join(os.readlink(fd) for fd in (process / "fd").glob("*") if fd.name in ("1", "2"))
    except OSError:
        return ""


def test_a_worker_whose_disk_is_full_ends_and_another_one_does_its_trial(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would else fail one trial after another, until none is left."""
    at_once(lambda run, share: share)
    own, folder = worker(plan(), 2), trial_folder(tmp_path, 0)
    folder.write_text("no folder")
    with pytest.raises(StorageError, match="trial-0000: the folder cannot be made"):
        own.work()
    folder.unlink()
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="no space"):
        patch.setattr(Quick, "ending", Ending("no space", unsaved=True))
        own.work()
    assert [trial.state.name for trial in own.study.trials] == ["FAIL", "FAIL", "WAITING"]
    assert worker(plan(), 2).work()
    assert [row.state for row in rows(own.study, own.plan)] == ["complete", "complete"]


@pytest.mark.parametrize(("trains", "taken"), [(None, "1"), (1, "0")])
def test_a_repeated_trial_goes_on_from_the_newest_files_in_which_nobody_trains(
    worker: Make, tmp_path: Path, trains: int | None, taken: str
) -> None:
    own, folders = worker(plan(), 1), [trial_folder(tmp_path, number) for number in range(4)]
    own.study.add_trial(optuna.create_trial(state=TrialState.FAIL))  # beside the first one, which waits
    own.study.add_trial(optuna.create_trial(state=TrialState.FAIL))
    own.study.add_trial(optuna.create_trial(state=TrialState.WAITING, system_attrs={"retry_history": [1, 2]}))
    for number in (1, 2):
        folders[number].mkdir()
        (folders[number] / "of").write_text(str(number - 1))
    with claimed(folders[2]) if trains else nullcontext():
        own._inherit(cast(Any, own.study.trials[3]), folders[3])
    assert (folders[3] / "of").read_text() == taken
