"""Stopping and continuing equals never stopping; crashes and full disks lose nothing."""

import errno
import math
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import palus.files
from palus.config import dump_run, load_run
from palus.errors import CheckpointError, ModelError, StorageError
from palus.launch.apart import claimed
from palus.league.exchange import Berth
from palus.run.folder import RunFolder
from palus.run.session import HEARD, interruptible
from palus.train import Run, train

FAST = ["palus.matmul=highest", "palus.threads=1", "env_settings.seed=7", "palus.baseline_interval=0"]


def debug_run(folder, *overrides):
    return load_run("debug", [*FAST, f"checkpoint_settings.results_dir={folder}", *overrides])


def saved(run, **how):
    """A run that was saved, and has ended."""
    with closing(Run(run, **how)) as parts:
        parts.save()
    return parts


def learner_of(run):
    """As it goes on."""
    with closing(Run(run, resume=True)) as parts:
        return parts.trainees[0].learner


def state_of(folder):
    return RunFolder(folder, ["SoccerTwos"]).load()


def assert_same(a, b, path="state"):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            if key != "wall_seconds":
                assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    elif isinstance(a, np.ndarray | torch.Tensor):
        assert bool((a == b).all()), path
    else:
        assert a == b, path


@pytest.mark.parametrize("trainer", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("poca", "sac"))])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, trainer):
    settings = [f"trainer_type={trainer}", "network_settings.normalize=true"]
    if trainer == "sac":  # 2048 rows: the buffer has come around when the run is cut
        settings += ["hyperparameters.save_replay_buffer=true", "hyperparameters.steps_per_update=30"]
        settings += ["network_settings.memory={memory_size: 8, sequence_length: 8}"]
    overrides = [f"behaviors.SoccerTwos.{setting}" for setting in settings]
    whole = debug_run(tmp_path / "whole", *overrides)
    train(whole)
    # The same run, cut in the middle: a process of its own would read the same file.
    first = debug_run(tmp_path / "cut", *overrides)
    parts = Run(first)
    with parts.report:
        while parts.step < first.behaviors["SoccerTwos"].max_steps // 2:
            parts.iterate()
        parts.save()
    parts.close()
    train(first, resume=True)
    assert_same(state_of(tmp_path / "whole" / "debug"), state_of(tmp_path / "cut" / "debug"))


def test_a_run_that_goes_on_saves_when_it_has_passed_another_checkpoint(tmp_path, monkeypatch):
    run = debug_run(tmp_path, "behaviors.SoccerTwos.checkpoint_interval=100")
    with closing(Run(run)) as parts:
        parts.trainees[0].step = 250
        parts.save()
    with closing(Run(run, resume=True)) as parts:
        monkeypatch.setattr(parts, "save", (written := []).append)
        parts.save_if_due()
        assert written == [] and parts.step == 250
        parts.trainees[0].step = 300
        parts.save_if_due()
        assert written == [["SoccerTwos"]]


def test_a_damaged_replay_buffer_is_refused_and_one_that_was_not_kept_begins_empty(tmp_path):
    keep = "behaviors.SoccerTwos.hyperparameters.save_replay_buffer="
    sac = ["behaviors.SoccerTwos.trainer_type=sac", "behaviors.SoccerTwos.hyperparameters.steps_per_update=200"]
    run = debug_run(tmp_path, *sac, f"{keep}true")
    parts = Run(run)
    parts.iterate()
    parts.save()
    parts.close()
    rows = parts.trainees[0].learner.buffer.size
    assert rows == parts.trainees[0].step > 0  # those of the side that learns alone
    assert learner_of(run).buffer.size == rows
    parts.trainees[0].learner.buffer.rewards[0] = np.nan
    parts.save()
    with pytest.raises(CheckpointError, match="replay buffer, rewards: holds numbers that are not finite"):
        Run(run, resume=True)
    without = debug_run(tmp_path, *sac, f"{keep}false", "checkpoint_settings.run_id=without")
    parts = Run(without)
    parts.iterate()
    parts.save()
    parts.close()
    again = learner_of(without)
    assert (again.buffer.size, again.network.version) == (0, parts.trainees[0].learner.network.version)


def test_an_existing_run_is_neither_overwritten_nor_invented(tmp_path):
    run = debug_run(tmp_path)
    with pytest.raises(CheckpointError, match="nothing to resume"):
        train(run, resume=True)
    Run(run).close()  # killed before its first checkpoint
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        Run(run)
    saved(run, force=True)
    with pytest.raises(CheckpointError, match="--resume, replace it with --force"):
        Run(run)


