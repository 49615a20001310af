"""`palus arena` and the commands around it, as processes: started, used, interrupted, started again."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from small_run import make_run

WAIT_S = 120.0


class Arena:
    """A running `palus arena` on loopback."""

    def __init__(self, data: Path, home: Path) -> None:
        self.data = data
        self.environment = {**os.environ, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palus", "arena", "--data", str(data), "--port", "0", "--workers", "1"],
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

    def standing(self, repo: str) -> Any:
        """The row of the leaderboard, None where there is none."""
        rows = self.read("leaderboard/SoccerTwos")["rows"]
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


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    running = Arena(tmp_path / "arena", tmp_path / "home")
    yield running
    running.process.kill()
    running.process.communicate()


def test_an_arena_says_what_to_do_plays_and_stops_cleanly_on_ctrl_c(arena: Arena, tmp_path: Path) -> None:
    said = "".join(arena.said)
    assert "Isolation of models: " in said
    assert re.search(rf"palus push results/mine \S+/mine --hub {arena.url}", said)
    token = arena.data / "admin.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    arena.wait_for_matches(2)

    refused = arena.run("arena", "--data", str(arena.data), "--port", "0")
    assert refused.returncode == 2 and "runs on this data folder already" in refused.stderr
    made = arena.run("account", "add", "lab", "--scope", "runner", "--data", str(arena.data))
    (tmp_path / "token").write_text(made.stdout)
    worker = arena.run(
        "worker", "--arena", arena.url, "--token-file", str(tmp_path / "token"), "--name", "pc", "--max-jobs", "1"
    )
    assert worker.returncode == 0, worker.stderr
    assert "lab/pc" in {line["name"] for line in arena.read("status")["workers"]}

    code, rest = arena.interrupt()
    assert code == 0, rest
    assert "The arena has stopped; nothing is lost." in rest and "Traceback" not in rest

    audited = arena.run("audit", "--sample", "100%", "--data", str(arena.data))
    assert audited.returncode == 0 and "the hash chain is whole" in audited.stdout, audited.stdout
    assert arena.run("recompute", "--data", str(arena.data)).returncode == 0
    unknown = arena.run("verify", "nonsense", "--data", str(arena.data))
    assert unknown.returncode == 2 and "no match nonsense" in unknown.stderr


CARD = """---
library_name: ml-agents
tags: SoccerTwos, deep-reinforcement-learning, reinforcement-learning, ML-Agents-SoccerTwos
---
# A team, tagged in one string as mlagents-push-to-hf does it
"""


def test_a_newcomer_needs_huggingface_hub_alone_and_a_hostile_model_stops_nothing(arena: Arena, tmp_path: Path) -> None:
    added = arena.run("account", "add", "newcomer", "--data", str(arena.data))
    assert added.returncode == 0, added.stderr
    hub = HfApi(endpoint=arena.url, token=re.findall(r"hf_\w+|\S{40,}", added.stdout)[0])
    for name, model in (("hostile", b"no model"), ("team", None)):
        run = make_run(tmp_path / name)
        (run / "README.md").write_text(CARD)
        if model is not None:
            (run / "SoccerTwos.onnx").write_bytes(model)
        hub.create_repo(f"newcomer/{name}", exist_ok=True)
        hub.upload_folder(repo_id=f"newcomer/{name}", folder_path=run, commit_message="First Push")

    standing = arena.wait_for(lambda: arena.standing("newcomer/team"), "no first interval")
    assert standing["games"] >= 2 and standing["half_width"] > 0
    page = arena.read("models/newcomer/hostile")
    (refused,) = page["revisions"]
    assert refused["state"] == "refused"
    assert refused["refusal"]["code"] == "not-onnx"
    assert refused["refusal"]["remedy"]
    arena.wait_for_matches(arena.read("status")["matches"] + 2)


def test_an_arena_goes_on_where_it_stopped(arena: Arena, tmp_path: Path) -> None:
    arena.wait_for_matches(2)
    assert arena.interrupt()[0] == 0
    again = Arena(arena.data, tmp_path / "home")
    before = again.read("status")["matches"]
    assert before >= 2
    assert "administrator's token" not in "".join(again.said)
    again.wait_for_matches(before + 2)
    assert again.interrupt()[0] == 0
