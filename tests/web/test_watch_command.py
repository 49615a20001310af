"""`palus watch` as a person uses it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import urllib.request
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from palus.arena.referee.replay import read_replay, write_replay
from palus.cli.watch import watch
from palus.envs.recording import Recording
from palus.errors import ReplayError, StorageError
from palus.web.page import make_server

RUN = "import typer; from palus.cli.watch import watch; typer.run(watch)"


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    recording = Recording(
        env_id="SoccerTwos",
        seed=1,
        names=("Ada", "Grace"),
        frames=np.zeros((6, 14), np.float32),
        actions=np.zeros((1, 4, 3), np.int8),
        probabilities=None,
        events=(),
        score=(0, 0),
        result="draw",
    )
    return write_replay(tmp_path / "final.match", [recording], title="The final")


def run(*arguments: str) -> object:
    app = typer.Typer()
    app.command()(watch)
    return CliRunner().invoke(app, list(arguments))


def test_html_writes_one_file_that_holds_the_replay(replay: Path, tmp_path: Path) -> None:
    out = tmp_path / "final.html"
    result = run(str(replay), "--html", str(out))
    assert result.exit_code == 0, result.output
    assert str(out) in result.output.replace("\n", "")
    assert "<title>The final</title>" in out.read_text()


def test_html_with_3_d_stays_one_file_below_a_megabyte(replay: Path, tmp_path: Path) -> None:
    out = tmp_path / "final.html"
    result = run(str(replay), "--html", str(out), "--three-d")
    assert result.exit_code == 0, result.output
    assert "three.js authors" in out.read_text("utf-8")
    assert out.stat().st_size < 1_000_000


def test_a_file_that_is_no_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.match"
    path.write_text("notes")
    result = run(str(path))
    assert isinstance(result.exception, ReplayError)
    assert "notes.match: is not a palus replay" in str(result.exception)


def test_it_serves_the_page_until_ctrl_c(replay: Path) -> None:
    command = [sys.executable, "-c", RUN, str(replay), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "The final\n"
            address = process.stdout.readline().split()[2]
            with urllib.request.urlopen(address, timeout=60) as answer:
                page = answer.read().decode()
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "<title>The final</title>" in page
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["127.0.0.1:{port}"], 200),
        (["localhost:{port}"], 200),
        (["LOCALHOST:9000"], 200),  # through a tunnel
        (["[::1]:{port}"], 200),
        (["evil.example:{port}"], 421),
        (["127.0.0.1.evil.example:{port}"], 421),
        (["evil.example@[:{port}"], 421),
        (["localhost:{port}", "evil.example"], 421),
        ([], 421),
    ],
)
def test_a_name_that_was_bent_to_our_address_gets_no_replay(hosts: list[str], status: int) -> None:
    with make_server("page") as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.putrequest("GET", "/", skip_host=True)
        for host in hosts:
            connection.putheader("Host", host.format(port=server.server_port))
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (status, b"page" if status == 200 else b"")
        connection.close()
        server.shutdown()


def test_a_title_clears_no_terminal(replay: Path) -> None:
    write_replay(replay, read_replay(replay)[1].recordings, title="The \x1b[2Jfinal\x07")
    command = [sys.executable, "-c", RUN, str(replay), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "The [2Jfinal\n"
        finally:
            process.kill()


def test_a_port_in_use_is_named() -> None:
    with make_server("page") as server, pytest.raises(StorageError, match=f"port {server.server_port} on 127.0.0.1"):
        make_server("page", server.server_port)
