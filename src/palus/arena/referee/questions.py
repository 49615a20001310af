"""What the players of a match are asked, behavior by behavior: by the referee, in live matches and by witnesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from palus.arena.models.players import Bot, MatchwisePlayer, ModelPlayer, Player, Team, member_for
from palus.arena.referee import sampling
from palus.arena.referee.result import Mode
from palus.envs.protocol import MultiAgentEnv, observe_slots
from palus.types import F32, F64, I32, I64, AnyArray, Bool, GameSpec


@dataclass(frozen=True)
class Question:
    """To the member that plays one behavior for a player. sizes: of the behavior's branches.

    n, agent: match slot and agent of every row of the others.
    """

    member: ModelPlayer
    sizes: tuple[int, ...]
    n: I64
    agent: I64
    seen: Mapping[str, AnyArray]
    states: F32
    masks: Bool | None

    def answered_well(self, answer: F32) -> Bool:
        """[rows] which are distributions, as `sampling.is_distribution` has it."""
        return sampling.is_distribution(answer, self.sizes, self.masks)

    def choices(self, answer: F32, seeds: I64, decision: int, mode: Mode) -> I32:
        """[rows, branches] what is played then. seeds: [N] of the matches."""
        if mode == "greedy":
            return sampling.best(answer, self.sizes)
        return sampling.draw(answer, self.thrown(seeds, decision), self.sizes)

    def thrown(self, seeds: I64, decision: int) -> F64:
        """[rows, branches] the numbers that decide it."""
        return sampling.uniforms(seeds[self.n], decision, self.agent, len(self.sizes))


def questions_for(env: MultiAgentEnv, player: ModelPlayer | Team, slots: Bool, states: F32) -> list[Question]:
    """One for each behavior that a player has in these slots. slots: [N, P]. states: [N, P, S], S at least its own."""
    questions = []
    for behavior in env.spec.behaviors:
        agents = np.array(env.spec.agents_of(behavior.name))
        own = slots[:, agents]
        if own.any():
            member = member_for(player, behavior.name)
            n, place = np.nonzero(own)
            agent = agents[place]
            seen, masks = observe_slots(env, behavior, own)
            remembered = states[n, agent, : member.state_size]
            questions.append(Question(member, behavior.branches, n, agent, seen, remembered, masks))
    return questions


def memory_of(players: Sequence[Player], num_matches: int, spec: GameSpec) -> F32:
    """[N, P, S] zeros: nobody remembers anything yet. Who remembers less than another uses the first numbers."""
    size = max(0 if isinstance(player, Bot) else player.state_size for player in players)
    return np.zeros((num_matches, spec.num_agents, size), np.float32)


def ask(questions: Sequence[Question], states: F32, matches: I64) -> list[F32]:
    """The answers, one question after the other: who plays several behaviors may do so in one process.

    states: [N, P, S], where what is remembered from now on is written. matches: [N] number of the match in each slot.
    """
    answers = []
    for q in questions:
        if hasattr(q.member, "answer_matches"):  # to ask the protocol takes as long as a small model's answer
            matchwise = cast(MatchwisePlayer, q.member)
            answer, after = matchwise.answer_matches(q.seen, q.states, q.masks, matches[q.n])
        else:
            answer, after = q.member.answer(q.seen, q.states, q.masks)
        states[q.n, q.agent, : q.member.state_size] = after
        answers.append(answer)
    return answers


def widths(spec: GameSpec) -> tuple[int, int]:
    """Columns of an array [P, columns] of choices, and of one of probabilities: what the widest behavior needs."""
    return max(len(b.branches) for b in spec.behaviors), max(sum(b.branches) for b in spec.behaviors)


def by_behavior(spec: GameSpec, actions: I32) -> list[I32]:
    """Such choices [N, P, columns] as `MultiAgentEnv.step` takes them."""
    return [actions[:, spec.agents_of(b.name), : len(b.branches)] for b in spec.behaviors]
