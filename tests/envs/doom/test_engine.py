"""Engines end with their owner and leave nothing behind; failing starts say why."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from left_behind import MARK, processes, shared_files

from palus.envs import make_game
from palus.errors import EnvError

vizdoom = pytest.importorskip("vizdoom", reason="needs the extra doom")
if sys.platform != "linux":
    pytest.skip("the launcher's means exist on Linux only", allow_module_level=True)

from palus.envs.doom import engine, leftovers  # noqa: E402
from palus.envs.doom.engine import start_engine  # noqa: E402
from palus.envs.doom.leftovers import sweep  # noqa: E402

OWNER = """
import sys
import numpy as np
from palus.envs import make_game
game = make_game("doom_basic")
print("starts", flush=True)
game.reset(1)
print("plays", flush=True)
while True:
    if game.step(np.zeros((1, 1), np.float32)).over:
        game.reset(2)
"""


def private_folders(pid):
    return list(Path(tempfile.gettempdir()).glob(f"palus-doom-{pid}-*"))


def wait_for(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)


def test_ctrl_c_and_a_closed_terminal_do_not_reach_an_engine_that_starts(tmp_path):
    """Before its launcher ignores them they would end it, and ViZDoom crashes when an engine ends in its start."""
    late = tmp_path / "launcher.py"
    signals = "; ".join(f"os.kill(os.getpid(), {number:d})" for number in (signal.SIGINT, signal.SIGHUP))
    late.write_text(f"import os, runpy; {signals}; runpy.run_path({engine.launcher.__file__!r}, run_name='__main__')")
    start = (
        "import sys; from types import SimpleNamespace; from palus.envs import make_game; from palus.envs.doom import "
        "engine; engine.launcher = SimpleNamespace(__file__=sys.argv[1]); game = make_game('doom_basic'); "
        "game.reset(1); game.close()"
    )
    done = subprocess.run([sys.executable, "-c", start, late], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("delay_s", [None, 0.0, 0.03, 0.06, 0.12])
def test_a_killed_owner_leaves_no_engine_and_no_file(tmp_path, delay_s):
    """delay_s: how long after the start began; None for a game in full play."""
    mark = secrets.token_hex(8)
    before = shared_files()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
    )

    def left():  # engines of others may be starting at the same time; their files go, too
        return private_folders(owner.pid) or shared_files() - before

    with owner:
        try:
            assert owner.stdout.readline() == "starts\n"
            if delay_s is None:
                assert owner.stdout.readline() == "plays\n"
                assert any("viz_instance_id" in line for line in processes(mark))
                wait_for(lambda: not left())
            else:
                time.sleep(delay_s)
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_for(lambda: not processes(mark))
    wait_for(lambda: not left())
    assert not list(tmp_path.iterdir())


def test_an_engine_asks_for_large_pages():
    game = make_game("doom_basic")
    try:
        game.reset(1)
        (player,) = game._players
        told = Path(f"/proc/{player.engine.pid}/environ").read_bytes().split(b"\0")
        assert b"GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in told
        assert "GLIBC_TUNABLES" not in os.environ  # ours stays as it was
    finally:
        game.close()


class Reluctant:
    """A handle whose starts fail as ViZDoom's do when an engine does not answer."""

    closed = 0

    def get_vizdoom_path(self):
        return "/bin/true"

    def set_vizdoom_path(self, path):
        self.script = Path(path).read_text()

    def init(self):
        raise vizdoom.ViZDoomErrorException("no answer")

    def close(self):
        Reluctant.closed += 1


def test_a_failing_start_is_repeated_and_then_told(monkeypatch):
    monkeypatch.setattr(engine, "PAUSE_S", 0)
    with pytest.raises(EnvError, match="the engine of doom did not start in 3 attempts: no answer"):
        start_engine(Reluctant, "doom")
    assert Reluctant.closed == 3 and not private_folders(os.getpid())


def test_full_shared_memory_is_an_error_not_a_bus_error(monkeypatch):
    class Full:
        f_bavail, f_frsize = 3, 4096

    monkeypatch.setattr(engine.os, "statvfs", lambda path: Full)
    with pytest.raises(EnvError, match=r"/dev/shm has 12 KiB left; a Doom engine needs 8 MiB"):
        start_engine(vizdoom.DoomGame, "doom")


def test_shared_memory_that_is_really_full_is_told_too():
    start = "from palus.envs import make_game; make_game('doom_basic').reset(1)"
    mount = 'mount -t tmpfs -o size=16k tmpfs /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, sys.executable, start], capture_output=True, text=True, timeout=120
    )
    if "Traceback" not in done.stderr:
        pytest.skip(f"no mount namespace of one's own here: {done.stderr.strip()}")
    assert "EnvError: /dev/shm has 16 KiB left; a Doom engine needs 8 MiB to start" in done.stderr


def test_leftovers_of_killed_starts_are_swept_but_nothing_that_lives():
    dead, unburied = (subprocess.Popen([sys.executable, "-c", ""]) for _ in range(2))
    dead.wait()
    os.waitid(os.P_PID, unburied.pid, os.WEXITED | os.WNOWAIT)  # its parent will not ask for a while
    leftover, another = (Path(tempfile.gettempdir(), f"palus-doom-{p.pid}-feed") for p in (dead, unburied))
    alive = Path(tempfile.gettempdir(), f"palus-doom-{os.getpid()}-beef")
    old, new = (Path(f"/dev/shm/ViZDoomSM{secrets.token_hex(5)}") for _ in range(2))
    try:
        leftover.mkdir()
        another.mkdir()
        alive.mkdir()
        old.touch()
        wait_for(lambda: time.time() - old.stat().st_ctime > leftovers.STALE_S)
        new.touch()
        sweep()
        assert [p.exists() for p in (leftover, another, alive, old, new)] == [False, False, True, False, True]
    finally:
        unburied.wait()
        new.unlink()
        alive.rmdir()
