"""Two players on the two teams of a game that talks: over a real socket, and by hand-written messages."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from palus import envs
from palus.arena.models.policies import RandomPlayer
from palus.cli import app
from palus.config import load_run
from palus.errors import EnvError, ModelError
from palus.nn.network import Network
from palus.run.talking_match import opened, play_leg, play_match
from palus.types import F32, ActionSpec, BehaviorSpec, Discrete, ObservationSpec
from palus.unity.news import News, Steps

KIND = BehaviorSpec("B", (ObservationSpec("obs_0", (1,)),), ActionSpec((Discrete(2),)))
BLUE, RED = "B?team=0", "B?team=1"


class Answering:
    """Plays DuelToy as well as it goes: the cue, which it is shown, is the answer. It remembers nothing."""

    name, sha256, state_size = "answering", None, 0

    def answer(self, observations: Mapping[str, Any], states: F32, masks: Any = None) -> tuple[F32, F32]:
        return np.ascontiguousarray(observations["obs_0"][:, :3]), states


def test_who_knows_the_game_wins_on_either_team(served: Any) -> None:
    with opened(str(served("DuelToy", 3)), 1) as source:
        chance = RandomPlayer(source.spec.behaviors[0])
        for a, b, expected in ((Answering(), chance, 1.0), (chance, Answering(), 0.0)):
            summary = play_match(source, a, b, 30, 7)
            assert summary.pairs == 30 and summary.wins + summary.draws + summary.losses == 60
            assert summary.mean_steps == 4 and abs(summary.score - expected) < 0.1
        even = play_match(source, Answering(), Answering(), 20, 7)
        assert even.draws == 40 and even.entropy_a == 0.0


def test_models_of_several_behaviors_play_and_the_command_tells_who_is_better(served: Any, tmp_path: Path) -> None:
    behavior = envs.make("DuelToy", 1).spec.behaviors[0]
    network = load_run("debug", ["behaviors.SoccerTwos.network_settings={hidden_units: 8}"]).behaviors["SoccerTwos"]
    model = Network(behavior, network.network_settings, None, critic="none").onnx()
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    path = str(served("DuelToy", 2))
    words = ["match", str(tmp_path / "a.onnx"), "random", "--env", path, "--pairs", "10"]
    said = " ".join(CliRunner().invoke(app, words).output.split())
    assert "a - random" in said and "lost in 20 matches, half on either team; 4 decisions per match" in said
    for more, reason in (
        (["--replay", "x.match"], "replays and match logs are of palus's own games"),
        (["--log", "x.jsonl"], "replays and match logs are of palus's own games"),
    ):
        refused = CliRunner().invoke(app, [*words, *more])
        assert refused.exit_code == 2 and reason in " ".join(refused.output.split())
    chance = ["match", "random", "random", "--pairs", "2", "--json", "--env"]
    several = CliRunner().invoke(app, [*chance, str(served("PenaltyToy", 1))])
    assert json.loads(several.stdout.splitlines()[-1])["pairs"] == 2
    alone = CliRunner().invoke(app, [*chance, str(served("MenuToy", 1))])
    assert alone.exit_code == 2 and "a match needs two teams" in alone.output


def test_ctrl_c_ends_the_match_and_its_executable_whoever_has_the_stock_port(served: Any) -> None:
    path = served("DuelToy", 1)
    words = [sys.executable, "-m", "palus", "match", "random", "random", "--env", str(path), "--pairs", "1000000"]
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # then somebody has it
            other.bind(("127.0.0.1", 5005))
            other.listen()
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        until = time.monotonic() + 60
        while not (games := games_of(process.pid)) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and re.search(r"Interrupted: \d+ of 1000000 pairs", " ".join(told.split())), told
    assert games and "Traceback" not in told and not any(is_running(game) for game in games)


def games_of(trainer: int) -> list[int]:
    """The processes of the games that this process has started: what `unity-serve` wrote becomes palus itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            is_child = f"\nPPid:\t{trainer}\n" in (folder / "status").read_text()
            if is_child and b"--mlagents-port" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def is_running(process: int) -> bool:
    """Whether it has not ended; one that nobody has waited for has."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def steps(*told: tuple[int, int, float], group_reward: float = 0.0) -> Steps:
    """Of agents with their groups and rewards."""
    agents, groups, rewards = (np.array(column) for column in zip(*told, strict=True))
    n = len(agents)
    return Steps(
        {"obs_0": np.zeros((n, 1), np.float32)}, rewards.astype(np.float32), np.full(n, group_reward, np.float32),
        agents.astype(np.int64), groups.astype(np.int64), np.zeros(n, np.bool_),
    )  # fmt: skip


class Story:
    """In the place of a `UnityEnv`: says these messages, then the last one again and again."""

    waits = True

    def __init__(self, *told: News) -> None:
        self.told, self.at = told, 0
        self.behaviors = {BLUE: KIND, RED: KIND}

    def reset(self, parameters: Any, seed: int) -> None:
        self.at = 0

    def receive(self, stopped: Any = None) -> News:
        self.at += 1
        return self.told[min(self.at, len(self.told)) - 1]

    def send(self, actions: Any, parameters: Any = None, seed: int = 0) -> None:
        pass


def leg(story: Story, matches: int) -> Any:
    chance = RandomPlayer(KIND)
    return play_leg(story, {0: chance, 1: chance}, matches, 1)  # type: ignore[arg-type]


def test_groups_meet_groups_and_a_member_that_left_early_decides_nothing() -> None:
    begin = News({}, {BLUE: steps((1, 5, 0), (2, 5, 0)), RED: steps((3, 6, 0), (4, 6, 0))})
    out = News({BLUE: steps((1, 5, 9.0))}, {BLUE: steps((2, 5, 0)), RED: steps((3, 6, 0), (4, 6, 0))})  # 1 is out
    over = News({BLUE: steps((2, 5, 0), group_reward=-1.0), RED: steps((3, 6, 0), (4, 6, 0), group_reward=1.0)}, {})
    found = leg(Story(begin, out, over, begin, out, over), 2)
    assert found.first == [0.0, 0.0] and found.decisions == [2, 2]


def test_agents_without_groups_meet_in_the_order_of_their_ids() -> None:
    begin = News({}, {BLUE: steps((1, 0, 0), (3, 0, 0)), RED: steps((2, 0, 0), (4, 0, 0))})
    both = News({BLUE: steps((3, 0, -1.0), (1, 0, 1.0)), RED: steps((4, 0, 1.0), (2, 0, -1.0))}, begin.decisions)
    tie = News({BLUE: steps((3, 0, 0.5)), RED: steps((4, 0, 0.5))}, begin.decisions)
    found = leg(Story(begin, both, tie), 3)
    assert found.first == [1.0, 0.0, 0.5] and found.decisions == [1, 1, 1]


def test_a_game_whose_teams_never_end_together_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.run.talking_match.PATIENCE", 20)
    begin = News({}, {BLUE: steps((1, 0, 0)), RED: steps((2, 0, 0))})
    alone = News({BLUE: steps((1, 0, 1.0))}, begin.decisions)
    with pytest.raises(EnvError, match=r"20 messages, and no match has ended: .* \(20 ended without a rival\)"):
        leg(Story(begin, alone), 1)


class Diverged(Answering):
    def answer(self, observations: Mapping[str, Any], states: F32, masks: Any = None) -> tuple[F32, F32]:
        return np.full((len(states), 2), np.nan, np.float32), states


def test_answers_that_are_no_probabilities_are_refused() -> None:
    begin = News({}, {BLUE: steps((1, 0, 0)), RED: steps((2, 0, 0))})
    with pytest.raises(ModelError, match=r"answering: its answers to what .* sees are no probabilities"):
        play_leg(Story(begin), {0: Diverged(), 1: Diverged()}, 1, 1)  # type: ignore[arg-type]
