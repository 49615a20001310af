"""A palus game as a Unity executable: asks the trainer for the actions of its agents, exchange by exchange.

A behavior id is `<behavior>?team=<team>`; a behavior without a name is called like the game. Agents and groups have
numbers of their own in every match, the same in all its episodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palus import __version__
from palus.config.environment import Value
from palus.envs.drawing import MatchParameters
from palus.envs.protocol import MultiAgentEnv, room_for
from palus.errors import EnvError, ProtocolError
from palus.types import MASKS, AnyArray, Bool, Step
from palus.unity import side_channels
from palus.unity.messages import (
    API_VERSION,
    CAPABILITIES,
    QUIT,
    RESET,
    check_version,
    message,
)
from palus.unity.translation import columns_of, describe_actions, numbers, observation_template
from palus.unity.wire import Dialer

EDITOR_PORT = 5004
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Launch:
    """What a trainer starts an executable with. ignored: arguments that mean nothing to a palus game."""

    port: int = EDITOR_PORT
    log_file: Path | None = None
    ignored: tuple[str, ...] = ()


def parse_launch(arguments: Sequence[str]) -> Launch:
    """Unity's arguments. Raises ProtocolError for a port that is none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--mlagents-port", type=int, default=EDITOR_PORT)
    parser.add_argument("-logFile", type=Path)
    for flag in ("-nographics", "-batchmode"):
        parser.add_argument(flag, action="store_true")
    try:
        found, ignored = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise ProtocolError(f"launch arguments {' '.join(arguments)}: {error}") from error
    if not 0 < found.mlagents_port < 1 << 16:
        raise ProtocolError(f"--mlagents-port {found.mlagents_port}: expected 1 to 65535")
    return Launch(found.mlagents_port, found.logFile, tuple(ignored))


@dataclass(frozen=True)
class _Kind:
    """The agents of one behavior id: columns [K] of the behavior's arrays, numbers [K] of agents in the game."""

    behavior: int
    columns: AnyArray
    agents: AnyArray


