"""Play whole episodes with a trained agent and measure them: what `palus enjoy` prints and a model card carries.

Several games run side by side, stepped in threads (engines leave Python while they work), so that every forward serves
all of them. Which episodes count is fixed beforehand, each with a seed of its own: were it "the first to finish", short
episodes would be counted too often. A game whose engine is lost, or hangs, is made anew and played again from the same
seed, so a loss costs time and changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from palus.envs.game import Actions, Game, GameStep, joined
from palus.envs.protocol import room_for
from palus.errors import EnvError
from palus.rollout.rollout import Episode
from palus.threads import DaemonThreads
from palus.types import F32, I64, AnyArray, GameSpec

Recorder = Callable[[AnyArray], None]
T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a game may take over one call before its engine counts as hung and is killed, where the game can do that."""
GRACE_S = 10.0
"""How long that call may take to come back then, until it is given up: some wait for a dead engine for ever."""
MAX_LOSSES = 3
"""How often one game may be lost before the evaluation gives up."""


class Decide(Protocol):
    """What plays a behavior: a policy with memory, asked for many rows at once. state_size: of its memory, S."""

    @property
    def state_size(self) -> int: ...

    def __call__(
        self, observations: Mapping[str, AnyArray], states: F32, episodes: I64, decisions: I64
    ) -> tuple[F32, F32]:
        """[R, *shape] by name, with `palus.types.MASKS` where there are any, [R, S], and which agent's episode and
        decision each row is -> [R, A], new [R, S]."""


@dataclass(frozen=True)
class Evaluation:
    """Episodes that were played to their end, in order of their seeds. frames: of all that was played.

    lost: games that were given up with their engine and played again. frameskip: engine frames of a decision.
    """

    episodes: tuple[Episode, ...]
    frames: int
    seconds: float
    lost: int = 0
    frameskip: int = 1

    def by(self, agents: Sequence[int]) -> Evaluation:
        """The episodes of some of the agents."""
        return replace(self, episodes=tuple(e for e in self.episodes if e.agent in agents))

    @property
    def mean_length(self) -> float:
        """Engine frames of an episode, as the game counts them where it does; NaN without episodes."""
        lengths = [e.stats.get("len", float(e.length * self.frameskip)) for e in self.episodes]
        return float(np.mean(lengths)) if lengths else float("nan")

    @property
    def objectives(self) -> F32:
        """True objective of each episode."""
        return np.array([e.number("true_objective") for e in self.episodes], np.float32)

    @property
    def mean(self) -> float:
        """Of the true objective; NaN without episodes."""
        return float(np.mean(self.objectives, dtype=np.float64)) if self.episodes else float("nan")

    @property
    def std(self) -> float:
        """Population standard deviation of the true objective, as model cards state it."""
        return float(np.std(self.objectives, dtype=np.float64)) if self.episodes else float("nan")

    @property
    def mean_reward(self) -> float:
        """Mean sum of rewards, shaping included."""
        return float(np.mean([e.reward for e in self.episodes])) if self.episodes else float("nan")


