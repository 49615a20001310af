"""`palus unity-serve`: what a trainer hears from a served game, over a real socket, and what either makes of faults."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wire_ends import in_thread

from palus import envs
from palus.config.environment import UniformSampler
from palus.envs.game import GameStep
from palus.envs.matches import Matches
from palus.errors import ProtocolError
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, GameSpec, ObservationSpec
from palus.unity import side_channels
from palus.unity.messages import API_VERSION, RESET, floats, message, packed
from palus.unity.serving import Launch, parse_launch, serve
from palus.unity.translation import columns_of, observation_specs, observation_template
from palus.unity.wire import Listener


class Trainer:
    """The trainer's end of a served game, message by message."""

    def __init__(self, listener: Listener, version: str = API_VERSION, num_areas: int = 1) -> None:
        self.listener = listener
        self.introduction = self.receive()
        said = message()
        told = said.unity_input.rl_initialization_input
        told.seed, told.communication_version, told.num_areas = 3, version, num_areas
        listener.answer(said)

    def receive(self) -> Any:
        return self.listener.receive(60).unity_output

    def send(self, actions: dict[str, list[list[int]]], command: int = 0, side_channel: bytes = b"") -> Any:
        """Answer; returns what the game says next."""
        said = message()
        told = said.unity_input.rl_input
        told.command, told.side_channel = command, side_channel
        for name, chosen in actions.items():
            for own in chosen:
                told.agent_actions[name].value.add(discrete_actions=own)
        self.listener.answer(said)
        return self.receive()

    def reset(self, side_channel: bytes = b"") -> Any:
        return self.send({}, RESET, side_channel)


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[Trainer, Callable[[], Any], list[str]]]]:
    listener = Listener(0)

    def start(game: Any, matches: int, **options: Any) -> tuple[Trainer, Callable[[], Any], list[str]]:
        """Trainer, end of the game's thread, what it said. game: its name, or what makes many matches of it."""
        told, make = list[str](), envs.GameSource(game).batch if isinstance(game, str) else game
        end = in_thread(lambda: serve(make, matches, listener.port, 30, told.append))
        return Trainer(listener, **options), end, told

    yield start
    listener.close()


def infos(said: Any) -> dict[str, list[tuple[int, int, float, bool, bool]]]:
    """Behavior id -> id, group, reward with the group's, done, interrupted."""
    listed = said.rl_output.agentInfos
    return {
        name: [
            (i.id, i.group_id, i.reward + i.group_reward, i.done, i.max_step_reached) for i in listed[name].value
        ]
        for name in listed
    }  # fmt: skip


def test_a_game_introduces_itself_and_its_behaviors_once(served: Any) -> None:
    trainer, _, _ = served("PenaltyToy", 1, num_areas=2)
    told = trainer.introduction.rl_initialization_output
    assert (told.name, told.communication_version) == ("AcademySingleton", API_VERSION)
    assert all(getattr(told.capabilities, field.name) for field in told.capabilities.DESCRIPTOR.fields)
    assert not trainer.receive().HasField("rl_output")
    said = trainer.reset()
    spec = envs.GameSource("PenaltyToy").spec
    names = {
        f"{b.name}?team={t}" for b in spec.behaviors for t in {a.team for a in spec.agents if a.behavior == b.name}
    }
    brains = said.rl_initialization_output.brain_parameters
    assert {b.brain_name for b in brains} == set(infos(said)) == names
    sizes = {b.brain_name: tuple(b.action_spec.discrete_branch_sizes) for b in brains}
    assert {name: sizes[name] for name in names} == {
        name: spec.behavior(name.partition("?")[0]).branches for name in names
    }
    ids = [i for listed in infos(said).values() for i, *_ in listed]
    assert sorted(ids) == list(range(2 * spec.num_agents))  # two areas of one match
    actions = {name: [[0] * len(sizes[name])] * len(listed) for name, listed in infos(said).items()}
    assert not trainer.send(actions).rl_initialization_output.brain_parameters


