"""A game in an executable, from the trainer's side: real sockets, against `palus unity-serve` and against faults."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner
from wire_ends import in_thread

from palus import __version__, envs
from palus.cli import app
from palus.cli.mlagents_learn import learn
from palus.config import load_run
from palus.config.run_file import EngineSettings, EnvSettings
from palus.errors import (
    CheckpointError,
    EnvError,
    LostGameError,
    ProtocolError,
    StoppedEarly,
    StorageError,
    WorkerError,
)
from palus.rollout.exchanging import ExchangeCollector
from palus.train import Run, train
from palus.types import MASKS, BehaviorSpec
from palus.unity import side_channels
from palus.unity.analytics import Analytics
from palus.unity.environment import UnityEnv
from palus.unity.executable import find_executable
from palus.unity.messages import API_VERSION, Anything, BehaviorTold, EnvironmentTold, message, packed
from palus.unity.news import behavior_of, enter
from palus.unity.pictures import decode
from palus.unity.wire import Dialer
from ports import free_port


def executable(folder: Path, body: str, name: str = "Game") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def settings(path: Path, **options: Any) -> EnvSettings:
    return EnvSettings(env_path=str(path), base_port=free_port(2), **options)


class Scripted:
    """A game whose executable only sleeps, and which this thread plays."""

    def __init__(self, folder: Path, *told: Any, version: str = API_VERSION, **options: Any) -> None:
        own = settings(executable(folder, "exec sleep 60"), timeout_wait=20, **options)

        def play() -> None:
            game = Dialer(own.base_port, 20)
            first = message()
            first.unity_output.rl_initialization_output.communication_version = version
            for said in (first, message(), *told):
                if isinstance(said, bytes):
                    game._call(said)
                elif game.exchange(said) is None:
                    return

        self.end = in_thread(play)
        self.env = UnityEnv(own, EngineSettings())


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def start(*told: Any, **options: Any) -> Scripted:
        made.append(Scripted(tmp_path, *told, **options))
        return made[-1]

    yield start
    for game in made:
        game.env.kill()


def said(
    shape: tuple[int, ...] = (2,), numbers: tuple[float, ...] = (0.0, 1.0), name: str = "B?team=0", brain: bool = True
) -> Any:
    """A message with one agent that asks for a decision."""
    made = message()
    if brain:
        told = made.unity_output.rl_initialization_output.brain_parameters.add(brain_name=name)
        told.action_spec.num_discrete_actions = 1
        told.action_spec.discrete_branch_sizes.append(3)
    info = made.unity_output.rl_output.agentInfos[name].value.add(id=4, group_id=2, reward=0.5)
    info.observations.add(shape=shape).float_data.data = packed(numbers)
    return made


def test_the_largest_seed_has_a_second_game(served: Any) -> None:
    UnityEnv(settings(served("MenuToy", 1)), EngineSettings(), 1, seed=2**31 - 1).close()


def test_a_served_game_says_the_same_over_the_wire_as_here(served: Any) -> None:
    game = UnityEnv(settings(served("MenuToy", 3)), EngineSettings(), seed=5)
    try:
        game.reset({}, 0)
        env = envs.make("MenuToy", 3)
        env.reset(np.arange(3, dtype=np.int64) + (5 << 20))
        behavior, generator, ends = env.spec.behaviors[0], np.random.default_rng(0), 0
        rows = np.arange(3 * env.spec.num_agents, dtype=np.int32).reshape(3, -1)
        news = game.receive()
        for _ in range(20):
            ((name, told),) = news.decisions.items()
            room = envs.protocol.room_for(behavior, rows.size)
            env.observe(behavior.name, rows, room)
            assert (told.observations[MASKS] == room[MASKS]).all()
            for o, seen in zip(behavior.observations, game.behaviors[name].observations, strict=True):
                assert (told.observations[seen.name] == room[o.name]).all()
            actions = envs.game.draw_actions(behavior.actions, rows.size, room[MASKS], generator)
            step = env.step([actions.reshape(3, -1, behavior.actions.columns)])
            game.send({name: actions})
            news = game.receive()
            (steps,) = news.decisions.values()
            ended = (step.terminated | step.truncated).ravel()
            paid = np.zeros(rows.size, np.float32)
            for told in (*news.ends.values(), steps):
                paid[told.agent] += told.reward + told.group_reward
            assert np.allclose(paid, (step.reward + step.group_reward).ravel())
            ends += int(ended.sum())
            assert sum(map(len, news.ends.values())) == ended.sum()
        assert ends
        game.reset({}, 1)
        assert not game.receive().ends  # a reset tells of no ends
    finally:
        assert game.close()  # by itself


def test_what_breaks_the_protocol_is_one_sentence_on_both_ends(scripted: Any) -> None:
    blind, endless = said(), said()
    endless.unity_output.rl_initialization_output.brain_parameters[0].action_spec.discrete_branch_sizes[0] = 2**31 - 1
    del blind.unity_output.rl_output.agentInfos["B?team=0"].value[0].observations[:]
    for told, found in (
        (message(), "a message without rl_output"),
        (said(brain=False), "agents of B.team=0 before its brain_parameters"),
        (said(numbers=(0.0,)), "obs_0 of B.team=0: 4 bytes; expected 2 numbers"),
        (said(numbers=(0.0, np.nan)), "obs_0 of B.team=0 is NaN"),
        (said(name="B?team=x"), "behavior id 'B.team=x'; expected NAME"),
        (said(shape=(1, 1, 1, 2)), "behavior B.team=0: observation obs_0"),
        (endless, "behavior B.team=0: actions of 2,147,483,647 numbers and choices; expected 65,536 at most"),
        (blind, "behavior B.team=0: it sees nothing; give its agents a sensor"),
        (b"\xff\xff", "no message of ML-Agents' protocol"),
    ):
        game = scripted(told)
        game.env.reset({}, 0)
        with pytest.raises(ProtocolError, match=found):
            game.env.receive()
        if not isinstance(told, bytes):
            with pytest.raises(ProtocolError, match=f"the trainer ended the connection: .*{found}"):
                game.end()


def test_other_versions_and_words_before_their_turn_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"the game speaks communicator version '2\.1\.0'"):
        Scripted(tmp_path, version="2.1.0")
    own = settings(executable(tmp_path, "exec sleep 60"))
    end = in_thread(lambda: Dialer(own.base_port, 20).exchange(said(brain=False)))
    with pytest.raises(ProtocolError, match="the first message is no initialization"):
        UnityEnv(own, EngineSettings())
    with pytest.raises(ProtocolError, match="the trainer ended the connection: the first message"):
        end()


def test_a_game_that_dies_is_silent_or_cannot_run_is_told_of_in_words(tmp_path: Path) -> None:
    with pytest.raises(LostGameError, match="Environment shut down with return code 3"):
        UnityEnv(settings(executable(tmp_path, "exit 3")), EngineSettings())
    with pytest.raises(LostGameError, match=r"return code -9 \(SIGKILL\)"):
        UnityEnv(settings(executable(tmp_path, "kill -9 $$")), EngineSettings())
    own = settings(executable(tmp_path, "while [ ! -e $0.said ]; do sleep 0.05; done; exit 2"), timeout_wait=20)

    def say_why() -> None:
        Dialer(own.base_port, 20).farewell("match 0 ordered dish 1, which its mask forbids")
        (tmp_path / "Game.said").touch()

    in_thread(say_why)
    with pytest.raises(LostGameError, match=r"ordered dish 1, which its mask forbids\. Environment .* return code 2"):
        UnityEnv(own, EngineSettings())
    with pytest.raises(LostGameError, match="no word from the game for 1 s"):
        UnityEnv(settings(executable(tmp_path, "exec sleep 60"), timeout_wait=1), EngineSettings())
    with pytest.raises(EnvError, match=r"no executable there; looked for .*Nothing\.x86_64"):
        UnityEnv(settings(tmp_path / "Nothing"), EngineSettings())
    (tmp_path / "Game").chmod(0o600)
    with pytest.raises(EnvError, match="chmod"):
        UnityEnv(settings(tmp_path / "Game"), EngineSettings())


def test_who_wants_to_stop_does_not_wait_for_a_game_that_is_silent(scripted: Any) -> None:
    game = scripted(said())
    game.env.reset({}, 0)
    game.env.receive()
    game.env.send({"B?team=0": np.zeros((1, 1), np.float32)})
    asked, began = iter([False]), time.monotonic()
    with pytest.raises(StoppedEarly):
        game.env.receive(lambda: next(asked, True))
    assert not game.env.close() and time.monotonic() - began < 15  # timeout_wait is 20


def test_what_comes_on_a_side_channel_that_nobody_knows_is_told_by_its_id(scripted: Any) -> None:
    strange, told = uuid4(), said()
    told.unity_output.rl_output.side_channel = side_channels.join(
        [(strange, b"?"), *side_channels.statistics_messages({"goals": 2.0}), (strange, b"!")]
    )
    game = scripted(told)
    game.env.reset({}, 0)
    news = game.env.receive()
    assert news.strange == (str(strange),) and [own.name for own in news.statistics] == ["goals"]


def test_an_executable_is_started_as_ml_agents_starts_it(tmp_path: Path) -> None:
    path = executable(tmp_path, f'echo "$@" > {tmp_path}/given; exit 1', "Game.x86_64")
    assert find_executable(str(tmp_path / "Game.exe")) == path
    own = settings(tmp_path / "Game", env_args=("--level", "2"))
    with pytest.raises(LostGameError, match=r"return code 1; debug: true shows what it says$"):
        UnityEnv(own, EngineSettings(), 1, log_folder=tmp_path / "run_logs")  # it has written none
    executable(tmp_path, f'echo "$@" > {tmp_path}/given; echo "no GPU" > "$6"; exit 1', "Game.x86_64")
    with pytest.raises(LostGameError, match=r"its log is .*run_logs/Player-1\.log"):
        UnityEnv(own, EngineSettings(no_graphics_monitor=True), 1, log_folder=tmp_path / "run_logs")
    given = (tmp_path / "given").read_text()
    log = tmp_path / "run_logs" / "Player-1.log"
    assert given == f"-nographics -batchmode --mlagents-port {own.base_port + 1} -logFile {log} --level 2\n"


def test_an_executable_without_a_place_for_its_log_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run_logs").touch()
    own = settings(executable(tmp_path, "exit 1", "Game.x86_64"))
    with pytest.raises(
        StorageError, match=r"run_logs: the folder cannot be made \(File exists\); choose another --res"
    ):
        UnityEnv(own, EngineSettings(), log_folder=tmp_path / "run_logs")


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8)).save(file, "PNG")
    return file.getvalue()


def huge_png(side: int) -> bytes:
    """A picture that says how large it is, and nothing more."""
    made = bytearray(png([[[0, 0, 0]]]))
    made[16:24] = struct.pack(">II", side, side)
    made[29:33] = struct.pack(">I", zlib.crc32(made[12:29]))
    return bytes(made)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def odd_png(*chunks: tuple[bytes, bytes]) -> bytes:
    """A picture of one pixel in colours, with these chunks."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in ((b"IHDR", head), *chunks, (b"IEND", b"")))


