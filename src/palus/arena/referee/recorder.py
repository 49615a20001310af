"""Collects what happens in chosen matches while the referee plays them, and hands out `Recording`s."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import numpy as np

from palus.arena.referee.games import game_of
from palus.arena.referee.result import MatchResult
from palus.envs.recording import I16, RecordedEvent, Recording
from palus.types import F32, I32, I64, AnyArray, Bool


class Observer(Protocol):
    """Observes matches while they are played: `Recorder` or `Film`. number: 2 * pair + (0 when A is blue, 1 when A is
    purple)."""

    def decision(self, env: Any, matches: I64, playing: Bool, actions: I32, probabilities: F32) -> None:
        """Note what the agents are about to do. matches: [N] number of the match in each slot of the environment."""

    def steps(self, env: Any, matches: I64, playing: Bool) -> None:
        """Note what the environment just played."""

    def finish(self, match: int, result: MatchResult) -> None:
        """The match has its verdict."""


class Film:
    """Hands on the pictures of matches of a game that is filmed. write: gets the number of the match and a picture, at
    the start and after every decision, or with `every_tick` of all that its engine draws."""

    def __init__(self, write: Callable[[int, AnyArray], None], *, every_tick: bool = False) -> None:
        self._write, self._every_tick = write, every_tick
        self._begun: set[int] = set()

    def decision(self, env: Any, matches: I64, playing: Bool, actions: I32, probabilities: F32) -> None:
        """Show how matches begin."""
        env.every_tick = self._every_tick
        for n in np.flatnonzero(playing).tolist():
            if (match := int(matches[n])) not in self._begun:
                self._begun.add(match)
                self._write(match, game_of(env.spec.env_id).still(env, n))

    def steps(self, env: Any, matches: I64, playing: Bool) -> None:
        """Show what came of the decision."""
        for n in np.flatnonzero(playing).tolist():
            for picture in game_of(env.spec.env_id).frames(env, n):
                self._write(int(matches[n]), picture)

    def finish(self, match: int, result: MatchResult) -> None:
        """Nothing more to see."""


class Recorder:
    """Give one to `play_pairs`; afterwards `recordings` holds a `Recording` per recorded match.

    matches: numbers of those to record; None records all.
    """

    def __init__(self, matches: Collection[int] | None = None) -> None:
        self.matches = matches
        self.recordings: dict[int, Recording] = {}
        self._open: dict[int, _Tape] = {}

    def decision(self, env: Any, matches: I64, playing: Bool, actions: I32, probabilities: F32) -> None:
        """Note what the agents are about to do."""
        widths = [sum(env.spec.behavior(agent.behavior).branches) for agent in env.spec.agents]
        unused = np.arange(probabilities.shape[-1]) >= np.array(widths)[:, None]
        for n in self._slots(matches, playing):
            tape = self._open.setdefault(int(matches[n]), _Tape(game_of(env.spec.env_id).still(env, n)))
            tape.actions.append(actions[n].astype(np.int16))
            tape.probabilities.append(np.where(unused, np.float32(0.0), probabilities[n]))

    def steps(self, env: Any, matches: I64, playing: Bool) -> None:
        """Note the fixed steps that the environment just played."""
        for n in self._slots(matches, playing):
            tape = self._open[int(matches[n])]
            game = game_of(env.spec.env_id)
            tape.events += game.events(env, n, tape.ticks)
            tape.frames.append(game.frames(env, n))
            tape.ticks += len(tape.frames[-1])

    def finish(self, match: int, result: MatchResult) -> None:
        """The match has its verdict: close its tape."""
        tape = self._open.pop(match, None)
        if tape is None:
            return
        probabilities = np.stack(tape.probabilities)
        self.recordings[match] = Recording(
            env_id=result.env,
            seed=result.seed,
            names=(result.sides[0].entity.repo, result.sides[1].entity.repo),
            frames=np.concatenate(tape.frames),
            actions=np.stack(tape.actions),
            probabilities=probabilities if np.isfinite(probabilities).all() else None,
            events=(*tape.events, *result.events),
            score=result.score,
            result=result.outcome,
        )

    def _slots(self, matches: I64, playing: Bool) -> list[int]:
        wanted = self.matches
        return [int(n) for n in np.flatnonzero(playing) if wanted is None or int(matches[n]) in wanted]


class _Tape:
    """The growing record of one match."""

    def __init__(self, still: F32) -> None:
        self.frames: list[F32] = [still[None]]
        self.actions: list[I16] = []
        self.probabilities: list[F32] = []
        self.events: list[RecordedEvent] = []
        self.ticks = 0
