"""The connection between game and trainer: messages, real sockets, and what either end says of a broken one."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import grpc
import pytest
from pydantic import TypeAdapter
from wire_ends import in_thread

from palus.config.environment import MultiRangeUniformSampler, Sampler
from palus.config.run_file import EDITOR, EngineSettings, EnvSettings
from palus.errors import ProtocolError
from palus.unity import side_channels
from palus.unity.environment import UnityEnv
from palus.unity.messages import API_VERSION, CLOSING, METHOD, bools, check_version, floats, message, packed, parse
from palus.unity.wire import Dialer, Listener, _Threads


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener(0)
    yield made
    made.close()


def test_an_agent_s_info_has_the_protocol_s_bytes() -> None:
    """Written out by hand: tag = field * 8 + wire type."""
    made = message()
    made.ClearField("header")
    info = made.unity_output.rl_output.agentInfos["B"].value.add(reward=1.0, done=True, id=7, action_mask=b"\x01\x00")
    info.observations.add(shape=[2], compression_type=1, dimension_properties=[1], name="o").float_data.data = packed(
        [1.0, -2.0]
    )
    observation = bytes([10, 1, 2, 16, 1, 34, 10, 10, 8, *struct.pack("<2f", 1, -2), 50, 1, 1, 66, 1, 111])
    told = bytes([61, *struct.pack("<f", 1), 64, 1, 80, 7, 90, 2, 1, 0, 106, len(observation), *observation])
    listed = bytes([10, len(told), *told])
    entry = bytes([10, 1, 66, 18, len(listed), *listed])
    assert made.SerializeToString(deterministic=True) == bytes(
        [18, len(entry) + 4, 10, len(entry) + 2, 18, len(entry), *entry]
    )


def test_actions_have_the_protocol_s_bytes() -> None:
    made = message(CLOSING)
    told = made.unity_input.rl_input.agent_actions["B"]
    told.value.add(continuous_actions=packed([0.5]), discrete_actions=[300, 1])
    made.unity_input.rl_input.command = 1
    action = bytes([50, 4, *struct.pack("<f", 0.5), 58, 3, 172, 2, 1])
    entry = bytes([10, 1, 66, 18, len(action) + 2, 10, len(action), *action])
    said = bytes([10, len(entry), *entry, 32, 1])
    assert made.SerializeToString(deterministic=True) == bytes(
        [10, 3, 8, 144, 3, 26, len(said) + 2, 10, len(said), *said]
    )


def test_what_comes_in_is_checked() -> None:
    assert floats(packed([1, 2]), 2, "x").tolist() == [1.0, 2.0] and bools(b"\1\0", "x").tolist() == [True, False]
    for wrong in (b"\xff\xff", message().SerializeToString()[:-1], b"", message(7).SerializeToString()):
        with pytest.raises(ProtocolError):
            parse(wrong)
    with pytest.raises(ProtocolError, match="observation 0: 3 bytes; expected 2 numbers"):
        floats(b"abc", 2, "observation 0")
    with pytest.raises(ProtocolError, match="bytes 0 and 1, found 9"):
        bools(b"\1\x09", "action mask")


def test_versions_agree_when_their_major_numbers_do() -> None:
    check_version("1.0.0", "the game")
    for other in ("2.0.0", "0.15.0", "", "1.5"):
        with pytest.raises(ProtocolError, match=f"the game speaks communicator version '{other}', palus {API_VERSION}"):
            check_version(other, "the game")


def test_an_exchange_crosses_a_real_socket(listener: Listener) -> None:
    game = Dialer(listener.port, 10)
    asked = message()
    asked.unity_output.rl_initialization_output.name = "AcademySingleton"
    answer = in_thread(lambda: game.exchange(asked))
    assert listener.receive(10).unity_output.rl_initialization_output.name == "AcademySingleton"
    said = message()
    said.unity_input.rl_initialization_input.seed = 5
    listener.answer(said)
    assert answer().unity_input.rl_initialization_input.seed == 5
    answer = in_thread(lambda: game.exchange(asked))
    listener.receive(10)
    listener.close()
    assert answer() is None
    game.close()


def test_bytes_that_are_no_message_are_an_error_on_both_ends(listener: Listener) -> None:
    with grpc.insecure_channel(f"localhost:{listener.port}") as channel:
        reply = in_thread(lambda: channel.unary_unary(METHOD)(b"\xff\xff\xff"))
        with pytest.raises(ProtocolError, match="no message of ML-Agents' protocol"):
            listener.receive(10)
        told = parse(reply())
    assert told.header.status == CLOSING and "3 bytes that are no message" in told.header.message


def test_a_game_hears_why_it_was_sent_away_and_what_is_no_answer(listener: Listener) -> None:
    game = Dialer(listener.port, 10)
    answer = in_thread(lambda: game.exchange(message()))
    listener.receive(10)
    listener.refuse("no such behavior")
    with pytest.raises(ProtocolError, match="ended the connection: no such behavior"):
        answer()
    answer = in_thread(lambda: game.exchange(message()))
    listener.receive(10)
    listener._pending[1].put(b"\xff")  # type: ignore[index]
    with pytest.raises(ProtocolError, match="no message"):
        answer()
    game.close()


def test_a_second_game_on_a_busy_port_is_refused(listener: Listener) -> None:
    first, second = Dialer(listener.port, 10), Dialer(listener.port, 10)
    answer = in_thread(lambda: first.exchange(message()))
    listener.receive(10)
    with pytest.raises(ProtocolError, match="an earlier request on this port waits"):
        second.exchange(message())
    listener.answer(message())
    answer()
    first.close()
    second.close()


def test_silence_a_taken_port_and_ends_that_are_gone_do_not_hang(listener: Listener) -> None:
    began, told = time.monotonic(), list[str]()
    with pytest.raises(ProtocolError, match=r"no word from the game for 0\.1 s"):
        listener.receive(0.1)
    with pytest.raises(ProtocolError, match=f"port {listener.port} is taken"):
        Listener(listener.port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("palus.unity.environment.EDITOR_PORT", listener.port)
        with pytest.raises(ProtocolError, match=f"port {listener.port} is taken.*Editor speaks there only"):
            UnityEnv(EnvSettings(env_path=EDITOR), EngineSettings(), tell=told.append)
    assert told == []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ProtocolError, match="no word from the game"):
        patch.setattr("palus.unity.environment.EDITOR_PORT", 0)
        UnityEnv(EnvSettings(env_path=EDITOR, timeout_wait=1), EngineSettings(), tell=told.append)
    assert told == ["Listening on port 0. Start training by pressing the Play button in the Unity Editor."]
    game = Dialer(listener.port, 10)
    answer = in_thread(lambda: game.exchange(message()))
    listener.receive(10)
    game.close()
    with pytest.raises(Exception, match=r"closed|CANCELLED"):
        answer()
    while listener._pending and listener._pending[0].is_active():
        time.sleep(0.01)
    with pytest.raises(ProtocolError, match="broke off"):
        listener.answer(message())
    game = Dialer(listener.port, 10)
    ended = message(CLOSING)
    answer = in_thread(lambda: game.exchange(ended))
    with pytest.raises(ProtocolError, match="the game ended the connection"):
        listener.receive(10)
    answer()
    listener.close()
    with pytest.raises(ProtocolError, match=r"the trainer on port .* is gone"):
        game.exchange(message())
    game.close()
    with pytest.raises(ProtocolError, match="no trainer listens"):
        Dialer(listener.port, 0.1)
    assert time.monotonic() - began < 60


def test_side_channels_come_apart_as_they_were_put_together() -> None:
    data = side_channels.join(side_channels.engine_messages(EngineSettings()))
    assert data[:16].hex() == "2c3451e97e4fea11b238784f4387d1f7"
    found = list(side_channels.split(data))
    assert [struct.unpack("<i", payload[:4])[0] for _, payload in found] == [0, 1, 2, 3, 4]
    assert found[0][1] == struct.pack("<iii", 0, 84, 84) and found[2][1] == struct.pack("<if", 2, 20.0)
    for cut in (5, 18, len(data) - 1):
        with pytest.raises(ProtocolError, match="cut short"):
            list(side_channels.split(data[:cut]))
    with pytest.raises(ProtocolError, match="cut short"):
        list(side_channels.split(data[:16] + struct.pack("<i", -1)))


def test_parameters_arrive_as_numbers_and_as_samplers() -> None:
    _, payload = side_channels.parameter_message("speed", 2.5, 0)
    assert payload == b"\5\0\0\0speed" + struct.pack("<if", 0, 2.5)
    assert side_channels.read_parameter(payload) == ("speed", 2.5)
    sampler = MultiRangeUniformSampler.model_validate(
        {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[0, 1], [5, 8]], "seed": 3}}
    )
    _, payload = side_channels.parameter_message("size", sampler, 0)
    assert payload == b"\4\0\0\0size" + struct.pack("<iiii4f", 1, 3, 2, 4, 0, 1, 5, 8)
    assert side_channels.read_parameter(payload) == ("size", sampler)
    for form, numbers in (("uniform", {"min_value": 1, "max_value": 2}), ("gaussian", {"mean": 1, "st_dev": 2})):
        value = TypeAdapter(Sampler).validate_python({"sampler_type": form, "sampler_parameters": numbers})
        name, found = side_channels.read_parameter(side_channels.parameter_message("x", value, 7)[1])
        assert (name, found.sampler_parameters.seed) == ("x", 7)
        large = value.changed(sampler_parameters={"seed": 2**32 + 5})  # the message holds 32 bits with a sign
        for told, seed in ((large, 0), (value, 2**31 + 5)):
            found = side_channels.read_parameter(side_channels.parameter_message("x", told, seed)[1])[1]
            assert found.sampler_parameters.seed == 5
        assert {key: getattr(found.sampler_parameters, key) for key in numbers} == numbers
    odd = struct.pack("<iiiifff", 1, 0, 2, 3, 0, 1, 2)
    for wrong in (struct.pack("<i", 9), odd, *(struct.pack("<iiiff", 1, 0, k, 2, -1) for k in (0, 1, 7))):
        with pytest.raises(ProtocolError, match="environment parameter 'x'"):
            side_channels.read_parameter(b"\1\0\0\0x" + wrong)


def test_statistics_arrive() -> None:
    ((_, payload),) = side_channels.statistics_messages({"goals": 2.0})
    assert side_channels.read_statistic(payload) == side_channels.Statistic("goals", 2.0, side_channels.AVERAGE)
    with pytest.raises(ProtocolError, match="aggregation 4"):
        side_channels.read_statistic(payload[:-4] + struct.pack("<i", 4))


def test_a_script_ends_that_closes_nothing_while_a_game_waits() -> None:
    """And no thread is left of a listener that was closed."""
    script = """
import sys, threading
from palus.unity.messages import message
from palus.unity.wire import Dialer, Listener, _Threads
closed = Listener(0)
closed.close()
for thread in threading.enumerate():
    if thread.name == "unity":
        thread.join(10)
listener = Listener(0)
game = Dialer(listener.port, 10.0)
threading.Thread(target=game.exchange, args=[message()], daemon=True).start()
listener.receive(10.0)
print(sum(thread.name == "unity" for thread in threading.enumerate()))
raise SystemExit(3)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (3, "4\n"), found.stderr


def test_whoever_waits_for_a_call_of_the_listener_s_threads_hears_what_it_raised() -> None:
    threads = _Threads()
    calls = [threads.submit(divmod, 7, number) for number in (2, 0)]
    threads.shutdown()
    assert calls[0].result(10.0) == (3, 1) and isinstance(calls[1].exception(10.0), ZeroDivisionError)
