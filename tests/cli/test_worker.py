"""`palus worker` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from palus.cli import app


def test_a_worker_with_a_fault_of_its_own_is_not_started_again(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "palus", "worker", "--arena", "http://127.0.0.1:9", "--token-file", "missing")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("cannot be read") == 1


def test_a_token_file_that_is_no_text_is_told_in_a_sentence(tmp_path: Path) -> None:
    (path := tmp_path / "lab.token").write_bytes("palus_x".encode("utf-16"))
    command = ["worker", "--arena", "http://127.0.0.1:9", "--token-file", str(path), "--max-jobs", "1"]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "600"})
    assert done.exit_code == 2 and f"{path}: not UTF-8" in done.stderr


class _Stranger(BaseHTTPRequestHandler):
    """An arena that writes to the terminals of its workers."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said: dict[str, Any] = {"jobs": [], "pause_s": 0.1, "untended": "nobody \x1b]0;owned\x07 is there"}
        if self.path.endswith("/hello"):
            said = {"worker": "lab/[/]\x1b[2Jpc", "lease_s": 60.0, "trusted": True}
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def test_an_arena_writes_no_controls_to_the_terminal_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "lab.token").write_text("palus_x")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        options = ("--arena", f"http://127.0.0.1:{server.server_port}", "--token-file", "lab.token", "--alone")
        command, pipe = (sys.executable, "-m", "palus", "worker", *options), subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "nobody ]0;owned is there\n"
            told, _ = process.communicate(timeout=60)
        server.shutdown()
        thread.join()
    assert told.startswith("lab/[/][2Jpc plays for http://127.0.0.1:") and process.returncode == 0
