"""Play whole episodes with a trained agent and measure them: what `palus enjoy` prints and a model card carries.

Several games run side by side, stepped in threads (engines leave Python while they work), so that every forward serves
all of them. Which episodes count is fixed beforehand, each with a seed of its own: were it "the first to finish", short
episodes would be counted too often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from palus.envs.game import Game, GameStep
from palus.nn.actor_critic import ActorCritic
from palus.nn.distributions import mode, sample
from palus.rollout.trajectories import EpisodeEnd
from palus.types import F32, I64, AnyArray

Recorder = Callable[[AnyArray], None]


class Decide(Protocol):
    """What plays: an agent with memory, asked for many rows at once. state_size: of its recurrent state, S."""

    @property
    def state_size(self) -> int: ...

    def __call__(
        self, observations: Mapping[str, AnyArray], states: F32, episodes: I64, decisions: I64
    ) -> tuple[F32, F32]:
        """[R, *shape] by name, [R, S], and which agent's episode and decision each row is -> [R, A], new [R, S]."""


class AgentPlayer:
    """A trained policy as a player. deterministic: the likeliest action instead of a drawn one.

    Draws are a function of seed, episode and decision: the same episodes come out however many games run side by side.
    """

    def __init__(self, policy: ActorCritic, seed: int, deterministic: bool = False) -> None:
        self.policy, self.seed, self.deterministic = policy, seed, deterministic
        self.state_size = policy.state_size

    def __call__(
        self, observations: Mapping[str, AnyArray], states: F32, episodes: I64, decisions: I64
    ) -> tuple[F32, F32]:
        """Rows of observations and states -> actions [R, A] and new states [R, S]."""
        seen = {name: torch.from_numpy(rows) for name, rows in observations.items()}
        parameters, _, after = self.policy.act(seen, torch.from_numpy(states))
        actions = self.policy.spec.actions
        if self.deterministic:
            return mode(parameters.numpy(), actions), after.numpy()
        chosen, _, _ = sample(parameters.numpy(), actions, self.seed, 0, (episodes << 32) | decisions)
        return chosen, after.numpy()


