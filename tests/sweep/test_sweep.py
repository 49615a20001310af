"""A sweep on a real database: trials that train, workers that join, die and are interrupted, and what comes out."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from postgres import postgres_server, postgres_url  # noqa: F401
from processes import eventually
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

import optuna
from optuna.trial import TrialState
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from palus.cli import app
from palus.config import RunFile, load_run
from palus.config.source import Source
from palus.errors import ConfigError, PalusError, StorageError
from palus.launch.apart import Ending, claimed
from palus.progress import PROGRESS, ProgressWriter
from palus.run.folder import RunFolder
from palus.sweep import outcome
from palus.sweep import study as study_module
from palus.sweep.objective import Objective
from palus.sweep.outcome import importances, rows, write_outcome
from palus.sweep.plan import Plan
from palus.sweep.space import read_space
from palus.sweep.study import WHERE, Worker, make_study, opened_storage, own_folder, trial_folder
from palus.trust import NOBODY

KEY = "behaviors.MenuToy.hyperparameters"
RATE, EPOCHS = f"{KEY}.learning_rate", f"{KEY}.num_epoch"
RUN = {
    "behaviors": {
        "MenuToy": {
            "trainer_type": "ppo",
            "hyperparameters": {
                "batch_size": 64, "buffer_size": 256, "learning_rate": 1e-6, "learning_rate_schedule": "constant",
            },
            "network_settings": {"hidden_units": 16, "num_layers": 1},
            "max_steps": 3000, "time_horizon": 8,
        }
    },
    "palus": {"env": "MenuToy", "num_matches": 16, "matmul": "highest", "threads": 1},
}  # fmt: skip
SPACE = f"{RATE}: {{choice: [1e-7, 1e-6, 2e-6, 1e-2]}}\n"  # of which one alone learns


def plan(space: str = f"{RATE}: {{log: [1e-6, 1]}}\n{EPOCHS}: {{int: [1, 4]}}\n", **others: Any) -> Plan:
    return replace(Plan(RUN, read_space(Source("space.yaml", space)), (Objective("reward"),)), **others)


Reward = Callable[[RunFile, float], float | None]


class Quick:
    """A run that does a quarter of its steps whenever somebody waits for it."""

    ending = Ending()

    def __init__(self, run: RunFile, reward: Reward) -> None:
        settings = run.checkpoint_settings
        self.run, self.reward, self.step = run, reward, 0
        self.writer = ProgressWriter(Path(settings.results_dir) / settings.run_id / PROGRESS)
        self.writer.append({"kind": "run", "max_steps": {"MenuToy": 100}})

    def wait(self, timeout_s: float) -> bool:
        for step in range(self.step + 5, self.step + 26, 5):
            values = {"Environment/Cumulative Reward": self.reward(self.run, step / 100)}
            names = {"kind": "summary", "policy": 0, "behavior": "MenuToy"}
            self.writer.append({**names, "step": step, "seconds": step, "values": values})
        self.step = step
        if step == 100:
            self.writer.append({"kind": "end", "step": 100, "seconds": 100, "finished": True})
        return step == 100


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reward], None]:
    """Let runs report what a function of run file and share of the budget says, in place of training."""

    def with_rewards(reward: Reward) -> None:
        @contextmanager
        def told(run: RunFile, log: Path, **_: object) -> Iterator[Quick]:
            yield Quick(run, reward)

        monkeypatch.setattr(study_module, "training", told)

    return with_rewards


def rate(run: RunFile) -> float:
    return float(run.behaviors["MenuToy"].hyperparameters.learning_rate)


def number_of(run: RunFile) -> int:
    """Of the trial that a run belongs to."""
    return int(Path(run.checkpoint_settings.results_dir).name.removeprefix("trial-"))


Make = Callable[..., Worker]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Make]:
    """Makes workers of one study."""
    with ExitStack() as stack:

        def make(own: Plan, trials: int, folder: Path = tmp_path, url: str = "") -> Worker:
            storage = stack.enter_context(opened_storage(url or str(tmp_path / "study.db"), 1))
            study = make_study(storage, "menu", own)
            own_folder(folder, study)
            return Worker(storage, study, own, folder, trials, NOBODY, stopped=lambda: False, tell=lambda line: None)

        yield make


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


def test_as_many_trials_as_were_asked_and_not_one_more(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    """Also when another worker begins one between the look and the start."""
    at_once(lambda run, share: math.log10(rate(run)) * share)
    own = plan(prunes=False)
    late = worker(own, 3)
    look, intruded = late._look, []

    def and_meanwhile() -> Sequence[optuna.trial.FrozenTrial]:
        found = look()
        if len(found) == 2 and not intruded:
            with pytest.warns(UserWarning, match="Heartbeat"):
                intruded.append(worker(own, 3).study.ask({}))
        return found

    late._look = and_meanwhile  # type: ignore[method-assign,assignment]
    late.stopped = lambda: len(late.study.trials) > 3  # the intruder never ends
    assert not late.work()
    assert [row.number for row in rows(late.study, own)] == [0, 1, 2]
    assert len(late.study.trials) == 4 and not trial_folder(tmp_path, 3).exists()


def test_hopeless_trials_end_early_and_pictures_show_all(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    """Each trial is worse than the one before: from the sixth on they are below the median once they are judged."""
    at_once(lambda run, share: share - number_of(run))
    own = plan()
    done = worker(own, 7)
    assert done.work()
    told = rows(done.study, own)
    assert [row.state for row in told] == ["complete"] * 5 + ["pruned"] * 2
    assert [row.done for row in told[4:]] == [1.0, 0.45, 0.45]  # the first quarter is warming up
    assert told[0].labels == {RATE: 1e-6, EPOCHS: 3} and [row.best for row in told] == [True, *[False] * 6]
    assert sum(importances(done.study, own, 0).values()) == pytest.approx(1)
    names = {path.name for path in write_outcome(done.study, own, tmp_path)}
    assert names == {"best.yaml", "curves.png", "importances.png", "slices.png", "contours.png"}


def test_of_several_seeds_too_nobody_ends_within_a_quarter_of_the_whole_budget(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share - number_of(run))
    done = worker(plan(seeds=2), 6)
    assert done.work()
    told = rows(done.study, done.plan)
    assert (told[5].state, told[5].done) == ("pruned", 0.35)  # it is judged at marks 4, 9 and 14 of 40


def test_a_trial_that_has_used_up_its_budget_is_complete_however_it_ends(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    """The sixth is as good as the others until its last mark, by which it is below their median."""
    at_once(lambda run, share: min(share, 0.96) if number_of(run) == 5 else share)
    done = worker(plan(), 6)
    assert done.work()
    assert [(row.state, row.values) for row in rows(done.study, done.plan)][4:] == [
        ("complete", [1.0]), ("complete", [0.96])
    ]  # fmt: skip


def test_of_seeds_that_have_not_come_so_far_the_former_ones_stand(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    """Interrupted at a fifth of its second seed."""
    at_once(lambda run, share: 10 * share + 4 * run.env_settings.seed)
    own = worker(plan(seeds=2), 1)
    own.stopped = lambda: any(trial.user_attrs.get("done", 0) > 0.5 for trial in own.study.trials)
    assert not own.work()
    told = own.study.trials[0].user_attrs
    assert told["done"] == 0.6
    curve = told["curves"]["reward"]
    assert len(curve) == 20 and (curve["4"], curve["5"], curve["20"]) == (4.0, 2.5, 10.0)


def test_what_comes_out_goes_beside_the_study_s_file(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcome, "_pictures", lambda *_: {})
    at_once(lambda run, share: share)
    assert worker(plan(), 1, Path("elsewhere/menu"), "elsewhere/menu/study.db").work()
    for url in ("elsewhere/menu/study.db", f"sqlite:///{tmp_path}/elsewhere/menu/study.db", "elsewhere/menu"):
        result = CliRunner().invoke(app, ["sweep", "show", url])
        assert result.exit_code == 0, result.output
        Path("elsewhere/menu/best.yaml").unlink()
    assert not Path("results").exists()
    Path("elsewhere/menu/.study").write_text("of another sweep, beside which the database of this one lies, too")
    assert CliRunner().invoke(app, ["sweep", "show", "elsewhere/menu/study.db"]).exit_code == 0
    assert Path("results/menu/best.yaml").is_file() and not Path("elsewhere/menu/best.yaml").exists()


def test_who_looked_at_a_study_from_afar_can_join_it(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcome, "_pictures", lambda *_: {})
    at_once(lambda run, share: share)
    url = f"sqlite+pysqlite:///{tmp_path}/study.db"  # as one of PostgreSQL, by whose address nobody finds a folder
    assert worker(plan(), 1, tmp_path / "there", url).work()
    show = ["sweep", "show", url]
    assert CliRunner().invoke(app, show).exit_code == 0
    assert worker(plan(), 2, Path("results/menu"), url).work()
    shutil.rmtree("results/menu")
    Path("results/menu").mkdir()
    Path("results/menu/configuration.yaml").write_text("of a run")
    refused = CliRunner().invoke(app, show)
    assert refused.exit_code == 2 and "results/menu: holds no sweep, but something else" in refused.stderr
    assert CliRunner().invoke(app, [*show, "--output", "elsewhere"]).exit_code == 0
    assert {path.name for path in Path("results/menu").iterdir()} == {"configuration.yaml"}


def test_a_study_s_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "why? 100%41 {x} #1" / "study.db"
    for _ in range(2):
        with opened_storage(str(file)) as storage:
            make_study(storage, "menu", plan())
    assert file.is_file() and [path.name for path in tmp_path.iterdir()] == [file.parent.name]


def test_seeds_are_averaged_and_the_same_in_every_trial(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: float(run.env_settings.seed * 10 * share))
    own = plan(seeds=3)
    done = worker(own, 1)
    assert done.work()
    [row] = rows(done.study, own)
    assert row.values == [10.0]  # of 0, 10 and 20
    assert {path.name for path in trial_folder(tmp_path, 0).iterdir()} == {"seed-0", "seed-1", "seed-2"}
    reported = done.study.trials[0].intermediate_values
    assert len(reported) == 60 and (reported[20], reported[30], reported[60]) == (0.0, 2.5, 10.0)


def test_of_several_objectives_none_is_lost(worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]) -> None:
    at_once(lambda run, share: math.log10(rate(run)))
    own = plan(objectives=(Objective("reward"), Objective("reward", "MenuToy")))
    done = worker(own, 3)
    assert done.work()
    assert all(row.values[0] == row.values[1] for row in rows(done.study, own))
    assert "curves-reward-MenuToy.png" in {path.name for path in write_outcome(done.study, own, tmp_path)}


def test_runs_that_report_no_such_number_end_the_sweep(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: 0.0)
    with pytest.raises(PalusError, match=r"the first 3 trials all failed.*reported no group_reward, but Environment"):
        worker(plan(objectives=(Objective("group_reward"),)), 9).work()


def test_a_sweep_whose_first_trial_was_good_outlives_any_number_that_fail(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share if number_of(run) == 0 else None)
    done = worker(plan(prunes=False), 5)
    assert done.work()
    assert [row.state for row in rows(done.study, done.plan)] == ["complete", *["failed"] * 4]


def test_a_run_that_diverges_is_pruned_and_says_why(
    worker: Make, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers were to blame: the sampler learns from it, which it does not from one that failed."""
    at_once(lambda run, share: share)
    monkeypatch.setattr(Quick, "ending", Ending("its loss is no number", diverged=True))
    done = worker(plan(), 1)
    assert done.work()
    [row] = rows(done.study, done.plan)
    assert (row.state, row.why) == ("pruned", "it diverged: its loss is no number")


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


