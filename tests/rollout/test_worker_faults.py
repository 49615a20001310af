"""What kills, hangs and faulty games do to collecting: losses are counted, nothing is left behind, faults are told."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from mmap import mmap
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from counting_game import DECISION, SEED, CountingGame, counting_spec
from counting_policy import CountingPolicy, counting_collector, lost, played
from processes import eventually

from palus.errors import EnvError, StoppedEarly, StorageError, WorkerError
from palus.rollout import worker
from palus.rollout.layout import Layout, open_memory
from palus.rollout.stepper import Answer, Assignment, Restart, StepOrder

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and Linux's process controls")


def dropped(collector):
    return collector.performance()["Sampling/Dropped Decisions"]


class Assassin(CountingPolicy):
    """Kills a worker while it decides for the given batch."""

    def __init__(self, batch):
        super().__init__()
        self._countdown, self.collector = batch, None

    def act(self, observations, states, masks=None):
        self._countdown -= 1
        if self._countdown == 0:
            os.kill(self.collector.pids[0], signal.SIGKILL)
        return super().act(observations, states)


def test_a_killed_worker_costs_its_rows_of_one_page() -> None:
    policy = Assassin(batch=5)  # decision 2 of split 0
    with counting_collector(8, policies={0: policy}) as s:
        policy.collector = s
        page = s.collect().rollouts[0]
        # Worker 0 has games 0 and 1 of split 0, 4 and 5 of split 1.
        np.testing.assert_array_equal(page.active, [[0, 0, 1, 1, 0, 0, 1, 1]] * 4)
        assert page.agent_steps == 16
        assert lost(s) == (1, 0)
        assert dropped(s) in (10, 12)  # 3 decisions of split 0, 2 or 3 of split 1
        (complaint,) = s.complaints()
        assert complaint.startswith("lost worker 0: it ended with exit status -9. A new one took its place")
        assert f"so far 1 were lost, and {dropped(s):.0f} decisions" in complaint and not s.complaints()
        page = s.collect().rollouts[0]
        assert page.agent_steps == 32 and lost(s) == (1, 0)
        np.testing.assert_array_equal(page.observations["obs"][0, :, DECISION], [0, 0, 4, 4, 0, 0, 4, 4])
        np.testing.assert_array_equal(page.states[:, 0], [0, 0, 4, 4, 0, 0, 4, 4])


def test_a_worker_killed_between_pages_costs_nothing_and_its_episodes_do_not_come_again() -> None:
    with counting_collector(8) as s:
        before = s.collect().rollouts[0].observations["obs"][0, :, SEED].copy()
        os.kill(s.pids[1], signal.SIGKILL)
        os.waitid(os.P_PID, s.pids[1], os.WEXITED | os.WNOWAIT)
        page = s.collect().rollouts[0]
        assert page.agent_steps == 32 and lost(s) == (1, 0) and dropped(s) == 0
        others = page.observations["obs"][0, :, SEED] != before
        np.testing.assert_array_equal(others, [0, 0, 1, 1, 0, 0, 1, 1])  # those of worker 1


def test_with_its_only_worker_killed_the_page_is_played_again() -> None:
    policy = Assassin(batch=3)
    with counting_collector(8, policies={0: policy}, sampling={"workers": 1}) as s:
        policy.collector = s
        page = s.collect().rollouts[0]
        assert page.agent_steps == 32 and lost(s) == (1, 0)
        np.testing.assert_array_equal(page.observations["obs"][0, :, DECISION], 0)


def test_the_others_play_on_beside_a_lost_worker_whose_rows_lie_between_theirs() -> None:
    class Killing(Assassin):
        def act(self, observations, states, masks=None):
            self._countdown -= 1
            if self._countdown == 0:
                os.kill(self.collector.pids[1], signal.SIGKILL)
            return CountingPolicy.act(self, observations, states)

    policy = Killing(batch=3)  # decision 1 of split 0
    with counting_collector(12, horizon=6, policies={0: policy}, truncate=True, sampling={"workers": 3}) as s:
        policy.collector = s
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.active, [[1, 1, 0, 0, 1, 1] * 2] * 6)
        decisions = page.observations["obs"][:-1, :, DECISION]
        np.testing.assert_array_equal(page.values[page.active], decisions[page.active])
        np.testing.assert_array_equal(page.truncated, (decisions == 4) & page.active)
        np.testing.assert_array_equal(page.final_states, np.full((8, 1), 5.0))
        assert s.collect().rollouts[0].agent_steps == 72 and lost(s) == (1, 0)


def test_pages_beside_the_learner_outlive_kills_at_random_instants() -> None:
    with counting_collector(16, slow=0.002, sampling={"workers": 2, "asynchronous": True}) as s:
        for kill in range(3):
            page = s.collect().rollouts[0]
            np.testing.assert_array_equal(
                page.values[page.active], page.observations["obs"][:-1, :, DECISION][page.active]
            )
            with s.beside():
                time.sleep(random.random() * 0.02)
                victim = s.pids[kill % 2]
                os.kill(victim, signal.SIGKILL)
            eventually(lambda victim=victim: played(s) and victim not in s.pids)
        eventually(lambda: played(s).rollouts[0].agent_steps == 64)
        assert lost(s) == (3, 0)


def test_a_worker_that_hangs_is_replaced_after_the_timeout(tmp_path) -> None:
    trap = tmp_path / "trap"
    with counting_collector(8, trap=str(trap), sampling={"workers": 2, "timeout": 4.0}) as s:
        s.collect()
        hanging = s.pids
        trap.touch()
        began = time.monotonic()
        page = s.collect().rollouts[0]
        assert page.agent_steps == 16 and lost(s) == (0, 1)
        assert time.monotonic() - began >= 4.0
        assert len(set(hanging) & set(s.pids)) == 1
        eventually(lambda: s.collect().rollouts[0].agent_steps == 32)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_whoever_waits_for_a_silent_worker_hears_ctrl_c(asynchronous, tmp_path) -> None:
    trap, pressed = tmp_path / "trap", []
    with counting_collector(8, trap=str(trap), sampling={"timeout": 3600.0, "asynchronous": asynchronous}) as s:
        s.stopped = lambda: bool(pressed)
        s.collect()
        pressed.append(True)
        played(s)  # as long as games answer, what has begun is played to the end
        trap.touch()
        with pytest.raises(StoppedEarly):
            for _ in range(3):
                played(s)
        assert s.save()["counter"] == 1 and lost(s) == (0, 0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ctrl_c_is_heard_while_games_of_the_main_process_are_put_out_of_step(asynchronous) -> None:
    settings, asked = {"workers": 0, "asynchronous": asynchronous, "decorrelate": True}, []
    with counting_collector(16, horizon=16, sampling=settings) as s:
        s.stopped = lambda: len(asked) == 3 or bool(asked.append(True))
        with pytest.raises(StoppedEarly):
            s.collect()
        s.stopped = lambda: False
        assert s.save()["counter"] == 1 and lost(s) == (0, 0)
    with counting_collector(16, horizon=16, sampling=settings) as s:
        s.collect()
        s.stopped = lambda: True
        assert played(s).rollouts[0].agent_steps == 256  # what has begun is played to the end


def test_games_that_take_longer_to_get_out_of_step_than_the_timeout_are_alive() -> None:
    told: list[str] = []
    settings = {"workers": 1, "timeout": 4.0, "decorrelate": True}
    with counting_collector(16, horizon=16, slow=0.006, sampling=settings) as s:  # about 16 * 16 * 16 / 2 * 0.003 s
        s.warn = told.append
        began = time.monotonic()
        assert s.collect().rollouts[0].agent_steps == 16 * 16
        assert time.monotonic() - began > 5.0 and lost(s) == (0, 0) and not told


@pytest.mark.parametrize(("alive_s", "at_start", "in_step"), [(-1.0, 6, 6), (5.0, 0, 0)])
def test_a_worker_of_slow_games_gives_a_sign_of_life_between_them(alive_s, at_start, in_step, monkeypatch) -> None:
    """Three resets and looks, three decisions and looks; where all of it is done sooner there is no need for one."""
    monkeypatch.setattr(worker, "ALIVE_S", alive_s)
    layout, (ours, theirs) = Layout(counting_spec(1), 3, 4, 1), Pipe()
    assignment = Assignment(0, CountingGame, (range(3),), seed=1, warm_up=0, core=None)
    for order in (Restart(0, 0), StepOrder(0, 0, 0), None):
        ours.send(order)
    thread = threading.Thread(target=worker._serve, args=(theirs, assignment, layout, mmap(-1, layout.size)))
    thread.start()
    thread.join(20)
    said = []
    while ours.poll():
        said.append(isinstance(ours.recv(), Answer))
    assert said == [*[False] * (3 + at_start), True, *[False] * in_step, True]


def test_a_start_that_takes_long_says_what_it_waits_for(monkeypatch) -> None:
    monkeypatch.setattr("palus.rollout.pool.PATIENCE_S", 0.02)
    monkeypatch.setattr("palus.rollout.workers.SLOW_START_S", 0.0)
    told: list[str] = []
    with counting_collector(4, slow=0.04, sampling={"workers": 1, "decorrelate": True}) as s:
        s.warn = told.append
        s.collect()
    (line,) = told
    assert line.endswith("up to 16 random decisions, which palus.sampling.decorrelate: false leaves out.")


def test_workers_that_are_lost_again_and_again_end_a_run_that_has_no_rollout(monkeypatch) -> None:
    monkeypatch.setattr("palus.rollout.pool.RESTART_WINDOW_S", 0.0)  # so slowly that the window forgets them
    told: list[str] = []
    with counting_collector(8, sampling={"workers": 2, "timeout": 0.02, "max_restarts": 3}) as s:  # none starts so fast
        s.warn = told.append
        message = (
            r"[45] workers were lost before a rollout was complete, .*max_restarts: 3\. The last one, worker \d: "
            r"no word for 0\.02 s; .* raise palus\.sampling\.timeout"
        )
        with pytest.raises(WorkerError, match=message):
            s.collect()
    assert told and told[0].startswith("lost worker ") and not s.complaints()


def test_workers_that_are_lost_now_and_then_end_no_run(monkeypatch) -> None:
    monkeypatch.setattr("palus.rollout.pool.RESTART_WINDOW_S", 0.0)
    with counting_collector(8, sampling={"workers": 2, "max_restarts": 1}) as s:
        for _ in range(3):
            s.collect()
            victim = s.pids[0]
            os.kill(victim, signal.SIGKILL)
            os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
        assert s.collect().rollouts[0].agent_steps == 32 and lost(s) == (3, 0)


def test_workers_that_die_too_often_end_the_run() -> None:
    with counting_collector(8, sampling={"workers": 2, "max_restarts": 1}) as s:
        s.collect()
        for pid in s.pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"2 workers were lost .*max_restarts: 1\. .* exit status -9"):
            s.collect()


def test_workers_that_die_too_often_beside_the_learner_end_the_run_at_the_next_page() -> None:
    with counting_collector(8, slow=0.02, sampling={"workers": 2, "max_restarts": 1, "asynchronous": True}) as s:
        s.collect()
        with s.beside():
            for pid in s.pids:
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"2 workers were lost .*max_restarts: 1\."):
            s.collect()


@linux
def test_neither_processes_nor_descriptors_stay_after_closing() -> None:
    def descriptors():
        gc.collect()  # mapped memory is freed with the last array that shows it
        return len(os.listdir("/proc/self/fd"))

    def use():
        with counting_collector(8, sampling={"workers": 2, "asynchronous": True}) as s:
            played(s)
            pids = s.pids
            os.kill(pids[0], signal.SIGKILL)
            eventually(lambda: played(s) and lost(s) == (1, 0))
            return pids + s.pids

    use()
    before = descriptors()
    pids = use()
    assert descriptors() == before
    assert not any(Path("/proc", str(pid)).exists() for pid in pids)


def end(process, blow):
    """Send a signal, and return what the process said in the end."""
    process.send_signal(blow)
    try:
        return process.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        # While Numba loads a kernel, the compiler's callbacks swallow a KeyboardInterrupt; people press Ctrl-C again.
        process.send_signal(blow)
        return process.communicate(timeout=40)[1]


@linux
@pytest.mark.parametrize(
    ("blow", "asynchronous"),
    [
        (signal.SIGKILL, False),
        (signal.SIGINT, True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (signal.SIGKILL, True),
                (signal.SIGTERM, False),
                (signal.SIGTERM, True),
                (signal.SIGINT, False),
            )
        ),
    ],
)
def test_nothing_outlives_the_main_process(blow, asynchronous, tmp_path) -> None:
    settings = json.dumps({"workers": 2, "asynchronous": asynchronous})
    script = Path(__file__).with_name("collecting_run.py")
    with subprocess.Popen(
        [sys.executable, str(script), settings],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as main:
        try:
            pids = [int(pid) for pid in main.stdout.readline().split()]
            delay_s = random.random() * 1.5  # workers are starting, or play
            time.sleep(delay_s)
            errors = end(main, blow)
        finally:
            main.kill()
    assert len(pids) == 2 and main.returncode != 0, errors
    gone = not any(Path("/proc", str(pid)).exists() for pid in pids)
    if blow == signal.SIGINT:  # the collector was closed on the way out: no waiting for the kernel
        assert "KeyboardInterrupt" in errors and gone, f"after {delay_s} s: {errors}"
    eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
    assert list(tmp_path.iterdir()) == []


@linux
def test_a_full_shared_memory_folder_does_not_matter() -> None:
    run = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from counting_policy import counting_collector
with open("/dev/shm/full", "wb") as file:
    try:
        file.write(bytes(1 << 16))
    except OSError:
        pass
with counting_collector(8) as s:
    print(s.collect().rollouts[0].agent_steps, os.listdir("/dev/shm"))
"""
    mount = 'mount -t tmpfs -o size=16k tmpfs /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, sys.executable, run], capture_output=True, text=True, timeout=120
    )
    if done.returncode in (1, 32, 127) and "Traceback" not in done.stderr:
        pytest.skip(f"no mount namespace of one's own here: {done.stderr.strip()}")
    assert done.stdout.strip() == "32 ['full']", done.stderr