def test_rewards_ends_and_next_episodes_are_those_of_the_game(served: Any) -> None:
    """Against the same game stepped here, for three matches of four decisions."""
    trainer, _, _ = served("RescueToy", 2)
    trainer.receive()
    said = trainer.reset()
    env = envs.make("RescueToy", 2)
    env.reset(np.arange(2, dtype=np.int64) + (3 << 20))
    generator, P, ends = np.random.default_rng(0), env.spec.num_agents, 0
    behavior, name = env.spec.behaviors[0], "RescueToy?team=0"
    name = next(iter(infos(said)))
    for _ in range(13):
        decide = np.argwhere(env.active).tolist()
        listed = [own for own in infos(said)[name] if not own[3]]
        assert [own[0] for own in listed] == [n * P + p for n, p in decide]
        rows = np.arange(2 * P, dtype=np.int32).reshape(2, P)
        seen = {o.name: np.zeros((2 * P, *o.shape), np.float32) for o in behavior.observations}
        env.observe(behavior.name, np.where(env.active, rows, -1).astype(np.int32), seen)
        going = [i for i in said.rl_output.agentInfos[name].value if not i.done]
        for info, (n, p) in zip(going, decide, strict=True):
            for got, o in zip(info.observations, behavior.observations, strict=True):
                assert (floats(got.float_data.data, o.size, o.name) == seen[o.name][n * P + p].ravel()).all()
        chosen = generator.integers(0, behavior.branches, (len(decide), len(behavior.branches)))
        actions = np.zeros((2, P, len(behavior.branches)), np.float32)
        for (n, p), own in zip(decide, chosen, strict=True):
            actions[n, p] = own
        before = env.active.copy()
        step = env.step([actions])
        said = trainer.send({name: chosen.tolist()})
        ended = before & (step.terminated | step.truncated)
        done = [own for own in infos(said)[name] if own[3]]
        assert [own[0] for own in done] == [n * P + p for n, p in np.argwhere(ended).tolist()]
        paid = (step.reward + step.group_reward)[ended]
        assert [own[2] for own in done] == pytest.approx(paid.tolist())
        assert [own[4] for own in done] == step.truncated[ended].tolist()
        ends += len(done)
    assert ends > 6


def test_masks_forbid_what_the_game_does_not_allow(served: Any) -> None:
    trainer, _, _ = served("MenuToy", 3)
    trainer.receive()
    said = trainer.reset()
    env = envs.make("MenuToy", 3)
    env.reset(np.arange(3, dtype=np.int64) + (3 << 20))
    behavior = env.spec.behaviors[0]
    rows = np.arange(3 * env.spec.num_agents, dtype=np.int32).reshape(3, -1)
    room = envs.protocol.room_for(behavior, rows.size)
    env.observe(behavior.name, rows, room)
    told = [list(info.action_mask) for info in next(iter(said.rl_output.agentInfos.values())).value]
    assert told == (~room["action_masks"]).astype(int).tolist() and any(map(any, told))


def test_parameters_reach_the_game_and_unknown_ones_are_told(served: Any) -> None:
    trainer, _, told = served("SoccerTwos", 1)
    trainer.receive()
    numbers = {"ball_touch": 1.0, "gravity": 9.0}
    trainer.reset(side_channels.join(side_channels.parameter_message(n, v, 0) for n, v in numbers.items()))
    assert told == ["environment parameter ignored: SoccerTwos: no environment parameter 'gravity'; its only one is "
                    "'ball_touch'"]  # fmt: skip


class Weighing:
    """Matches of one decision. Agents see the weight with which theirs began, and are paid the present one."""

    spec = GameSpec.alike("Weighing", (ObservationSpec("obs_0", (1,)),), ActionSpec((Discrete(2),)))
    active, nobody = np.ones(1, np.bool_), np.zeros(1, np.bool_)

    def set_parameters(self, parameters: Any) -> None:
        self.weight = parameters["weight"]

    def reset(self, seed: int) -> None:
        self.begun = self.weight

    def observe(self, out: Any) -> None:
        out["obs_0"][:] = self.begun

    def step(self, actions: Any) -> GameStep:
        return GameStep(np.array([self.weight], np.float32), self.active, self.nobody, True)

    def close(self) -> None:
        pass


def test_what_is_drawn_for_a_match_is_there_when_it_begins(served: Any) -> None:
    weight = UniformSampler.model_validate({"sampler_type": "uniform", "sampler_parameters": {"seed": 4}})
    trainer, _, _ = served(lambda matches: Matches(Weighing, matches), 2)
    trainer.receive()
    said = trainer.reset(side_channels.join([side_channels.parameter_message("weight", weight, 0)]))
    begun, paid = list[float](), list[float]()
    for _ in range(4):
        for own in (info for info in said.rl_output.agentInfos["Weighing?team=0"].value if not info.done):
            begun += floats(own.observations[0].float_data.data, 1, "weight").tolist()
        said = trainer.send({"Weighing?team=0": [[0], [0]]})
        paid += [reward for _, _, reward, done, _ in infos(said)["Weighing?team=0"] if done]
    assert begun == paid and len(set(begun)) == 8


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({}, "actions for \\[\\]; expected them for"),
        ({"RescueToy?team=0": [[0]]}, "1 actions for"),
        ({"RescueToy?team=0": [[7], [7]]}, "discrete action \\[7\\]"),
        ({"Nobody?team=0": [[0]]}, "actions for \\['Nobody\\?team=0'\\]"),
    ],
)
def test_actions_that_nobody_asked_for_end_the_game_in_words(served: Any, answer: Any, found: str) -> None:
    trainer, end, _ = served("RescueToy", 1)
    trainer.receive()
    assert set(infos(trainer.reset())) == {"RescueToy?team=0"}
    trainer.listener.answer(_actions(answer))
    with pytest.raises(ProtocolError, match=f"the game ended the connection: .*{found}"):
        trainer.receive()
    with pytest.raises(ProtocolError, match=found):
        end()