def test_who_asks_for_fewer_trials_leaves_those_of_others_alone(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share)
    done = worker(plan(), 2)
    assert done.work()
    done.study.enqueue_trial({RATE: 1e-3, EPOCHS: 1})  # by one who asks for more
    assert worker(plan(), 2).work()
    assert [row.state for row in rows(done.study, done.plan)] == ["complete", "complete", "waiting"]


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


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_who_joins_with_another_plan_is_told_what_differs(
    worker: Make, tmp_path: Path, where: str, request: pytest.FixtureRequest, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: 0.0)
    url = request.getfixturevalue("postgres_url") if where == "postgresql" else f"sqlite:///{tmp_path}/s.db"
    assert worker(plan(), 2, tmp_path / "here", url).work()
    assert len(worker(plan(), 2, tmp_path / "there", url).study.trials) == 2
    with opened_storage(url) as storage:
        optuna.create_study(storage=storage, study_name="foreign").add_trial(optuna.create_trial(value=1.0))
        with pytest.raises(ConfigError, match="not made by `palus sweep`"):
            make_study(storage, "foreign", plan())
    with pytest.raises(ConfigError, match=r"menu is another one: seeds 1, here 2; minutes 0.0, here 5.0\. Type"):
        worker(plan(seeds=2, minutes=5.0), 2, tmp_path / "there", url)


