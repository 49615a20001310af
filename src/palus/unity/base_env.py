"""An object in this process with the interface of `mlagents_envs`' BaseEnv, as a game that talks.

Only its methods are asked for, no class is imported: `reset`, `step`, `behavior_specs`, `get_steps`, `set_actions`,
`close`, and of an action spec `continuous_size`, `discrete_branches` and `empty_action`, which makes the actions.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import numpy as np

from palus.config.environment import Value
from palus.errors import EnvError, LostGameError, PalusError, ProtocolError
from palus.trust import Trust, load
from palus.types import F32, MASKS, AnyArray, BehaviorSpec
from palus.unity.news import News, Steps, actions_of, behavior_of, enter, never
from palus.unity.side_channels import PARAMETERS, STATISTICS, parameter_message, read_statistic
from palus.unity.translation import observation_specs

LOST = {
    "UnityCommunicationException", "UnityCommunicatorStoppedException", "UnityEnvironmentException",
    "UnityTimeOutException",
}  # fmt: skip
"""Exceptions, by name, after which ML-Agents starts another environment."""


class Channel:
    """A side channel as environments take them. message_queue: for the game, which empties it; heard: from it."""

    def __init__(self, channel_id: UUID) -> None:
        self.channel_id, self.message_queue, self.heard = channel_id, list[bytes](), list[bytes]()

    def on_message_received(self, message: Any) -> None:
        """The game speaks. message: with `get_raw_bytes`."""
        self.heard.append(bytes(message.get_raw_bytes()))


class BaseEnvGame:
    """A `palus.unity.news.TalkingGame` around an environment. name: of it, for sentences.

    parameters, statistics: the channels that it was made with, if any.
    """

    def __init__(
        self, env: Any, name: str = "", parameters: Channel | None = None, statistics: Channel | None = None
    ) -> None:
        self._env, self._name, self._parameters = env, name or type(env).__name__, parameters
        self._statistics = statistics or Channel(STATISTICS)
        self.behaviors: dict[str, BehaviorSpec] = {}
        self.waits, self._open = True, True

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Say in one sentence what an environment raises, and where."""
        try:
            yield
        except PalusError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{self._name}: {what} raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
            known = {kind.__name__ for kind in type(error).__mro__}
            raise (LostGameError if known & LOST else ProtocolError)(text) from error

    def _tell(self, parameters: Mapping[str, Value], seed: int) -> None:
        if self._parameters is not None:
            told = [parameter_message(name, value, seed)[1] for name, value in parameters.items()]
            self._parameters.message_queue.extend(told)
        elif parameters:
            raise EnvError(
                f"{self._name} has no environment parameters; found {', '.join(sorted(parameters))}. Its factory hears "
                "of them where it has a parameter side_channels"
            )

    def reset(self, parameters: Mapping[str, Value], seed: int) -> None:
        """As `TalkingGame.reset`."""
        self._tell(parameters, seed)
        with self._asked("reset"):
            self._env.reset()
        self.waits = False

    def send(self, actions: Mapping[str, F32], parameters: Mapping[str, Value] | None = None, seed: int = 0) -> None:
        """As `TalkingGame.send`."""
        self._tell(parameters or {}, seed)
        with self._asked("step"):
            for name, own in actions.items():
                spec = self._env.behavior_specs[name].action_spec
                size, made = int(spec.continuous_size), spec.empty_action(len(own))
                made.add_continuous(np.clip(own[:, :size], -1, 1).astype(np.float32))
                made.add_discrete(own[:, size:].astype(np.int32))
                self._env.set_actions(name, made)
            self._env.step()
        self.waits = False

    def receive(self, stopped: Callable[[], bool] = never) -> News:
        """As `TalkingGame.receive`; it is never silent."""
        ends, decisions = dict[str, Steps](), dict[str, Steps]()
        with self._asked("get_steps"):
            for name, spec in dict(self._env.behavior_specs).items():
                deciding, ended = self._env.get_steps(name)
                if len(deciding) + len(ended) and name not in self.behaviors:
                    enter(self.behaviors, name, _behavior(name, spec))
                for found, steps in ((decisions, deciding), (ends, ended)):
                    if len(steps):
                        found[name] = _steps(name, self.behaviors[name], steps)
        heard, self._statistics.heard = self._statistics.heard, []
        self.waits = True
        return News(ends, decisions, tuple(map(read_statistic, heard)))

    def close(self) -> bool:
        """As `TalkingGame.close`."""
        if self._open:
            self._open = False
            with self._asked("close"):
                self._env.close()
        return True

    def kill(self) -> None:
        """As `TalkingGame.kill`; what it raises now says nothing new."""
        with suppress(ProtocolError):
            self.close()


