"""A game in an executable, from the trainer's side: real sockets, against `palus unity-serve` and against faults."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hand_made import executable, said
from wire_ends import in_thread

from palus import envs
from palus.config import load_run
from palus.config.run_file import EngineSettings, EnvSettings
from palus.errors import EnvError, LostGameError, ProtocolError, StoppedEarly, StorageError
from palus.types import MASKS, BehaviorSpec
from palus.unity import side_channels
from palus.unity.analytics import Analytics
from palus.unity.environment import UnityEnv
from palus.unity.executable import find_executable
from palus.unity.messages import API_VERSION, Anything, BehaviorTold, EnvironmentTold, message
from palus.unity.news import behavior_of, enter
from palus.unity.wire import Dialer
from ports import free_port


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
            for words in (first, message(), *told):
                if isinstance(words, bytes):
                    game._call(words)
                elif game.exchange(words) is None:
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
