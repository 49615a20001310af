"""The trainer's side of one Unity game: starts or awaits it, discovers its behaviors, exchanges news for actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from palus import __version__
from palus.config.run_file import EDITOR, EngineSettings, EnvSettings
from palus.errors import ClosedGameError, LostGameError, ProtocolError, StoppedEarly
from palus.files import make_folder
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Bool
from palus.unity import side_channels
from palus.unity.analytics import Analytics
from palus.unity.executable import Executable, find_executable
from palus.unity.messages import (
    API_VERSION,
    CAPABILITIES,
    RESET,
    STEP,
    bools,
    check_version,
    message,
    packed,
)
from palus.unity.news import News, Steps, behavior_of, enter, never
from palus.unity.serving import EDITOR_PORT
from palus.unity.translation import action_spec, observation_of, observation_specs
from palus.unity.wire import Listener

ENDING_S = 1.0
"""How long an executable may take to end that broke off, or was silent when a person wanted to stop."""
MAX_AGENTS = 1 << 16
"""The most agents of one behavior that a message may tell of."""


class UnityEnv:
    """One game, in an executable of its own or in the Editor. `send` and `receive` take turns."""

    def __init__(
        self,
        settings: EnvSettings,
        engine: EngineSettings,
        worker: int = 0,
        *,
        seed: int = 0,
        log_folder: Path | None = None,
        show: bool = False,
        analytics: Analytics | None = None,
        tell: Callable[[str], object] = str,
    ) -> None:
        """Start the game and shake hands. analytics: of the run, for a game that listens. tell: is told that the
        Editor is waited for.

        Raises EnvError when it cannot be started, StorageError without a place for its log, ProtocolError for what it
        says.
        """
        self._settings, self._engine, self._analytics = settings, engine, analytics
        self._introduced: set[str] = set()  # behaviors that analytics were told of
        self.behaviors: dict[str, BehaviorSpec] = {}
        self._executable: Executable | None = None
        self._patience_s: float = settings.timeout_wait  # with an executable that is to end
        self._asked: dict[str, int] = {}  # behavior id -> decisions that wait
        self.waits = False  # whether the game waits for an answer
        self._is_known = False  # to analytics
        given = settings.env_path
        path = None if given is None or given == EDITOR else find_executable(given)
        port = settings.base_port + worker if settings.base_port else 0
        self._listener = Listener(port) if path is not None else _for_the_editor()
        try:
            if path is not None:
                if log_folder is not None:
                    make_folder(log_folder, "--results-dir")
                self._executable = Executable(
                    path,
                    self._listener.port,
                    None if log_folder is None else log_folder / f"Player-{worker}.log",
                    no_graphics=engine.no_graphics or (engine.no_graphics_monitor and worker > 0),
                    arguments=settings.env_args or (),
                    show=show,
                )
            else:
                tell(
                    f"Listening on port {EDITOR_PORT}. Start training by pressing the Play button in the Unity Editor."
                )
            self._shake_hands((seed + worker) % 2**31)  # as much as the message holds
        except BaseException:
            self.kill()
            raise

    def _hear(self, stopped: Callable[[], bool] = never) -> Any:
        def check() -> None:
            if stopped():
                self._patience_s = ENDING_S
                raise StoppedEarly
            if self._executable:
                self._executable.check()

        with self._better_reason():
            return self._listener.receive(self._settings.timeout_wait, check)

    @contextmanager
    def _better_reason(self) -> Iterator[None]:
        """An executable that has ended says why the game was lost, beside what the game said of it."""
        try:
            yield
        except LostGameError as error:
            if self._executable:
                try:
                    self._executable.check(ENDING_S)
                except LostGameError as ended:
                    if not isinstance(error, ClosedGameError):
                        raise
                    raise ClosedGameError(f"{error}. {ended}") from ended
            raise

    def _shake_hands(self, seed: int) -> None:
        said = self._hear().unity_output
        if not said.HasField("rl_initialization_output"):
            self._refuse("the first message is no initialization; expected rl_initialization_output")
        told = said.rl_initialization_output
        try:
            check_version(told.communication_version, "the game")
        except ProtocolError as error:
            self._refuse(str(error))
        if not told.capabilities.trainingAnalytics:
            self._analytics = None
        self.package_version, self.communication_version = told.package_version, told.communication_version
        made = message()
        answer = made.unity_input.rl_initialization_input
        answer.seed, answer.num_areas = seed, self._settings.num_areas
        answer.communication_version, answer.package_version = API_VERSION, __version__
        for capability in CAPABILITIES:
            setattr(answer.capabilities, capability, True)
        self._listener.answer(made)
        if self._hear().HasField("unity_output"):
            self._refuse("observations before the first reset; expected an empty message")
        self.waits = True

    def _refuse(self, reason: str) -> None:
        self._listener.refuse(reason)
        raise ProtocolError(reason)

    def reset(self, parameters: Mapping[str, Any], seed: int) -> None:
        """Let all episodes begin anew. parameters: name -> number or sampler; seed: of samplers without one."""
        if not self.waits:
            self.receive()  # what came of the last actions, which nobody wants to know
        messages = [*side_channels.engine_messages(self._engine), *self._parameters(parameters, seed)]
        if self._analytics is not None and not self._is_known:
            messages.append((side_channels.ANALYTICS, self._analytics.environment()))
        self._is_known = True
        self._send(RESET, {}, messages)

    def send(self, actions: Mapping[str, F32], parameters: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        """Answer the latest news. actions: behavior id -> [n, A] in the order of its decisions."""
        known = self.behaviors
        expected = {name: (count, known[name].actions.columns) for name, count in self._asked.items()}
        assert {name: own.shape for name, own in actions.items()} == expected, f"expected {expected}"
        self._send(STEP, actions, [*self._parameters(parameters or {}, seed), *self._introductions()])

    def _introductions(self) -> Iterator[tuple[Any, bytes]]:
        """Analytics of behaviors that have appeared."""
        names = {behavior_of(name)[0] for name in self.behaviors} if self._analytics is not None else set()
        for name in sorted(names - self._introduced):
            self._introduced.add(name)
            told = self._analytics.behavior(name) if self._analytics is not None else None
            if told is not None:
                yield side_channels.ANALYTICS, told

    def _parameters(self, parameters: Mapping[str, Any], seed: int) -> Iterable[tuple[Any, bytes]]:
        return [side_channels.parameter_message(name, value, seed) for name, value in parameters.items()]

    def _send(self, command: int, actions: Mapping[str, F32], messages: Iterable[tuple[Any, bytes]]) -> None:
        made = message()
        told = made.unity_input.rl_input
        told.command, told.side_channel = command, side_channels.join(messages)
        for name, own in actions.items():
            spec = self.behaviors[name].actions
            size = spec.columns - len(spec.branches)
            listed = told.agent_actions[name].value
            continuous = np.clip(own[:, :size], -1, 1)
            for numbers, chosen, both in zip(
                continuous, own[:, size:].astype(np.int64).tolist(), np.concatenate([continuous, own[:, size:]], 1),
                strict=True,
            ):  # fmt: skip
                listed.add(
                    continuous_actions=packed(numbers), discrete_actions=chosen, vector_actions_deprecated=packed(both)
                )
        self.waits = False
        with self._better_reason():
            self._listener.answer(made)

    def receive(self, stopped: Callable[[], bool] = never) -> News:
        """As `TalkingGame.receive`. Raises ProtocolError when it breaks the protocol, is silent or gone."""
        said = self._hear(stopped).unity_output
        try:
            if not said.HasField("rl_output"):
                raise ProtocolError("a message without rl_output; expected what the agents see")
            found = self._read(said)
        except ProtocolError as error:
            self._listener.refuse(str(error))
            raise
        self.waits = True
        return found

    def _read(self, said: Any) -> News:
        brains = {brain.brain_name: brain for brain in said.rl_initialization_output.brain_parameters}
        ends: dict[str, Steps] = {}
        decisions: dict[str, Steps] = {}
        for name, listed in said.rl_output.agentInfos.items():
            infos = list(listed.value)
            if not infos:
                continue
            if name not in self.behaviors:
                if name not in brains:
                    raise ProtocolError(f"agents of {name} before its brain_parameters")
                enter(self.behaviors, name, _spec(name, brains[name], infos[0]))
            if len(infos) > MAX_AGENTS:
                raise ProtocolError(f"{len(infos)} agents of {name} in one message; expected {MAX_AGENTS} at most")
            spec = self.behaviors[name]
            for done, found in ((True, ends), (False, decisions)):
                own = [info for info in infos if info.done == done]
                if own:
                    found[name] = _steps(name, spec, own, masks=not done)
        self._asked = {name: len(own) for name, own in decisions.items()}
        told = list(side_channels.split(said.rl_output.side_channel))
        statistics = [side_channels.read_statistic(data) for c, data in told if c == side_channels.STATISTICS]
        strange = dict.fromkeys(str(channel) for channel, _ in told if channel not in side_channels.CHANNELS)
        return News(ends, decisions, tuple(statistics), tuple(strange))

    def close(self) -> bool:
        """End the game; whether it ended by itself in time. Calling it twice does no harm."""
        self._listener.close()
        executable, self._executable = self._executable, None
        return executable is None or executable.wait(self._patience_s)

    def kill(self) -> None:
        """End the game at once."""
        self._listener.close()
        if self._executable:
            self._executable.wait(0.0)


def _for_the_editor() -> Listener:
    """Raises ProtocolError where the Editor's port is taken."""
    try:
        return Listener(EDITOR_PORT)
    except ProtocolError as error:
        raise ProtocolError(
            f"port {EDITOR_PORT} is taken, perhaps by another training: end it, for Unity's Editor speaks there only"
        ) from error