def test_png_pictures_are_joined_averaged_and_mapped() -> None:
    first, second = png([[[255, 0, 0], [0, 51, 102]]]), png([[[0, 255, 255], [255, 255, 255]]])
    assert decode(first, (3, 1, 2), [], "o").tolist() == [
        [[1.0, 0.0]],
        [[0.0, np.float32(0.2)]],
        [[0.0, np.float32(0.4)]],
    ]
    assert decode(first, (1, 1, 2), [], "o").ravel() == pytest.approx([1 / 3, 0.2])
    assert decode(first + second, (4, 1, 2), [], "o")[:, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
    mapped = decode(first + second, (2, 1, 2), [0, 0, -1, 1, 1, 1], "o")
    assert mapped[:, 0, 0] == pytest.approx([0.5, 2 / 3])
    for data, shape, mapping, found in (
        (b"abc", (3, 1, 2), [], "no PNG"),
        (first[:40], (3, 1, 2), [], "cannot be read"),
        (first, (3, 2, 2), [], r"picture of \(2, 1\); expected \(2, 2\)"),
        (first, (4, 1, 2), [], "pictures of 3 channels; expected 4"),
        (first, (2, 1, 2), [0, 0], "channel mapping"),
        (first, (2, 1, 2), [0, 2, 1], "channel mapping"),
        (huge_png(20_000), (3, 1, 2), [], "cannot be read"),
        (odd_png((b"IDAT", zlib.compress(bytes(4))), (b"iCCP", b"")), (3, 1, 1), [], "cannot be read"),
    ):
        with pytest.raises(ProtocolError, match=found):
            decode(data, shape, mapping, "o")


def test_no_more_pictures_are_unpacked_than_the_observation_needs() -> None:
    one, broken = png([[[255, 0, 0]]]), png([[[0, 0, 0]]])[:40]
    assert decode(one + 1000 * broken, (1, 1, 1), [], "o").ravel() == pytest.approx([1 / 3])
    assert decode(one + one + broken, (4, 1, 1), [], "o").ravel().tolist() == [1.0, 0.0, 0.0, 1.0]
    with pytest.raises(ProtocolError, match="for 6 decoded channels; expected one entry for each, at most 3,"):
        decode(one + broken, (1, 1, 1), [0, -1, -1, -1, -1, -1], "o")


def test_parameters_and_the_engine_s_settings_go_out_with_the_reset(scripted: Any) -> None:
    heard: list[bytes] = []
    game = scripted(said())
    listened = game.env._listener.answer
    game.env._listener.answer = lambda made: (heard.append(made.unity_input.rl_input.side_channel), listened(made))
    game.env.reset({"speed": 2.0}, 0)
    assert len(game.env.receive().decisions["B?team=0"]) == 1
    assert heard[0].count(b"\x2c\x34\x51\xe9") == 5 and heard[0].endswith(b"speed" + struct.pack("<if", 0, 2.0))


def test_a_game_that_listens_is_told_what_kind_of_run_it_is_and_no_name_of_it(tmp_path: Path) -> None:
    low = "{name: secret_low, value: 1, completion_criteria: {behavior: SoccerTwos, measure: progress, threshold: 0.5}}"
    parameters = f"{{secret_height: {{curriculum: [{low}, {{name: b, value: 2}}]}}, speed: 3.0}}"
    run = load_run("debug", [
        "behaviors.SoccerTwos.reward_signals={rnd: {}}", "behaviors.SoccerTwos.init_path=/secret/a.pt",
        "behaviors.SoccerTwos.behavioral_cloning={demo_path: /secret/b.demo}", "env_settings.num_envs=3",
        "env_settings.env_path=/secret/Game", "env_settings.env_args=[--secret]", "checkpoint_settings.run_id=secret",
        f"environment_parameters={parameters}", "palus.env=null",
    ])  # fmt: skip
    for listens in (True, False):
        start = message()
        start.unity_output.rl_initialization_output.communication_version = API_VERSION
        start.unity_output.rl_initialization_output.capabilities.trainingAnalytics = listens
        own, heard = settings(executable(tmp_path, "exec sleep 60"), timeout_wait=20), list[bytes]()

        def play(start: Any = start, own: EnvSettings = own, heard: list[bytes] = heard) -> None:
            game, told = Dialer(own.base_port, 20), said(name="SoccerTwos?team=1")
            for words in (start, message(), told, said(name="SoccerTwos?team=1", brain=False)):
                answer = game.exchange(words)
                channels = side_channels.split(answer.unity_input.rl_input.side_channel)
                heard.extend(payload for channel, payload in channels if channel == side_channels.ANALYTICS)

        end = in_thread(play)
        env = UnityEnv(own, EngineSettings(), analytics=Analytics(run))
        try:
            env.reset({}, 0)
            for _ in range(2):
                assert env.receive().decisions
                env.send({"SoccerTwos?team=1": np.zeros((1, 1), np.float32)})
            end()
        finally:
            env.kill()
        if not listens:
            assert heard == []
            continue
        environment, behavior = (Anything.FromString(data) for data in heard)
        assert environment.type_url == "type.googleapis.com/communicator_objects.TrainingEnvironmentInitialized"
        told = EnvironmentTold.FromString(environment.value)
        assert (told.num_envs, told.num_environment_parameters) == (3, 2)
        options = json.loads(told.run_options)
        # printf TEXT | openssl dgst -sha256 -hmac unity.ml-agents
        assert list(options["behaviors"]) == ["02e4a808da4d9880700a622357cdcd55f6495d9a731b96674f7223c91e4ee17b"]
        (behavior_options,), lessons = options["behaviors"].values(), options["environment_parameters"].values()
        assert behavior_options["trainer_type"] == "poca" and behavior_options["hyperparameters"]["batch_size"] == 256
        assert [lesson["value"] for own in lessons for lesson in own["curriculum"]] == [1.0, 2.0, 3.0]
        assert options["env_settings"]["num_envs"] == 3 and "palus" not in options
        assert b"secret" not in environment.value + behavior.value and b"SoccerTwos" not in environment.value
        assert behavior.type_url.endswith(".TrainingBehaviorInitialized")
        told = BehaviorTold.FromString(behavior.value)
        assert told.curriculum_enabled and json.loads(told.config) == behavior_options
        assert told.behavior_name == "02e4a808da4d9880700a622357cdcd55f6495d9a731b96674f7223c91e4ee17b"
        assert told.rnd_reward_enabled and not told.extrinsic_reward_enabled


def test_a_game_that_names_behaviors_without_end_is_refused() -> None:
    spec, behaviors = envs.make("SoccerTwos", 1).spec.behaviors[0], dict[str, BehaviorSpec]()
    for k in range(100):
        enter(behaviors, f"B{k}", replace(spec, name=f"B{k}"))
    with pytest.raises(ProtocolError, match="'B100' is behavior id number 101; expected 100 at most, so give agents"):
        enter(behaviors, "B100", replace(spec, name="B100"))
    assert len(behaviors) == 100


def test_behavior_ids_name_a_behavior_and_a_team() -> None:
    assert behavior_of("Striker?team=1") == ("Striker", 1) and behavior_of("Goalie") == ("Goalie", 0)
    for name in ("../../escaped?team=0", "/etc/x", ".hidden", "a\x1b[2Jb", "?team=0", "Goalie?team=x"):
        with pytest.raises(ProtocolError, match="expected NAME\\?team=NUMBER, the name that of a file"):
            behavior_of(name)


def run_file(folder: Path, path: Path, name: str, *overrides: str, **behavior: Any) -> Any:
    own = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 0.003, "num_epoch": 3},
        "network_settings": {"hidden_units": 32, "num_layers": 1},
        "time_horizon": 32,
        "summary_freq": 1000,
    } | behavior
    file = folder / "run.yaml"
    file.write_text(json.dumps({
        "behaviors": {name: own},
        "env_settings": {"env_path": str(path), "base_port": free_port(), "seed": 1},
        "checkpoint_settings": {"results_dir": str(folder / "results"), "run_id": "x"},
        "palus": {"matmul": "highest", "threads": 1},
    }))  # fmt: skip
    return load_run(file, list(overrides))