def _actions(chosen: dict[str, list[list[int]]]) -> Any:
    said = message()
    said.unity_input.rl_input.command = 0
    for name, listed in chosen.items():
        for own in listed:
            said.unity_input.rl_input.agent_actions[name].value.add(discrete_actions=own)
    return said


def test_out_of_order_and_other_versions_end_the_game_in_words(served: Any) -> None:
    trainer, end, _ = served("RescueToy", 1, version="2.0.0")
    with pytest.raises(ProtocolError, match="ended the connection: the trainer speaks"):
        trainer.receive()
    with pytest.raises(ProtocolError, match=r"the trainer speaks communicator version '2\.0\.0'"):
        end()
    trainer, end, _ = served("RescueToy", 1)
    trainer.receive()
    trainer.listener.answer(_actions({}))
    with pytest.raises(ProtocolError, match="ended the connection: a step before the first reset"):
        trainer.receive()
    with pytest.raises(ProtocolError, match="a step before the first reset"):
        end()
    trainer, end, _ = served("RescueToy", 1)
    trainer.receive()
    trainer.listener.answer(message())
    with pytest.raises(ProtocolError, match="ended the connection: an answer without rl_input"):
        trainer.receive()
    with pytest.raises(ProtocolError, match="an answer without rl_input"):
        end()


def test_continuous_actions_are_stretched_to_the_game_s_limits() -> None:
    spec = BehaviorSpec(
        "B", (ObservationSpec("o", (1,)),), ActionSpec((Continuous(1, 0, 4), Discrete(3), Continuous(1)))
    )
    given = _actions({"B": [[2]]}).unity_input.rl_input.agent_actions["B"].value[0]
    given.continuous_actions = packed([0.5, 7.0])
    assert columns_of(spec, given).tolist() == [3.0, 2.0, 7.0]
    given.continuous_actions = packed([np.nan, 0])
    with pytest.raises(ProtocolError, match="finite"):
        columns_of(spec, given)


def test_goals_arrive_as_goals() -> None:
    shown = tuple(ObservationSpec(f"obs_{i}", (2,), goal=i == 1) for i in range(3))
    info = message().unity_output.rl_output.agentInfos["B"].value.add()
    for o in shown:
        info.observations.add().CopyFrom(observation_template(o))
    assert info.observations[1].observation_type == 1  # GOAL_SIGNAL
    assert observation_specs(info.observations) == shown


def test_launch_arguments_are_unity_s() -> None:
    given = ["-nographics", "-batchmode", "--mlagents-port", "5007", "-logFile", "game.log", "--level", "3"]
    assert parse_launch(given) == Launch(5007, Path("game.log"), ("--level", "3"))
    assert parse_launch([]).port == 5004
    with pytest.raises(ProtocolError, match="--mlagents-port 70000"):
        parse_launch(["--mlagents-port", "70000"])


def test_a_written_executable_plays_as_it_says_and_ends_with_its_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from palus.cli import app

    monkeypatch.chdir(tmp_path)
    log = tmp_path / "Player-0.log"
    written = CliRunner().invoke(app, ["unity-serve", "RescueToy", "--write-executable", "Rescue"])
    told = re.search(r"--env=(\S+)", written.output)
    assert written.exit_code == 0 and told is not None, written.output
    listener = Listener(0)  # started as ML-Agents does: without a shell, by the name that it was given
    game = subprocess.Popen([told[1], "-nographics", "--mlagents-port", str(listener.port), "-logFile", log])
    try:
        trainer = Trainer(listener)
        trainer.receive()
        assert infos(trainer.reset())
        trainer.listener.close()
        assert game.wait(60) == 0 and log.exists()
    finally:
        listener.close()
        game.kill()
        game.wait()
