"""What is behind the lock of a model's process: real attempts to get out, and what the other side believes of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hostile import stock
from units import LIMITS

from palus.arena.locked.frames import MAX_REPORT_BYTES, PREFIX, Kind, Task
from palus.arena.locked.sandbox import LockedProcess, LockedProcessError, Sandbox, shared_sandbox
from palus.arena.models.rules import Limits
from palus.types import BehaviorSpec

SOCCER = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
ATTACKER = Path(__file__).parents[1] / "attacker.py"


@pytest.fixture(scope="module")
def isolation() -> str:
    """The levels that this machine has."""
    with contextlib.closing(Sandbox()) as sandbox, contextlib.closing(sandbox.open(LIMITS)) as process:
        return process.isolation


def attack(*options: str) -> dict[str, str]:
    """Let the attacker try everything, with a server listening to it and a secret in its environment."""
    here, there = socket.socketpair()
    channel, inner = socket.socketpair()
    with here, there, channel, inner, socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, str(ATTACKER), str(there.fileno()), *options],
            env={"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"},
            pass_fds=(there.fileno(),),
            start_new_session=True,
        )
        there.close()
        assert json.loads(here.recv(4096)) == {"ready": True}
        socket.send_fds(here, [json.dumps({"op": "fork", "limits": asdict(LIMITS)}).encode()], [inner.fileno()])
        inner.close()
        assert "pid" in json.loads(here.recv(4096))
        channel.sendall(str(server.getsockname()[1]).encode())
        report = channel.recv(1 << 16)
        here.close()
        assert process.wait(timeout=60) == 0
    found: dict[str, str] = json.loads(report)
    return found


def test_nothing_that_a_model_could_try_works(isolation: str):
    if "seccomp" not in isolation:
        pytest.skip(f"no system-call filter here, only {isolation}")
    report = attack()
    assert report.pop("isolation") == isolation
    environment = report.pop("environment")
    assert "HOME" not in environment and "PATH" not in environment
    assert report.pop("memory") == "MemoryError"
    assert report.pop("write to old descriptors") == "EBADF"
    assert {name: found for name, found in report.items() if found != "EPERM"} == {}
    assert not Path("/tmp/palus-loot").exists()


def test_namespaces_hold_without_the_filter(isolation: str):
    if "namespaces" not in isolation:
        pytest.skip(f"no namespaces here, only {isolation}")
    report = attack("no-filter")
    assert "seccomp" not in report["isolation"]
    assert report["connect"] == "ENETUNREACH"
    for name in ("read a file", "read this file", "write there", "list files", "make a folder", "execute"):
        assert report[name] == "ENOENT", name
    assert report["fork"] == "EAGAIN"
    assert report["another root"] == "EPERM"
    assert report["write here"] != "done"  # the working folder is deleted
    assert report["memory"] == "MemoryError"


def test_each_process_is_new_and_of_its_own_group():
    with (
        contextlib.closing(Sandbox()) as sandbox,
        contextlib.closing(sandbox.open(LIMITS)) as first,
        contextlib.closing(sandbox.open(LIMITS)) as second,
    ):
        assert first.pid != second.pid
        assert os.getpgid(first.pid) == first.pid
        first.close()
        second.begin(Task(behaviors=(SOCCER,)), [stock().SerializeToString()])
        rows = np.zeros((2, 336), np.float32)
        answer = np.frombuffer(second.ask(rows.tobytes(), 2 * 9 * 4), np.float32).reshape(2, 9)
        np.testing.assert_allclose(answer[0, :3], [1 / 6, 2 / 6, 3 / 6], rtol=1e-5)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_when_the_helper_is_killed_its_processes_end_and_the_next_one_opens():
    with contextlib.closing(Sandbox()) as sandbox, contextlib.closing(sandbox.open(LIMITS)) as process:
        helper = int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(helper, 9)
        assert ends(process.pid)
        with pytest.raises(LockedProcessError) as caught:
            process.begin(Task(behaviors=(SOCCER,)), [stock().SerializeToString()])
        assert caught.value.cause == "engine"
        with contextlib.closing(sandbox.open(LIMITS)) as next_one:
            assert next_one.begin(Task(behaviors=(SOCCER,)), [stock().SerializeToString()]).refusal is None


def test_a_machine_without_free_descriptors_opens_no_process_and_blames_no_model(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(LockedProcessError, match="no process for the model: Too many open files") as caught:
        Sandbox().open(LIMITS)
    assert caught.value.cause == "engine"


def test_a_closed_sandbox_leaves_no_process():
    sandbox = Sandbox()
    process = sandbox.open(LIMITS)
    sandbox.close()
    process.close()
    assert ends(process.pid)


def test_the_shared_sandbox_ends_with_the_python_that_used_it():
    code = (
        "from palus.arena.locked.sandbox import shared_sandbox\n"
        "from palus.arena.models.rules import Limits\n"
        "print(shared_sandbox().open(Limits()).pid)"
    )
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert ends(pid)
    assert shared_sandbox() is shared_sandbox()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (PREFIX.pack(Kind.REPORT, MAX_REPORT_BYTES + 1), "garbage"),
        (PREFIX.pack(Kind.PROBABILITIES, 35) + bytes(35), "garbage"),
        (PREFIX.pack(Kind.PROBABILITIES, 2**32 - 1), "garbage"),
        (PREFIX.pack(77, 36), "garbage"),
        (PREFIX.pack(Kind.FAILED, 4) + b"oops", "oops"),
        (PREFIX.pack(Kind.PROBABILITIES, 36) + bytes(20), "exit code 3"),
        (b"", "exit code 3"),
    ],
)
def test_answers_of_the_wrong_kind_or_size_end_the_process(said: bytes, found: str):
    process, model = acted(said)
    with pytest.raises(LockedProcessError, match=found) as caught:
        process.ask(bytes(4 * 336), 36)
    model.join()
    assert caught.value.cause == "crash"


def test_reports_that_are_no_json_objects_are_garbage():
    for payload in (b"[1]", b"{", b"[" * 50_000, b"\xff"):
        process, model = acted(PREFIX.pack(Kind.REPORT, len(payload)) + payload)
        with pytest.raises(LockedProcessError, match="garbage"):
            process.begin(Task(behaviors=(SOCCER,)), [b"model"])
        model.join()


def ends(pid: int) -> bool:
    """Whether a process ends, whose end may still be under way; whoever adopted it has to bury it, too."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


class _NoSandbox(Sandbox):
    """Reports that whatever process it was ended with exit code 3."""

    def reap(self, pid: int) -> tuple[int, float]:
        return 3 << 8, 0.5


def acted(said: bytes) -> tuple[LockedProcess, threading.Thread]:
    """A process whose model, played by a thread, greets properly, then says these bytes and closes its end."""
    here, there = socket.socketpair()
    greeting = json.dumps({"isolation": "limits"}).encode()

    def model() -> None:
        with there:
            there.sendall(PREFIX.pack(Kind.REPORT, len(greeting)) + greeting)
            there.recv(1 << 16)
            there.sendall(said)
            there.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):  # the other end closed without listening to the end
                while there.recv(1 << 16):  # to close with bytes unread here would take back what was said
                    pass

    thread = threading.Thread(target=model)
    thread.start()
    return LockedProcess(_NoSandbox(), 0, here, Limits(wall_s=30.0)), thread
