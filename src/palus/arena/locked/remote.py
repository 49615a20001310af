"""Players whose models live in locked processes, for the referees: they answer, or answer NaN and say why.

A model can do no more than play: whatever else its process does (exit, signal, silence, garbage) becomes a typed result
against it, and there is never doubt whose process it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palus.arena.locked.frames import Rows, describe_task
from palus.arena.locked.probe import ALIKE, BATCH
from palus.arena.locked.sandbox import LockedProcess, LockedProcessError, Sandbox
from palus.arena.models.entity import Entity
from palus.arena.models.policies import Observations
from palus.arena.models.policy_graph import MAX_STATE
from palus.arena.models.rules import Limits
from palus.arena.referee.result import Cause, MatchResult, Verdict
from palus.types import F32, AnyArray, BehaviorSpec, Bool

EARLIER_ROWS = 32
"""Observations that are kept to be asked again."""


class LockedModel:
    """A contender's model in a process of its own.

    cause, failure: why it no longer answers, and a sentence about it. state_size: as its process reports it.
    """

    def __init__(self, contender: Entity, behavior: BehaviorSpec, limits: Limits, sandbox: Sandbox) -> None:
        """Opens the process. It is not an error when that fails: the model then has its failure already."""
        self.cause: Cause | None = None
        self.failure = ""
        self.isolation = ""
        self.state_size = 0
        self._process: LockedProcess | None = None
        model = contender.model
        try:
            self._process = sandbox.open(limits)
            self.isolation = self._process.isolation
            report = self._process.begin(describe_task(behavior), model)
        except LockedProcessError as error:
            self.fail(error.cause, str(error))
            return
        size = report.get("state_size")
        if report.get("refusal") is not None:
            self.fail("invalid", str(report["refusal"])[:500])
        elif type(size) is not int or not 0 <= size <= MAX_STATE:
            self.fail("crash", "answered garbage instead of a report")
        else:
            self.state_size = size

    def ask(self, questions: AnyArray, numbers: int) -> F32:
        """[rows, ...] -> [rows, numbers], NaN once the process has failed."""
        rows = len(questions)
        if self._process is not None:
            try:
                answer = self._process.ask(np.ascontiguousarray(questions).tobytes(), 4 * rows * numbers)
                return np.frombuffer(answer, np.float32).reshape(rows, numbers)
            except LockedProcessError as error:
                self.fail(error.cause, str(error))
        return np.full((rows, numbers), np.nan, np.float32)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def fail(self, cause: Cause, sentence: str) -> None:
        """End the process and say why; it answers NaN from now on."""
        self.cause, self.failure = cause, sentence
        self.close()


@dataclass(frozen=True)
class Checks:
    """Of a policy while it plays. share: of its decisions; seed: draws them and the questions, so that the same match
    is checked in the same way again. A model learns of neither."""

    share: float
    seed: Sequence[int]


class RemotePlayer:
    """A model in a locked process, as a player.

    At some decisions it is asked again, with one row as it was and rows of earlier decisions beside it. A policy whose
    agents do not see each other through the batch answers that row as before. Only the first answers are played, so
    that results are the same with these questions and without.
    """

    def __init__(
        self,
        contender: Entity,
        behavior: BehaviorSpec,
        limits: Limits,
        sandbox: Sandbox,
        checks: Checks | None = None,
    ) -> None:
        self.name = contender.repo
        self.sha256: str | None = contender.sha256
        self.locked = LockedModel(contender, behavior, limits, sandbox)
        self.state_size = self.locked.state_size
        self._rows = Rows(behavior, self.state_size)
        self._width = sum(behavior.branches)
        self._share = checks.share if checks else 0.0
        self._rng = np.random.default_rng(checks.seed if checks else 0)
        self._earlier = np.zeros((0, self._rows.question_bytes), np.uint8)

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`, NaN once the process has failed."""
        questions = self._rows.pack(observations, states, masks)
        answer = self.locked.ask(questions, self._rows.answer_numbers)
        if self._share:
            answer = self._checked(questions, answer)
        return answer[:, : self._width], answer[:, self._width :]

    def _checked(self, questions: AnyArray, answer: F32) -> F32:
        if len(self._earlier) and self._rng.random() < self._share:
            kept = int(self._rng.integers(len(questions)))
            others = self._earlier[self._rng.integers(0, len(self._earlier), max(len(questions), BATCH))]
            others[kept] = questions[kept]
            again = self.locked.ask(others, self._rows.answer_numbers)
            if np.abs(again[kept] - answer[kept]).max() > ALIKE:
                self.locked.fail("invalid", "it answers an observation differently when others are asked with it")
                answer = np.full_like(answer, np.nan)
        self._earlier = np.concatenate([self._earlier, questions])[-EARLIER_ROWS:]
        return answer


def true_cause(result: MatchResult, locked: Sequence[LockedModel | None]) -> tuple[Verdict, Cause]:
    """Verdict and cause of a match. locked: per side, blue first; None for players of the house.

    The referee only knows that a side answered no probabilities.
    """
    if result.cause != "non_finite":
        return result.result, result.cause
    failed = [None if model is None else model.cause for model in locked]
    at_fault = {"forfeit1": failed[:1], "forfeit2": failed[1:]}.get(result.result, failed)
    causes = [cause for cause in at_fault if cause is not None] or ["non_finite"]
    if "engine" in causes:
        return "void", "engine"
    return result.result, causes[0]
