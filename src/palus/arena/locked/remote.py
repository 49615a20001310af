"""Who takes part in a match: players of the house here, strangers' models in locked processes, which answer, or answer
NaN and say why.

A model can do no more than play: whatever else its process does (exit, signal, silence, garbage) becomes a typed result
against it, and there is never doubt whose process it was.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from palus.arena.locked.frames import Rows, Task
from palus.arena.locked.probe import ALIKE, BATCH
from palus.arena.locked.sandbox import LockedProcess, LockedProcessError, Sandbox
from palus.arena.models.entity import Entity
from palus.arena.models.players import Player, built_in, team_of
from palus.arena.models.policies import Observations, played_behaviors
from palus.arena.models.rules import Limits
from palus.arena.referee.games import playable_game, source_of
from palus.arena.referee.result import Cause, MatchResult, Verdict, short_digest
from palus.types import F32, I64, AnyArray, BehaviorSpec, Bool, GameSpec

EARLIER_ROWS = 32
"""Observations that are kept to be asked again."""


class Contestant:
    """A contender at a match, and the process that holds its models; players of the house have none.

    spec: of the game. player: for the referee. isolation: what holds the models in, "" for none. cause, failure: why
    they no longer answer, and a sentence about it. check_share, check_seed: of the decisions at which models are
    checked; the seed draws them and the questions. A model learns of neither.
    """

    def __init__(
        self,
        contender: Entity,
        spec: GameSpec,
        limits: Limits,
        sandbox: Sandbox,
        check_share: float,
        check_seed: tuple[int, int],
    ) -> None:
        """Opens the process. It is not an error when that fails: the contestant then has its failure already."""
        self.spec, self.isolation = spec, ""
        self.check_share, self.check_seed = check_share, check_seed
        self.cause: Cause | None = None
        self.failure = ""
        self._process: LockedProcess | None = None
        if contender.house is not None:
            self.player: Player = built_in(contender.house, spec, contender.repo, contender.sha256)
            return
        behaviors = played_behaviors(spec)
        sizes = self._open(contender, behaviors, limits, sandbox)
        members = {
            behavior.name: RemotePlayer(self, number, contender, behavior, size)
            for number, (behavior, size) in enumerate(zip(behaviors, sizes, strict=True))
        }
        self.player = team_of(members, contender.repo, contender.sha256)

    def _open(
        self, contender: Entity, behaviors: tuple[BehaviorSpec, ...], limits: Limits, sandbox: Sandbox
    ) -> tuple[int, ...]:
        """Returns what each model remembers."""
        models = contender.models_for([behavior.name for behavior in behaviors])
        nothing = (0,) * len(behaviors)
        try:
            self._process = sandbox.open(limits)
            self.isolation = self._process.isolation
            report = self._process.begin(Task(behaviors=behaviors), models)
        except LockedProcessError as error:
            self.fail(error.cause, str(error))
            return nothing
        if report.refusal is not None:
            self.fail("invalid", f"{report.refusal.code}: {report.refusal.sentence}"[:500])
            return nothing
        return report.state_sizes

    def ask(self, behavior: int, questions: AnyArray, numbers: int) -> F32:
        """[rows, ...] -> [rows, numbers], NaN once the process has failed. behavior: number of the one to play."""
        rows = len(questions)
        if self._process is not None:
            try:
                answer = self._process.ask(np.ascontiguousarray(questions).tobytes(), 4 * rows * numbers, behavior)
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


class RemotePlayer:
    """The model of one behavior in a contestant's process, as a player.

    In a match it is asked again at some decisions, with one row as it was and rows of earlier decisions beside it. A
    policy whose agents do not see each other through the batch answers that row as before. Only the first answers are
    played, so that results are the same with these questions and without.

    What it is asked depends on the match alone: no row of another is beside, and at each decision draws begin anew. So
    whoever asks the same match again, with the same share of checks or a larger one, asks all that was asked in it.
    """

    def __init__(
        self, contestant: Contestant, number: int, contender: Entity, behavior: BehaviorSpec, state_size: int
    ) -> None:
        self.name = contender.repo
        self.sha256: str | None = contender.sha256
        self.state_size = state_size
        self._contestant, self._number = contestant, number
        self._rows = Rows(behavior, state_size)
        self._width = sum(behavior.branches)
        self._earlier: dict[int, AnyArray] = {}
        self._decisions = Counter[int]()

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `ModelPlayer.answer`, NaN once the process has failed. What is asked here changes no check in a match."""
        answer = self._ask(self._rows.pack(observations, states, masks))
        return answer[:, : self._width], answer[:, self._width :]

    def answer_matches(
        self, observations: Observations, states: F32, masks: Bool | None, matches: I64
    ) -> tuple[F32, F32]:
        """As `MatchwisePlayer.answer_matches`, NaN in all of them once the process or a check has failed."""
        questions = self._rows.pack(observations, states, masks)
        answer = np.empty((len(questions), self._width + self.state_size), np.float32)
        for match in dict.fromkeys(matches.tolist()):
            own = matches == match
            answer[own] = self._ask(questions[own])
            if self._contestant.check_share:
                self._check(match, questions[own], answer[own])
        if self._contestant.cause is not None:
            answer[:] = np.nan
        return answer[:, : self._width], answer[:, self._width :]

    def _ask(self, questions: AnyArray) -> F32:
        return self._contestant.ask(self._number, questions, self._width + self.state_size)

    def _check(self, match: int, questions: AnyArray, answer: F32) -> None:
        """Perhaps ask one of these rows again. questions, answer: of the match's next decision."""
        earlier = self._earlier.get(match, questions[:0])
        key = (*self._contestant.check_seed, self._number, match, self._decisions[match])
        # Drawn by a hash, because to begin a generator takes longer than a small model's answer.
        drawn = int(short_digest(key), 16)
        if drawn < self._contestant.check_share * 2**64 and len(earlier):
            rng = np.random.default_rng(drawn)
            kept = int(rng.integers(len(questions)))
            others = earlier[rng.integers(0, len(earlier), max(len(questions), BATCH))]
            others[kept] = questions[kept]
            if np.abs(self._ask(others)[kept] - answer[kept]).max() > ALIKE:
                self._contestant.fail("invalid", "it answers an observation differently when others are asked with it")
        self._earlier[match] = np.concatenate([earlier, questions])[-EARLIER_ROWS:]
        self._decisions[match] += 1


