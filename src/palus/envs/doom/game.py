"""A Doom environment as a `palus.envs.game.Game`: engines, pictures, rewards and ends put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from palus.envs.doom.engine import GRACE_S, Engine, EngineFault, EngineStuckError, start_engine
from palus.envs.doom.multiplayer import NetworkGame, free_port
from palus.envs.doom.observations import SIZE, Measurements, Nearest, halve, side_by_side
from palus.envs.doom.player import DoomPlayer, EngineSeat
from palus.envs.doom.rewards import CELLS, tunable
from palus.envs.doom.scenarios import ENVIRONMENTS, TICS_PER_SECOND, DoomEnvironment, find_wad
from palus.envs.game import GameStep, points_of
from palus.errors import EnvError
from palus.threads import DaemonThreads
from palus.types import F32, AnyArray, Bool, GameSpec, ObservationSpec

SEED_BITS = (1 << 31) - 1
NETWORK_ATTEMPTS = 3
LOOK_S = 1.0
"""Between two looks whether engines are alive that a call waits for."""
T = TypeVar("T")

Pixels = Annotated[int, Field(ge=1, le=2048)]
Seats = Annotated[int, Field(ge=0, le=16)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
MapName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
"""A name in the scenario folders, never a path: run files come from anywhere, and the engine trusts its maps."""


class DoomGame:
    """P agents in one Doom game, each with an engine of its own. Engines start at the first reset.

    Set `recorder` to a function to have every tic's picture, [height, width, 3] uint8, for a video of 35 frames a
    second; rewards stay as they are, and pictures but for the face in the status bar, which is drawn by chance.
    """

    def __init__(self, env_id: str, environment: DoomEnvironment, wad: Path) -> None:
        self.env_id, self.environment = env_id, environment
        self.spec = _spec(env_id, environment)
        self.active: Bool = np.ones(environment.agents, np.bool_)
        self.recorder: Callable[[AnyArray], None] | None = None
        self.shaping = np.tile([number for _, number in self.spec.shaping], (environment.agents, 1))
        self._wad = wad
        self._players: list[DoomPlayer] = []
        self._threads = DaemonThreads("doom") if environment.agents > 1 else None
        self._at_work: set[int] = set()
        self._nearest = Nearest(environment.drawn, environment.resolution)
        self._measurements = Measurements(environment.scenario.variables) if environment.measurements else None
        self._pressed: dict[bytes, list[float]] = {}
        self._decisions = 0
        self._reward = np.zeros(environment.agents, np.float32)
        self._nobody: Bool = np.zeros(environment.agents, np.bool_)
        self._goes_on = GameStep(self._reward, self._nobody, self._nobody, False)

    def reset(self, seed: int) -> None:
        """Start a new episode; single-player episodes repeat for the same seed. Raises EnvError: an engine is lost."""
        if not self._players:
            self._start(seed)
        self._together(lambda i: self._players[i].begin((seed + i) & SEED_BITS))
        self._decisions = 0
        self._record()

    def observe(self, out: Mapping[str, AnyArray]) -> None:
        """Write pictures, and measurements where the environment has them."""
        for i, player in enumerate(self._players):
            if self.environment.average:
                halve(player.screen, out["obs"][i])
            else:
                self._nearest.write(player.screen, out["obs"][i])
            if self._measurements:
                self._measurements.write(player.variables, out["measurements"][i])

    def observe_final(self, out: Mapping[str, AnyArray]) -> None:
        """The same; where the engine itself ended the episode, it shows no more than the picture before the end."""
        self.observe(out)

    def step(self, actions: F32) -> GameStep:
        """Hold the buttons for `frameskip` tics. Raises EnvError when an engine is lost."""
        presses = [self._press(action) for action in actions]
        players, tics, first = self._players, self.spec.frameskip, self._decisions == 0
        for player in players:
            player.reward = 0.0

        def play(i: int) -> None:
            players[i].advance(presses[i], tics)
            players[i].conclude(first)

        if self.recorder is None:
            self._together(play)
        else:
            for _ in range(tics):
                self._together(lambda i: players[i].advance(presses[i], 1))
                self._together(lambda i: players[i].look())
                self._record()
            self._together(lambda i: players[i].conclude(first))
        self._decisions += 1
        return self._result()

    def _result(self) -> GameStep:
        """Agents of a game end together."""
        over, scale, limit = False, self.environment.reward_scale, self.environment.limit
        for i, player in enumerate(self._players):
            self._reward[i] = player.reward * scale
            over = over or player.finished
        length = self._decisions * self.spec.frameskip
        late = 0 < limit <= length
        if not (over or late):
            return self._goes_on
        timed_out = all(player.timed_out for player in self._players)
        cut_by_engine = timed_out and (self.environment.limit > 0 or self.environment.timeout_truncates)
        ends = self._nobody, ~self._nobody
        truncated = cut_by_engine or not over
        stats = {i: {"len": float(length), **player.stats()} for i, player in enumerate(self._players)}
        points = points_of([stats[i]["frags"] for i in stats]) if len(self._players) > 1 else ()
        return GameStep(self._reward, ends[not truncated], ends[truncated], True, stats, points)

    def render(self) -> AnyArray:
        """The engine's picture as it is drawn, without resizing; all players' in one."""
        if not self._players:
            raise EnvError(f"{self.env_id} has no picture before its first reset")
        return side_by_side([player.screen for player in self._players])

    def kill(self) -> None:
        """End the engines at once, from any thread: a call that waits for them then raises EnvError, with one agent
        unless its engine held the lock of its message queue (see `Engine.kill`)."""
        for player in self._players:
            player.engine.kill()

    def close(self) -> None:
        """End the engines and threads."""
        self._stop()
        if self._threads:
            self._threads.close()

    def _record(self) -> None:
        if self.recorder:
            self.recorder(self.render())

    def _press(self, action: F32) -> list[float]:
        key = action.tobytes()
        pressed = self._pressed.get(key)
        if pressed is None:
            pressed = self.environment.layout.press(action)
            if self.spec.behaviors[0].actions.is_discrete:
                self._pressed[key] = pressed
        return pressed

    def _start(self, seed: int) -> None:
        """Start all engines; a network game as a whole, again with another port when it does not come together."""
        for attempt in range(1, NETWORK_ATTEMPTS + 1):
            try:
                self._start_once(seed)
                return
            except EnvError:
                # A game for one has no port that somebody else could have taken; its engine has had its attempts.
                if attempt == NETWORK_ATTEMPTS or not self.environment.is_network_game:
                    raise

    def _start_once(self, seed: int) -> None:
        environment = self.environment
        network = NetworkGame(environment, free_port()) if environment.is_network_game else None
        engines: list[Engine] = []

        def start(i: int) -> DoomPlayer:
            seat = EngineSeat(environment, self._wad, network, i)
            engines.append(start_engine(lambda: seat.build((seed + i) & SEED_BITS), self.env_id))
            return DoomPlayer(seat, engines[-1], self.shaping[i])

        try:
            self._players = self._run(start)
        except BaseException:
            for engine in engines:
                engine.close()
            raise

    def _run(self, call: Callable[[int], T]) -> list[T]:
        """Call for every agent at once: engines of a network game wait for each other."""
        if self._threads is None:
            return [call(0)]
        calls = [self._threads.submit(self._call, call, i) for i in range(self.environment.agents)]
        if not self._all_return(calls):  # one failed: its partners would wait for it
            for player in self._players:
                player.engine.kill()
            wait(calls, timeout=GRACE_S if self._players else None)  # a start has limits of its own
        returned = [call for call in calls if call.done()]
        lost = [error for call in returned if (error := call.exception()) is not None]
        if lost:
            raise lost[0]
        if len(returned) < len(calls):
            raise EngineStuckError("its process ended in the middle of a message")
        return [call.result() for call in calls]

    def _all_return(self, calls: Sequence[Future[T]]) -> bool:
        """Wait for calls to engines; False once one has failed, or its engine is dead: who died with the lock of the
        message queue in hand is waited for without an end."""
        while True:
            done, waiting = wait(calls, timeout=LOOK_S, return_when=FIRST_EXCEPTION)
            if not waiting:
                return True
            if any(call.exception() for call in done) or any(player.engine.is_dead for player in self._players):
                return False

    def _call(self, call: Callable[[int], T], i: int) -> T:
        at_work = self._at_work
        at_work.add(i)
        try:
            return call(i)
        finally:
            at_work.discard(i)

    def _together(self, call: Callable[[int], None]) -> None:
        try:
            self._run(call)
        except EngineFault as error:
            self._stop()
            raise EnvError(
                f"an engine of {self.env_id} is lost in decision {self._decisions}: {error}; the next reset starts anew"
            ) from error

    def _stop(self) -> None:
        for i, player in enumerate(self._players):
            if i in self._at_work:  # given up: it waits for ever, and may not lose the memory that it waits in
                player.engine.kill()
            else:
                player.engine.close()
        self._players, self._at_work = [], set()


def _spec(env_id: str, environment: DoomEnvironment) -> GameSpec:
    observations = [ObservationSpec("obs", (3, *environment.resolution), "uint8")]
    if environment.measurements:
        observations.append(ObservationSpec("measurements", (SIZE,)))
    return GameSpec.alike(
        env_id,
        tuple(observations),
        environment.layout.spec,
        environment.agents,
        frameskip=environment.frameskip,
        fps=TICS_PER_SECOND,
        shaping=tunable(environment.scheme or {}, environment.scenario.variables),
    )


def make(
    env_id: str,
    *,
    frameskip: Annotated[int, Field(ge=1, le=1000)] | None = None,
    resolution: tuple[Pixels, Pixels] | None = None,
    wide: bool | None = None,
    average: bool | None = None,
    measurements: bool | None = None,
    reward_scale: Finite | None = None,
    timelimit: Annotated[float, Field(gt=0, le=1440)] | None = None,
    timeout_truncates: bool | None = None,
    num_agents: Seats | None = None,
    num_bots: Seats | None = None,
    wad: MapName | None = None,
    shaping: Mapping[str, tuple[Finite, Finite]] | None = None,
) -> DoomGame:
    """A game of `ENVIRONMENTS`; None keeps what `DoomEnvironment` says. No engine starts before the first reset.

    wad: another map for the same rules, a file of the scenario folders. measurements: whether those of the
    game's variables that `Measurements` knows are a second observation. shaping: variable -> [reward per unit of rise,
    per unit of drop], on top of the environment's scheme; `CELLS` counts the squares visited.
    Raises ScenarioError when the map is missing, EnvError on an unknown environment or an option it has no use for.
    """
    if env_id not in ENVIRONMENTS:
        raise EnvError(f"unknown Doom environment {env_id!r}; give one of {', '.join(ENVIRONMENTS)}")
    environment = ENVIRONMENTS[env_id]
    if (num_agents or num_bots) and not environment.is_network_game:
        raise EnvError(f"{env_id} is a game for one; num_agents and num_bots are for network games such as doom_duel")
    if shaping:
        environment = _reshaped(environment, env_id, shaping)
    given = {
        "frameskip": frameskip,
        "resolution": resolution,
        "wide": wide,
        "average": average,
        "measurements": measurements,
        "reward_scale": reward_scale,
        "timelimit": timelimit,
        "timeout_truncates": timeout_truncates,
        "agents": num_agents,
        "bots": num_bots,
    }
    environment = replace(environment, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    return DoomGame(env_id, environment, find_wad(wad or environment.scenario.wad))


def _reshaped(environment: DoomEnvironment, env_id: str, shaping: Mapping[str, Sequence[float]]) -> DoomEnvironment:
    """The environment with other rewards for changes of variables. Raises EnvError when it reads no such variable."""
    scenario = environment.scenario
    known = (*scenario.variables, CELLS)
    unknown = [name for name in shaping if name not in known]
    if unknown:
        raise EnvError(
            f"{env_id}: shaping names {', '.join(unknown)}, which the game does not read; "
            f"give one of {', '.join(known)}"
        )
    scheme = {**(environment.scheme or {}), **{name: (up, down) for name, (up, down) in shaping.items()}}
    if CELLS in shaping:
        environment = replace(environment, scenario=replace(scenario, variables=known))
    return replace(environment, scheme=scheme)