def evaluate(
    make: Callable[[], Game],
    players: Mapping[str, Decide],
    *,
    episodes: int,
    games: int = 8,
    seed: int = 0,
    max_frames: int | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[Episode], None] | None = None,
) -> Evaluation:
    """Play `episodes` episodes; with several agents in a game each agent's counts, and the last game is played out.

    players: by behavior. games: side by side; speed, never results. max_frames: stop after so many engine frames; what
    is unfinished then does not count. recorder: gets the pictures of the first game's episodes, one per engine frame
    where it can.
    Raises EnvError when games cannot be started or one is lost MAX_LOSSES times, and what else the game raises.
    """
    with ExitStack() as stack:

        def make_and_close() -> Game:
            game = make()
            stack.callback(game.close)
            return game

        first = make_and_close()
        needed = -(-episodes // first.spec.num_agents)
        made = [first, *(make_and_close() for _ in range(min(games, needed) - 1))]
        pool = DaemonThreads("evaluation")
        stack.callback(pool.close)
        seeds = np.random.SeedSequence(seed).generate_state(needed)
        return _Evaluator(make_and_close, made, first.spec, players, seeds, recorder, progress, pool).play(max_frames)


@dataclass
class _Seat:
    """One running game: which of the numbered games it plays, and what its agents did so far.

    rewards, decisions, states: per agent, of its present episode. ended: agents whose episode counted.
    filmed: its pictures are recorded. losses: how often this numbered game was lost.
    """

    game: Game
    number: int
    rewards: AnyArray
    decisions: AnyArray
    states: F32
    ended: AnyArray
    filmed: bool
    losses: int = 0


@dataclass
class _Evaluator:
    """Games in seats; a seat whose game is over takes the next number.

    seeds: of the numbered games. ends: by game and agent, so that a game played again replaces its own.
    """

    make: Callable[[], Game]
    games: Sequence[Game]
    spec: GameSpec
    players: Mapping[str, Decide]
    seeds: AnyArray
    recorder: Recorder | None
    progress: Callable[[Episode], None] | None
    pool: DaemonThreads
    started: int = 0
    frames: int = 0
    lost: int = 0
    ends: dict[tuple[int, int], Episode] = field(default_factory=dict)

    def play(self, max_frames: int | None) -> Evaluation:
        """Until every episode is over or the frames are used up."""
        clock = time.perf_counter()
        seats = [_given(seat) for seat in self._in_time(self.games, lambda i: self._sit(self.games[i], i))]
        self.started = len(seats)
        while seats and (max_frames is None or self.frames < max_frames):
            actions = self._decide(seats)
            steps = self._in_time([seat.game for seat in seats], partial(self._step, seats, actions))
            seats = [kept for seat, step in zip(seats, steps, strict=True) if (kept := self._follow(seat, step))]
        episodes = tuple(self.ends[key] for key in sorted(self.ends))
        return Evaluation(episodes, self.frames, time.perf_counter() - clock, self.lost, self.spec.frameskip)

    def _in_time(self, games: Sequence[Game], call: Callable[[int], T]) -> list[T | EnvError]:
        """`call` for every game at once, by its place, or how the game was lost; the engines of those that take too
        long are killed. When it returns or raises, no call is at work that could come back."""
        calls: list[Future[T]] = []
        try:
            for i in range(len(games)):
                calls.append(self.pool.submit(call, i))
            wait(calls, timeout=PATIENCE_S)
        finally:
            for game, pending in zip(games, calls, strict=False):
                if not pending.done() and hasattr(game, "kill"):
                    game.kill()  # the call that waits for the engine then raises EnvError
            for game, pending in zip(games, calls, strict=False):
                wait([pending], timeout=GRACE_S if hasattr(game, "kill") else None)
        return list(map(_outcome, calls))

    def _reset(self, game: Game, number: int, filmed: bool) -> _Seat:
        return _given(self._in_time([game], lambda _: self._sit(game, number, filmed))[0])

    def _sit(self, game: Game, number: int, filmed: bool = False) -> _Seat:
        agents = self.spec.num_agents
        filmed = filmed or (number == 0 and self.recorder is not None)
        if filmed and hasattr(game, "recorder"):
            game.recorder = self.recorder
        game.reset(int(self.seeds[number]))
        return _Seat(
            game,
            number,
            rewards=np.zeros(agents),
            decisions=np.zeros(agents, np.int64),
            states=np.zeros((agents, max(p.state_size for p in self.players.values())), np.float32),
            ended=np.zeros(agents, np.bool_),
            filmed=filmed,
        )

    def _follow(self, seat: _Seat, step: GameStep | EnvError) -> _Seat | None:
        """The seat as it goes on after a step; None when all games have been started."""
        if isinstance(step, EnvError):
            return self._play_again(seat, step)
        self._book(seat, step)
        if not (step.over or seat.ended.all()):
            return seat
        if self.started >= len(self.seeds):
            return None
        number, self.started = self.started, self.started + 1
        try:
            return self._reset(seat.game, number, seat.filmed)
        except EnvError as error:
            return self._play_again(replace(seat, number=number, losses=0), error)

    def _play_again(self, seat: _Seat, error: EnvError) -> _Seat:
        """The same numbered game from its beginning, in a new instance. Raises EnvError when that does not help."""
        for losses in range(seat.losses + 1, MAX_LOSSES):
            self.lost += 1
            seat.game.close()
            try:
                return replace(self._reset(self.make(), seat.number, seat.filmed), losses=losses)
            except EnvError as again:
                error = again
        raise EnvError(
            f"game {seat.number} of the evaluation was lost {MAX_LOSSES} times: {error}. Play fewer games side by side "
            "(--games 1) in case memory is short; another --seed passes over an episode that the game cannot play"
        ) from error

    def _decide(self, seats: Sequence[_Seat]) -> list[Actions]:
        """Actions of every seat, from one forward of each behavior over its active agents in all."""
        spec, P = self.spec, self.spec.num_agents
        agents = {behavior.name: list(spec.agents_of(behavior.name)) for behavior in spec.behaviors}
        seen = {b.name: room_for(b, len(seats), len(agents[b.name])) for b in spec.behaviors}
        for k, seat in enumerate(seats):
            own = {behavior: {name: rows[k] for name, rows in room.items()} for behavior, room in seen.items()}
            seat.game.observe(joined(spec, own))
        active = np.stack([np.asarray(seat.game.active) for seat in seats])
        numbers = np.array([seat.number for seat in seats])[:, None] * P + np.arange(P)
        states = np.stack([seat.states for seat in seats])
        decisions = np.stack([seat.decisions for seat in seats])
        actions = {}
        for behavior in spec.behaviors:
            player, asked = self.players[behavior.name], active[:, agents[behavior.name]]
            slots = np.zeros_like(active)
            slots[:, agents[behavior.name]] = asked
            actions[behavior.name] = np.zeros((*asked.shape, behavior.actions.columns), np.float32)
            if asked.any():
                rows = {name: array[asked] for name, array in seen[behavior.name].items()}
                memory = np.s_[slots, : player.state_size]
                chosen, states[memory] = player(rows, states[memory], numbers[slots], decisions[slots])
                actions[behavior.name][asked] = chosen
        for k, seat in enumerate(seats):
            seat.states = states[k]
            seat.decisions += active[k]
        self.frames += int(active.sum()) * spec.frameskip
        return [joined(spec, {name: array[k] for name, array in actions.items()}) for k in range(len(seats))]

    def _step(self, seats: Sequence[_Seat], actions: Sequence[Actions], i: int) -> GameStep:
        """One decision of a game."""
        seat = seats[i]
        step = seat.game.step(actions[i])
        if seat.filmed and self.recorder is not None and not hasattr(seat.game, "recorder"):
            self.recorder(seat.game.render())
        return step

    def _book(self, seat: _Seat, step: GameStep) -> None:
        seat.rewards += step.reward if step.group_reward is None else step.reward + step.group_reward
        for agent in np.flatnonzero(np.asarray(step.terminated) | np.asarray(step.truncated)).tolist():
            if not seat.ended[agent]:
                stats = dict(step.stats.get(agent, {}))
                reward, length = float(seat.rewards[agent]), int(seat.decisions[agent])
                end = Episode(seat.number, agent, 0, False, length, reward, 0.0, stats=stats)
                if self.progress is not None and (seat.number, agent) not in self.ends:
                    self.progress(end)
                self.ends[seat.number, agent] = end
            seat.ended[agent] = True
            seat.states[agent] = 0.0


def _outcome(call: Future[T]) -> T | EnvError:
    if not call.done():
        return EnvError("its engine is dead, and a call still waits for it")
    error = call.exception()
    return error if isinstance(error, EnvError) else call.result()


def _given(outcome: T | EnvError) -> T:
    if isinstance(outcome, EnvError):
        raise outcome
    return outcome