def test_nobody_goes_on_from_a_run_or_replaces_it_from_before_it_is_loaded_until_its_end(tmp_path):
    run, league = debug_run(tmp_path), str(tmp_path / "league")
    with pytest.raises(CheckpointError, match="nothing to resume"):
        Run(run, resume=True)
    assert not (tmp_path / "debug").exists(), "a mistyped name makes no folder"
    with closing(Run(run)) as parts:
        parts.save()
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        for how in ({"resume": True}, {"force": True}, {}):
            with pytest.raises(CheckpointError, match="a run of this id is training just now; wait for its end"):
                train(run, **how, berth=Berth(league, "one"))
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    for _ in range(2):
        learner_of(run)


def test_a_run_whose_file_system_has_no_locks_trains_and_says_so(tmp_path, monkeypatch):
    """As Lustre's without `-o flock`."""

    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    lines = []
    with closing(Run(debug_run(tmp_path), log=lambda level, text: lines.append((level, text)))) as parts:
        parts.save()
    with claimed(tmp_path) as free:
        assert free
    told = [text for level, text in lines if level == "WARNING"]
    assert told == [f"{tmp_path / 'debug'}: its file system has no locks; see to it that no other run trains in it."]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"not a checkpoint", lambda b: b""])
def test_a_corrupt_checkpoint_says_so(tmp_path, damage):
    run = debug_run(tmp_path)
    saved(run)
    checkpoint = tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt"
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Run(run, resume=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("hidden_units=48", "network_settings.hidden_units is 48 here, and was 32 where"),
        ("normalize=false", "network_settings.normalize is false here, and was true where"),
        ("activation=tanh", "network_settings.activation is tanh here, and was swish where"),
    ],
)
def test_a_checkpoint_of_another_network_says_so(setting, message, tmp_path):
    normal = "behaviors.SoccerTwos.network_settings.normalize=true"
    saved(debug_run(tmp_path, normal))
    other = debug_run(tmp_path, normal, f"behaviors.SoccerTwos.network_settings.{setting}")
    with pytest.raises(CheckpointError, match=rf"does not fit this run file \({message}"):
        Run(other, resume=True)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (["trainer_type=poca"], ["trainer_type=ppo"], "trainer_type is ppo here, and was poca where"),
        (
            ["trainer_type=ppo"],
            ["trainer_type=ppo", "hyperparameters.shared_critic=true"],
            "hyperparameters.shared_critic is true here, and was false where",
        ),
    ],
)
def test_a_checkpoint_of_another_trainer_says_so(before, now, message, tmp_path):
    then, other = (debug_run(tmp_path, *(f"behaviors.SoccerTwos.{key}" for key in keys)) for keys in (before, now))
    with closing(Run(then)) as run:
        run.save()
    (tmp_path / "debug" / "configuration.yaml").write_text(dump_run(then))
    with pytest.raises(CheckpointError, match=rf"does not fit this run file \(behaviors\.SoccerTwos\.{message}"):
        Run(other, resume=True)
    path = f"behaviors.SoccerTwos.init_path={tmp_path}/debug/SoccerTwos/checkpoint.pt"
    where = "checkpoint_settings.run_id=other"
    begun = debug_run(tmp_path, *(f"behaviors.SoccerTwos.{key}" for key in now), path, where)
    with pytest.raises(CheckpointError, match=rf"does not fit behavior SoccerTwos \(.*{message}"):
        Run(begun)


def test_a_checkpoint_of_an_older_version_is_known_by_its_weights_alone(tmp_path):
    normal = "behaviors.SoccerTwos.network_settings.normalize="
    run = debug_run(tmp_path, f"{normal}true")
    saved(run)
    file = tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt"
    state = torch.load(file, weights_only=False)
    for _, _, learner in state["learners"]:
        del learner["network_settings"]
    torch.save(state, file)
    with pytest.raises(CheckpointError, match=r"running_mean_std\.obs_0\.count: not of this network"):
        Run(debug_run(tmp_path, f"{normal}false"), resume=True)
    learner_of(run)


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 1), (2, 3)])
def test_a_checkpoint_of_another_number_of_learners_says_so(before, now, tmp_path):
    def run_of(learners):
        several = f"behaviors.SoccerTwos.population={{size: {learners}, start: 10, period: 50}}"
        return debug_run(tmp_path, *([several] if learners > 1 else []))

    saved(run_of(before))
    message = rf"\(learners: it holds {before}, and the run file asks for {now}\); resume with the run's own"
    with pytest.raises(CheckpointError, match=message):
        Run(run_of(now), resume=True)


