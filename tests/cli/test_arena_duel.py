"""Doom as a game of an arena: agents pushed, validated, matched on real engines by its workers, rated and filmed."""

from __future__ import annotations

import io
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import children
from running_arena import Arena

from palus.arena.referee.games import GAMES, source_of
from palus.config.appo import AppoNetworkSettings
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.network import Network

DUEL = "doom_duel"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GAMES[DUEL].can_be_played_here, reason="the extras `doom` and `video` are not installed"),
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes through Linux's /proc"),
]

OPTIONS = ("--game", "SoccerTwos", "--game", DUEL, "--duel-minutes", "0.1")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run as training leaves it."""
    spec = source_of(DUEL).spec
    settings = AppoNetworkSettings(hidden_units=8, memory={"memory_size": 8})
    network = Network(spec.behaviors[0], settings, torch.Generator().manual_seed(1))
    folder = tmp_path / "run"
    (folder / DUEL).mkdir(parents=True)
    (folder / "configuration.yaml").write_text(
        f"behaviors: {{{DUEL}: {{trainer_type: appo}}}}\npalus: {{env: {DUEL}}}\n"
    )
    write_policy(folder / DUEL / "policy.npz", PolicyFile.of(network, spec, DUEL, 1000))
    return folder


@pytest.fixture
def arenas(tmp_path: Path) -> Iterator[list[Arena]]:
    started: list[Arena] = []
    yield started
    for arena in started:
        arena.process.kill()
        arena.process.communicate()


def push(arena: Arena, run: Path) -> str:
    owner = next(line for line in arena.said if line.startswith("Next: palus push")).split()[4].split("/")[0]
    pushed = arena.run("push", str(run), f"{owner}/marine", "--hub", arena.url)
    assert pushed.returncode == 0, pushed.stderr
    return f"{owner}/marine"


def test_a_pushed_agent_is_ranked_in_a_field_of_its_own_and_its_matches_are_videos(
    arenas: list[Arena], run: Path, tmp_path: Path
) -> None:
    arena = Arena(tmp_path / "arena", tmp_path / "home", *OPTIONS)
    arenas.append(arena)
    assert "Games: SoccerTwos, doom_duel" in "".join(arena.said)
    repo = push(arena, run)
    standing = arena.wait_for(lambda: arena.standing(repo, DUEL), "the agent was not ranked")
    assert standing["games"] >= 2 and standing["half_width"] > 0
    assert {row["repo"] for row in arena.read(f"leaderboard/{DUEL}")["rows"]} == {repo, "palus/random"}
    assert repo not in {row["repo"] for row in arena.read("leaderboard/SoccerTwos")["rows"]}
    (performance,) = arena.read(f"models/{repo}")["performance"]
    assert performance["play"] is None

    match = arena.read(f"matches/{performance['recent'][0]['id']}")
    assert match["filmed"] and match["env"] == DUEL and match["actions"] is None
    assert match["duration_s"] == pytest.approx(6.0, abs=0.2)
    assert "limits" in match["runner"]["isolation"] and "vizdoom" in match["runner"]["runtimes"]
    with urllib.request.urlopen(f"{arena.url}{match['replay']['url']}") as answer:
        assert answer.headers["Content-Type"] == "video/mp4"
        video = answer.read()
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(video)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(container.streams.video[0])]
    assert len(pictures) > 100 and pictures[0].shape == (120, 320, 3) and np.ptp(pictures[50]) > 50

    checked = arena.run("verify", match["id"], "--data", str(arena.data))
    assert checked.returncode == 0 and "does not repeat" in checked.stdout, checked.stdout
    assert arena.interrupt()[0] == 0
    audited = arena.run("audit", "--sample", "100%", "--data", str(arena.data))
    assert audited.returncode == 0, audited.stdout
    # The video is part of what is checked.
    sha256 = match["replay"]["sha256"]
    blob = arena.data / "blobs" / sha256[:2] / sha256
    blob.chmod(0o600)
    blob.write_bytes(b"another video")
    checked = arena.run("verify", match["id"], "--data", str(arena.data))
    assert checked.returncode == 1 and "not the one recorded" in checked.stdout, checked.stdout


def test_an_arena_without_doom_lets_its_models_wait_and_plays_on(
    arenas: list[Arena], run: Path, tmp_path: Path
) -> None:
    arena = Arena(tmp_path / "arena", tmp_path / "home")
    arenas.append(arena)
    repo = push(arena, run)
    lines = arena.wait_for(
        lambda: [line for line in arena.read("status")["unranked"] if line["repo"] == repo], "nobody found the agent"
    )
    assert (lines[0]["state"], lines[0]["sentence"]) == ("waiting", "waiting: this arena does not play doom_duel")
    assert [env["env"] for env in arena.read("envs")["environments"]] == ["SoccerTwos"]
    arena.wait_for_matches(2)
    assert arena.interrupt()[0] == 0
    again = Arena(arena.data, tmp_path / "home", *OPTIONS)
    arenas.append(again)
    again.wait_for(lambda: again.standing(repo, DUEL), "the agent was not ranked once Doom was played")


def test_killing_a_worker_in_the_middle_of_a_duel_leaves_nothing_and_the_duel_is_played_again(
    arenas: list[Arena], run: Path, tmp_path: Path
) -> None:
    arena = Arena(tmp_path / "arena", tmp_path / "home", "--game", DUEL, "--duel-minutes", "0.5")
    arenas.append(arena)
    repo = push(arena, run)
    engines = arena.wait_for(lambda: len(found := descendants(arena.process.pid, "vizdoom")) >= 2 and found, "no duel")
    (worker,) = descendants(arena.process.pid, "palus.arena.ladder.workers")
    locked = descendants(worker, "palus.arena.locked.zygote")
    os.kill(worker, signal.SIGKILL)
    arena.wait_for(lambda: not any(alive(pid) for pid in (*engines, *locked)), "the worker's children live on")
    arena.wait_for(lambda: arena.standing(repo, DUEL), "the duel was not played again")
    assert arena.interrupt()[0] == 0
    deadline = time.monotonic() + 10
    while left := [*Path("/dev/shm").glob("ViZDoom*"), *Path("/tmp").glob(f"palus-doom-{worker}-*")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def descendants(pid: int, word: str) -> list[int]:
    """Processes below this one whose command line has the word in it."""
    below, found = [pid], []
    for parent in below:
        below += children(parent)
    for process in below[1:]:
        try:
            if word in Path(f"/proc/{process}/cmdline").read_text():
                found.append(process)
        except FileNotFoundError:
            continue
    return found
