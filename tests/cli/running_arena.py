"""`palus arena` as a process, for tests that use it as people do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 120.0


class Arena:
    """A running `palus arena` on loopback."""

    def __init__(self, data: Path, home: Path, *options: str) -> None:
        self.data = data
        self.environment = {**os.environ, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palus", "arena", "--data", str(data), "--port", "0", "--workers", "1", *options],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("Stop with"):
                break
        self.url = re.findall(r"http://127\.0\.0\.1:\d+", "".join(self.said))[0]

    def read(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/arena/{path}") as answer:
            return json.loads(answer.read())

    def standing(self, repo: str, env: str = "SoccerTwos") -> Any:
        """The row of the leaderboard, None where there is none."""
        rows = self.read(f"leaderboard/{env}")["rows"]
        return next((row for row in rows if row["repo"] == repo), None)

    def wait_for(self, look: Callable[[], Any], complaint: str) -> Any:
        deadline = time.monotonic() + WAIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, complaint
            time.sleep(0.2)
        return found

    def wait_for_matches(self, count: int) -> None:
        self.wait_for(lambda: self.read("status")["matches"] >= count, "no match was played")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "palus", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=WAIT_S)

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, rest