def rewards(capsys: Any, kind: str) -> list[float]:
    """Those of all summaries."""
    return [float(number) for number in re.findall(rf"{kind}: (\d\.\d+)", capsys.readouterr().err)]


def test_a_run_learns_over_the_wire(served: Any, tmp_path: Path, capsys: Any) -> None:
    """MenuToy pays 2 for guessing and 11/3 for the best order."""
    run = run_file(tmp_path, served("MenuToy", 8), "MenuToy", max_steps=5000)
    assert train(run).finished
    first, *_, last = rewards(capsys, "Mean Reward")
    assert first < 2.8 and last > 3.2
    assert (tmp_path / "results" / "x" / "MenuToy.onnx").exists()
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        train(run)
    folder, path = str(tmp_path / "results" / "x"), str(run.env_settings.env_path)
    refused = CliRunner().invoke(app, ["enjoy", folder])
    assert refused.exit_code == 2 and f"--env {path}" in " ".join(refused.output.split())
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", path, "--max-num-episodes", "20", "--json"])
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["episodes"] == 20 and found["mean"] > 3.0 and found["decisions"] > 20
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", path, "--max-num-episodes", "2"])
    assert "decisions in" in said.output and "frames" not in said.output
    said = CliRunner().invoke(app, ["enjoy", folder, "--env", str(served("DuelToy", 1))])
    assert said.exit_code == 2 and "nobody of MenuToy asked for a decision; it has DuelToy" in said.output