def test_a_checkpoint_of_another_number_of_matches_says_so(tmp_path):
    saved(debug_run(tmp_path))
    message = r"\(it holds 8 matches side by side, and the run file asks for 16\); resume with the run's own"
    with pytest.raises(CheckpointError, match=message):
        Run(debug_run(tmp_path, "palus.num_matches=16"), resume=True)


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    parts = Run(debug_run(tmp_path))
    parts.save()
    checkpoint = parts.folder.checkpoint
    before = checkpoint.read_bytes()

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(palus.files.os, "fsync", no_space)
    with pytest.raises(StorageError, match="No space left on device"):
        parts.save()
    assert checkpoint.read_bytes() == before
    assert [p.name for p in checkpoint.parent.glob(".*")] == []


@contextmanager
def no_snapshots(folder):
    """Have snapshots refused, as by a full disk: a file is where their folder was."""
    path = folder / "debug" / "SoccerTwos" / "snapshots"
    away = path.rename(path.with_name("away"))
    path.touch()
    yield
    path.unlink()
    away.rename(path)


def test_a_disk_that_takes_no_snapshot_costs_none(tmp_path):
    """A run plays against what it holds, tells its league of it, and writes it when the disk takes it again."""
    lines, run = [], debug_run(tmp_path, "behaviors.SoccerTwos.self_play.save_steps=256")
    parts = Run(run, log=lambda level, text: lines.append(text), berth=Berth(str(tmp_path / "league"), "one"))
    with parts.report:
        parts.iterate()
        before = parts.league.snapshot_count
        with no_snapshots(tmp_path):
            parts.iterate()
            parts.iterate()
        assert " ".join(lines).count("the next checkpoint tries again") == 1
        paths = [parts.saving.find(number) for number in range(before, parts.league.snapshot_count)]
        assert len(paths) > 1 and not any(path.exists() for path in paths)
        weights = [parts.saving.load_policy(path).weights.master.clone() for path in paths]
        parts.save()
    parts.close()
    assert_same(weights, [parts.saving.load_policy(path).weights.master for path in paths])
    told = {path.read_bytes() for path in (tmp_path / "league" / "book" / "one" / "files").iterdir()}
    assert {path.read_bytes() for path in paths} <= told


def test_what_a_disk_refused_and_nobody_needs_any_more_is_held_no_longer(tmp_path):
    own = [f"behaviors.SoccerTwos.self_play.{key}" for key in ("save_steps=256", "window=1", "swap_steps=1")]
    parts = Run(debug_run(tmp_path, *own), log=lambda level, text: None)
    with parts.report:
        parts.iterate()
        with no_snapshots(tmp_path):
            for _ in range(4):
                parts.iterate()
    needed = {f"snapshot-{number:05d}.npz" for number in parts.league.snapshots}
    assert {path.name for path in parts.saving._unwritten} <= needed
    assert len(needed) < parts.league.snapshot_count - 1
    parts.close()


def test_an_old_snapshot_that_cannot_be_removed_ends_no_training(tmp_path):
    lines, own = [], [f"behaviors.SoccerTwos.{key}" for key in ("self_play.save_steps=256", "self_play.window=1")]
    parts = Run(debug_run(tmp_path, *own), log=lambda level, text: lines.append(text))
    with parts.report:
        parts.iterate()
        parts.save()
        newest = parts.saving.find(parts.league.snapshot_count - 1)
        newest.unlink()
        newest.mkdir()
        parts.iterate()
        parts.passed = {"SoccerTwos": -1}
        parts.save_if_due()
    assert any(f"{newest}: could not be removed" in text and "Training goes on" in text for text in lines)
    parts.close()


def test_a_run_does_not_begin_where_its_first_snapshot_is_refused(tmp_path):
    (tmp_path / "debug" / "SoccerTwos").mkdir(parents=True)
    (tmp_path / "debug" / "SoccerTwos" / "snapshots").touch()
    with pytest.raises(StorageError, match=r"snapshot-00000\.npz: could not be"):
        Run(debug_run(tmp_path), force=True)