class ServedGame:
    """Turns steps of a game into messages and answers into actions."""

    def __init__(self, env: MultiAgentEnv, parameters: MatchParameters) -> None:
        """parameters: of its matches, drawn before the game begins the next one."""
        self.env, self._parameters = env, parameters
        spec, N = env.spec, env.num_matches
        self._kinds: dict[str, _Kind] = {}
        for b, behavior in enumerate(spec.behaviors):
            own = np.array(spec.agents_of(behavior.name))
            teams = np.array([spec.agents[p].team for p in own])
            for team in np.unique(teams).tolist():
                columns = np.flatnonzero(teams == team)
                self._kinds[f"{behavior.name or spec.env_id}?team={team}"] = _Kind(b, columns, own[columns])
        groups = [agent.group for agent in spec.agents]
        places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        self._groups = np.arange(N)[:, None] * len(places) + [places[g] + 1 for g in groups]
        self._seen = [room_for(b, N * len(spec.agents_of(b.name))) for b in spec.behaviors]
        self._actions = [
            np.zeros((N, len(spec.agents_of(b.name)), b.actions.columns), np.float32) for b in spec.behaviors
        ]
        self._templates = [[observation_template(o) for o in b.observations] for b in spec.behaviors]
        self._reward, self._group_reward = np.zeros((2, N, spec.num_agents), np.float32)
        self._announced: set[str] = set()
        self._asked: dict[str, tuple[AnyArray, AnyArray]] = {}  # matches and places of whoever waits for an action

    def reset(self, seed: int) -> Any:
        """Begin all matches anew; what the agents see then."""
        self.env.reset(np.arange(self.env.num_matches, dtype=np.int64) + seed)
        self._reward[:] = self._group_reward[:] = 0
        made = message()
        self._ask(made)
        return made

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Step]:
        """Play the answer, and on until there is news. actions: `UnityRLInputProto.agent_actions`.

        Returns the message, and the last step. Raises ProtocolError for actions that nobody asked for.
        """
        self._take(actions)
        made = message()
        while True:
            before = self.env.active.copy()
            step = self.env.step(self._actions)
            self._reward += step.reward
            self._group_reward += step.group_reward
            if step.match_over.any():
                self._parameters.begin(np.flatnonzero(step.match_over).tolist())
            ended = before & (step.terminated | step.truncated)
            if ended.any():
                self._end(made, ended, step.truncated)
            self._ask(made)
            if self._asked or ended.any():
                return made, step

    def _end(self, made: Any, ended: Bool, truncated: Bool) -> None:
        """Tell whose episode is over, with what they saw last."""
        rows_of = self._rows(ended & truncated)
        for behavior, rows, seen in zip(self.env.spec.behaviors, rows_of, self._seen, strict=True):
            if (rows >= 0).any():
                self.env.observe_final(behavior.name, rows, {n: a for n, a in seen.items() if n != MASKS})
        for name, kind in self._kinds.items():
            matches, places = np.nonzero(ended[:, kind.agents])
            for n, k in zip(matches.tolist(), places.tolist(), strict=True):
                info = self._info(made, name, kind, n, k)
                info.done, info.max_step_reached = True, bool(truncated[n, kind.agents[k]])

    def _ask(self, made: Any) -> None:
        """Ask for the actions of all who decide now."""
        active = self.env.active
        for behavior, rows, seen in zip(self.env.spec.behaviors, self._rows(active), self._seen, strict=True):
            if (rows >= 0).any():
                self.env.observe(behavior.name, rows, seen)
        active, self._asked = self.env.active, {}
        for name, kind in self._kinds.items():
            matches, places = np.nonzero(active[:, kind.agents])
            if len(matches):
                self._asked[name] = matches, places
            masks = self._seen[kind.behavior].get(MASKS)
            for n, k in zip(matches.tolist(), places.tolist(), strict=True):
                info = self._info(made, name, kind, n, k)
                if masks is not None:
                    width = self._actions[kind.behavior].shape[1]
                    info.action_mask = (~masks[n * width + kind.columns[k]]).tobytes()
        self._announce(made)

    def _announce(self, made: Any) -> None:
        """Describe the behaviors that speak for the first time."""
        for name in made.unity_output.rl_output.agentInfos:
            if name in self._announced:
                continue
            self._announced.add(name)
            actions = self.env.spec.behaviors[self._kinds[name].behavior].actions
            brain = made.unity_output.rl_initialization_output.brain_parameters.add(brain_name=name, is_training=True)
            describe_actions(brain, actions)

    def _rows(self, wanted: Bool) -> list[AnyArray]:
        """By behavior, [N, P_b] int32: the row of each agent that is wanted, else -1."""
        found = []
        for behavior in self.env.spec.behaviors:
            own = wanted[:, self.env.spec.agents_of(behavior.name)]
            found.append(np.where(own, np.arange(own.size).reshape(own.shape), -1).astype(np.int32))
        return found

    def _info(self, made: Any, name: str, kind: _Kind, n: int, k: int) -> Any:
        """What there is to say of an agent; its rewards begin anew."""
        p, spec = int(kind.agents[k]), self.env.spec
        info = made.unity_output.rl_output.agentInfos[name].value.add(
            id=n * spec.num_agents + p,
            group_id=int(self._groups[n, p]),
            reward=self._reward[n, p],
            group_reward=self._group_reward[n, p],
        )
        self._reward[n, p] = self._group_reward[n, p] = 0
        seen, row = self._seen[kind.behavior], n * self._actions[kind.behavior].shape[1] + int(kind.columns[k])
        observations = spec.behaviors[kind.behavior].observations
        for template, observation in zip(self._templates[kind.behavior], observations, strict=True):
            told = info.observations.add()
            told.CopyFrom(template)
            told.float_data.data = numbers(seen[observation.name][row])
        return info

    def _take(self, actions: Mapping[str, Any]) -> None:
        """Write the trainer's answer where the game reads it."""
        given = {name for name, listed in actions.items() if len(listed.value)}
        if given != self._asked.keys():
            raise ProtocolError(f"actions for {sorted(given)}; expected them for {sorted(self._asked)}")
        for name, (matches, places) in self._asked.items():
            kind, listed = self._kinds[name], actions[name].value
            if len(listed) != len(matches):
                raise ProtocolError(f"{len(listed)} actions for {name}; expected {len(matches)}, one for each decision")
            spec = self.env.spec.behaviors[kind.behavior]
            self._actions[kind.behavior][matches, kind.columns[places]] = [columns_of(spec, own) for own in listed]