def _behavior(name: str, told: Any) -> BehaviorSpec:
    try:
        seen = observation_specs(told.observation_specs)
        actions = actions_of(int(told.action_spec.continuous_size), tuple(told.action_spec.discrete_branches))
        return BehaviorSpec(behavior_of(name)[0], seen, actions)
    except ValueError as error:
        raise ProtocolError(f"behavior {name}: {error}") from error


def _steps(name: str, spec: BehaviorSpec, told: Any) -> Steps:
    """told: DecisionSteps, or TerminalSteps, which say whether agents were interrupted."""
    n, ended = len(told), hasattr(told, "interrupted")
    if len(told.obs) != len(spec.observations):
        raise ProtocolError(f"{len(told.obs)} observations of {name}; expected {len(spec.observations)}")
    seen: dict[str, AnyArray] = {}
    for observation, values in zip(spec.observations, told.obs, strict=True):
        seen[observation.name] = np.asarray(values, np.float32)
        if seen[observation.name].shape != (n, *observation.shape):
            found = seen[observation.name].shape
            raise ProtocolError(f"{observation.name} of {name}: shape {found}; expected {(n, *observation.shape)}")
    if spec.actions.masked and not ended:
        forbidden = np.zeros((n, sum(spec.branches)), np.bool_)
        if told.action_mask is not None:
            forbidden = np.concatenate([np.asarray(mask, np.bool_).reshape(n, -1) for mask in told.action_mask], 1)
        if forbidden.shape != (n, sum(spec.branches)):
            raise ProtocolError(f"action mask of {name}: {forbidden.shape[1]} choices; expected {sum(spec.branches)}")
        seen[MASKS] = ~forbidden
    reward, group_reward = np.asarray(told.reward, np.float32), np.asarray(told.group_reward, np.float32)
    agents, groups = np.asarray(told.agent_id, np.int64), np.asarray(told.group_id, np.int64)
    truncated = np.asarray(told.interrupted, np.bool_) if ended else np.zeros(n, np.bool_)
    return Steps(seen, reward, group_reward, agents, groups, truncated).checked(name)


def make(options: Mapping[str, Any], trust: Trust, seed: int) -> Callable[[int], BaseEnvGame]:
    """What makes the game of a worker, by its number. options: `factory`, which is `module:name` of what makes an
    environment, and its keywords.

    It is given `worker_id`, `seed` and `side_channels` too where it has parameters of these names.
    Raises EnvError where there is no such factory, TrustError; what comes back, EnvError where the factory refuses.
    """
    given = {name: value for name, value in options.items() if name != "factory"}
    path = str(options.get("factory"))
    try:
        factory = load(path, trust, f"palus.env_options.factory {path}")
        known = inspect.signature(factory).parameters
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise EnvError(f"palus.env_options.factory {path}: {error}; name what makes it, module:name") from error

    def start(worker: int) -> BaseEnvGame:
        parameters, statistics = Channel(PARAMETERS), Channel(STATISTICS)
        ours = {"worker_id": worker, "seed": seed + worker, "side_channels": [parameters, statistics]}
        keywords = {name: value for name, value in ours.items() if name in known} | given
        try:
            env = factory(**keywords)
        except TypeError as error:
            raise EnvError(f"{path} refuses the options {sorted(keywords)}: {error}") from error
        return BaseEnvGame(env, path.partition(":")[2], *([parameters, statistics] if "side_channels" in known else []))

    return start
