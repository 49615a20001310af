"""One mirrored pair between strangers' models, from bytes to results.

The referee is `palus.arena.match`, in this process; it sees no model, only the probabilities that each side's locked
process answers. So a model can do no more than play: whatever else its process does (exit, signal, silence, garbage)
becomes a typed result against it, and there is never doubt whose process it was.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from palus import envs
from palus.arena.match import play_pairs
from palus.arena.players import Bot, Player, load_player
from palus.arena.recorder import Recorder
from palus.arena.replay import encode_replay
from palus.arena.result import Cause, MatchResult, Verdict
from palus.arena.runner.actions import encode_actions, replay_actions, state_hash
from palus.arena.runner.limits import Limits
from palus.arena.runner.sandbox import LockedProcess, LockedProcessError, Sandbox, shared_sandbox
from palus.arena.runner.tasks import describe_task
from palus.arena.runner.unit import Contender, Unit, UnitOutcome
from palus.types import F32, BehaviorSpec, EnvSpec


class RemotePolicy:
    """A policy in a locked process, as a player of `play_pairs`.

    cause, failure: why it no longer answers, and a sentence about it; its answers are NaN from then on.
    """

    def __init__(self, contender: Contender, behavior: BehaviorSpec, limits: Limits, sandbox: Sandbox) -> None:
        """Opens the process. It is not an error when that fails: the policy then has its failure already."""
        self.name = contender.repo
        self.sha256: str | None = contender.sha256
        self.cause: Cause | None = None
        self.failure = ""
        self.isolation = ""
        self._width = sum(behavior.branches)
        self._process: LockedProcess | None = None
        try:
            self._process = sandbox.open(limits)
            self.isolation = self._process.isolation
            report = self._process.begin(describe_task(behavior), contender.model or b"")
        except LockedProcessError as error:
            self._fail(error.cause, str(error))
            return
        if report.get("refusal") is not None:
            self._fail("invalid", str(report["refusal"])[:500])

    def probabilities(self, observations: F32) -> F32:
        """[rows, D] -> [rows, sum(branches)], NaN once the process has failed."""
        rows = len(observations)
        if self._process is not None:
            try:
                answer = self._process.ask(np.ascontiguousarray(observations).tobytes(), 4 * rows * self._width)
                return np.frombuffer(answer, np.float32).reshape(rows, self._width)
            except LockedProcessError as error:
                self._fail(error.cause, str(error))
        return np.full((rows, self._width), np.nan, np.float32)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _fail(self, cause: Cause, sentence: str) -> None:
        self.cause, self.failure = cause, sentence
        self.close()


def play_unit(unit: Unit, limits: Limits | None = None, *, sandbox: Sandbox | None = None) -> UnitOutcome:
    """Play a mirrored pair, every model in a locked process of its own.

    limits: of each process.   sandbox: which opens the processes; by default the one of this Python process.
    Models that fail lose by forfeit when the other side is healthy; the pair is void when both fail or we do.
    The same unit gives the same results, with or without processes: they equal `play_pairs` with one pair.
    """
    spec = envs.make(unit.env, 1).spec
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        players: list[Player] = []
        for contender in unit.contenders:
            players.append(open_player(contender, spec, limits or Limits(), sandbox or shared_sandbox()))
            if isinstance(players[-1], RemotePolicy):
                stack.callback(players[-1].close)
        results = play_pairs(players[0], players[1], 1, unit.seed, mode=unit.mode, env_id=unit.env, recorder=recorder)
    first, second = (_finish(unit, i, players, result, recorder) for i, result in enumerate(results))
    failures = [player.failure if isinstance(player, RemotePolicy) else "" for player in players]
    levels = [p.isolation for p in players if isinstance(p, RemotePolicy) and p.isolation]
    return UnitOutcome(
        results=(first[0], second[0]),
        replays=(first[1], second[1]),
        actions=(first[2], second[2]),
        isolation=levels[0] if levels else "none",
        failures=(failures[0], failures[1]),
    )


def open_player(contender: Contender, spec: EnvSpec, limits: Limits, sandbox: Sandbox) -> Player:
    """The player that a contender means: a built-in one, or a `RemotePolicy`, which its caller closes."""
    if contender.house is None:
        return RemotePolicy(contender, spec.behaviors[0], limits, sandbox)
    player = load_player(contender.house, spec)
    if isinstance(player, Bot):
        return dataclasses.replace(player, name=contender.repo, sha256=contender.sha256)
    player.name, player.sha256 = contender.repo, contender.sha256
    return player


def _finish(
    unit: Unit, game: int, players: list[Player], result: MatchResult, recorder: Recorder
) -> tuple[MatchResult, bytes, bytes]:
    """The result with its true cause and its final state, the replay, and the action log of one game."""
    sides = players if game == 0 else players[::-1]
    verdict, cause = _true_cause(result, [s.cause if isinstance(s, RemotePolicy) else None for s in sides])
    recording = recorder.recordings.get(game)
    if recording is None:  # nothing was decided
        replay, actions = b"", b""
        state = replay_actions(unit.env, result.seed, actions)
    else:
        replay, actions = encode_replay([recording]), encode_actions(recording.actions)
        state = state_hash(recording.frames)
    return dataclasses.replace(result, result=verdict, cause=cause, final_state=state), replay, actions


def _true_cause(result: MatchResult, failed: list[Cause | None]) -> tuple[Verdict, Cause]:
    """failed: cause per side, blue first. The referee only knows that a side answered no probabilities."""
    if result.cause != "non_finite":
        return result.result, result.cause
    at_fault = {"forfeit1": failed[:1], "forfeit2": failed[1:]}.get(result.result, failed)
    causes = [cause for cause in at_fault if cause is not None] or ["non_finite"]
    if "engine" in causes:
        return "void", "engine"
    return result.result, causes[0]
