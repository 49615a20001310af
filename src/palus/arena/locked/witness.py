"""Asks the players of a logged match again: whether each of its actions is one that they would have been drawn.

The match itself is played from its action log, so that what a player is shown here is what it was shown there, to the
bit. Players of the house draw the same everywhere. A model's answers may differ in their last digits where another
processor computed them: a choice that is not the one drawn here is its own no further than rounding moves the answer
(`steady.slack_of`). Where more is missing, the model may amplify rounding: it is asked whether it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from palus.arena.locked.remote import Contestant, open_contestants
from palus.arena.locked.sandbox import shared_sandbox
from palus.arena.locked.steady import SLACK, moved_by_rounding, rounded, slack_of
from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, Player
from palus.arena.models.policies import RandomPlayer
from palus.arena.models.rules import Limits
from palus.arena.referee import sampling
from palus.arena.referee.actions import Replayed, replay_match
from palus.arena.referee.games import playable_game
from palus.arena.referee.questions import Question, ask, memory_of, questions_for
from palus.arena.referee.result import Mode
from palus.envs.recording import I16
from palus.types import F32, I32, I64, AnyArray, Bool

DOUBTS = 32
"""Decisions with actions that a player does not take, at which it is asked whether rounding alone moves its answers."""


@dataclass
class Testimony:
    """What a player says to a match. strange, choices: actions that it does not take, of how many. rounded: those that
    it takes where sums are rounded otherwise, and not here. doubts, unsteady: at how many decisions with strange ones
    it was asked again, and rounding alone moved its answers. healthy: whether it answered probabilities at the end.
    failed: why its process ended, "" when it did not; of what was chosen from then on it says nothing."""

    strange: int = 0
    rounded: int = 0
    choices: int = 0
    doubts: int = 0
    unsteady: int = 0
    healthy: bool = True
    failed: str = ""

    @property
    def is_unsteady(self) -> bool:
        """Whether what it takes for strange may be its own, drawn where sums are rounded otherwise."""
        return 2 * self.unsteady > self.doubts

    @property
    def mixes_rows(self) -> bool:
        """Whether a check has failed: it was loaded, and answered."""
        return self.failed == "invalid" and self.choices > 0


def ask_again(
    env_id: str, seed: int, leg: int, actions: bytes, contenders: tuple[Entity, Entity], mode: Mode
) -> tuple[Replayed, tuple[Testimony, ...]]:
    """Play a match again and ask both players at every decision. contenders: blue first, as what comes back.

    They are asked all that they were asked when it was played, the same rows together, and checked at every decision:
    what a check found then is found again. Raises ReplayError and ArenaError as `replay_match` does.
    """
    limits = Limits(cpu_s=playable_game(env_id).cpu_s)
    turn = 1 if leg == 1 else -1  # the first of the pair is blue in leg 1 alone
    opened = open_contestants(env_id, contenders[::turn], limits, shared_sandbox(), check_share=1.0, seed=seed)
    with opened as seated:
        contestants = seated[::turn]
        players = [contestant.player for contestant in contestants]
        witness = _Asking(players, np.array([seed]), mode, leg - 1, contestants)
        again = replay_match(env_id, seed, actions, witness)
        for side, contestant in zip(witness.sides, contestants, strict=True):
            side.failed = contestant.cause or ""
    return again, witness.sides


@dataclass
class _Asking:
    """A `Witness` that asks the players: blue first. match: its number in its pair. contestants: whose players these
    are, where they have processes. elsewhere: what they remember where all of it is rounded otherwise at every
    decision: it may lead them away, however little each answer is moved."""

    players: list[Player]
    seeds: I64
    mode: Mode
    match: int = 0
    contestants: Sequence[Contestant] = ()
    states: F32 = field(init=False)
    elsewhere: F32 = field(init=False)
    sides: tuple[Testimony, ...] = field(default_factory=lambda: (Testimony(), Testimony()))

    def see(self, env: Any, decision: int, choice: I16 | None) -> None:
        """Compare what was logged with what each player answers now."""
        if decision == 0:
            self.states = memory_of(self.players, 1, env.spec)
            self.elsewhere = self.states.copy()
        for side, player in enumerate(self.players):
            own = np.array(env.spec.teams) == side
            if isinstance(player, Bot):
                expected = player.act(env, side, np.array([0]))[0]
                fits = [] if choice is None else [choice[own] == expected]
            else:
                fits = self._ask(env, side, own, decision, choice)
            for fitting in fits:
                self.sides[side].choices += fitting.size
                self.sides[side].strange += int(fitting.size - fitting.sum())

    def _ask(self, env: Any, side: int, own: Bool, decision: int, choice: I16 | None) -> list[Bool]:
        """[rows, branches] for each behavior, which logged choices the policy could have been drawn; nothing where
        there is nothing to compare. own: [P]"""
        player = self.players[side]
        assert not isinstance(player, Bot)
        questions = questions_for(env, player, (own & env.active[0])[None], self.states)
        answers = ask(questions, self.states, np.array([self.match]))
        good = [bool(q.answered_well(answer).all()) for q, answer in zip(questions, answers, strict=True)]
        self.sides[side].healthy = all(good)
        if choice is None:
            return []
        fits = []
        for q, answer in zip(questions, answers, strict=True):
            drift = self._drift(q, answer, decision)
            logged = choice[q.agent, : len(q.sizes)].astype(np.int32)
            if not self.sides[side].healthy:
                fits.append(np.zeros(logged.shape, np.bool_))
                continue
            fits.append(logged == q.choices(answer, self.seeds, decision, self.mode))
            if not fits[-1].all() and not isinstance(q.member, RandomPlayer):
                fits[-1] |= self._rounded(self.sides[side], q, answer, decision, logged, ~fits[-1], drift)
        has_failed = bool(self.contestants) and self.contestants[side].cause is not None
        return [] if has_failed else fits

    def _drift(self, q: Question, answer: F32, decision: int) -> float:
        """By how much a probability differs for what a player remembers elsewhere."""
        if not q.member.state_size:
            return 0.0
        own = q.n, q.agent, slice(q.member.state_size)
        remembered = rounded(np.random.default_rng(decision), self.elsewhere[own])
        other, self.elsewhere[own] = q.member.answer(q.seen, remembered, q.masks)
        return float(np.abs(other - answer).max())

    def _rounded(
        self, own: Testimony, q: Question, answer: F32, decision: int, logged: I32, missed: Bool, drift: float
    ) -> Bool:
        """[rows, branches] of the choices that were missed here, which may have been drawn elsewhere."""
        moved = drift
        if own.doubts < DOUBTS:
            moved = max(moved_by_rounding(partial(_answer, q), q.seen, q.states), drift)
        if self.mode == "greedy":
            could = sampling.could_be_best(answer, q.sizes, logged, slack_of(moved))
        else:
            thrown = q.thrown(self.seeds, decision)
            could = sampling.could_draw(answer, thrown, q.sizes, logged, slack_of(moved))
        own.rounded += int((could & missed).sum())
        if not (could | ~missed).all() and own.doubts < DOUBTS:
            own.doubts += 1
            own.unsteady += moved > SLACK
        return could


def _answer(question: Question, seen: Mapping[str, AnyArray], states: F32) -> F32:
    return question.member.answer(seen, states, question.masks)[0]