def _spec(name: str, brain: Any, example: Any) -> BehaviorSpec:
    """Raises ProtocolError for a behavior that no policy can play."""
    try:
        return BehaviorSpec(behavior_of(name)[0], observation_specs(example.observations), action_spec(brain))
    except ValueError as error:
        raise ProtocolError(f"behavior {name}: {error}") from error


def _steps(name: str, spec: BehaviorSpec, infos: list[Any], *, masks: bool) -> Steps:
    n = len(infos)
    seen: dict[str, AnyArray] = {}
    for info in infos:
        if len(info.observations) != len(spec.observations):
            raise ProtocolError(f"{len(info.observations)} observations of {name}; expected {len(spec.observations)}")
    for i, observation in enumerate(spec.observations):
        what = f"{observation.name} of {name}"
        rows = [observation_of(info.observations[i], observation, what) for info in infos]
        seen[observation.name] = np.stack(rows).reshape(n, *observation.shape).astype(np.float32)
    if masks and spec.actions.masked:
        seen[MASKS] = np.stack([_allowed(info.action_mask, sum(spec.branches), name) for info in infos])
    numbers = np.array([(info.reward, info.group_reward) for info in infos], np.float32)
    agents, groups = (np.array([getattr(info, key) for info in infos], np.int64) for key in ("id", "group_id"))
    truncated = np.array([info.max_step_reached for info in infos], np.bool_)
    return Steps(seen, numbers[:, 0], numbers[:, 1], agents, groups, truncated).checked(name)


def _allowed(mask: bytes, size: int, name: str) -> Bool:
    """A mask of another length forbids nothing, as in ML-Agents."""
    allowed: Bool = ~bools(mask, f"action mask of {name}") if len(mask) == size else np.ones(size, np.bool_)
    return allowed