def test_the_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """As an arena's, which keeps the version of its tables where Optuna does."""
    path = tmp_path / "palus.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR)")
    database.close()
    before = path.read_bytes()
    for place in (path, f"sqlite:///{path}"):
        result = CliRunner().invoke(app, ["sweep", "status", str(place)])
        assert result.exit_code == 2 and "palus.db: the database of something else" in result.stderr
    assert path.read_bytes() == before


def test_a_sweep_that_is_refused_a_folder_makes_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("menu.yaml").write_text(json.dumps(RUN))
    Path("space.yaml").write_text(SPACE)
    Path("results/menu").mkdir(parents=True)
    Path("results/menu/configuration.yaml").write_text("of a run")
    for options in ([], ["--study", "study.db"]):
        result = CliRunner().invoke(app, ["sweep", "menu.yaml", "--objective", "reward", *options])
        assert result.exit_code == 2 and "holds no sweep, but something else" in result.stderr
    assert not [*tmp_path.rglob("study.db")]


def test_a_folder_of_something_else_is_left_alone(worker: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="holds no sweep, but something else"):
        worker(plan(), 1)
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / ".study").write_text("of yesterday")
    with pytest.raises(ConfigError, match="holds another sweep"):
        worker(plan(), 1)


def test_mistakes_are_told_before_anything_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("menu.yaml").write_text(json.dumps(RUN))
    Path("space.yaml").write_text(f"{KEY}.learning_rat: {{log: [1e-6, 1e-2]}}\n")

    def said(*words: str) -> str:
        result = CliRunner().invoke(app, ["sweep", *words])
        assert result.exit_code == 2, result.output
        return result.stderr

    assert "learning_rat: unknown key; did you mean learning_rate?" in said("menu.yaml", "--objective", "reward")
    assert "objective rewards: there is none" in said("menu.yaml", "--objective", "rewards")
    assert "--name a/b: expected letters" in said("menu.yaml", "--name", "a/b")
    assert "nowhere.db: no such file" in said("status", "nowhere.db")
    assert ".: found a folder without study.db; give the database URL" in said("status", ".")
    assert ".: found a folder, expected a YAML file" in said("menu.yaml", "--objective", "reward", "--space", ".")
    assert not Path("results").exists()
    Path("space.yaml").write_text(SPACE)
    begun = ("menu.yaml", "--objective", "reward")
    for option, path in (("--results-dir", "menu.yaml"), ("--study", "menu.yaml/x/study.db")):
        assert "the folder cannot be made (" in said(*begun, option, path)
    assert "choose another" in said(*begun, "--study", "study.db", "--results-dir", "menu.yaml")
