"""A match that somebody watches, or plays in, while it is played: stepped decision by decision, never rated.

Unlike a rated match it goes on after a goal until its time is over, so that there is a score to watch. Everything but
a person's choices follows from the players and the seed, as in `palus.arena.referee.match`: same seed, same match.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palus.arena.locked.remote import Contestant, open_contestants
from palus.arena.locked.sandbox import shared_sandbox
from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, Player
from palus.arena.models.rules import Limits
from palus.arena.referee.games import DEFAULT_GAME, playable_game, source_of
from palus.arena.referee.questions import ask, by_behavior, memory_of, questions_for, widths
from palus.arena.referee.result import verdict_of
from palus.envs.recording import RecordedEvent
from palus.errors import ArenaError
from palus.types import F32, I32

DURATION_TICKS = 6000
"""Fixed steps of a whole match: two minutes, about what a person plays in one go."""

LIVE_LIMITS = Limits(wall_s=10.0, niceness=5)
"""Somebody waits for these answers: they come before those of rated matches, and not much later than they should. Stock
policies take a millisecond."""


@dataclass(frozen=True)
class LiveStep:
    """What one decision brought.

    P agents.   first_tick: number of the first of its fixed steps, from 1.   frames: [fixed steps played, C] as in
    `Recording`.   actions: [P, branches].   probabilities: [P, choices], NaN for bots and people.   events: what the
    game tells of these steps.
    goal: team that scored in the last of the fixed steps, -1 none.   score: how often blue and purple did so by then.
    """

    first_tick: int
    frames: F32
    actions: NDArray[np.int8]
    probabilities: F32
    events: tuple[RecordedEvent, ...]
    goal: int
    score: tuple[int, int]
    finished: bool


class LiveMatch:
    """Steps one match by the rules of the game's arena. Not for use by several threads at once.

    players: blue, purple.   contestants: whose they are, where they have any.   seed: in [0, 2^53).   person: agent
    that takes its choices from `step`'s argument, in the game's order; None when nobody plays.
    Raises ArenaError for a game that no arena plays, and for an agent that it does not have.
    """

    def __init__(
        self,
        players: tuple[Player, Player],
        seed: int,
        *,
        contestants: Sequence[Contestant] = (),
        person: int | None = None,
        env_id: str = DEFAULT_GAME,
        duration_ticks: int = DURATION_TICKS,
    ) -> None:
        self.players, self.contestants = players, contestants
        self.seed = seed
        self.person = person
        self.duration_ticks = duration_ticks
        self.score = (0, 0)
        self.ticks = 0
        self._decision = 0
        self.game = playable_game(env_id)
        self._env: Any = source_of(self.game.env).batch(1, record=True)
        self._env.reset(np.array([seed], np.int64))
        self._team_of = np.array([agent.team for agent in self._env.spec.agents])
        if person is not None and person >= len(self._team_of):
            raise ArenaError(f"{env_id} has no agent {person}; they are numbered from 0 to {len(self._team_of) - 1}")
        self._states = memory_of(players, 1, self._env.spec)

    @property
    def isolation(self) -> str:
        """What holds the strangers' models in, as in `UnitReport`; "none" without any."""
        return next((contestant.isolation for contestant in self.contestants if contestant.isolation), "none")

    @property
    def kick_off(self) -> F32:
        """[C] where everybody stands now; the first frame of the match, before any step."""
        return self.game.still(self._env, 0)

    def step(self, choice: Sequence[int] | None = None) -> LiveStep:
        """Play the next decision. choice: of the person, one index per action branch; None: the first of each.

        Raises ArenaError when a model no longer answers action probabilities.
        """
        actions, probabilities = self._decide(choice)
        step, game = self._env.step(by_behavior(self._env.spec, actions[None])), self.game
        frames = game.frames(self._env, 0)[: self.duration_ticks - self.ticks]
        played = len(frames)
        scored = bool(step.match_over[0]) and not step.truncated[0].any() and played == int(game.ticks(self._env)[0])
        goal = {"win1": 0, "win2": 1}.get(verdict_of(step.points[0]), -1) if scored else -1
        events = [e for e in game.events(self._env, 0, self.ticks) if e.tick <= self.ticks + played]
        self.score = (self.score[0] + (goal == 0), self.score[1] + (goal == 1))
        first_tick = self.ticks + 1
        self.ticks += played
        self._decision += 1
        return LiveStep(
            first_tick=first_tick,
            frames=frames,
            actions=actions.astype(np.int8),
            probabilities=probabilities,
            events=tuple(events),
            goal=goal,
            score=self.score,
            finished=self.ticks >= self.duration_ticks,
        )

    def _decide(self, choice: Sequence[int] | None) -> tuple[I32, F32]:
        """Choices [P, branches] and what they were drawn from [P, choices]."""
        spec = self._env.spec
        columns, width = widths(spec)
        actions = np.zeros((len(self._team_of), columns), np.int32)
        probabilities = np.full((len(self._team_of), width), np.nan, np.float32)
        for team, player in enumerate(self.players):
            side = self._team_of == team
            if isinstance(player, Bot):
                actions[side] = player.act(self._env, team, np.zeros(1, np.int64))[0]
                continue
            questions = questions_for(self._env, player, side[None], self._states)
            for question, answer in zip(questions, ask(questions, self._states, np.zeros(1, np.int64)), strict=True):
                if not question.answered_well(answer).all():
                    failure = self.contestants[team].failure if self.contestants else ""
                    said = failure or "it answers no action probabilities"
                    raise ArenaError(f"{player.name} no longer plays: {said}")
                drawn = question.choices(answer, np.array([self.seed]), self._decision, "stochastic")
                actions[question.agent, : drawn.shape[1]] = drawn
                probabilities[question.agent, : answer.shape[1]] = answer
        if self.person is not None:
            sizes = spec.behavior(spec.agents[self.person].behavior).branches
            actions[self.person, : len(sizes)] = np.clip(choice or 0, 0, np.array(sizes) - 1)
            probabilities[self.person] = np.nan
        return actions, probabilities


@contextlib.contextmanager
def open_live_match(
    contenders: tuple[Entity, Entity],
    seed: int,
    *,
    person: int | None = None,
    env_id: str = DEFAULT_GAME,
    duration_ticks: int = DURATION_TICKS,
) -> Iterator[LiveMatch]:
    """A match with every stranger's model in a locked process of its own; leaving the context ends the processes.

    Raises ArenaError when a model cannot be opened, or for a game that no arena plays.
    """
    with open_contestants(env_id, contenders, LIVE_LIMITS, shared_sandbox()) as contestants:
        for contender, contestant in zip(contenders, contestants, strict=True):
            if contestant.failure:
                raise ArenaError(f"{contender.repo} cannot be opened: {contestant.failure}")
        pair = (contestants[0].player, contestants[1].player)
        yield LiveMatch(
            pair, seed, contestants=contestants, person=person, env_id=env_id, duration_ticks=duration_ticks
        )