def test_the_snapshots_of_a_checkpoint_are_on_disk_before_it_is(tmp_path, monkeypatch):
    forced, fsync = [], os.fsync

    def noted(number):
        forced.append(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(palus.files.os, "fsync", noted)
    monkeypatch.setattr("palus.train.BOOK_SECONDS", math.inf)  # a slow machine would write it between checkpoints, too
    parts = Run(debug_run(tmp_path, "behaviors.SoccerTwos.self_play.save_steps=256"))
    with parts.report:
        for _ in range(2):
            before = len(forced)
            parts.iterate()
            assert len(forced) == before, "only checkpoints wait for the disk"
            parts.save()
            own = parts.folder.checkpoint.stat().st_ino  # of the last one: numbers of files are used again
            earlier = {*forced[: len(forced) - 1 - forced[::-1].index(own)]}
            assert {parts.saving.find(number).stat().st_ino for number in parts.league.snapshots} <= earlier
    assert parts.league.snapshot_count > 2
    parts.close()


def training_command(folder):
    command = [sys.executable, "-m", "palus", "train", "debug", *FAST, "--results-dir", str(folder)]
    return [*command, "behaviors.SoccerTwos.max_steps=1e8", "behaviors.SoccerTwos.checkpoint_interval=2000"]


def start_training(folder):
    return subprocess.Popen(training_command(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(path, process, seconds=90):
    until = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)


def test_killed_at_any_moment_the_run_continues_from_a_whole_checkpoint(tmp_path):
    run = debug_run(tmp_path, "behaviors.SoccerTwos.max_steps=1e8")
    checkpoint = tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt"
    process = start_training(tmp_path)
    wait_for(checkpoint, process)
    time.sleep(float(os.urandom(1)[0]) / 256)
    process.kill()
    process.wait()
    process.stdout.close()
    parts = Run(run, resume=True)
    reached = parts.step
    assert reached > 0
    with parts.report:
        parts.iterate()
    assert parts.step > reached


def test_ctrl_c_saves_and_exports(tmp_path):
    process = start_training(tmp_path)
    wait_for(tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt", process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "Stopped at step" in output
    assert "--resume" in output
    state = state_of(tmp_path / "debug")
    assert (tmp_path / "debug" / "SoccerTwos" / f"SoccerTwos-{state['learners'][0][0]}.onnx").is_file()
    assert (tmp_path / "debug" / "SoccerTwos.onnx").is_file()


def test_ctrl_c_is_heard_at_once(capfd):
    with interruptible() as stopped:
        signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().err == HEARD
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_passed_on_after_it_came_to_all_processes_ends_nothing(number, monkeypatch, capfd):
    now, last = [100.0], list[int]()
    monkeypatch.setattr("palus.run.session.time", SimpleNamespace(monotonic=lambda: now[0]))
    before = signal.signal(number, lambda signum, frame: last.append(signum))
    try:
        with interruptible() as stopped:
            for now[0] in (100.0, 100.4, 104.9):
                signal.raise_signal(number)
            signal.raise_signal(signal.SIGINT)  # another one, which is new
            assert stopped() and not last
            assert capfd.readouterr().err == HEARD * 2
            now[0] = 105.1
            signal.raise_signal(number)
            assert last == [number]
    finally:
        signal.signal(number, before)


def test_who_presses_ctrl_c_again_while_the_last_test_matches_are_played_loses_nothing(tmp_path, monkeypatch):
    def pressed_again(self, step):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("palus.run.baselines.Baselines.evaluate", pressed_again)
    run = load_run("debug", [f"checkpoint_settings.results_dir={tmp_path}", "palus.baseline_interval=1000000"])
    with pytest.raises(KeyboardInterrupt):
        train(run, on_start=lambda parts: signal.raise_signal(signal.SIGINT))
    assert state_of(tmp_path / "debug")["learners"][0][0] > 0
    assert (tmp_path / "debug" / "SoccerTwos.onnx").is_file()


def test_a_terminal_that_closes_costs_nothing(tmp_path):
    checkpoint = tmp_path / "debug" / "SoccerTwos" / "checkpoint.pt"
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would be heeded
        os.execv(sys.executable, training_command(tmp_path))
    until = time.monotonic() + 90
    while not checkpoint.exists() and time.monotonic() < until:
        if select.select([terminal], [], [], 0.02)[0]:
            os.read(terminal, 65536)  # or it would wait for who reads
    begun = time.time()
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    step = state_of(tmp_path / "debug")["learners"][0][0]
    last = tmp_path / "debug" / "SoccerTwos" / f"SoccerTwos-{step}.onnx"
    assert last.stat().st_mtime > begun


def test_a_faulty_baseline_does_not_cost_the_old_run(tmp_path):
    run = debug_run(tmp_path)
    saved(run)
    faulty = debug_run(tmp_path, "palus.baseline_interval=1000", "palus.baselines=[nobody]")
    with pytest.raises(ModelError, match="nobody"):
        Run(faulty, force=True)
    learner_of(run)


def test_diverged_weights_do_not_replace_the_checkpoint(tmp_path):
    parts = Run(debug_run(tmp_path))
    parts.save()
    before = parts.folder.checkpoint.read_bytes()
    parts.trainees[0].learner.network.weights.master.fill_(float("nan"))
    with pytest.raises(ModelError, match="NaN"):
        parts.save()
    assert parts.folder.checkpoint.read_bytes() == before