@contextlib.contextmanager
def open_contestants(
    env: str,
    contenders: Sequence[Entity],
    limits: Limits,
    sandbox: Sandbox,
    *,
    params: Mapping[str, Any] | None = None,
    check_share: float = 0.0,
    seed: int = 0,
) -> Iterator[list[Contestant]]:
    """Seats of the two of a pair for its matches, the first of them first; leaving the context ends their processes.

    check_share: of `Contestant`. seed: of the matches, by which they are checked. Of a filmed game nothing is
    checked, as nobody could tell later, without a log of actions, whether a check that failed would fail again. Raises
    ArenaError for a game or a built-in player that there is not, EnvError when the game is not installed here.
    """
    game = playable_game(env)
    for contender in contenders:
        if contender.house is not None:
            game.check_house(contender.house)
    spec = source_of(env, params).spec
    with contextlib.ExitStack() as stack:
        contestants = []
        for place, contender in enumerate(contenders):
            share = 0.0 if game.filmed else check_share
            contestants.append(Contestant(contender, spec, limits, sandbox, share, (seed, place)))
            stack.callback(contestants[-1].close)
        yield contestants


def true_cause(result: MatchResult, contestants: Sequence[Contestant]) -> tuple[Verdict, Cause]:
    """Verdict and cause of a match. contestants: blue first.

    The referee only knows that a side answered no probabilities.
    """
    if result.cause != "non_finite":
        return result.result, result.cause
    at_fault = {"forfeit1": contestants[:1], "forfeit2": contestants[1:]}.get(result.result, contestants)
    causes = [contestant.cause for contestant in at_fault if contestant.cause is not None] or ["non_finite"]
    if "engine" in causes:
        return "void", "engine"
    return result.result, causes[0]