def test_what_cannot_begin_starts_no_game_and_leaves_no_run(served: Any, tmp_path: Path) -> None:
    run = run_file(
        tmp_path, executable(tmp_path, "exec sleep 60"), "DuelToy", "checkpoint_settings.initialize_from=gone"
    )
    with pytest.raises(CheckpointError, match="gone: no such run to initialize from"):
        train(run)
    run = run_file(tmp_path, executable(tmp_path, "exec sleep 60"), "DuelToy")
    with pytest.raises(CheckpointError, match="nothing to resume"):
        train(run, resume=True)
    assert not (tmp_path / "results").exists()
    path = served("DuelToy", 1)
    with pytest.raises(EnvError, match="DuelTo did not appear"):
        train(run_file(tmp_path, path, "DuelTo"))
    assert (tmp_path / "results" / "x" / "run_logs" / "Player-0.log").exists()
    assert train(run_file(tmp_path, path, "DuelToy", max_steps=0)).finished  # nobody has to force it


def test_a_drawn_seed_is_sent_again_on_resume(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It is -1 in the file whenever the run is started, and the game is started before the checkpoint is read."""
    sent, shake = list[int](), UnityEnv._shake_hands
    monkeypatch.setattr(UnityEnv, "_shake_hands", lambda game, seed: (sent.append(seed), shake(game, seed))[1])
    for count, resume in ((1, False), (600, True)):
        run = run_file(tmp_path, served("MenuToy", 1), "MenuToy", "env_settings.seed=-1", max_steps=count)
        train(run, resume=resume)
    assert sent[0] == sent[1] > 1


def test_mlagents_learn_says_what_it_is_connected_to(served: Any, tmp_path: Path, capsys: Any) -> None:
    run_file(tmp_path, served("DuelToy", 1), "DuelToy", max_steps=0)
    whole = json.loads((tmp_path / "run.yaml").read_text())
    (tmp_path / "run.yaml").write_text(json.dumps(whole | {"environment_parameters": {"level": 2}}))
    capsys.readouterr()
    assert learn([str(tmp_path / "run.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if re.search("Connected|Hyper|Parameter", line)] == [
        f"[INFO] Connected to Unity environment with package version {__version__} and communication version 1.5.0",
        "[INFO] Connected new brain: DuelToy?team=0",
        "[INFO] Connected new brain: DuelToy?team=1",
        "[INFO] Hyperparameters for behavior name DuelToy: ",
        "[INFO] Parameter 'level' is in lesson 'level' and has value 'Float: value=2'.",
    ]


@pytest.mark.slow
def test_groups_learn_over_the_wire(served: Any, tmp_path: Path, capsys: Any) -> None:
    """RescueToy pays the group 0.5 a match for what a member did before it left."""
    run = run_file(tmp_path, served("RescueToy", 8), "RescueToy", max_steps=4000, trainer_type="poca")
    assert train(run).finished
    first, *_, last = rewards(capsys, "Mean Group Reward")
    assert first < 0.5 and last > 0.75


@pytest.mark.slow
def test_a_behavior_that_appears_in_mid_run_learns_over_the_wire(tmp_path: Path) -> None:
    path = executable(tmp_path, "exec sleep 60")
    small = ["behaviors.B.hyperparameters.buffer_size=100", "env_settings.timeout_wait=20"]
    run = run_file(tmp_path, path, "B", *small, max_steps=250)
    run = run.model_copy(update={"behaviors": {}, "default_settings": run.behaviors["B"]})

    def play() -> list[int]:
        game, decisions = Dialer(run.env_settings.base_port, 20), [0, 0]
        first = message()
        first.unity_output.rl_initialization_output.communication_version = API_VERSION
        told: Any = [first, message(), said()]
        for at in range(5000):
            answer = game.exchange(told.pop(0) if told else both(at))
            if answer is None:
                break
            for k, name in enumerate(("B?team=0", "Late?team=0")):
                decisions[k] += len(answer.unity_input.rl_input.agent_actions[name].value)
        return decisions

    def both(at: int) -> Any:
        made = said(brain=False)
        if at > 100:
            made.MergeFrom(said(name="Late?team=0", brain=at == 101))
        return made

    end = in_thread(play)
    assert train(run).finished
    usual, late = end()
    folder = tmp_path / "results" / "x"
    assert late >= 250 and usual >= late + 90
    assert (folder / "Late.onnx").exists()
    assert json.loads((folder / "run_logs" / "training_status.json").read_text())["Late"]["checkpoints"]


def test_a_game_killed_in_mid_step_leaves_a_clear_message_and_a_saved_run(served: Any, tmp_path: Path) -> None:
    path = served("MenuToy", 2)
    run = run_file(tmp_path, path, "MenuToy", "env_settings.max_lifetime_restarts=0", max_steps=100000)

    def kill_after_an_update(parts: Run) -> None:
        assert isinstance(parts.collector, ExchangeCollector)
        (pid,) = [game.env._executable._process.pid for game in parts.collector._games]
        learn = parts.trainees[0].learner.update

        def update(*arguments: Any) -> Any:
            found = learn(*arguments)
            os.killpg(pid, signal.SIGKILL)  # type: ignore[arg-type]
            return found

        parts.trainees[0].learner.update = update  # type: ignore[method-assign]

    with pytest.raises(WorkerError, match=r"return code -9 \(SIGKILL\).*max_lifetime_restarts is 0"):
        train(run, on_start=kill_after_an_update)
    folder = tmp_path / "results" / "x"
    assert (folder / "MenuToy" / "checkpoint.pt").exists() and (folder / "MenuToy.onnx").exists()
    found = Run(run, resume=True)
    assert found.step >= 512
    found.close()


def test_a_behavior_that_the_game_does_not_have_is_named(served: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("palus.unity.discovery.SEARCH", 5)
    run = run_file(tmp_path, served("MenuToy", 1), "Nobody")
    with pytest.raises(EnvError, match="has MenuToy; Nobody did not appear within 5 messages"):
        train(run)