def test_memory_leaves_no_file_where_the_system_has_none_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptor = open_memory(1 << 16)
    try:
        assert os.fstat(descriptor).st_size == 1 << 16
        assert not list(tmp_path.iterdir())
    finally:
        os.close(descriptor)


def test_memory_that_is_not_there_is_refused_before_a_run_begins() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StorageError, match="sampling needs 4 MiB of shared memory"):
            open_memory(4 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_reward_that_is_not_a_number_names_the_game() -> None:
    with (
        counting_collector(8, poison=3, sampling={"workers": 0}) as s,
        pytest.raises(EnvError, match="the reward of agent 0 in game 0 is NaN or infinite"),
    ):
        s.collect()


def test_what_goes_wrong_beside_the_learner_the_next_page_tells() -> None:
    with counting_collector(8, length=50, poison=6, sampling={"workers": 0, "asynchronous": True}) as s:
        assert played(s).rollouts[0].agent_steps == 32
        with pytest.raises(EnvError, match="the reward of agent 0 in game 0 is NaN or infinite"):
            s.collect()


@pytest.mark.parametrize("sampling", [{"workers": 2}, {"workers": 2, "asynchronous": True}])
def test_games_that_cannot_be_made_are_told_at_once_with_their_reason(sampling) -> None:
    with (
        counting_collector(8, fault="the level is missing", sampling=sampling) as s,
        pytest.raises(EnvError, match=r"cannot be made or started(?s:.*)RuntimeError: the level is missing"),
    ):
        s.collect()