@dataclass(frozen=True)
class Evaluation:
    """Episodes that were played to their end, in order of their seeds. frames: of all that was played."""

    episodes: tuple[EpisodeEnd, ...]
    frames: int
    seconds: float

    @property
    def objectives(self) -> F32:
        """True objective of each episode."""
        return np.array([e.true_objective for e in self.episodes], np.float32)

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
    decide: Decide,
    *,
    episodes: int,
    games: int = 8,
    seed: int = 0,
    max_frames: int | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[EpisodeEnd], None] | None = None,
) -> Evaluation:
    """Play `episodes` episodes; with several agents in a game each agent's counts, and the last game is played out.

    games: side by side; speed, never results. max_frames: stop after so many engine frames; what is unfinished then
    does not count. recorder: gets the pictures of the first game's episodes, one per engine frame where it can.
    Raises what the game raises.
    """
    with ExitStack() as stack:
        first = make()
        stack.callback(first.close)
        needed = -(-episodes // first.spec.num_agents)
        made = [first]
        for _ in range(min(games, needed) - 1):
            made.append(make())
            stack.callback(made[-1].close)
        pool = stack.enter_context(ThreadPoolExecutor(len(made)))
        return _Evaluator(made, decide, needed, seed, recorder, progress).play(pool, max_frames)


@dataclass
class _Seat:
    """One running game: which of the numbered games it plays, and what its agents did so far.

    rewards, frames, decisions, states: per agent, of its present episode. ended: agents whose episode counted.
    """

    game: Game
    number: int
    rewards: AnyArray
    frames: AnyArray
    decisions: AnyArray
    states: F32
    ended: AnyArray
    pictured: bool


class _Evaluator:
    """Games in seats; a seat whose game is over takes the next number."""

    def __init__(
        self,
        games: Sequence[Game],
        decide: Decide,
        needed: int,
        seed: int,
        recorder: Recorder | None,
        progress: Callable[[EpisodeEnd], None] | None,
    ) -> None:
        self.spec, self.decide, self.needed = games[0].spec, decide, needed
        self.seeds = np.random.SeedSequence(seed).generate_state(needed)
        self.recorder, self.progress = recorder, progress
        self.started = self.frames = 0
        self.ends: list[EpisodeEnd] = []
        self.games = games

    def play(self, pool: ThreadPoolExecutor, max_frames: int | None) -> Evaluation:
        """Until every episode is over or the frames are used up."""
        clock = time.perf_counter()
        seats = [seat for seat in pool.map(self._sit, self.games, range(len(self.games))) if seat]
        self.started = len(seats)
        while seats and (max_frames is None or self.frames < max_frames):
            actions = self._decide(seats)
            steps = list(pool.map(self._step, seats, actions))
            kept: list[_Seat] = []
            for seat, step in zip(seats, steps, strict=True):
                self._book(seat, step)
                if step.over or seat.ended.all():
                    kept += self._next(seat)
                else:
                    kept.append(seat)
            seats = kept
        order = sorted(self.ends, key=lambda e: (e.game, e.agent))
        return Evaluation(tuple(order), self.frames, time.perf_counter() - clock)

    def _sit(self, game: Game, number: int) -> _Seat:
        agents = self.spec.num_agents
        if number == 0 and self.recorder is not None and hasattr(game, "recorder"):
            game.recorder = self.recorder
        game.reset(int(self.seeds[number]))
        return _Seat(
            game,
            number,
            rewards=np.zeros(agents),
            frames=np.zeros(agents, np.int64),
            decisions=np.zeros(agents, np.int64),
            states=np.zeros((agents, self.decide.state_size), np.float32),
            ended=np.zeros(agents, np.bool_),
            pictured=number == 0 and self.recorder is not None and not hasattr(game, "recorder"),
        )

    def _next(self, seat: _Seat) -> Iterator[_Seat]:
        """The seat with the next game; nothing when all have been started."""
        if self.started >= self.needed:
            return
        number, self.started = self.started, self.started + 1
        fresh = self._sit(seat.game, number)
        fresh.pictured = seat.pictured
        yield fresh

    def _decide(self, seats: Sequence[_Seat]) -> list[F32]:
        """Actions [P, A] of every seat, from one forward over the active agents of all."""
        P = self.spec.num_agents
        seen = {o.name: np.zeros((len(seats), P, *o.shape), o.dtype) for o in self.spec.observations}
        for k, seat in enumerate(seats):
            seat.game.observe({name: rows[k] for name, rows in seen.items()})
        active = np.stack([np.asarray(seat.game.active) for seat in seats])
        numbers = np.array([seat.number for seat in seats])[:, None] * P + np.arange(P)
        states = np.stack([seat.states for seat in seats])
        decisions = np.stack([seat.decisions for seat in seats])
        observations = {name: rows[active] for name, rows in seen.items()}
        chosen, new = self.decide(observations, states[active], numbers[active], decisions[active])
        actions = np.zeros((*active.shape, self.spec.actions.columns), np.float32)
        actions[active] = chosen
        states[active] = new
        for k, seat in enumerate(seats):
            seat.states = states[k]
            seat.decisions += active[k]
        self.frames += int(active.sum()) * self.spec.frameskip
        return list(actions)

    def _step(self, seat: _Seat, actions: F32) -> GameStep:
        seat.frames += np.asarray(seat.game.active) * self.spec.frameskip
        step = seat.game.step(actions)
        if seat.pictured and self.recorder is not None:
            self.recorder(seat.game.render())
        return step

    def _book(self, seat: _Seat, step: GameStep) -> None:
        seat.rewards += step.reward
        for agent in np.flatnonzero(np.asarray(step.terminated) | np.asarray(step.truncated)).tolist():
            if not seat.ended[agent]:
                stats = dict(step.stats.get(agent, {}))
                reward, frames = float(seat.rewards[agent]), int(seat.frames[agent])
                end = EpisodeEnd(seat.number, agent, 0, int(stats.get("len", frames)), reward, stats)
                self.ends.append(end)
                if self.progress is not None:
                    self.progress(end)
            seat.ended[agent] = True
            seat.states[agent] = 0.0