class _Parameters:
    """Environment parameters as the trainer set them; those with samplers are drawn for each match as it begins."""

    def __init__(self, env: MultiAgentEnv, tell: Tell) -> None:
        self.matches = MatchParameters(env)
        self._tell, self._known, self._refused = tell, dict[str, Value](), set[str]()

    def take(self, data: bytes) -> None:
        """Obey what came beside an answer. The engine's configuration has nothing to act upon here."""
        for channel, payload in side_channels.split(data):
            if channel == side_channels.PARAMETERS:
                self._set(*side_channels.read_parameter(payload))
            elif channel not in (side_channels.ENGINE, side_channels.ANALYTICS):
                self._tell(f"side channel {channel} is not known here; its message is ignored")

    def _set(self, name: str, value: Value) -> None:
        if name in self._refused:
            return
        try:
            self.matches.change({**self._known, name: value})
            self._known[name] = value
        except EnvError as error:  # a Unity game does not notice numbers that it does not read
            self._refused.add(name)
            self._tell(f"environment parameter ignored: {error}")
            self.matches.change(self._known)


def serve(make: Callable[[int], MultiAgentEnv], num_matches: int, port: int, timeout_s: float, tell: Tell) -> None:
    """Play a game for the trainer on a port of this machine until the trainer ends it.

    make: number of matches -> the game; `num_matches` of them for each training area that the trainer asks for. tell:
    gets a sentence for whatever is ignored. timeout_s: how long to wait for a trainer to listen.
    Raises ProtocolError when there is none, when it is gone, and for everything that the protocol does not have.
    """
    with closing(Dialer(port, timeout_s)) as dialer:
        try:
            _introduce(dialer, make, num_matches, tell)
        except BaseException as error:
            dialer.farewell(str(error) or type(error).__name__)
            raise


def _introduce(dialer: Dialer, make: Callable[[int], MultiAgentEnv], num_matches: int, tell: Tell) -> None:
    """Shake hands, make the game, play it."""
    answer = dialer.exchange(_introduction())
    if answer is None:
        raise ProtocolError("the trainer ended the connection at once; its log says why")
    if not answer.unity_input.HasField("rl_initialization_input"):
        raise ProtocolError("the trainer's first answer is no initialization; expected rl_initialization_input")
    told = answer.unity_input.rl_initialization_input
    check_version(told.communication_version, "the trainer")
    with closing(make(num_matches * max(told.num_areas, 1))) as env:
        parameters = _Parameters(env, tell)
        _play(dialer, ServedGame(env, parameters.matches), told.seed, parameters)


def _play(dialer: Dialer, game: ServedGame, seed: int, parameters: _Parameters) -> None:
    env, resets, said = game.env, 0, message()
    while (answer := dialer.exchange(said)) is not None:
        if not answer.unity_input.HasField("rl_input"):
            raise ProtocolError("an answer without rl_input; expected a step or a reset")
        told = answer.unity_input.rl_input
        parameters.take(told.side_channel)
        if told.command == QUIT:
            return
        if told.command == RESET:
            parameters.matches.restart([(resets, n) for n in range(env.num_matches)])
            said = game.reset((seed << 20) + resets * env.num_matches)
            resets += 1
            continue
        if not resets:
            raise ProtocolError("a step before the first reset; expected a reset")
        said, step = game.step(told.agent_actions)
        figures = [own for agents in step.stats.values() for own in agents.values()]
        said.unity_output.rl_output.side_channel = side_channels.join(
            m for own in figures for m in side_channels.statistics_messages(own)
        )


def _introduction() -> Any:
    made = message()
    told = made.unity_output.rl_initialization_output
    told.name, told.communication_version, told.package_version = "AcademySingleton", API_VERSION, __version__
    for capability in CAPABILITIES:
        setattr(told.capabilities, capability, True)
    return made
